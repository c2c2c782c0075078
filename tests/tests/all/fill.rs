//! Fill values stand for missing data in every collective: they do not count in the range of a
//! bound, move with all their bits, and a reduction with a missing value is missing.

use foldwire::bound::ValueRange;
use foldwire::codec::{CodecId, Loss};
use foldwire::error::FillError;
use foldwire::schedule::{self, Collective};
use foldwire::{
    Bound, Call, Error, Float, Op, Outgoing, Plan, Rank, Report, Rounding, Rows, Sampling, Scope,
    SharedCommunicator, f16, pipeline,
};
use foldwire_tests::data;
use foldwire_threads::{Endpoint, World};

type Communicator = foldwire::Communicator<Endpoint>;

const FILL: f64 = -9999.0;
const N_RANKS: usize = 3;
const RELATIVE: f64 = 1e-2;

/// Returns one rank's values, some of which are missing: scattered ones, a region, and a NaN.
fn own<T: Float>(rank: usize, n: usize) -> Vec<T> {
    let mut values = data::smooth::<T>(rank, n);
    let fill = T::from_f64(FILL);
    values.iter_mut().skip(rank).step_by(17).for_each(|x| *x = fill);
    if n > 4500 {
        values[4000..4500].fill(fill);
        values[4600] = T::from_f64(f64::NAN);
    }
    values
}

fn is_missing<T: Float>(x: T) -> bool {
    x.to_f64().is_nan() || is_fill(x)
}

fn is_fill<T: Float>(x: T) -> bool {
    x.to_f64() == T::from_f64(FILL).to_f64()
}

/// Asserts that a call learned the range of the values that are there.
fn check_range<T: Float>(report: &Report, all: &[Vec<T>], case: &str) {
    let there: Vec<T> = all.iter().flatten().copied().filter(|&x| !is_missing(x)).collect();
    let range = ValueRange::of(&there).expect("values").range();
    assert!(report.bound <= RELATIVE * range * 1.0001, "{case}: {} of {range}", report.bound);
}

/// Asserts that values arrived: within the bound, or as missing ones.
fn check_moved<T: Float>(got: &[T], sent: &[T], bound: f64, case: &str) {
    assert_eq!(got.len(), sent.len(), "{case}");
    for (i, (&got, &sent)) in got.iter().zip(sent).enumerate() {
        let arrived = if is_fill(sent) || sent.to_f64().is_nan() {
            data::bytes(&[got]) == data::bytes(&[sent])
        } else {
            (got.to_f64() - sent.to_f64()).abs() <= bound
        };
        assert!(arrived, "{case}: value {i} is {got:?}, not {sent:?}");
    }
}

/// Asserts that values are the reduction of ranks' values, or missing where one of them is.
fn check_reduced<T: Float>(
    (got, report): (&[T], &Report),
    op: Op<'_, T>,
    operands: &[&[T]],
    case: &str,
) {
    for (i, &got) in got.iter().enumerate() {
        let all = || operands.iter().map(|values| values[i]);
        if all().any(is_missing) {
            assert!(is_fill(got), "{case}: value {i} is {got:?}, not missing");
            continue;
        }
        let all = || all().map(T::to_f64);
        let exact = match op {
            Op::Sum => all().sum(),
            Op::Avg => all().sum::<f64>() / operands.len() as f64,
            Op::Min => all().fold(f64::INFINITY, f64::min),
            Op::Max => all().fold(f64::NEG_INFINITY, f64::max),
            _ => all().product(),
        };
        let unit = if T::BYTES == 2 { 1e-2 } else { 1e-5 };
        let rounding = unit * all().map(f64::abs).fold(exact.abs(), f64::max).max(1.0);
        // Products have no bound, so only what is missing is checked.
        let bound = report.worst_case.unwrap_or(f64::INFINITY) + rounding;
        assert!((got.to_f64() - exact).abs() <= bound, "{case}: value {i}: {got:?} for {exact}");
    }
}

/// Returns all plans that can keep a fill value.
fn plans() -> Vec<(String, Plan)> {
    let bound = Bound::Relative(RELATIVE);
    let mut plans = vec![
        ("raw".to_owned(), Plan::raw()),
        ("auto".to_owned(), Plan::auto(bound)),
        ("published".to_owned(), Plan::foldwire(bound).as_published()),
        ("short".to_owned(), Plan::foldwire(bound).with_exact_below(usize::MAX)),
    ];
    for &codec in CodecId::ALL.iter().filter(|codec| codec.loss() != Loss::Setting) {
        for pipeline in pipeline::ALL {
            let plan = Plan::foldwire(bound).with_codec(codec).with_pipeline(pipeline);
            plans.push((format!("{} {}", codec.name(), pipeline.name), plan));
        }
    }
    plans.into_iter().map(|(name, plan)| (name, plan.with_fill(FILL))).collect()
}

/// Runs an all-reduce on all ranks and checks it.
fn all_reduce<T: Float>(n: usize, op: Op<'static, T>, plan: Plan, case: &str) {
    let operands: Vec<Vec<T>> = (0..N_RANKS).map(|rank| own(rank, n)).collect();
    let results = World::new(N_RANKS).run(|mut comm| {
        let (sent, mut got) = (own::<T>(comm.rank().index(), n), vec![T::ZERO; n]);
        let apart = comm.all_reduce_into(&sent, &mut got, op, &plan).expect(case);
        let mut in_place = sent;
        // The second call of a kind may be replayed.
        for _ in 0..3 {
            in_place = own(comm.rank().index(), n);
            comm.all_reduce(&mut in_place, op, &plan).expect(case);
        }
        assert_eq!(data::bytes(&in_place), data::bytes(&got), "{case} in place");
        (got, apart)
    });
    let operands: Vec<&[T]> = operands.iter().map(Vec::as_slice).collect();
    let owned: Vec<Vec<T>> = operands.iter().map(|values| values.to_vec()).collect();
    for (got, report) in &results {
        check_reduced((got, report), op, &operands, case);
        check_range(report, &owned, case);
        if plan.same_bits {
            assert_eq!(data::bytes(got), data::bytes(&results[0].0), "{case}");
        }
    }
}

#[test]
fn a_reduction_with_a_missing_value_is_missing_by_every_codec_and_pipeline() {
    for (name, plan) in plans() {
        for op in [Op::Sum, Op::Avg, Op::Min, Op::Max, Op::Prod] {
            all_reduce::<f32>(9001, op, plan, &format!("{op:?} {name}"));
        }
        all_reduce::<f64>(5003, Op::Avg, plan, &format!("f64 {name}"));
        all_reduce::<f16>(5003, Op::Sum, plan, &format!("f16 {name}"));
        all_reduce::<f32>(5, Op::Sum, plan, &format!("five values {name}"));
    }
}

#[test]
fn every_schedule_of_every_reduction_keeps_missing_values() {
    let n = 5003;
    for plan in [Plan::raw(), Plan::foldwire(Bound::Relative(RELATIVE))] {
        for &schedule in schedule::ALL {
            let plan = plan.with_schedule(schedule).with_fill(FILL);
            let can = |collective| schedule.supports(collective);
            let case = format!("{} {}", schedule.name(), plan.codec.name());
            if can(Collective::AllReduce) {
                all_reduce::<f32>(n, Op::Avg, plan, &case);
            }
            World::new(N_RANKS).run(|mut comm| reductions(&mut comm, n, &plan, &case, can));
        }
    }
}

fn reductions(
    comm: &mut Communicator,
    n: usize,
    plan: &Plan,
    case: &str,
    can: impl Fn(Collective) -> bool,
) {
    let (rank, op) = (comm.rank().index(), Op::Sum);
    let all: Vec<Vec<f32>> = (0..N_RANKS).map(|rank| own(rank, n)).collect();
    let operands: Vec<&[f32]> = all.iter().map(Vec::as_slice).collect();
    let sent = &all[rank];
    if can(Collective::Reduce) {
        let mut got = vec![0.0; n];
        let call = Call::reduce(&sent[..], &mut got[..], op, Rank(1));
        let report = comm.run(call, plan).expect(case);
        if rank == 1 {
            check_reduced((&got, &report), op, &operands, case);
        }
    }
    if can(Collective::ReduceScatter) {
        let share = comm.share(n);
        let mut got = vec![0.0; share.len()];
        let report = comm.reduce_scatter(sent, &mut got, op, plan).expect(case);
        let operands: Vec<&[f32]> = all.iter().map(|values| &values[share.clone()]).collect();
        check_reduced((&got, &report), op, &operands, case);
        let mut got = sent.clone();
        let report = comm.reduce_scatter_to_front(&mut got, op, plan).expect(case);
        check_reduced((&got[..share.len()], &report), op, &operands, case);
    }
    if can(Collective::Scan) {
        let mut got = sent.clone();
        let report = comm.scan(&mut got, op, plan).expect(case);
        check_reduced((&got, &report), op, &operands[..=rank], case);
    }
    if can(Collective::ExclusiveScan) {
        let mut got = sent.clone();
        let report = comm.exclusive_scan(&mut got, op, plan).expect(case);
        match rank {
            0 => assert_eq!(data::bytes(&got), data::bytes(sent), "{case}: untouched"),
            _ => check_reduced((&got, &report), op, &operands[..rank], case),
        }
    }
}

#[test]
fn values_that_only_move_keep_fill_values_by_every_codec_and_schedule() {
    for (name, plan) in plans() {
        World::new(N_RANKS).run(|mut comm| movements(&mut comm, &plan, &name, |_| true));
    }
    for &schedule in schedule::ALL {
        let plan = Plan::foldwire(Bound::Relative(RELATIVE)).with_schedule(schedule);
        let plan = plan.with_fill(FILL);
        let can = |collective| schedule.supports(collective);
        World::new(N_RANKS).run(|mut comm| movements(&mut comm, &plan, schedule.name(), can));
    }
}

fn movements(comm: &mut Communicator, plan: &Plan, case: &str, can: impl Fn(Collective) -> bool) {
    let (rank, n) = (comm.rank().index(), 4700);
    let all: Vec<Vec<f32>> = (0..N_RANKS).map(|rank| own(rank, n)).collect();
    let (sent, joined) = (&all[rank], all.concat());
    if can(Collective::AllGather) {
        let mut got = vec![0.0; N_RANKS * n];
        let report = comm.all_gather(sent, &mut got, plan).expect(case);
        check_moved(&got, &joined, report.bound, case);
        check_range(&report, &all, case);
    }
    if can(Collective::Broadcast) {
        let mut got = sent.clone();
        let report = comm.broadcast(&mut got, Rank(1), plan).expect(case);
        check_moved(&got, &all[1], report.bound, case);
    }
    if can(Collective::Scatter) {
        let mut got = vec![0.0; n];
        let sent = if rank == 1 { &joined[..] } else { &[] };
        let report = comm.scatter(N_RANKS * n, sent, &mut got, Rank(1), plan).expect(case);
        check_moved(&got, &joined[rank * n..][..n], report.bound, case);
    }
    if can(Collective::Gather) {
        let mut got = vec![0.0; if rank == 2 { N_RANKS * n } else { 0 }];
        let report = comm.gather(N_RANKS * n, sent, &mut got, Rank(2), plan).expect(case);
        check_moved(&got, if rank == 2 { &joined } else { &[] }, report.bound, case);
    }
    if can(Collective::AllToAll) {
        let mut got = vec![0.0; N_RANKS * n];
        let report = comm.all_to_all(&joined, &mut got, plan).expect(case);
        let expected = joined[rank * n..][..n].repeat(N_RANKS);
        check_moved(&got, &expected, report.bound, case);
    }
}

#[test]
fn groups_and_prepared_calls_keep_missing_values() {
    let plan = Plan::foldwire(Bound::Relative(RELATIVE)).with_fill(FILL);
    for lengths in [[9001, 5000], [40, 60]] {
        World::new(N_RANKS).run(|mut comm| {
            let rank = comm.rank().index();
            let mut sum = own::<f32>(rank, lengths[0]);
            let call = comm.prepare(Call::all_reduce(&mut sum, Op::Sum), &plan).expect("prepared");
            for _ in 0..3 {
                sum = own(rank, lengths[0]);
                let report = call.run(&mut comm, &mut sum[..]).expect("the same lengths");
                check_all(&sum, &report, 0);
            }
        });
        World::new(N_RANKS).run(|comm| {
            let rank = comm.rank().index();
            let comm = SharedCommunicator::new(comm.into_transport(), 2).expect("channels");
            let mut arrays = lengths.map(|n| own::<f32>(rank, n));
            let bound = Bound::Relative(RELATIVE);
            let mut group: Vec<_> = arrays.iter_mut().map(|x| (&mut x[..], bound)).collect();
            let reports = comm.all_reduce_group(&mut group, Op::Sum, &plan).expect("a group");
            for (array, report) in arrays.iter().zip(&reports) {
                check_all(array, report, 0);
            }
        });
    }
}

fn check_all(got: &[f32], report: &Report, first: usize) {
    let all: Vec<Vec<f32>> = (first..N_RANKS).map(|rank| own(rank, got.len())).collect();
    let operands: Vec<&[f32]> = all.iter().map(Vec::as_slice).collect();
    check_reduced((got, report), Op::Sum, &operands, "in a group");
    check_range(report, &all, "in a group");
}

/// The rank without a fill value gets NaN, and its numbers count as numbers.
#[test]
fn each_rank_may_have_its_own_fill_value_or_none() {
    let of_sample = Plan::foldwire(Bound::Relative(1e-3)).with_sampling(Sampling::Always);
    for plan in [Plan::foldwire(Bound::Absolute(1e-3)), of_sample] {
        let results = World::new(3).run(|mut comm| {
            let (fill, plan) = match comm.rank().index() {
                0 => (1e20, plan.with_fill(1e20)),
                1 => (-1.0, plan.with_fill(-1.0)),
                _ => (7.0, plan),
            };
            let mut values: Vec<f32> = vec![1.0; 5000];
            values[comm.rank().index()] = fill;
            comm.all_reduce(&mut values, Op::Sum, &plan).expect("floats");
            values
        });
        assert_eq!(results[0][..2], [1e20; 2]);
        assert_eq!(results[1][..2], [-1.0; 2]);
        assert!(results[2][0].is_nan() && results[2][1].is_nan());
        for values in results {
            // The range is 6.
            assert!((values[2] - 9.0).abs() < 2e-2 && (values[3] - 3.0).abs() < 2e-2);
        }
    }
}

#[test]
fn as_a_number_a_fill_value_is_added_but_does_not_set_the_range() {
    let plan = Plan::foldwire(Bound::Relative(RELATIVE)).with_fill_as_number(1e20);
    for plan in [plan, plan.with_scope(foldwire::Scope::Result)] {
        let results = World::new(2).run(|mut comm| {
            let mut values = data::smooth::<f32>(0, 5000);
            if comm.rank().index() == 0 {
                values[100..200].fill(1e20);
            }
            let mut gathered = vec![0.0; 10_000];
            comm.all_gather(&values, &mut gathered, &plan).expect("floats");
            assert_eq!(gathered[100..200], [1e20; 100]);
            let report = comm.all_reduce(&mut values, Op::Sum, &plan).expect("floats");
            (values, report)
        });
        let smooth = data::smooth::<f32>(0, 5000);
        for (values, report) in results {
            assert!(report.bound < 1.0, "{report}");
            assert_eq!(values[100..200], [1e20; 100]);
            let bound = report.worst_case.expect("a sum") + 1e-4;
            let rest = values.iter().zip(&smooth).skip(200);
            rest.for_each(|(sum, x)| assert!((sum - 2.0 * x).abs() <= bound as f32));
        }
    }
}

#[test]
fn a_nan_with_the_bits_that_stand_for_fill_values_stays_nan() {
    let plan = Plan::raw().with_fill(FILL);
    let results = World::new(2).run(|mut comm| {
        let sent = [f32::from_bits(0x7fc0_003a), f32::from_bits(0x7fc0_003b)];
        let mut got = [0.0; 4];
        comm.all_gather(&sent, &mut got, &plan).expect("floats");
        got.map(f32::to_bits)
    });
    assert_eq!(results, [[0x7fc0_0000, 0x7fc0_003b, 0x7fc0_0000, 0x7fc0_003b]; 2]);
}

#[test]
fn calls_that_cannot_have_a_fill_value_are_refused_and_leave_the_communicator_usable() {
    let plan = Plan::foldwire(Bound::Absolute(1e-3)).with_fill(FILL);
    World::new(2).run(|mut comm| {
        let refused = |error: FillError| Err(Error::Fill(error));
        let mut x = [1.0_f32; 50];
        let mut reduce = |plan: &Plan, op| comm.all_reduce(&mut x, op, plan).map(drop);
        assert_eq!(reduce(&plan.with_fill(f64::NAN), Op::Sum), refused(FillError::Nan));
        assert_eq!(reduce(&plan, Op::User(&|a, b| a + b)), refused(FillError::Operation));
        let unbiased = plan.with_rounding(Rounding::unbiased(1));
        assert_eq!(reduce(&unbiased, Op::Sum), refused(FillError::Rounding));
        for codec in [CodecId::Truncate, CodecId::TruncateXor, CodecId::ZfpRate] {
            let plan = plan.with_codec(codec);
            assert_eq!(reduce(&plan, Op::Sum), refused(FillError::Codec { codec }));
        }
        assert_eq!(reduce(&plan.with_fill_as_number(FILL), Op::User(&|a, b| a + b)), Ok(()));
        let integers = comm.all_reduce(&mut [1_i32; 5], Op::Sum, &plan).map(drop);
        assert_eq!(integers, refused(FillError::Type { dtype: foldwire::DType::I32 }));
        let to = Rank::new(1 - comm.rank().index());
        let sent = comm.exchange(&mut [Outgoing::new(to, 0, &x)], &mut [], &plan).map(drop);
        assert_eq!(sent, refused(FillError::Message));
        comm.all_reduce(&mut x, Op::Sum, &plan).expect("the communicator is usable");
    });
}

/// A plan that refuses suspected fill values fails on all ranks alike, and before any data are
/// sent, even where only one rank has the value. The communicator can go on.
#[test]
fn a_suspected_fill_value_is_refused_on_all_ranks_alike() {
    let refused = Error::Fill(FillError::Suspected { value: -9999.0 });
    for bound in [Bound::Relative(1e-3), Bound::Psnr(50.0), Bound::Absolute(0.5)] {
        let refuses = bound.needs_value_range();
        let plans = [
            Plan::foldwire(bound),
            Plan::foldwire(bound).with_codec(CodecId::Dense),
            Plan::foldwire(bound).with_scope(Scope::Result),
        ];
        for plan in plans.map(Plan::refusing_fill) {
            World::new(3).run(|mut comm| {
                let expected = |is_refused| if is_refused { Err(refused) } else { Ok(()) };
                for turn in 0..2 {
                    let mut x: Vec<f32> = (0..9000).map(|i| (i as f32 * 0.01).sin()).collect();
                    let sound = x.clone();
                    if comm.rank() == Rank::new(1) {
                        x[700..1500].fill(-9999.0);
                    }
                    let mut all = vec![0.0; 3 * x.len()];
                    let gathered = comm.all_gather(&x, &mut all, &plan).map(drop);
                    assert_eq!(gathered, expected(refuses), "{plan:?}, {turn}");
                    let prepared = comm.prepare(Call::all_gather(&x, &mut all), &plan).map(drop);
                    assert_eq!(prepared, expected(refuses), "{plan:?}, {turn}");
                    let reduced = comm.all_reduce(&mut x, Op::Max, &plan).map(drop);
                    assert_eq!(reduced, expected(refuses), "{plan:?}, {turn}");
                    let gathered = comm.all_gather(&sound, &mut all, &plan).map(drop);
                    assert_eq!(gathered, Ok(()), "{plan:?}, {turn}");
                }
            });
        }
    }
}

#[test]
fn a_group_with_a_suspected_fill_value_is_refused_on_all_ranks_alike() {
    let refused = Error::Fill(FillError::Suspected { value: 1e36 });
    World::new(2).run(|comm| {
        let comm = SharedCommunicator::new(comm.into_transport(), 2).expect("channels");
        for is_sound in [false, true] {
            let mut arrays = [0, 1].map(|at| data::smooth::<f64>(at, 3000));
            if !is_sound && comm.rank() == Rank::new(1) {
                arrays[1][50..90].fill(1e36);
            }
            let mut group: Vec<_> =
                arrays.iter_mut().map(|x| (&mut x[..], Bound::Relative(1e-3))).collect();
            let plan = Plan::foldwire(Bound::Relative(1e-3)).refusing_fill();
            let reduced = comm.all_reduce_group(&mut group, Op::Sum, &plan).map(drop);
            assert_eq!(reduced, if is_sound { Ok(()) } else { Err(refused) });
        }
    });
}

#[test]
fn a_message_with_a_suspected_fill_value_is_refused_before_it_is_sent() {
    let plan = Plan::foldwire(Bound::Relative(1e-3)).refusing_fill();
    World::new(2).run(|mut comm| {
        let mut x: Vec<f64> = (0..5000).map(|i| (f64::from(i) * 0.01).sin()).collect();
        let to = Rank::new(1 - comm.rank().index());
        x[100..200].fill(1e20);
        let sent = comm.exchange(&mut [Outgoing::new(to, 0, &x)], &mut [], &plan).map(drop);
        assert_eq!(sent, Err(Error::Fill(FillError::Suspected { value: 1e20 })));
        // A column, whose values do not lie together.
        let column = Rows { n_rows: 600, n_columns: 1, stride: 8 };
        let column = Outgoing::of_rows(to, 0, &x, column);
        let sent = comm.exchange(&mut [column], &mut [], &plan).map(drop);
        assert_eq!(sent, Err(Error::Fill(FillError::Suspected { value: 1e20 })));
        comm.all_reduce(&mut x, Op::Sum, &Plan::raw()).expect("the communicator is usable");
    });
}

#[test]
fn ranks_that_do_not_all_refuse_fill_values_disagree() {
    let results = World::new(2).run(|mut comm| {
        let plan = Plan::foldwire(Bound::Relative(1e-3));
        let plan = if comm.rank() == Rank::new(0) { plan.refusing_fill() } else { plan };
        let mut x: Vec<f32> = (0..9000).map(|i| (i as f32 * 0.01).sin()).collect();
        comm.all_reduce(&mut x, Op::Sum, &plan).map(drop)
    });
    for result in results {
        assert!(
            matches!(result, Err(Error::Mismatch { .. } | Error::Aborted { .. })),
            "{result:?}"
        );
    }
}
