//! Calls of NVIDIA's driver and compiler, and arrays of DLPack: all `unsafe` code of this crate.
#![expect(unsafe_code, reason = "functions of the driver are foreign")]

mod cuda;
pub mod dlpack;
mod nvrtc;

pub use cuda::Cuda;
pub use nvrtc::{Compiled, Nvrtc};
