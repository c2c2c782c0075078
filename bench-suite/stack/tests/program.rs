//! Tests of the program `stack`, which is `foldwire stack` alone and the first command in
//! README.md.

use std::process::{Command, Output};

fn stack(args: &str) -> Output {
    let folder = tempfile::tempdir().expect("a folder");
    Command::new(env!("CARGO_BIN_EXE_stack"))
        .current_dir(folder.path())
        .args(args.split_whitespace())
        // A misspelt variable, about which the program must warn.
        .env("FOLDWIRE_TOKN", "none")
        .output()
        .expect("the program starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("it writes UTF-8")
}

#[test]
fn it_sums_images_and_summarizes_the_result_in_words() {
    let output = stack("--shape 24x20x28 --ranks 3 --cache images --repeat 1 --link none");
    let (results, remarks) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{remarks}");
    assert!(
        results.contains("MPI-like raw") && results.contains("every value within its bound"),
        "{results}"
    );
    assert!(
        remarks.contains("FOLDWIRE_TOKEN") && remarks.contains("out/overview.png"),
        "{remarks}"
    );
}

#[test]
fn multi_threaded_presets_compute_on_more_than_one_thread() {
    // Each of four lanes needs a segment that is long enough for two threads.
    let size = "--shape 128x112x128 --time 0.02 --ranks 2 --cache images --repeat 1 --link none";
    let more = "--no-pictures --json --preset zccl zccl-mt hzccl-mt foldwire";
    for (threads, expected) in [("", [1, 2, 2, 1]), ("--threads 2", [2; 4])] {
        let output = stack(&format!("{size} {more} {threads}"));
        assert!(output.status.success(), "{}", text(&output.stderr));
        let object: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let rows = object["rows"].as_array().expect("rows");
        let threads: Vec<_> = rows.iter().map(|row| row["threads"].as_u64()).collect();
        assert_eq!(threads, expected.map(Some), "{threads:?}");
    }
}

#[test]
fn a_wrong_argument_is_named_and_sets_the_exit_code() {
    for (args, expected) in [
        ("--shape 64x64", "three numbers"),
        ("--bound 1e-3", "needs a prefix"),
        // This program has no subcommands.
        ("stack", "unexpected argument"),
        ("--input a.f32 --cache images", "--cache has no use here"),
    ] {
        let output = stack(args);
        assert_eq!(output.status.code(), Some(2), "{args}");
        assert!(text(&output.stderr).contains(expected), "{args}: {}", text(&output.stderr));
    }
    let help = stack("--help");
    assert!(help.status.success() && text(&help.stdout).contains("`foldwire stack`"));
}
