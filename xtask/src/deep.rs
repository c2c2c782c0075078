//! `cargo xtask deep`: what finds more than [`mod@test`] and takes longer.

use crate::steps::Steps;
use crate::{
    bare_metal, current_mpi, fabrics, fuzz, loom, machine, packages, sanitize, soak, test,
};
use std::thread;

pub(crate) fn run(steps: &mut Steps) -> anyhow::Result<()> {
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
    soak::deeply(steps)?;
    test::run_long(steps, here)?;
    // Ranks of processes wait for each other most of the time. What computes fills that.
    let mut aside = steps.aside();
    let beside = &mut aside;
    let (others, computed) = thread::scope(|scope| {
        let computing = scope.spawn(move || {
            fuzz::briefly(beside)?;
            sanitize::briefly(beside)
        });
        (others(steps, here), computing.join())
    });
    steps.append(aside);
    others?;
    computed.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
    #[cfg(target_os = "linux")]
    crate::cluster::test(steps)?;
    Ok(())
}

/// What takes as long as fuzzing and the sanitizer.
fn others(steps: &mut Steps, here: machine::Available) -> anyhow::Result<()> {
    loom::run(steps, &loom::Args::default())?;
    bare_metal::run(steps)?;
    fabrics::test_others(steps, here)
}
