//! Calls of the shim, and the memory that it may access.

#![allow(unsafe_code)]

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ffi::{CStr, CString, c_char};
use std::ptr::NonNull;

/// Memory that kernels may access: address and length.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Range {
    start: u64,
    n_bytes: u64,
}

unsafe extern "C" {
    fn foldwire_shim_launch(
        name: *const c_char,
        n_blocks: u32,
        n_threads: u32,
        args: *const u64,
        n_args: u32,
        ranges: *const Range,
        n_ranges: u32,
    ) -> *const c_char;
    fn foldwire_shim_kernel(i: u32) -> *const c_char;
}

/// Memory behind a raw pointer, because kernels write to it.
#[derive(Debug)]
pub(crate) struct Buffer {
    memory: NonNull<u8>,
    layout: Layout,
    n_bytes: usize,
}

// SAFETY: the buffer owns its memory, and only `Device`, by its borrow rules, accesses it.
unsafe impl Send for Buffer {}
// SAFETY: as above; a shared reference only reads, apart from `write`, which `Device` calls with an
// exclusive borrow of itself.
unsafe impl Sync for Buffer {}

impl Buffer {
    const ALIGNMENT: usize = 256;

    pub(crate) fn new(n_bytes: usize) -> Self {
        let layout = Layout::from_size_align(n_bytes.max(1), Self::ALIGNMENT);
        let Ok(layout) = layout else { panic!("{n_bytes} bytes are too many") };
        // SAFETY: the size is not 0.
        let memory = unsafe { alloc(layout) };
        let Some(memory) = NonNull::new(memory) else { handle_alloc_error(layout) };
        // SAFETY: the memory has this size. The pattern looks like no useful number.
        unsafe { memory.write_bytes(0xa5, layout.size()) };
        Self { memory, layout, n_bytes }
    }

    pub(crate) fn address(&self) -> u64 {
        self.memory.as_ptr().expose_provenance() as u64
    }

    pub(crate) fn len(&self) -> usize {
        self.n_bytes
    }

    pub(crate) fn range(&self) -> Range {
        Range { start: self.address(), n_bytes: self.n_bytes as u64 }
    }

    pub(crate) fn write(&self, offset: usize, bytes: &[u8]) {
        assert!(offset + bytes.len() <= self.n_bytes);
        // SAFETY: the bytes fit; a slice of the caller's does not overlap this memory.
        unsafe {
            self.memory
                .add(offset)
                .copy_from_nonoverlapping(NonNull::from(bytes).cast(), bytes.len());
        }
    }

    pub(crate) fn read(&self, offset: usize, bytes: &mut [u8]) {
        assert!(offset + bytes.len() <= self.n_bytes);
        // SAFETY: as in `write`.
        unsafe {
            NonNull::from(&mut *bytes)
                .cast::<u8>()
                .copy_from_nonoverlapping(self.memory.add(offset), bytes.len());
        }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout.
        unsafe { dealloc(self.memory.as_ptr(), self.layout) };
    }
}

/// Reads bytes of pages that are locked.
pub(crate) fn read_locked(address: u64, n_bytes: usize) -> Vec<u8> {
    let from = std::ptr::with_exposed_provenance::<u8>(address as usize);
    // SAFETY: the pages are memory of the process until they are unlocked, and who enqueued the
    // copy changes nothing there before it is done.
    unsafe { std::slice::from_raw_parts(from, n_bytes) }.to_vec()
}

/// Writes bytes of pages that are locked.
pub(crate) fn write_locked(address: u64, bytes: &[u8]) {
    let to = std::ptr::with_exposed_provenance_mut::<u8>(address as usize);
    // SAFETY: as above; nothing else uses the bytes before the copy is done. `bytes` is a copy.
    unsafe { to.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
}

/// Runs a kernel; returns a report if something went wrong.
pub(crate) fn launch(
    kernel: &str,
    n_blocks: u32,
    n_threads: u32,
    args: &[u64],
    ranges: &[Range],
) -> Result<(), String> {
    let Ok(name) = CString::new(kernel) else { return Err("no kernel has this name".into()) };
    // SAFETY: all pointers are valid for their lengths. The shim checks each access of a kernel to
    // memory against the ranges, which are memory of the caller's `Device`.
    let report = unsafe {
        foldwire_shim_launch(
            name.as_ptr(),
            n_blocks,
            n_threads,
            args.as_ptr(),
            args.len() as u32,
            ranges.as_ptr(),
            ranges.len() as u32,
        )
    };
    if report.is_null() {
        return Ok(());
    }
    // SAFETY: the shim returns a string that is valid until this thread's next launch.
    Err(unsafe { CStr::from_ptr(report) }.to_string_lossy().into_owned())
}

/// Returns the name of kernel number `i`.
pub(crate) fn kernel(i: u32) -> Option<String> {
    // SAFETY: the shim returns null or a string that lives as long as the program.
    let name = unsafe { foldwire_shim_kernel(i) };
    // SAFETY: as above.
    (!name.is_null()).then(|| unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned())
}
