//! The measurements of the `foldwire` command. Each module is a subcommand.
//!
//! | module | what it measures |
//! |---|---|
//! | [`codec`](mod@codec) | codecs alone, compared with memory and with other compressors (peers) |
//! | [`accuracy`] | errors of reductions over ranks |
//! | [`bench`](mod@bench) | collectives over sizes; its folder also has `choose` and `guidelines` |
//! | `job` | (starts ranks for other modules: processes of a job, over any backend) |
//! | [`papers`] | experiments of the papers with codecs, beside what they report |
//! | [`p2p`] | messages between two ranks, and the barrier |
//! | [`sim`] | the cost model: predictions for a cluster, and their validation |
//! | [`tune`] | this machine's speeds, for automatic plans |

#![warn(clippy::print_stdout, clippy::print_stderr)]
// Without plots, items that only plots use are unused.
#![cfg_attr(not(feature = "plots"), allow(unused))]

pub mod accuracy;
pub mod bench;
pub mod codec;
mod job;
pub mod p2p;
pub mod papers;
pub mod peers;
pub mod sim;
pub mod tune;
