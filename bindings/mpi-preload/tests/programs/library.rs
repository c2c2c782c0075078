//! An MPI library under test: compiles programs with it and starts them.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use super::LOW;

/// An MPI library under test. Compilers and launchers have different names on different systems, so
/// the lists hold candidates.
pub(crate) struct MpiUnderTest {
    pub(crate) name: &'static str,
    pub(crate) compilers: &'static [&'static str],
    pub(crate) fortran: &'static [&'static str],
    pub(crate) launchers: &'static [&'static str],
    /// Text in the launcher's output for `--version`.
    pub(crate) launcher_version_text: &'static str,
    /// File name of the library to preload.
    pub(crate) file: &'static str,
    /// True if the launcher is Hydra, which belongs to MPICH. Its options differ from Open MPI's.
    pub(crate) launcher_is_hydra: bool,
    /// First version (major, minor) that supports progress callbacks, without which non-blocking
    /// calls are passed on.
    pub(crate) progress_callbacks_since: Option<[u32; 2]>,
    /// Returns the constants that this crate defines for the library's ABI.
    pub(crate) constants: fn() -> Vec<i64>,
}

/// Path of a program that `cargo xtask packages --current-mpi` installs.
macro_rules! current {
    ($program:literal) => {
        concat!(env!("CARGO_MANIFEST_DIR"), "/../../../target/current-mpi/", $program)
    };
}
pub(crate) use current;

/// Ranks that start in the same way: number of ranks, program arguments and environment variables.
type RankGroup<'r> = (usize, &'r [&'r str], &'r [(&'r str, &'r str)]);

pub(super) fn output(command: &mut Command) -> Output {
    command.stdin(Stdio::null()).output().unwrap_or_else(|error| panic!("{command:?}: {error}"))
}

pub(super) fn text(output: &Output) -> String {
    [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes)).concat()
}

impl MpiUnderTest {
    /// Returns the launcher and its version text.
    pub(super) fn launcher_and_version(&self) -> Option<(&'static str, String)> {
        self.launchers.iter().find_map(|&program| {
            let version = Command::new(program).arg("--version").stdin(Stdio::null()).output();
            let version = text(&version.ok()?);
            version.contains(self.launcher_version_text).then_some((program, version))
        })
    }

    pub(super) fn launcher(&self) -> Option<&'static str> {
        self.launcher_and_version().map(|(program, _)| program)
    }

    /// Returns whether the library supports progress callbacks.
    pub(super) fn has_progress_callbacks(&self) -> bool {
        let (Some(since), Some((_, said))) =
            (self.progress_callbacks_since, self.launcher_and_version())
        else {
            return false;
        };
        let numbers = |word: &str| {
            let mut numbers = word.split('.').map(str::parse);
            Some([numbers.next()?.ok()?, numbers.next()?.ok()?])
        };
        said.split_whitespace().find_map(numbers).is_some_and(|version| version >= since)
    }

    /// Compiles a program of `tests/c`. Each test has its own folder, since tests that run at the
    /// same time may compile the same program. Prints a message and returns `None` if something is
    /// missing.
    pub(super) fn compiled(&self, source: &str, test: &str) -> Option<PathBuf> {
        self.compiled_with(&[], source, test)
    }

    /// Does the same as [`compiled`](Self::compiled), with compiler options.
    pub(super) fn compiled_with(
        &self,
        options: &[&str],
        source: &str,
        test: &str,
    ) -> Option<PathBuf> {
        let compilers = if source.ends_with(".c") { self.compilers } else { self.fortran };
        let works = |program: &&&str| {
            Command::new(program)
                .arg("--version")
                .stdin(Stdio::null())
                .output()
                .is_ok_and(|output| output.status.success())
        };
        let (Some(compiler), Some(_)) = (compilers.iter().find(works), self.launcher()) else {
            // `cargo xtask test` collects lines of this form.
            println!("skipped: {} under {}: not installed", source, self.name);
            return None;
        };
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/c").join(source);
        // A space separates names in LD_PRELOAD.
        let folder = self.name.replace(' ', "-");
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(folder).join(test);
        std::fs::create_dir_all(&folder).unwrap();
        let program = folder.join(source.file_stem().unwrap());
        let mut compile = Command::new(compiler);
        compile.args(["-O1", "-pthread"]).args(options).arg(&source);
        compile.arg("-o").arg(&program).arg("-lm");
        // Compilers write module files into the current folder.
        let compiled = output(compile.current_dir(&folder));
        assert!(compiled.status.success(), "{compile:?}: {}", text(&compiled));
        Some(program)
    }

    /// Path of the library for `LD_PRELOAD`, next to the test program.
    pub(super) fn preloaded(&self) -> PathBuf {
        let preloaded = env::current_exe().unwrap().with_file_name(self.file);
        assert!(preloaded.is_file(), "{}", preloaded.display());
        preloaded
    }

    /// Runs ranks with the library preloaded, unless their variables set `LD_PRELOAD`.
    pub(super) fn run(&self, program: &Path, ranks: &[RankGroup<'_>]) -> Output {
        output(&mut self.command(program, ranks))
    }

    pub(super) fn command(&self, program: &Path, ranks: &[RankGroup<'_>]) -> Command {
        let preloaded = self.preloaded();
        let mut run = Command::new(self.launcher().unwrap());
        if !self.launcher_is_hydra {
            run.args(["--allow-run-as-root", "--oversubscribe"]);
        }
        for (at, (n, words, variables)) in ranks.iter().enumerate() {
            if at > 0 {
                run.arg(":");
            }
            run.args(["-n", &n.to_string()]);
            let preload = [("LD_PRELOAD", preloaded.to_str().unwrap())];
            let is_set = variables.iter().any(|(name, _)| *name == "LD_PRELOAD");
            let preload = preload.iter().filter(|_| !is_set);
            for (name, value) in preload.chain(*variables) {
                if self.launcher_is_hydra {
                    run.args(["-env", name, value]);
                } else {
                    run.arg("-x").arg(format!("{name}={value}"));
                }
            }
            run.arg(program).args(*words);
        }
        run
    }

    /// Runs a program that checks its own results. Returns the line that reports all calls.
    pub(super) fn checks(&self, program: &Path, n: usize, words: &[&str], bound: &str) -> String {
        let said = self.run(program, &[(n, words, &[LOW, ("FOLDWIRE_BOUND", bound)])]);
        let (is_good, said) = (said.status.success(), text(&said));
        assert!(is_good && said.contains("0 failed"), "{n} ranks, {bound}: {said}");
        let line = said.lines().find(|line| line.contains("foldwire: calls of")).unwrap();
        assert!(!line.contains("FAILED"), "{n} ranks, {bound}: {line}");
        line.to_owned()
    }
}
