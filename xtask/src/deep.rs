//! `cargo xtask deep`: runs the tests that take longer than [`mod@test`] and find more.

use crate::{
    bare_metal, current_mpi, devices, fabrics, fuzz, loom, machine, packages, programs, sanitize,
    test,
};
use anyhow::ensure;
use foldwire_steps::Steps;
use std::thread;

const EXAMPLES: &str = "\
Examples:
  cargo xtask deep               everything
  cargo xtask deep --minutes 8   parts that begin within eight minutes; the summary names the rest";

/// Options of `cargo xtask deep`.
#[derive(Debug, Default, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Begin no part after this many minutes, and no long part shortly before
    #[arg(long, value_name = "M")]
    minutes: Option<f64>,
}

pub(crate) fn run(steps: &mut Steps, args: &Args) -> anyhow::Result<()> {
    let is_time = |minutes: f64| (0.0..=1e6).contains(&minutes);
    ensure!(args.minutes.is_none_or(is_time), "--minutes must be a number from 0 to a million");
    steps.end_after(args.minutes);
    let missing = packages::install(steps)?;
    if !missing.is_empty() {
        eprintln!("{}", packages::advice(&missing));
    }
    let mut aside = steps.aside();
    match current_mpi::install(&mut aside) {
        Ok(()) => steps.append(aside),
        Err(error) => steps.skip("programs over newer MPI libraries", &format!("{error:#}")),
    }
    let here = machine::available();
    fabrics::skip_what_is_missing(steps, here);
    if steps.has_time_for("soak") {
        // The seeds after those of the tests.
        programs::soak(steps, &["--from", "4000"])?;
    }
    if steps.has_time_for("long tests") {
        test::run_long(steps, here)?;
    }
    // Ranks in processes wait for each other most of the time. Fuzzing and sanitizers use that
    // time. Most of theirs passes until their programs are built.
    let mut aside = steps.aside();
    let concurrent = &mut aside;
    let (others, computed) = thread::scope(|scope| {
        let computing = scope.spawn(move || {
            if concurrent.has_minutes_for(5, "fuzzing") {
                fuzz::run_briefly(concurrent)?;
            }
            if concurrent.has_minutes_for(3, "AddressSanitizer") {
                sanitize::run_briefly(concurrent)
            } else {
                Ok(())
            }
        });
        (others(steps, here), computing.join())
    });
    steps.append(aside);
    others?;
    computed.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
    #[cfg(target_os = "linux")]
    if steps.has_time_for("emulated cluster") {
        foldwire_cluster::test(steps)?;
    }
    Ok(())
}

/// Runs the other parts, which take as long as fuzzing and the sanitizer. The parts that users
/// call come first.
fn others(steps: &mut Steps, here: machine::MachineParts) -> anyhow::Result<()> {
    // With its default features. All other tests build the command with all of its features.
    if steps.has_time_for("command, as first built") {
        let words = "test -p foldwire-command --test command command_line::";
        steps.run_tests("command, as first built", &mut steps.cargo(words))?;
    }
    fabrics::test_others(steps, here)?;
    if steps.has_time_for("devices") {
        devices::long_tests(steps)?;
    }
    if steps.has_time_for("bare metal") {
        bare_metal::run(steps)?;
    }
    if steps.has_time_for("loom") {
        loom::run(steps, &loom::Args::default())?;
    }
    if steps.has_time_for("patterns of interp") { test::run_patterns(steps, here) } else { Ok(()) }
}
