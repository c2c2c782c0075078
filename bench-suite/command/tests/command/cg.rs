//! Tests of `foldwire cg`.

use std::process::{Command, Output};

use serde_json::Value;

fn run(args: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_foldwire"));
    command.arg("cg").args(args.split_whitespace()).output().unwrap()
}

/// Success of the command also means that reproducible dot products with raw borders gave the bits
/// of a run on one rank.
#[test]
fn compressed_borders_cost_fewer_bytes_and_reach_the_solution() {
    let folder = tempfile::tempdir().unwrap();
    let plot = folder.path().join("residuals.svg");
    let args = "--shape 23x24x25 --ranks 5 --link none --bound rel:1e-2,rel:1e-5 --json".to_owned();
    let has_plots = cfg!(feature = "plots");
    let args = if has_plots { format!("{args} --plot {}", plot.display()) } else { args };
    let output = run(&args);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let object: Value = serde_json::from_slice(&output.stdout).unwrap();
    let rows = object["rows"].as_array().unwrap();
    let of = |name: &str| rows.iter().map(|row| row[name].clone()).collect::<Vec<_>>();
    assert_eq!(of("dots"), ["plain", "reproducible", "reproducible", "reproducible"]);
    assert_eq!(of("borders"), ["raw", "raw", "rel:0.01", "rel:1e-5"]);
    assert_eq!(rows[1]["has_bits_of_one_rank"], true);
    assert_eq!(rows[2]["has_bits_of_one_rank"], false);
    let number = |row: usize, name: &str| rows[row][name].as_f64().unwrap();
    // Per iteration, four pairs of neighbours exchange a plane of f64 values each way.
    let planes = 8.0 * 24.0 * 25.0 * 8.0;
    for (at, row) in rows.iter().enumerate() {
        assert_eq!(number(at, "raw_bytes"), number(at, "iterations") * planes);
        let n_residuals = row["residuals"].as_array().unwrap().len();
        assert_eq!(n_residuals as f64, number(at, "iterations"));
    }
    assert!(number(1, "residual") < 2e-6 && number(3, "residual") < 1e-4, "{rows:?}");
    assert!(number(2, "ratio") > number(3, "ratio") && number(3, "ratio") > 2.0, "{rows:?}");
    if has_plots {
        let svg = std::fs::read_to_string(plot).unwrap();
        assert!(svg.contains("reproducible dot products, borders rel:1e-5"));
    }
}

#[cfg(feature = "plots")]
#[test]
fn a_plot_that_cannot_be_written_takes_no_results_away() {
    let args = "--shape 8x8x8 --ranks 2 --link none --repeat 1 --json --plot no/such/folder.svg";
    let output = run(args);
    assert_eq!(output.status.code(), Some(1));
    let object: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(object["rows"].as_array().unwrap().len() > 1);
}

#[test]
fn a_problem_that_cannot_be_solved_is_an_error_with_advice() {
    for (args, code, expected) in [
        ("--shape 30x20", 2, "three dimensions"),
        ("--shape 4x20x20 --ranks 5", 2, "too few for 5 ranks"),
        ("--tolerance 2", 2, "between 0 and 1"),
        ("--field nowhere_4x4x4.f32", 2, "no such file"),
        ("--shape 20x20x20 --iterations 3 --link none", 1, "allow more by --iterations"),
    ] {
        let output = run(args);
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            output.status.code() == Some(code) && message.contains(expected),
            "{args}: {message}"
        );
    }
}
