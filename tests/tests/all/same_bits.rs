//! Every rank has the same bits. Every way to compute the result gives the same bits too, except
//! for sums of values beyond the lattice.
//!
//! With `Homomorphic` and `Fused`, a sum is a sum of integers. So schedule, division, lanes, frame
//! size and instruction set must not change the result. The oracle is the same integer sum, written
//! out.

use foldwire::codec::CodecId;
use foldwire::error::AbortReason;
use foldwire::kernel::Level;
use foldwire::layout::Division;
use foldwire::pipeline::{self, FUSED, HOMOMORPHIC, PER_HOP, Pipeline};
use foldwire::schedule::{Pairwise, RecursiveDoubling, Ring, Schedule};
use foldwire::threads::{self, Scoped};
use foldwire::{Bound, Config, Error, Float, Op, Plan, Quantum, Rank, Report, bf16, f16};
use foldwire_tests::case::CODECS;
use foldwire_tests::data::Random;
use foldwire_tests::{Backend, Operation, Threads, data};

pub(crate) const BOUND: f64 = 1e-3;
pub(crate) const SCHEDULES: [&dyn Schedule; 3] = [&Ring, &RecursiveDoubling, &Pairwise];
const ON_LATTICE: [Operation; 4] = [Operation::Sum, Operation::Avg, Operation::Min, Operation::Max];

pub(crate) fn plan(
    pipeline: Pipeline,
    schedule: &'static dyn Schedule,
    division: Division,
) -> Plan {
    let mut plan = Plan::raw().compressed(pipeline, Bound::Absolute(BOUND)).with_schedule(schedule);
    plan.division = division;
    plan
}

/// Returns the bytes of every rank's result, and the number of blocks with exceptions on the way.
fn all_reduce<T: Float>(
    threads: Threads,
    inputs: &[Vec<T>],
    op: Operation,
    plan: &Plan,
    configure: impl Fn(usize, &mut Config) + Sync,
) -> (Vec<Vec<u8>>, u64) {
    let outcomes: Vec<(Vec<u8>, Report)> = threads.run(inputs.len(), |mut comm| {
        let rank = comm.rank().index();
        configure(rank, comm.config_mut());
        let mut values = inputs[rank].clone();
        let report = comm.all_reduce(&mut values, op.op(), plan);
        let report = report.unwrap_or_else(|error| panic!("{plan:?}, rank {rank}: {error}"));
        (data::bytes(&values), report)
    });
    let verbatim = outcomes.iter().map(|(_, report)| report.blocks.verbatim).sum();
    (outcomes.into_iter().map(|(bytes, _)| bytes).collect(), verbatim)
}

pub(crate) fn inputs<T: Float>(size: usize, count: usize) -> Vec<Vec<T>> {
    (0..size).map(|rank| data::smooth(rank, count)).collect()
}

/// Computes the result in integers on the lattice: Σq·Δ, Σq·(Δ/n), min q·Δ, max q·Δ.
fn on_the_lattice<T: Float>(inputs: &[Vec<T>], op: Operation) -> Vec<u8> {
    let quantum = Quantum::new::<T>(BOUND).expect("a bound");
    let step = quantum.step();
    // Types of 16 bits are computed in `f32`.
    let compute = |x: f64| if T::BYTES == 8 { x } else { f64::from(x as f32) };
    let inverse = compute(1.0 / step);
    let code = |x: &T| compute(x.to_f64() * inverse).round_ties_even() as i64;
    let codes: Vec<Vec<i64>> = inputs.iter().map(|x| x.iter().map(code).collect()).collect();
    let scale = match op {
        Operation::Avg => compute(step / inputs.len() as f64),
        _ => step,
    };
    let result: Vec<T> = (0..inputs[0].len())
        .map(|i| {
            let operands = codes.iter().map(|codes| codes[i]);
            let code = match op {
                Operation::Min => operands.min().unwrap_or(0),
                Operation::Max => operands.max().unwrap_or(0),
                _ => operands.sum(),
            };
            T::from_f64(compute(compute(code as f64) * scale))
        })
        .collect();
    data::bytes(&result)
}

fn every_way_gives_the_same_bits<T: Float>(sizes: &[usize], counts: &[usize]) {
    for &size in sizes {
        for &count in counts {
            let inputs = inputs::<T>(size, count);
            for (i, op) in ON_LATTICE.into_iter().enumerate() {
                let expected = on_the_lattice(&inputs, op);
                for schedule in SCHEDULES {
                    for pipeline in [HOMOMORPHIC, FUSED] {
                        for division in [Division::Blocks, Division::Interleaved] {
                            let plan = plan(pipeline, schedule, division);
                            // Long arrays take one round or several.
                            let threads = Threads { frame_bytes: Some([100_000, 50_000][i % 2]) };
                            let (results, verbatim) =
                                all_reduce(threads, &inputs, op, &plan, |_, _| ());
                            assert_eq!(verbatim, 0, "the data must be on the lattice");
                            for (rank, result) in results.iter().enumerate() {
                                assert!(
                                    *result == expected,
                                    "{op:?} of {count} on {size} ranks, {plan:?}: rank {rank}"
                                );
                            }
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn schedules_pipelines_and_divisions_give_the_same_bits_in_f32() {
    every_way_gives_the_same_bits::<f32>(&[2, 3, 5, 8, 9, 16], &[1, 4097, 100_003]);
}

/// Slow tests. When one fails, a faster test usually fails too.
mod long {
    use super::*;

    const SIZES: [usize; 10] = [2, 3, 4, 5, 6, 7, 8, 9, 13, 16];

    #[test]
    fn schedules_pipelines_and_divisions_give_the_same_bits_among_other_numbers_of_ranks() {
        every_way_gives_the_same_bits::<f32>(&[4, 6, 7, 13], &[1, 4097, 100_003]);
    }

    #[test]
    fn schedules_pipelines_and_divisions_give_the_same_bits_in_f64() {
        every_way_gives_the_same_bits::<f64>(&SIZES, &[1, 4097, 100_003]);
    }

    #[test]
    fn four_ranks_with_different_instruction_sets_get_the_bits_of_the_scalar_one() {
        mixed_levels_do_not_show_in_any_type(4);
    }

    #[test]
    fn lanes_and_frame_sizes_do_not_show_in_the_bits_of_other_groups() {
        lanes_and_frames_do_not_show::<f32>(4);
        lanes_and_frames_do_not_show::<f64>(3);
        lanes_and_frames_do_not_show::<f16>(4);
        lanes_and_frames_do_not_show::<bf16>(3);
    }

    #[test]
    fn schedules_pipelines_and_divisions_give_the_same_bits_in_sixteen_bits() {
        every_way_gives_the_same_bits::<f16>(&SIZES, &[4097, 50_003]);
        every_way_gives_the_same_bits::<bf16>(&SIZES, &[4097, 50_003]);
    }

    #[test]
    fn values_beside_exceptions_are_the_same_bits_by_every_way_in_other_types() {
        exceptions_leave_the_values_beside_them_the_same_bits::<f64>();
        exceptions_leave_the_values_beside_them_the_same_bits::<f16>();
        exceptions_leave_the_values_beside_them_the_same_bits::<bf16>();
    }
}

/// Codecs that predict along several dimensions encode the same codes. A rank's shape changes only
/// the form of its payloads.
fn predicted_are_sums_of_integers_too<T: Float>(codec: CodecId) {
    const SHAPES: [&[usize]; 4] = [&[7, 80, 90], &[], &[100, 500], &[3, 2, 5]];
    let inputs = inputs::<T>(SHAPES.len(), 50_003);
    for op in ON_LATTICE {
        let expected = on_the_lattice(&inputs, op);
        for (schedule, pipeline) in
            SCHEDULES.into_iter().flat_map(|schedule| [(schedule, HOMOMORPHIC), (schedule, FUSED)])
        {
            let plan = plan(pipeline, schedule, Division::Blocks).with_codec(codec);
            let threads = Threads { frame_bytes: Some(100_000) };
            let results = threads.run(SHAPES.len(), |mut comm| {
                let rank = comm.rank().index();
                let mut values = inputs[rank].clone();
                let report = comm.all_reduce(&mut values, op.op(), &plan.with_shape(SHAPES[rank]));
                let report = report.unwrap_or_else(|error| panic!("{plan:?}: {error}"));
                assert_eq!(report.blocks.verbatim, 0, "the data must be on the lattice");
                data::bytes(&values)
            });
            for (rank, result) in results.iter().enumerate() {
                assert!(*result == expected, "{op:?}, {plan:?}: rank {rank}");
            }
        }
    }
}

#[test]
fn dense_gives_the_same_bits_whatever_each_rank_says_of_shapes() {
    for codec in [CodecId::Dense, CodecId::FzNd] {
        predicted_are_sums_of_integers_too::<f32>(codec);
        predicted_are_sums_of_integers_too::<f64>(codec);
    }
}

fn assert_all_equal(results: &[Vec<u8>], context: &str) {
    for (rank, result) in results.iter().enumerate() {
        assert!(*result == results[0], "{context}: rank {rank} differs from rank 0");
    }
}

fn rough<T: Float>(size: usize, count: usize) -> Vec<Vec<T>> {
    let mut inputs: Vec<Vec<T>> = (0..size).map(|rank| data::rough(rank, count)).collect();
    for (rank, input) in inputs.iter_mut().enumerate() {
        // Each rank has its own place for fill values, negative zeros and subnormals.
        let place = 300 * rank;
        input[place..place + 200].fill(T::from_f64(9.96921e36));
        input[place + 200..place + 240].fill(T::from_f64(-0.0));
        input[place + 240..place + 250].fill(data::from_bits(5));
    }
    inputs
}

fn rough_data_give_every_rank_the_same_bits<T: Float>() {
    for size in [2, 3, 5, 6, 8] {
        let inputs = rough::<T>(size, 12_345);
        for pipeline in pipeline::ALL {
            for schedule in SCHEDULES {
                for (i, op) in Operation::ALL.into_iter().enumerate() {
                    let division = [Division::Blocks, Division::Interleaved][i % 2];
                    let threads = Threads { frame_bytes: Some([60_000, 20_000][i / 2 % 2]) };
                    let mut plan = plan(pipeline, schedule, division);
                    for codec in [CodecId::FzLight, CodecId::Raw] {
                        plan.codec = codec;
                        let (results, _) = all_reduce(threads, &inputs, op, &plan, |_, _| ());
                        assert_all_equal(&results, &format!("{op:?} on {size} ranks, {plan:?}"));
                    }
                }
            }
        }
    }
}

#[test]
fn rough_data_give_every_rank_the_same_bits_in_f32() {
    rough_data_give_every_rank_the_same_bits::<f32>();
}

#[test]
fn rough_data_give_every_rank_the_same_bits_in_f64() {
    rough_data_give_every_rank_the_same_bits::<f64>();
}

#[test]
fn rough_data_give_every_rank_the_same_bits_in_sixteen_bits() {
    rough_data_give_every_rank_the_same_bits::<f16>();
    rough_data_give_every_rank_the_same_bits::<bf16>();
}

/// Values that are on the lattice on all ranks get the bits of the integer result. Schedule and
/// pipeline do not change which results are NaN, nor any minimum or maximum.
fn exceptions_leave_the_values_beside_them_the_same_bits<T: Float>() {
    const COUNT: usize = 9_001;
    for size in [2, 3, 5, 8] {
        let plain = inputs::<T>(size, COUNT);
        let mut inputs = plain.clone();
        let (mut is_exception, mut is_nan) = (vec![false; COUNT], vec![false; COUNT]);
        let mut random = Random(size as u64);
        for input in &mut inputs {
            for i in 0..COUNT {
                let exception = match random.bits() % 200 {
                    0..8 => f64::NAN,
                    8 => f64::INFINITY,
                    9 => 1e30,
                    10 => -9.96921e36,
                    _ => continue,
                };
                input[i] = T::from_f64(exception);
                is_exception[i] = true;
                is_nan[i] |= exception.is_nan();
            }
        }
        for op in ON_LATTICE {
            let expected: Vec<T> = data::from_bytes(&on_the_lattice(&plain, op));
            let mut extremes = None;
            for schedule in SCHEDULES {
                for pipeline in [HOMOMORPHIC, FUSED] {
                    for (division, frame_bytes) in [
                        (Division::Blocks, 100_000),
                        (Division::Interleaved, 20_000),
                        (Division::Interleaved, 5_111),
                    ] {
                        let plan = plan(pipeline, schedule, division);
                        let threads = Threads { frame_bytes: Some(frame_bytes) };
                        let (results, _) = all_reduce(threads, &inputs, op, &plan, |_, _| ());
                        let context = format!("{op:?} on {size} ranks, {plan:?}");
                        assert_all_equal(&results, &context);
                        let result: Vec<T> = data::from_bytes(&results[0]);
                        for i in 0..COUNT {
                            let wanted =
                                if is_nan[i] { T::from_f64(f64::NAN) } else { expected[i] };
                            let same = data::bytes(&[result[i]]) == data::bytes(&[wanted]);
                            assert!(
                                same || is_exception[i] && !is_nan[i],
                                "{context}: value {i} is {:?}, not {wanted:?}",
                                result[i]
                            );
                        }
                        if matches!(op, Operation::Min | Operation::Max) {
                            let first = extremes.get_or_insert_with(|| results[0].clone());
                            assert!(*first == results[0], "{context}");
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn values_beside_exceptions_are_the_same_bits_by_every_way_in_f32() {
    exceptions_leave_the_values_beside_them_the_same_bits::<f32>();
}

/// Returns all combinations of a pipeline's three choices, including those without a name.
fn every_combination() -> impl Iterator<Item = Pipeline> {
    let choices = |of: [Pipeline; 2]| of.into_iter();
    choices([PER_HOP, FUSED]).flat_map(move |Pipeline { passing, .. }| {
        choices([PER_HOP, FUSED]).flat_map(move |Pipeline { partial, .. }| {
            choices([FUSED, HOMOMORPHIC]).map(move |Pipeline { own, .. }| Pipeline {
                name: "a combination",
                passing,
                partial,
                own,
            })
        })
    })
}

/// Each operand is on the lattice, and so is the sum of codes, but the result could not be encoded
/// as one operand.
#[test]
fn sums_that_leave_the_lattice_are_the_same_bits_with_every_combination() {
    assert_eq!(every_combination().count(), 8);
    for pipeline in every_combination() {
        for schedule in SCHEDULES {
            for op in ON_LATTICE {
                let plan = plan(pipeline, schedule, Division::Blocks);
                let inputs = vec![vec![1502.5_f32; 100]; 3];
                let (results, _) = all_reduce(Threads::default(), &inputs, op, &plan, |_, _| ());
                assert_all_equal(&results, &format!("{op:?}, {plan:?}"));
            }
        }
    }
}

#[test]
fn moved_rough_data_are_the_same_bits_on_every_rank() {
    for size in [2, 3, 5, 8, 13] {
        let inputs = rough::<f32>(size, 12_345);
        for pipeline in pipeline::ALL {
            let mut plan = Plan::raw().compressed(pipeline, Bound::Absolute(BOUND));
            for codec in [CodecId::FzLight, CodecId::Raw] {
                plan.codec = codec;
                for root in [0, size - 1] {
                    let results = Threads::default().run(size, |mut comm| {
                        let mut x = inputs[comm.rank().index()].clone();
                        comm.broadcast(&mut x, Rank::new(root), &plan).expect("broadcast");
                        data::bytes(&x)
                    });
                    assert_all_equal(&results, &format!("broadcast from {root}, {plan:?}"));
                }
                for schedule in [&Ring as &'static dyn Schedule, &Pairwise] {
                    let plan = plan.with_schedule(schedule);
                    let results = Threads::default().run(size, |mut comm| {
                        let mut x = inputs[comm.rank().index()].clone();
                        comm.all_gather_in_place(&mut x, &plan).expect("all-gather");
                        data::bytes(&x)
                    });
                    assert_all_equal(&results, &format!("all-gather, {plan:?}"));
                }
            }
        }
    }
}

fn mixed_levels_do_not_show<T: Float>(inputs: &[Vec<T>]) {
    let levels: Vec<Level> = Level::available().collect();
    for pipeline in pipeline::ALL {
        for schedule in SCHEDULES {
            for op in ON_LATTICE {
                let plan = plan(pipeline, schedule, Division::Interleaved);
                let run = |level: &(dyn Fn(usize) -> Level + Sync)| {
                    let configure = |rank, config: &mut Config| config.level = level(rank);
                    all_reduce(Threads::default(), inputs, op, &plan, configure).0
                };
                let scalar = run(&|_| Level::Scalar);
                for shift in 0..levels.len() {
                    let mixed = run(&|rank| levels[(rank + shift) % levels.len()]);
                    assert!(mixed == scalar, "{op:?}, {plan:?}, mixed from {}", levels[shift]);
                }
            }
        }
    }
}

fn mixed_levels_do_not_show_in_any_type(size: usize) {
    mixed_levels_do_not_show(&inputs::<f32>(size, 10_001));
    mixed_levels_do_not_show(&inputs::<f64>(size, 10_001));
    mixed_levels_do_not_show(&rough::<f32>(size, 10_001));
    mixed_levels_do_not_show(&rough::<f64>(size, 10_001));
    mixed_levels_do_not_show(&rough::<f16>(size, 10_001));
    mixed_levels_do_not_show(&rough::<bf16>(size, 10_001));
}

#[test]
fn ranks_with_different_instruction_sets_get_the_bits_of_the_scalar_one() {
    mixed_levels_do_not_show_in_any_type(3);
}

fn lanes_and_frames_do_not_show<T: Float>(size: usize) {
    let inputs = inputs::<T>(size, 30_011);
    for op in ON_LATTICE {
        let expected = on_the_lattice(&inputs, op);
        for pipeline in [HOMOMORPHIC, FUSED] {
            for schedule in SCHEDULES {
                for (lanes, frame_bytes) in
                    [(1, 1024), (2, 5_000), (3, 40_000), (8, 3_333), (1, 300_000), (8, 20_000)]
                {
                    let plan = plan(pipeline, schedule, Division::Interleaved);
                    let threads = Threads { frame_bytes: Some(frame_bytes) };
                    let configure = |_, config: &mut Config| config.lanes = lanes;
                    let (results, verbatim) = all_reduce(threads, &inputs, op, &plan, configure);
                    assert_eq!(verbatim, 0);
                    assert!(
                        results.iter().all(|result| *result == expected),
                        "{op:?}, {plan:?}, {lanes} lanes, frames of {frame_bytes}"
                    );
                }
            }
        }
    }
}

#[test]
fn lanes_and_frame_sizes_do_not_show_in_the_bits() {
    lanes_and_frames_do_not_show::<f32>(3);
    lanes_and_frames_do_not_show::<f64>(4);
    lanes_and_frames_do_not_show::<f16>(3);
    lanes_and_frames_do_not_show::<bf16>(4);
}

/// All ranks combine the operands in the same order, except that the two operands of an operation
/// may be swapped. So a commutative operation suffices.
#[test]
fn a_commutative_user_operation_gives_every_rank_the_same_bits() {
    let larger_magnitude = |a: f32, b: f32| if (a.abs(), a) > (b.abs(), b) { a } else { b };
    for size in [2, 3, 5, 8] {
        for pipeline in pipeline::ALL {
            for schedule in SCHEDULES {
                let plan = plan(pipeline, schedule, Division::Blocks);
                let results = Threads::default().run(size, |mut comm| {
                    let mut x: Vec<f32> = data::smooth(comm.rank().index(), 5000);
                    x.iter_mut().for_each(|x| *x -= 1.0);
                    comm.all_reduce(&mut x, Op::User(&larger_magnitude), &plan)
                        .expect("all-reduce");
                    data::bytes(&x)
                });
                assert_all_equal(&results, &format!("{size} ranks, {plan:?}"));
            }
        }
    }
}

/// Some ranks compute on several threads, others on one.
#[test]
fn threads_of_a_rank_do_not_show() {
    let inputs = inputs::<f32>(3, 400_000);
    let long_frames = Threads { frame_bytes: Some(1 << 20) };
    for pipeline in pipeline::ALL {
        for codec in CODECS {
            let plan = plan(pipeline, &Ring, Division::Interleaved).with_codec(codec);
            for op in [Operation::Sum, Operation::Max, Operation::Prod] {
                let run = |configure: &(dyn Fn(usize, &mut Config) + Sync)| {
                    all_reduce(long_frames, &inputs, op, &plan, configure)
                };
                let alone = run(&|_, config| config.threads = threads::Threads::ONE);
                let together = run(&|rank, config| {
                    config.threads = [
                        threads::Threads::ONE,
                        threads::Threads::of(&Scoped(2)),
                        threads::Threads::of(&Scoped(3)),
                    ][rank];
                });
                assert!(together == alone, "{plan:?}, {op:?}");
            }
        }
    }
}

/// Passes of their own, one lane and longer messages change no bit.
#[test]
fn work_without_overlap_gives_the_same_bits() {
    let (size, count) = (5, 40_011);
    let inputs = inputs::<f64>(size, count);
    for pipeline in [PER_HOP, pipeline::COMPRESS_ONCE, HOMOMORPHIC, FUSED] {
        for codec in CODECS {
            for (schedule, op) in SCHEDULES.into_iter().flat_map(|s| ON_LATTICE.map(|op| (s, op))) {
                let plan = plan(pipeline, schedule, Division::Blocks).with_codec(codec);
                let run =
                    |plan: &Plan| all_reduce(Threads::default(), &inputs, op, plan, |_, _| {});
                let (overlapping, _) = run(&plan);
                let (alone, _) = run(&plan.without_overlap());
                assert!(alone == overlapping, "{plan:?}, {op:?}");
            }
        }
    }
}

/// A call without overlap has one lane, and messages as long as frames allow.
#[test]
fn calls_without_overlap_have_one_lane_and_long_messages() {
    let plan = plan(PER_HOP, &Ring, Division::Blocks);
    let report = |plan: Plan| {
        let reports = Threads::default().run(3, |mut comm| {
            let mut values: Vec<f64> = data::smooth(comm.rank().index(), 60_000);
            comm.all_reduce(&mut values, Op::Sum, &plan).expect("the call")
        });
        (reports[0].lanes, reports[0].segment)
    };
    assert_eq!(report(plan.without_overlap()), (1, 20_000));
    let (lanes, segment) = report(plan);
    assert!(lanes > 1 && segment < 20_000, "{lanes} lanes, segments of {segment}");
}

/// All ranks must choose the same.
#[test]
fn ranks_that_overlap_differently_get_an_error() {
    let errors = Threads::default().run(2, |mut comm| {
        let plan = plan(PER_HOP, &Ring, Division::Blocks);
        let plan = if comm.rank() == Rank(0) { plan.without_overlap() } else { plan };
        let mut values: Vec<f64> = data::smooth(comm.rank().index(), 60_000);
        comm.all_reduce(&mut values, Op::Sum, &plan).expect_err("they differ")
    });
    for error in errors {
        let is_named = match error {
            Error::Mismatch { .. } => true,
            Error::Aborted { reason, .. } => matches!(reason, AbortReason::Mismatch(_)),
            _ => false,
        };
        assert!(is_named, "{error}");
    }
}
