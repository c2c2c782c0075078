//! `foldwire codec` as users meet it: what the JSON holds, what the tables show, and exit codes.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

const WORK: &str = "work";

/// Runs the command in `folder`/work, so that no table of other compressors stands at its default
/// place.
fn codec(folder: &Path, args: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_foldwire"))
        .arg("codec")
        .args(args.split_whitespace())
        .current_dir(folder.join(WORK))
        .output()
        .expect("the command starts")
}

/// A folder with `holes.f32` (a wave with a NaN, an infinity and a run of a fill value) and
/// `wave.f64`.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join(WORK)).unwrap();
    let wave = |at: u16| (f64::from(at) * 2e-3).sin();
    let mut holes: Vec<f32> = (0..20_011).map(|at| wave(at) as f32).collect();
    holes[123] = f32::NAN;
    holes[7000] = f32::NEG_INFINITY;
    holes[12_000..12_345].fill(9.969_21e36);
    let holes: Vec<u8> = holes.iter().flat_map(|x| x.to_le_bytes()).collect();
    fs::write(folder.path().join(WORK).join("holes.f32"), holes).unwrap();
    let wave: Vec<u8> = (0..9000).flat_map(|at| wave(at).to_le_bytes()).collect();
    fs::write(folder.path().join(WORK).join("wave.f64"), wave).unwrap();
    folder
}

#[test]
fn json_holds_one_row_for_each_field_bound_and_level_and_every_promise_is_kept() {
    const KEYS: [&str; 24] = [
        "bound",
        "bound_abs",
        "codec",
        "combine_gbps",
        "decode_gbps",
        "dtype",
        "encode_gbps",
        "encoded_bytes",
        "field",
        "fold_gbps",
        "level",
        "max_err_over_bound",
        "memcpy_gbps",
        "mismatched_nonfinite",
        "n_bytes",
        "nrmse",
        "paths",
        "psnr_db",
        "ratio",
        "read_gbps",
        "refold_gbps",
        "threads",
        "values_over_bound",
        "verbatim_blocks",
    ];
    let folder = folder();
    let output = codec(
        folder.path(),
        "--field holes.f32 wave.f64 --bound abs:1e-3 --bound abs:0.01 --level scalar --repeat 1 --json",
    );
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let object: Value = serde_json::from_slice(&output.stdout).expect("stdout is one JSON object");
    let rows = object["rows"].as_array().unwrap();
    let text = |row: &Value, key: &str| row[key].as_str().unwrap().to_owned();
    let names: Vec<_> = rows.iter().map(|row| (text(row, "field"), text(row, "bound"))).collect();
    let expected = [
        ("holes.f32", "abs:0.001"),
        ("holes.f32", "abs:0.01"),
        ("wave.f64", "abs:0.001"),
        ("wave.f64", "abs:0.01"),
    ];
    assert_eq!(names, expected.map(|(field, bound)| (field.to_owned(), bound.to_owned())));
    for row in rows {
        let keys: BTreeSet<_> = row.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(keys, BTreeSet::from(KEYS));
        let number = |key: &str| row[key].as_f64().unwrap();
        assert!(number("ratio") > 1.0, "{row}");
        assert!((number("n_bytes") / number("encoded_bytes") - number("ratio")).abs() < 1e-9);
        assert!((0.5..=1.0).contains(&number("max_err_over_bound")), "{row}");
        assert_eq!((number("values_over_bound"), number("mismatched_nonfinite")), (0.0, 0.0));
        for speed in ["encode", "decode", "fold", "refold", "combine", "memcpy", "read"] {
            assert!(number(&format!("{speed}_gbps")) > 0.0, "{row}");
        }
        let n_values = number("n_bytes") / if text(row, "dtype") == "f32" { 4.0 } else { 8.0 };
        let blocks: f64 =
            row["paths"].as_object().unwrap().values().filter_map(Value::as_f64).sum();
        assert_eq!(blocks, (n_values / 32.0).ceil());
        assert_eq!(number("verbatim_blocks") > 0.0, text(row, "field") == "holes.f32");
        assert_eq!(text(row, "level"), "scalar");
    }
}

#[test]
fn tables_show_speed_and_error_and_the_comparison_where_others_are_known() {
    let folder = folder();
    let head = "field,rel_bound,abs_bound,peer,compressed_bytes,ratio,compress_GBps,decompress_GBps,points_over_bound,max_error_over_bound,psnr_dB\n";
    let row = "wave.f64,0.001,0.002,SZp-b32,1000,2.0,0.5,1.0,0,1.0,60\n";
    fs::write(folder.path().join(WORK).join("others.csv"), format!("{head}{row}")).unwrap();
    let args = "--field wave.f64 --bound rel:1e-3 --repeat 1";
    for (peers, n_rows) in [("", 2), ("--peers others.csv", 3)] {
        let output = codec(folder.path(), &format!("{args} {peers}"));
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{errors}");
        assert_eq!(errors.contains("--peers"), peers.is_empty(), "{errors}");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let rows = text.lines().filter(|line| line.trim_start().starts_with("wave ")).count();
        assert_eq!(rows, n_rows, "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 170), "{text}");
    }
}

#[test]
fn a_plot_has_a_curve_for_each_codec_and_times_nothing() {
    let folder = folder();
    let args = "--field holes.f32 wave.f64 --codec raw,fz-light,zfp-rate,xor-lz --plot rate.svg";
    let output = codec(folder.path(), &format!("{args} --json"));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let object: Value = serde_json::from_slice(&output.stdout).expect("stdout is one JSON object");
    assert_eq!(object["rows"].as_array().map(Vec::len), Some(0));
    let points = object["curves"].as_array().unwrap();
    let of = |field: &str, codec: &str| -> Vec<&Value> {
        points.iter().filter(|row| row["field"] == field && row["codec"] == codec).collect()
    };
    for (field, bits) in [("holes.f32", 32.0), ("wave.f64", 64.0)] {
        let exact = of(field, "raw");
        assert_eq!((exact.len(), &exact[0]["psnr_db"]), (1, &Value::Null));
        // With its header.
        assert!((bits..bits + 0.1).contains(&exact[0]["bits"].as_f64().unwrap()));
        let bounded = of(field, "fz-light");
        assert!(bounded.len() > 8, "{points:?}");
        for pair in bounded.windows(2) {
            let [coarse, fine] = [pair[0], pair[1]];
            for key in ["bits", "psnr_db"] {
                assert!(coarse[key].as_f64() <= fine[key].as_f64(), "{coarse} {fine}");
            }
        }
        let fixed = of(field, "zfp-rate");
        assert_eq!(fixed.len(), 8);
        assert!(fixed.iter().all(|row| row["bound"].is_null() && row["setting"].is_u64()));
        let name = format!("rate-{field}.svg");
        let svg = fs::read_to_string(folder.path().join(WORK).join(&name)).unwrap();
        assert!(errors.contains(&name), "{errors}");
        for words in ["PSNR, dB", "bits a value", "fz-light", "xor-lz", field] {
            assert!(svg.contains(words), "{name}: {words}");
        }
    }
    let text = codec(folder.path(), "--field wave.f64 --plot one.png").stdout;
    let text = String::from_utf8(text).unwrap();
    assert!(text.starts_with("Rate and distortion") && !text.contains("GB/s"), "{text}");
    let png = fs::read(folder.path().join(WORK).join("one.png")).unwrap();
    assert!(png.starts_with(b"\x89PNG"));
}

#[test]
fn errors_of_use_exit_2_and_say_what_to_do() {
    let folder = folder();
    for (args, hint) in [
        ("--field wave.f64 --bound rel:1e-3 --level sse9", "avx512"),
        ("--field wave.f64 none.f32 --bound rel:1e-3", "no such file"),
        ("--field wave.f64 --bound abs:0", "above 0"),
        ("--field wave.f64 --bound rel:0", "above 0"),
        ("--bound rel:1e-3", ".npy"),
    ] {
        let output = codec(folder.path(), args);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args}: {errors}");
        assert!(errors.contains(hint), "{args}: {errors}");
        assert!(output.stdout.is_empty(), "{args}");
    }
}
