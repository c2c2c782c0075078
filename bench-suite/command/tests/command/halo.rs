//! Tests of `foldwire halo`.

use std::process::{Command, Output};

use serde_json::Value;

fn run(args: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_foldwire"));
    command.arg("halo").args(args.split_whitespace()).output().unwrap()
}

/// The command fails unless an uncompressed run has the bits of a run on one rank.
#[test]
fn compressed_planes_cost_fewer_bytes_and_a_little_accuracy() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().to_str().unwrap();
    let args = format!(
        "--shape 30x24x28 --steps 60 --ranks 5 --link none --bound rel:1e-2,rel:1e-5 --json \
         --out {out}"
    );
    let output = run(&args);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let object: Value = serde_json::from_slice(&output.stdout).unwrap();
    let rows = object["rows"].as_array().unwrap();
    let exchanges: Vec<&str> = rows.iter().map(|row| row["exchange"].as_str().unwrap()).collect();
    assert_eq!(exchanges, ["raw", "rel:0.01", "rel:1e-5"]);
    let number = |row: usize, name: &str| rows[row][name].as_f64().unwrap();
    assert_eq!(number(0, "max_err"), 0.0);
    // Eight messages per step, with four planes each.
    let planes = 8 * 60 * 4 * (4 * (24 + 40) * (28 + 40));
    for row in 0..3 {
        assert_eq!(number(row, "raw_bytes"), f64::from(planes));
    }
    assert!(number(1, "ratio") > 2.0 && number(1, "ratio") > number(2, "ratio"), "{rows:?}");
    assert!(number(1, "max_err") > number(2, "max_err") && number(2, "max_err") > 0.0, "{rows:?}");
    assert!(number(2, "nrmse") < 1e-3, "{rows:?}");
    for picture in ["halo-1.png", "halo-2-error.png", "overview.png"] {
        assert!(folder.path().join(picture).is_file(), "{picture}");
    }
}

#[test]
fn codecs_are_runs_of_their_own() {
    let args =
        "--shape 30x24x28 --steps 60 --link none --codec mpc,zfp-rate:16 --json --no-pictures";
    let output = run(args);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let object: Value = serde_json::from_slice(&output.stdout).unwrap();
    let rows = object["rows"].as_array().unwrap();
    let exchanges: Vec<&str> = rows.iter().map(|row| row["exchange"].as_str().unwrap()).collect();
    assert_eq!(exchanges, ["raw", "mpc", "zfp-rate:16"]);
    assert_eq!(rows[1]["max_err"], 0.0);
    assert!(rows[2]["ratio"].as_f64().unwrap() > 1.5, "{rows:?}");
}

#[test]
fn what_cannot_be_divided_is_an_error_of_use() {
    for (args, says) in [
        ("--shape 30x20", "three numbers"),
        ("--shape 20x20x20 --ranks 64", "too few planes"),
        ("--steps 0", "whole number"),
        ("--bound rel:0", "rel:0"),
        ("--codec demote", "demote is not for f32"),
    ] {
        let output = run(args);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(2) && said.contains(says), "{args}: {said}");
    }
}
