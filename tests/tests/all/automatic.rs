//! Automatic plans keep their bound, and report their choice.

use foldwire::codec::CodecId;
use foldwire::frame::{Header, MessageKind};
use foldwire::schedule::RecursiveDoubling;
use foldwire::select::{ChoiceReason, Speeds};
use foldwire::threads::{Scoped, Threads};
use foldwire::{
    Bound, Call, Communicator, Config, Distance, Element, Error, Float, Op, Plan, Rank, Report,
    SharedCommunicator,
};
use foldwire_conformance::wrapped::{Hooks, Wrapped};
use foldwire_sim::{End, NetSettings, World as Simulated};
use foldwire_tests::data;
use foldwire_threads::World;

use super::real_fields::fields;
use std::cell::Cell;
use std::time::Duration;

const SIZE: usize = 3;
const BOUND: f64 = 1e-3;

/// Averages `count` values over links of this rate, or through memory, and checks the result.
/// Returns the codec and schedule that all ranks report.
fn all_reduce(plan: &Plan, count: usize, link_rate: Option<f64>) -> (CodecId, &'static str) {
    let world = World::new(SIZE);
    let world = link_rate.map_or(world.clone(), |rate| world.link_rate(rate));
    let results = world.run(|mut comm| {
        let mut x: Vec<f32> = data::smooth(comm.rank().index(), count);
        let report = comm.all_reduce(&mut x, Op::Avg, plan).expect("all-reduce");
        (x, report)
    });
    let inputs: Vec<Vec<f32>> = (0..SIZE).map(|rank| data::smooth(rank, count)).collect();
    let (first, report) = &results[0];
    for (values, of_rank) in &results {
        assert_eq!((of_rank.codec, of_rank.schedule), (report.codec, report.schedule));
        assert!(values.iter().zip(first).all(|(a, b)| a.to_bits() == b.to_bits()));
    }
    let worst = report.worst_case.expect("averages have a worst case");
    assert!(worst <= BOUND && (worst == 0.0) == (report.codec == CodecId::Raw));
    for (i, &value) in first.iter().enumerate() {
        let mean = inputs.iter().map(|x| f64::from(x[i])).sum::<f64>() / SIZE as f64;
        assert!((f64::from(value) - mean).abs() <= worst + 1e-5, "value {i} of {count}");
    }
    (report.codec, report.schedule)
}

#[test]
fn links_and_length_decide_and_the_bound_is_kept() {
    let plan = Plan::auto(Bound::Absolute(BOUND));
    assert_eq!(all_reduce(&plan, 100_000, None).0, CodecId::Raw);
    assert_eq!(all_reduce(&plan, 4, Some(125e6)).0, CodecId::Raw);
    let doubling = plan.with_schedule(&RecursiveDoubling);
    let long = all_reduce(&doubling, 100_000, Some(125e6));
    assert_eq!(long, (CodecId::FzLight, "recursive-doubling"));
    assert_eq!(all_reduce(&plan, 100_000, Some(125e6)).0, CodecId::FzLight);
    assert_ne!(all_reduce(&plan, 100_000, Some(12.5e6)).0, CodecId::Raw);
    let exact = plan.with_exact_below(1 << 20);
    assert_eq!(all_reduce(&exact, 100_000, Some(12.5e6)).0, CodecId::Raw);
}

#[test]
fn groups_and_messages_say_what_they_took() {
    World::new(2).link_rate(125e6).run_endpoints(|endpoint| {
        let comm = SharedCommunicator::new(endpoint, 2).expect("two channels");
        let plan = Plan::auto(Bound::Absolute(BOUND));
        // Two arrays that share frames, and a long one.
        let lens = [3, 5, 100_000];
        let mut data = lens.map(|n| data::smooth::<f32>(comm.rank().index(), n));
        let mut arrays: Vec<(&mut [f32], Bound)> =
            data.iter_mut().map(|x| (&mut x[..], Bound::Absolute(BOUND))).collect();
        let reports = comm.all_reduce_group(&mut arrays, Op::Sum, &plan).expect("a group");
        let codecs: Vec<CodecId> = reports.iter().map(|report| report.codec).collect();
        assert_eq!(codecs, [CodecId::Raw, CodecId::Raw, CodecId::FzLight]);
        assert!(reports.iter().all(|report| !report.schedule.is_empty()));
    });
    World::new(2).run(|mut comm| {
        let plan = Plan::raw().with_codec(CodecId::XorLz);
        let mut values = [1.5_f64; 1000];
        let report = match comm.rank() {
            Rank(0) => comm.send(&values, Rank(1), 0, &plan),
            _ => comm.recv(&mut values, Rank(0), 0),
        };
        let codec = report.expect("a message").codec;
        assert_eq!(codec, if comm.rank() == Rank(0) { CodecId::XorLz } else { CodecId::Raw });
    });
}

#[test]
fn all_kinds_of_calls_can_be_automatic() {
    World::new(SIZE).link_rate(12.5e6).run(|mut comm| {
        let plan = Plan::auto(Bound::Absolute(BOUND)).with_shape(&[100, 20, 50]);
        let rank = comm.rank().index();
        let mut whole: Vec<f64> = data::smooth(Rank(0).index(), 100_000);
        let expected = whole.clone();
        let report = comm.broadcast(&mut whole, Rank(1), &plan).expect("broadcast");
        assert_ne!(report.codec, CodecId::Raw);
        let near = |(x, y): (&f64, &f64)| (x - y).abs() <= BOUND;
        assert!(whole.iter().zip(&expected).all(near));
        let mut counts = [rank as u64; 40_000];
        let report = comm.all_reduce(&mut counts, Op::Sum, &plan).expect("integers");
        assert_eq!((report.codec, counts[7]), (CodecId::Raw, 3));
        let mut product = vec![2.0_f32; 40_000];
        let report = comm.all_reduce(&mut product, Op::Prod, &plan).expect("products");
        assert_eq!((report.codec, product[7]), (CodecId::Raw, 8.0));
    });
}

const SHAPE: [usize; 3] = [24, 110, 131];

/// A field of this shape, whose rows resemble each other.
fn textured(rank: usize) -> Vec<f32> {
    let value = |i: usize| {
        let (z, y, x) = (i / 131 / 110, i / 131 % 110, i % 131);
        let texture = (x.wrapping_mul(2_654_435_761) >> 7) % 1000;
        ((z + y + rank) as f64 * 0.05).sin() as f32 + texture as f32 / 1e3
    };
    (0..SHAPE.iter().product()).map(value).collect()
}

#[test]
fn shapes_are_found_whether_nobody_tells_them_or_tells_wrong_ones() {
    for codec in [CodecId::FzNd, CodecId::Dense] {
        let plan = Plan::foldwire(Bound::Absolute(BOUND)).with_codec(codec);
        // The wrong one has as many values, in rows of another length.
        let shapes = [plan, plan.with_shape(&[110, 131, 24]), plan.with_shape(&SHAPE)];
        let [untold, wrong, told] = shapes.map(|plan| {
            let results = World::new(2).run(|mut comm| {
                let mut x = textured(comm.rank().index());
                let report = comm.all_reduce(&mut x, Op::Sum, &plan).expect("all-reduce");
                (report.ratio(), data::bytes(&x))
            });
            results.into_iter().next().expect("two ranks")
        });
        for other in [untold, wrong] {
            assert!(other.1 == told.1, "a shape changes no value");
            assert!(other.0 > 0.95 * told.0, "{codec:?}: ratio {}, {} if told", other.0, told.0);
        }
        // A prediction along `x` alone would leave ten bits of noise in each value.
        assert!(told.0 > 6.0, "ratio {}", told.0);
    }
}

/// The data of a preparation say nothing about the shape of later data.
#[test]
fn a_prepared_call_keeps_its_shape() {
    let bound = Bound::Absolute(BOUND);
    for plan in [Plan::foldwire(bound).with_codec(CodecId::Dense), Plan::auto(bound)] {
        let plan = plan.with_shape(&SHAPE);
        World::new(2).link_rate(12.5e6).run(|mut comm| {
            let rank = comm.rank().index();
            let mut x: Vec<f32> = data::smooth(rank, SHAPE.iter().product());
            let call = Call::all_reduce(&mut x, Op::Sum);
            let prepared = comm.prepare(call, &plan).expect("prepared");
            let mut x = textured(rank);
            let report = prepared.run(&mut comm, &mut x[..]).expect("a run");
            assert!(report.codec.takes_shape(), "{report}");
            // A prediction along `x` alone would leave ten bits of noise in each value.
            assert!(report.ratio() > 5.0, "{report}");
        });
    }
}

/// Rare large values determine the range. A sample misses them.
#[test]
fn long_arrays_are_scanned_whole_over_slow_links() {
    let count = 1 << 20;
    let plan = Plan::foldwire(Bound::Relative(1e-2));
    let bounds = [Some(150e6), Some(1e9), None].map(|rate| {
        let world = World::new(2);
        let world = rate.map_or(world.clone(), |rate| world.link_rate(rate));
        let bounds = world.run(|mut comm| {
            let mut x: Vec<f32> = data::smooth(comm.rank().index(), count);
            x[count / 3] = 1000.0;
            comm.broadcast(&mut x, Rank(0), &plan).expect("a broadcast").bound
        });
        assert_eq!(bounds[0], bounds[1]);
        bounds[0]
    });
    assert!((9.5..=10.1).contains(&bounds[0]), "{bounds:?}");
    assert!(bounds[1] < 1.0 && bounds[1] == bounds[2], "{bounds:?}");
}

/// A bound for which `noise` has more than 2^21 lattice points, so that most values have no code.
const FINE: f64 = 1e-5;

/// Unpredictable numbers from 0 to 1000.
fn noise(rank: usize, count: usize) -> Vec<f32> {
    let hash = |i: usize| ((i * SIZE + rank + 1) as u64).wrapping_mul(0x2545_f491_4f6c_dd1d);
    let mixed = |hash: u64| (hash ^ hash >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 40;
    (0..count).map(|i| mixed(hash(i)) as f32 * (1000.0 / (1 << 24) as f32)).collect()
}

/// Makes a call on these values of each rank. Returns the report, which is the same on all ranks.
fn reports(
    values: impl Fn(usize) -> Vec<f32> + Sync,
    call: impl Fn(&mut Communicator<foldwire_threads::Endpoint>, &mut [f32]) -> Report + Sync,
) -> Report {
    let reports = World::new(SIZE).link_rate(12.5e6).run(|mut comm| {
        let mut values = values(comm.rank().index());
        call(&mut comm, &mut values)
    });
    let same = |report: &Report| (report.codec, report.schedule, report.plan);
    assert!(reports.iter().all(|report| same(report) == same(&reports[0])));
    reports[0]
}

#[test]
fn what_does_not_compress_travels_as_it_is() {
    for bound in [Bound::Absolute(FINE), Bound::Relative(1e-8)] {
        let plan = Plan::auto(bound);
        let report = reports(
            |rank| noise(rank, 200_000),
            |comm, x| comm.all_reduce(x, Op::Sum, &plan).expect("all-reduce"),
        );
        let choice = report.plan.expect("an automatic plan");
        assert_eq!(
            (report.codec, choice.reason),
            (CodecId::Raw, ChoiceReason::Sampled),
            "{choice}"
        );
        assert!(choice.weighed[1..].iter().all(|lossy| lossy.ratio < 1.2), "{choice}");
        let told = choice.to_string();
        assert!(told.starts_with("expected by a sample: exact ") && told.contains("fz-light "));
    }
}

#[test]
fn the_rank_whose_data_is_longest_decides_and_all_agree() {
    let plan = Plan::auto(Bound::Absolute(FINE));
    let call = |comm: &mut Communicator<_>, x: &mut [f32]| {
        comm.all_reduce(x, Op::Sum, &plan).expect("all-reduce")
    };
    let hard = |rank| if rank == 1 { noise(rank, 200_000) } else { vec![1.0; 200_000] };
    assert_eq!(reports(hard, call).codec, CodecId::Raw);
    let easy = reports(|_| vec![1.0; 200_000], call);
    assert_eq!(easy.codec, CodecId::FzLight);
    assert!(easy.plan.is_some_and(|choice| choice.weighed[1].ratio > 20.0));
}

#[test]
fn of_a_broadcast_the_roots_data_decide() {
    for (bound, ramps) in [(Bound::Absolute(FINE), true), (Bound::Relative(1e-8), false)] {
        let plan = Plan::auto(bound);
        let call = |comm: &mut Communicator<_>, x: &mut [f32]| {
            comm.broadcast(x, Rank(2), &plan).expect("broadcast")
        };
        let root = |rank| if rank == 2 { noise(rank, 200_000) } else { vec![0.0; 200_000] };
        assert_eq!(reports(root, call).codec, CodecId::Raw);
        let ramp = || (0..200_000).map(|i| (i / 1000) as f32 * 0.0039).collect();
        let others = |rank| if rank == 2 { ramp() } else { noise(rank, 200_000) };
        assert_eq!(reports(others, call).codec != CodecId::Raw, ramps);
    }
}

/// Values on a grid that is coarser than the bound's lattice are exact, and take few bits.
#[test]
fn data_on_a_grid_are_summed_exactly_whatever_the_relative_bound() {
    let value = |rank: usize, i: usize| ((i * 7 + rank * 13) % 1000) as f32 / 256.0;
    let values = |rank| (0..200_000).map(|i| value(rank, i)).collect::<Vec<f32>>();
    let sum = |i| (0..SIZE).map(|rank| value(rank, i)).sum();
    let exact: Vec<f32> = (0..200_000).map(sum).collect();
    for plan in [Plan::auto(Bound::Relative(1e-8)), Plan::foldwire(Bound::Relative(1e-8))] {
        let report = reports(values, |comm, x| {
            let report = comm.all_reduce(x, Op::Sum, &plan).expect("all-reduce");
            assert_eq!(x, exact, "{plan:?}");
            report
        });
        assert!(report.codec != CodecId::Raw && report.ratio() > 2.0, "{report}");
        assert!(report.bound > 0.0 && report.bound < 1e-7, "{report}");
    }
    // One rank has values off the grid, so all ranks use the bound's lattice.
    let plan = Plan::foldwire(Bound::Relative(1e-3));
    let beside = |rank| if rank == 1 { noise(rank, 200_000) } else { values(rank) };
    let report = reports(beside, |comm, x| comm.all_reduce(x, Op::Sum, &plan).expect("all-reduce"));
    assert!(report.blocks.verbatim == 0, "{report}");
}

#[test]
fn ranges_of_ranks_may_differ() {
    // The bound is a part of the value range over all ranks. Within it, rank 0's small values are
    // almost constant, and the other ranks' values are noise.
    let plan = Plan::auto(Bound::Relative(1e-3));
    let values = |rank: usize| -> Vec<f32> {
        let scale = if rank == 0 { 1e-3 } else { 1.0 };
        noise(rank, 200_000).into_iter().map(|x| x * scale).collect()
    };
    let report = reports(values, |comm, x| comm.all_gather_in_place(x, &plan).expect("gather"));
    let ratio = report.plan.expect("an automatic plan").weighed[1].ratio;
    assert!((2.5..4.0).contains(&ratio), "{ratio}: noise at a thousandth takes 10 bits");
}

#[test]
fn a_prepared_call_keeps_what_the_sample_said() {
    let plan = Plan::auto(Bound::Relative(1e-8));
    let report = reports(
        |rank| noise(rank, 200_000),
        |comm, x| {
            let sum = comm.prepare(Call::all_reduce(&mut *x, Op::Sum), &plan).expect("prepared");
            sum.run(comm, &mut *x).expect("a run")
        },
    );
    assert_eq!(report.codec, CodecId::Raw);
    assert!(report.plan.is_some_and(|choice| choice.reason == ChoiceReason::Sampled));
}

#[test]
fn speeds_decide_and_ranks_that_differ_are_told_or_made_alike() {
    let slow = [CodecId::FzLight, CodecId::FzNd, CodecId::Dense]
        .into_iter()
        .fold(Speeds::default(), |speeds, codec| speeds.with(codec, 1e6));
    let plan = Plan::auto(Bound::Absolute(BOUND));
    let all = |shares: bool| {
        World::new(SIZE).link_rate(125e6).run(|mut comm| {
            let is_slow = comm.rank() == Rank(1);
            comm.config_mut().speeds = if is_slow { slow } else { Speeds::default() };
            if shares {
                comm.share_speeds().expect("speeds");
                assert_eq!(comm.config_mut().speeds, slow);
            }
            let mut x: Vec<f32> = data::smooth(comm.rank().index(), 100_000);
            comm.all_reduce(&mut x, Op::Sum, &plan).map(|report| report.codec)
        })
    };
    assert!(all(true).into_iter().all(|codec| codec == Ok(CodecId::Raw)));
    let told = all(false);
    assert!(told.iter().any(|result| matches!(result, Err(Error::Mismatch { .. }))), "{told:?}");
    assert!(told.iter().all(Result::is_err));
}

#[test]
fn reports_say_how_arrays_were_cut_and_automatic_plans_leave_others_their_cores() {
    const COUNT: usize = 1 << 20;
    static THREADS: Scoped = Scoped(3);
    let config = Config::default().with_threads(Threads::of(&THREADS)).with_lanes(2);
    let report_of = |plan: Plan, frame_bytes: usize| {
        let world = World::new(2).link_rate(1.25e9).frame_bytes(frame_bytes);
        let reports = world.run_endpoints(|endpoint| {
            let mut comm = Communicator::with_config(endpoint, config).expect("a communicator");
            let mut x: Vec<f32> = data::smooth(comm.rank().index(), COUNT);
            comm.all_reduce(&mut x, Op::Sum, &plan).expect("all-reduce")
        });
        let cut = |report: &Report| (report.lanes, report.segment, report.threads);
        assert!(reports.iter().all(|report| cut(report) == cut(&reports[0])));
        assert_eq!(reports[0].codec, CodecId::FzLight);
        reports[0]
    };
    let bound = Bound::Absolute(BOUND);
    // A part is half the array, 2 MiB. A long frame has space for a part, a short one for an eighth
    // of a part.
    let (long, short) = (3 << 20, 300 << 10);
    let pinned = report_of(Plan::foldwire(bound), long);
    assert_eq!((pinned.lanes, pinned.segment, pinned.threads), (2, 1 << 18, 3));
    let n_cores = std::thread::available_parallelism().expect("some cores").get();
    let chosen = report_of(Plan::auto(bound), long);
    assert_eq!((chosen.lanes, chosen.segment), (2, 1 << 18));
    assert_eq!(usize::from(chosen.threads), (n_cores / 2).clamp(1, 3));
    // Between ranks that share memory, frames are full. Over links, all lanes get segments.
    let cut = |count: usize, link_rate: Option<f64>| {
        let world = link_rate.map_or(World::new(2), |rate| World::new(2).link_rate(rate));
        let reports = world.frame_bytes(short).run(|mut comm| {
            let mut x: Vec<f32> = data::smooth(comm.rank().index(), count);
            comm.all_reduce(&mut x, Op::Sum, &Plan::auto(bound)).expect("all-reduce")
        });
        (reports[0].codec.is_exact(), reports[0].lanes, reports[0].segment)
    };
    assert_eq!(cut(1 << 18, None), (true, 2, 1 << 16));
    assert_eq!(cut(1 << 16, Some(125e6)), (false, 4, 1 << 13));
    // The calling thread encodes such short segments before other threads would wake up.
    let many = report_of(Plan::foldwire(bound), short);
    assert_eq!((many.lanes, many.segment, many.threads), (2, 1 << 16, 1));
}

/// Makes frames with exact payloads (or those with lossy ones) seem late: each advances this rank's
/// clock by a millisecond.
struct LateFrames {
    is_exact: bool,
    by: Cell<Duration>,
}

impl Hooks for LateFrames {
    fn received(&mut self, frame: &mut [u8], n_bytes: usize) -> usize {
        let header = Header::parse(&frame[..n_bytes], false).expect("a frame");
        let is_of_array = header.kind == MessageKind::Data && header.call.dtype == f32::DTYPE;
        if is_of_array && header.call.codec.is_exact() == self.is_exact {
            self.by.update(|by| by + Duration::from_millis(1));
        }
        n_bytes
    }

    fn time(&self, now: Duration) -> Duration {
        now + self.by.get()
    }

    fn link_rate(&self, _: Option<f64>) -> Option<f64> {
        None
    }

    fn distance(&self) -> Distance {
        Distance::Loopback
    }
}

/// The model cannot predict which frames are late.
#[test]
fn calls_that_are_timed_both_ways_keep_to_what_is_sooner() {
    let net = NetSettings { bandwidth: 3e9, jitter: Duration::ZERO, ..NetSettings::default() };
    for is_exact in [true, false] {
        let run = Simulated::new(2, 1).net(net).run(|endpoint| async move {
            let late = LateFrames { is_exact, by: Cell::default() };
            let mut comm = Communicator::new(Wrapped::new(endpoint, late))?;
            let plan = Plan::auto(Bound::Relative(BOUND));
            let mut taken = Vec::new();
            for _ in 0..14 {
                let mut x: Vec<f32> = data::smooth(comm.rank().index(), 1 << 16);
                let report = comm.start(Call::all_reduce(&mut x, Op::Avg), &plan)?.await?;
                let reason = report.plan.map(|choice| choice.reason);
                taken.push((report.codec.is_exact(), reason == Some(ChoiceReason::Tried)));
            }
            Ok::<_, Error>(taken)
        });
        let [End::Returned(Ok(taken)), End::Returned(Ok(other))] = &run.ends[..] else {
            panic!("{:?}", run.ends)
        };
        assert_eq!(taken, other, "ranks choose alike");
        let alternately: Vec<_> = (0..8).map(|nth| (nth % 2 == 0, true)).collect();
        assert!(!taken[0].1 && !taken[1].1, "{taken:?}");
        assert_eq!(taken[2..10], alternately);
        assert_eq!(taken[10..], [(!is_exact, true); 4]);
    }
}

/// Automatic calls measure links. The bounds of other calls do not depend on what they found.
#[test]
fn a_measured_rate_changes_no_bound_of_another_plan() {
    let count = 1 << 20;
    let net = NetSettings { bandwidth: 12.5e6, ..NetSettings::default() };
    let run = Simulated::new(2, 1).net(net).run(|endpoint| async move {
        let hidden = LateFrames { is_exact: true, by: Cell::default() };
        let mut comm = Communicator::new(Wrapped::new(endpoint, hidden))?;
        let plan = Plan::foldwire(Bound::Relative(1e-2));
        let (mut bounds, mut measured) = (Vec::new(), None);
        for measures in [false, true] {
            for _ in 0..if measures { 4 } else { 0 } {
                let mut x: Vec<f32> = data::smooth(comm.rank().index(), 1 << 18);
                let plan = Plan::auto(Bound::Relative(BOUND));
                let report = comm.start(Call::all_reduce(&mut x, Op::Sum), &plan)?.await?;
                measured = report.plan.map(|choice| choice.link_rate);
            }
            let mut x: Vec<f32> = data::smooth(comm.rank().index(), count);
            x[count / 3] = 1000.0;
            let call = Call::broadcast(&mut x, Rank(0));
            bounds.push(comm.start(call, &plan)?.await?.bound);
        }
        assert!(measured.is_some_and(|rate| rate < 20e6), "{measured:?}");
        Ok::<_, Error>(bounds)
    });
    for end in &run.ends {
        let End::Returned(Ok(bounds)) = end else { panic!("{end:?}") };
        assert!(bounds[0] == bounds[1] && bounds[0] < 1.0, "{bounds:?}");
    }
}

/// Between ranks of one process, calls try compression only for long arrays that are not reduced.
/// All ranks make the same choice.
#[test]
fn ranks_of_a_process_try_what_may_pay() {
    let plan = Plan::auto(Bound::Relative(BOUND));
    let all = World::new(2).run(|mut comm| {
        let own: Vec<f32> = data::smooth(comm.rank().index(), 1 << 18);
        let mut all = vec![0.0; 2 << 18];
        [0; 12].map(|_| comm.all_gather(&own, &mut all, &plan).expect("all-gather"))
    });
    let taken = |reports: &[Report]| -> Vec<bool> {
        reports.iter().map(|report| report.codec.is_exact()).collect()
    };
    assert_eq!(taken(&all[0]), taken(&all[1]));
    assert_eq!(taken(&all[0])[..8], [true, true, true, false, true, false, true, false]);
}

/// Returns the bytes that a rank sends of these values in an all-gather, and the codec.
fn gathered<T: Float>(values: &[T], plan: &Plan, link_rate: f64) -> (u64, CodecId) {
    let reports = World::new(2).link_rate(link_rate).run(|mut comm| {
        let mut all = vec![T::ZERO; 2 * values.len()];
        comm.all_gather(values, &mut all, plan).expect("an all-gather")
    });
    (reports[0].wire_bytes, reports[0].codec)
}

fn auto_takes_the_shortest<T: Float>() {
    let codecs = [CodecId::FzLight, CodecId::FzNd, CodecId::Dense, CodecId::Szx, CodecId::OmpSzp];
    let mut behind = Vec::new();
    for (name, values) in fields::<T>() {
        let values = &values[..values.len().min(1 << 18)];
        for relative in [1e-2, 1e-3, 1e-4, 1e-5] {
            let bound = Bound::Relative(relative);
            let of = |codec| gathered(values, &Plan::foldwire(bound).with_codec(codec), 1e9);
            let lossless = gathered(values, &Plan::lossless(), 1e9);
            let best = codecs.map(of).into_iter().chain([lossless]).min_by_key(|best| best.0);
            let (best, codec) = best.expect("some codecs");
            let (auto, chosen) = gathered(values, &Plan::auto(bound), 12.5e6);
            let more = auto as f64 / best as f64 - 1.0;
            println!("{name} {relative:e}: {codec:?}, chosen {chosen:?}, {:+.1} %", 100.0 * more);
            behind.extend((more > 0.03).then(|| (name.clone(), relative, chosen, codec)));
        }
    }
    assert!(behind.is_empty(), "{behind:?}");
}

#[test]
fn on_a_slow_link_it_is_within_3_percent_of_the_shortest_codec() {
    auto_takes_the_shortest::<f32>();
    auto_takes_the_shortest::<f64>();
}
