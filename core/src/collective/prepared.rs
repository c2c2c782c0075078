//! Calls that are prepared once and started many times, as MPI's persistent collectives (MPI 4.0,
//! section 6.13: `MPI_Allreduce_init`).
//!
//! Preparation does everything that does not depend on later values. It checks the arguments,
//! chooses the schedule, turns the bound into a lattice, and divides the array. A start only gives
//! the call its number and runs it. The second and later starts replay the steps of the first.
//! Starts do not scan the data.

use super::call_state::{CallState, RunningCall};
use super::full_call::{CallPhase, FullCall, Phase, Running};
use super::resolved::{Preparation, Resolved};
use super::{Communicator, Operation, Request};
use crate::element::Element;
use crate::engine::{Buffers, Coding, Work};
use crate::error::Error;
use crate::handle::Handle;
use crate::op::Op;
use crate::plan::Plan;
use crate::report::Report;
use crate::rounding;
use crate::transport::Transport;

/// A prepared call, which its communicator can start as often as the caller wants.
///
/// All ranks must prepare the same calls and start them in the same order. Other calls may come
/// between. A prepared call belongs to the communicator that [prepared](Communicator::prepare) it.
/// It takes no resources of the communicator while it is not running.
///
/// *The bound.* A bound that refers to the data (relative, PSNR, on the result) becomes absolute
/// during preparation, according to the data passed then. [`report`](Self::report) returns the
/// absolute bound. Prepare the call again if later data have a different value range. A bound on
/// the result holds as long as no magnitude exceeds the largest one at preparation. An absolute
/// bound on each operand always holds.
///
/// # Examples
/// ```
/// # use foldwire::{Bound, Call, Communicator, Error, Op, Plan, Transport};
/// fn diffuse<X: Transport>(comm: &mut Communicator<X>, x: &mut [f32]) -> Result<(), Error> {
///     let plan = Plan::foldwire(Bound::Relative(1e-4));
///     let sum = comm.prepare(Call::all_reduce(&mut *x, Op::Sum), &plan)?;
///     for _ in 0..1000 {
///         x.iter_mut().for_each(|x| *x *= 0.5);
///         sum.run(comm, &mut *x)?;
///     }
///     Ok(())
/// }
/// ```
pub struct Prepared<'p, T: Element> {
    preparation: Preparation,
    request: Request<'p>,
    op: Op<'p, T>,
    coding: Coding,
    resolved: Resolved<'p>,
    /// Capacity of the transport's frames.
    capacity: usize,
    /// Cost of the scans and measurements during preparation.
    setup_report: Option<Report>,
}

impl<'p, T: Element> Prepared<'p, T> {
    /// Prepares a call. Scans the data if the bound refers to it.
    pub(super) fn new<X: Transport>(
        comm: &mut Communicator<X>,
        request: Request<'p>,
        mut work: Work<'_, 'p, T>,
        plan: &Plan,
    ) -> Result<Self, Error> {
        rounding::refuse(&plan.for_values(T::DTYPE))?;
        if request.n_residues.is_some() {
            return Err(Error::NoRoomToRound);
        }
        let spec = comm.spec(&request, plan)?;
        let mut call = FullCall { is_preparation: true, ..FullCall::new(request, spec) };
        call.begin(comm, &mut work, plan)?;
        let call = CallState::full(comm, call).finish_setup(comm, &mut work)?;
        let (spec, setup_report, running) = (call.spec, call.setup_report, call.running);
        let Some(Running { engine, phase: Phase::Call(CallPhase { coding, .. }) }) = running else {
            return Err(Error::Internal);
        };
        let resolved = Resolved { spec, program: engine.program, report: engine.report };
        // The prepared call has not begun, so give its number to the next call. Peers that query
        // this rank's calls expect numbers without gaps.
        comm.sequence = comm.sequence.wrapping_sub(1);
        let capacity = comm.transport.frame_capacity();
        let (preparation, op) = (Preparation::default(), work.op);
        Ok(Self { preparation, request, op, coding, resolved, capacity, setup_report })
    }

    /// Returns the cost of the preparation, and the bounds that each start guarantees.
    pub fn report(&self) -> Report {
        let mut report = self.resolved.report;
        if let Some(setup_report) = self.setup_report {
            report += setup_report;
        }
        report
    }

    /// Starts the call on these buffers. Their kind and lengths must equal those at preparation.
    ///
    /// # Errors
    /// [`Error::NotAsPrepared`] for another communicator or another kind of buffers;
    /// [`Error::Length`]; [`Error::Poisoned`].
    pub fn start<'a, X: Transport>(
        &self,
        comm: &'a mut Communicator<X>,
        buffers: impl Into<Buffers<'a, T>>,
    ) -> Result<Operation<'a, X, T>, Error>
    where
        'p: 'a,
    {
        let work = Work::new(self.op, buffers.into());
        #[cfg(feature = "alloc")]
        if let Some(recent) = comm.take_prepared(&self.preparation, &work.buffers) {
            let call = CallState::start_again(comm, recent);
            return Ok(Handle(RunningCall { comm, work, call }));
        }
        let request = self.request(comm, &work.buffers)?;
        let (resolved, preparation) = ((&self.resolved, &self.coding), &self.preparation);
        let call = CallState::start_prepared(comm, request, resolved, preparation);
        Ok(Handle(RunningCall { comm, work, call }))
    }

    /// Runs the call on these buffers to its end. Their kind and lengths must equal those at
    /// preparation.
    ///
    /// # Errors
    /// Any [`Error`]. The communicator stays usable after a [usage error](Error::is_usage).
    pub fn run<'a, X: Transport>(
        &self,
        comm: &'a mut Communicator<X>,
        buffers: impl Into<Buffers<'a, T>>,
    ) -> Result<Report, Error>
    where
        'p: 'a,
    {
        self.start(comm, buffers)?.wait()
    }

    /// Checks the buffers, and returns the request on them.
    fn request<X: Transport>(
        &self,
        comm: &mut Communicator<X>,
        buffers: &Buffers<'_, T>,
    ) -> Result<Request<'p>, Error> {
        if comm.poisoned {
            return Err(Error::Poisoned);
        }
        if !self.is_of(comm) || buffers.window() != self.request.window {
            return Err(Error::NotAsPrepared);
        }
        let request = Request { lengths: buffers.lengths(), ..self.request };
        request.check(comm.size(), comm.rank())?;
        // This communicator may never have made a call.
        comm.use_lanes()?;
        Ok(request)
    }

    /// Returns whether a communicator is the one that prepared the call, or equals it in size,
    /// rank, epoch, channel and frame capacity, with at least as many lanes as the call has.
    fn is_of<X: Transport>(&self, comm: &Communicator<X>) -> bool {
        let Resolved { spec, program, .. } = &self.resolved;
        let header = &program.header;
        spec.call.size == comm.size()
            && program.rank == comm.rank()
            && header.epoch == comm.epoch
            && header.context == comm.context
            && usize::from(spec.lanes) <= comm.lanes()
            && self.capacity == comm.transport.frame_capacity()
    }
}

impl<T: Element> core::fmt::Debug for Prepared<'_, T> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let spec = &self.resolved.spec;
        let (name, count) = (spec.call.collective.name(), spec.shares.count());
        write!(f, "{name} of {count} values by {}", spec.schedule.name())
    }
}
