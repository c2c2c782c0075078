//! What measurements of the `foldwire` command share: where values come from, clocks and what memory
//! itself can do, and what the user sees.
//!
//! | module | what it does |
//! |---|---|
//! | [`data`], [`input`] | the values that ranks send; arrays in files, and how ranks share them |
//! | [`ranks`], [`threads`] | ranks that are threads; threads for a rank's computations |
//! | [`memory`], [`room`] | what memory itself can do, and the order of repetitions; whether there is enough |
//! | [`quality`] | errors of a result against the exact one |
//! | [`streams`], [`progress`], [`table`], [`picture`], [`plot`] | what the user sees |

#![warn(clippy::print_stdout, clippy::print_stderr)]

pub mod data;
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
