//! Calls that are ready to run: everything that follows from a call's arguments, its plan and the
//! communicator, but not from the values.
//!
//! Most programs repeat the same calls. A communicator keeps the last few of them, and neither
//! checks nor plans them again. The result of planning also depends on the configuration and on
//! measurements. A change of either drops the kept calls.

#[cfg(feature = "alloc")]
use super::Config;
use super::call_spec::CallSpec;
#[cfg(feature = "alloc")]
use super::probe::CountedCall;
#[cfg(feature = "alloc")]
use super::{Communicator, Request};
#[cfg(feature = "alloc")]
use crate::element::Element;
use crate::engine::Program;
#[cfg(feature = "alloc")]
use crate::engine::{Buffers, Coding, Compiled, Replay};
#[cfg(feature = "alloc")]
use crate::layout::Shares;
#[cfg(feature = "alloc")]
use crate::plan::Plan;
use crate::report::Report;
#[cfg(feature = "alloc")]
use crate::transport::Transport;
#[cfg(feature = "alloc")]
use alloc::{boxed::Box, sync::Arc};

/// A planned call without its values and its number.
#[derive(Clone, Copy)]
pub(crate) struct Resolved<'s> {
    pub(super) spec: CallSpec<'s>,
    pub(super) program: Program<'s>,
    /// Report of the call before it begins.
    pub(super) report: Report,
}

/// Number of calls that a communicator keeps.
#[cfg(feature = "alloc")]
const N_RECENT: usize = 8;

/// How a kept call is known again.
#[cfg(feature = "alloc")]
pub(super) enum Origin {
    /// By its plan, and its request.
    Plan(Plan),
    /// By its preparation, and the buffers' lengths.
    Preparation(Preparation),
}

/// Identity of a prepared call. Only clones are equal.
#[derive(Clone, Default)]
pub(super) struct Preparation(#[cfg(feature = "alloc")] Arc<()>);

#[cfg(feature = "alloc")]
impl PartialEq for Preparation {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// A call that the communicator has run before.
#[cfg(feature = "alloc")]
pub(super) struct RecentCall {
    pub(super) request: Request<'static>,
    origin: Origin,
    /// How measurements count the call, if its choice depends on them.
    counted: Option<CountedCall>,
    pub(super) resolved: Resolved<'static>,
    pub(super) coding: Coding,
    pub(super) compiled: Compiled,
    /// Replay of these steps that is in progress, or the last one.
    pub(super) replay: Replay,
}

#[cfg(feature = "alloc")]
impl RecentCall {
    /// Copies a planned call so that it outlives its arguments. `None` if it borrows the lengths of
    /// shares.
    pub(super) fn new(
        request: &Request<'_>,
        origin: Origin,
        resolved: &Resolved<'_>,
        coding: &Coding,
    ) -> Option<Self> {
        let Resolved { spec, program, report } = resolved;
        let Shares::Even(count) = spec.shares else { return None };
        let shares = Shares::Even(count);
        let resolved = Resolved {
            spec: CallSpec { shares, ..*spec },
            program: program.of_shares(shares),
            report: *report,
        };
        let request = Request { shares, ..*request };
        let (coding, compiled) = (coding.clone(), Compiled::default());
        let replay = Replay::new(*report);
        let counted = None;
        Some(Self { request, origin, counted, resolved, coding, compiled, replay })
    }
}

/// Calls that a communicator ran last.
#[cfg(feature = "alloc")]
#[derive(Default)]
pub(super) struct RecentCalls {
    /// All kept calls except the running one, oldest first.
    calls: heapless::Vec<Box<RecentCall>, N_RECENT>,
    /// Configuration that the calls were planned with, if it may have changed since.
    config: Option<Config>,
}

#[cfg(feature = "alloc")]
impl RecentCalls {
    /// Drops all calls, because something that they depend on has changed.
    pub(super) fn forget(&mut self) {
        self.calls.clear();
    }

    /// Records that the configuration, which is `before` now, may be about to change.
    pub(super) fn config_may_change(&mut self, before: Config) {
        self.config.get_or_insert(before);
    }

    /// Drops all calls if the configuration has changed.
    fn check(&mut self, config: &Config) {
        if let Some(before) = &self.config {
            if !before.is_alike(config) {
                self.forget();
            }
            self.config = None;
        }
    }

    /// Takes a call out, searching from the most recent one.
    fn take(&mut self, is_it: impl Fn(&RecentCall) -> bool) -> Option<Box<RecentCall>> {
        let at = self.calls.iter().rposition(|recent| is_it(recent))?;
        // The last one, as usual, leaves no gap.
        if at + 1 == self.calls.len() { self.calls.pop() } else { Some(self.calls.remove(at)) }
    }

    /// Keeps a call, and returns it. Drops the oldest one if there is no space.
    fn insert(&mut self, recent: Box<RecentCall>) -> Option<&RecentCall> {
        if self.calls.is_full() {
            self.calls.remove(0);
        }
        // There is space now.
        let _ = self.calls.push(recent);
        self.calls.last().map(|recent| &**recent)
    }
}

#[cfg(feature = "alloc")]
impl<X: Transport> Communicator<X> {
    /// Takes this call out of the kept ones, if it is among them and no measurement is due before
    /// it.
    pub(super) fn take_recent(
        &mut self,
        request: &Request<'_>,
        plan: &Plan,
    ) -> Option<Box<RecentCall>> {
        if self.poisoned {
            return None;
        }
        self.state.recent.check(&self.config);
        let has_plan = |origin: &Origin| matches!(origin, Origin::Plan(theirs) if theirs == plan);
        let is_it = |recent: &RecentCall| recent.request == *request && has_plan(&recent.origin);
        let recent = self.state.recent.take(is_it)?;
        let counted = recent.counted.as_ref();
        counted.is_none_or(|call| self.state.measured.count_replay(call)).then_some(recent)
    }

    /// Takes a prepared call on such buffers out of the kept ones, if it is among them. After a
    /// change of the configuration none is. So ranks that keep different calls all check whether
    /// they can still run the call.
    pub(super) fn take_prepared<T: Element>(
        &mut self,
        preparation: &Preparation,
        buffers: &Buffers<'_, T>,
    ) -> Option<Box<RecentCall>> {
        if self.poisoned {
            return None;
        }
        self.state.recent.check(&self.config);
        let is_it = |RecentCall { origin, request, .. }: &RecentCall| {
            matches!(origin, Origin::Preparation(theirs) if theirs == preparation)
                && (request.lengths, request.window) == (buffers.lengths(), buffers.window())
        };
        self.state.recent.take(is_it)
    }

    /// Puts a repeated call back among the kept ones. Returns the report of its last replay.
    pub(super) fn put_back(&mut self, mut recent: Box<RecentCall>) -> Report {
        if let Some(compiled) = self.state.lanes.record.take() {
            recent.compiled = compiled;
        }
        match self.state.recent.insert(recent) {
            Some(recent) => recent.replay.report,
            None => Report::default(),
        }
    }

    /// Keeps a call if its plan leads to the same program for all values.
    pub(super) fn keep(
        &mut self,
        request: &Request<'_>,
        plan: &Plan,
        (resolved, coding): (&Resolved<'_>, &Coding),
    ) {
        let spec = &resolved.spec;
        let own = request.own(self.size(), self.rank());
        if spec.rounds_first || spec.finds_shape_in(own.len()) {
            return;
        }
        let counted = self.counted(spec.choice.as_ref(), request, plan);
        if let Some(recent) = RecentCall::new(request, Origin::Plan(*plan), resolved, coding) {
            self.state.recent.check(&self.config);
            self.state.recent.insert(Box::new(RecentCall { counted, ..recent }));
        }
    }
}
