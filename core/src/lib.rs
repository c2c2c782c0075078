//! Foldwire: compression-accelerated collective communication.
#![no_std]
#[cfg(feature = "alloc")]
extern crate alloc;

pub mod layout;
pub mod schedule;
pub mod transport;
