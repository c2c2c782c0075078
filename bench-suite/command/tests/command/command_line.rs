//! Tests of the command line: exit codes, and the contents of stdout and stderr.

use std::fs;
use std::process::Command;

use crate::common::{assert_refused, foldwire};

fn values(n_values: u16) -> Vec<u8> {
    (0..n_values).flat_map(|at| (f32::from(at) - 9.5).to_le_bytes()).collect()
}

/// Usage errors exit with code 2 and a hint on stderr, and leave stdout empty.
#[test]
fn errors_of_use_exit_2_and_say_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let put = |name: &str, bytes: &[u8]| fs::write(folder.path().join(name), bytes).unwrap();
    put("a.f32", &values(24));
    put("b.f32", &values(20));
    put("c.f64", &values(48));
    put("d.f32", &values(24)[..50]);
    put("e.dat", &values(24));
    put("f.npy", &values(24));
    put("peers.csv", b"a,b\n1,2\n");
    let npy = |major: u8, shape: &str| {
        let dict = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}\n");
        let start = [0x93, b'N', b'U', b'M', b'P', b'Y', major, 0, dict.len() as u8, 0];
        [&start[..], dict.as_bytes(), &values(24)].concat()
    };
    put("g.npy", &npy(9, "(24,)"));
    put("h.npy", &npy(1, "(4294967296, 4294967296, 24)"));
    let cases = [
        ("stack --bound 1e-3", "needs a prefix"),
        ("stack --bound rel:0", "above 0"),
        ("stack --bound rel:-1e-3", "above 0"),
        ("stack --bound foo:1", "rel:1e-3"),
        ("stack --ranks 0", "at least 1 rank"),
        ("stack --ranks -2", "ranks"),
        ("stack --repeat 0", "1 to 10000"),
        ("stack --link 10", "10gbit"),
        ("stack --link 0gbit", "above 0"),
        ("stack --preset mpi", "hzccl"),
        ("stack --preset raw,cam-inter", "foldwire climate"),
        ("sim allgather --preset cam-sp", "not for f32"),
        ("guidelines --preset cam-both", "foldwire climate"),
        ("stack --dims 2x3", "--input"),
        ("stack --shape 64x64", "three numbers"),
        ("stack --hz 19", "from 1 to 18 Hz"),
        ("stack --time 0", "above 0"),
        ("stack --input a.f32 --time 0.5", "--input"),
        ("stack --bound rel:1e-3,1e-4", "needs a prefix"),
        ("stack --input a.f32 --dims 2xb", "whole numbers"),
        ("stack --input none.f32", "no such file"),
        ("stack --input a.f32 --dims 5x5", "holds 24 values, but --dims 5x5 are 25"),
        ("stack --input a.f32 --dims 2x12 --ranks 3", "--ranks 2"),
        ("stack --input a.f32 b.f32", "same number of values"),
        ("stack --input a.f32 c.f64", "one type"),
        ("stack --input a.f32 a.f32 --ranks 3", "2 input files"),
        ("stack --input d.f32", "multiple of 4"),
        ("stack --input e.dat", "NAME.f32"),
        ("stack --input f.npy", "numpy.save"),
        ("stack --input g.npy", "version 9.0 of the .npy format"),
        ("codec --field h.npy --bound abs:1", "shape that overflows"),
        ("stack --input a.f32 --dims 4294967296x4294967296x24", "overflows"),
        ("codec --bound rel:1e-3", "--field"),
        ("codec --field a.f32", "--bound"),
        ("codec --field none.f32 --bound rel:1e-3", "no such file"),
        ("codec --field a.f32 --bound psnr:-60", "above 0"),
        ("codec --field a.f32 --bound abs:1 --level sse9", "avx512"),
        ("codec --field a.f32 --bound abs:1 --peers none.csv", "none.csv"),
        ("codec --field a.f32 --bound abs:1 --peers peers.csv", "--peers"),
        ("stack --bound rel:2", "errors larger than the range itself"),
        ("bench allreduce --bound rel:1.5", "errors larger than the range itself"),
        ("stack --input a.f32 --cache cache", "--cache has no use here"),
        ("bench allreduce --ranks 2 --codec dense --dtype f16", "codec dense is not for f16"),
        ("choose --ranks 2 --link 1gbit --longest 1e-9", "a larger --longest"),
        ("p2p barrier --sizes 4K", "--sizes has no use here"),
        ("sim --validate --ranks 4", "--ranks has no use here"),
        ("schedule --json", "--json has no use here"),
        ("fold", "Usage"),
        ("", "Usage"),
    ];
    assert_refused(|args| foldwire(folder.path(), args), &cases);
}

/// Requests for more memory than any machine has are refused before the first allocation.
#[test]
fn what_does_not_fit_in_memory_is_refused_and_says_how_much_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let sparse = |name: &str, n_bytes: u64| {
        fs::File::create(folder.path().join(name)).unwrap().set_len(n_bytes).unwrap();
    };
    sparse("huge.f32", 1 << 43);
    let dict = "{'descr': '<f8', 'fortran_order': False, 'shape': (1024, 1024, 1048575), }\n";
    fs::write(folder.path().join("huge.npy"), {
        let start = [0x93, b'N', b'U', b'M', b'P', b'Y', 1, 0, dict.len() as u8, 0];
        [&start[..], dict.as_bytes()].concat()
    })
    .unwrap();
    fs::File::options()
        .append(true)
        .open(folder.path().join("huge.npy"))
        .unwrap()
        .set_len(1 << 43)
        .unwrap();
    for (args, hint) in [
        // Each rank sends and receives a TiB, and copies another for the time of a memcpy.
        ("bench allreduce --ranks 4 --sizes 1024G", "17592.2 GB"),
        ("bench gather --ranks 2 --root 1 --sizes 4K,512G --preset raw", "3298.5 GB"),
        ("bench allreduce --field huge.f32", "8796.1 GB"),
        ("codec --field huge.f32 --bound abs:1", "8796.1 GB"),
        ("codec --field huge.npy --bound abs:1", "8796.1 GB"),
        ("stack --input huge.f32", "8796.1 GB"),
        ("stack --input huge.f32 huge.f32", "8796.1 GB"),
        ("sim allreduce --field huge.npy", "8796.1 GB"),
        #[cfg(feature = "applications")]
        ("train --field huge.f32", "8796.1 GB"),
    ] {
        let output = foldwire(folder.path(), args);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args}: {errors}");
        assert!(errors.contains(hint) && errors.contains("memory"), "{args}: {errors}");
        assert!(errors.contains("smaller --sizes") || errors.contains("piece"), "{args}: {errors}");
        assert!(errors.lines().count() == 1 && output.stdout.is_empty(), "{args}: {errors}");
    }
}

#[test]
fn help_shows_examples() {
    let folder = tempfile::tempdir().unwrap();
    for args in [
        "--help",
        "stack --help",
        "codec --help",
        "bench --help",
        "sim --help",
        "train --help",
        "launch --help",
        "info --help",
    ] {
        let output = foldwire(folder.path(), args);
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && text.contains("Examples:"), "{args}: {text}");
    }
}

/// Pictures that cannot be written are not a usage error, and the measurements are still printed.
#[test]
fn other_faults_exit_1() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("a.f32"), values(24)).unwrap();
    fs::write(folder.path().join("file"), b"").unwrap();
    let output = foldwire(folder.path(), "stack --input a.f32 --ranks 2 --out file");
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("--out"));
    assert!(String::from_utf8_lossy(&output.stdout).contains("PSNR"));
}

/// The last line summarises the table in words.
#[test]
fn the_main_job_ends_with_a_sentence() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("a.f32"), values(2400)).unwrap();
    let args = "stack --input a.f32 --ranks 2 --repeat 1 --no-pictures";
    let output = foldwire(folder.path(), args);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let last = text.lines().last().unwrap();
    assert!(
        last.starts_with("Foldwire: ") && last.contains(" × as fast as raw at 10 Gbit/s; "),
        "{last}"
    );
    assert!(last.ends_with("every value within its bound."), "{last}");
    assert!(text.contains("Foldwire, chosen"), "{text}");

    // Two of the three operands together exceed the range of their type.
    for (name, value) in [("b.f32", 3e38_f32), ("c.f32", 3e38), ("d.f32", -3e38)] {
        fs::write(folder.path().join(name), value.to_le_bytes().repeat(2400)).unwrap();
    }
    let args = "stack --input b.f32 c.f32 d.f32 --bound abs:1e30 --repeat 1 --no-pictures";
    let output = foldwire(folder.path(), args);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// A misspelled variable would otherwise have no effect and no message.
#[test]
fn a_variable_that_nobody_reads_is_told_with_the_nearest_name() {
    let folder = tempfile::tempdir().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_foldwire"))
        .args(["schedule", "--ranks", "2"])
        .env("FOLDWIRE_STREAM", "4")
        .current_dir(folder.path())
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && errors.contains("FOLDWIRE_STREAMS"), "{errors}");
}

/// Each bound has a table, with a row for each preset. Smaller bounds have smaller errors.
#[test]
fn every_bound_has_its_rows() {
    let folder = tempfile::tempdir().unwrap();
    let args = "stack --shape 32x24x40 --hz 9 --ranks 3 --repeat 1 --link none --cache cache \
                --preset raw zccl foldwire --bound rel:1e-3,abs:1e-4 --bound psnr:100 --papers";
    let table = foldwire(folder.path(), args);
    assert!(table.status.success(), "{}", String::from_utf8_lossy(&table.stderr));
    let table = String::from_utf8_lossy(&table.stdout);
    for title in
        ["bound rel:0.001\n", "\nbound abs:1e-4\n", "\nbound psnr:100\n", "hZCCL", "communicate"]
    {
        assert!(table.contains(title), "{title} is not in\n{table}");
    }
    assert!(folder.path().join("out/psnr-100/overview.png").is_file());

    let output = foldwire(folder.path(), &format!("{args} --no-pictures --json"));
    let object: serde_json::Value =
        serde_json::from_slice(&output.stdout).expect("stdout is one JSON object");
    let rows = object["rows"].as_array().unwrap();
    let names: Vec<_> = rows
        .iter()
        .map(|row| [&row["bound"], &row["preset"]].map(|x| x.as_str().unwrap()))
        .collect();
    let bounds = ["rel:0.001", "abs:1e-4", "psnr:100"];
    let expected: Vec<_> = bounds
        .iter()
        .flat_map(|&bound| ["raw", "zccl", "foldwire"].map(|preset| [bound, preset]))
        .collect();
    assert_eq!(names, expected);
    let number = |row: &serde_json::Value, key: &str| row[key].as_f64().expect("a number");
    for rows in rows.chunks(3) {
        assert_eq!((number(&rows[0], "bound_abs"), number(&rows[0], "speedup_raw")), (0.0, 1.0));
        assert!(rows.iter().all(|row| number(row, "max_err") <= number(row, "bound_worst")));
    }
    let zccl = |at: usize, key: &str| number(&rows[3 * at + 1], key);
    assert!(zccl(0, "bound_abs") > zccl(2, "bound_abs") && zccl(0, "ratio") > zccl(2, "ratio"));
    assert!(zccl(0, "psnr_db") < zccl(2, "psnr_db") && zccl(2, "psnr_db") > 100.0 - 20.0);
    assert_eq!(zccl(1, "bound_abs"), 1e-4);
    for row in rows {
        let shares = ["compress", "communicate", "compute", "other"].map(|key| number(row, key));
        assert!((shares.iter().sum::<f64>() - 1.0).abs() < 1e-9, "{row}");
        assert!(shares.iter().all(|share| *share > -1e-9), "{row}");
    }
    let papers = object["papers"].as_array().unwrap();
    assert!(papers.iter().any(|row| row["system"] == "CPRP2P" && row["compress"] == 63.12));
}

#[test]
fn the_users_data_are_stacked_and_pictured() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("a_5x2x3.f32"), values(30)).unwrap();
    let output =
        foldwire(folder.path(), "stack --input a_5x2x3.f32 --ranks 2 --out pictures --json");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    assert!(errors.contains("left out") && errors.contains("pictures"), "{errors}");
    assert!(folder.path().join("pictures/overview.png").is_file());
    let object: serde_json::Value =
        serde_json::from_slice(&output.stdout).expect("stdout is one JSON object");
    assert!(object["rows"].is_array());

    let quiet =
        foldwire(folder.path(), "stack --input a_5x2x3.f32 --ranks 2 --out none --no-pictures");
    assert!(quiet.status.success() && !folder.path().join("none").exists());
}

#[cfg(not(feature = "applications"))]
#[test]
fn who_asks_for_an_application_that_was_left_out_is_told_how_to_get_it() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["cg", "climate", "halo", "train", "transpose"] {
        let output = foldwire(folder.path(), name);
        assert_eq!(output.status.code(), Some(2), "{name}");
        let hint = String::from_utf8_lossy(&output.stderr);
        assert!(hint.contains("--features applications"), "{name}: {hint}");
    }
}
