//! Foldwire: compression-accelerated collective communication.
#![no_std]
#[cfg(target_endian = "big")]
compile_error!("frames are little-endian memory images; big-endian machines are not supported");

#[cfg(feature = "alloc")]
extern crate alloc;
#[cfg(any(test, feature = "std"))]
extern crate std;

pub mod bound;
pub mod codec;
pub mod element;
pub mod kernel;
pub mod layout;
pub mod op;
pub mod schedule;
pub mod transport;

pub use bound::{Bound, Quantum, Scope};
pub use element::Element;
pub use op::Op;
