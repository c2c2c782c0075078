//! Routes, over all that can be asked.

use foldwire::op::OpCode;
use foldwire::{Bound, Collective};
use foldwire_preload::decide::{Ask, COLLECTIVES, Route, Why, decide};
use foldwire_preload::settings::{Settings, Way};
use foldwire_preload::signature::Base;
use proptest::prelude::*;

fn any_way() -> impl Strategy<Value = &'static str> {
    proptest::sample::select(vec!["off", "raw", "lossless", "rel:1e-3", "abs:0.1", "psnr:60"])
}

fn any_ask() -> impl Strategy<Value = Ask> {
    let collective = proptest::sample::select(COLLECTIVES.map(|row| row.collective).to_vec());
    let base = proptest::option::of(proptest::sample::select(Base::ALL.to_vec()));
    let ops = [OpCode::Sum, OpCode::Min, OpCode::Max, OpCode::Prod];
    let op = proptest::option::of(proptest::sample::select(ops.to_vec()));
    (collective, base, op, 0..1usize << 26, any::<bool>()).prop_map(
        |(collective, base, op, n_bytes, is_near)| Ask { collective, base, n_bytes, op, is_near },
    )
}

proptest! {
    #[test]
    fn no_call_is_lossy_but_by_consent(ask in any_ask(), bound in any_way()) {
        let settings = Settings::read(|name| (name == "FOLDWIRE_BOUND").then(|| bound.into()));
        let settings = settings.unwrap();
        if let Route::Take(Way::Lossy(allowed)) = decide(&ask, &settings) {
            prop_assert_eq!(bound.parse::<Bound>(), Ok(allowed));
            prop_assert!(ask.base.is_some_and(Base::is_float));
            prop_assert_ne!(ask.op, Some(OpCode::Prod));
        }
    }

    #[test]
    fn longer_calls_are_taken_where_shorter_ones_are(ask in any_ask(), more in 0..1usize << 20) {
        let settings = Settings::default();
        if let Route::Take(way) = decide(&ask, &settings) {
            let longer = Ask { n_bytes: ask.n_bytes + more, ..ask };
            prop_assert_eq!(decide(&ask, &settings), decide(&longer, &settings));
            // By default nothing is coded, so only reductions are taken.
            prop_assert!(ask.n_bytes >= settings.min_bytes(way, true, ask.is_near));
        }
    }

    #[test]
    fn off_takes_nothing(ask in any_ask()) {
        let settings = Settings::read(|name| (name == "FOLDWIRE_BOUND").then(|| "off".into()));
        prop_assert_eq!(decide(&ask, &settings.unwrap()), Route::Pass(Why::Off));
    }
}

/// Shorter calls are taken over a network than in shared memory, and within a bound shorter
/// reductions than exact ones.
#[test]
fn calls_are_taken_from_where_they_pay() {
    let shortest = |bound: &str, collective, op, is_near| {
        let settings = Settings::read(|name| (name == "FOLDWIRE_BOUND").then(|| bound.to_owned()));
        let settings = settings.unwrap();
        let ask = |n_bytes| Ask { collective, base: Some(Base::F32), n_bytes, op, is_near };
        (0..30).map(|k| 1 << k).find(|&n| matches!(decide(&ask(n), &settings), Route::Take(_)))
    };
    let sum = |bound, is_near| {
        shortest(bound, Collective::AllReduce, Some(OpCode::Sum), is_near).expect("some length")
    };
    let moved = |bound, is_near| shortest(bound, Collective::Broadcast, None, is_near);
    assert_eq!([sum("rel:1e-3", true), sum("raw", true)], [8 << 20, 16 << 20]);
    assert_eq!([sum("rel:1e-3", false), sum("raw", false)], [256 << 10, 1 << 20]);
    assert_eq!(
        [moved("rel:1e-3", true), moved("rel:1e-3", false)],
        [32 << 20, 256 << 10].map(Some)
    );
    assert_eq!(moved("raw", false), None);
}

#[test]
fn reasons_are_numbered_in_their_order() {
    assert!(Why::ALL.iter().enumerate().all(|(number, &why)| why as usize == number));
}
