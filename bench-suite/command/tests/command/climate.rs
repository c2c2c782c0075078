//! Tests of `foldwire climate`.

use std::fs;
use std::process::{Command, Output};

use serde_json::Value;

const NAMES: [&str; 8] = [
    "raw",
    "cam-intra",
    "cam-inter",
    "cam-lossy32",
    "cam-lossy40",
    "cam-sp",
    "cam-both",
    "rel:1e-9",
];

fn run(args: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_foldwire"));
    command.arg("climate").args(args.split_whitespace()).output().unwrap()
}

fn rows(args: &str) -> (Value, Vec<Value>) {
    let output = run(args);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let object: Value = serde_json::from_slice(&output.stdout).unwrap();
    let rows = object["rows"].as_array().unwrap().clone();
    (object, rows)
}

/// The command fails if raw or a lossless method has other bits than a run on one rank.
#[test]
fn exact_methods_keep_all_bits_and_lossy_ones_cost_fewer_bytes_and_some_accuracy() {
    let folder = tempfile::tempdir().unwrap();
    let (out, plot) = (folder.path(), folder.path().join("growth.svg"));
    let draws = cfg!(feature = "plots");
    let args = format!(
        "--case wave --shape 24x48 --levels 2 --steps 90 --days 3.3 --spin-up 0 --ranks 5 \
         --link none --json --out {}",
        out.display()
    );
    let args = if draws { format!("{args} --plot {}", plot.display()) } else { args };
    let (object, rows) = rows(&args);
    let names: Vec<&str> = rows.iter().map(|row| row["exchange"].as_str().unwrap()).collect();
    assert_eq!(names, NAMES);
    let number = |row: usize, name: &str| rows[row][name].as_f64().unwrap();
    // There are four borders. Across each go halos of the flow, heights both ways, and two winds
    // and three tracers both ways. In two transpositions, each rank keeps its own block. 15 times,
    // four ranks send their heights to rank 0. The heights of rank 3 pass through rank 2.
    let line = 48 * 2 * 8;
    let (rows_of, waves_of) = ([5, 5, 5, 5, 4], [10, 10, 10, 9, 9]);
    let kept: u64 = rows_of.iter().zip(waves_of).map(|(rows, waves)| rows * waves * 16).sum();
    let bytes = [90 * 4 * line * (1 + 2 + 10), 90 * 2 * (24 * line - kept), 15 * (19 + 5) * line];
    let longest = [5 * line, 5 * 10 * 16, 5 * line];
    for (row, name) in NAMES.iter().enumerate() {
        // With a relative bound, ranks also send each other their value ranges.
        let least = bytes.iter().sum::<u64>() as f64;
        let raw_bytes = number(row, "raw_bytes");
        assert!(raw_bytes >= least && (row == 7 || raw_bytes == least), "{name}: {raw_bytes}");
        for (at, kind) in ["halo", "all-to-all-v", "gather-v"].into_iter().enumerate() {
            let of_kind = &rows[row]["kinds"][at];
            assert_eq!(of_kind["kind"], kind);
            assert_eq!(of_kind["longest_bytes"], longest[at], "{name}, {kind}");
            assert!(of_kind["raw_bytes"].as_u64().unwrap() >= bytes[at], "{name}: {of_kind}");
            // Blocks are too short to be timed.
            let overhead = of_kind["overhead"].as_f64();
            assert_eq!(overhead.is_some(), kind == "halo", "{name}: {of_kind}");
            assert!(overhead.is_none_or(|part| part > 0.0 && part < 1.0), "{name}: {of_kind}");
        }
        let is_exact = row < 3;
        assert_eq!(rows[row]["has_bits_of_one_rank"], is_exact, "{name}");
        assert_eq!(number(row, "rms_m") == 0.0, is_exact, "{name}");
        assert!(number(row, "rms_m") < 100.0, "{name}: {}", rows[row]);
        let curve = rows[row]["curve"].as_array().unwrap();
        assert_eq!(curve.len(), 45, "{name}");
        assert!(rows[row]["grown"].is_null(), "{name}: the perturbed run stays close");
        assert!(!is_exact || rows[row]["passes"] == true, "{name}");
        // Messages are so short here that headers are a large part of them.
        let most = if is_exact { 0.06 } else { -0.3 };
        assert!(number(row, "size_change") < most, "{name}: {}", rows[row]);
    }
    let size =
        |name: &str| number(NAMES.iter().position(|known| *known == name).unwrap(), "size_change");
    let error =
        |name: &str| number(NAMES.iter().position(|known| *known == name).unwrap(), "rms_m");
    assert!(size("cam-both") < size("cam-lossy32") && size("cam-lossy32") < size("cam-inter"));
    assert_eq!(error("cam-both"), error("cam-lossy32"), "the same bits are dropped");
    assert!(error("cam-lossy40") > 30.0 * error("cam-lossy32"), "of bits dropped");
    assert!(error("cam-sp") < error("cam-lossy32"), "rounded, and not dropped");
    assert!(number(0, "mass_change").abs() < 1e-12, "{}", rows[0]);
    let perturbed = object["perturbed"]["rms_m"].as_f64().unwrap();
    assert!(perturbed > 0.0 && perturbed < 1e-8, "{perturbed}");
    assert!(rows[4]["passes"] == false && number(4, "worst") > 1e3, "{}", rows[4]);

    if draws {
        let svg = fs::read_to_string(plot).unwrap();
        assert!(svg.contains("cam-lossy40") && svg.contains("perturbed"));
        assert!(!svg.contains("cam-intra"));
    }
    for picture in ["climate-cam-sp.png", "climate-rel-1e-9-error.png", "overview.png"] {
        assert!(out.join(picture).is_file(), "{picture}");
    }
}

/// With a larger perturbation more rows pass, and a tighter bound gives smaller errors.
#[test]
fn the_verdict_is_by_the_perturbation_and_errors_by_the_bound() {
    let (_, rows) = rows(
        "--case mountain --shape 16x32 --levels 1 --steps 40 --days 2.2 --spin-up 0.5 --ranks 3 \
         --link none --repeat 2 --perturbation 1e-4 --bound rel:1e-7,rel:1e-11 --no-pictures \
         --json",
    );
    let number = |row: usize, name: &str| rows[row][name].as_f64().unwrap();
    assert_eq!(
        (&rows[7]["exchange"], &rows[8]["exchange"]),
        (&"rel:1e-7".into(), &"rel:1e-11".into())
    );
    assert!(number(7, "rms_m") > 100.0 * number(8, "rms_m"), "{rows:?}");
    assert!(number(7, "wire_bytes") < number(8, "wire_bytes"), "{rows:?}");
    for row in [0, 1, 2, 5, 8] {
        assert_eq!(rows[row]["passes"], true, "{}", rows[row]);
    }
}

#[test]
fn a_steady_flow_and_one_rank_have_their_tables() {
    let output = run("--case steady --shape 8x16 --levels 1 --steps 3 --days 0.3 --spin-up 0 \
                      --ranks 1 --no-pictures");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.starts_with("# 8x16 points, ranks: 1"), "{text}");
    assert!(text.contains("1 levels, 3 steps") && text.contains("2.2e-16"), "{text}");
    let is_row = |line: &&str| NAMES.contains(&line.split_whitespace().next().unwrap_or(""));
    let rows: Vec<&str> = text.lines().filter(is_row).collect();
    let names: Vec<&str> = rows.iter().map(|row| row.split_whitespace().next().unwrap()).collect();
    assert_eq!(names, [NAMES, NAMES].concat(), "{text}");
    // A single rank sends nothing, so nothing is lost.
    assert!(rows[NAMES.len()..].iter().all(|line| line.ends_with("passes")), "{text}");
}

/// With 8 columns, two of ten ranks hold no waves.
#[test]
fn jets_have_the_same_bits_on_ranks_that_hold_no_waves() {
    let (_, rows) = rows(
        "--shape 24x8 --levels 2 --steps 20 --days 1 --spin-up 0.5 --ranks 10 --link none \
         --gather-every 7 --no-pictures --json",
    );
    for row in &rows[..3] {
        assert_eq!(row["has_bits_of_one_rank"], true, "{row}");
        // At steps 7, 14 and 20, nine ranks send their heights.
        assert_eq!(row["kinds"][2]["n_messages"], 27, "{row}");
    }
}

/// The paper's results with the default arguments, but on one level. A last bit grows to another
/// weather, so SP and Lossy32 pass; Lossy40 leads to another climate.
#[test]
#[ignore = "half a minute; on demand"]
fn single_precision_and_lossy32_pass_and_lossy40_fails() {
    let (object, rows) = rows("--levels 1 --steps 6 --link none --no-pictures --json");
    let perturbed = object["perturbed"]["rms_m"].as_f64().unwrap();
    assert!(perturbed > 100.0 && object["grown_from_day"].as_f64().unwrap() < 30.0);
    for (name, row) in NAMES.iter().zip(&rows) {
        assert_eq!(row["passes"], *name != "cam-lossy40", "{row}");
    }
}

#[test]
fn what_is_no_grid_is_an_error_of_use() {
    for (args, says) in [
        ("--shape 64x128x2", "two numbers"),
        ("--shape 64x127", "even number"),
        ("--shape 2x16", "at least 4 rows"),
        ("--shape 8x16 --ranks 9", "ask for fewer"),
        ("--shape 99999x99999 --levels 9999", "smaller --shape"),
        ("--perturbation 0", "and below 1 is needed"),
        ("--bound rel:0", "rel:0"),
        ("--steps 0", "whole number"),
        ("--days 20000", "from 0 to 10000"),
        ("--spin-up=-1", "from 0 to 10000"),
        ("--days NaN", "from 0 to 10000"),
        ("--plot growth.txt", ".svg or .png"),
    ] {
        let output = run(args);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(2) && said.contains(says), "{args}: {said}");
        assert!(output.stdout.is_empty(), "{args}");
    }
}
