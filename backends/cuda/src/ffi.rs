//! Calls of NVIDIA's driver and compiler: all `unsafe` code of this crate.
#![expect(unsafe_code, reason = "functions of the driver are foreign")]

mod cuda;
mod nvrtc;

pub use cuda::Cuda;
