//! Codecs on NVIDIA GPUs: payloads are made and reduced where the values are, so that only
//! compressed bytes cross the bus.

mod codec;
pub mod error;
pub mod kernel;

pub use codec::{DeviceCodec, Task};
pub use error::DeviceError;
pub use kernel::{DeviceBytes, DevicePtr, KernelArg, Launch, Launcher, Module, Outcome};
