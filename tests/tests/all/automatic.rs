//! Automatic plans keep their bound whatever they choose, and say what they chose.

use foldwire::codec::CodecId;
use foldwire::schedule::RecursiveDoubling;
use foldwire::{Bound, Op, Plan, Rank, SharedCommunicator};
use foldwire_tests::data;
use foldwire_threads::World;

const SIZE: usize = 3;
const BOUND: f64 = 1e-3;

/// Codec and schedule that all ranks report of an average of so many values, over such links, which
/// is checked.
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
    assert_eq!(all_reduce(&plan, 100_000, Some(12.5e6)).0, CodecId::Dense);
    let exact = plan.with_exact_below(1 << 20);
    assert_eq!(all_reduce(&exact, 100_000, Some(12.5e6)).0, CodecId::Raw);
}

#[test]
fn groups_and_messages_say_what_they_took() {
    World::new(2).link_rate(125e6).run_endpoints(|endpoint| {
        let comm = SharedCommunicator::new(endpoint, 2).expect("two channels");
        let plan = Plan::auto(Bound::Absolute(BOUND));
        // Two that travel together, and one that is long.
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
        assert_eq!(report.codec, CodecId::Dense);
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

#[test]
fn shapes_that_nobody_tells_are_found() {
    const SHAPE: [usize; 3] = [24, 110, 131];
    let value = |i: usize, rank: usize| {
        let (z, y, x) = (i / 131 / 110, i / 131 % 110, i % 131);
        let texture = (x.wrapping_mul(2_654_435_761) >> 7) % 1000;
        ((z + y + rank) as f64 * 0.05).sin() as f32 + texture as f32 / 1e3
    };
    let n = SHAPE.iter().product();
    for codec in [CodecId::FzNd, CodecId::Dense] {
        let plan = Plan::foldwire(Bound::Absolute(BOUND)).with_codec(codec);
        let [untold, told] = [plan, plan.with_shape(&SHAPE)].map(|plan| {
            let results = World::new(2).run(|mut comm| {
                let rank = comm.rank().index();
                let mut x: Vec<f32> = (0..n).map(|i| value(i, rank)).collect();
                let report = comm.all_reduce(&mut x, Op::Sum, &plan).expect("all-reduce");
                (report.ratio(), data::bytes(&x))
            });
            results.into_iter().next().expect("two ranks")
        });
        assert!(untold.1 == told.1, "a shape changes no value");
        assert!(untold.0 > 0.95 * told.0, "{codec:?}: ratio {}, {} where told", untold.0, told.0);
        // As a line it is noise of ten bits.
        assert!(told.0 > 6.0, "ratio {}", told.0);
    }
}
