//! `foldwire info`: what this build and this machine have, and why something is not there.
//!
//! Each file of `info/` contributes one section; a backend is one file. A section is data; its
//! table and its JSON are made of the same cells.

mod choices;
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
use serde_json::{Map, Value};

use section::ReportSection;

/// Runs the subcommand: everything goes to stdout.
///
/// # Errors
///
/// When stdout cannot be written; what cannot be found out is told in its place.
pub(crate) fn run(args: &InfoArgs) -> anyhow::Result<()> {
    let sections: [ReportSection; 10] = [
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
    ];
    if args.json {
        let object: Map<_, _> =
            sections.iter().map(|section| (section.key.to_owned(), section.json())).collect();
        streams::write(&format!("{}\n", Value::Object(object)))?;
    } else {
        let texts: Vec<_> = sections.iter().map(ReportSection::text).collect();
        streams::write(&texts.join("\n"))?;
    }
    Ok(())
}

/// Runs `foldwire presets`: one of these sections alone.
///
/// # Errors
///
/// When stdout cannot be written.
pub(crate) fn run_presets(args: &PresetsArgs) -> anyhow::Result<()> {
    let section = presets::section();
    streams::write(&if args.json { format!("{}\n", section.json()) } else { section.text() })?;
    Ok(())
}
