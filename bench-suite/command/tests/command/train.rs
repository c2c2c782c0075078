//! Tests of `foldwire train`.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

fn run(args: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_foldwire"));
    command.arg("train").args(args.split_whitespace()).output().unwrap()
}

/// A smooth field of 24 × 32 values.
fn field(folder: &Path) -> String {
    let value = |at: u16| {
        let (y, x) = (f32::from(at / 32) * 0.2, f32::from(at % 32) * 0.15);
        280.0 + 9.0 * y.sin() * x.cos() + 3.0 * (x - y).sin()
    };
    let bytes: Vec<u8> = (0..24 * 32).flat_map(|at| value(at).to_le_bytes()).collect();
    let path = folder.join("warm_24x32.f32");
    fs::write(&path, bytes).unwrap();
    path.to_str().unwrap().to_owned()
}

/// Success of the command also means that all ranks ended with the same bits.
#[test]
fn compressed_gradients_cost_fewer_bytes_and_train_as_well() {
    let folder = tempfile::tempdir().unwrap();
    let (field, plot) = (field(folder.path()), folder.path().join("loss.svg"));
    let args = format!(
        "--field {field} --ranks 3 --steps 60 --batch 32 --width 24 --link none \
         --bound rel:1e-2,rel:1e-3 --repeat 2 --json"
    );
    let has_plots = cfg!(feature = "plots");
    let args = if has_plots { format!("{args} --plot {}", plot.display()) } else { args };
    let output = run(&args);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let object: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(object["about"].as_str().unwrap().contains("warm_24x32.f32, 24x32"), "{object}");
    // Weights and biases of the layers 32 → 24 → 24 → 1.
    assert_eq!(object["n_values"], 33 * 24 + 25 * 24 + 25);
    let rows = object["rows"].as_array().unwrap();
    let exchanges: Vec<&str> = rows.iter().map(|row| row["exchange"].as_str().unwrap()).collect();
    assert_eq!(exchanges, ["raw", "rel:0.01", "rel:0.001"]);
    let number = |row: usize, name: &str| rows[row][name].as_f64().unwrap();
    for row in 0..3 {
        assert_eq!(number(row, "loss_start"), number(0, "loss_start"));
        assert!(number(row, "loss_end") < 0.2 * number(row, "loss_start"), "{rows:?}");
        assert!(number(row, "exchange_s") < number(row, "step_s"), "{rows:?}");
        assert_eq!(rows[row]["curve"].as_array().unwrap().len(), 30);
    }
    assert!(number(1, "wire_bytes") < number(2, "wire_bytes"), "{rows:?}");
    assert!(number(2, "wire_bytes") < number(0, "wire_bytes"), "{rows:?}");
    assert!((number(2, "loss_of_raw") - 1.0).abs() < 0.15, "{rows:?}");
    if has_plots {
        let svg = fs::read_to_string(plot).unwrap();
        assert!(svg.contains("rel:0.001") && svg.contains("loss"), "{svg}");
    }
}

/// With a bound as wide as the value range, nearest rounding turns most gradients into zeros.
/// Unbiased rounding and feedback must both halve the loss.
#[test]
fn rounding_without_bias_and_feedback_learn_where_nearest_rounding_does_not() {
    let folder = tempfile::tempdir().unwrap();
    let field = field(folder.path());
    for dtype in ["f32", "bf16"] {
        let args = format!(
            "--field {field} --ranks 3 --steps 80 --batch 32 --width 24 --link none --bound rel:1 \
             --rounding nearest,unbiased --feedback no,yes --dtype {dtype} --json"
        );
        let output = run(&args);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let object: Value = serde_json::from_slice(&output.stdout).unwrap();
        let rows = object["rows"].as_array().unwrap();
        let of = |name: &str| rows.iter().map(|row| row[name].clone()).collect::<Vec<_>>();
        assert_eq!(
            of("exchange"),
            ["raw", "rel:1", "rel:1 feedback", "rel:1 unbiased", "rel:1 unbiased feedback"]
        );
        assert_eq!(of("rounding"), ["nearest", "nearest", "nearest", "unbiased", "unbiased"]);
        assert_eq!(of("feedback"), [false, false, true, false, true]);
        assert!(of("dtype").iter().all(|found| found == dtype));
        let losses: Vec<f64> = of("loss_end").iter().map(|loss| loss.as_f64().unwrap()).collect();
        // Row 1 rounds to nearest without feedback.
        for at in 2..5 {
            assert!(losses[at] < 0.5 * losses[1], "{dtype}: {losses:?}");
        }
    }
}

/// Each sample counts once, even if the ranks' shares of a batch differ.
#[test]
fn ranks_learn_together_what_one_learns_alone() {
    let folder = tempfile::tempdir().unwrap();
    let field = field(folder.path());
    let raw = |ranks: usize| -> Value {
        let args = format!("--field {field} --ranks {ranks} --steps 20 --batch 8 --width 8 --json");
        let output = run(&format!("{args} --link none --bound rel:1e-3"));
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice::<Value>(&output.stdout).unwrap()["rows"][0].take()
    };
    let (alone, together) = (raw(1), raw(5));
    assert_eq!(alone["wire_bytes"], 0);
    let [alone, together] = [alone, together].map(|row| -> Vec<f64> {
        let curve = row["curve"].as_array().unwrap().iter();
        curve.map(|point| point["loss"].as_f64().unwrap()).collect()
    });
    for (alone, together) in alone.iter().zip(&together) {
        assert!((alone - together).abs() < 1e-3 * alone, "{alone}, {together}");
    }
}

#[test]
fn the_table_has_a_row_for_each_exchange() {
    let folder = tempfile::tempdir().unwrap();
    let field = field(folder.path());
    let output = run(&format!("--field {field} --ranks 2 --steps 20 --batch 9 --width 8"));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].starts_with("# first plane of warm_24x32.f32"), "{text}");
    // The rows follow the line about the run and the table's header.
    let rows: Vec<&str> =
        lines[5..].iter().filter_map(|line| line.split_whitespace().next()).collect();
    assert_eq!(rows, ["raw", "rel:0.01", "rel:0.001"], "{text}");
}

#[test]
fn arguments_that_prevent_training_are_usage_errors() {
    let folder = tempfile::tempdir().unwrap();
    let flat = folder.path().join("flat.f32");
    fs::write(&flat, [0; 400]).unwrap();
    for (args, expected) in [
        ("--ranks 8 --batch 7", "larger --batch"),
        ("--steps 0", "whole number"),
        ("--bound rel:0", "rel:0"),
        ("--rounding up", "possible values: nearest, unbiased"),
        ("--plot loss.txt", ".svg or .png"),
        ("--field none.f32", "no such file"),
        ("--ranks 1000 --batch 1000 --width 10000", "smaller --width"),
        (&format!("--field {}", flat.display()), "one dimension"),
    ] {
        let output = run(args);
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(2) && message.contains(expected), "{args}: {message}");
        assert!(output.stdout.is_empty(), "{args}");
    }
}
