//! Rows of what the user wants of some calls.

use foldwire::op::OpCode;
use foldwire::{Bound, Collective};
use foldwire_preload::decide::{Ask, Ranks, Why, decide};
use foldwire_preload::rules::Names;
use foldwire_preload::settings::{Settings, Way};
use foldwire_preload::signature::Base;

fn settings(rules: &str) -> Settings {
    let read = |name: &str| match name {
        "FOLDWIRE_RULES" => Some(rules.to_owned()),
        "FOLDWIRE_BOUND" => Some("lossless".to_owned()),
        _ => None,
    };
    Settings::read(read).unwrap()
}

fn sums(base: Base, n_bytes: usize, names: Names) -> Ask {
    let (collective, op) = (Collective::AllReduce, Some(OpCode::Sum));
    Ask { collective, base: Some(base), n_bytes, op, ranks: Ranks::Near, names }
}

const LOSSY: Result<Way, Why> = Ok(Way::Lossy(Bound::Relative(1e-4)));

#[test]
fn the_first_row_that_fits_is_taken_from_its_first_length_on() {
    let settings = settings("MPI_Allreduce f64 1M-: rel:1e-4; Allreduce -64M: off; f32: raw");
    let route = |base, n_bytes| decide(&sums(base, n_bytes, Names::Known(!0)), &settings);
    assert_eq!(route(Base::F64, 1 << 20), LOSSY);
    assert_eq!(route(Base::F64, (1 << 20) - 1), Err(Why::Off));
    assert_eq!(route(Base::F32, 1 << 20), Err(Why::Off));
    // No row says from where on.
    assert_eq!(route(Base::F32, 65 << 20), Ok(Way::Raw));
    let ask = Ask { collective: Collective::Reduce, ..sums(Base::F64, 1 << 30, Names::Known(!0)) };
    assert_eq!(decide(&ask, &settings), Ok(Way::Lossless));
}

#[test]
fn names_fit_whole_or_by_their_beginning() {
    let settings = settings("comm=halo: off; comm=grid*: rel:1e-4");
    let route = |name: &str| {
        let names = Names::Known(settings.rules.that_fit(name));
        decide(&sums(Base::F32, 1 << 30, names), &settings)
    };
    assert_eq!(route("halo"), Err(Why::Off));
    assert_eq!(route("halo2"), Ok(Way::Lossless));
    assert_eq!(route("grid 7"), LOSSY);
    assert_eq!(route(""), Ok(Way::Lossless));
}
