//! `foldwire info`: the features of this build and this machine, and the reason for anything
//! missing.
//!
//! Each file of `info/` adds one section, and each backend has a file. A section holds data. Its
//! table and its JSON use the same cells.

mod choices;
mod cuda;
mod kernels;
mod libfabric;
mod links;
mod machine;
mod mpi;
mod place;
mod presets;
mod section;
mod tcp;
mod threads;

use foldwire_arguments::{InfoArgs, PresetsArgs};
use foldwire_workbench::streams;
use serde_json::Value;

use section::ReportSection;

/// Runs the subcommand. All output goes to stdout.
///
/// # Errors
///
/// If stdout cannot be written. The output itself contains errors of single sections.
pub(crate) fn run(args: &InfoArgs) -> anyhow::Result<()> {
    let sections: [ReportSection; 11] = [
        machine::section(),
        kernels::section(),
        presets::section(),
        choices::section(args),
        place::section(),
        links::section(),
        threads::section(),
        mpi::section(),
        libfabric::section(),
        tcp::section(),
        cuda::section(),
    ];
    let json = || {
        let objects = sections.iter().map(|section| (section.key.to_owned(), section.json()));
        Value::Object(objects.collect())
    };
    let text = || sections.iter().map(ReportSection::text).collect::<Vec<_>>().join("\n");
    Ok(streams::results(args.json, json, text)?)
}

/// Runs `foldwire presets`, which prints only the section on presets.
///
/// # Errors
///
/// If stdout cannot be written.
pub(crate) fn run_presets(args: &PresetsArgs) -> anyhow::Result<()> {
    let section = presets::section();
    Ok(streams::results(args.json, || section.json(), || section.text())?)
}
