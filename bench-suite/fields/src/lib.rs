//! Arrays in files, as the `foldwire` command reads them: a crate of its own so that fuzzing reads
//! them with the same code and without the command's dependencies.
//!
//! | module | what it does |
//! |---|---|
//! | [`field`](mod@field) | a file's bytes, name and size become values with dimensions |
//! | [`dims`] | dimensions, and how they are written |
//! | [`memory`] | memory for values, or an error |
//! | [`usage`] | errors of use, which say what to change |

pub mod dims;
pub mod field;
pub mod memory;
mod npy;
pub mod usage;
