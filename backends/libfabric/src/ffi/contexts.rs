//! Contexts of requests: scratch memory that providers may require (`FI_CONTEXT2`). A completion
//! returns the address of its request's context.
//!
//! Each context stays in place as long as this store lives. The address in a completion is only
//! looked up and never followed, so a wrong one does no harm.

use std::ffi::c_void;
use std::ptr::NonNull;

use libfabric_sys as sys;

/// Number of contexts in one allocation.
const PER_CHUNK: usize = 128;

type ContextChunk = [sys::fi_context2; PER_CHUNK];

/// Contexts 0, 1, 2, …, allocated on demand.
pub(super) struct Contexts {
    /// Owned, but as raw pointers, because the provider may write there at any time.
    chunks: Vec<NonNull<ContextChunk>>,
}

impl Contexts {
    pub(super) const fn new() -> Self {
        Self { chunks: Vec::new() }
    }

    /// Returns the address of context `index` for the provider.
    pub(super) fn address(&mut self, index: usize) -> *mut c_void {
        while self.chunks.len() <= index / PER_CHUNK {
            let chunk = Box::new([sys::fi_context2::default(); PER_CHUNK]);
            self.chunks.push(NonNull::from(Box::leak(chunk)));
        }
        let first = self.chunks[index / PER_CHUNK].cast::<sys::fi_context2>();
        // SAFETY: the chunk has PER_CHUNK contexts.
        unsafe { first.add(index % PER_CHUNK) }.as_ptr().cast()
    }

    /// Returns the index of the context at this address, if there is one.
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

    /// Leaks the memory to a provider that may still write there.
    pub(super) fn abandon(&mut self) {
        self.chunks.clear();
    }
}

impl Drop for Contexts {
    fn drop(&mut self) {
        for chunk in self.chunks.drain(..) {
            // SAFETY: the chunk came from a Box, and no one else frees it. The endpoint that wrote
            // there is closed, or `abandon` has emptied the list.
            drop(unsafe { Box::from_raw(chunk.as_ptr()) });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Contexts, PER_CHUNK};

    /// Every address maps back to its index. Other addresses map to none.
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
