//! `cargo xtask deep`: what finds more than [`test`](crate::test) and takes longer.

use crate::steps::Steps;
use crate::{fabrics, fuzz, loom, machine, packages, sanitize, soak};

pub(crate) fn run(steps: &mut Steps) -> anyhow::Result<()> {
    let missing = packages::install(steps)?;
    if !missing.is_empty() {
        eprintln!("{}", packages::advice(&missing));
    }
    let here = machine::available();
    fabrics::skip_what_is_missing(steps, here);
    soak::deeply(steps)?;
    loom::run(steps, &loom::Args::default())?;
    fuzz::briefly(steps)?;
    sanitize::briefly(steps)?;
    fabrics::test_others(steps, here)?;
    #[cfg(target_os = "linux")]
    crate::cluster::test(steps)?;
    Ok(())
}
