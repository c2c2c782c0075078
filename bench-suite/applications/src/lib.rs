//! Programs that the `foldwire` command runs on several ranks, with what they exchange as it is and
//! compressed: each is a subcommand, and judges its own result.
//!
//! | module | what it does |
//! |---|---|
//! | [`cg`] | conjugate gradients |
//! | [`climate`] | a flow on a sphere, by each of CAM's methods to compress messages |
//! | [`halo`] | waves |
//! | [`train`] | a neural network that averages gradients |
//! | [`transpose`] | x + its transpose, over an all-to-all |
//! | `borders` | what neighbours on a divided grid give each other |

#![warn(clippy::print_stdout, clippy::print_stderr)]
// What only plots show is not looked at without them.
#![cfg_attr(not(feature = "plots"), allow(unused))]

mod borders;
pub mod cg;
pub mod climate;
pub mod halo;
pub mod train;
pub mod transpose;
