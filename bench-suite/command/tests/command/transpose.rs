//! Tests of `foldwire transpose`.

use std::process::{Command, Output};

use serde_json::Value;

fn run(args: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_foldwire"));
    command.arg("transpose").args(args.split_whitespace()).output().unwrap()
}

/// The command fails if a value exceeds its bound.
#[test]
fn compressed_blocks_cost_fewer_bytes_and_no_more_than_the_bound() {
    let output =
        run("--side 301 --ranks 5 --link none --bound rel:1e-2,rel:1e-4 --repeat 2 --json");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let object: Value = serde_json::from_slice(&output.stdout).unwrap();
    let rows = object["rows"].as_array().unwrap();
    let names: Vec<&str> = rows.iter().map(|row| row["exchange"].as_str().unwrap()).collect();
    assert_eq!(names, ["raw", "rel:0.01", "rel:1e-4"]);
    let number = |row: usize, name: &str| rows[row][name].as_f64().unwrap();
    // All blocks but those on the diagonal, with four ranks of 60 rows and one of 61.
    let raw_bytes = 4.0 * f64::from(301 * 301 - 4 * 60 * 60 - 61 * 61);
    assert_eq!(number(0, "raw_bytes"), raw_bytes);
    assert_eq!((number(0, "max_err"), number(0, "allowed")), (0.0, 0.0));
    assert!(number(1, "max_err") > number(2, "max_err") && number(2, "max_err") > 0.0);
    assert!(number(1, "ratio") > number(2, "ratio") && number(2, "ratio") > 1.5, "{rows:?}");
}

#[test]
fn codecs_are_runs_of_their_own() {
    let args = "--side 301 --link none --codec mpc,zfp-rate:8 --repeat 1 --json";
    let output = run(args);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let object: Value = serde_json::from_slice(&output.stdout).unwrap();
    let rows = object["rows"].as_array().unwrap();
    let names: Vec<&str> = rows.iter().map(|row| row["exchange"].as_str().unwrap()).collect();
    assert_eq!(names, ["raw", "mpc", "zfp-rate:8"]);
    assert_eq!((&rows[1]["max_err"], &rows[2]["allowed"]), (&0.0.into(), &Value::Null));
}

#[test]
fn any_side_will_do_and_nonsense_is_an_error_of_use() {
    for side in [1, 3] {
        let output = run(&format!("--side {side} --ranks 4 --link none --repeat 1"));
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    for (args, says) in [
        ("--side 0", "whole number"),
        ("--side 99999", "whole number"),
        ("--field nowhere.f32", "no such file"),
        ("--bound rel:0", "rel:0"),
        ("--codec zfp-rate:99", "zfp-rate"),
    ] {
        let output = run(args);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(2) && said.contains(says), "{args}: {said}");
    }
}
