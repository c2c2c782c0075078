//! Tests of `foldwire bench` on threads, and over MPI with the feature `mpi`. `FOLDWIRE_MPIRUN`
//! holds the MPI library's launcher with its options (default: `mpirun`).

use std::process::{Command, Output};

use crate::common::assert_refused;
use serde_json::Value;

const PROGRAM: &str = env!("CARGO_BIN_EXE_foldwire");

fn bench(args: &str) -> Output {
    Command::new(PROGRAM)
        .arg("bench")
        .args(args.split_whitespace())
        .output()
        .expect("the command starts")
}

/// Parses the JSON object on stdout.
fn object(output: &Output) -> Value {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    serde_json::from_slice(&output.stdout).expect("stdout is one JSON object")
}

/// Checks the guarantees that hold for the row of any contestant.
fn check_row(row: &Value) {
    let number = |key: &str| row[key].as_f64().unwrap_or_else(|| panic!("{key} in {row}"));
    let times = row["times_s"].as_array().unwrap();
    assert!(times.len() >= 2 && times.iter().all(|time| time.as_f64().unwrap() > 0.0), "{row}");
    let gbps = number("n_bytes") / number("time_s") / 1e9;
    assert!((number("algbw_gbps") - gbps).abs() <= 1e-6 * gbps.max(1.0), "{row}");
    assert!(number("max_err") <= number("bound_worst"), "{row}");
    assert_eq!(row["mismatched_nonfinite"], 0, "{row}");
}

/// Reductions with a fill value are missing; what only moves keeps it. Every result is checked.
#[test]
fn a_fill_value_of_the_field_is_kept_by_every_preset() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("depths.f32");
    let depth = |i: u16| if i % 50 == 7 { -9999.0 } else { (f32::from(i) * 1e-3).sin() };
    let depths: Vec<u8> = (0..20_000).flat_map(|i| depth(i).to_le_bytes()).collect();
    std::fs::write(&path, depths).unwrap();
    let presets = "raw,zccl,hzccl,c-coll,mpc-opt,foldwire,auto";
    for collective in ["allreduce", "allgather", "reduce-scatter", "alltoall"] {
        let args = format!(
            "{collective} --ranks 3 --sizes 64K --repeat 2 --min-time 0 --json --fill -9999 \
             --field {} --preset {presets}",
            path.display()
        );
        let object = object(&bench(&args));
        let rows = object["rows"].as_array().unwrap();
        rows.iter().for_each(check_row);
        // Twice the range of the sine, in thousandths.
        let bounds = rows.iter().map(|row| row["bound_abs"].as_f64().unwrap());
        assert!(rows.len() == 7 && bounds.max_by(f64::total_cmp).unwrap() < 2.01e-3, "{rows:?}");
    }
    let refused = format!("allreduce --fill 7 --backend mpi --field {}", path.display());
    assert_refused(bench, &[(&refused, "--fill")]);
}

#[test]
fn every_preset_and_size_has_a_row() {
    let args =
        "allreduce --backend threads --ranks 3 --sizes 0,4,1K:64K --repeat 2 --min-time 0 --json";
    let object = object(&bench(args));
    assert_eq!((&object["collective"], &object["ranks"]), (&"all-reduce".into(), &3.into()));
    assert!(object["memcpy_gbps"].as_f64().unwrap() > 0.0);
    let rows = object["rows"].as_array().unwrap();
    // 0, 4, and 1 to 64 KiB in powers of two; six presets.
    assert_eq!(rows.len(), 9 * 6);
    rows.iter().for_each(check_row);
    let sizes: Vec<u64> = rows.iter().map(|row| row["n_bytes"].as_u64().unwrap()).collect();
    assert!(sizes.is_sorted() && sizes[0] == 0 && sizes[53] == 65536, "{sizes:?}");
    let last = |name: &str| rows.iter().rfind(|row| row["contestant"] == name).unwrap();
    assert_eq!(
        (&last("raw")["bound_abs"], &last("raw")["speedup_raw"]),
        (&0.0.into(), &1.0.into())
    );
    assert!(last("foldwire")["ratio"].as_f64().unwrap() > 3.0);
    assert!(last("foldwire")["max_err"].as_f64().unwrap() > 0.0);
    assert!(last("raw")["times_memcpy"].as_f64().unwrap() > 0.0);
}

#[test]
fn every_schedule_has_a_row_and_the_one_that_is_chosen_is_marked() {
    let args = "allreduce --ranks 3 --sizes 1K,64K --schedule all --repeat 2 --min-time 0 --json";
    let run = |select: &str| {
        let mut command = Command::new(PROGRAM);
        command.arg("bench").args(args.split_whitespace()).env("FOLDWIRE_SELECT", select);
        object(&command.output().unwrap())
    };
    for (select, chosen) in [("all-reduce:::pairwise", "pairwise"), ("all-reduce:3::ring", "ring")]
    {
        let object = run(select);
        let rows = object["rows"].as_array().unwrap();
        rows.iter().for_each(check_row);
        for n_bytes in [1 << 10, 64 << 10] {
            let of_size: Vec<_> = rows.iter().filter(|row| row["n_bytes"] == n_bytes).collect();
            let named = |name: &str| of_size.iter().filter(|row| row["schedule"] == name).count();
            for schedule in ["ring", "recursive-doubling", "circulant", "double-tree"] {
                assert_eq!(named(schedule), 1, "{schedule}");
            }
            assert_eq!(named("binomial"), 0, "it has no all-reduce");
            let marked: Vec<_> = of_size.iter().filter(|row| row["is_chosen"] == true).collect();
            assert_eq!((marked.len(), &marked[0]["schedule"]), (1, &chosen.into()));
            let time = |row: &Value| row["time_s"].as_f64().unwrap();
            let least = of_size.iter().map(|row| time(row)).fold(f64::INFINITY, f64::min);
            for row in of_size {
                let times_best = row["times_best"].as_f64().unwrap();
                assert!((times_best - time(row) / least).abs() < 1e-9, "{row}");
            }
        }
    }
}

#[test]
fn shares_of_different_lengths_give_right_results() {
    for collective in [
        "reduce-scatter-v",
        "allgatherv --in-place",
        "scatterv",
        "gatherv --in-flight 2",
        "alltoallv",
    ] {
        let args = format!(
            "{collective} --ranks 3 --root 1 --sizes 4,24K --preset raw,foldwire --repeat 2 \
             --min-time 0 --json"
        );
        let object = object(&bench(&args));
        assert!(object["collective"].as_str().unwrap().ends_with("-v"), "{object}");
        let rows = object["rows"].as_array().unwrap();
        assert_eq!(rows.len(), 2 * 2, "{args}");
        rows.iter().for_each(check_row);
    }
}

#[test]
fn several_launches_give_the_median_of_medians_and_their_spread() {
    let args = "allreduce --launches 3 --ranks 2 --sizes 4K,8K --preset raw,foldwire --repeat 2 \
                --min-time 0 --json";
    let object = object(&bench(args));
    assert_eq!(object["launches"], 3);
    let rows = object["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 2 * 2);
    for row in rows {
        check_row(row);
        let launches = row["launches_s"].as_array().unwrap();
        let mut launches: Vec<f64> = launches.iter().map(|time| time.as_f64().unwrap()).collect();
        launches.sort_by(f64::total_cmp);
        let spread = 100.0 * (launches[2] - launches[0]) / launches[1];
        assert_eq!((launches.len(), row["time_s"].as_f64()), (3, Some(launches[1])));
        assert!((row["spread_percent"].as_f64().unwrap() - spread).abs() < 1e-6, "{row}");
        let raw =
            rows.iter().find(|raw| raw["n_bytes"] == row["n_bytes"] && raw["contestant"] == "raw");
        let speedup = raw.unwrap()["time_s"].as_f64().unwrap() / launches[1];
        assert!((row["speedup_raw"].as_f64().unwrap() - speedup).abs() < 1e-6, "{row}");
    }
}

#[test]
fn calls_at_once_give_right_results_and_say_how_many_they_were() {
    for collective in ["allreduce --in-place", "alltoall", "scatter", "broadcast"] {
        let args = format!(
            "{collective} --in-flight 3 --overlap=4 --ranks 3 --sizes 12,24K --preset raw,foldwire \
             --repeat 2 --min-time 0 --json"
        );
        let object = object(&bench(&args));
        assert_eq!((&object["in_flight"], &object["overlap_polls"]), (&3.into(), &4.into()));
        let rows = object["rows"].as_array().unwrap();
        assert_eq!(rows.len(), 2 * 2, "{args}");
        for row in rows {
            check_row(row);
            let number = |key: &str| row[key].as_f64().unwrap();
            let part = 1.0 - (number("total_s") - number("work_s")) / number("time_s");
            let hidden = (100.0 * part).clamp(0.0, 100.0);
            assert!((number("overlap_percent") - hidden).abs() < 1e-6, "{row}");
        }
    }
}

#[test]
fn calls_at_once_and_compared_schedules_have_the_requested_threads() {
    for args in ["allreduce --in-flight 2 --preset foldwire", "scan --schedule all"] {
        let args = format!("{args} --ranks 2 --sizes 8M --threads 2 --repeat 2 --min-time 0");
        let object = object(&bench(&format!("{args} --warmup 0 --json")));
        let rows = object["rows"].as_array().unwrap();
        assert!(!rows.is_empty() && rows.iter().all(|row| row["threads"] == 2), "{rows:?}");
    }
}

#[test]
fn calls_at_once_take_a_ring_from_the_requested_length() {
    let wire_bytes = |from: &str| {
        let args = "allreduce --in-flight 2 --ranks 4 --sizes 64K --preset gzccl --repeat 2 \
                    --warmup 0 --min-time 0 --json";
        let object = object(&bench(&format!("{args} --ring-from {from}")));
        assert!(object["ring_from"].as_u64().unwrap() >= 1024, "{object}");
        object["rows"][0]["wire_bytes"].as_u64().unwrap()
    };
    // Along a ring each rank sends its part 2 (n - 1) times, and otherwise the array log2 n times.
    assert!(wire_bytes("1K") < wire_bytes("1G"));
}

#[cfg(feature = "plots")]
#[test]
fn a_plot_that_cannot_be_written_takes_no_results_away() {
    let args = "broadcast --ranks 2 --sizes 4 --preset raw --repeat 2 --min-time 0 --json";
    let output = bench(&format!("{args} --plot no/such/folder.svg"));
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("no/such/folder.svg"));
    let object: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(object["rows"][0]["title"], "Foldwire raw");
}

#[test]
fn a_schedule_that_has_no_room_is_left_out_with_a_note() {
    let args = "allreduce --ranks 8 --sizes 1K --schedule all --frame 1024 --repeat 2 --min-time 0";
    let output = bench(args);
    let (text, errors) = (output.stdout, String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8_lossy(&text);
    assert!(output.status.success() && errors.contains("circulant × fused × fz-light: left out"));
    assert!(text.contains("ring × fused") && !text.contains("circulant"), "{text}");
    assert!(text.contains("chosen   "), "a second table: {text}");
}

/// The table's lines of a raw broadcast with these options.
fn broadcast(options: &str) -> String {
    let args = "broadcast --ranks 2 --sizes 1M --preset raw --repeat 2 --min-time 0";
    let output = bench(&format!("{args} {options}"));
    assert!(output.status.success(), "{options}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn ranks_that_share_memory_are_compared_with_a_memcpy_by_all_of_them() {
    for options in ["", "--link none"] {
        let text = broadcast(options);
        assert!(text.contains("x memcpy: time / that of a memcpy"), "{text}");
    }
    assert!(!broadcast("--link 10gbit").contains("x memcpy"));
}

#[test]
fn links_take_the_latency_that_is_asked_for() {
    let args = "broadcast --ranks 2 --sizes 8 --preset raw --repeat 2 --min-time 0 --link 10gbit";
    let output = bench(&format!("{args} --latency 20ms --json"));
    assert!(output.status.success());
    let result: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(result["latency_s"], 0.02);
    assert!(result["rows"][0]["time_s"].as_f64().unwrap() >= 0.02, "{result}");
    assert!(broadcast("--link 10gbit --latency 50us").contains(", links of 10gbit, latency 50µs"));

    for wrong in
        ["--latency 1ms", "--link 10gbit --latency 1", "--backend tcp --link 1gbit --latency 1ms"]
    {
        assert_eq!(bench(&format!("broadcast {wrong}")).status.code(), Some(2), "{wrong}");
    }
}

#[test]
fn every_collective_gives_right_results_from_any_root_and_in_place() {
    for (collective, in_place) in [
        ("allreduce", true),
        ("reduce-scatter", true),
        ("allgather", true),
        ("reduce", true),
        ("allgather", false),
        ("broadcast", false),
        ("scatter", false),
        ("gather", false),
        ("reduce", false),
        ("reduce-scatter", false),
    ] {
        let in_place = if in_place { "--in-place" } else { "" };
        let args = format!(
            "{collective} {in_place} --ranks 3 --root 2 --sizes 8,80,8000 --dtype f64 --op avg \
             --preset raw,foldwire --repeat 2 --min-time 0 --json"
        );
        let output = bench(&args);
        let object = object(&output);
        let rows = object["rows"].as_array().unwrap();
        assert_eq!(rows.len(), 3 * 2, "{args}");
        rows.iter().for_each(check_row);
    }
}

#[test]
fn multi_threaded_presets_compute_on_more_than_one_thread() {
    let presets = "zccl,zccl+,zccl-mt,hzccl-mt";
    // Each of four lanes needs a segment that is long enough for two threads.
    let args = "allreduce --ranks 2 --sizes 8M --repeat 2 --min-time 0 --json --preset";
    let threads = |more: &str| {
        let object = object(&bench(&format!("{args} {presets} {more}")));
        let rows = object["rows"].as_array().unwrap();
        rows.iter().for_each(check_row);
        rows.iter().map(|row| row["threads"].as_u64().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(threads(""), [1, 1, 2, 2]);
    assert_eq!(threads("--threads 2"), [2; 4]);
}

#[test]
fn presets_whose_codec_keeps_no_bound_are_measured() {
    for collective in ["allreduce", "alltoall"] {
        let args = "--ranks 2 --sizes 64K --repeat 2 --min-time 0 --json --preset zfp-opt-8";
        let object = object(&bench(&format!("{collective} {args}")));
        assert_eq!(object["rows"][0]["bound_worst"], serde_json::Value::Null);
    }
}

#[test]
fn frames_that_are_too_short_for_a_message_are_remarked_on() {
    let args = "allreduce --ranks 2 --sizes 1M --repeat 2 --min-time 0 --preset raw,cprp2p";
    let note = |frame: &str| String::from_utf8(bench(&format!("{args} {frame}")).stderr).unwrap();
    let short = note("--frame 64K");
    assert!(short.contains("note: cprp2p work message by message"), "{short}");
    assert!(short.contains("add --frame 5"), "{short}");
    assert!(note("--in-flight 2").contains("note: cprp2p work message by message"));
    assert!(!note("").contains("note") && !note("--frame 1M").contains("note"));
}

#[test]
fn the_table_has_a_head_and_aligned_rows() {
    let output =
        bench("broadcast --ranks 2 --sizes 4K --preset raw --repeat 2 --min-time 0 --check false");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}");
    assert!(
        text.starts_with("# foldwire broadcast, 2 ranks over threads, f32, root 0\n"),
        "{text}"
    );
    for words in
        ["built-in", "results not checked", "memcpy", "max error", "\n    4K   Foldwire raw"]
    {
        assert!(text.contains(words), "{words}: {text}");
    }
    assert!(output.stderr.is_empty(), "no progress where stderr is no terminal");
}

#[test]
fn errors_of_use_exit_2_and_say_what_to_do() {
    let cases = [
        ("", "COLLECTIVE"),
        ("alltonone", "allreduce"),
        ("allreduce --sizes 1T", "powers of 1024"),
        ("allreduce --sizes 6", "multiples of 4"),
        ("reduce --ranks 3 --root 3", "0 to 2"),
        ("scatter --in-place", "leave out --in-place"),
        ("allreduce --backend mpi --launches 2", "run mpirun several times"),
        ("alltoallv --in-place", "all-to-all-v is not done in place"),
        ("alltoallv --in-flight 2", "take alltoall"),
        ("allreduce --in-flight 2 --dtype f64", "--dtype f32"),
        ("allreduce --in-flight 2 --schedule all", "leave out --in-flight"),
        ("allreduce --in-flight 257", "from 1 to 256"),
        ("allreduce --in-flight 2 --preset zccl-mt", "add --threads"),
        ("allgather --dtype f64 --preset cam-both", "foldwire climate"),
        ("allgather --preset cam-sp", "demote, which is not for f32"),
        ("allreduce --overlap=x", "number of polls"),
        ("allreduce --preset mpi", "hzccl"),
        ("allreduce --field none.f32", "no such file"),
        ("allreduce --frame 12", "1024 bytes"),
        ("allreduce --backend mpi --ranks 2", "mpirun -n"),
        ("allreduce --backend libfabric --ranks 2", "--backend threads"),
        ("allreduce --provider tcp", "--backend libfabric"),
        ("allreduce --streams 2", "--backend tcp"),
        ("allreduce --encrypt", "--backend tcp"),
        ("allreduce --backend tcp --streams 17", "from 1 to 16"),
        #[cfg(not(feature = "tcp"))]
        ("allreduce --backend tcp", "--features tcp"),
        #[cfg(not(feature = "mpi"))]
        ("allreduce --backend mpi", "--features mpi"),
    ];
    assert_refused(bench, &cases);
}

#[cfg(feature = "libfabric")]
mod libfabric {
    use super::*;

    #[test]
    fn every_collective_gives_right_results() {
        for collective in
            ["allreduce", "reduce-scatter", "allgather", "broadcast", "scatter", "gather", "reduce"]
        {
            let mut command = Command::new(PROGRAM);
            command.args(["launch", "-n", "2", "--no-prefix", "--", PROGRAM, "bench", collective]);
            let args = "--backend libfabric --provider tcp --frame 64K --sizes 4,4K,20000 \
                        --preset raw,foldwire --repeat 2 --min-time 0 --json";
            let object = object(&command.args(args.split_whitespace()).output().unwrap());
            assert!(object["backend"].as_str().unwrap().starts_with("libfabric (tcp"), "{object}");
            let rows = object["rows"].as_array().unwrap();
            assert_eq!(rows.len(), 3 * 2, "{collective}");
            rows.iter().for_each(check_row);
        }
    }
}

#[cfg(feature = "tcp")]
mod tcp {
    use super::*;

    #[test]
    fn sockets_give_right_results_in_the_open_and_encrypted() {
        for (collective, how, shares_memory, name) in [
            ("allreduce", "", "1", "tcp (1 stream)"),
            ("alltoall", "--streams 3", "0", "tcp (3 streams)"),
            ("broadcast", "--streams 2 --encrypt", "1", "tcp (2 streams, encrypted)"),
        ] {
            let mut command = Command::new(PROGRAM);
            command.args(["launch", "-n", "3", "--no-prefix", "--", PROGRAM, "bench", collective]);
            command.env("FOLDWIRE_SHARE_MEMORY", shares_memory);
            let args = format!(
                "--backend tcp {how} --sizes 12,12K,60000 --preset raw,foldwire --repeat 2 \
                --min-time 0 --json"
            );
            let object = object(&command.args(args.split_whitespace()).output().unwrap());
            assert_eq!(object["backend"], name);
            let rows = object["rows"].as_array().unwrap();
            assert_eq!(rows.len(), 3 * 2, "{collective}");
            rows.iter().for_each(check_row);
        }
    }
}

#[cfg(feature = "mpi")]
mod mpi {
    use super::*;

    fn mpirun(n: usize, args: &str) -> Output {
        let launcher = std::env::var("FOLDWIRE_MPIRUN").unwrap_or_else(|_| "mpirun".to_owned());
        let mut launcher = launcher.split_whitespace();
        let mut command = Command::new(launcher.next().expect("a launcher"));
        command.args(launcher).args(["-n", &n.to_string(), PROGRAM, "bench"]);
        command.args(args.split_whitespace());
        // Tests may run with more ranks than cores, and as root in containers.
        let root = ["OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"];
        command.envs(root.map(|name| (name, "1"))).env("OMPI_MCA_rmaps_base_oversubscribe", "1");
        command.output().unwrap_or_else(|error| panic!("{command:?}: {error}; set FOLDWIRE_MPIRUN"))
    }

    /// Uses counts that two ranks divide evenly, and one that they do not. So MPI's functions for
    /// equal shares and for different shares (`MPI_Allgatherv`, …) are both called.
    #[test]
    fn the_librarys_own_collectives_give_right_results_too() {
        for collective in
            ["allreduce", "reduce-scatter", "allgather", "broadcast", "scatter", "gather", "reduce"]
        {
            let args = "--backend mpi --sizes 4,4K,20000 --preset raw,foldwire --repeat 2 \
                --min-time 0 --json";
            let object = object(&mpirun(2, &format!("{collective} {args}")));
            assert!(object["backend"].as_str().unwrap().starts_with("MPI ("), "{object}");
            let rows = object["rows"].as_array().unwrap();
            assert_eq!(rows.len(), 3 * 4, "{collective}");
            rows.iter().for_each(check_row);
            for row in rows {
                let is_best = row["contestant"] == "mpi-best";
                let algorithm = row["algorithm"].as_str().unwrap_or_default();
                assert_eq!(is_best, algorithm.starts_with("MPI_"), "{row}");
                assert!(row["speedup_mpi_best"].as_f64().unwrap() > 0.0, "{row}");
            }
        }
    }

    #[test]
    fn the_best_can_be_left_out() {
        for collective in ["allreduce", "allgatherv"] {
            let args = "--backend mpi --in-place --sizes 4K --preset foldwire --mpi-best false \
                        --op max --json";
            let object = object(&mpirun(2, &format!("{collective} {args}")));
            let rows = object["rows"].as_array().unwrap();
            let names: Vec<_> =
                rows.iter().map(|row| row["contestant"].as_str().unwrap()).collect();
            assert_eq!(names, ["foldwire", "mpi-default"]);
            rows.iter().for_each(check_row);
        }
    }

    #[test]
    fn the_library_takes_shares_of_different_lengths() {
        for collective in ["reduce-scatter-v", "scatterv", "gatherv", "alltoallv"] {
            let args = "--backend mpi --sizes 12,24K --preset raw --repeat 2 --min-time 0 --json";
            let object = object(&mpirun(3, &format!("{collective} {args}")));
            let rows = object["rows"].as_array().unwrap();
            assert_eq!(rows.len(), 2 * 3, "{collective}");
            rows.iter().for_each(check_row);
        }
    }

    /// MPI does not define its maximum with NaN, so no contestant is reported as wrong.
    #[test]
    fn what_mpi_makes_of_nan_is_not_called_wrong() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("nan.f32");
        let values = (0..2048_u16).map(|i| if i % 7 == 0 { f32::NAN } else { f32::from(i) });
        std::fs::write(&path, values.flat_map(f32::to_le_bytes).collect::<Vec<_>>()).unwrap();
        for collective in ["allreduce", "reduce", "reduce-scatter"] {
            let args = format!(
                "{collective} --backend mpi --sizes 8K --preset raw,foldwire --op max --min-time 0 \
                --json --field"
            );
            let output = mpirun(2, &format!("{args} {}", path.display()));
            let rows = object(&output)["rows"].as_array().unwrap().clone();
            let left_open = |name: &str| {
                let row = rows.iter().find(|row| row["contestant"] == name).unwrap();
                row["nans_left_open"].as_u64().unwrap()
            };
            assert_eq!(left_open("foldwire") + left_open("raw"), 0, "{collective}");
            let noted = left_open("mpi-default") + left_open("mpi-best") > 0;
            let errors = String::from_utf8_lossy(&output.stderr);
            assert_eq!(noted, errors.contains("MPI leaves open"), "{errors}");
        }
    }

    #[test]
    fn errors_of_use_are_said_once() {
        let output = mpirun(2, "reduce --backend mpi --root 2");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{errors}");
        assert_eq!(errors.matches("the 2 ranks are 0 to 1").count(), 1, "{errors}");
    }
}
