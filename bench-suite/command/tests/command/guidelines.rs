//! Tests of `foldwire guidelines`.

use std::process::{Command, Output};

use serde_json::Value;

fn run(args: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_foldwire"));
    command.arg("guidelines").args(args.split_whitespace()).output().unwrap()
}

#[test]
fn every_comparison_is_made_and_only_those_that_fail_are_shown() {
    let args = "--ranks 3 --repeat 2 --sizes 1K,4K --preset raw,foldwire";
    let output = run(&format!("{args} --json"));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let object: Value = serde_json::from_slice(&output.stdout).unwrap();
    let rows = object["rows"].as_array().unwrap();
    // Nine guidelines at two sizes, and nine collectives that should not get faster.
    assert_eq!(rows.len(), 2 * (2 * 9 + 9));
    for row in rows {
        let [what, than] = ["what_s", "than_s"].map(|name| row[name].as_f64().unwrap());
        assert!(what > 0.0 && than > 0.0, "{row}");
        assert_eq!(row["is_violated"], what / than > 1.1, "{row}");
    }
    let output = run(&format!("{args} --tolerance 1e9"));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.starts_with("0 of 54 comparisons"), "{text}");
}

/// Uses `FOLDWIRE_MPIRUN` like the tests of `foldwire bench`.
#[cfg(feature = "mpi")]
#[test]
fn over_mpi_the_librarys_own_collectives_are_judged_too() {
    let launcher = std::env::var("FOLDWIRE_MPIRUN").unwrap_or_else(|_| "mpirun".to_owned());
    let mut launcher = launcher.split_whitespace();
    let mut command = Command::new(launcher.next().expect("a launcher"));
    command.args(launcher).args(["-n", "2", env!("CARGO_BIN_EXE_foldwire"), "guidelines"]);
    let args = "--backend mpi --repeat 2 --sizes 1K,4K --json";
    let root = ["OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"];
    command.args(args.split_whitespace()).envs(root.map(|name| (name, "1")));
    let output = command.env("OMPI_MCA_rmaps_base_oversubscribe", "1").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let object: Value = serde_json::from_slice(&output.stdout).unwrap();
    let rows = object["rows"].as_array().unwrap();
    for name in ["foldwire", "mpi-default"] {
        let of = rows.iter().filter(|row| row["preset"] == name);
        assert_eq!(of.count(), 2 * 9 + 9, "{name}");
    }
}

#[test]
fn backends_that_cannot_be_judged_are_errors_of_use() {
    for args in ["--backend libfabric", "--backend tcp", "--backend mpi --ranks 2"] {
        let output = run(args);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args}: {errors}");
        assert!(errors.contains("--backend"), "{args}: {errors}");
    }
}

#[test]
fn sizes_of_no_whole_values_are_an_error_of_use() {
    assert_eq!(run("--sizes 1023").status.code(), Some(2));
}
