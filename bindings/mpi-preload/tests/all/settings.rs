//! Settings from environment variables.

use foldwire::schedule::Collective;
use foldwire::{Bound, Fill};
use foldwire_preload::decide::COLLECTIVES;
use foldwire_preload::settings::{Settings, TransferMode};

fn read(set: &[(&str, &str)]) -> Result<Settings, String> {
    Settings::read(|name| {
        set.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
    })
}

#[test]
fn nothing_is_lossy_unless_it_is_said() {
    let settings = read(&[]).unwrap();
    assert!(COLLECTIVES.iter().all(|row| settings.mode(row.collective) == TransferMode::Raw));
    assert_eq!(settings.messages, TransferMode::Off);
    let settings = read(&[("FOLDWIRE_BOUND_ALLREDUCE", "rel:1e-3")]).unwrap();
    assert_eq!(settings.mode(Collective::AllReduce), TransferMode::Lossy(Bound::Relative(1e-3)));
    assert_eq!(settings.mode(Collective::Broadcast), TransferMode::Raw);
}

#[test]
fn a_collectives_own_variable_wins() {
    let set = [("FOLDWIRE_BOUND", "abs:0.5"), ("FOLDWIRE_BOUND_BCAST", "off")];
    let settings = read(&set).unwrap();
    assert_eq!(settings.mode(Collective::Broadcast), TransferMode::Off);
    assert_eq!(settings.mode(Collective::Reduce), TransferMode::Lossy(Bound::Absolute(0.5)));
}

#[test]
fn a_fill_value_goes_with_bounds_and_is_a_number_in_reductions() {
    let settings = read(&[("FOLDWIRE_FILL", "1e20"), ("FOLDWIRE_BOUND", "rel:1e-3")]).unwrap();
    let fill_of = |mode: TransferMode| mode.plan(settings.spacing, settings.fill).fill;
    let fill = Fill { value: 1e20, is_number: true };
    assert_eq!(fill_of(settings.mode(Collective::AllReduce)), Some(fill));
    assert_eq!(fill_of(TransferMode::Raw), None);
    assert_eq!(fill_of(TransferMode::Lossless), None);
}

#[test]
fn values_that_mean_nothing_are_refused_by_name() {
    for (name, value) in [
        ("FOLDWIRE_BOUND", "1e-3"),
        ("FOLDWIRE_BOUND", "rel:-1"),
        ("FOLDWIRE_BOUND", "rel:2"),
        ("FOLDWIRE_BOUND_ALLREDUCE", "yes"),
        ("FOLDWIRE_MIN_BYTES", "many"),
        ("FOLDWIRE_MIN_BYTES", "99999999999999999999G"),
        ("FOLDWIRE_MESSAGES", "raw"),
        ("FOLDWIRE_MESSAGES", "1e-3"),
        ("FOLDWIRE_MESSAGES_MIN_BYTES", "many"),
        ("FOLDWIRE_STEP", "2"),
        ("FOLDWIRE_FILL", "missing"),
        ("FOLDWIRE_FILL", "nan"),
        ("FOLDWIRE_FILL", ""),
        ("FOLDWIRE_DEBUG", "yes"),
        ("FOLDWIRE_REPORT", "xml"),
        ("FOLDWIRE_RULES", "MPI_Allreduce"),
        ("FOLDWIRE_RULES", "MPI_Allreduce: 1e-3"),
        ("FOLDWIRE_RULES", "MPI_Barrier: off"),
        ("FOLDWIRE_RULES", "f32 f64: off"),
        ("FOLDWIRE_RULES", "1M-1k: off"),
    ] {
        let error = read(&[(name, value)]).unwrap_err();
        assert!(error.starts_with(&format!("{name}={value}: ")), "{error}");
    }
}

#[test]
fn fingerprints_tell_routes_apart_and_nothing_else() {
    let plain = read(&[]).unwrap().fingerprint();
    assert_eq!(plain, read(&[("FOLDWIRE_DEBUG", "1")]).unwrap().fingerprint());
    for set in [
        ("FOLDWIRE_MESSAGES", "lossless"),
        ("FOLDWIRE_MESSAGES_MIN_BYTES", "1k"),
        ("FOLDWIRE_BOUND", "off"),
        ("FOLDWIRE_MIN_BYTES", "1k"),
        ("FOLDWIRE_STEP", "widest"),
        ("FOLDWIRE_FILL", "-9999"),
        ("FOLDWIRE_FILL", "refuse"),
        ("FOLDWIRE_RULES", "f32: off"),
    ] {
        assert_ne!(plain, read(&[set]).unwrap().fingerprint(), "{set:?}");
    }
}
