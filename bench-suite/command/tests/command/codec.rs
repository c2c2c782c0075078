//! Tests of `foldwire codec`: JSON, tables, and exit codes.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::common::assert_refused;
use serde_json::Value;

const WORK: &str = "work";

/// Runs the command in `folder`/work, so that there is no table of other compressors at its default
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
        "--field holes.f32 wave.f64 --bound abs:1e-3 --bound abs:0.01 --level scalar --repeat 1 \
        --json",
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
    let head = "field,rel_bound,abs_bound,peer,compressed_bytes,ratio,compress_GBps,\
                decompress_GBps,points_over_bound,max_error_over_bound,psnr_dB\n";
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
fn ratios_have_a_row_for_each_field_and_bound() {
    let folder = folder();
    let ratios = |more: &str| {
        let output = codec(folder.path(), &format!("--field wave.f64 --ratios {more}"));
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let text = ratios("");
    assert!(ratios("--shape find --bound rel:1e-3").contains("wave.f64"));
    let rows: Vec<_> = text.lines().filter(|line| line.contains("wave.f64")).collect();
    assert_eq!(rows.len(), 4, "{text}");
    for bound in ["rel:0.01", "rel:0.001", "rel:1e-4", "rel:1e-5"] {
        assert!(rows.iter().any(|row| row.contains(bound)), "{text}");
    }
    assert!(text.contains("zfp-abs") && text.contains("100 Mbit/s"), "{text}");
}

#[cfg(feature = "plots")]
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
        // The rate includes the header.
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
    let cases = [
        ("--field wave.f64 --bound rel:1e-3 --level sse9", "avx512"),
        ("--field wave.f64 none.f32 --bound rel:1e-3", "no such file"),
        ("--field wave.f64 --bound abs:0", "above 0"),
        ("--field wave.f64 --bound rel:0", "above 0"),
        ("--bound rel:1e-3", ".npy"),
        ("--field wave.f64 --bound rel:2", "range"),
        ("--field wave.f64 --bound abs:1 --codec dense --shape 90x99", "9000 values, but --shape"),
        ("--field wave.f64 --bound abs:1 --shape 90x100", "--codec dense"),
        ("--field wave.f64 --bound abs:1 --predictor 2d", "--codec dense"),
        ("--field . --bound abs:1", "folder"),
        ("--field /dev/null --bound abs:1", "f32:PATH"),
        ("--field f32:/dev/null --bound abs:1", "empty"),
    ];
    assert_refused(|args| codec(folder.path(), args), &cases);
}

/// Unsupported codecs are reported, and never give an empty table with exit code 0.
#[test]
fn a_codec_that_is_not_for_the_type_is_an_error_that_names_others() {
    let folder = folder();
    let put =
        |name: &str, bytes: &[u8]| fs::write(folder.path().join(WORK).join(name), bytes).unwrap();
    put("half.f16", &[0x00, 0x3c, 0x00, 0x3e].repeat(100));
    let cases = [
        ("--field half.f16 --codec dense", "dense is not for f16; for f16 there are raw, fz-light"),
        ("--field holes.f32 --codec demote", "demote is not for f32; for f32 there are raw"),
        ("--field holes.f32 --codec truncate:23", "a setting from 1 to 22, not 23"),
        ("--field holes.f32 --codec zfp-rate:33", "a setting from 1 to 32, not 33"),
        ("--field wave.f64 holes.f32 --codec raw,truncate:40", "holes.f32: codec truncate on f32"),
    ];
    assert_refused(|args| codec(folder.path(), &format!("{args} --bound rel:1e-3")), &cases);
    // With `all`, the supported codecs are measured, and a note names the others.
    let output = codec(folder.path(), "--field half.f16 --codec all --bound rel:1e-3 --repeat 1");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && !output.stdout.is_empty(), "{errors}");
    assert!(errors.contains("half.f16: not for f16:") && errors.contains("dense"), "{errors}");
}

#[test]
fn a_fill_value_that_is_named_does_not_set_the_range() {
    let folder = folder();
    let args = "--field holes.f32 --bound rel:1e-3 --repeat 1 --json --fill 9.96921e36";
    let output = codec(folder.path(), args);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && !errors.contains("warning"), "{errors}");
    let object: Value = serde_json::from_slice(&output.stdout).expect("stdout is one JSON object");
    let bound = object["rows"][0]["bound_abs"].as_f64().unwrap();
    assert!((bound - 2e-3).abs() < 1e-6, "{bound}");
}

#[test]
fn a_fill_value_that_sets_the_range_is_warned_of() {
    let folder = folder();
    let output = codec(folder.path(), "--field holes.f32 wave.f64 --bound rel:1e-3 --repeat 1");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let warnings: Vec<_> = said.lines().filter(|line| line.contains("warning")).collect();
    assert!(
        matches!(warnings[..], [one] if one.contains("holes.f32: the value 9.969209")),
        "{said}"
    );
}

/// 3e38 + 3e38 is infinite in `f32` with any codec.
#[test]
fn sums_that_overflow_the_type_break_no_promise() {
    let folder = folder();
    let wave = |at: u16| 3.4e38 * (f64::from(at) * 2e-3).sin();
    let large: Vec<u8> = (0..9000).flat_map(|at| (wave(at) as f32).to_le_bytes()).collect();
    fs::write(folder.path().join(WORK).join("large.f32"), large).unwrap();
    let huge: Vec<u8> = (0..9000).flat_map(|at| (wave(at) * 5e269).to_le_bytes()).collect();
    fs::write(folder.path().join(WORK).join("huge.f64"), huge).unwrap();
    let output = codec(
        folder.path(),
        "--field large.f32 huge.f64 --codec raw,fz-light,szx --bound rel:1e-3 --repeat 1",
    );
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// A pipe has no length, and its data have no name.
#[cfg(unix)]
#[test]
fn pipes_are_read_to_their_end() {
    let folder = folder();
    let work = folder.path().join(WORK);
    let raw = fs::read(work.join("holes.f32")).unwrap();
    let dict = "{'descr': '<f4', 'fortran_order': False, 'shape': (20011,), }\n";
    let start = [0x93, b'N', b'U', b'M', b'P', b'Y', 1, 0, dict.len() as u8, 0];
    let npy = [&start[..], dict.as_bytes(), &raw].concat();
    let piped = |field: &str, bytes: &[u8]| {
        let mut child = Command::new(env!("CARGO_BIN_EXE_foldwire"))
            .args(["codec", "--bound", "abs:1e-3", "--repeat", "1", "--field", field])
            .current_dir(&work)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // A command that refuses its arguments does not read the pipe.
        let _ = child.stdin.take().unwrap().write_all(bytes);
        child.wait_with_output().unwrap()
    };
    for (field, bytes) in [("f32:-", &raw), ("-", &npy), ("/dev/stdin", &npy)] {
        let output = piped(field, bytes);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(text.contains("stdin"), "{text}");
    }
    for (field, bytes, hint) in [
        ("-", &raw[..], "f32:PATH"),
        ("f32:-", &raw[..raw.len() - 1], "no multiple of 4"),
        ("f32:-", &[], "empty"),
        ("-", &npy[..npy.len() - 4], "shorter than its header"),
        ("-", &[&npy[..], &[0]].concat(), "a file of its own"),
    ] {
        let output = piped(field, bytes);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{errors}");
        assert!(errors.contains(hint) && output.stdout.is_empty(), "{errors}");
    }
    // A named pipe whose name specifies the type.
    let made = Command::new("mkfifo").arg(work.join("pipe.f32")).status().unwrap();
    assert!(made.success());
    let writer = std::thread::spawn({
        let pipe = work.join("pipe.f32");
        move || fs::write(pipe, raw).unwrap()
    });
    let output = codec(folder.path(), "--field pipe.f32 --bound abs:1e-3 --repeat 1");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    writer.join().unwrap();
}

/// A field without a finite value has no range, and is stored without loss.
#[test]
fn a_field_of_nothing_but_nan_is_measured() {
    let folder = folder();
    let nan = f32::NAN.to_le_bytes().repeat(5000);
    fs::write(folder.path().join(WORK).join("nan.f32"), nan).unwrap();
    let output =
        codec(folder.path(), "--field nan.f32 --bound rel:1e-3 --codec all --repeat 1 --json");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let object: Value = serde_json::from_slice(&output.stdout).expect("stdout is one JSON object");
    assert!(object["rows"].as_array().is_some_and(|rows| rows.len() > 5));
}
