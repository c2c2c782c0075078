//! Stores through which ranks find each other without a root's socket, and the [`Exchange`] over
//! any of them.
//!
//! | store | where its values are |
//! |---|---|
//! | [`MemoryStore`] | in this process, for ranks that are threads, and for tests |
//! | [`FileStore`] | in a folder that all processes see |
//! | [`TcpStore`] | in one process, which the others reach over TCP |
//! | a closure | wherever the caller's closure puts them ([`foldwire::store::StoreRequest`]) |
//!
//! No store has a thread of its own.

pub(crate) mod exchange;
mod file;
mod memory;
pub(crate) mod tcp;

pub use exchange::{StoreExchange, StorePlace};
pub use file::FileStore;
pub use memory::MemoryStore;
pub use tcp::TcpStore;

#[cfg(test)]
mod tests;
