//! Shared parts of the `foldwire` command's measurements: sources of values, timing, the speed of
//! memory, and output for the user.
//!
//! | module | what it does |
//! |---|---|
//! | [`data`], [`input`] | the values that ranks send; arrays from files, divided among ranks |
//! | [`ranks`], [`threads`] | ranks as threads; threads for a rank's computations |
//! | [`memory`], [`room`] | speed of memory, and repetition in turns; check of free memory |
//! | [`quality`] | errors of a result against the exact one |
//! | [`files`], [`infinite`] | files that are replaced whole; infinite errors in JSON |
//! | [`streams`], [`progress`], [`table`], [`picture`], [`plot`] | output for the user |

#![warn(clippy::print_stdout, clippy::print_stderr)]

pub mod data;
pub mod device;
pub mod files;
pub mod infinite;
pub mod input;
pub mod memory;
pub mod picture;
#[cfg_attr(not(feature = "plots"), path = "plot/absent.rs")]
pub mod plot;
pub mod progress;
pub mod quality;
pub mod ranks;
pub mod room;
pub mod streams;
pub mod table;
pub mod threads;
