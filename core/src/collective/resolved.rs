//! Calls that are ready to run: what follows from a call, its plan and the communicator, whatever
//! the values.
//!
//! Most programs make the same calls again and again. A communicator keeps the last few, so that
//! one that is made again is neither checked nor chosen anew. What a call depends on beside its
//! arguments is the configuration and what has been measured; whoever changes those forgets the
//! calls.

use super::terms::Terms;
#[cfg(feature = "alloc")]
use super::{Communicator, Request};
use crate::codec::CodecParams;
use crate::engine::Program;
#[cfg(feature = "alloc")]
use crate::layout::Shares;
#[cfg(feature = "alloc")]
use crate::plan::Plan;
use crate::report::Report;
#[cfg(feature = "alloc")]
use crate::transport::Transport;
#[cfg(feature = "alloc")]
use alloc::sync::Arc;

/// A call but for its values and its number.
pub(crate) struct Resolved<'s> {
    pub(super) terms: Terms<'s>,
    /// What its codec is made from.
    pub(super) params: CodecParams,
    pub(super) program: Program<'s>,
    pub(super) n_lanes: usize,
    /// What its report begins with.
    pub(super) report: Report,
}

/// Calls that are kept.
#[cfg(feature = "alloc")]
const N_RECENT: usize = 8;

/// A call that was made before.
#[cfg(feature = "alloc")]
struct Known {
    request: Request<'static>,
    plan: Plan,
    resolved: Resolved<'static>,
}

/// The last calls of a communicator.
#[cfg(feature = "alloc")]
#[derive(Default)]
pub(super) struct Recent {
    calls: heapless::Vec<Arc<Known>, N_RECENT>,
    /// Where the next one goes.
    next: usize,
}

#[cfg(feature = "alloc")]
impl Recent {
    /// What the communicator's calls depend on has changed.
    pub(super) fn forget(&mut self) {
        self.calls.clear();
    }
}

#[cfg(feature = "alloc")]
impl<X: Transport> Communicator<X> {
    /// The call, if it was made before.
    pub(super) fn recent(
        &self,
        request: &Request<'_>,
        plan: &Plan,
    ) -> Option<impl core::ops::Deref<Target = Resolved<'static>> + use<X>> {
        if self.poisoned {
            return None;
        }
        let known = self.state.recent.calls.iter();
        let mut alike = known.filter(|known| known.request == *request && known.plan == *plan);
        alike.next().map(|known| Kept(Arc::clone(known)))
    }

    /// Keeps a call that by this plan is resolved so whatever its values, unless it hangs on what
    /// calls still measure.
    pub(super) fn keep(&mut self, request: &Request<'_>, plan: &Plan, resolved: &Resolved<'_>) {
        let Resolved { terms, params, program, n_lanes, report } = resolved;
        let Shares::Even(count) = terms.shares else { return };
        let is_open = |choice: &crate::select::Choice| {
            self.told_rate().is_none() && (choice.is_close() || choice.depends_on_links())
        };
        let own = request.own(self.size(), self.rank());
        let depends_on_values = terms.rounds_first || terms.finds_shape_in(own.len());
        if depends_on_values || terms.choice.as_ref().is_some_and(is_open) {
            return;
        }
        let shares = Shares::Even(count);
        let resolved = Resolved {
            terms: Terms { shares, ..*terms },
            params: *params,
            program: program.of_shares(shares),
            n_lanes: *n_lanes,
            report: *report,
        };
        let known =
            Arc::new(Known { request: Request { shares, ..*request }, plan: *plan, resolved });
        let recent = &mut self.state.recent;
        if let Err(known) = recent.calls.push(known) {
            recent.calls[recent.next] = known;
            recent.next = (recent.next + 1) % N_RECENT;
        }
    }
}

/// A call that was made before, and is kept as long as this.
#[cfg(feature = "alloc")]
struct Kept(Arc<Known>);

#[cfg(feature = "alloc")]
impl core::ops::Deref for Kept {
    type Target = Resolved<'static>;

    fn deref(&self) -> &Resolved<'static> {
        &self.0.resolved
    }
}
