//! The figures of a report equal hand-made counts.

use foldwire::codec::{BlockStats, CodecId};
use foldwire::frame::HEADER_BYTES;
use foldwire::pipeline::{FUSED, HOMOMORPHIC, PER_HOP};
use foldwire::schedule::{Binomial, Pairwise, RecursiveDoubling, Ring, Schedule};
use foldwire::{Bound, Op, Outgoing, Plan, Rank, Report, Rows, SharedCommunicator};
use foldwire_tests::{Backend, Threads, data};
use std::time::Duration;

const COUNT: usize = 24_000;
/// A frame holds a whole part, so there is one round.
const THREADS: Threads = Threads { frame_bytes: None };

fn all_reduce(size: usize, plan: &Plan) -> Vec<Report> {
    THREADS.run(size, |mut comm| {
        let mut x: Vec<f32> = data::smooth(comm.rank().index(), COUNT);
        comm.all_reduce(&mut x, Op::Sum, plan).expect("all-reduce")
    })
}

#[test]
fn a_raw_ring_sends_two_shares_to_each_other_rank() {
    for size in [2, 3, 4, 5, 8] {
        for schedule in [&Ring as &'static dyn Schedule, &Pairwise] {
            for report in all_reduce(size, &Plan::raw().with_schedule(schedule)) {
                let n = size as u64;
                assert_eq!(report.raw_bytes, 2 * (n - 1) * 4 * COUNT as u64 / n);
                assert_eq!(report.n_messages, 2 * (n - 1));
                let headers = report.n_messages * HEADER_BYTES as u64;
                assert_eq!(report.wire_bytes, report.raw_bytes + headers);
                assert!(report.ratio() < 1.0 && report.ratio() > 0.9);
                assert_eq!((report.bound, report.worst_case), (0.0, Some(0.0)));
                assert_eq!(report.blocks, BlockStats::default());
            }
        }
    }
}

#[test]
fn raw_recursive_doubling_sends_the_array_once_a_round() {
    for (size, rounds) in [(2, 1), (4, 2), (8, 3)] {
        for report in all_reduce(size, &Plan::raw().with_schedule(&RecursiveDoubling)) {
            assert_eq!(report.raw_bytes, rounds * 4 * COUNT as u64);
            assert_eq!(report.n_messages, rounds);
        }
    }
}

/// Pieces hold whole chunks of 4096 values, or less than one chunk; at least one value.
#[test]
fn pieces_cut_the_parts_of_a_call_but_not_the_arrays_of_a_group() {
    const SHARE: usize = 8192;
    let plan = Plan::raw().with_schedule(&Ring).without_overlap();
    let gather = |n_bytes| {
        THREADS.run(4, |mut comm| {
            let mut x = vec![0.0; 4 * SHARE];
            let own: Vec<f32> = data::smooth(comm.rank().index(), SHARE);
            x[comm.rank().index() * SHARE..][..SHARE].copy_from_slice(&own);
            let report = comm.all_gather_in_place(&mut x, &plan.with_pieces(n_bytes));
            (x, report.expect("all-gather").n_messages)
        })
    };
    let whole = gather(0);
    for (n_bytes, n_pieces) in [(0, 1), (32_768, 1), (20_000, 2), (4096, 8), (3, SHARE as u64)] {
        for ((x, n_messages), (expected, _)) in gather(n_bytes).iter().zip(&whole) {
            assert_eq!((x == expected, *n_messages), (true, 3 * n_pieces), "{n_bytes}");
        }
    }
    let group = |n_bytes| {
        THREADS.run_transports(3, |transport| {
            let comm = SharedCommunicator::new(transport, 2).expect("two channels");
            let mut data = [1.0, 2.0].map(|x: f32| vec![x; 100]);
            let mut arrays: Vec<_> =
                data.iter_mut().map(|x| (&mut x[..], Bound::Absolute(1.0))).collect();
            // It moves arrays whole, so that they share frames.
            let plan = plan.with_schedule(&RecursiveDoubling).with_pieces(n_bytes);
            let reports = comm.all_reduce_group(&mut arrays, Op::Sum, &plan).expect("a group");
            (data, reports[0].n_messages)
        })
    };
    assert_eq!(group(40), group(0));
}

#[test]
fn a_rank_alone_sends_nothing() {
    for plan in [Plan::raw(), Plan::foldwire(Bound::Absolute(1e-3))] {
        let report = all_reduce(1, &plan)[0];
        assert_eq!((report.raw_bytes, report.wire_bytes, report.n_messages), (0, 0, 0));
        assert_eq!((report.ratio(), report.worst_case), (1.0, Some(0.0)));
    }
}

/// A fill value of one rank sets the range for all. The rank that has it says so.
#[test]
fn a_fill_value_that_sets_the_range_is_reported() {
    for (bound, suspected) in [
        (Bound::Relative(1e-3), Some(-9999.0)),
        (Bound::Psnr(50.0), Some(-9999.0)),
        (Bound::Absolute(1e-3), None),
    ] {
        for plan in [Plan::foldwire(bound), Plan::auto(bound).with_codec(CodecId::Dense)] {
            let reports = THREADS.run(3, |mut comm| {
                let mut x: Vec<f32> = data::smooth(comm.rank().index(), COUNT);
                if comm.rank() == Rank(1) {
                    x[700..800].fill(-9999.0);
                }
                let mut all = vec![0.0; 3 * COUNT];
                let gathered = comm.all_gather(&x, &mut all, &plan).expect("all-gather");
                let reduced = comm.all_reduce(&mut x, Op::Sum, &plan).expect("all-reduce");
                [gathered, reduced]
            });
            for (rank, reports) in reports.into_iter().enumerate() {
                let expected = suspected.filter(|_| rank == 1);
                for report in reports {
                    assert_eq!(report.suspected_fill, expected, "{plan:?}, rank {rank}");
                    assert_eq!(report.to_string().contains("-9999.0"), expected.is_some());
                }
            }
        }
    }
}

#[test]
fn a_fill_value_in_a_message_is_reported() {
    let plan = Plan::foldwire(Bound::Relative(1e-3));
    let rows = |n_rows, n_columns, stride| Rows { n_rows, n_columns, stride };
    for rows in [rows(1, COUNT, COUNT), rows(10, 1000, 2000)] {
        let reports = THREADS.run(2, |mut comm| {
            let mut x: Vec<f64> = data::smooth(0, COUNT);
            x[4100..4200].fill(1e20);
            let mut received = vec![0.0; rows.n_values()];
            match comm.rank() {
                Rank(0) => {
                    let message = Outgoing::of_rows(Rank(1), 7, &x, rows);
                    comm.exchange(&mut [message], &mut [], &plan)
                }
                _ => comm.recv(&mut received, Rank(0), 7),
            }
            .expect("a message")
        });
        let suspected: Vec<_> = reports.iter().map(|report| report.suspected_fill).collect();
        assert_eq!(suspected, [Some(1e20), None]);
    }
}

/// Both reports of a message say what its codec keeps.
#[test]
fn a_message_has_the_bound_of_its_codec_on_both_ends() {
    let lossy = Plan::foldwire(Bound::Absolute(1e-3));
    let by_setting = Plan::raw().with_pipeline(PER_HOP).with_codec(CodecId::ZfpRate);
    let mpc = by_setting.with_codec(CodecId::Mpc);
    for (plan, expected) in [
        (Plan::raw(), (0.0, Some(0.0))),
        (mpc, (0.0, Some(0.0))),
        (by_setting.with_setting(8), (f64::INFINITY, None)),
        (by_setting.with_codec(CodecId::Truncate), (f64::INFINITY, None)),
        (lossy, (1e-3, Some(1e-3))),
    ] {
        let reports = THREADS.run(2, |mut comm| {
            let mut x: Vec<f32> = data::smooth(0, COUNT);
            match comm.rank() {
                Rank(0) => comm.send(&x, Rank(1), 7, &plan),
                _ => comm.recv(&mut x, Rank(0), 7),
            }
            .expect("a message")
        });
        for report in reports {
            let (bound, worst_case) = expected;
            let is_near = |x: f64| x == bound || (x / bound - 1.0).abs() < 1e-6;
            assert!(is_near(report.bound), "{plan:?}: {report:?}");
            assert!(report.worst_case.is_some() == worst_case.is_some(), "{plan:?}: {report:?}");
        }
    }
}

#[test]
fn a_binomial_broadcast_sends_the_array_to_each_other_rank_once() {
    for size in [2, 5, 8] {
        let reports = THREADS.run(size, |mut comm| {
            let mut x: Vec<f64> = data::smooth(0, COUNT);
            let plan = Plan::foldwire(Bound::Absolute(1e-3)).with_schedule(&Binomial);
            comm.broadcast(&mut x, Rank(1), &plan).expect("ok")
        });
        let sent: u64 = reports.iter().map(|report| report.raw_bytes).sum();
        assert_eq!(sent, 8 * (COUNT * (size - 1)) as u64);
    }
}

#[test]
fn smooth_data_are_sent_in_fewer_bytes() {
    for schedule in [&Ring as &'static dyn Schedule, &RecursiveDoubling, &Pairwise] {
        for pipeline in [HOMOMORPHIC, FUSED] {
            let plan = Plan::raw().compressed(pipeline, Bound::Absolute(1e-3));
            for report in all_reduce(4, &plan.with_schedule(schedule)) {
                assert!(report.ratio() > 3.0, "{report}");
                assert_eq!((report.bound, report.worst_case), (1e-3, Some(4e-3)));
                assert_eq!(report.blocks.verbatim, 0);
            }
        }
    }
}

/// The exchange of value ranges is an all-reduce of its own before the call, and counts.
#[test]
fn a_relative_bound_costs_two_more_messages_on_four_ranks() {
    let reports = |bound| all_reduce(4, &Plan::foldwire(bound).with_schedule(&Ring));
    for (absolute, relative) in
        reports(Bound::Absolute(1e-3)).iter().zip(reports(Bound::Relative(1e-3)))
    {
        assert_eq!(relative.n_messages, absolute.n_messages + 2);
        assert_eq!(relative.raw_bytes, absolute.raw_bytes + 2 * 48);
    }
}

#[test]
fn parts_of_the_time_add_up_to_no_more_than_the_whole() {
    let plans = [
        Plan::raw(),
        Plan::foldwire(Bound::Absolute(1e-3)),
        Plan::foldwire(Bound::Relative(1e-3)),
        Plan::raw().compressed(HOMOMORPHIC, Bound::Psnr(60.0)),
    ];
    for plan in plans {
        for report in all_reduce(5, &plan) {
            let parts = report.encode + report.fold + report.decode;
            assert!(parts <= report.total, "{report}");
            assert_eq!(parts + report.waiting(), report.total);
            assert!(report.total > Duration::ZERO);
        }
    }
}

#[test]
fn blocks_with_exceptions_are_counted_and_exceptions_too() {
    let reports = THREADS.run(2, |mut comm| {
        let mut x = vec![1.0f32; COUNT];
        if comm.rank() == Rank(0) {
            // Two blocks of part 1, which rank 0 encodes first.
            x[COUNT / 2 + 5..COUNT / 2 + 9].fill(f32::NAN);
            x[COUNT / 2 + 70] = f32::INFINITY;
        } else {
            // One block of part 0, which rank 1 encodes first.
            x[100] = f32::NAN;
        }
        let plan = Plan::raw().compressed(FUSED, Bound::Absolute(1e-3)).with_schedule(&Ring);
        comm.all_reduce(&mut x, Op::Sum, &plan).expect("all-reduce")
    });
    // Each block counts twice: when it is encoded, and when its frame is folded.
    assert_eq!(reports[0].blocks.verbatim, 2 + 1);
    assert_eq!(reports[1].blocks.verbatim, 1 + 2);
    assert_eq!(reports[0].blocks.exceptions, 5 + 1);
    assert_eq!(reports[1].blocks.exceptions, 1 + 5);
}

#[test]
fn the_four_paths_of_combine_add_up_to_all_blocks() {
    let reports = THREADS.run(2, |mut comm| {
        // A quarter of each kind: both noisy, only the left, only the right, neither.
        let rank = comm.rank().index();
        let noisy = |i: usize| [i < COUNT / 2, i % (COUNT / 2) < COUNT / 4][rank];
        let value = |i: usize| if noisy(i) { 0.1 * (i % 7) as f32 } else { 0.0 };
        let mut x: Vec<f32> = (0..COUNT).map(value).collect();
        let plan = Plan::raw().compressed(HOMOMORPHIC, Bound::Absolute(1e-3)).with_schedule(&Ring);
        comm.all_reduce(&mut x, Op::Sum, &plan).expect("all-reduce")
    });
    let blocks = reports.iter().map(|report| report.blocks).reduce(|mut a, b| {
        a += b;
        a
    });
    let blocks = blocks.expect("two ranks");
    let sum = blocks.both_constant + blocks.left + blocks.right + blocks.neither_constant;
    assert_eq!(sum, COUNT.div_ceil(32) as u64, "{blocks:?}");
    let quarter = COUNT as u64 / 32 / 4;
    for (path, expected) in [
        (blocks.both_constant, quarter),
        (blocks.neither_constant, quarter),
        (blocks.left + blocks.right, 2 * quarter),
    ] {
        assert!(path.abs_diff(expected) <= 3, "{blocks:?}");
    }
}
