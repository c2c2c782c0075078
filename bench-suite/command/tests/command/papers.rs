//! Tests of `foldwire papers`: data sets in SDRBench's layout, sums, errors, pictures.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use crate::common::assert_refused;
use serde_json::Value;

fn papers(folder: &Path, args: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_foldwire"))
        .arg("papers")
        .args(args.split_whitespace())
        .current_dir(folder)
        .output()
        .expect("the command starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn object(output: &Output) -> Value {
    assert!(output.status.success(), "{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("stdout is one JSON object")
}

/// Writes a wave of this many values; `phase` makes fields of a set differ.
fn put(path: &Path, n_values: u16, phase: f32) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let wave = |at: u16| (f32::from(at) * 0.01 + phase).sin() * (1.0 + phase);
    let bytes: Vec<u8> = (0..n_values).flat_map(|at| wave(at).to_le_bytes()).collect();
    fs::write(path, bytes).unwrap();
}

/// Small files in the layout of SDRBench's archives, and one of no set.
fn data_sets() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    for (nth, field) in ["CLOUD", "Q", "T"].into_iter().enumerate() {
        let name = format!("SDRBENCH-CESM-ATM-2x18x360/{field}_1_2_18_360.f32");
        put(&at(&name), 2 * 18 * 360, nth as f32);
    }
    put(&at("SDRBENCH-EXASKY-NYX-16x16x16/temperature.f32"), 4096, 0.0);
    put(&at("SDRBENCH-EXASKY-NYX-16x16x16/velocity_x.f32"), 4096, 1.0);
    put(&at("SDRBENCH-Hurricane-ISABEL-10x50x50/10x50x50/Uf48.bin.f32"), 25_000, 0.0);
    put(&at("rtm/449x449x235/snapshot_1.f32"), 5000, 0.0);
    put(&at("other/echam_10x10.f32"), 100, 0.0);
    folder
}

#[test]
fn sdrbenchs_layout_gives_the_papers_tables_beside_their_figures() {
    let folder = data_sets();
    let output = papers(
        folder.path(),
        "tables --data . --bound rel:1e-3 --threads 2 --repeat 1 --out papers.json",
    );
    let (tables, notes) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{notes}");
    for title in ["ZCCL, table I:", "ZCCL, table IV:", "hZCCL, table III:", "hZCCL, table VI:"] {
        assert!(tables.contains(title), "{title} is not in\n{tables}");
    }
    assert!(notes.contains("CESM-ATM of 2x18x360 is not the papers' size"), "{notes}");
    let json = fs::read_to_string(folder.path().join("papers.json")).unwrap();
    let object: Value = serde_json::from_str(&json).unwrap();
    let rows = object["rows"].as_array().unwrap();
    let find = |table: &str, set: &str, system: &str, metric: &str| {
        let is_it = |row: &&Value| {
            let name = format!("{}-{}", row["paper"], row["table"]).replace('"', "");
            name == table
                && (row["set"] == set && row["system"] == system && row["metric"] == metric)
        };
        rows.iter().find(is_it).unwrap_or_else(|| panic!("{table} {set} {system} {metric}"))
    };
    // Dimensions are those of the names, also of the folders'.
    for (set, dims, n_fields, ratio) in [
        ("CESM-ATM", "2x18x360", 3, 12.61),
        ("NYX", "16x16x16", 2, 14.97),
        ("Hurricane", "10x50x50", 1, 13.65),
    ] {
        let row = find("ZCCL-III", set, "fZ-light", "ratio");
        assert_eq!((&row["dims"], &row["fields"]), (&dims.into(), &n_fields.into()));
        assert_eq!(row["published"], ratio);
        assert_eq!(row["std"].is_null(), n_fields == 1, "{row}");
        assert!(row["mean"].as_f64().unwrap() > 1.0);
    }
    // hZCCL has a set that ZCCL lacks, and a published deviation.
    let row = find("hZCCL-III", "RTM 1", "ompSZp", "NRMSE");
    assert_eq!((&row["published"], &row["published_std"]), (&3.01e-4.into(), &2e-4.into()));
    assert!(find("ZCCL-III", "RTM 1", "fZ-light", "ratio")["published"].is_null());
    // The sum of a field and itself has its error.
    let nrmse = |table, system| find(table, "NYX", system, "NRMSE")["mean"].as_f64().unwrap();
    let (one, sum) = (nrmse("ZCCL-IV", "fZ-light"), nrmse("hZCCL-VI", "hZ-dynamic"));
    assert!((one / sum - 1.0).abs() < 1e-3, "{one} {sum}");
    let paths = ["both constant", "path 2", "path 3", "neither constant"];
    let shares = paths.map(|path| find("hZCCL-V", "CESM-ATM", "hZ-dynamic", path)["mean"].clone());
    assert!((shares.iter().filter_map(Value::as_f64).sum::<f64>() - 100.0).abs() < 1e-6);
    assert!(!rows.iter().any(|row| row["set"] == "Hurricane" && row["table"] == "V"));
}

#[test]
fn a_folder_of_one_set_and_some_tables_need_no_timing() {
    let folder = data_sets();
    let args = "tables --data SDRBENCH-EXASKY-NYX-16x16x16 --table ZCCL-III,ZCCL-IV";
    let output = papers(folder.path(), args);
    let tables = text(&output.stdout);
    assert!(output.status.success() && !tables.contains("GB/s"), "{tables}");
    assert_eq!(tables.lines().filter(|line| line.contains("16x16x16")).count(), 2 * 2 * 4);
    assert!(tables.contains("107.83") && !tables.contains("CESM"), "{tables}");
}

#[test]
fn what_cannot_be_done_is_said() {
    let folder = data_sets();
    assert_refused(
        |args| papers(folder.path(), args),
        &[
            ("tables --data other", "no file is named"),
            ("tables --data . --bound abs:1", "relative"),
            ("sums --field other/none.f32", "no such file"),
            ("sums --codec mpc --field other/echam_10x10.f32", "exact"),
            ("errors --codec demote", "not for f32"),
            ("pictures --ratio 0.5", "above 1"),
        ],
    );
}

#[test]
fn sums_show_each_path_alone_and_both_ways_of_adding() {
    let folder = tempfile::tempdir().unwrap();
    put(&folder.path().join("a.f32"), 8192, 0.0);
    let args = "sums --field a.f32 --bound rel:1e-3 --codec fz-light,szx --repeat 1";
    let object = object(&papers(folder.path(), &format!("{args} --json")));
    let rows = object["rows"].as_array().unwrap();
    let sums = rows[0]["sums"].as_array().unwrap();
    let path = |operands: &str, path: &str| {
        let sum = sums.iter().find(|sum| sum[0] == operands).unwrap();
        sum[1]["paths"][path].as_u64().unwrap()
    };
    let n_blocks = 8192 / 32;
    assert_eq!(path("x + x", "neither_constant") + path("x + x", "both_constant"), n_blocks);
    assert_eq!(path("x + c", "left"), path("c + x", "right"));
    assert_eq!((path("c + c", "both_constant"), path("x + c", "neither_constant")), (n_blocks, 0));
    let of = |way: &str, key: &str| sums[0][1][way][key].as_f64().unwrap();
    assert!(of("homomorphic", "max_err") > 0.0 && of("by_floats", "gbps") > 0.0);
    // SZx does not add encodings.
    assert!(rows[1]["sums"][0][1]["homomorphic"].is_null());
    let tables = text(&papers(folder.path(), args).stdout);
    assert!(tables.contains("STREAM") && tables.contains("by floats"), "{tables}");
}

#[test]
fn errors_are_distributed_within_the_bound() {
    let folder = tempfile::tempdir().unwrap();
    put(&folder.path().join("a_8x1024.f32"), 8192, 0.0);
    let output = papers(folder.path(), "errors --field a_8x1024.f32 --json");
    let object = object(&output);
    let rows = object["rows"].as_array().unwrap();
    let codecs: Vec<_> = rows.iter().map(|row| row["codec"].as_str().unwrap()).collect();
    assert!(codecs[0] == "szx" && codecs[1].starts_with("zfp-rate:") && codecs[2] == "fz-light");
    for row in rows {
        assert_eq!(row["within_bound"], 1.0, "{row}");
        assert!(row["deviation"].as_f64().unwrap() > 0.0 && row["ratio"].as_f64().unwrap() > 1.0);
    }
}

#[test]
fn pictures_show_the_field_at_equal_ratios() {
    let folder = tempfile::tempdir().unwrap();
    put(&folder.path().join("a_64x128.f32"), 8192, 0.0);
    let args = "pictures --field a_64x128.f32 --ratio 6 --codec fz-light,dense --out equal --json";
    let object = object(&papers(folder.path(), args));
    for row in object["rows"].as_array().unwrap() {
        assert!((row["ratio"].as_f64().unwrap() / 6.0 - 1.0).abs() < 0.1, "{row}");
    }
    for picture in ["exact", "fz-light", "dense-error", "overview"] {
        assert!(folder.path().join(format!("equal/{picture}.png")).is_file(), "{picture}");
    }
}

#[cfg(feature = "plots")]
#[test]
fn a_plot_has_a_histogram_of_each_codec() {
    let folder = tempfile::tempdir().unwrap();
    put(&folder.path().join("a.f32"), 8192, 0.0);
    let output = papers(folder.path(), "errors --field a.f32 --plot errors.svg");
    assert!(output.status.success(), "{}", text(&output.stderr));
    let plot = fs::read_to_string(folder.path().join("errors.svg")).unwrap();
    assert!(["szx, ratio", "zfp-rate:", "fz-light, ratio"].iter().all(|name| plot.contains(name)));
}
