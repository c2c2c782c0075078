//! Every collective, schedule, pipeline, codec, operation and type, against the oracle.

use foldwire::codec::CodecId;
use foldwire_tests::case::ROUTES;
use foldwire_tests::{Case, Threads, all, pairwise};

/// Every pair of choices in each run. Small frames give many rounds and all lanes work.
#[test]
fn every_pair_of_choices_gives_the_right_result() {
    let cases = pairwise();
    assert!(cases.len() > 80, "{} cases cannot cover the pairs", cases.len());
    for (i, case) in cases.iter().enumerate() {
        let frame_bytes = [None, Some(40_000), Some(5_000)][i % 3];
        case.check(&Threads { frame_bytes });
    }
}

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
                is_f64: true,
                ..Case::all_reduce(2, (16 << 20) / 8 + 4097)
            };
            case.check(&Threads::default());
        }
    }
}

/// The full product, or a part of it: `FOLDWIRE_STRIDE=1000 cargo test --release -- --ignored product`.
#[test]
#[ignore = "hours; on demand"]
fn the_full_product_gives_the_right_result() {
    let stride = std::env::var("FOLDWIRE_STRIDE").ok().and_then(|s| s.parse().ok()).unwrap_or(1);
    for case in all().step_by(stride) {
        case.check(&Threads { frame_bytes: Some(40_000) });
    }
}
