//! What the `foldwire` command is made of: the main job, the codec measurements, and their tables and
//! pictures. The binary only parses the command line and turns errors into exit codes.

pub mod cli;
pub mod field;
pub mod input;
pub mod memory;
mod npy;
pub mod peers;
pub mod picture;
pub mod quality;
pub mod table;
pub mod usage;
pub mod values;
pub mod wave;
