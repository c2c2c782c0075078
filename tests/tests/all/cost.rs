//! The engine carries out the rules step by step, and the cost model counts its messages and bytes.
//!
//! The cases are those of the conformance suite, so new collectives and schedules are covered.

use std::cell::Cell;
use std::time::Duration;

use foldwire::codec::{CodecId, CodecParams, Sizes};
use foldwire::kernel::Level;
use foldwire::layout::{Cut, Division, Layout, Shares, Window, max_segment};
use foldwire::op::Op;
use foldwire::primitive::{
    Primitive, Rules, Slot, SlotContent, SlotContents, StepLinks, held_after,
};
use foldwire::schedule::ProgramSpec;
use foldwire::{
    Bound, Collective, Communicator, Float, Plan, Quantum, Rank, Report, Scope, select,
};
use foldwire_sim::cost::{self, ClusterModel, Costs};
use foldwire_tests::wrapped::{Hooks, Wrapped};
use foldwire_tests::{Backend, Case, Threads, pairwise, with_type};

/// Bytes of a frame, in the model and in the threads backend.
const FRAME_BYTES: usize = 20_000;
const LANES: usize = 4;
const THREADS: Threads = Threads { frame_bytes: Some(FRAME_BYTES) };

/// A clock that advances by a nanosecond each time it is read. So a report's times are counts: each
/// piece of work that the engine times takes one nanosecond.
#[derive(Default)]
struct TickingClock(Cell<u64>);

impl Hooks for TickingClock {
    fn time(&self, _: Duration) -> Duration {
        self.0.set(self.0.get() + 1);
        Duration::from_nanos(self.0.get())
    }
}

/// Runs the case with the counting clock. Returns each rank's report.
fn run<T: Float>(case: &Case) -> Vec<Report> {
    THREADS.run_transports(case.size, |inner| {
        let ticking = Wrapped::new(inner, TickingClock::default());
        let mut comm = Communicator::new(ticking).expect("frames are large enough");
        case.run_rank::<T, _>(&mut comm).expect("the call").1
    })
}

fn model(case: &Case) -> cost::ModelCall {
    let op = case.op.op::<f32>();
    let code = if case.collective.reduces() { Op::code(&op) } else { foldwire::op::OpCode::None };
    cost::ModelCall {
        op: code,
        root: Rank::new(case.root),
        in_place: case.in_place,
        frame_bytes: FRAME_BYTES,
        lanes: LANES,
        ..cost::ModelCall::new(
            case.collective,
            case.plan().for_values(case.dtype),
            case.size,
            case.count,
        )
    }
}

/// Returns the primitives that a rank must carry out by the rules, and their numbers of values.
fn primitives<T: Float>(case: &Case, rank: usize) -> Vec<(Primitive, usize)> {
    let model = model(case);
    let call = ProgramSpec::new(case.collective, case.size, model.root);
    let params = CodecParams::new(Quantum::LOSSLESS).at(Level::Scalar);
    let codec = Sizes::new(case.codec, T::DTYPE, params);
    let all_reduces = case.collective == Collective::AllReduce;
    let division = if all_reduces { case.division } else { Division::Blocks };
    let n_parts = case.schedule.n_parts(call);
    let max_segment = max_segment(&codec, FRAME_BYTES, case.schedule.min_run(call))
        .expect("frames are large enough");
    let shortest = select::shortest(case.codec);
    let cut = Cut { n_parts, division, max_segment, lanes: LANES, shortest };
    let shares = Shares::Even(case.count);
    let layout = Layout::new(call, Rank::new(rank), shares, Window::Whole, cut);
    let call = select::with_runs(call, case.schedule, &model.plan, &codec, &layout, FRAME_BYTES);
    let rules = Rules::of_plan(case.collective, &model.plan, model.op);
    let rank = Rank::new(rank);
    let mut all = Vec::new();
    for round in 0..layout.n_rounds() {
        let mut held: Option<SlotContent> = None;
        for index in 0..case.schedule.n_steps(call, rank) {
            let step = case.schedule.step(call, rank, index);
            let mut contents: SlotContents = [None; Slot::COUNT];
            let n_parts = step.n_parts;
            let codec = case.coding();
            // A received block that joins the held blocks has their number of operands.
            let operands = held.filter(|_| step.keep && !step.own).map_or(1, |held| held.operands);
            let received = step.from.map(|_| SlotContent::new(codec, operands, n_parts).received());
            contents[Slot::In.index()] = received;
            let links = StepLinks::of(call, rank, &step, received, held);
            contents[Slot::Held.index()] = held;
            let n_values = layout.run(&step, round).n_values();
            for primitive in rules.primitives(&step, held, links) {
                contents = primitive.after(contents, n_parts).expect("a valid list of primitives");
                all.push((primitive, n_values));
            }
            held = held_after(&step, &contents);
        }
        assert_eq!(held, None, "{case:?}: something is left over");
    }
    all
}

/// The engine does not time steps with fewer values.
const TIMED_FROM: usize = 1025;

/// Counts the timed primitives, by clock: encoding, folding, decoding.
fn timed(primitives: &[(Primitive, usize)]) -> [u64; 3] {
    let mut sums = [0; 3];
    for (primitive, _) in primitives.iter().filter(|(_, n_values)| *n_values >= TIMED_FROM) {
        let clock = match primitive {
            Primitive::EncodeOwn { codec: CodecId::Raw, .. } => 1,
            Primitive::Transcode { codecs: [_, CodecId::Raw], .. }
            | Primitive::Store { .. }
            | Primitive::StoreWhole { .. }
            | Primitive::Divide => 2,
            Primitive::EncodeOwn { .. }
            | Primitive::EncodeStored { .. }
            | Primitive::Transcode { .. } => 0,
            // The codec does no work.
            Primitive::Copy { .. }
            | Primitive::Move { .. }
            | Primitive::Join { .. }
            | Primitive::Replace { .. }
            | Primitive::StoreOwn => continue,
            _ => 1,
        };
        sums[clock] += 1;
    }
    sums
}

fn compare<T: Float>(case: &Case) {
    for (rank, report) in run::<T>(case).iter().enumerate() {
        let times = [report.encode, report.fold, report.decode].map(|time| time.as_nanos() as u64);
        assert_eq!(times, timed(&primitives::<T>(case, rank)), "{case:?}, rank {rank}");
    }
}

#[test]
fn each_step_asks_the_codec_for_what_the_rules_say() {
    let mut n_lossy = 0;
    for case in pairwise() {
        // An absolute bound needs no exchange of value ranges, which would count.
        let case = Case { bound: Bound::Absolute(1e-3), scope: Scope::PerOperand, ..case };
        // If the codec is not stable, the primitives for a result depend on the number of its
        // operands, which this test does not track.
        if !case.coding().is_stable() {
            continue;
        }
        n_lossy += usize::from(!case.coding().is_exact());
        with_type!(case.dtype, T => compare::<T>(&case));
    }
    assert!(n_lossy > 50, "the suite has lossy cases");
}

fn compare_bytes<T: Float>(case: &Case) {
    let prediction = cost::predict::<T>(&model(case), &ClusterModel::default(), &Costs::raw::<T>());
    let prediction = prediction.expect("a prediction");
    let reports =
        THREADS.run(case.size, |mut comm| case.run_rank::<T, _>(&mut comm).expect("the call").1);
    for (rank, (report, model)) in reports.iter().zip(&prediction.ranks).enumerate() {
        let counts = (report.wire_bytes, report.n_messages);
        assert_eq!((model.wire_bytes, model.n_messages), counts, "{case:?}, rank {rank}");
    }
}

#[test]
fn raw_messages_and_bytes_are_those_of_the_engine() {
    for case in pairwise() {
        let case = Case { codec: CodecId::Raw, ..case };
        with_type!(case.dtype, T => compare_bytes::<T>(&case));
    }
}

/// The plan names no schedule, and its relative bound needs an exchange of value ranges.
#[test]
fn messages_are_those_of_the_engine_where_it_chooses_the_schedule() {
    for (size, count) in [(3, 1000), (8, 200_003), (4, 1 << 20)] {
        let plan = Plan::foldwire(Bound::Relative(1e-3));
        let case = cost::ModelCall::new(Collective::AllReduce, plan, size, count);
        let prediction =
            cost::predict::<f32>(&case, &ClusterModel::default(), &Costs::raw::<f32>()).unwrap();
        let reports = Threads::default().run(size, |mut comm| {
            let mut x: Vec<f32> = foldwire_tests::data::smooth(comm.rank().index(), count);
            comm.all_reduce(&mut x, Op::Sum, &plan).expect("all-reduce")
        });
        for (report, model) in reports.iter().zip(&prediction.ranks) {
            assert_eq!(report.n_messages, model.n_messages, "{size} ranks, {count} values");
        }
    }
}
