//! The scratch memory that providers may ask for with each request (`FI_CONTEXT2`), and what tells
//! us later which request a completion is about.
//!
//! Each context stays where it is for as long as this store lives. A completion's pointer is looked
//! up by its address and never followed, so a wrong one does no harm.

use std::ffi::c_void;
use std::ptr::NonNull;

use libfabric_sys as sys;

/// Contexts that are allocated together.
const PER_CHUNK: usize = 128;

type ContextChunk = [sys::fi_context2; PER_CHUNK];

/// Contexts 0, 1, 2, … as many as have been asked for.
pub(super) struct Contexts {
    /// Owned, but as raw pointers: the provider writes there whenever it likes.
    chunks: Vec<NonNull<ContextChunk>>,
}

impl Contexts {
    pub(super) const fn new() -> Self {
        Self { chunks: Vec::new() }
    }

    /// Where context `index` is, for the provider.
    pub(super) fn address(&mut self, index: usize) -> *mut c_void {
        while self.chunks.len() <= index / PER_CHUNK {
            let chunk = Box::new([sys::fi_context2::default(); PER_CHUNK]);
            self.chunks.push(NonNull::from(Box::leak(chunk)));
        }
        let first = self.chunks[index / PER_CHUNK].cast::<sys::fi_context2>();
        // SAFETY: the chunk has PER_CHUNK contexts.
        unsafe { first.add(index % PER_CHUNK) }.as_ptr().cast()
    }

    /// Which context is at this address, if one is.
    pub(super) fn index(&self, address: *const c_void) -> Option<usize> {
        let in_chunk = |chunk: &NonNull<ContextChunk>| {
            let offset = address.addr().checked_sub(chunk.as_ptr().addr())?;
            let index = offset / size_of::<sys::fi_context2>();
            let is_start = offset.is_multiple_of(size_of::<sys::fi_context2>());
            (is_start && index < PER_CHUNK).then_some(index)
        };
        let mut chunks = self.chunks.iter().enumerate();
        chunks.find_map(|(at, chunk)| in_chunk(chunk).map(|index| at * PER_CHUNK + index))
    }

    /// Leaves the memory to a provider that may still write there.
    pub(super) fn abandon(&mut self) {
        self.chunks.clear();
    }
}

impl Drop for Contexts {
    fn drop(&mut self) {
        for chunk in self.chunks.drain(..) {
            // SAFETY: it came from a Box, nobody else frees it, and the endpoint that wrote there
            // is closed (or `abandon` has emptied the list).
            drop(unsafe { Box::from_raw(chunk.as_ptr()) });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Contexts, PER_CHUNK};

    /// Every address leads back to its index; others lead nowhere.
    #[test]
    fn addresses_are_found_again() {
        let mut contexts = Contexts::new();
        let addresses: Vec<_> =
            (0..2 * PER_CHUNK + 1).map(|index| contexts.address(index)).collect();
        for (index, &address) in addresses.iter().enumerate() {
            assert_eq!(contexts.index(address), Some(index));
            assert_eq!(contexts.address(index), address);
            assert_eq!(contexts.index(address.wrapping_byte_add(8)), None);
        }
        assert_eq!(contexts.index(std::ptr::null()), None);
        assert_eq!(contexts.index((&raw const contexts).cast()), None);
    }
}
