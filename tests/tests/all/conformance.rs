//! Compares every collective, schedule, pipeline, codec, operation and type with the oracle.

use foldwire::codec::CodecId;
use foldwire::schedule::{self, Schedule, TwoLevels};
use foldwire::{Collective, DType, Report, Sampling, Scope, pipeline};
use foldwire_tests::case::{BOUNDS, CODECS, ROUTES};
use foldwire_tests::{Backend, Case, Operation, Threads, all, pairwise};
use std::collections::BTreeSet;

/// Covers every pair of choices. Small frames give many rounds, so that all lanes work.
#[test]
fn every_pair_of_choices_gives_the_right_result() {
    let cases = pairwise();
    assert!(cases.len() > 80, "{} cases cannot cover the pairs", cases.len());
    for (i, case) in cases.iter().enumerate() {
        let frame_bytes = [None, Some(40_000), Some(5_000)][i % 3];
        case.check(&Threads { frame_bytes });
    }
}

/// A choice that has no effect in a case must not count as covered.
#[test]
fn the_pairs_are_of_choices_that_mean_something() {
    let cases = pairwise();
    let has = |is: &dyn Fn(&Case) -> bool| cases.iter().any(is);
    for (collective, schedule) in ROUTES {
        let of_route =
            |case: &Case| case.collective == collective && case.schedule.name() == schedule.name();
        let context = format!("{} by {}", collective.name(), schedule.name());
        let lossy = |case: &Case| of_route(case) && !case.codec.is_exact();
        assert!(has(&|case| lossy(case) && case.scope == Scope::Result), "{context}");
        assert!(has(&|case| lossy(case) && case.sampling == Sampling::Always), "{context}");
        for bound in BOUNDS {
            assert!(has(&|case| lossy(case) && case.bound == bound), "{context}, {bound:?}");
        }
        // Scans have no average.
        let has_op = |op: &Operation| {
            collective.reduces() && !(collective.is_scan() && *op == Operation::Avg)
        };
        for op in Operation::ALL.into_iter().filter(has_op) {
            assert!(has(&|case| of_route(case) && case.op == op), "{context}, {op:?}");
        }
    }
    for op in Operation::ALL {
        for pipeline in pipeline::ALL {
            let reduces = |case: &Case| {
                case.collective.reduces() && (case.op, case.pipeline) == (op, pipeline)
            };
            assert!(has(&reduces), "{op:?} {}", pipeline.name);
        }
    }
}

#[test]
fn every_route_there_is_is_in_the_list() {
    let name = |(collective, schedule): (Collective, &'static dyn Schedule)| {
        (collective.name(), schedule.name())
    };
    let all = Collective::ALL
        .into_iter()
        .flat_map(|collective| schedule::ALL.iter().map(move |&schedule| (collective, schedule)));
    // Two levels have their own tests, with ranks that know their nodes.
    let all = all.filter(|(collective, schedule)| {
        schedule.supports(*collective) && schedule.name() != TwoLevels.name()
    });
    let (all, listed): (BTreeSet<_>, BTreeSet<_>) =
        (all.map(name).collect(), ROUTES.into_iter().map(name).collect());
    assert_eq!(listed, all);
    assert_eq!(listed.len(), ROUTES.len(), "a route is listed twice");
}

/// The suite checks reports instead of trusting them.
#[test]
fn a_report_that_promises_less_than_was_asked_for_is_refused() {
    for pipeline in [pipeline::COMPRESS_ONCE, pipeline::FUSED] {
        let case = Case { pipeline, ..Case::all_reduce(3, 5000) };
        let outcomes = Threads::default().run(3, |mut comm| case.run_rank::<f32, _>(&mut comm));
        let (inputs, inverse) = (case.inputs(), 1.0 / 1.001);
        for (rank, outcome) in outcomes.into_iter().enumerate() {
            let (result, report) = outcome.expect("a correct call");
            let verdict = |report: &Report| case.verify(rank, &result, report, &inputs);
            let scaled = |bound: f64, worst: f64| {
                let mut scaled = report;
                scaled.bound *= bound;
                scaled.worst_case = report.worst_case.map(|x| x * worst);
                scaled
            };
            assert_eq!(verdict(&report), Ok(()));
            for (bound, worst) in [(1.001, 1.001), (1.0, 1.001), (1.0, inverse), (1.001, 1.0)] {
                assert!(verdict(&scaled(bound, worst)).is_err(), "{bound}, {worst}");
            }
            let mut unbounded = report;
            unbounded.worst_case = None;
            assert!(verdict(&unbounded).is_err());
        }
    }
}

/// The suite tests one codec of each kind. This tests the other codecs, with each schedule.
#[test]
fn every_codec_is_of_a_kind_that_is_tried_and_gives_the_right_result() {
    let kind = |id: CodecId| {
        (id.is_stable(), id.is_free(), id.is_homomorphic(), id.is_in_place(), id.is_exact())
    };
    let others = CodecId::ALL.iter().filter(|id| !CODECS.contains(id));
    for (i, &codec) in others.enumerate() {
        assert!(CODECS.iter().any(|&tried| kind(tried) == kind(codec)), "{}", codec.name());
        for (j, (collective, schedule)) in ROUTES.into_iter().enumerate() {
            let case = Case {
                collective,
                schedule,
                codec,
                pipeline: pipeline::ALL[(i + j) % pipeline::ALL.len()],
                op: Operation::ALL[(i + j) % 4],
                dtype: [DType::F32, DType::F64][(i + j / 5) % 2],
                rough: j % 3 == 0,
                ..Case::all_reduce(5, 5_001)
            };
            let is_average = collective.is_scan() && case.op == Operation::Avg;
            let case = if is_average { Case { op: Operation::Sum, ..case } } else { case };
            case.check(&Threads { frame_bytes: [None, Some(40_000)][j % 2] });
        }
    }
}

/// Slow tests. When one fails, a faster test usually fails too.
mod long {
    use super::*;

    /// Outputs of more than 16 MiB are written past the caches.
    #[test]
    fn arrays_longer_than_caches_give_the_right_result() {
        for (i, (collective, schedule)) in ROUTES.into_iter().enumerate() {
            let codec = CodecId::ALL[i % CodecId::ALL.len()];
            for in_place in [false, true] {
                let case = Case {
                    collective,
                    schedule,
                    codec,
                    in_place,
                    dtype: DType::F64,
                    ..Case::all_reduce(2, (16 << 20) / 8 + 4097)
                };
                case.check(&Threads::default());
            }
        }
    }
}

/// Runs the full product, or a part of it: `FOLDWIRE_STRIDE=1000 cargo test --release -- --ignored
/// product`.
#[test]
#[ignore = "hours; on demand"]
fn the_full_product_gives_the_right_result() {
    let stride = std::env::var("FOLDWIRE_STRIDE").ok().and_then(|s| s.parse().ok()).unwrap_or(1);
    for case in all().step_by(stride) {
        case.check(&Threads { frame_bytes: Some(40_000) });
    }
}
