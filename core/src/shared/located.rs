//! Searches for extremes and where they are, in progress: two all-reduces, one after the other, on
//! one call slot. So all ranks run them in the same order, whatever else they start meanwhile.

use super::driven::{CallBuffers, Driven, HostBuffers, SlotWork};
use super::{Pending, SharedCommunicator};
use crate::collective::{Call, CallState, Communicator, NoValues};
use crate::element::Element;
use crate::error::{Buffer, Error};
use crate::handle::Progress;
use crate::op::Op;
use crate::plan::Plan;
use crate::report::Report;
use crate::transport::Transport;
use crate::wait::Limits;
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::time::Duration;

/// Checks that each value has an index.
pub(crate) fn check_indices<T>(values: &[T], indices: &[i64]) -> Result<(), Error> {
    let (need, have) = (values.len(), indices.len());
    if need == have { Ok(()) } else { Err(Error::Length { buffer: Buffer::Recv, need, have }) }
}

/// Sets the index of each value that is not the extreme to the largest one.
pub(crate) fn discard<T: Element>(values: &[T], extremes: &[T], indices: &mut [i64]) {
    for ((value, extreme), index) in values.iter().zip(extremes).zip(indices) {
        let is_nan = |x: &T| x.partial_cmp(x).is_none();
        let is_same = bytemuck::bytes_of(value) == bytemuck::bytes_of(extreme);
        if !(is_same || is_nan(value) && is_nan(extreme)) {
            *index = i64::MAX;
        }
    }
}

impl<'a, X: Transport + 'a> SharedCommunicator<'a, X> {
    /// Starts a [`max_loc`](Self::max_loc). The finished call returns both arrays.
    ///
    /// # Errors
    /// As [`start`](Self::start), and [`Error::Length`] if there are not as many indices as values.
    pub fn start_max_loc<T: Element, V: AsMut<[T]> + 'a, I: AsMut<[i64]> + 'a>(
        &self,
        values: V,
        indices: I,
    ) -> Result<Pending<'a, X, (V, I)>, Error> {
        self.start_locate::<T, V, I>(values, indices, Op::Max)
    }

    /// Starts a [`min_loc`](Self::min_loc). The finished call returns both arrays.
    ///
    /// # Errors
    /// As [`start_max_loc`](Self::start_max_loc).
    pub fn start_min_loc<T: Element, V: AsMut<[T]> + 'a, I: AsMut<[i64]> + 'a>(
        &self,
        values: V,
        indices: I,
    ) -> Result<Pending<'a, X, (V, I)>, Error> {
        self.start_locate::<T, V, I>(values, indices, Op::Min)
    }

    fn start_locate<T: Element, V: AsMut<[T]> + 'a, I: AsMut<[i64]> + 'a>(
        &self,
        mut values: V,
        mut indices: I,
        op: Op<'a, T>,
    ) -> Result<Pending<'a, X, (V, I)>, Error> {
        check_indices(values.as_mut(), indices.as_mut())?;
        if self.is_checking() {
            let mut call = Call::all_reduce(values, op);
            let (request, _) = call.parts(self.rank());
            return Err(self.checked(|comm| comm.check(&request, &Plan::raw())));
        }
        let call_slot = self.call_slot()?;
        let own = values.as_mut().to_vec();
        let search = call_slot.with(|comm| {
            let mut values = HostBuffers::new(Call::all_reduce(values, op));
            let indices = HostBuffers::new(Call::all_reduce(indices, Op::Min));
            let (request, mut work) = values.call.parts(comm.rank());
            let call_state = CallState::start(comm, request, &mut work, &Plan::raw())?;
            Ok(Search { call_state, values, indices, own, first: None })
        })?;
        let pending = Pending::of(Rc::clone(&self.shared), Driven::call(call_slot, search));
        self.advance();
        Ok(pending)
    }
}

/// An all-reduce that finds the extremes, and then one that finds the smallest index of each.
struct Search<'a, T: Element, V, I> {
    /// State of the all-reduce in progress.
    call_state: CallState<'a>,
    values: HostBuffers<'a, T, NoValues<'a, T>, V>,
    indices: HostBuffers<'a, i64, NoValues<'a, i64>, I>,
    /// This rank's values.
    own: Vec<T>,
    /// Report of the first all-reduce, once it has finished.
    first: Option<Report>,
}

impl<X: Transport, T: Element, V: AsMut<[T]>, I: AsMut<[i64]>> SlotWork<X> for Search<'_, T, V, I> {
    type Given = (V, I);

    fn advance(&mut self, comm: &mut Communicator<X>) -> Result<Progress, Error> {
        let Self { call_state, values, indices, own, first } = self;
        if first.is_some() {
            return indices.with(|operands| call_state.advance(comm, operands));
        }
        let progress = values.with(|operands| call_state.advance(comm, operands))?;
        if progress != Progress::Finished {
            return Ok(progress);
        }
        *first = Some(call_state.finish(comm));
        discard(own, values.call.result().as_mut(), indices.call.result().as_mut());
        let limits = call_state.limits;
        let (request, mut work) = indices.call.parts(comm.rank());
        *call_state = CallState::start(comm, request, &mut work, &Plan::raw())?;
        call_state.limits = limits;
        Ok(Progress::Moved)
    }

    fn finish(&mut self, comm: &mut Communicator<X>) -> Report {
        let mut report = self.first.unwrap_or_default();
        report += self.call_state.finish(comm);
        report
    }

    fn give_up(&mut self, comm: &mut Communicator<X>, error: Option<Error>) -> Option<Error> {
        self.call_state.give_up(comm, None, error.as_ref());
        error
    }

    fn limits(&mut self) -> &mut Limits {
        &mut self.call_state.limits
    }

    fn rest(&self, now: Duration) -> Duration {
        self.call_state.limits.rest_from(now, self.call_state.rest())
    }

    fn into_given(self) -> (V, I) {
        (self.values.into_given(), self.indices.into_given())
    }
}
