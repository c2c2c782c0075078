//! Tests of `foldwire tune` and `foldwire choose`.

use std::process::{Command, Output};

use serde_json::Value;

fn foldwire(args: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_foldwire"));
    command.args(args.split_whitespace()).output().unwrap()
}

fn json(args: &str) -> Value {
    let output = foldwire(args);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn speeds_are_measured_written_and_weighed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("made/speeds.toml");
    let file = path.to_str().unwrap();
    let tuned = json(&format!("tune --ranks 2 --output {file} --json"));
    let rows = tuned["rows"].as_array().unwrap();
    let names: Vec<&str> = rows.iter().map(|row| row["codec"].as_str().unwrap()).collect();
    assert_eq!(names, ["raw", "fz-light", "fz-nd", "dense"]);
    for row in rows {
        for speed in ["encode", "decode", "fold", "combine", "moves_and_reduces"] {
            assert!(row[speed].as_f64().unwrap() > 0.0, "{speed} of {row}");
        }
    }
    let written = std::fs::read_to_string(&path).unwrap();
    let speeds: foldwire::select::Speeds = written.parse().unwrap();
    let raw = speeds.of(foldwire::codec::CodecId::Raw).unwrap() / 1e9;
    let told = rows[0]["moves_and_reduces"].as_f64().unwrap();
    assert!((raw / told - 1.0).abs() < 1e-3, "{raw} {told}");

    // If the lossy codecs are extremely slow, calls are exact.
    std::fs::write(&path, "raw = 1e10\nfz-light = 1\nfz-nd = 1\ndense = 1\n").unwrap();
    let args = "choose --ranks 2 --collective allreduce --link 1gbit --sizes 256K --repeat 1 \
                --min-time 0 --json";
    let row = |args: &str| json(args)["rows"][0].clone();
    assert_eq!(row(&format!("{args} --speeds {file}"))["codec"], "raw");
    let usual = row(args);
    assert_eq!((&usual["codec"], &usual["n_bytes"]), (&"fz-nd".into(), &262_144.into()));
    let fixed = usual["fixed_s"].as_array().unwrap();
    let least = fixed.iter().map(|one| one[1].as_f64().unwrap()).fold(f64::INFINITY, f64::min);
    let ratio = usual["time_s"].as_f64().unwrap() / least;
    assert!((ratio - usual["times_best"].as_f64().unwrap()).abs() < 1e-6);
}

#[test]
fn the_table_has_all_collectives_links_and_sizes() {
    let args = "choose --ranks 2 --collective broadcast,allgather --link none,100mbit \
                --sizes 64,1M,4M --longest 0.1 --repeat 1 --min-time 0 --bound abs:0.01";
    let output = foldwire(args);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    // 4 MiB would occupy a link of 100 Mbit/s for too long.
    let count = |what: &str| text.lines().filter(|line| line.contains(what)).count();
    assert_eq!((count(" broadcast "), count(" all-gather ")), (5, 5), "{text}");
    assert_eq!((count(" none "), count(" 100mbit ")), (6, 4), "{text}");
    // The last line counts the rows that are slower than the best, and those slower than raw. The
    // table prints times rounded to hundredths.
    let said = text.lines().last().expect("a last line");
    let told: Vec<&str> = said.split_whitespace().collect();
    let [n_behind_best, n_behind_raw] = [told[2], told[13]];
    assert_eq!(
        said,
        format!(
            "of 10 {n_behind_best} take more than 15 % longer than the best, \
             and {n_behind_raw} more than 5 % longer than raw"
        )
    );
    for (n_behind, times, from_the_end) in [(n_behind_best, 1.15, 1), (n_behind_raw, 1.05, 0)] {
        let beyond = |times: f64| {
            let is_row =
                |line: &&str| line.contains(" broadcast ") || line.contains(" all-gather ");
            let times_of = |line: &str| {
                let cells = line.trim_end_matches([' ', '*']).split_whitespace();
                cells.rev().nth(from_the_end).unwrap().parse::<f64>().unwrap()
            };
            text.lines().filter(is_row).filter(|line| times_of(line) > times).count()
        };
        let n_behind: usize = n_behind.parse().unwrap();
        assert!((beyond(times + 0.005)..=beyond(times - 0.005)).contains(&n_behind), "{text}");
    }
}

#[test]
fn what_is_no_file_of_speeds_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("speeds.toml");
    std::fs::write(&path, "raw = 1e9\nszx = 1e9\n").unwrap();
    for file in [path.to_str().unwrap(), "no-such-file.toml"] {
        let output = foldwire(&format!("choose --sizes 64 --speeds {file}"));
        assert_eq!(output.status.code(), Some(2));
        let told = String::from_utf8(output.stderr).unwrap();
        assert!(told.contains(file) && told.contains("foldwire tune writes such files"), "{told}");
    }
}

#[test]
fn options_of_other_backends_are_refused() {
    for (args, said) in [
        ("--backend mpi --ranks 2", "mpirun -n"),
        ("--provider shm", "--backend libfabric"),
        ("--link fast", "fast"),
        #[cfg(not(feature = "mpi"))]
        ("--backend mpi", "--features mpi"),
        #[cfg(not(feature = "tcp"))]
        ("--backend tcp", "--features tcp"),
        #[cfg(not(feature = "libfabric"))]
        ("--backend libfabric", "--features libfabric"),
    ] {
        let output = foldwire(&format!("choose {args}"));
        assert_eq!(output.status.code(), Some(2), "{args}");
        let told = String::from_utf8(output.stderr).unwrap();
        assert!(told.contains(said), "{args}: {told}");
    }
}

/// Choices of two processes over TCP loopback, with an unknown link rate. In shared memory there
/// would be none to measure.
#[cfg(feature = "tcp")]
#[test]
fn processes_choose_over_links_that_they_measure() {
    let program = env!("CARGO_BIN_EXE_foldwire");
    let args = format!(
        "launch -n 2 --no-prefix -- env FOLDWIRE_SHARE_MEMORY=0 {program} choose --backend tcp \
         --collective allreduce,broadcast --sizes 4K,2M --repeat 2 --min-time 0 --json"
    );
    let told = json(&args);
    let about = told["about"].as_str().unwrap();
    assert!(about.starts_with("2 ranks over tcp (1 stream)"), "{about}");
    let rows = told["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 4);
    for row in rows {
        assert!(row["link_rate"].is_null() && row["time_s"].as_f64().unwrap() > 0.0, "{row}");
    }
    // Calls of 2 MiB are enough to measure the rate, so it is no longer that of unknown links.
    assert_ne!(rows[1]["taken_rate"].as_f64().unwrap(), 1.25e9, "{}", rows[1]);
}

/// The others wait for a rank until they learn that it does not begin.
#[cfg(feature = "tcp")]
#[test]
fn a_rank_that_cannot_begin_ends_all() {
    let program = env!("CARGO_BIN_EXE_foldwire");
    let output = foldwire(&format!(
        "launch -n 2 --no-prefix --timeout 60 --grace 30 --env 1:FOLDWIRE_SELECT=nonsense -- \
         {program} choose --backend tcp --sizes 4K"
    ));
    let told = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{told}");
    let reports = told.lines().filter(|line| line.contains("FOLDWIRE_SELECT: "));
    let of_rank_0 = reports.clone().filter(|line| line.starts_with("error: rank 1: "));
    assert_eq!((reports.count(), of_rank_0.count()), (2, 1), "{told}");
    assert!(output.stdout.is_empty());
}
