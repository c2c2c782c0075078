//! Calls that are ready to run: what follows from a call, its plan and the communicator, whatever
//! the values.
//!
//! Most programs make the same calls again and again. A communicator keeps the last few, so that
//! one that is made again is neither checked nor chosen anew. What a call depends on beside its
//! arguments is the configuration and what has been measured; whoever changes those forgets the
//! calls.

#[cfg(feature = "alloc")]
use super::Config;
use super::call_spec::CallSpec;
#[cfg(feature = "alloc")]
use super::probe::MIN_COUNTED_BYTES;
#[cfg(feature = "alloc")]
use super::{Communicator, Request};
use crate::engine::Program;
#[cfg(feature = "alloc")]
use crate::engine::{Coding, Compiled, Replay};
#[cfg(feature = "alloc")]
use crate::layout::Shares;
#[cfg(feature = "alloc")]
use crate::plan::Plan;
use crate::report::Report;
#[cfg(feature = "alloc")]
use crate::select::Choice;
#[cfg(feature = "alloc")]
use crate::transport::Transport;
#[cfg(feature = "alloc")]
use alloc::boxed::Box;

/// A call but for its values and its number.
#[derive(Clone, Copy)]
pub(crate) struct Resolved<'s> {
    pub(super) spec: CallSpec<'s>,
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
pub(super) struct RecentCall {
    pub(super) request: Request<'static>,
    /// Its plan; none of a prepared call.
    pub(super) plan: Option<Plan>,
    pub(super) resolved: Resolved<'static>,
    pub(super) coding: Coding,
    pub(super) compiled: Compiled,
    /// The call of them that is under way, or was last.
    pub(super) replay: Replay,
}

#[cfg(feature = "alloc")]
impl RecentCall {
    /// The call that is resolved so; `None` if lengths of shares would not live as long.
    fn new(
        request: &Request<'_>,
        plan: Option<Plan>,
        resolved: &Resolved<'_>,
        coding: &Coding,
    ) -> Option<Self> {
        let Resolved { spec, program, n_lanes, report } = resolved;
        let Shares::Even(count) = spec.shares else { return None };
        let shares = Shares::Even(count);
        let resolved = Resolved {
            spec: CallSpec { shares, ..*spec },
            program: program.of_shares(shares),
            n_lanes: *n_lanes,
            report: *report,
        };
        let request = Request { shares, ..*request };
        let (coding, compiled) = (coding.clone(), Compiled::default());
        Some(Self { request, plan, resolved, coding, compiled, replay: Replay::default() })
    }
}

/// The last calls of a communicator.
#[cfg(feature = "alloc")]
#[derive(Default)]
pub(super) struct RecentCalls {
    /// All but the one under way.
    calls: heapless::Vec<Box<RecentCall>, N_RECENT>,
    /// By which configuration they are resolved, if that may have changed since.
    config: Option<Config>,
}

#[cfg(feature = "alloc")]
impl RecentCalls {
    /// What the communicator's calls depend on has changed.
    pub(super) fn forget(&mut self) {
        self.calls.clear();
    }

    /// The configuration may change after this: it was `before`.
    pub(super) fn config_may_change(&mut self, before: Config) {
        self.config.get_or_insert(before);
    }

    /// Forgets the calls if the configuration has changed.
    fn check(&mut self, config: &Config) {
        if self.config.take().is_some_and(|before| !before.is_alike(config)) {
            self.forget();
        }
    }

    /// Takes a call out. The last one is looked at first.
    fn take(&mut self, is_it: impl Fn(&RecentCall) -> bool) -> Option<Box<RecentCall>> {
        let at = self.calls.iter().rposition(|recent| is_it(recent))?;
        Some(self.calls.remove(at))
    }

    /// Keeps a call, in place of the one that was made longest ago.
    fn insert(&mut self, recent: Box<RecentCall>) {
        if self.calls.is_full() {
            self.calls.remove(0);
        }
        // There is room.
        let _ = self.calls.push(recent);
    }
}

#[cfg(feature = "alloc")]
impl<X: Transport> Communicator<X> {
    /// Takes the call out of those that are kept, if it was made before.
    pub(super) fn take_recent(
        &mut self,
        request: &Request<'_>,
        plan: &Plan,
    ) -> Option<Box<RecentCall>> {
        if self.poisoned {
            return None;
        }
        self.state.recent.check(&self.config);
        let has_plan = |recent: &RecentCall| recent.plan.as_ref() == Some(plan);
        self.state.recent.take(|recent| recent.request == *request && has_plan(recent))
    }

    /// Takes a prepared call out of those that are kept, or begins to keep it; `None` if it is of
    /// no kind that is kept.
    pub(super) fn take_prepared(
        &mut self,
        request: &Request<'_>,
        resolved: &Resolved<'_>,
        coding: &Coding,
    ) -> Option<Box<RecentCall>> {
        let is_it = |recent: &RecentCall| {
            recent.plan.is_none()
                && recent.request == *request
                && recent.resolved.program.is_alike(&resolved.program)
        };
        let recent = self.state.recent.take(is_it);
        recent.or_else(|| RecentCall::new(request, None, resolved, coding).map(Box::new))
    }

    /// Keeps a call that was made again.
    pub(super) fn put_back(&mut self, mut recent: Box<RecentCall>) {
        if let Some(compiled) = self.state.lanes.record.take() {
            recent.compiled = compiled;
        }
        self.state.recent.insert(recent);
    }

    /// Keeps a call that by this plan is resolved so whatever its values, unless it hangs on what
    /// calls still measure.
    pub(super) fn keep(
        &mut self,
        request: &Request<'_>,
        plan: &Plan,
        (resolved, coding): (&Resolved<'_>, &Coding),
    ) {
        let spec = &resolved.spec;
        let is_short = request.n_bytes() < MIN_COUNTED_BYTES;
        let is_measured = is_short || self.state.measured.links.is_settled();
        let is_open = |choice: &Choice| {
            let depends_on_links = !is_measured && choice.depends_on_links();
            self.declared_link_rate().is_none() && (choice.is_close() || depends_on_links)
        };
        let own = request.own(self.size(), self.rank());
        let depends_on_values = spec.rounds_first || spec.finds_shape_in(own.len());
        if depends_on_values || spec.choice.as_ref().is_some_and(is_open) {
            return;
        }
        if let Some(recent) = RecentCall::new(request, Some(*plan), resolved, coding) {
            self.state.recent.check(&self.config);
            self.state.recent.insert(Box::new(recent));
        }
    }
}
