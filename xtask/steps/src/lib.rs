//! Runs the commands of a task, such as `cargo xtask test`, one after another. Each command is a
//! step. A step is printed and timed, and its tests are counted. The first step that fails ends the
//! task. Its error shows the command in a form that can be pasted into a shell.
//!
//! Cargo's output passes through. Test counts come from its `test result:` lines. Lines that begin
//! with `skipped: ` are repeated in the summary.
//!
//! Long tasks have *parts* of one or more steps, which a time limit can skip.

pub mod programs;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::{self, BufRead, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// The steps of a task so far.
pub struct Steps {
    root: PathBuf,
    start: Instant,
    done: Vec<StepRecord>,
    /// Collected output, if these steps run at the same time as others. `None` if output is printed
    /// at once.
    output: Option<Vec<u8>>,
    /// No part begins after this time.
    end: Option<Instant>,
}

struct StepRecord {
    name: String,
    time: Duration,
    seen: OutputSummary,
    status: StepStatus,
}

/// Results found in a step's output.
#[derive(Debug, Default, PartialEq, Eq)]
struct OutputSummary {
    tests: TestCounts,
    /// Reasons in the lines `skipped: …`, each once.
    skips: BTreeSet<String>,
}

/// Result of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StepStatus {
    Passed,
    Failed,
    Skipped,
}

/// Numbers of tests that a step ran.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TestCounts {
    /// Tests that passed.
    pub passed: usize,
    /// Tests that failed.
    pub failed: usize,
}

/// A failed step. Its exit code becomes the exit code of the task.
#[derive(Debug)]
struct StepFailure {
    step: String,
    /// Command line that repeats the step.
    repeat: String,
    status: ExitStatus,
}

impl std::fmt::Display for StepFailure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { step, repeat, status } = self;
        write!(f, "step `{step}` failed ({status}); to repeat it:\n  {repeat}")
    }
}

impl std::error::Error for StepFailure {}

impl Steps {
    /// Starts an empty list of steps. Commands run in `root`.
    pub fn new(root: PathBuf) -> Self {
        Self { root, start: Instant::now(), done: Vec::new(), output: None, end: None }
    }

    /// Starts a list of steps that run at the same time as these. Their output is printed when they
    /// are [appended](Self::append).
    pub fn aside(&self) -> Self {
        Self { output: Some(Vec::new()), end: self.end, ..Self::new(self.root.clone()) }
    }

    /// Prints the output of steps that ran at the same time, and adds their records to this list.
    pub fn append(&mut self, aside: Self) {
        // Ignore the error: it means that the reader closed the output.
        let _ = io::stdout().write_all(&aside.output.unwrap_or_default());
        self.done.extend(aside.done);
    }

    /// The workspace's root, where every command runs.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Returns a cargo command with these arguments. `rust-toolchain.toml`, rustup, or a leading
    /// `+nightly` selects the toolchain.
    pub fn cargo(&self, words: &str) -> Command {
        let mut command = Command::new("cargo");
        command.args(words.split_whitespace()).current_dir(&self.root);
        command
    }

    /// Runs a command, passing its output through. Returns how many tests it ran.
    pub fn run(&mut self, name: &str, command: &mut Command) -> anyhow::Result<TestCounts> {
        let Some(mut output) = self.output.take() else {
            return self.run_into(name, command, &mut io::stdout());
        };
        // Cargo's messages on standard error would mix with the other steps' lines.
        let result = self.run_into(name, command.env("CARGO_TERM_QUIET", "true"), &mut output);
        self.output = Some(output);
        result
    }

    /// Same as [`run`](Self::run), but writes standard output to `out`.
    pub fn run_into(
        &mut self,
        name: &str,
        command: &mut Command,
        out: &mut dyn io::Write,
    ) -> anyhow::Result<TestCounts> {
        let repeat = in_shell(command);
        eprintln!("\n==> {name}: {repeat}");
        self.timed(name, |seen| {
            let mut child = command.stdout(Stdio::piped()).spawn().map_err(|error| {
                let program = command.get_program().display();
                anyhow::anyhow!("cannot run {program}: {error}; is it installed and in PATH?")
            })?;
            if let Some(stdout) = child.stdout.take() {
                pass_through(&mut BufReader::new(stdout), out, seen)?;
            }
            let status = child.wait()?;
            if status.success() {
                return Ok(());
            }
            Err(StepFailure { step: name.to_owned(), repeat, status }.into())
        })
    }

    /// Same as [`run`](Self::run), but fails if the command ran no test.
    pub fn run_tests(&mut self, name: &str, command: &mut Command) -> anyhow::Result<TestCounts> {
        let tests = self.run(name, command)?;
        anyhow::ensure!(tests.passed > 0, "step `{name}` ran no test");
        Ok(tests)
    }

    /// Runs a function as a step, instead of a command.
    pub fn check(
        &mut self,
        name: &str,
        check: impl FnOnce() -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        eprintln!("\n==> {name}");
        self.timed(name, |_| check()).map(|_| ())
    }

    /// Runs `step`, and records its time and result.
    fn timed(
        &mut self,
        name: &str,
        step: impl FnOnce(&mut OutputSummary) -> anyhow::Result<()>,
    ) -> anyhow::Result<TestCounts> {
        let start = Instant::now();
        let mut seen = OutputSummary::default();
        let result = step(&mut seen);
        let (time, tests) = (start.elapsed(), seen.tests);
        eprintln!("    {name}: {}", seconds(time));
        let status = if result.is_ok() { StepStatus::Passed } else { StepStatus::Failed };
        self.done.push(StepRecord { name: name.to_owned(), time, seen, status });
        result.map(|()| tests)
    }

    /// Records a step that this machine cannot run, and the reason, for the summary.
    pub fn skip(&mut self, name: &str, reason: &str) {
        eprintln!("\n==> {name}: skipped: {reason}");
        let (time, seen) = (Duration::ZERO, OutputSummary::default());
        self.done.push(StepRecord {
            name: name.to_owned(),
            time,
            seen,
            status: StepStatus::Skipped,
        });
    }

    /// Sets the time limit: no part begins after this many minutes. `None` means no limit.
    pub fn end_after(&mut self, minutes: Option<f64>) {
        let seconds = minutes.map(|minutes| Duration::from_secs_f64(60.0 * minutes));
        self.end = seconds.map(|seconds| Instant::now() + seconds);
    }

    /// Returns whether a part may begin. Otherwise the part is recorded as skipped.
    pub fn has_time_for(&mut self, part: &str) -> bool {
        self.has_minutes_for(0, part)
    }

    /// Returns whether a part may begin that takes about as many minutes. Otherwise the part is
    /// recorded as skipped.
    pub fn has_minutes_for(&mut self, minutes: u64, part: &str) -> bool {
        let needed = Duration::from_secs(60 * minutes);
        let has_time = self.end.is_none_or(|end| Instant::now() + needed < end);
        if !has_time {
            self.skip(part, "the time limit (--minutes) has passed");
        }
        has_time
    }

    /// Prints the summary: the table, and then the number of tests or the error.
    pub fn finish(self, result: anyhow::Result<()>) -> ExitCode {
        // Ignore the error: it means that the reader closed the output.
        let _ = io::stdout().flush();
        eprint!("{}", self.table());
        match result {
            Ok(()) => {
                let tests = self.tests();
                if tests != TestCounts::default() {
                    println!("{} passed, {} failed", tests.passed, tests.failed);
                }
                ExitCode::SUCCESS
            }
            Err(error) => {
                eprintln!("\nerror: {error:#}");
                let code =
                    error.downcast_ref::<StepFailure>().and_then(|failed| failed.status.code());
                ExitCode::from(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1))
            }
        }
    }

    fn tests(&self) -> TestCounts {
        self.done.iter().fold(TestCounts::default(), |sum, done| TestCounts {
            passed: sum.passed + done.seen.tests.passed,
            failed: sum.failed + done.seen.tests.failed,
        })
    }

    fn table(&self) -> String {
        if self.done.is_empty() {
            return String::new();
        }
        let width = self.done.iter().map(|done| done.name.len()).max().unwrap_or(0);
        let mut table = String::from("\n");
        let mut row = |name: &str, time, tests: TestCounts, status: &str| {
            let tests = match tests {
                TestCounts { passed: 0, failed: 0 } => String::new(),
                TestCounts { passed, failed: 0 } => format!("{passed} passed"),
                TestCounts { passed, failed } => format!("{passed} passed, {failed} failed"),
            };
            let line = format!("{name:width$}  {:>9}  {status:7}  {tests}", seconds(time));
            // Writing to a string cannot fail.
            let _ = writeln!(table, "{}", line.trim_end());
        };
        for done in &self.done {
            let status = match done.status {
                StepStatus::Passed => "ok",
                StepStatus::Failed => "FAILED",
                StepStatus::Skipped => "skipped",
            };
            row(&done.name, done.time, done.seen.tests, status);
        }
        row("total", self.start.elapsed(), self.tests(), "");
        for done in &self.done {
            for why in &done.seen.skips {
                let _ = writeln!(table, "skipped in {}: {why}", done.name);
            }
        }
        table
    }
}

fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}

/// Copies output line by line, counts tests, and notes the reasons in the lines `skipped: …`.
fn pass_through(
    from: &mut dyn BufRead,
    to: &mut dyn io::Write,
    seen: &mut OutputSummary,
) -> io::Result<()> {
    let mut line = Vec::new();
    while from.read_until(b'\n', &mut line)? > 0 {
        to.write_all(&line)?;
        to.flush()?;
        let text = String::from_utf8_lossy(&line).into_owned();
        if let Some(TestCounts { passed, failed }) = count(&text) {
            seen.tests.passed += passed;
            seen.tests.failed += failed;
        }
        seen.skips.extend(skipped(&text).map(str::to_owned));
        line.clear();
    }
    Ok(())
}

/// Parses the numbers of a line such as `test result: ok. 12 passed; 0 failed; 1 ignored; …`.
fn count(line: &str) -> Option<TestCounts> {
    let rest = line.trim_start().strip_prefix("test result: ")?;
    let number = |what: &str| {
        let mut words = rest.split(what).next()?.split_whitespace();
        words.next_back()?.parse().ok()
    };
    Some(TestCounts { passed: number(" passed")?, failed: number(" failed")? })
}

/// Returns the reason in a line such as `skipped: no provider shm`. If tests run one at a time, the
/// test program begins the line with `test NAME ... `.
fn skipped(line: &str) -> Option<&str> {
    let behind_name = line.strip_prefix("test ").and_then(|rest| rest.split_once(" ... "));
    let message = behind_name.map_or(line, |(_, message)| message);
    message.strip_prefix("skipped: ").map(str::trim_end)
}

/// Returns the command as a line for a shell, with the environment variables that it sets.
pub fn in_shell(command: &Command) -> String {
    let variables = command.get_envs().filter_map(|(name, value)| {
        Some(format!("{}={}", name.display(), quoted(&value?.to_string_lossy())))
    });
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let words = words.map(|word| quoted(&word.to_string_lossy()));
    variables.chain(words).collect::<Vec<_>>().join(" ")
}

fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_=+./:,@%".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn result_lines_are_counted_and_others_are_not() {
        let output = "running 2 tests\n\
            test result: ok. 12 passed; 0 failed; 1 ignored; 0 measured; 3 filtered out; \
             finished in 0.1s\n\
            test result: FAILED. 3 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out\n\
            a word about test result: ok. 9 passed; 9 failed\n";
        let (mut copy, mut seen) = (Vec::new(), OutputSummary::default());
        pass_through(&mut output.as_bytes(), &mut copy, &mut seen).unwrap();
        assert_eq!(copy, output.as_bytes());
        let tests = TestCounts { passed: 15, failed: 2 };
        assert_eq!(seen, OutputSummary { tests, skips: BTreeSet::new() });
    }

    #[test]
    fn what_tests_skip_is_in_the_summary_once() {
        let mut steps = Steps::new(PathBuf::from("."));
        let lines = "echo 'skipped: no data'; echo 'test a ... skipped: no data'; \
            echo 'skipped: no provider'; echo 'nothing is skipped: here'";
        steps.run_into("tests", Command::new("sh").args(["-c", lines]), &mut io::sink()).unwrap();
        let table = steps.table();
        let skips: Vec<_> = table.lines().filter(|line| line.starts_with("skipped")).collect();
        assert_eq!(skips, ["skipped in tests: no data", "skipped in tests: no provider"]);
    }

    #[test]
    fn parts_for_which_no_time_is_left_are_in_the_summary() {
        let mut steps = Steps::new(PathBuf::from("."));
        steps.end_after(Some(60.0));
        assert!(steps.has_time_for("early") && steps.aside().has_time_for("beside"));
        steps.end_after(Some(0.0));
        assert!(!steps.has_time_for("late") && !steps.aside().has_time_for("beside"));
        steps.end_after(Some(3.0));
        assert!(steps.has_minutes_for(2, "short") && !steps.has_minutes_for(4, "long"));
        assert!(steps.table().contains("late") && !steps.table().contains("early"));
    }

    #[test]
    fn commands_can_be_pasted_into_a_shell() {
        let mut command = Command::new("cargo");
        command.args(["test", "it's"]).env("RUSTFLAGS", "--cfg loom");
        assert_eq!(in_shell(&command), r"RUSTFLAGS='--cfg loom' cargo test 'it'\''s'");
    }

    #[cfg(unix)]
    #[test]
    fn a_failing_step_ends_with_its_own_exit_code() {
        let mut steps = Steps::new(PathBuf::from("."));
        steps.run("fine", Command::new("sh").args(["-c", "exit 0"])).unwrap();
        let error = steps.run("broken", Command::new("sh").args(["-c", "exit 7"])).unwrap_err();
        assert!(error.to_string().ends_with("to repeat it:\n  sh -c 'exit 7'"), "{error}");
        assert!(steps.table().lines().any(|l| l.starts_with("broken") && l.contains("FAILED")));
        assert_eq!(steps.finish(Err(error)), ExitCode::from(7));
    }
}
