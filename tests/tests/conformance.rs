//! Every collective, schedule, pipeline, codec, operation and type, against the oracle.

use foldwire_tests::{Threads, all, pairwise};

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

/// The full product, or a part of it: `FOLDWIRE_STRIDE=1000 cargo test --release -- --ignored product`.
#[test]
#[ignore = "hours; on demand"]
fn the_full_product_gives_the_right_result() {
    let stride = std::env::var("FOLDWIRE_STRIDE").ok().and_then(|s| s.parse().ok()).unwrap_or(1);
    for case in all().step_by(stride) {
        case.check(&Threads { frame_bytes: Some(40_000) });
    }
}
