//! What the `foldwire` command is made of: the main job, the codec measurements, and their tables
//! and pictures. The binary only parses the command line and turns errors into exit codes.
//!
//! | module | what it does |
//! |---|---|
//! | [`cli`], [`values`], [`sizes`] | the command line, and its values that have a grammar of their own |
//! | [`environment`] | variables that nobody reads |
//! | [`usage`] | errors of use, which exit with code 2 |
//! | [`field`](mod@field), [`input`] | arrays in files, and how ranks share them |
//! | [`quality`] | errors of a result against the exact one |
//! | [`memory`], [`room`] | what memory itself can do, and the order of repetitions; whether there is enough |
//! | [`peers`] | sizes and speeds of other compressors |
//! | [`streams`], [`table`], [`picture`], [`plot`] | what the user sees |
//! | [`stack`], [`codec`], [`accuracy`], [`bench`](mod@bench), [`p2p`], [`halo`], [`cg`], [`transpose`], [`tune`], [`train`], [`climate`], [`sim`], [`schedule`], [`info`](mod@info), `launch`, `preload` | the subcommands; the last two need Unix |

#![warn(clippy::print_stdout, clippy::print_stderr)]
// What only plots show is not looked at without them.
#![cfg_attr(not(feature = "plots"), allow(unused))]

pub mod accuracy;
pub mod bench;
mod borders;
pub mod cg;
pub mod cli;
pub mod climate;
pub mod codec;
mod coding;
pub mod environment;
pub mod halo;
pub mod info;
pub mod input;
#[cfg(unix)]
pub mod launch;
pub mod memory;
pub mod p2p;
pub mod peers;
pub mod picture;
#[cfg_attr(not(feature = "plots"), path = "plot/absent.rs")]
pub mod plot;
#[cfg(unix)]
pub mod preload;
mod progress;
pub mod quality;
pub mod room;
pub mod schedule;
pub mod sim;
pub mod sizes;
pub mod stack;
pub mod streams;
pub mod table;
mod threads;
pub mod train;
pub mod transpose;
pub mod tune;
pub mod values;

pub use foldwire_fields::{field, usage};
