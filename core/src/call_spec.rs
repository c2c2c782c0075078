//! A call whose arguments were checked and whose schedule was chosen: all but its values.

use crate::bound::Quantum;
use crate::codec::{CodecParams, ErasedCodec};
use crate::element::{DType, Element};
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

/// Of so many own values on the strides of an array are looked for whose shape is not told: below,
/// that takes longer than it saves.
pub(crate) const FINDS_FROM: usize = 1 << 18;
/// How ranks exchange what they saw of their data if a bound refers to it:
/// [`N_RANGE_VALUES`](crate::collective::N_RANGE_VALUES) of `f64` by the raw codec.
pub static RANGE_SCHEDULE: &dyn Schedule = &RecursiveDoubling;

/// What a call is, whatever its values.
#[derive(Clone, Copy)]
pub(crate) struct CallSpec<'s> {
    /// The one chosen, whatever the plan says.
    pub(crate) schedule: &'static dyn Schedule,
    pub(crate) call: ProgramSpec,
    pub(crate) op: OpCode,
    /// As far as it applies to this call.
    pub(crate) plan: Plan,
    /// Why, of an automatic plan.
    pub(crate) choice: Option<Choice>,
    /// Whether ranks should look at samples of their data and choose anew.
    pub(crate) asks: bool,
    pub(crate) dtype: DType,
    pub(crate) lanes: u8,
    /// As [`Cut::shortest`](crate::layout::Cut::shortest).
    pub(crate) shortest: u16,
    pub(crate) shares: Shares<'s>,
    pub(crate) window: Window,
    /// Whether own values are rounded where results will be, before the first is moved.
    pub(crate) rounds_first: bool,
}

impl CallSpec<'_> {
    /// Those of one call on arrays that follow each other in the buffers and end there, of which
    /// each could be a call of these terms.
    #[cfg(feature = "alloc")]
    pub(crate) fn of_group<'s>(&self, ends: &'s [usize]) -> CallSpec<'s> {
        let plan = Plan { division: Division::Blocks, ..self.plan };
        CallSpec { plan, shares: Shares::Arrays(ends), ..*self }
    }

    /// Its codec, made from these parameters.
    pub(crate) fn codec(&self, params: &CodecParams) -> ErasedCodec {
        ErasedCodec::new(self.dtype, self.plan.codec, params)
    }

    /// What an average is divided by, else 1.
    pub(crate) const fn divisor(&self) -> u32 {
        if matches!(self.op, OpCode::Avg) { self.call.size as u32 } else { 1 }
    }

    /// Whether the shape of so many own values is looked for in them.
    pub(crate) fn finds_shape_in(&self, n_own: usize) -> bool {
        let plan = &self.plan;
        plan.codec.takes_shape() && plan.strides == [0; 2] && n_own >= FINDS_FROM
    }

    /// The pass over own values that the call itself begins with.
    pub(crate) fn pass(&self, quantum: Quantum, rank: Rank) -> Option<RoundingPass> {
        // One rank moves nothing.
        let quantum = if self.call.size > 1 { quantum } else { Quantum::LOSSLESS };
        self.rounds_first.then(|| RoundingPass::new(quantum, self.plan.rounding, rank))
    }

    /// Those of the look at its data: an exact all-reduce of so many values that each rank saw.
    pub(crate) fn of_look(&self, n_values: usize) -> CallSpec<'static> {
        CallSpec {
            schedule: RANGE_SCHEDULE,
            call: ProgramSpec { collective: Collective::AllReduce, root: Rank(0), ..self.call },
            op: OpCode::Max,
            plan: Plan::raw(),
            choice: None,
            asks: false,
            dtype: f64::DTYPE,
            lanes: self.lanes,
            shortest: self.shortest,
            shares: Shares::Even(n_values),
            window: Window::Whole,
            rounds_first: false,
        }
    }

    /// Those of an array of so many values that goes round a ring, to measure links before a call.
    #[cfg(feature = "alloc")]
    pub(crate) fn of_round(&self, n_values: usize) -> CallSpec<'static> {
        let exchange = self.of_look(n_values);
        CallSpec {
            schedule: &Ring,
            call: ProgramSpec { collective: Collective::AllGather, ..exchange.call }.by(&Ring),
            plan: Plan { division: Division::Blocks, ..exchange.plan },
            ..exchange
        }
    }

    /// What peers are told of the call itself.
    pub(crate) fn own_header(&self, quantum: Quantum) -> CallHeader {
        match self.plan.codec.setting(self.dtype, self.plan.setting) {
            Some(setting @ 1..) => self.header(StepQuantity::Setting, setting.into()),
            _ => self.header(StepQuantity::Lattice, quantum.step()),
        }
    }

    /// What peers are told of the call, in a look at the extent of its data as well. The
    /// communicator counts it.
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
            pipeline: self.plan.pipeline.code(),
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
    /// Those of an all-reduce of `f32` by the ring.
    pub(crate) fn of_test(plan: Plan, op: OpCode, size: usize) -> Self {
        Self {
            schedule: &Ring,
            call: ProgramSpec::new(Collective::AllReduce, size, Rank(0)),
            op,
            plan,
            choice: None,
            asks: false,
            dtype: DType::F32,
            lanes: 1,
            shortest: 1,
            shares: Shares::Even(1000),
            window: Window::Whole,
            rounds_first: false,
        }
    }
}
