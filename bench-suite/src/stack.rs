//! `foldwire stack`: one image volume per rank, summed.

use serde_json::json;

use crate::cli::StackArgs;
use crate::input::{self, DEFAULT_RANKS, Inputs, Volumes};
use crate::picture::Gallery;
use crate::table;
use crate::wave::{self, Survey};

/// Runs the subcommand: results on stdout, everything else on stderr.
///
/// # Errors
///
/// Errors of use, and pictures that cannot be written.
pub fn run(args: &StackArgs) -> anyhow::Result<()> {
    let inputs = inputs(args)?;
    for note in &inputs.notes {
        eprintln!("note: {note}");
    }
    eprintln!(
        "{} ranks, {} values of {} ({}, {}) each: {}",
        inputs.volumes.n_ranks(),
        inputs.dims.n_values(),
        inputs.volumes.dtype(),
        inputs.dims,
        table::bytes(inputs.volumes.n_bytes_per_rank() as u64),
        inputs.source
    );
    let exact = inputs.volumes.exact_sum();
    if !args.no_pictures {
        let overview = Gallery::open(&args.out, &exact, &inputs.dims)?.finish()?;
        eprintln!("pictures: {}", overview.display());
    }
    if args.json {
        println!("{}", json!({ "rows": [] }));
    }
    Ok(())
}

/// The operands: the user's files, or simulated images.
fn inputs(args: &StackArgs) -> anyhow::Result<Inputs> {
    if !args.input.is_empty() {
        return Ok(input::load(&args.input, args.dims.as_ref(), args.ranks)?);
    }
    let survey = Survey::new(args.ranks.unwrap_or(DEFAULT_RANKS));
    let cache = args.cache.clone().or_else(wave::default_cache);
    let images = survey.images(cache.as_deref());
    Ok(Inputs {
        volumes: Volumes::F32(images.volumes),
        dims: survey.dims(),
        source: survey.describe(),
        notes: images.notes,
    })
}
