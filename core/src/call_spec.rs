//! Specification of a call: checked arguments and a chosen schedule, without the values.

use crate::bound::Quantum;
use crate::codec::{CodecParams, ErasedCodec};
use crate::element::{DType, Element};
use crate::fill::Marks;
use crate::frame::{CallHeader, StepQuantity};
use crate::layout::{Shares, Window};
use crate::op::OpCode;
use crate::plan::Plan;
use crate::rounding::RoundingPass;
#[cfg(feature = "alloc")]
use crate::schedule::Division;
#[cfg(any(test, feature = "alloc"))]
use crate::schedule::Ring;
use crate::schedule::{self, Collective, ProgramSpec, RecursiveDoubling, Schedule};
use crate::select::Choice;
use crate::transport::Rank;

/// Search for strides only in arrays of at least this many values. For smaller arrays the search
/// takes longer than it saves.
pub(crate) const MIN_SEARCHED_VALUES: usize = 1 << 18;
/// Schedule by which ranks exchange value ranges, if a call needs them: an all-reduce of
/// [`N_RANGE_VALUES`](crate::collective::N_RANGE_VALUES) `f64` values with the raw codec.
pub static RANGE_SCHEDULE: &dyn Schedule = &RecursiveDoubling;

/// Specification of a call, without its values.
#[derive(Clone, Copy)]
pub(crate) struct CallSpec<'s> {
    /// The chosen schedule; overrides the plan's.
    pub(crate) schedule: &'static dyn Schedule,
    pub(crate) call: ProgramSpec,
    pub(crate) op: OpCode,
    /// The plan, adapted to this call.
    pub(crate) plan: Plan,
    /// Reason for the choice of an automatic plan; `None` for other plans.
    pub(crate) choice: Option<Choice>,
    /// True if ranks should scan samples of their data and choose again.
    pub(crate) needs_samples: bool,
    pub(crate) dtype: DType,
    pub(crate) lanes: u8,
    /// See [`Cut::shortest`](crate::layout::Cut::shortest).
    pub(crate) shortest: u16,
    pub(crate) shares: Shares<'s>,
    pub(crate) window: Window,
    /// True if this rank's input is rounded into the result buffer before anything is sent.
    pub(crate) rounds_first: bool,
    /// True if the plan's strides are those that a search of this rank's input found.
    pub(crate) is_searched: bool,
}

impl CallSpec<'_> {
    /// Returns the spec of one call on several arrays that follow each other in the buffers and end
    /// at `ends`. `self` is the spec of a call on any one of the arrays.
    #[cfg(feature = "alloc")]
    pub(crate) fn of_group<'s>(&self, ends: &'s [usize]) -> CallSpec<'s> {
        let plan = Plan { division: Division::Blocks, ..self.plan };
        CallSpec { plan, shares: Shares::Arrays(ends), ..*self }
    }

    /// Returns the call's codec with these parameters.
    pub(crate) fn codec(&self, params: &CodecParams) -> ErasedCodec {
        ErasedCodec::new(self.dtype, self.plan.codec, params)
    }

    /// Returns how the call treats fill values that it replaces by marks.
    pub(crate) fn marks(&self) -> Option<Marks> {
        self.plan.marks(self.call.collective.reduces())
    }

    /// Returns the divisor of an average, or 1.
    pub(crate) const fn divisor(&self) -> u32 {
        if matches!(self.op, OpCode::Avg) { self.call.size as u32 } else { 1 }
    }

    /// Returns whether to search for the shape of a local input of this many values. A shape that
    /// the caller gave is one candidate of the search.
    pub(crate) fn finds_shape_in(&self, n_own: usize) -> bool {
        self.plan.codec.takes_shape() && !self.is_searched && n_own >= MIN_SEARCHED_VALUES
    }

    /// Returns the rounding pass over the local input with which the call begins, if it has one.
    pub(crate) fn pass(&self, quantum: Quantum, rank: Rank) -> Option<RoundingPass> {
        // A single rank sends nothing, so nothing need be rounded.
        let quantum = if self.call.size > 1 { quantum } else { Quantum::LOSSLESS };
        self.rounds_first.then(|| RoundingPass::new(quantum, self.plan.rounding, rank))
    }

    /// Returns the spec of the exchange in a data scan: an exact all-reduce of this many values.
    /// Measurements of links use it for barriers and times.
    pub(crate) fn for_data_scan(&self, n_values: usize) -> CallSpec<'static> {
        CallSpec {
            schedule: RANGE_SCHEDULE,
            call: ProgramSpec { collective: Collective::AllReduce, root: Rank(0), ..self.call },
            op: OpCode::Max,
            plan: Plan::raw(),
            choice: None,
            needs_samples: false,
            dtype: f64::DTYPE,
            lanes: self.lanes,
            shortest: self.shortest,
            shares: Shares::Even(n_values),
            window: Window::Whole,
            rounds_first: false,
            is_searched: false,
        }
    }

    /// Returns the spec of an array of this many values that goes around a ring, to measure links
    /// before a call.
    #[cfg(feature = "alloc")]
    pub(crate) fn for_probe(&self, n_values: usize) -> CallSpec<'static> {
        let exchange = self.for_data_scan(n_values);
        CallSpec {
            schedule: &Ring,
            call: ProgramSpec { collective: Collective::AllGather, ..exchange.call }.by(&Ring),
            plan: Plan { division: Division::Blocks, ..exchange.plan },
            ..exchange
        }
    }

    /// Returns the header that peers receive for the call itself.
    pub(crate) fn own_header(&self, quantum: Quantum) -> CallHeader {
        match self.plan.codec.setting(self.dtype, self.plan.setting) {
            Some(setting @ 1..) => self.header(StepQuantity::Setting, setting.into()),
            _ => self.header(StepQuantity::Lattice, quantum.step()),
        }
    }

    /// Returns the header that peers receive for the call, or for an exchange before it. The
    /// communicator fills in context, epoch and call number.
    pub(crate) fn header(&self, measure: StepQuantity, step: f64) -> CallHeader {
        CallHeader {
            context: 0,
            epoch: 0,
            sequence: 0,
            collective: self.call.collective,
            dtype: self.dtype,
            op: self.op,
            codec: self.plan.codec,
            division: self.plan.division,
            pipeline: self.plan.pipeline_in_use().code(),
            schedule: schedule::code(self.schedule),
            lanes: self.lanes,
            root: self.call.root.0,
            count: self.shares.count() as u64,
            measure,
            step,
        }
    }
}

#[cfg(test)]
impl CallSpec<'static> {
    /// Returns the spec of an all-reduce of `f32` by the ring.
    pub(crate) fn of_test(plan: Plan, op: OpCode, size: usize) -> Self {
        Self {
            schedule: &Ring,
            call: ProgramSpec::new(Collective::AllReduce, size, Rank(0)),
            op,
            plan,
            choice: None,
            needs_samples: false,
            dtype: DType::F32,
            lanes: 1,
            shortest: 1,
            shares: Shares::Even(1000),
            window: Window::Whole,
            rounds_first: false,
            is_searched: false,
        }
    }
}
