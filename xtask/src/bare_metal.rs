//! `cargo xtask bare-metal`: builds and runs the program of `tests/bare-metal`, and checks its
//! imports. That program's `src/main.rs` explains what this proves.

use anyhow::{Context, ensure};
use foldwire_steps::Steps;
use object::{Object, ObjectSymbol};
use std::path::Path;
use std::process::Command;

const PACKAGE: &str = "-p foldwire-bare-metal --profile bare-metal";
const PROGRAM: &str = "target/bare-metal/foldwire-bare-metal";

pub(crate) fn run(steps: &mut Steps) -> anyhow::Result<()> {
    let build = format!("build {PACKAGE} --target-dir target");
    steps.run("bare metal, build", &mut steps.cargo(&build))?;
    let program = steps.root().join(PROGRAM);
    steps.run("bare metal, run", Command::new(&program).current_dir(steps.root()))?;
    let name = "bare metal, symbols";
    if cfg!(target_os = "linux") {
        steps.check(name, || check_symbols(&program))
    } else {
        steps.skip(name, "the list of imports is known for Linux only");
        Ok(())
    }
}

/// Lints the program with its own profile. With other profiles, it is another program.
pub(crate) fn lint(steps: &mut Steps) -> anyhow::Result<()> {
    let words = format!("clippy {PACKAGE} -- -D warnings");
    steps.run("lints, bare metal", &mut steps.cargo(&words))?;
    Ok(())
}

/// Imports that a program may need from a C library without threads, files or a heap: the start
/// code (`_ITM` and `__gmon` are its weak hooks), functions that compilers call by themselves, and
/// functions that the program declares.
const IMPORTS: &[&str] = &[
    "__libc_start_main",
    "__cxa_finalize",
    "__gmon_start__",
    "_ITM_deregisterTMCloneTable",
    "_ITM_registerTMCloneTable",
    "memcpy",
    "memmove",
    "memset",
    "memcmp",
    "bcmp",
    "strlen",
    "write",
    "abort",
];

fn check_symbols(program: &Path) -> anyhow::Result<()> {
    let bytes =
        std::fs::read(program).with_context(|| format!("cannot read {}", program.display()))?;
    let file = object::File::parse(&*bytes).context("the program is not an ELF file")?;
    let names = |imported: bool| {
        file.symbols()
            .filter(move |symbol| symbol.is_undefined() == imported)
            .filter_map(|symbol| symbol.name().ok())
            .filter(|name| !name.is_empty())
            .collect::<Vec<_>>()
    };
    let (imported, defined) = (names(true), names(false));
    ensure!(defined.contains(&"main"), "the program has no symbols; was it stripped?");
    let foreign: Vec<_> = imported.iter().filter(|name| !is_allowed_import(name)).collect();
    ensure!(foreign.is_empty(), "it imports {foreign:?}: core must not need a platform");
    let std: Vec<_> = defined.iter().filter(|name| is_of_std_or_heap(name)).collect();
    ensure!(std.is_empty(), "it contains parts of std or of an allocator: {std:?}");
    eprintln!(
        "    {} symbols, none of std or an allocator; imports: {}",
        defined.len(),
        imported.join(" ")
    );
    Ok(())
}

fn is_allowed_import(name: &str) -> bool {
    // Some linkers append the version: memcpy@GLIBC_2.14.
    IMPORTS.contains(&name.split('@').next().unwrap_or(name))
}

/// Returns whether a mangled name belongs to `std`, `alloc`, or the hooks of a global allocator.
fn is_of_std_or_heap(name: &str) -> bool {
    const HOOKS: [&str; 4] = ["__rust_alloc", "__rust_realloc", "__rg_", "__rdl_"];
    // Legacy mangling writes a path as lengths and names. v0 mangling names a crate
    // `Cs<hash>_<length><name>`.
    let in_crate = |crate_name: &str| {
        let path = format!("{}{crate_name}", crate_name.len());
        let legacy = name.starts_with(&format!("_ZN{path}"));
        let v0 = name.starts_with("_R")
            && name.match_indices(&format!("_{path}")).any(|(at, _)| {
                name[..at].rfind("Cs").is_some_and(|cs| {
                    name[cs + 2..at].bytes().all(|byte| byte.is_ascii_alphanumeric())
                })
            });
        legacy || v0
    };
    HOOKS.iter().any(|hook| name.contains(hook)) || in_crate("std") || in_crate("alloc")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn std_and_alloc_are_recognised_in_both_manglings() {
        for name in [
            "_ZN3std2io5stdio6_print17h0123456789abcdefE",
            "_RNvNtNtCs1234abcd_3std2io5stdio6__print",
            "_RNvMNtCsgEmfK2I1SDS_5alloc7raw_vecINtB2_6RawVec",
            "_RNvCs5QKde7ScR5G_7___rustc12___rust_alloc",
            "__rust_alloc",
            "__rdl_alloc",
        ] {
            assert!(is_of_std_or_heap(name), "{name}");
        }
        for name in ["main", "_ZN4core3fmt5write17h01E", "_RNvNtCsgEmfK2I1SDS_4core3fmt5write"] {
            assert!(!is_of_std_or_heap(name), "{name}");
        }
    }

    #[test]
    fn only_listed_imports_pass() {
        assert!(is_allowed_import("memcpy") && is_allowed_import("memcpy@GLIBC_2.14"));
        assert!(!is_allowed_import("malloc") && !is_allowed_import("memcpy_of_mine"));
    }
}
