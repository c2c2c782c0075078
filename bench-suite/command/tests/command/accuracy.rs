//! Tests of `foldwire accuracy`: errors against stated and predicted ones, tables, JSON, pictures,
//! exit codes.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

fn accuracy(folder: &Path, args: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_foldwire"))
        .current_dir(folder)
        .arg("accuracy")
        .args(args.split_whitespace())
        .output()
        .expect("the command starts")
}

/// The rows on stdout.
fn rows(args: &str) -> Vec<Value> {
    let folder = tempfile::tempdir().unwrap();
    let output = accuracy(folder.path(), &format!("{args} --json"));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{args}: {errors}");
    let object: Value = serde_json::from_slice(&output.stdout).expect("stdout is one JSON object");
    object["rows"].as_array().expect("rows").clone()
}

fn number(row: &Value, key: &str) -> f64 {
    let value = key.split('/').fold(row, |value, key| &value[key]);
    value.as_f64().unwrap_or_else(|| panic!("{key} in {row}"))
}

/// Errors of sums, with any pipeline and schedule. None exceeds the worst case. Their distribution
/// is that of a uniform quantiser, around 0.
#[test]
fn errors_of_sums_are_within_the_worst_case_and_as_the_theory_of_uniform_errors_says() {
    let rows = rows("--ranks 2,8,13 --count 3000");
    let schedules = ["ring", "recursive-doubling", "double-tree", "binomial"];
    for row in &rows {
        let (worst, stated) = (number(row, "worst"), number(row, "stated"));
        assert!(worst <= stated + number(row, "rounding"), "{row}");
        // The worst case is larger if values are encoded more often than there are ranks: in
        // per-hop with recursive doubling.
        assert!(stated >= number(row, "ranks"), "{row}");
        let [line, of_uniform] = [number(row, "line"), number(row, "uniform/line")];
        assert!((0.93..1.07).contains(&(line / of_uniform)), "{row}");
        let deviation = number(row, "deviation");
        let of_mean = deviation / 3000_f64.sqrt();
        assert!(number(row, "bias").abs() < 5.0 * of_mean, "{row}");
        assert!((0.95..1.05).contains(&(deviation / number(row, "uniform/deviation"))), "{row}");
        assert!((0.93..0.98).contains(&number(row, "within_uniform")), "{row}");
        assert!(number(row, "within_zccl") < 0.85, "{row}");
        assert_eq!(number(row, "n_others"), 0.0);
        assert_eq!(row["histogram"].is_null(), row["ranks"] != 13 || row["schedule"] != "ring");
    }
    for n in [2, 8, 13] {
        for pipeline in ["per-hop", "compress-once", "homomorphic", "fused"] {
            let is_its = |row: &&Value| row["ranks"] == n && row["pipeline"] == pipeline;
            let its: Vec<&Value> = rows.iter().filter(is_its).collect();
            let names = its.iter().map(|row| row["schedule"].as_str().unwrap());
            assert_eq!(names.take(4).collect::<Vec<_>>(), schedules);
            assert_eq!(its.iter().filter(|row| row["is_chosen"] == true).count(), 1);
        }
    }
}

#[test]
fn averages_shrink_with_ranks_and_extremes_err_as_one_operand() {
    let of = |op: &str| {
        rows(&format!("--op {op} --ranks 4,64 --count 2000 --pipeline fused --schedule ring"))
    };
    let averages = of("avg");
    assert_eq!(averages.len(), 2);
    for row in &averages {
        let expected = number(row, "zccl/deviation") * 3.0_f64.sqrt();
        assert!((0.9..1.1).contains(&(number(row, "deviation") / expected)), "{row}");
        assert_eq!(number(row, "stated"), 1.0);
    }
    assert!(number(&averages[1], "worst") < 0.5 * number(&averages[0], "worst"));
    for row in of("min").iter().chain(&of("max")) {
        assert!(number(row, "worst") <= 1.0 + number(row, "rounding"), "{row}");
        assert!((0.8..1.0).contains(&number(row, "line")), "{row}");
    }
}

/// Tests that memory is bounded: frames are as short as a schedule allows, and long enough.
#[test]
fn every_schedule_and_codec_reduces_among_more_ranks_than_values() {
    for codec in ["fz-light", "szx", "ompszp", "cuszp", "fz-static"] {
        let args = format!("--ranks 129 --count 100 --codec {codec} --schedule all");
        let rows = rows(&format!("{args} --pipeline fused --op avg"));
        assert_eq!(rows.len(), 9, "{codec}");
    }
}

/// Many ranks on one thread, with a real file that has holes.
#[test]
fn many_ranks_reduce_a_field_with_holes() {
    let folder = tempfile::tempdir().unwrap();
    let mut values: Vec<f64> = (0..5000).map(|at| (f64::from(at) * 0.01).sin()).collect();
    values[77] = f64::NAN;
    let bytes: Vec<u8> = values.iter().flat_map(|x| x.to_le_bytes()).collect();
    fs::write(folder.path().join("holes.f64"), bytes).unwrap();
    let args =
        "--field holes.f64 --ranks 512 --count 200 --schedule chosen --pipeline fused,per-hop";
    let output = accuracy(folder.path(), args);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("200 values of f64 a rank by fz-light within rel:0.001"), "{text}");
    let rows: Vec<_> = text.lines().filter(|line| line.trim_start().starts_with("512 ")).collect();
    assert_eq!(rows.len(), 2, "{text}");
    assert!(rows.iter().all(|row| row.contains(" * ")), "{text}");
}

#[cfg(feature = "plots")]
#[test]
fn pictures_have_a_panel_for_each_schedule_and_for_each_pipeline() {
    let folder = tempfile::tempdir().unwrap();
    let args = "--ranks 2:8 --count 500 --pipeline fused,per-hop --schedule ring,chain \
                --plot growth.svg --histogram bars.svg";
    let output = accuracy(folder.path(), args);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    assert!(errors.contains("growth.svg") && errors.contains("bars.svg"), "{errors}");
    let read = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap();
    let growth = read("growth.svg");
    for words in ["ring", "chain", "worst: fused", "95.44 %: per-hop", "ZCCL", "|error| / bound"] {
        assert!(growth.contains(words), "{words}");
    }
    // 3 numbers of ranks, 2 schedules, 2 pipelines and 2 curves, and 4 marks in the legend.
    assert_eq!(growth.matches("<circle").count(), 3 * 2 * 2 * 2 + 4);
    let bars = read("bars.svg");
    for words in ["8 ranks, ring", "fused", "per-hop", "uniform", "density"] {
        assert!(bars.contains(words), "{words}");
    }
}

#[test]
fn help_has_examples_and_errors_of_use_exit_2() {
    let folder = tempfile::tempdir().unwrap();
    let output = accuracy(folder.path(), "--help");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && text.contains("foldwire accuracy --op avg"), "{text}");
    for (args, hint) in [
        ("--ranks 1", "from 2"),
        ("--codec truncate", "keeps no bound"),
        ("--codec raw", "keeps no bound"),
        ("--dtype bf16 --codec szx", "keeps no bound"),
        ("--schedule bruck", "no all-reduce"),
        ("--op prod", "avg"),
        ("--bound rel:0", "above 0"),
        ("--plot errors.pdf", ".svg"),
        ("--field none.f32", "no such file"),
    ] {
        let output = accuracy(folder.path(), args);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args}: {errors}");
        assert!(errors.contains(hint), "{args}: {errors}");
        assert!(output.stdout.is_empty(), "{args}");
    }
}
