//! Routes, over all that can be asked.

use foldwire::Bound;
use foldwire::op::OpCode;
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
        if let Route::Take(_) = decide(&ask, &settings) {
            let longer = Ask { n_bytes: ask.n_bytes + more, ..ask };
            prop_assert_eq!(decide(&ask, &settings), decide(&longer, &settings));
            prop_assert!(ask.n_bytes >= settings.min_bytes(ask.is_near));
        }
    }

    #[test]
    fn off_takes_nothing(ask in any_ask()) {
        let settings = Settings::read(|name| (name == "FOLDWIRE_BOUND").then(|| "off".into()));
        prop_assert_eq!(decide(&ask, &settings.unwrap()), Route::Pass(Why::Off));
    }
}

#[test]
fn reasons_are_numbered_in_their_order() {
    assert!(Why::ALL.iter().enumerate().all(|(number, &why)| why as usize == number));
}
