//! Routes, over all that can be asked.

use foldwire::op::OpCode;
use foldwire::{Bound, Collective};
use foldwire_preload::decide::{Ask, COLLECTIVES, Ranks, Why, decide, fewest};
use foldwire_preload::rules::Names;
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
    let ranks = proptest::sample::select(Ranks::ALL.to_vec());
    (collective, base, op, 0..1usize << 26, ranks).prop_map(
        |(collective, base, op, n_bytes, ranks)| Ask {
            collective,
            base,
            n_bytes,
            op,
            ranks,
            names: Names::Unknown,
        },
    )
}

proptest! {
    #[test]
    fn no_call_is_lossy_but_by_consent(ask in any_ask(), bound in any_way()) {
        let settings = Settings::read(|name| (name == "FOLDWIRE_BOUND").then(|| bound.into()));
        let settings = settings.unwrap();
        if let Ok(Way::Lossy(allowed)) = decide(&ask, &settings) {
            prop_assert_eq!(bound.parse::<Bound>(), Ok(allowed));
            prop_assert!(ask.base.is_some_and(Base::is_float));
            prop_assert_ne!(ask.op, Some(OpCode::Prod));
        }
    }

    #[test]
    fn longer_calls_are_taken_where_shorter_ones_are(ask in any_ask(), more in 0..1usize << 20) {
        let settings = Settings::default();
        if let Ok(way) = decide(&ask, &settings) {
            let longer = Ask { n_bytes: ask.n_bytes + more, ..ask };
            prop_assert_eq!(Ok(way), decide(&longer, &settings));
            // By default nothing is coded, so only reductions are taken.
            prop_assert!(Some(ask.n_bytes) >= settings.min_bytes(way, true, ask.ranks));
            prop_assert_ne!(ask.ranks, Ranks::Pair);
        }
    }

    /// What is passed on before anybody looks would be passed on by who looks.
    #[test]
    fn calls_of_fewer_bytes_than_any_that_is_taken_are_passed_on(
        ask in any_ask(),
        bound in any_way(),
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
        if let Ok(way) = decide(&Ask { names: Names::Known(names), ..ask }, &settings) {
            let least = fewest(ask.collective, &settings);
            prop_assert!(least.is_ok_and(|least| least <= ask.n_bytes), "{least:?}, {way:?}");
        }
    }

    #[test]
    fn off_takes_nothing(ask in any_ask()) {
        let settings = Settings::read(|name| (name == "FOLDWIRE_BOUND").then(|| "off".into()));
        prop_assert_eq!(decide(&ask, &settings.unwrap()), Err(Why::Off));
    }
}

/// Which of two numbers the library calls the lesser hangs on their order there if one is NaN, so
/// that an exact call would show who carried it out.
#[test]
fn exact_minima_and_maxima_of_floats_are_the_librarys() {
    let route = |bound: &str, base, op| {
        let settings = Settings::read(|name| (name == "FOLDWIRE_BOUND").then(|| bound.to_owned()));
        let (collective, names) = (Collective::AllReduce, Names::Known(0));
        let (base, op, ranks) = (Some(base), Some(op), Ranks::Near);
        decide(&Ask { collective, base, n_bytes: 1 << 30, op, ranks, names }, &settings.unwrap())
    };
    for op in [OpCode::Min, OpCode::Max] {
        for base in [Base::F32, Base::F64] {
            assert_eq!(route("raw", base, op), Err(Why::Operation));
            assert_eq!(route("lossless", base, op), Err(Why::Operation));
            assert!(matches!(route("abs:1", base, op), Ok(Way::Lossy(_))));
        }
        assert_eq!(route("raw", Base::I32, op), Ok(Way::Raw));
    }
    assert_eq!(route("raw", Base::F32, OpCode::Sum), Ok(Way::Raw));
}

/// Shorter calls are taken over a network than where the library copies through shared memory, and
/// within a bound shorter reductions than exact ones; between two nodes no exact ones. Where frames
/// are handed over, short reductions go as they are.
#[test]
fn calls_are_taken_from_where_they_pay() {
    use Ranks::{Far, Near, Pair, Shared};
    let shortest = |bound: &str, collective, op, ranks| {
        let settings = Settings::read(|name| (name == "FOLDWIRE_BOUND").then(|| bound.to_owned()));
        let settings = settings.unwrap();
        let (base, names) = (Some(Base::F32), Names::Unknown);
        let ask = |n_bytes| Ask { collective, base, n_bytes, op, ranks, names };
        (0..30).map(|k| 1 << k).find(|&n| decide(&ask(n), &settings).is_ok())
    };
    let sum = |bound, ranks| shortest(bound, Collective::AllReduce, Some(OpCode::Sum), ranks);
    let moved = |bound, ranks| shortest(bound, Collective::Broadcast, None, ranks);
    let bounded = [Near, Pair, Far].map(|ranks| sum("rel:1e-3", ranks));
    assert_eq!(bounded, [8 << 20, 256 << 10, 256 << 10].map(Some));
    let exact = [Near, Pair, Far].map(|ranks| sum("raw", ranks));
    assert_eq!(exact, [Some(16 << 20), None, Some(2 << 20)]);
    let moves = [Near, Pair, Far].map(|ranks| moved("rel:1e-3", ranks));
    assert_eq!(moves, [32 << 20, 256 << 10, 256 << 10].map(Some));
    assert_eq!(moved("raw", Far), None);
    for bound in ["raw", "lossless", "rel:1e-3"] {
        assert_eq!(sum(bound, Shared), Some(64 << 10));
    }
    assert_eq!((sum("off", Shared), moved("raw", Shared)), (None, None));
    assert_eq!(moved("rel:1e-3", Shared), Some(32 << 20));
}

/// Exact sums keep any bound, and are sooner. Who says from where on calls are taken says so of the
/// way that was asked for.
#[test]
fn sums_within_a_bound_go_as_they_are_where_frames_are_handed_over() {
    let route = |set: &[(&str, &str)], n_bytes, op| {
        let value = |name: &str| set.iter().find(|(key, _)| *key == name);
        let settings = Settings::read(|name| value(name).map(|(_, value)| (*value).to_owned()));
        let (collective, ranks, names) = (Collective::AllReduce, Ranks::Shared, Names::Known(0));
        let (base, op) = (Some(Base::F32), Some(op));
        decide(&Ask { collective, base, n_bytes, op, ranks, names }, &settings.unwrap())
    };
    let bound = ("FOLDWIRE_BOUND", "rel:1e-3");
    assert_eq!(route(&[bound], 1 << 20, OpCode::Sum), Ok(Way::Raw));
    assert_eq!(route(&[bound], 1 << 10, OpCode::Sum), Err(Why::Short));
    assert_eq!(route(&[bound], 64 << 20, OpCode::Sum), Ok(Way::Raw));
    // Whose exact maxima are whose is the library's to say.
    assert_eq!(route(&[bound], 1 << 20, OpCode::Max), Err(Why::Short));
    assert!(matches!(route(&[bound], 8 << 20, OpCode::Max), Ok(Way::Lossy(_))));
    let least = ("FOLDWIRE_MIN_BYTES", "1k");
    assert!(matches!(route(&[bound, least], 1 << 20, OpCode::Sum), Ok(Way::Lossy(_))));
    let rule = ("FOLDWIRE_RULES", "f32 1k-: rel:1e-3");
    assert!(matches!(route(&[rule], 1 << 20, OpCode::Sum), Ok(Way::Lossy(_))));
}

#[test]
fn reasons_are_numbered_in_their_order() {
    assert!(Why::ALL.iter().enumerate().all(|(number, &why)| why as usize == number));
}
