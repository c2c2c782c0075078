//! Tests that compile programs in C and C++ against an installed library, and run them.
//!
//! A test that needs a missing tool (a compiler, pkg-config, CMake, valgrind) is skipped, with a
//! message.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::LazyLock;

use crate::package;

/// Warnings that are errors.
const WARNINGS: &str = "-Wall -Wextra -Wpedantic -Werror";

/// Prefix in cargo's target folder where `install.sh` has installed the library.
pub(crate) static PREFIX: LazyLock<PathBuf> = LazyLock::new(|| {
    let prefix = Path::new(env!("CARGO_TARGET_TMPDIR")).join("foldwire-capi");
    fs::create_dir_all(&prefix).unwrap();
    // cargo puts the library beside the tests, with a hash in its name for each set of features
    // that it was ever built with. Take the newest.
    let beside = env::current_exe().unwrap();
    let built = fs::read_dir(beside.parent().unwrap()).unwrap().map(|entry| entry.unwrap().path());
    let is_ours = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy();
        name.starts_with("libfoldwire_c-") && name.ends_with(".a")
    };
    let built = built.filter(is_ours);
    let newest = built.max_by_key(|path| fs::metadata(path).unwrap().modified().unwrap());
    fs::copy(newest.expect("the static library"), prefix.join("libfoldwire_c.a")).unwrap();
    let mut install = Command::new("sh");
    // Valgrind's suppressions need function names.
    install.arg(package().join("install/install.sh")).arg("--keep-symbols");
    succeeds(install.arg("--prefix").arg(&prefix).arg("--from").arg(&prefix));
    prefix
});

/// Runs a command that must succeed, and returns its output.
pub(crate) fn succeeds(command: &mut Command) -> String {
    // cargo points this variable to its own folders, which may have old libraries.
    command.env_remove("LD_LIBRARY_PATH");
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}\n{text}{errors}", output.status);
    text
}

/// Returns whether a tool is installed. Prints a message if not.
pub(crate) fn has(tool: &str, what: &str) -> bool {
    let mut version = Command::new(tool);
    let version = version.arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    let is_here = version.is_ok_and(|status| status.success());
    if !is_here {
        // `cargo xtask test` collects lines of this form.
        println!("skipped: {what}: no `{tool}`");
    }
    is_here
}

/// Returns the compiler flags from pkg-config, or equal ones if it is not installed.
pub(crate) fn flags(is_static: bool) -> Vec<String> {
    let prefix = &*PREFIX;
    if !has("pkg-config", "the pkg-config file") {
        let [include, lib] = ["include", "lib"].map(|folder| prefix.join(folder));
        let (lib, system) =
            if is_static { (lib.join("foldwire"), "-lgcc_eh -lm -ldl") } else { (lib, "") };
        return [format!("-I{}", include.display()), format!("-L{}", lib.display())]
            .into_iter()
            .chain(["-lfoldwire_c".to_owned()])
            .chain(system.split_whitespace().map(str::to_owned))
            .collect();
    }
    let mut ask = Command::new("pkg-config");
    ask.env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig")).args(["--cflags", "--libs"]);
    if is_static {
        ask.arg("--static");
    }
    succeeds(ask.arg("foldwire")).split_whitespace().map(str::to_owned).collect()
}

/// Compiles a program of this package, and returns its path.
pub(crate) fn compiled(compiler: &str, standard: &str, source: &str, is_static: bool) -> PathBuf {
    let name = Path::new(source).file_stem().unwrap();
    let program = PREFIX.join(name);
    let mut compile = Command::new(compiler);
    compile.arg(standard).args(["-O1", "-g"]).args(WARNINGS.split_whitespace());
    compile.arg(package().join(source)).arg("-o").arg(&program);
    compile.args(flags(is_static));
    if !is_static {
        compile.arg(rpath());
    }
    succeeds(compile.args(["-lm", "-pthread"]));
    program
}

/// Linker flag with which programs find the installed library.
pub(crate) fn rpath() -> String {
    format!("-Wl,-rpath,{}", PREFIX.join("lib").display())
}

/// Runs a test program. It must print that it made more than `at_least` checks.
fn runs(program: &Path, arguments: &[&str], at_least: u64) {
    let said = succeeds(Command::new(program).args(arguments));
    let n_checks = said.trim().strip_suffix(" checks").and_then(|n| n.parse::<u64>().ok());
    assert!(n_checks.is_some_and(|n| n > at_least), "{said}");
}

/// Compiles and runs a test program, and runs it again under valgrind.
fn checks(source: &str, at_least: u64) -> Option<PathBuf> {
    if !has("cc", "the C interface from C") {
        return None;
    }
    let program = compiled("cc", "-std=c11", source, false);
    runs(&program, &[], at_least);
    if has("valgrind", "the C interface under valgrind") {
        // Valgrind does not support AVX-512. It reports this to programs that query the CPU.
        let mut checked = Command::new("valgrind");
        // Valgrind runs one thread at a time. Without a fair turn, a rank that polls may keep it
        // from the rank it waits for, for minutes.
        checked.args(["--quiet", "--fair-sched=try", "--error-exitcode=99", "--leak-check=full"]);
        checked.arg("--errors-for-leak-kinds=definite,possible");
        let known = package().join("tests/c/valgrind.supp");
        checked.arg(format!("--suppressions={}", known.display()));
        succeeds(checked.arg(&program));
    }
    Some(program)
}

#[test]
fn calls_do_what_the_header_says_and_touch_no_memory_that_they_may_not() {
    checks("tests/c/calls.c", 100_000);
}

#[test]
fn misuse_is_an_error_and_never_more() {
    checks("tests/c/misuse.c", 20_000);
}

#[test]
fn a_group_with_a_wrong_call_is_refused_whole() {
    checks("tests/c/groups.c", 10_000);
}

#[test]
fn a_call_that_waits_is_ended_by_another_thread() {
    if !has("cc", "the C interface from C") {
        return;
    }
    let program = compiled("cc", "-std=c11", "tests/c/abort.c", false);
    runs(&program, &[], 200);
    runs(&program, &["processes"], 20);
}

#[test]
fn ranks_meet_in_a_store_of_the_program_and_take_in_a_newcomer() {
    if has("cc", "the C interface from C") {
        runs(&compiled("cc", "-std=c11", "tests/c/stores.c", false), &[], 20_000);
    }
}

#[test]
fn children_of_fork_have_nothing_of_their_parents() {
    if has("cc", "the C interface from C") {
        runs(&compiled("cc", "-std=c11", "tests/c/fork.c", false), &[], 40);
    }
}

#[test]
fn the_examples_run() {
    if has("cc", "the example in C") {
        let said = succeeds(&mut Command::new(compiled("cc", "-std=c11", "examples/sum.c", false)));
        // The average of the ranks 0, 1, 2 and 3, plus the same sine.
        assert_eq!(said.matches(": 1.5000, ").count(), 4, "{said}");
    }
    if has("c++", "the example in C++") {
        let program = compiled("c++", "-std=c++17", "examples/overlap.cpp", true);
        let said = succeeds(&mut Command::new(program));
        assert_eq!(said.matches("rank ").count(), 3, "{said}");
    }
}

#[test]
fn cmake_finds_the_library() {
    if !has("cmake", "the CMake files") || !has("cc", "the CMake files") {
        return;
    }
    let folder = PREFIX.join("cmake");
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir(&folder).unwrap();
    let example = package().join("examples/sum.c");
    let has_fortran = has("gfortran", "the CMake target for Fortran");
    let mut lists = format!(
        "cmake_minimum_required(VERSION 3.16)\nproject(sum C{})\n\
         find_package(foldwire {}.{} REQUIRED)\nfind_package(Threads REQUIRED)\n\
         foreach(kind foldwire static)\nadd_executable(sum-${{kind}} {})\n\
         target_link_libraries(sum-${{kind}} foldwire::${{kind}} Threads::Threads m)\n\
         endforeach()\n",
        if has_fortran { " Fortran" } else { "" },
        env!("CARGO_PKG_VERSION_MAJOR"),
        env!("CARGO_PKG_VERSION_MINOR"),
        example.display()
    );
    if has_fortran {
        let example = package().join("examples/average.f90");
        lists += &format!(
            "add_executable(sum-fortran {})\ntarget_link_libraries(sum-fortran \
            foldwire::fortran)\n",
            example.display()
        );
    }
    fs::write(folder.join("CMakeLists.txt"), lists).unwrap();
    let prefix = &*PREFIX;
    let mut configure = Command::new("cmake");
    configure.current_dir(&folder).env("CMAKE_PREFIX_PATH", prefix).args(["-B", "build"]);
    succeeds(&mut configure);
    succeeds(Command::new("cmake").current_dir(&folder).args(["--build", "build"]));
    for kind in ["foldwire", "static"] {
        succeeds(&mut Command::new(folder.join(format!("build/sum-{kind}"))));
    }
    if has_fortran {
        let said = succeeds(&mut Command::new(folder.join("build/sum-fortran")));
        assert!(said.starts_with("rank 0 of 1: "), "{said}");
    }
}
