//! Tests of all subcommands with an output that cannot be written: a full disk, a reader that
//! leaves.

use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// Each subcommand in each of its forms, and clap's output.
const COMMANDS: [&str; 13] = [
    "stack --input a.f32 --ranks 2 --no-pictures",
    "stack --input a.f32 --ranks 2 --no-pictures --json",
    "codec --field a.f32 --bound abs:1 --repeat 1",
    "codec --field a.f32 --bound abs:1 --repeat 1 --json",
    "bench allreduce --ranks 2 --sizes 4K --preset raw --repeat 1 --min-time 0",
    "bench allreduce --ranks 2 --sizes 4K --preset raw --repeat 1 --min-time 0 --json",
    "sim allreduce --ranks 2 --size 4K --preset raw --speeds zccl-1-thread",
    "sim allreduce --ranks 2 --size 4K --preset raw --speeds zccl-1-thread --json",
    "launch -n 2 -- echo hello",
    "info",
    "info --json",
    "bench --help",
    "--version",
];

fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let values: Vec<u8> = (0..24_u16).flat_map(|at| f32::from(at).to_le_bytes()).collect();
    fs::write(folder.path().join("a.f32"), values).unwrap();
    folder
}

fn command(folder: &Path, args: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_foldwire"));
    command.args(args.split_whitespace()).current_dir(folder).stdin(Stdio::null());
    command
}

fn full() -> File {
    File::options().write(true).open("/dev/full").expect("Linux has it")
}

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn results_that_a_full_disk_does_not_take_are_an_error_of_one_line() {
    let folder = folder();
    for args in COMMANDS {
        let output = command(folder.path(), args).stdout(full()).output().unwrap();
        let errors = errors(&output);
        assert_eq!(output.status.code(), Some(1), "{args}: {errors}");
        let faults: Vec<_> = errors.lines().filter(|line| line.starts_with("error: ")).collect();
        assert_eq!(faults.len(), 1, "{args}: {errors}");
        assert!(faults[0].contains("the output cannot be written"), "{args}: {errors}");
        assert!(!errors.contains("panicked"), "{args}: {errors}");
    }
}

#[test]
fn a_reader_who_leaves_ends_the_command_without_a_word() {
    let folder = folder();
    for args in COMMANDS {
        // Close the reader before the start. Otherwise a short output could be in the pipe already.
        let (reader, writer) = io::pipe().unwrap();
        drop(reader);
        let output = command(folder.path(), args).stdout(writer).output().unwrap();
        let errors = errors(&output);
        assert_eq!(output.status.code(), Some(141), "{args}: {errors}");
        assert!(!errors.contains("error") && !errors.contains("panicked"), "{args}: {errors}");
    }
}

/// Lost results are an error, lost remarks are not. An error keeps its exit code even if its
/// message is lost.
#[test]
fn remarks_that_cannot_be_written_change_no_exit_code() {
    let folder = folder();
    for (args, code) in [
        ("stack --input a.f32 --ranks 2 --no-pictures", 0),
        ("stack --input none.f32", 2),
        ("stack --ranks 0", 2),
        ("launch -n 2 -- false", 1),
        ("launch -n 2 -- cat no-such-file", 1),
    ] {
        let output = command(folder.path(), args).stderr(full()).output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{args}");
        assert_eq!(output.stdout.is_empty(), code != 0, "{args}");
    }
}
