//! Collectives as their authors published them: ranks may have different bits, and every result is
//! within the worst case that the report names.

use crate::same_bits::{BOUND, SCHEDULES, inputs, plan};
use foldwire::codec::CodecId;
use foldwire::error::Field;
use foldwire::layout::Division;
use foldwire::pipeline::{self, FUSED, HOMOMORPHIC, PER_HOP};
use foldwire::schedule::{Chain, Ring};
use foldwire::{Error, Op, Rank, Report};
use foldwire_tests::case::CODECS;
use foldwire_tests::{Backend, Threads, data};

/// Without the guarantee of the same bits, results are within the worst case, and reports say so.
#[test]
fn results_are_within_the_worst_case_on_every_rank() {
    let (size, count) = (5, 20_011);
    let inputs = inputs::<f64>(size, count);
    let operands = |i: usize| inputs.iter().map(move |x| x[i]);
    let mut n_other = 0;
    for pipeline in [PER_HOP, pipeline::COMPRESS_ONCE, HOMOMORPHIC, FUSED] {
        for codec in CODECS {
            for (schedule, op) in SCHEDULES.into_iter().flat_map(|s| [(s, Op::Sum), (s, Op::Max)]) {
                let plan = plan(pipeline, schedule, Division::Blocks).with_codec(codec);
                let results: Vec<(Vec<f64>, Report)> = Threads::default().run(size, |mut comm| {
                    let mut values = inputs[comm.rank().index()].clone();
                    let report = comm.all_reduce(&mut values, op, &plan.as_published());
                    (values, report.expect("the call"))
                });
                for (values, report) in &results {
                    assert!(report.as_published, "{plan:?}");
                    // The conformance suite checks codecs without a bound.
                    let Some(worst_case) = report.worst_case else { continue };
                    for (i, y) in values.iter().enumerate() {
                        let exact = match op {
                            Op::Sum => operands(i).sum::<f64>(),
                            _ => operands(i).fold(f64::MIN, f64::max),
                        };
                        let off = (y - exact).abs();
                        assert!(off <= worst_case + 1e-12, "{plan:?}, {op:?}, {i}: off by {off:e}");
                    }
                }
                let first = data::bytes(&results[0].0);
                n_other += results.iter().filter(|(y, _)| data::bytes(y) != first).count();
            }
        }
    }
    assert!(n_other > 0, "results must differ somewhere without the guarantee");
}

/// One rank's report would be too small if another rank encoded again what it passes on.
#[test]
fn ranks_must_agree_where_encoding_again_changes_values() {
    for (codec, must_agree) in [(CodecId::Szx, true), (CodecId::FzLight, false)] {
        let plan = plan(PER_HOP, &Ring, Division::Blocks).with_codec(codec);
        let outcomes = Threads::default().run(3, |mut comm| {
            let is_published = comm.rank().index() == 1;
            let plan = if is_published { plan.as_published() } else { plan };
            comm.all_gather(&[1.0f32; 50], &mut [0.0; 150], &plan).map(drop)
        });
        let is_told =
            |outcome| matches!(outcome, Err(Error::Mismatch { field: Field::Pipeline, .. }));
        let mut told = outcomes.iter().map(|&outcome| is_told(outcome));
        assert!(
            if must_agree { told.all(|it| it) } else { outcomes == [Ok(()); 3] },
            "{outcomes:?}"
        );
    }
}

/// With a codec that changes decoded values when it encodes them again, each hop adds an error, as
/// in the published algorithm.
#[test]
fn movement_is_within_the_worst_case_of_all_hops() {
    let (size, count) = (6, 9_001);
    let sent: Vec<f64> = data::smooth(0, count);
    for codec in [CodecId::Szx, CodecId::FzLight] {
        let plan = plan(PER_HOP, &Chain, Division::Blocks).with_codec(codec).as_published();
        let outcomes = Threads::default().run(size, |mut comm| {
            let mut values = if comm.rank().index() == 0 { sent.clone() } else { vec![0.0; count] };
            let report = comm.broadcast(&mut values, Rank(0), &plan).expect("the call");
            let off = sent.iter().zip(&values).map(|(x, y)| (x - y).abs()).fold(0.0, f64::max);
            (off, report.worst_case.expect("it keeps a bound"))
        });
        let hops = if codec.is_stable() { 1.0 } else { (size - 1) as f64 };
        for (off, worst_case) in outcomes {
            assert_eq!(worst_case, hops * BOUND, "{plan:?}");
            assert!(off <= worst_case, "{plan:?}: off by {off:e}");
        }
    }
}

/// The last holder of a sum sends it around the ring, and each rank encodes it again to forward it.
#[test]
fn sums_count_the_errors_of_all_hops() {
    let (size, count) = (4, 9_001);
    for (codec, n_errors) in [(CodecId::FzLight, size), (CodecId::Szx, size + size - 1)] {
        let plan = plan(PER_HOP, &Ring, Division::Blocks).with_codec(codec).as_published();
        let reports = Threads::default().run(size, |mut comm| {
            let mut values: Vec<f64> = data::smooth(comm.rank().index(), count);
            comm.all_reduce(&mut values, Op::Sum, &plan).expect("the call")
        });
        for report in reports {
            assert_eq!(report.worst_case, Some(n_errors as f64 * BOUND), "{plan:?}");
        }
    }
}
