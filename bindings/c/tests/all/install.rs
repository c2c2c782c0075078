//! Tests of the files that `install.sh` installs: names and exported symbols of the libraries,
//! linker flags, and a header without compiler warnings.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::package;
use crate::programs::{PREFIX, flags, has, rpath, succeeds};

/// Lists the dynamic section of a program, with the libraries that it needs.
fn needed(program: &Path) -> String {
    succeeds(Command::new("readelf").arg("-d").arg(program))
}

/// Compiles, links and runs a program. Returns its dynamic section.
fn linked(compiler: &str, source: &str, name: &str, with: &[&str], is_static: bool) -> String {
    let program = PREFIX.join(name);
    let mut compile = Command::new(compiler);
    compile.args(["-O1", "-Wall", "-Wextra"]).arg(package().join(source)).arg("-o").arg(&program);
    compile.args(with).args(flags(is_static)).args(["-lm", "-pthread"]);
    if !is_static {
        compile.arg(rpath());
    }
    succeeds(&mut compile);
    succeeds(&mut Command::new(&program));
    needed(&program)
}

#[test]
fn programs_name_the_version_that_they_were_linked_with() {
    if !has("cc", "linking") || !has("readelf", "what a program needs") {
        return;
    }
    let [major, minor] = [env!("CARGO_PKG_VERSION_MAJOR"), env!("CARGO_PKG_VERSION_MINOR")];
    let abi = if major == "0" { format!("0.{minor}") } else { major.to_owned() };
    let of_program = linked("cc", "examples/sum.c", "sum-shared", &[], false);
    assert!(of_program.contains(&format!("[libfoldwire_c.so.{abi}]")), "{of_program}");
    // The library in `PREFIX` was installed with its symbols. Install it again without this option.
    let prefix = PREFIX.join("stripped");
    let mut install = Command::new("sh");
    install.arg(package().join("install/install.sh")).arg("--prefix").arg(&prefix);
    succeeds(install.arg("--from").arg(&*PREFIX));
    let library = prefix.join("lib/libfoldwire_c.so");
    let exported = succeeds(Command::new("nm").args(["-D", "--defined-only"]).arg(&library));
    let names: Vec<&str> = exported.lines().filter_map(|line| line.split(' ').nth(2)).collect();
    let header = fs::read_to_string(PREFIX.join("include/foldwire.h")).unwrap();
    let ours = |name: &str| {
        let version = format!("FOLDWIRE_{abi}");
        let function = name.strip_suffix(&format!("@@{version}"));
        name == version || function.is_some_and(|name| header.contains(&format!("{name}(")))
    };
    assert!(names.len() > 40 && names.iter().all(|name| ours(name)), "{names:?}");
    // By default, installed libraries are stripped.
    let sections = succeeds(Command::new("readelf").args(["-S", "-W"]).arg(&library));
    assert!(!sections.contains(".debug_") && !sections.contains(".symtab"), "{sections}");
}

#[test]
fn pkg_config_links_statically_if_it_is_asked_to() {
    if !has("cc", "linking") || !has("readelf", "what a program needs") {
        return;
    }
    let alone = linked("cc", "examples/sum.c", "sum-static", &[], true);
    assert!(!alone.contains("libfoldwire"), "{alone}");
    if has("c++", "linking C++") {
        let alone = linked("c++", "examples/overlap.cpp", "overlap-static", &[], true);
        assert!(!alone.contains("libfoldwire"), "{alone}");
    }
    // Fully static, without system libraries.
    let whole = linked("cc", "examples/sum.c", "sum-whole", &["-static"], true);
    assert!(!whole.contains("NEEDED"), "{whole}");
}

/// Program that declares one of each struct.
const DECLARES: &str = "#include <foldwire.h>\n#include <foldwire.h>\n\
    int main(void) {\n\
    fwPlan plan = FW_PLAN_INIT; fwConfig config = FW_CONFIG_INIT;\n\
    fwReport report = FW_REPORT_INIT;\n\
    return plan.size != sizeof plan || config.size != sizeof config\n\
    || report.size != sizeof report || plan.seed != 0 || plan.schedule[31] != 0\n\
    || config.reserved != 0 || report.codec[0] != 0; }\n";

#[test]
fn compilers_have_nothing_to_say_about_the_header() {
    let sources = ["declares.c", "declares.cpp"].map(|name| PREFIX.join(name));
    sources.iter().for_each(|source| fs::write(source, DECLARES).unwrap());
    let c = ["-std=c99", "-std=c11", "-std=c17", "-std=gnu11"];
    let cpp = ["-std=c++11", "-std=c++17", "-std=c++20"];
    for (compiler, source, standards) in [
        ("gcc", &sources[0], &c[..]),
        ("clang", &sources[0], &c[..]),
        ("g++", &sources[1], &cpp[..]),
        ("clang++", &sources[1], &cpp[..]),
    ] {
        if !has(compiler, "warnings about the header") {
            continue;
        }
        for standard in standards {
            let program = PREFIX.join(format!("declares-{compiler}"));
            let mut compile = Command::new(compiler);
            compile.args([standard, "-Wall", "-Wextra", "-pedantic", "-Werror", "-Wconversion"]);
            compile.arg(source).arg("-o").arg(&program).arg("-I").arg(PREFIX.join("include"));
            succeeds(&mut compile);
            succeeds(&mut Command::new(&program));
        }
    }
}
