//! Codecs on NVIDIA GPUs: payloads are made and reduced where the values are, so that only
//! compressed bytes cross the bus.
//!
//! ```no_run
//! use foldwire::{Bound, Call, Communicator, Op, Plan, Transport};
//! use foldwire_cuda::{Cuda, DeviceBuffer, Workspace};
//!
//! fn sum<X: Transport>(comm: &mut Communicator<X>) -> Result<(), Box<dyn std::error::Error>> {
//!     let gpu = Cuda::open(0)?;
//!     let mut workspace = Workspace::new(&gpu, comm)?;
//!     let mut x = DeviceBuffer::from_values(&gpu, &[0.25_f32; 1 << 20])?;
//!     let plan = Plan::foldwire(Bound::Absolute(1e-3));
//!     comm.run_on(&mut workspace, Call::all_reduce(x.output(), Op::Sum), &plan)?;
//!     println!("{}", x.to_vec(&gpu)?[0]);
//!     Ok(())
//! }
//! ```
//!
//! - [`driver`]: what a device offers; [`Cuda`] is NVIDIA's.
//! - [`kernel`]: kernels as the host sees them. Their source is in `kernels/`; [`Nvrtc`] compiles
//!   it.
//! - [`DeviceCodec`]: codecs as sequences of launches.
//! - [`Workspace`]: streams and memory for a communicator's calls.
//! - [`pool`]: devices by number, and their workspaces, for bindings.
//! - [`DeviceBuffer`]: values on a device, allocated here or by another library.
//! - [`dlpack`]: arrays that other libraries export.
//!
//! docs/devices.md has the memory model, streams, what is copied when, and limits.

mod buffer;
mod codec;
pub mod driver;
pub mod error;
mod ffi;
pub mod kernel;
pub mod pool;
mod range;
mod self_check;
mod workspace;

pub use buffer::{DeviceBuffer, Transfer};
pub use codec::{DeviceCodec, Task};
pub use driver::{Driver, Stream};
pub use error::DeviceError;
pub use ffi::{Compiled, Cuda, Nvrtc, dlpack};
pub use kernel::{DeviceBytes, DevicePtr, KernelArg, Launch, Launcher, Module, Outcome};
pub use workspace::{Workspace, WorkspaceConfig};
