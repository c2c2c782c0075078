//! Calls that are ready to run: what follows from a call, its plan and the communicator, whatever
//! the values.
//!
//! Most programs make the same calls again and again. A communicator keeps the last few, so that
//! one that is made again is neither checked nor chosen anew. What a call depends on beside its
//! arguments is the configuration and what has been measured; whoever changes those forgets the
//! calls.

#[cfg(feature = "alloc")]
use super::Config;
#[cfg(feature = "alloc")]
use super::probe::COUNTED_FROM;
#[cfg(feature = "alloc")]
use super::state::State;
use super::terms::Terms;
use super::{Communicator, Request};
use crate::codec::CodecParams;
#[cfg(feature = "alloc")]
use crate::engine::Memo;
use crate::engine::Program;
use crate::error::Error;
#[cfg(feature = "alloc")]
use crate::layout::Shares;
use crate::plan::Plan;
use crate::report::Report;
#[cfg(feature = "alloc")]
use crate::select::Choice;
use crate::transport::Transport;
#[cfg(feature = "alloc")]
use alloc::sync::Arc;
#[cfg(feature = "alloc")]
use core::mem;

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
pub(super) struct Made {
    request: Request<'static>,
    plan: Plan,
    pub(super) resolved: Resolved<'static>,
}

/// The last calls of a communicator.
#[cfg(feature = "alloc")]
#[derive(Default)]
pub(super) struct Recent {
    calls: heapless::Vec<(Arc<Made>, Memo), N_RECENT>,
    /// Where the next one goes.
    next: usize,
    /// Whose memo the lanes have.
    lent: Option<usize>,
    /// By which configuration they are resolved, if that may have changed since.
    config: Option<Config>,
}

#[cfg(feature = "alloc")]
impl Recent {
    /// What the communicator's calls depend on has changed.
    pub(super) fn forget(&mut self) {
        self.calls.clear();
        self.lent = None;
    }

    /// The configuration may change after this: it was `before`.
    pub(super) fn doubt(&mut self, before: Config) {
        self.config.get_or_insert(before);
    }

    /// Forgets the calls if the configuration has changed.
    fn check(&mut self, config: &Config) {
        if self.config.take().is_some_and(|before| !before.is_alike(config)) {
            self.forget();
        }
    }

    /// Gives the lanes the memo of this call.
    fn lend(&mut self, at: usize, memo: &mut Memo) {
        if self.lent == Some(at) {
            return;
        }
        let lent = mem::take(memo);
        if let Some((_, place)) = self.lent.and_then(|before| self.calls.get_mut(before)) {
            *place = lent;
        }
        if let Some((_, kept)) = self.calls.get_mut(at) {
            *memo = mem::take(kept);
            self.lent = Some(at);
        }
    }

    fn insert(&mut self, known: Arc<Made>) {
        if let Err(new) = self.calls.push((known, Memo::default())) {
            self.calls[self.next] = new;
            self.lent = self.lent.filter(|&lent| lent != self.next);
            self.next = (self.next + 1) % N_RECENT;
        }
    }
}

#[cfg(feature = "alloc")]
impl<X: Transport> Communicator<X> {
    /// The call, if it was made before; the lanes have its memo then.
    fn recent(&mut self, request: &Request<'_>, plan: &Plan) -> Option<Arc<Made>> {
        if self.poisoned {
            return None;
        }
        let State { lanes, recent, .. } = &mut *self.state;
        recent.check(&self.config);
        let is_alike = |made: &Made| made.request == *request && made.plan == *plan;
        let at = recent.calls.iter().position(|(made, _)| is_alike(made))?;
        recent.lend(at, &mut lanes.memo);
        Some(Arc::clone(&recent.calls[at].0))
    }

    /// Keeps a call that by this plan is resolved so whatever its values, unless it hangs on what
    /// calls still measure.
    pub(super) fn keep(&mut self, request: &Request<'_>, plan: &Plan, resolved: &Resolved<'_>) {
        let Resolved { terms, params, program, n_lanes, report } = resolved;
        let Shares::Even(count) = terms.shares else { return };
        let is_short = request.n_bytes() < COUNTED_FROM;
        let is_measured = is_short || self.state.measured.links.is_settled();
        let is_open = |choice: &Choice| {
            let depends_on_links = !is_measured && choice.depends_on_links();
            self.told_rate().is_none() && (choice.is_close() || depends_on_links)
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
            Arc::new(Made { request: Request { shares, ..*request }, plan: *plan, resolved });
        let config = &self.config;
        let recent = &mut self.state.recent;
        recent.check(config);
        recent.insert(known);
    }
}

/// What is known of a call that is about to begin.
#[cfg_attr(feature = "alloc", expect(clippy::large_enum_variant, reason = "it is read at once"))]
pub(super) enum Known<'s> {
    /// All: it was made before.
    #[cfg(feature = "alloc")]
    Before(Arc<Made>),
    /// Its terms.
    Terms(Terms<'s>),
}

impl<'s> Known<'s> {
    pub(super) fn terms(&self) -> &Terms<'s> {
        match self {
            #[cfg(feature = "alloc")]
            Self::Before(made) => &made.resolved.terms,
            Self::Terms(terms) => terms,
        }
    }
}

impl<X: Transport> Communicator<X> {
    /// What is known of a call. Checks it unless it was made before.
    pub(super) fn known<'s>(
        &mut self,
        request: &Request<'s>,
        plan: &Plan,
    ) -> Result<Known<'s>, Error> {
        #[cfg(feature = "alloc")]
        if let Some(made) = self.recent(request, plan) {
            return Ok(Known::Before(made));
        }
        self.terms(request, plan).map(Known::Terms)
    }
}
