//! Arrays in files. The `foldwire` command reads them with this crate. It is a separate crate so
//! that the fuzz targets use the same code without the command's dependencies.
//!
//! | module | what it does |
//! |---|---|
//! | [`field`](mod@field) | turns a file's bytes, name and size into values with dimensions |
//! | [`dims`] | dimensions, and their notation |
//! | [`memory`] | allocates memory for values, or returns an error |
//! | [`npy`] | headers of NumPy's files |
//! | [`usage`](mod@usage) | usage errors, which say what to change |

pub mod dims;
pub mod field;
pub mod memory;
pub mod npy;
pub mod usage;
