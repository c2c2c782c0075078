//! Rules for some calls.

use foldwire::op::OpCode;
use foldwire::{Bound, Collective};
use foldwire_preload::decide::{DecisionInput, PassReason, RankPlacement, decide};
use foldwire_preload::rules::MatchedNames;
use foldwire_preload::settings::{Settings, TransferMode};
use foldwire_preload::signature::BaseType;

fn settings(rules: &str) -> Settings {
    let read = |name: &str| match name {
        "FOLDWIRE_RULES" => Some(rules.to_owned()),
        "FOLDWIRE_BOUND" => Some("lossless".to_owned()),
        _ => None,
    };
    Settings::read(read).unwrap()
}

/// An all-reduce of sums. `names` has one bit for each rule, set if the communicator's name matches
/// it: `Known(!0)` matches all rules.
fn sums(base: BaseType, n_bytes: usize, names: MatchedNames) -> DecisionInput {
    let (collective, op) = (Collective::AllReduce, Some(OpCode::Sum));
    DecisionInput {
        collective,
        base: Some(base),
        n_bytes,
        op,
        placement: RankPlacement::Near,
        names,
    }
}

const LOSSY: Result<TransferMode, PassReason> = Ok(TransferMode::Lossy(Bound::Relative(1e-4)));

#[test]
fn the_first_row_that_fits_is_taken_from_its_first_length_on() {
    let settings = settings("MPI_Allreduce f64 1M-: rel:1e-4; Allreduce -64M: off; f32: raw");
    let route = |base, n_bytes| decide(&sums(base, n_bytes, MatchedNames::Known(!0)), &settings);
    assert_eq!(route(BaseType::F64, 1 << 20), LOSSY);
    assert_eq!(route(BaseType::F64, (1 << 20) - 1), Err(PassReason::Off));
    assert_eq!(route(BaseType::F32, 1 << 20), Err(PassReason::Off));
    // The third rule has no minimum length. It takes calls from the length at which Foldwire is
    // faster than the MPI library, and 65 MiB is above that length.
    assert_eq!(route(BaseType::F32, 65 << 20), Ok(TransferMode::Raw));
    let input = DecisionInput {
        collective: Collective::Reduce,
        ..sums(BaseType::F64, 1 << 30, MatchedNames::Known(!0))
    };
    assert_eq!(decide(&input, &settings), Ok(TransferMode::Lossless));
}

#[test]
fn names_fit_whole_or_by_their_beginning() {
    let settings = settings("comm=halo: off; comm=grid*: rel:1e-4");
    let route = |name: &str| {
        let names = MatchedNames::Known(settings.rules.matching_names(name));
        decide(&sums(BaseType::F32, 1 << 30, names), &settings)
    };
    assert_eq!(route("halo"), Err(PassReason::Off));
    assert_eq!(route("halo2"), Ok(TransferMode::Lossless));
    assert_eq!(route("grid 7"), LOSSY);
    assert_eq!(route(""), Ok(TransferMode::Lossless));
}
