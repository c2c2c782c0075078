//! `cargo xtask fuzz`: runs the targets of `fuzz/` under libFuzzer and AddressSanitizer.
//!
//! They are cargo-fuzz targets, so `cargo +nightly fuzz run TARGET` runs one as well. This command
//! builds all of them at once with cargo-fuzz's flags, so that no machine has to install cargo-fuzz
//! first (a minute of compiling).
//!
//! ```text
//!   fuzz/corpus/TARGET/     committed inputs: small ones, and regressions (regress-…)
//!   fuzz/work/TARGET/       inputs that earlier runs found useful; not committed
//!   fuzz/work/TARGET.log    the log of the last run
//!   fuzz/artifacts/TARGET/  findings
//! ```

mod keep;
mod outcome;

use crate::nightly::Nightly;
use anyhow::{Context, bail, ensure};
use foldwire_steps::{Steps, in_shell};
use outcome::FuzzOutcome;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const EXAMPLES: &str = "\
Examples:
  cargo xtask fuzz                     every target for a minute each
  cargo xtask fuzz --time 10m --jobs 2
  cargo xtask fuzz roundtrip --time 1h
  cargo xtask fuzz --keep              put the best inputs of earlier runs into fuzz/corpus/
A finding's input is in fuzz/artifacts/TARGET/. After fixing it, commit the input as
fuzz/corpus/TARGET/regress-NAME: the tests of the workspace then run it.";

/// The flags of cargo-fuzz 0.13: coverage of edges and compared values, and AddressSanitizer.
const FLAGS: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares -Cllvm-args=-sanitizer-coverage-stack-depth \
    -Cllvm-args=-simplifycfg-branch-fold-threshold=0 -Zsanitizer=address -Cdebug-assertions \
    -Ccodegen-units=1 \
    --cfg fuzzing";

/// Enough for two chunks of f64 in the worst case. Longer inputs find nothing new and take longer.
const MAX_INPUT_BYTES: u32 = 70_000;

/// Time for each target in `cargo xtask deep`.
const BRIEFLY: Duration = Duration::from_secs(6);

/// The profile of `cargo xtask deep`. Compared with `release`, its programs take two thirds of the
/// time to build, and 1.5 times as long to run.
const BRIEF: &str = "brief";

/// Options of `cargo xtask fuzz`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The target [default: all]
    target: Option<String>,
    /// Time for each target: a number with s, m or h
    #[arg(long, value_name = "TIME", default_value = "1m", value_parser = time)]
    time: Duration,
    /// Number of targets that run at the same time
    #[arg(long, value_name = "N", default_value_t = 1,
        value_parser = clap::value_parser!(u8).range(1..))]
    jobs: u8,
    /// Instead of fuzzing, choose a few small inputs of earlier runs for fuzz/corpus/
    #[arg(long)]
    keep: bool,
}

pub(crate) fn run(steps: &mut Steps, args: &Args) -> anyhow::Result<()> {
    let targets = chosen(steps.root(), args.target.as_deref())?;
    let built = BuiltTargets::new(steps, "release")?;
    let words = "run --manifest-path fuzz/Cargo.toml --no-default-features --example seeds --";
    steps.run("first inputs", steps.cargo(words).arg(built.fuzz.join("work/seeds")))?;
    if args.keep {
        return steps.check("keep inputs", || keep::keep(&built, &targets));
    }
    built.fuzz(steps, &targets, args.time, args.jobs.into())
}

/// Runs every target for some seconds in `cargo xtask deep`, if this machine can.
pub(crate) fn run_briefly(steps: &mut Steps) -> anyhow::Result<()> {
    if let Err(reason) = can_fuzz() {
        steps.skip("fuzz", &format!("{reason:#}"));
        return Ok(());
    }
    let targets = chosen(steps.root(), None)?;
    let jobs = std::thread::available_parallelism().map_or(1, usize::from);
    BuiltTargets::new(steps, BRIEF)?.fuzz(steps, &targets, BRIEFLY, jobs)
}

/// Finds what fuzzing needs.
///
/// # Errors
/// The missing program, and how to install it.
fn can_fuzz() -> anyhow::Result<Nightly> {
    let nightly = Nightly::find()?;
    let compiler = std::env::var_os("CXX").unwrap_or_else(|| "c++".into());
    let advice =
        "libFuzzer is compiled from C++; install a compiler (Debian: `apt install g++`) or set CXX";
    let mut command = Command::new(compiler);
    let command = command.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
    ensure!(command.status().context(advice)?.success(), advice);
    Ok(nightly)
}

/// Returns the chosen targets. The list of targets is `[[bin]]` in `fuzz/Cargo.toml`.
fn chosen(root: &Path, wanted: Option<&str>) -> anyhow::Result<Vec<String>> {
    let path = root.join("fuzz/Cargo.toml");
    let manifest = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let all = targets_of(&manifest);
    match wanted {
        None => Ok(all),
        Some(wanted) if all.iter().any(|target| target == wanted) => Ok(vec![wanted.to_owned()]),
        Some(wanted) => bail!("there is no target `{wanted}`; the targets are {}", all.join(", ")),
    }
}

fn targets_of(manifest: &str) -> Vec<String> {
    let bins = manifest.split("[[bin]]").skip(1);
    let name = |bin: &str| {
        let line = bin.lines().find_map(|line| line.strip_prefix("name = "))?;
        Some(line.trim().trim_matches('"').to_owned())
    };
    bins.filter_map(name).collect()
}

/// The compiled targets.
struct BuiltTargets {
    fuzz: PathBuf,
    programs: PathBuf,
}

impl BuiltTargets {
    fn new(steps: &mut Steps, profile: &str) -> anyhow::Result<Self> {
        let nightly = can_fuzz()?;
        let fuzz = steps.root().join("fuzz");
        let words = format!(
            "+nightly build --profile {profile} --manifest-path fuzz/Cargo.toml --bins --target {}",
            nightly.host
        );
        steps.run("fuzz targets", steps.cargo(&words).env("RUSTFLAGS", FLAGS))?;
        let programs = fuzz.join("target").join(nightly.host).join(profile);
        Ok(Self { fuzz, programs })
    }

    /// Returns a target's folder below a folder of `fuzz/`, and makes it if necessary.
    fn folder(&self, of: &str, target: &str) -> anyhow::Result<PathBuf> {
        let folder = self.fuzz.join(of).join(target);
        fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
        Ok(folder)
    }

    /// Returns a command for a target's program, with the settings of every run.
    fn program(&self, target: &str) -> anyhow::Result<Command> {
        let mut command = Command::new(self.programs.join(target));
        // Set by cargo-fuzz too: it suppresses false reports of duplicate symbols in Rust programs.
        command.env("ASAN_OPTIONS", "detect_odr_violation=0").stdin(Stdio::null());
        let mut prefix = self.folder("artifacts", target)?.into_os_string();
        prefix.push("/");
        let mut option = std::ffi::OsString::from("-artifact_prefix=");
        option.push(prefix);
        command.arg(option);
        Ok(command)
    }

    /// Returns the folders of a run's initial inputs. The first folder also gets the new inputs.
    fn inputs(&self, target: &str) -> anyhow::Result<[PathBuf; 3]> {
        Ok([
            self.folder("work", target)?,
            self.folder("work/seeds", target)?,
            self.folder("corpus", target)?,
        ])
    }

    /// Runs the targets, `jobs` at a time. Each such group is a step.
    fn fuzz(
        &self,
        steps: &mut Steps,
        targets: &[String],
        time: Duration,
        jobs: usize,
    ) -> anyhow::Result<()> {
        for together in targets.chunks(jobs) {
            let name = format!("fuzz {}", together.join(", "));
            steps.check(&name, || {
                let started = together
                    .iter()
                    .map(|target| self.start(target, time))
                    .collect::<Result<Vec<_>, _>>()?;
                // Wait for all targets before reporting a finding, so that none keeps running.
                let ended: Vec<_> = started.into_iter().map(RunningTarget::outcome).collect();
                ended.into_iter().collect()
            })?;
        }
        Ok(())
    }

    fn start(&self, target: &str, time: Duration) -> anyhow::Result<RunningTarget> {
        let log = self.fuzz.join("work").join(format!("{target}.log"));
        let mut command = self.program(target)?;
        command
            .arg(format!("-max_total_time={}", time.as_secs()))
            .arg(format!("-max_len={MAX_INPUT_BYTES}"))
            .args(["-len_control=0", "-print_final_stats=1"])
            .args(self.inputs(target)?)
            .stdout(Stdio::null())
            .stderr(File::create(&log).with_context(|| log.display().to_string())?);
        eprintln!("{}", in_shell(&command));
        let child = command.spawn().with_context(|| format!("cannot run {target}"))?;
        Ok(RunningTarget { target: target.to_owned(), log, child })
    }
}

/// A target that runs.
struct RunningTarget {
    target: String,
    log: PathBuf,
    child: Child,
}

impl RunningTarget {
    fn outcome(mut self) -> anyhow::Result<()> {
        let status = self.child.wait()?;
        let text = fs::read(&self.log).with_context(|| self.log.display().to_string())?;
        let text = String::from_utf8_lossy(&text);
        FuzzOutcome::of(&text, status.success()).into_result(&self.target, &self.log)
    }
}

/// Parses a number with a unit: `90s`, `10m`, `2h`.
pub(crate) fn time(text: &str) -> Result<Duration, String> {
    let wrong = || {
        format!(
            "`{text}` is not a time: write whole seconds, minutes or hours, as in 90s, 10m or 2h"
        )
    };
    let (number, seconds) = match text.char_indices().next_back() {
        Some((at, 's')) => (&text[..at], 1),
        Some((at, 'm')) => (&text[..at], 60),
        Some((at, 'h')) => (&text[..at], 3600),
        _ => return Err(wrong()),
    };
    match number.parse::<u32>() {
        Ok(number) if number > 0 => Ok(Duration::from_secs(u64::from(number) * seconds)),
        _ => Err(wrong()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_needs_a_unit() {
        assert_eq!(time("90s"), Ok(Duration::from_secs(90)));
        assert_eq!(time("10m"), Ok(Duration::from_secs(600)));
        assert_eq!(time("2h"), Ok(Duration::from_secs(7200)));
        for wrong in ["", "10", "m", "0s", "-1m", "1.5h", "10 m", "5d"] {
            assert!(time(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn targets_are_read_from_the_manifest() {
        let manifest =
            "[lib]\nname = \"no\"\n[[bin]]\nname = \"a\"\npath = \"x\"\n\n[[bin]]\nname = \"b\"\n";
        assert_eq!(targets_of(manifest), ["a", "b"]);
        let real = chosen(&crate::workspace(), None).unwrap();
        assert!(real.len() >= 6 && real.contains(&"decode".to_owned()), "{real:?}");
        assert!(chosen(&crate::workspace(), Some("decoder")).is_err());
    }
}
