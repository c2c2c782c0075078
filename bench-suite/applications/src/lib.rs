//! Programs that the `foldwire` command runs on several ranks. Each is a subcommand. It runs with
//! uncompressed and then with compressed messages, and checks its own result.
//!
//! | module | what it does |
//! |---|---|
//! | [`cg`] | conjugate gradients |
//! | [`climate`] | a flow on a sphere, with each compression method of the climate model CAM |
//! | [`halo`] | a wave simulation |
//! | [`train`] | a neural network that averages gradients |
//! | [`transpose`] | x + its transpose, over an all-to-all |
//! | `borders` | exchange of border planes between neighbours on a divided grid |
//! | `runs` | time and messages of runs |

#![warn(clippy::print_stdout, clippy::print_stderr)]
// Some items are used by plots only.
#![cfg_attr(not(feature = "plots"), allow(unused))]

mod borders;
pub mod cg;
pub mod climate;
pub mod halo;
mod runs;
pub mod train;
pub mod transpose;
