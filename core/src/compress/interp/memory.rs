//! Memory of arrays, kept from one segment to the next: the system takes about as long to map its
//! pages anew as the codec to fill them.

use super::coding::Coding;
use alloc::vec::Vec;

/// Memory of coding and decoding. It holds the numbers of the array before.
#[derive(Default)]
pub(super) struct Memory {
    pub(super) coding: Coding,
    pub(super) arrays: Arrays,
    /// Tables of a reader.
    pub(super) slots: Vec<u32>,
    /// Words of a reader, and zeros.
    pub(super) words: Vec<u8>,
}

/// Arrays that are filled layer by layer or line by line.
#[derive(Default)]
pub(super) struct Arrays {
    pub(super) codes: [Slab; 2],
    pub(super) active: [Slab; 2],
    pub(super) thinned: Slab,
    pub(super) is_off: Vec<bool>,
}

/// Memory of numbers of any type, aligned for vectors.
#[derive(Default)]
pub(super) struct Slab {
    blocks: Vec<Block>,
}

#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C, align(64))]
struct Block([u64; 8]);

impl Slab {
    /// Returns memory of this many numbers, which may hold anything.
    pub(super) fn of<V: bytemuck::Pod>(&mut self, n_values: usize) -> &mut [V] {
        let n_blocks = (n_values * size_of::<V>()).div_ceil(size_of::<Block>());
        if self.blocks.len() < n_blocks {
            self.blocks = alloc::vec![Block([0; 8]); n_blocks];
        }
        &mut bytemuck::cast_slice_mut(&mut self.blocks)[..n_values]
    }

    #[cfg(test)]
    pub(super) fn fill(&mut self, word: u64) {
        self.blocks.fill(Block([word; 8]));
    }
}

/// Calls `task` with the memory that the thread keeps.
#[cfg(feature = "std")]
pub(super) fn with<R>(task: impl FnOnce(&mut Memory) -> R) -> R {
    use core::cell::Cell;

    std::thread_local! {
        static KEPT: Cell<Option<alloc::boxed::Box<Memory>>> = const { Cell::new(None) };
    }
    // A thread that ends may have given it back already.
    let mut memory = KEPT.try_with(Cell::take).ok().flatten().unwrap_or_default();
    let result = task(&mut memory);
    let _ = KEPT.try_with(|kept| kept.set(Some(memory)));
    result
}

/// The same without an operating system, which has no memory for each thread.
#[cfg(not(feature = "std"))]
pub(super) fn with<R>(task: impl FnOnce(&mut Memory) -> R) -> R {
    task(&mut Memory::default())
}
