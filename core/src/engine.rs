//! The one state machine that runs any schedule through any pipeline with any codec over any
//! transport.
//!
//! The array is processed in rounds ([`Layout`]); a [`Lane`] runs the whole program for its rounds,
//! one step at a time. Lanes run side by side, a tag each: while one lane's frame is on the wire,
//! another's is being folded (ZCCL's PIPE-fZ-light). [`Engine::poll`] does at most one step a lane.
//!
//! Why it cannot hang: a lane waits only for a frame of a known peer, for credit on a link, or for
//! a free frame. While it waits, the engine also listens for abort notices ([`Notices`]), and a
//! time limit covers a peer that is alive but silent. On any error the engine tells every other
//! rank, and each that waits ends as well.

mod doing;
mod frames;
mod lane;
mod notices;
mod work;

pub(crate) use notices::Notices;
pub(crate) use work::{Buffers, Work};

use crate::Element;
use crate::codec::CodecId;
use crate::error::{Error, Field};
use crate::frame::{CallHeader, Header, Kind};
use crate::layout::Layout;
use crate::op::OpCode;
use crate::pipeline::Pipeline;
use crate::report::Report;
use crate::schedule::{Call, Schedule};
use crate::transport::{MAX_LANES, Rank, Tag, Transport, TransportError};
use crate::wait::Wait;
use core::time::Duration;
use frames::Frame;
use heapless::Vec;
use lane::{Lane, Turn};

/// Everything about a call that does not change while it runs.
pub(crate) struct Program {
    pub(crate) schedule: &'static dyn Schedule,
    pub(crate) call: Call,
    pub(crate) pipeline: Pipeline,
    pub(crate) codec: CodecId,
    pub(crate) op: OpCode,
    /// What peers are told of the call, and must say as well. A look at the extent of the data has
    /// that of the call it belongs to.
    pub(crate) header: CallHeader,
    pub(crate) layout: Layout,
    pub(crate) checksum: bool,
    pub(crate) rank: Rank,
    /// An average divides by this when the result is stored; 1 otherwise.
    pub(crate) divisor: u32,
}

impl Program {
    /// Whether decoding gives back exactly what was encoded.
    pub(crate) fn is_exact(&self) -> bool {
        self.codec.is_exact()
    }

    /// Whether frames that are passed on are encoded anew.
    pub(crate) fn recodes(&self) -> bool {
        self.pipeline.recodes(self.codec, self.op)
    }

    /// Whether partial reductions are kept as frames.
    pub(crate) fn keeps_frames(&self) -> bool {
        self.pipeline.keeps_frames(self.codec, self.op)
    }

    /// Whether own values are encoded before they are combined.
    pub(crate) fn encodes_own(&self) -> bool {
        self.pipeline.encodes_own(self.codec, self.op)
    }

    /// How many ranks' values a value of the result combines.
    fn n_operands(&self) -> u32 {
        if self.call.collective.reduces() { self.call.size as u32 } else { 1 }
    }

    fn n_steps(&self) -> usize {
        self.schedule.n_steps(self.call, self.rank)
    }

    /// Compares what a peer says of the call with what we know.
    fn check(&self, from: Rank, theirs: &CallHeader) -> Result<(), Error> {
        let ours = &self.header;
        let fields = [
            (Field::Epoch, u64::from(ours.epoch), u64::from(theirs.epoch)),
            (Field::Sequence, u64::from(ours.sequence), u64::from(theirs.sequence)),
            (Field::Collective, ours.collective as u64, theirs.collective as u64),
            (Field::Type, ours.dtype as u64, theirs.dtype as u64),
            (Field::Op, ours.op as u64, theirs.op as u64),
            (Field::Codec, ours.codec as u64, theirs.codec as u64),
            (Field::Pipeline, u64::from(ours.pipeline), u64::from(theirs.pipeline)),
            (Field::Division, ours.division as u64, theirs.division as u64),
            (Field::Root, u64::from(ours.root), u64::from(theirs.root)),
            (Field::Count, ours.count, theirs.count),
            (Field::Bound, ours.measure as u64, theirs.measure as u64),
            (Field::Quantum, ours.step.to_bits(), theirs.step.to_bits()),
        ];
        check_fields(from, &fields)
    }
}

/// The first pair that differs, as an error.
fn check_fields(rank: Rank, fields: &[(Field, u64, u64)]) -> Result<(), Error> {
    match fields.iter().find(|(_, ours, theirs)| ours != theirs) {
        Some(&(field, ours, theirs)) => Err(Error::Mismatch { rank, field, ours, theirs }),
        None => Ok(()),
    }
}

/// How long a call may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Without any progress, from the first poll on.
    pub(crate) stall: Duration,
    /// In all: when it must be over, on the transport's clock.
    pub(crate) deadline: Option<Duration>,
}

/// A running call.
pub(crate) struct Engine<F> {
    program: Program,
    lanes: Vec<Lane<F>, MAX_LANES>,
    has_begun: bool,
    started: Duration,
    wait: Wait,
    pub(crate) report: Report,
}

/// What a poll found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// All lanes are done.
    Finished,
    /// Some lane moved; poll again at once.
    Moved,
    /// Every lane waits.
    Waiting,
}

impl<F: Frame> Engine<F> {
    pub(crate) fn new(program: Program, lanes: usize, now: Duration) -> Self {
        let lanes = lanes.min(program.layout.n_rounds());
        Self {
            lanes: (0..lanes).map(|i| Lane::new(Tag(i as u8), i)).collect(),
            program,
            has_begun: false,
            started: now,
            wait: Wait::default(),
            report: Report::default(),
        }
    }

    /// Advances every lane by at most one step.
    pub(crate) fn poll<X: Transport<Frame = F>, T: Element>(
        &mut self,
        transport: &mut X,
        work: &mut Work<'_, '_, T>,
        limits: Limits,
        notices: &mut Notices,
    ) -> Result<Progress, Error> {
        transport.progress().map_err(transport_error)?;
        if !core::mem::replace(&mut self.has_begun, true) {
            notices.listen_before(transport, &self.program.header)?;
        }
        let n_lanes = self.lanes.len();
        let (mut moved, mut finished) = (false, true);
        for lane in &mut self.lanes {
            match lane.turn(&self.program, n_lanes, transport, work, &mut self.report)? {
                Turn::Stepped => (moved, finished) = (true, false),
                Turn::Waiting => finished = false,
                Turn::Done => {}
            }
        }
        let now = transport.now();
        let undelivered = if finished { transport.undelivered() } else { None };
        if finished && undelivered.is_none() {
            self.report.total = now.saturating_sub(self.started);
            return Ok(Progress::Finished);
        }
        let to_deliver = undelivered.map(|rank| (rank, self.program.n_steps()));
        if limits.deadline.is_some_and(|deadline| now >= deadline) {
            let (rank, step) = self.blamed(to_deliver);
            return Err(Error::Deadline { rank, step });
        }
        if moved {
            self.wait.restart(now);
            return Ok(Progress::Moved);
        }
        let awaited = self.awaited().chain(to_deliver).map(|(rank, _)| rank);
        if notices.listen(transport, &self.program.header, awaited)? {
            return Ok(Progress::Moved);
        }
        let waited = self.wait.look(now, limits.stall);
        // Where all stall together, the rank that waits for the silent one should name it, and not
        // just hear that a third one was quicker to give up.
        if waited < limits.stall - limits.stall / 8 {
            notices.listen_in_turn(transport, &self.program.header)?;
        }
        if waited > limits.stall {
            let (rank, step) = self.blamed(to_deliver);
            return Err(Error::Stalled { rank, step });
        }
        Ok(Progress::Waiting)
    }

    /// The ranks that lanes wait for, and the lanes' steps.
    fn awaited(&self) -> impl Iterator<Item = (Rank, usize)> + Clone {
        self.lanes.iter().filter_map(|lane| lane.waits_for(&self.program))
    }

    /// The rank that an error of time names, and the step. A lane that lacks a free frame may get
    /// it when another lane's peer moves: that peer is to blame.
    fn blamed(&self, to_deliver: Option<(Rank, usize)>) -> (Rank, usize) {
        let own = self.program.rank;
        let mut all = self.awaited().chain(to_deliver);
        let first = all.next().unwrap_or((own, 0));
        if first.0 == own { all.find(|(rank, _)| *rank != own).unwrap_or(first) } else { first }
    }

    /// Gives every frame back, and tells all other ranks that this one has given up.
    pub(crate) fn abort<X: Transport<Frame = F>>(&mut self, transport: &mut X) {
        for lane in &mut self.lanes {
            lane.release(transport);
        }
        let call = self.program.header;
        let notice = Header {
            kind: Kind::Abort,
            call,
            part: 0,
            round: 0,
            n_values: 0,
            n_bytes: 0,
            operands: 0,
        };
        notices::tell(transport, &notice, self.program.checksum);
    }
}

/// A transport's error as ours.
pub(crate) fn transport_error<E: TransportError>(error: E) -> Error {
    Error::Transport { kind: error.kind(), peer: error.peer() }
}
