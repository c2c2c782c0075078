//! Decisions about calls, over all inputs.

use foldwire::op::OpCode;
use foldwire::{Bound, Collective};
use foldwire_preload::decide::{
    COLLECTIVES, DecisionInput, PassReason, RankPlacement, decide, smallest_taken,
};
use foldwire_preload::rules::MatchedNames;
use foldwire_preload::settings::{Settings, TransferMode};
use foldwire_preload::signature::BaseType;
use proptest::prelude::*;

fn any_mode() -> impl Strategy<Value = &'static str> {
    proptest::sample::select(vec!["off", "raw", "lossless", "rel:1e-3", "abs:0.1", "psnr:60"])
}

fn any_input() -> impl Strategy<Value = DecisionInput> {
    let collective = proptest::sample::select(COLLECTIVES.map(|row| row.collective).to_vec());
    let base = proptest::option::of(proptest::sample::select(BaseType::ALL.to_vec()));
    let ops = [OpCode::Sum, OpCode::Min, OpCode::Max, OpCode::Prod];
    let op = proptest::option::of(proptest::sample::select(ops.to_vec()));
    let placement = proptest::sample::select(RankPlacement::ALL.to_vec());
    (collective, base, op, 0..1usize << 26, placement).prop_map(
        |(collective, base, op, n_bytes, placement)| DecisionInput {
            collective,
            base,
            n_bytes,
            op,
            placement,
            names: MatchedNames::Unknown,
        },
    )
}

proptest! {
    #[test]
    fn no_call_is_lossy_but_by_consent(input in any_input(), bound in any_mode()) {
        let settings = Settings::read(|name| (name == "FOLDWIRE_BOUND").then(|| bound.into()));
        let settings = settings.unwrap();
        if let Ok(TransferMode::Lossy(allowed)) = decide(&input, &settings) {
            prop_assert_eq!(bound.parse::<Bound>(), Ok(allowed));
            prop_assert!(input.base.is_some_and(BaseType::is_float));
            prop_assert_ne!(input.op, Some(OpCode::Prod));
        }
    }

    #[test]
    fn longer_calls_are_taken_where_shorter_ones_are(
        input in any_input(),
        more in 0..1usize << 20,
    ) {
        let settings = Settings::default();
        if let Ok(mode) = decide(&input, &settings) {
            let longer = DecisionInput { n_bytes: input.n_bytes + more, ..input };
            prop_assert_eq!(Ok(mode), decide(&longer, &settings));
            // By default nothing is compressed, so only reductions are taken.
            prop_assert!(Some(input.n_bytes) >= settings.min_bytes(mode, true, input.placement));
            prop_assert_ne!(input.placement, RankPlacement::Pair);
        }
    }

    /// An inspection would pass on every call that the filter passes on.
    #[test]
    fn calls_of_fewer_bytes_than_any_that_is_taken_are_passed_on(
        input in any_input(),
        bound in any_mode(),
        rules in proptest::sample::subsequence(
            vec!["f32 1M-: raw", "comm=a 4k-: rel:1e-3", "-64k: off", "MPI_Bcast 1k-2k: lossless"],
            0..4,
        ),
        names in any::<i64>(),
    ) {
        let rules = rules.join("; ");
        let settings = Settings::read(|name| match name {
            "FOLDWIRE_BOUND" => Some(bound.to_owned()),
            "FOLDWIRE_RULES" => Some(rules.clone()),
            _ => None,
        });
        let settings = settings.unwrap();
        let input = DecisionInput { names: MatchedNames::Known(names), ..input };
        if let Ok(mode) = decide(&input, &settings) {
            let least = smallest_taken(input.collective, &settings);
            prop_assert!(least.is_ok_and(|least| least <= input.n_bytes), "{least:?}, {mode:?}");
        }
    }

    #[test]
    fn off_takes_nothing(input in any_input()) {
        let settings = Settings::read(|name| (name == "FOLDWIRE_BOUND").then(|| "off".into()));
        prop_assert_eq!(decide(&input, &settings.unwrap()), Err(PassReason::Off));
    }
}

/// If an operand is NaN, the library's minimum depends on the order of the operands. So the result
/// of an exact call would show that Foldwire executed it.
#[test]
fn exact_minima_and_maxima_of_floats_are_the_librarys() {
    let route = |bound: &str, base, op| {
        let settings = Settings::read(|name| (name == "FOLDWIRE_BOUND").then(|| bound.to_owned()));
        let (collective, names) = (Collective::AllReduce, MatchedNames::Known(0));
        let (base, op, placement) = (Some(base), Some(op), RankPlacement::Near);
        decide(
            &DecisionInput { collective, base, n_bytes: 1 << 30, op, placement, names },
            &settings.unwrap(),
        )
    };
    for op in [OpCode::Min, OpCode::Max] {
        for base in [BaseType::F32, BaseType::F64] {
            assert_eq!(route("raw", base, op), Err(PassReason::Operation));
            assert_eq!(route("lossless", base, op), Err(PassReason::Operation));
            assert!(matches!(route("abs:1", base, op), Ok(TransferMode::Lossy(_))));
        }
        assert_eq!(route("raw", BaseType::I32, op), Ok(TransferMode::Raw));
    }
    assert_eq!(route("raw", BaseType::F32, OpCode::Sum), Ok(TransferMode::Raw));
}

/// Shorter calls are taken over a network than between ranks that copy through shared memory.
/// Within a bound, shorter reductions are taken than exact ones. Between two nodes no exact ones
/// are taken. If ranks hand frames over, short uncompressed reductions are taken.
#[test]
fn calls_are_taken_from_where_they_pay() {
    use RankPlacement::{Far, Near, Pair, Shared};
    let shortest = |bound: &str, collective, op, placement| {
        let settings = Settings::read(|name| (name == "FOLDWIRE_BOUND").then(|| bound.to_owned()));
        let settings = settings.unwrap();
        let (base, names) = (Some(BaseType::F32), MatchedNames::Unknown);
        let input = |n_bytes| DecisionInput { collective, base, n_bytes, op, placement, names };
        (0..30).map(|k| 1 << k).find(|&n| decide(&input(n), &settings).is_ok())
    };
    let sum =
        |bound, placement| shortest(bound, Collective::AllReduce, Some(OpCode::Sum), placement);
    let moved = |bound, placement| shortest(bound, Collective::Broadcast, None, placement);
    let bounded = [Near, Pair, Far].map(|placement| sum("rel:1e-3", placement));
    assert_eq!(bounded, [8 << 20, 256 << 10, 256 << 10].map(Some));
    let exact = [Near, Pair, Far].map(|placement| sum("raw", placement));
    assert_eq!(exact, [Some(16 << 20), None, Some(2 << 20)]);
    let moves = [Near, Pair, Far].map(|placement| moved("rel:1e-3", placement));
    assert_eq!(moves, [32 << 20, 256 << 10, 256 << 10].map(Some));
    assert_eq!(moved("raw", Far), None);
    for bound in ["raw", "lossless", "rel:1e-3"] {
        assert_eq!(sum(bound, Shared), Some(64 << 10));
    }
    assert_eq!((sum("off", Shared), moved("raw", Shared)), (None, None));
    assert_eq!(moved("rel:1e-3", Shared), Some(32 << 20));
}

/// Exact sums satisfy any bound, and are faster here. A user who sets a minimum length gets the
/// mode of the setting.
#[test]
fn sums_within_a_bound_go_as_they_are_where_frames_are_handed_over() {
    let route = |set: &[(&str, &str)], n_bytes, op| {
        let value = |name: &str| set.iter().find(|(key, _)| *key == name);
        let settings = Settings::read(|name| value(name).map(|(_, value)| (*value).to_owned()));
        let (collective, placement, names) =
            (Collective::AllReduce, RankPlacement::Shared, MatchedNames::Known(0));
        let (base, op) = (Some(BaseType::F32), Some(op));
        decide(
            &DecisionInput { collective, base, n_bytes, op, placement, names },
            &settings.unwrap(),
        )
    };
    let bound = ("FOLDWIRE_BOUND", "rel:1e-3");
    assert_eq!(route(&[bound], 1 << 20, OpCode::Sum), Ok(TransferMode::Raw));
    assert_eq!(route(&[bound], 1 << 10, OpCode::Sum), Err(PassReason::Short));
    assert_eq!(route(&[bound], 64 << 20, OpCode::Sum), Ok(TransferMode::Raw));
    // Exact maxima of floats belong to the library.
    assert_eq!(route(&[bound], 1 << 20, OpCode::Max), Err(PassReason::Short));
    assert!(matches!(route(&[bound], 8 << 20, OpCode::Max), Ok(TransferMode::Lossy(_))));
    let least = ("FOLDWIRE_MIN_BYTES", "1k");
    assert!(matches!(route(&[bound, least], 1 << 20, OpCode::Sum), Ok(TransferMode::Lossy(_))));
    let rule = ("FOLDWIRE_RULES", "f32 1k-: rel:1e-3");
    assert!(matches!(route(&[rule], 1 << 20, OpCode::Sum), Ok(TransferMode::Lossy(_))));
}

#[test]
fn reasons_are_numbered_in_their_order() {
    assert!(PassReason::ALL.iter().enumerate().all(|(number, &reason)| reason as usize == number));
}
