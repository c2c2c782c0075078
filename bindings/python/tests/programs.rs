//! The package's tests, which are in Python, with the library that cargo has built beside it. What
//! is missing (Python, numpy; torch, numcodecs and more for some of them) is left out, and said.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{env, fs};

fn package() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The interpreter: `FOLDWIRE_PYTHON`, for one of a virtual environment, or the system's.
fn python() -> Command {
    Command::new(env::var_os("FOLDWIRE_PYTHON").unwrap_or_else(|| "python3".into()))
}

/// The package as it is imported, in cargo's target folder.
fn assembled() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("foldwire-python");
    let into = folder.join("foldwire");
    fs::create_dir_all(&into).unwrap();
    for entry in fs::read_dir(package().join("python/foldwire")).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_file() {
            fs::copy(entry.path(), into.join(entry.file_name())).unwrap();
        }
    }
    // cargo leaves the library beside the tests.
    let tests = env::current_exe().unwrap();
    let (prefix, suffix) = (env::consts::DLL_PREFIX, env::consts::DLL_SUFFIX);
    let library = tests.with_file_name(format!("{prefix}foldwire_python{suffix}"));
    // A copy that is not loaded yet, as another run may have the old one.
    let new = into.join("_native.new");
    fs::copy(library, &new).unwrap();
    fs::rename(new, into.join("_native.abi3.so")).unwrap();
    folder
}

#[test]
fn the_tests_in_python_pass() {
    let mut ask = python();
    let ask = ask.args(["-c", "import numpy"]).stdout(Stdio::null()).stderr(Stdio::null());
    if !ask.status().is_ok_and(|status| status.success()) {
        // As `cargo xtask test` collects them.
        println!("skipped: the package for Python: no python3 with numpy");
        return;
    }
    let mut tests = python();
    tests.args(["-B", "-m", "unittest", "discover", "--verbose", "-s"]);
    tests.arg(package().join("tests")).env("PYTHONPATH", assembled());
    let output = tests.output().unwrap();
    // That is where unittest writes.
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}\n{said}", output.status);
    for line in said.lines() {
        if let Some((_, why)) = line.split_once("... skipped ") {
            println!("skipped: Python, {}", why.trim_matches(['\'', '"']));
        }
    }
}
