//! Runs the package's Python tests with the library that cargo has built. Without numpy, all of
//! them are skipped. A test that needs another missing package, such as torch, is skipped with a
//! message.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{env, fs};

/// Returns the folder of the package.
fn package() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Returns the interpreter that `FOLDWIRE_PYTHON` names, or else the system's.
fn python() -> Command {
    Command::new(env::var_os("FOLDWIRE_PYTHON").unwrap_or_else(|| "python3".into()))
}

/// Assembles the package in cargo's target folder, and returns the folder for `PYTHONPATH`.
fn assemble() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("foldwire-python");
    let into = folder.join("foldwire");
    fs::create_dir_all(&into).unwrap();
    for entry in fs::read_dir(package().join("python/foldwire")).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_file() {
            fs::copy(entry.path(), into.join(entry.file_name())).unwrap();
        }
    }
    // cargo puts the library beside the tests.
    let tests = env::current_exe().unwrap();
    let (prefix, suffix) = (env::consts::DLL_PREFIX, env::consts::DLL_SUFFIX);
    let library = tests.with_file_name(format!("{prefix}foldwire_python{suffix}"));
    // Rename a new copy over the old one, because another run may have loaded it.
    let new = into.join("_native.new");
    fs::copy(library, &new).unwrap();
    fs::rename(new, into.join("_native.abi3.so")).unwrap();
    folder
}

#[test]
fn the_tests_in_python_pass() {
    let mut probe = python();
    let probe = probe.args(["-c", "import numpy"]).stdout(Stdio::null()).stderr(Stdio::null());
    if !probe.status().is_ok_and(|status| status.success()) {
        // `cargo xtask test` collects lines of this form.
        println!("skipped: the package for Python: no python3 with numpy");
        return;
    }
    let mut tests = python();
    tests.args(["-B", "-m", "unittest", "discover", "--verbose", "-s"]);
    tests.arg(package().join("tests")).env("PYTHONPATH", assemble());
    let output = tests.output().unwrap();
    // unittest writes to standard error.
    let report = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}\n{report}", output.status);
    for line in report.lines() {
        if let Some((_, why)) = line.split_once("... skipped ") {
            println!("skipped: Python, {}", why.trim_matches(['\'', '"']));
        }
    }
}
