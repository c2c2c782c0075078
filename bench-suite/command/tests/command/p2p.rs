//! Tests of `foldwire p2p`.

use std::process::{Command, Output};

use serde_json::Value;

fn run(args: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_foldwire"));
    command.arg("p2p").args(args.split_whitespace()).output().unwrap()
}

fn succeed(args: &str) -> String {
    let output = run(args);
    assert!(output.status.success(), "{args}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The command fails if a value exceeds its bound.
#[test]
fn every_contestant_has_a_row_and_long_messages_are_compressed() {
    let args = "--sizes 0,4,256K --bound rel:1e-2,rel:1e-4 --repeat 3 --json";
    let object: Value = serde_json::from_str(&succeed(args)).unwrap();
    let rows = object["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 2 * 3 * 3 + 1);
    let names: Vec<&str> = rows.iter().map(|row| row["contestant"].as_str().unwrap()).collect();
    assert_eq!(names[..3], ["raw", "rel:0.01", "rel:1e-4"]);
    let (barrier, messages) = rows.split_last().unwrap();
    assert_eq!((&barrier["what"], &barrier["contestant"]), (&"barrier".into(), &"foldwire".into()));
    assert!(barrier["n_bytes"].is_null() && barrier["time_s"].as_f64().unwrap() > 0.0, "{barrier}");
    for (at, row) in messages.iter().enumerate() {
        assert_eq!(row["what"], if at < 9 { "pingpong" } else { "sendrecv" });
        assert_eq!((&row["n_wrong"], row["times_s"].as_array().unwrap().len()), (&0.into(), 3));
        let number = |name: &str| row[name].as_f64().unwrap();
        assert!(number("min_s") > 0.0 && number("min_s") <= number("time_s"), "{row}");
        assert!(number("time_s") <= number("p99_s") && number("speedup_raw") > 0.0, "{row}");
        let is_lossy = row["contestant"] != "raw" && row["n_bytes"] == 256 << 10;
        assert_eq!(number("max_err") > 0.0, is_lossy, "{row}");
        assert!(number("max_err") <= number("bound_abs"), "{row}");
        assert_eq!(number("ratio") > 1.5, is_lossy, "{row}");
    }
}

/// The command fails if a value of an exact codec changes.
#[test]
fn codecs_are_contestants_with_and_without_a_bound() {
    let args =
        "pingpong --sizes 256K --codec mpc,zfp-rate:8,szx --bound rel:1e-2 --repeat 2 --json";
    let object: Value = serde_json::from_str(&succeed(args)).unwrap();
    let rows = object["rows"].as_array().unwrap();
    let names: Vec<&str> = rows.iter().map(|row| row["contestant"].as_str().unwrap()).collect();
    assert_eq!(names, ["raw", "mpc", "zfp-rate:8", "szx rel:0.01"]);
    let number = |row: usize, name: &str| rows[row][name].as_f64();
    assert_eq!((number(1, "max_err"), number(1, "bound_abs")), (Some(0.0), Some(0.0)));
    assert_eq!(number(2, "bound_abs"), None, "no bound is kept");
    assert!(number(2, "ratio").unwrap() > 3.9 && number(3, "max_err") <= number(3, "bound_abs"));
    let output = run("--codec demote");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(2) && said.contains("demote is not for f32"), "{said}");
}

#[test]
fn three_ranks_send_in_a_circle_and_short_messages_may_stay_as_they_are() {
    let args = "--ranks 3 --sizes 1K,64K --exact-below 4K --repeat 2 --csv sendrecv,pingpong";
    let text = succeed(args);
    let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split(',').collect()).collect();
    assert_eq!(lines.len(), 1 + 2 * 2 * 2, "{text}");
    let column = |name: &str| lines[0].iter().position(|column| *column == name).unwrap();
    let (n_bytes, max_err, n_wrong) = (column("n_bytes"), column("max_err"), column("n_wrong"));
    for line in &lines[1..] {
        assert_eq!((line[column("ranks")], line[n_wrong]), ("3", "0"), "{text}");
        let is_exact = line[column("contestant")] == "raw" || line[n_bytes] == "1024";
        assert_eq!(line[max_err].parse() == Ok(0.0), is_exact, "{text}");
    }
    let text = succeed("barrier --ranks 3 --repeat 2");
    assert_eq!(text.lines().filter(|line| line.starts_with(" barrier ")).count(), 1, "{text}");
    assert!(!text.contains("x MPI"), "{text}");
}

#[test]
fn nonsense_is_an_error_of_use() {
    for (args, says) in [
        ("ping", "pingpong"),
        ("--ranks 1", "2 ranks"),
        ("--sizes 6", "multiples of 4"),
        ("--sizes 5G", "4G at most"),
        ("--bound rel:0", "rel:0"),
        ("--field nowhere.f32", "no such file"),
        ("--provider tcp", "--backend libfabric"),
        ("--streams 2", "--backend tcp"),
        #[cfg(not(feature = "tcp"))]
        ("--backend tcp", "--features tcp"),
        ("--backend mpi --ranks 2", "mpirun -n"),
        #[cfg(not(feature = "mpi"))]
        ("--backend mpi", "--features mpi"),
        #[cfg(not(feature = "libfabric"))]
        ("--backend libfabric", "--features libfabric"),
    ] {
        let output = run(args);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(2) && said.contains(says), "{args}: {said}");
    }
}
