//! Tests of `foldwire sim`: tables, JSON, plots, errors. Speeds come from a publication or a file,
//! so that the tests do not depend on the machine.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use crate::common::assert_refused;
use serde_json::Value;

fn sim(folder: &Path, args: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_foldwire"))
        .current_dir(folder)
        .arg("sim")
        .args(args.split_whitespace())
        .output()
        .expect("the command starts")
}

/// Parses the JSON object on stdout.
fn object(folder: &Path, args: &str) -> Value {
    let output = sim(folder, args);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{args}: {errors}");
    serde_json::from_slice(&output.stdout).expect("stdout is one JSON object")
}

fn number(row: &Value, key: &str) -> f64 {
    row[key].as_f64().unwrap_or_else(|| panic!("{key} in {row}"))
}

/// A codec that takes almost no time and has a ratio of 8.
const SPEEDS: &str = r#"
about = "a fast machine"
ratio = [[1, 8.0]]

[memory]
copy = 1e6
add = 1e6

[codec]
encode = 1e6
decode = 1e6
combine = 1e6
"#;

fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("fast.toml"), SPEEDS).unwrap();
    folder
}

#[test]
fn every_collective_has_a_row_for_each_number_of_ranks_and_preset() {
    let folder = folder();
    for collective in
        ["allreduce", "reduce-scatter", "allgather", "broadcast", "scatter", "gather", "reduce"]
    {
        let args = format!("{collective} --ranks 1,2:8,7 --size 4M --speeds fast.toml --json");
        let object = object(folder.path(), &args);
        let rows = object["rows"].as_array().unwrap();
        assert_eq!(rows.len(), 5 * 6, "{collective}");
        for row in rows {
            let alone = number(row, "ranks") == 1.0;
            assert_eq!(number(row, "wire_bytes") == 0.0, alone, "{row}");
            // A broadcast of one rank has nothing to copy.
            let nothing = alone && collective == "broadcast";
            assert_eq!(number(row, "time_s") == 0.0, nothing, "{row}");
            assert!(number(row, "n_events") > 0.0, "{row}");
            assert!((0.0..=1.001).contains(&number(row, "computing")), "{row}");
            assert!((0.0..=1.001).contains(&number(row, "sending")), "{row}");
        }
        assert_eq!(number(&object["setting"], "n_bytes"), 4_194_304.0);
        assert!(number(&object, "events_per_s") > 0.0);
    }
}

#[test]
fn a_codec_that_takes_no_time_is_as_fast_as_its_ratio() {
    let folder = folder();
    let args = "allreduce --ranks 4,16 --size 64MB --link 10gbit --latency 0s --overhead 0us \
                --bound abs:1 --speeds fast.toml --preset raw,hzccl --json";
    let object = object(folder.path(), args);
    assert_eq!(object["setting"]["speeds"], "a fast machine");
    for row in object["rows"].as_array().unwrap() {
        let ranks = number(row, "ranks");
        let is_raw = row["preset"] == "raw";
        let ratio = if is_raw { 1.0 } else { 8.0 };
        let expected = 2.0 * (ranks - 1.0) / ranks * 64e6 / ratio / 1.25e9;
        let time = number(row, "time_s");
        assert!((0.99..1.03).contains(&(time / expected)), "{time} for {expected}: {row}");
        assert!((0.97 * ratio..1.01 * ratio).contains(&number(row, "speedup_raw")), "{row}");
    }
}

#[cfg(feature = "plots")]
#[test]
fn the_table_lines_up_and_the_plot_has_a_line_for_each_preset() {
    let folder = folder();
    let args = "allreduce --ranks 2:32 --size 8M --speeds fast.toml --preset raw,zccl,foldwire \
        --plot out.svg";
    let output = sim(folder.path(), args);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    assert!(errors.contains("out.svg"), "{errors}");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.starts_with("# foldwire all-reduce, simulated: 8.39 MB of f32"), "{text}");
    assert!(text.contains("; ratio given with the speeds\n"), "{text}");
    let rows: Vec<_> = text.lines().filter(|line| line.trim_start().starts_with("32 ")).collect();
    assert_eq!(rows.len(), 3, "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 200), "{text}");
    let svg = fs::read_to_string(folder.path().join("out.svg")).unwrap();
    assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));
    for words in ["times as fast as raw", "ranks", "MPI-like raw", "ZCCL", "Foldwire"] {
        assert!(svg.contains(words), "{words}");
    }
    // Five numbers of ranks, three presets.
    assert_eq!(svg.matches("<circle").count(), 15);
}

#[cfg(feature = "plots")]
#[test]
fn a_plot_whose_name_ends_in_png_is_one_and_has_a_line_for_each_preset() {
    let folder = folder();
    let args = "allreduce --ranks 2:32 --size 8M --speeds fast.toml --preset raw,zccl,foldwire \
        --plot out.PNG";
    let output = sim(folder.path(), args);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let file = fs::File::open(folder.path().join("out.PNG")).unwrap();
    let mut reader = png::Decoder::new(std::io::BufReader::new(file)).read_info().unwrap();
    let mut bytes = vec![0; reader.output_buffer_size().unwrap()];
    let info = reader.next_frame(&mut bytes).unwrap();
    assert_eq!((info.width, info.height), (1520, 920));
    let count = |colour: [u8; 3]| bytes.chunks(3).filter(|pixel| *pixel == colour).count();
    // Raw, ZCCL (only its legend entry, since Foldwire's line covers its line), Foldwire; no hZCCL.
    for colour in [[120, 120, 120], [86, 180, 233], [213, 94, 0]] {
        assert!(count(colour) > 100, "{colour:?}: {}", count(colour));
    }
    assert_eq!(count([0, 158, 115]), 0);
    // Letters of caption, axes and legend.
    assert!(count([0, 0, 0]) > 500, "{}", count([0, 0, 0]));
}

#[cfg(all(target_os = "linux", feature = "plots"))]
#[test]
fn a_plot_that_cannot_be_written_is_an_error() {
    let folder = folder();
    for name in ["full.svg", "full.png"] {
        std::os::unix::fs::symlink("/dev/full", folder.path().join(name)).unwrap();
        let args = "allreduce --ranks 2 --size 4K --speeds fast.toml --preset raw --plot";
        let output = sim(folder.path(), &format!("{args} {name}"));
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{errors}");
        assert!(errors.starts_with(&format!("error: {name}: the plot cannot")), "{errors}");
    }
}

#[test]
fn the_ratio_is_that_of_the_field_unless_it_is_given() {
    let folder = folder();
    let smooth: Vec<u8> =
        (0..200_000).flat_map(|i| (f64::from(i) * 1e-4).sin().to_le_bytes()).collect();
    fs::write(folder.path().join("smooth.f64"), smooth).unwrap();
    fs::write(folder.path().join("no-ratio.toml"), SPEEDS.replace("ratio = [[1, 8.0]]", ""))
        .unwrap();
    let args = "allgather --ranks 4 --size 8M --preset raw,zccl --speeds no-ratio.toml --json";
    let sent = |more: &str| {
        let object = object(folder.path(), &format!("{args} {more}"));
        number(&object["rows"][1], "wire_bytes") / number(&object["rows"][0], "wire_bytes")
    };
    let coarse = sent("--field smooth.f64 --bound rel:1e-2");
    let fine = sent("--field smooth.f64 --bound rel:1e-6");
    assert!(coarse < 0.1 && fine > 1.2 * coarse && fine < 0.5, "{coarse} {fine}");
}

#[test]
fn speeds_can_be_measured() {
    let folder = folder();
    let args = "reduce --ranks 3 --size 1M --preset raw,hzccl --json";
    let object = object(folder.path(), args);
    let speeds = object["speeds_gbps"].as_array().unwrap();
    assert_eq!(speeds.len(), 2);
    for codec in speeds {
        for primitive in [
            "encode",
            "decode",
            "fold",
            "fold_store",
            "combine",
            "reduce",
            "refold",
            "recode",
            "copy",
        ] {
            assert!(number(codec, primitive) > 0.0, "{primitive} of {codec}");
        }
    }
}

/// Runs `foldwire bench` between threads and stores its JSON as `name`.
fn bench(folder: &Path, name: &str, args: &str) -> Value {
    let output = Command::new(env!("CARGO_BIN_EXE_foldwire"))
        .args(["bench", "--repeat", "3", "--min-time", "0", "--json"])
        .args(args.split_whitespace())
        .output()
        .expect("the command starts");
    assert!(output.status.success(), "{args}: {}", String::from_utf8_lossy(&output.stderr));
    fs::write(folder.join(name), &output.stdout).unwrap();
    serde_json::from_slice(&output.stdout).expect("stdout is one JSON object")
}

#[test]
fn measured_times_are_predicted_from_their_files() {
    let folder = folder();
    let path = folder.path();
    let sums = "allreduce --ranks 3 --sizes 300K,1M --preset raw,zccl+ --link 250mbit --lanes 2";
    let measured = bench(path, "sums.json", sums);
    bench(
        path,
        "moved.json",
        "broadcast --ranks 2 --sizes 1M --preset foldwire --link 1gbit --frame 36K",
    );
    bench(path, "exchange.json", "allgather --ranks 2 --sizes 8,4M --preset raw --link none");
    let args = "--validate sums.json moved.json --fabric exchange.json --latency 0s --json";
    let object = object(path, args);
    let rows = object["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 5);
    for (row, of_file) in rows.iter().zip(measured["rows"].as_array().unwrap()) {
        assert_eq!(
            (&row["preset"], &row["n_bytes"]),
            (&of_file["contestant"], &of_file["n_bytes"])
        );
        assert_eq!(row["measured_s"], of_file["time_s"]);
        let error = number(row, "predicted_s") / number(row, "measured_s") - 1.0;
        assert!((number(row, "error") - error).abs() < 1e-9, "{row}");
        // Time of a raw all-reduce between 3 ranks on the link. The measured cost of messages is
        // added, and may be large.
        let crossing = 4.0 / 3.0 * number(row, "n_bytes") / 31.25e6;
        assert!(row["preset"] != "raw" || number(row, "predicted_s") > crossing, "{row}");
    }
    // If messages cost little, the link limits the time.
    let given = self::object(path, "--validate sums.json --latency 0s --overhead 1us --json");
    for row in given["rows"].as_array().unwrap() {
        let crossing = 4.0 / 3.0 * number(row, "n_bytes") / 31.25e6;
        let range = if row["preset"] == "raw" { 1.0..1.5 } else { 0.05..0.8 };
        assert!(range.contains(&(number(row, "predicted_s") / crossing)), "{row}");
    }
    assert_eq!((&rows[4]["collective"], &rows[4]["ranks"]), (&"broadcast".into(), &2.into()));
    let errors: Vec<f64> = rows.iter().map(|row| number(row, "error").abs()).collect();
    assert_eq!(number(&object, "largest_error"), errors.iter().copied().fold(0.0, f64::max));
    // Ranks that wait for an answer and for each other's core take longer.
    let slower =
        self::object(path, "--validate sums.json --latency 0s --overhead 1ms --eager 1K --json");
    for (slow, row) in
        slower["rows"].as_array().unwrap().iter().zip(given["rows"].as_array().unwrap())
    {
        assert!(number(slow, "predicted_s") > number(row, "predicted_s"), "{slow}");
    }
}

/// gZCCL's switch is a knob, and its codec has its own speed.
#[test]
fn gzccl_switches_where_it_is_told_to() {
    let folder = folder();
    let row = |more: &str| {
        let args =
            format!("allreduce --ranks 64 --size 64MB --speeds gzccl-a100 --preset gzccl {more}");
        object(folder.path(), &format!("{args} --json"))["rows"][0].clone()
    };
    // Shares of a megabyte.
    let (doubling, ring) = (row(""), row("--ring-from 1MB"));
    assert_eq!(
        (&doubling["schedule"], &ring["schedule"]),
        (&"recursive-doubling".into(), &"ring".into())
    );
    assert!(number(&doubling, "wire_bytes") > 2.0 * number(&ring, "wire_bytes"));
}

/// A preset that works message by message has one message for each hop, whatever its length.
#[test]
fn published_systems_send_whole_messages() {
    let folder = folder();
    for (collective, n_messages) in [("broadcast", 3), ("allgather", 12), ("scatter", 3)] {
        let args =
            format!("{collective} --ranks 4 --size 4MB --speeds fast.toml --bound abs:1 --json");
        let object = object(folder.path(), &format!("{args} --preset zccl,hzccl,gzccl"));
        for row in object["rows"].as_array().unwrap() {
            assert_eq!(row["n_messages"], n_messages, "{collective}: {row}");
        }
    }
}

/// Every codec has speeds of its own.
#[test]
fn presets_are_priced_with_their_codecs() {
    let folder = folder();
    let codecs = "[codecs.szx]\nencode = 1\ndecode = 1\nratio = [[1, 4.0]]\n";
    fs::write(folder.path().join("two.toml"), format!("{SPEEDS}\n{codecs}")).unwrap();
    let args = "allgather --ranks 8 --size 64MB --speeds two.toml --preset zccl,c-coll,raw --json";
    let object = object(folder.path(), args);
    let names = object["speeds_gbps"].as_array().unwrap().iter().map(|speeds| &speeds["codec"]);
    assert_eq!(names.collect::<Vec<_>>(), ["raw", "fz-light", "szx"]);
    let [zccl, c_coll] = [0, 1].map(|i| &object["rows"][i]);
    let sent = number(c_coll, "wire_bytes") / number(zccl, "wire_bytes");
    assert!((1.9..2.1).contains(&sent), "{sent}");
    // A rank encodes its part and decodes all 64 MB, at 1 GB/s.
    assert!((0.064..0.08).contains(&number(c_coll, "time_s")), "{c_coll}");
    assert!(number(&c_coll["budget_ns"], "decode") > 3.9, "{c_coll}");
}

/// The page on scale shows what the command prints.
#[test]
fn the_page_on_scale_has_every_published_figure() {
    let folder = folder();
    let output = object(folder.path(), "--published --json");
    let text = |row: &Value, key: &str| row[key].as_str().unwrap_or_default().to_owned();
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/scale.md");
    let page = fs::read_to_string(page).unwrap();
    let keys = ["paper", "at", "experiment", "published", "as_published", "foldwire", "measured"];
    let line = |row: &Value| {
        let cells = keys.map(|key| text(row, key));
        format!("| {} |", cells.join(" | "))
    };
    let rows = output["rows"].as_array().unwrap();
    assert!(rows.len() > 50);
    let table: Vec<String> = rows.iter().map(line).collect();
    let is_there = table.iter().all(|line| page.lines().any(|known| known == line));
    assert!(is_there, "put this into docs/scale.md:\n{}", table.join("\n"));
    for row in rows {
        let predicted = row["as_published"].is_string();
        assert!(predicted || text(row, "note").starts_with("not predicted: "), "{row}");
        assert_eq!(row["measured"].is_string(), row["measurement"].is_object(), "{row}");
    }
    // The budgets of a call add up to its time.
    for row in output["budgets"].as_array().unwrap() {
        let parts = ["encode", "decode", "fold", "copy", "message", "wait"];
        let sum: f64 = parts.iter().map(|part| number(&row["ns_a_value"], part)).sum();
        let time = sum * 1e-9 * number(row, "bytes") / 4.0;
        assert!((time / number(row, "time_s") - 1.0).abs() < 1e-6, "{row}");
    }
}

#[test]
fn errors_of_use_exit_2_and_say_what_to_do() {
    let folder = folder();
    fs::write(folder.path().join("broken.toml"), SPEEDS.replace("add = 1e6", "")).unwrap();
    let path = folder.path();
    bench(path, "good.json", "allgather --ranks 2 --sizes 4K --preset raw --link none");
    bench(path, "linkless.json", "allgather --ranks 2 --sizes 4K --preset raw");
    fs::write(path.join("sine.f32"), [0; 64]).unwrap();
    let cases = [
        ("", "COLLECTIVE"),
        ("alltonone", "allreduce"),
        ("allreduce --ranks 0", "2:512"),
        ("allreduce --size 6", "multiple of 4"),
        ("allreduce --latency 3", "as in 2us"),
        ("allreduce --preset raw --preset c-coll --preset auto", "leave it out"),
        ("allreduce --preset gzccl --speeds zccl-1-thread", "none of cuszp"),
        ("allreduce --speeds mine", "hzccl-18-threads"),
        ("allreduce --speeds none.toml", "none.toml"),
        ("allreduce --speeds broken.toml", "add"),
        ("allreduce --field none.f32", "no such file"),
        ("allreduce --validate", "cannot be used with"),
        ("allreduce --eager big", "64K"),
        ("allreduce --threads 1024", "cores"),
        ("allreduce --frame 17M", "16M at most"),
        ("allreduce --plot out.jpg", "in .svg or .png"),
        ("allreduce --plot png", "in .svg or .png"),
        ("--validate none.json", "none.json"),
        ("--validate fast.toml", "foldwire bench"),
        ("--validate linkless.json", "--link none"),
        ("--validate good.json --field sine.f32", "name that field"),
        ("--validate good.json --fabric good.json", "a long array"),
        ("--validate --fabric good.json", "RESULTS.json"),
    ];
    assert_refused(|args| sim(path, args), &cases);
}
