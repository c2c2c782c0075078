//! Memory in which a writer or a reader works on a run of chunks.

use super::codes::Exceptions;
use super::window::WINDOW;
use crate::element::Float;

/// Most chunks in a run. A run of more needs fewer handovers, but a short payload has fewer runs.
pub(super) const MAX_RUN: usize = 4;

/// Space for a run.
pub(super) struct Space<'a, T: Float> {
    /// For the codes before the run and those of the run.
    pub(super) codes: &'a mut [T::Bits],
    /// One for each chunk.
    pub(super) exceptions: &'a mut [Exceptions<T>],
}

/// Calls `work` with space for runs of chunks if there are chains, and otherwise for single chunks.
pub(super) fn with_spaces<T: Float, const N: usize>(
    n_chains: usize,
    work: &mut dyn FnMut([Space<'_, T>; N]),
) {
    #[cfg(feature = "std")]
    if n_chains > 0 {
        // Threads of a pool may have short stacks, so the space is on the heap.
        let mut codes =
            [(); N].map(|()| std::vec![T::ZERO.bits(); (3 + MAX_RUN) * crate::kernel::CHUNK]);
        let exceptions = |()| (0..MAX_RUN).map(|_| Exceptions::NONE).collect::<std::vec::Vec<_>>();
        let mut exceptions = [(); N].map(exceptions);
        let mut exceptions = exceptions.iter_mut();
        return work(codes.each_mut().map(|codes| {
            let exceptions = exceptions.next().map_or(&mut [][..], |all| &mut all[..]);
            Space { codes, exceptions }
        }));
    }
    let _ = n_chains;
    on_stack(work);
}

/// It is not inlined, so that other paths do not reserve the space.
#[inline(never)]
fn on_stack<T: Float, const N: usize>(work: &mut dyn FnMut([Space<'_, T>; N])) {
    let mut codes = [[T::ZERO.bits(); WINDOW]; N];
    let mut exceptions = [const { [Exceptions::NONE] }; N];
    let mut exceptions = exceptions.iter_mut();
    let spaces = codes.each_mut().map(|codes| Space {
        codes,
        exceptions: exceptions.next().map_or(&mut [][..], |one| &mut one[..]),
    });
    work(spaces);
}
