//! The engine with computations that take several polls.

#[cfg(feature = "alloc")]
mod replay;

use super::notices::MemoryTransport;
use super::*;
use crate::codec::{CodecId, Pace, Written};
use crate::element::DType;
use crate::frame::StepQuantity;
use crate::layout::{Cut, Division, Segment, Shares, Window};
use crate::op::OpCode;
use crate::pipeline::HOMOMORPHIC;
use crate::primitive::Primitive;
use crate::schedule::{Binomial, Collective, Pairwise};
use core::task::Poll;
use std::vec;
use std::vec::Vec;

/// Computation that is pending twice before each primitive is done, unless the fields say
/// otherwise.
#[derive(Default)]
struct SlowCompute {
    n_asked: usize,
    done: Vec<Primitive>,
    /// Offset in the input of each primitive's segment.
    places: Vec<usize>,
    /// True if each primitive is done at once.
    is_quick: bool,
    /// True if no other primitive is ever done.
    is_stuck: bool,
    /// This many primitives, from the first one on, are done at once.
    n_quick: usize,
    /// Most encodes that begin ahead.
    n_ahead: usize,
    /// Offset in the input of each encode that was to begin ahead, in the last poll.
    named: Vec<usize>,
}

impl Compute for SlowCompute {
    fn compute(
        &mut self,
        _: usize,
        primitive: Primitive,
        payloads: &mut Payloads<'_>,
        segment: &Segment,
        _: (&Coding, &dyn Pace),
        report: &mut Report,
    ) -> Poll<Result<(), Error>> {
        self.n_asked += 1;
        let is_slow = !self.is_quick && self.done.len() >= self.n_quick;
        if is_slow && (self.is_stuck || !(self.n_asked - self.n_quick).is_multiple_of(3)) {
            return Poll::Pending;
        }
        self.done.push(primitive);
        self.places.push(segment.input);
        // Frames are small here.
        let written = Written { n_bytes: segment.len / 100, ..Written::default() };
        payloads.note(primitive, written, report);
        Poll::Ready(Ok(()))
    }

    fn begin_ahead(&mut self, _: usize, _: Primitive, segment: &Segment) -> Result<bool, Error> {
        let begins = self.named.len() < self.n_ahead;
        if begins {
            self.named.push(segment.input);
        }
        Ok(begins)
    }
}

impl SlowCompute {
    fn raw(&mut self) -> Computing<'_> {
        static RAW: Coding = Coding::raw(DType::F32);
        Computing::new(self, &RAW)
    }
}

/// Returns rank 0's engine for a call on this many values, each part in one segment.
fn engine<F: FrameBuffer>(
    call: ProgramSpec,
    count: usize,
    schedule: &'static dyn Schedule,
    lanes: &mut Lanes<F>,
) -> Engine<'static> {
    engine_in_segments(call, (count, count), schedule, lanes)
}

/// Same for segments of at most so many values.
fn engine_in_segments<F: FrameBuffer>(
    call: ProgramSpec,
    (count, max_segment): (usize, usize),
    schedule: &'static dyn Schedule,
    lanes: &mut Lanes<F>,
) -> Engine<'static> {
    let op = if call.collective.reduces() { OpCode::Sum } else { OpCode::None };
    let header = CallHeader {
        context: 0,
        epoch: 0,
        sequence: 1,
        collective: call.collective,
        dtype: DType::F32,
        op,
        codec: CodecId::FzLight,
        division: Division::Blocks,
        pipeline: HOMOMORPHIC.code(),
        schedule: 0,
        lanes: 1,
        root: 0,
        count: count as u64,
        measure: StepQuantity::Lattice,
        step: 1e-3,
    };
    let (shares, window) = (Shares::Even(count), Window::Own);
    let n_parts = schedule.n_parts(call);
    let division = Division::Blocks;
    let cut = Cut { n_parts, division, max_segment, lanes: 1, shortest: 2 };
    let layout = Layout::new(call, Rank(0), shares, window, cut);
    let rules = Rules::new(call.collective, &HOMOMORPHIC, CodecId::FzLight, op);
    let (n_arrays, checksum, rank) = (1, false, Rank(0));
    let (template, n_steps) = (Template::new(&header), schedule.n_steps(call, rank));
    let program = Program {
        schedule,
        call,
        n_arrays,
        rules,
        header,
        template,
        layout,
        checksum,
        rank,
        n_steps,
        n_lanes: 1,
    };
    Engine::new(program, program.report(), Duration::ZERO, lanes)
}

#[test]
fn a_step_whose_computation_is_pending_goes_on_where_it_was() {
    // Rank 0 of 2 gathers: it encodes its part, sends it, keeps it, and stores it as sent. Nothing
    // arrives from rank 1.
    let mut transport = MemoryTransport::new(2, 8);
    let mut lanes = Lanes::default();
    let mut engine =
        engine(ProgramSpec::new(Collective::AllGather, 2, Rank(0)), 4000, &Pairwise, &mut lanes);
    let (mut slow, mut notices) = (SlowCompute::default(), Notices::default());
    let limits = Limits { stall: Duration::from_secs(1), deadline: None };
    let mut progress = vec![];
    for _ in 0..8 {
        let found = engine.poll(&mut transport, &mut lanes, &mut slow.raw(), limits, &mut notices);
        progress.push(found.expect("nothing fails"));
    }
    use Progress::{Moved, Waiting};
    assert_eq!(progress, [Waiting, Waiting, Moved, Waiting, Waiting, Moved, Waiting, Waiting]);
    assert_eq!(slow.n_asked, 6, "nothing is computed until the other part arrives");
    let [Primitive::EncodeOwn { .. }, Primitive::Store { .. }] = slow.done[..] else {
        panic!("{:?}", slow.done)
    };
    assert_eq!(transport.sent_to, [Rank(1)]);
}

#[test]
fn a_short_call_makes_all_steps_in_a_poll_that_it_can() {
    let mut transport = MemoryTransport::new(2, 8);
    let mut lanes = Lanes::default();
    let mut engine =
        engine(ProgramSpec::new(Collective::AllGather, 2, Rank(0)), 20, &Pairwise, &mut lanes);
    let (mut slow, mut notices) = (SlowCompute::default(), Notices::default());
    let limits = Limits { stall: Duration::from_secs(1), deadline: None };
    let mut polls = (0..6).map(|_| {
        let found = engine.poll(&mut transport, &mut lanes, &mut slow.raw(), limits, &mut notices);
        found.expect("nothing fails")
    });
    use Progress::{Moved, Waiting};
    // The poll that has made a step also starts the next one.
    assert!(polls.by_ref().eq([Waiting, Waiting, Moved, Waiting, Moved, Waiting]));
    assert_eq!((slow.n_asked, transport.sent_to), (6, vec![Rank(1)]));
}

#[test]
fn a_run_whose_computation_is_pending_goes_on_with_the_part_where_it_was() {
    // The root of 4 scatters: it encodes parts 2 and 3 into one message, part 1 into another, and
    // copies part 0.
    let mut transport = MemoryTransport::new(4, 8);
    let mut lanes = Lanes::default();
    let call = ProgramSpec::new(Collective::Scatter, 4, Rank(0)).with_runs(2);
    let mut engine = engine(call, 8000, &Binomial, &mut lanes);
    let (mut slow, mut notices) = (SlowCompute::default(), Notices::default());
    let limits = Limits { stall: Duration::from_secs(1), deadline: None };
    let mut n_polls = 1;
    while engine.poll(&mut transport, &mut lanes, &mut slow.raw(), limits, &mut notices)
        != Ok(Progress::Finished)
    {
        n_polls += 1;
    }
    assert_eq!((slow.n_asked, n_polls), (12, 12), "each part takes three attempts");
    assert_eq!(slow.places, [4000, 6000, 2000, 0]);
    assert_eq!((transport.sent_to, engine.report.n_messages), (vec![Rank(2), Rank(1)], 2));
}

/// Nothing arrives from rank 1. Lanes wait for it only once they have sent their own part.
#[test]
fn a_rank_that_waits_for_its_own_device_blames_itself() {
    let call = ProgramSpec::new(Collective::AllGather, 2, Rank(0));
    // An exchange is two primitives in each lane: of the local part, and of rank 1's.
    for (n_quick, blamed) in [(0, 0), (1, 0), (2, 0), (3, 0), (4, 1)] {
        let (mut transport, mut notices) = (MemoryTransport::new(2, 16), Notices::default());
        let mut lanes = Lanes::default();
        let one = engine_in_segments(call, (4000, 1000), &Pairwise, &mut lanes);
        let program = Program { n_lanes: 2, ..one.program };
        let mut engine = Engine::new(program, program.report(), Duration::ZERO, &mut lanes);
        let mut slow = SlowCompute { is_stuck: true, n_quick, ..SlowCompute::default() };
        let limits = Limits { stall: Duration::from_secs(1), deadline: None };
        let ended = (0..100).find_map(|_| {
            transport.now += Duration::from_millis(100);
            let on = (&mut transport, &mut lanes);
            engine.poll(on.0, on.1, &mut slow.raw(), limits, &mut notices).err()
        });
        let is_typed = matches!(ended, Some(Error::Stalled { rank, .. }) if rank == Rank(blamed));
        assert!(is_typed, "{n_quick} primitives done: {ended:?}");
    }
}

/// Parts of a run, parts that other messages carry, and the parts' segments of later rounds.
#[test]
fn encodes_are_named_in_the_order_in_which_a_lane_asks_for_them() {
    let scatter = ProgramSpec::new(Collective::Scatter, 4, Rank(0)).with_runs(2);
    let encoding_first = scatter.with_runs(3).encoding_first();
    let broadcast = ProgramSpec::new(Collective::Broadcast, 4, Rank(0));
    for (call, n_encodes) in [(scatter, 12), (encoding_first, 12), (broadcast, 16)] {
        for n_ahead in [0, 1, 4, 100] {
            let mut transport = MemoryTransport::new(4, 8);
            let mut lanes = Lanes::default();
            let mut engine = engine_in_segments(call, (8000, 500), &Binomial, &mut lanes);
            let mut slow = SlowCompute { n_ahead, ..SlowCompute::default() };
            let mut notices = Notices::default();
            let limits = Limits { stall: Duration::from_secs(1), deadline: None };
            let mut lists = vec![];
            loop {
                slow.named.clear();
                let found =
                    engine.poll(&mut transport, &mut lanes, &mut slow.raw(), limits, &mut notices);
                if found.expect("nothing fails") == Progress::Finished {
                    break;
                }
                lists.push((slow.done.len(), slow.named.clone()));
            }
            let asked = slow.done.iter().zip(&slow.places);
            let is_encode =
                |asked: &(&Primitive, &usize)| matches!(asked.0, Primitive::EncodeOwn { .. });
            assert_eq!(asked.clone().filter(is_encode).count(), n_encodes, "{call:?}");
            let mut n_named = 0;
            for (n_done, named) in lists.iter().filter(|(_, named)| !named.is_empty()) {
                let later = asked.clone().skip(n_done + 1).filter(is_encode);
                let later: Vec<usize> = later.map(|(_, place)| *place).take(n_ahead).collect();
                assert_eq!(*named, later, "{call:?}, {n_done} done");
                n_named = n_named.max(named.len());
            }
            assert_eq!(n_named, n_ahead.min(n_encodes - 1), "{call:?}");
        }
    }
}
