//! What the `foldwire` command measures: each module is a subcommand.
//!
//! | module | what it measures |
//! |---|---|
//! | [`codec`](mod@codec) | codecs alone, beside memory and other compressors (peers) |
//! | [`accuracy`] | errors of reductions over ranks |
//! | [`bench`](mod@bench) | collectives over sizes; in its folder `choose` and `guidelines` |
//! | [`p2p`] | messages between two ranks, and the barrier |
//! | [`sim`] | the cost model: what to expect of a cluster, and how far to trust it |
//! | [`tune`] | this machine's speeds, for automatic plans |

#![warn(clippy::print_stdout, clippy::print_stderr)]
// What only plots show is not looked at without them.
#![cfg_attr(not(feature = "plots"), allow(unused))]

pub mod accuracy;
pub mod bench;
pub mod codec;
pub mod p2p;
pub mod peers;
pub mod sim;
pub mod tune;
