//! Tests of programs in C whose ranks are processes.

use std::fs;
use std::net::TcpListener;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::LazyLock;

use crate::programs::{PREFIX, compiled, has};

const SIZE: usize = 3;

/// Starts each command as a rank, and waits for all of them.
fn run_all(commands: impl Iterator<Item = Command>) -> Vec<Output> {
    let started: Vec<Child> = commands
        .map(|mut command| {
            command.env_remove("LD_LIBRARY_PATH").stdout(Stdio::piped()).stderr(Stdio::piped());
            command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"))
        })
        .collect();
    started.into_iter().map(|child| child.wait_with_output().unwrap()).collect()
}

/// Parses the number of checks that a program prints.
fn n_checks(output: &Output) -> u64 {
    let text = String::from_utf8_lossy(&output.stdout);
    let number = text.trim().strip_suffix(" checks").and_then(|text| text.parse().ok());
    number.unwrap_or_else(|| panic!("{text}{}", String::from_utf8_lossy(&output.stderr)))
}

/// The compiled test program, if there is a C compiler.
static PROGRAM: LazyLock<Option<PathBuf>> = LazyLock::new(|| {
    let is_here = has("cc", "ranks in C that are processes");
    is_here.then(|| compiled("cc", "-std=c11", "tests/c/ranks.c", false))
});

/// Returns the test program, and an empty folder.
fn program(name: &str) -> Option<(&'static Path, PathBuf)> {
    let program = PROGRAM.as_deref()?;
    let folder = PREFIX.join(name);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir(&folder).unwrap();
    Some((program, folder))
}

fn rank(program: &Path, rank: usize, folder: &Path) -> Command {
    let mut command = Command::new(program);
    command.args([rank.to_string(), SIZE.to_string()]).arg(folder);
    command
}

#[test]
fn ranks_that_are_processes_meet_by_a_unique_id_and_outlive_one_of_them() {
    let Some((program, folder)) = program("ids") else { return };
    let outputs = run_all((0..SIZE).map(|each| rank(program, each, &folder)));
    for (rank, output) in outputs.iter().enumerate() {
        assert!(n_checks(output) > 20, "rank {rank}");
        let ended_itself = output.status.signal() == Some(9);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() != (rank == SIZE - 1), "rank {rank}: {errors}");
        assert_eq!(ended_itself, rank == SIZE - 1, "rank {rank}: {errors}");
    }
}

/// Returns a port that is currently free.
fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr()).unwrap().port()
}

/// Environment variables that `foldwire launch` sets.
fn own(rank: usize) -> Vec<(&'static str, String)> {
    vec![("FOLDWIRE_RANK", rank.to_string()), ("FOLDWIRE_SIZE", SIZE.to_string())]
}

#[test]
fn the_example_runs_as_processes() {
    if !has("cc", "the example of ranks that are processes") {
        return;
    }
    let example = compiled("cc", "-std=c11", "examples/processes.c", false);
    let root = format!("127.0.0.1:{}", free_port());
    for (rank, output) in run_all((0..SIZE).map(|rank| {
        let mut command = Command::new(&example);
        command.envs(own(rank)).env("FOLDWIRE_ROOT", &root);
        command
    }))
    .iter()
    .enumerate()
    {
        let said = String::from_utf8_lossy(&output.stdout);
        // The average of 0, 1 and 2.
        assert!(said.starts_with(&format!("rank {rank} of {SIZE}: 1.00; within ")), "{said}");
        assert!(output.status.success());
    }
}

#[test]
fn each_process_warns_once_about_a_variable_that_nothing_reads() {
    if !has("cc", "warnings about variables") {
        return;
    }
    let program = compiled("cc", "-std=c11", "tests/c/variables.c", false);
    let mut command = Command::new(program);
    command.env("FOLDWIRE_IFACES", "lo");
    for output in run_all(std::iter::once(command)) {
        let warning = "foldwire: warning: nothing reads the variable FOLDWIRE_IFACES; do you mean \
                       FOLDWIRE_IFACE?\n";
        assert_eq!(String::from_utf8_lossy(&output.stderr), warning);
        assert!(n_checks(&output) > 0 && output.status.success());
    }
}

#[test]
fn ranks_that_are_processes_meet_by_what_launchers_say() {
    let Some((program, folder)) = program("env") else { return };
    let torchrun = |rank: usize| {
        let set = [
            ("TORCHELASTIC_RUN_ID", "none".to_owned()),
            ("RANK", rank.to_string()),
            ("WORLD_SIZE", SIZE.to_string()),
            ("LOCAL_WORLD_SIZE", SIZE.to_string()),
        ];
        set.to_vec()
    };
    for said in [&own as &dyn Fn(usize) -> Vec<(&'static str, String)>, &torchrun] {
        let root = format!("127.0.0.1:{}", free_port());
        let outputs = run_all((0..SIZE).map(|each| {
            let mut command = rank(program, each, &folder);
            command.arg("env").envs(said(each)).env("FOLDWIRE_ROOT", &root);
            command
        }));
        for output in &outputs {
            assert!(n_checks(output) > 5 && output.status.success());
        }
    }
}
