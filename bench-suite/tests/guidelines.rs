//! `foldwire guidelines` as users meet it.

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

#[test]
fn sizes_of_no_whole_values_are_an_error_of_use() {
    assert_eq!(run("--sizes 1023").status.code(), Some(2));
}
