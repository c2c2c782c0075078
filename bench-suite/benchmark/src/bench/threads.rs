//! Ranks as threads of this process.

use std::time::Duration;

use anyhow::Context;
use foldwire::Float;
use foldwire_arguments::BenchArgs;
use foldwire_arguments::values::LinkRate;
use foldwire_threads::World;
use foldwire_workbench::ranks;

use super::call_mode::{BackendExtras, BenchInputs, CallMode};
use super::output::BenchResults;
use super::{FieldSource, Settings, message_bytes, plans, show};

/// Default number of ranks.
const DEFAULT_RANKS: usize = 4;

/// Starts the ranks and runs the benchmark.
pub(super) fn run<T: Float + Into<f64>, P: CallMode<T>>(
    args: &BenchArgs,
    source: &FieldSource,
) -> anyhow::Result<()> {
    let size = args.ranks.unwrap_or(DEFAULT_RANKS);
    let settings = Settings::new::<T>(args, size)?;
    let mut world = world(args);
    let whole = settings.whole_message_bytes::<T>(&plans(args, &[])?, size);
    if args.frame.is_none() {
        world = world.frame_bytes(message_bytes(args).max(whole.unwrap_or(0)));
    }
    settings.check_room::<T>(size, 0..size)?;
    let data = source.data::<T>(size);
    let inputs = BenchInputs { args, settings: &settings, data: &data, backend: "threads" };
    let mut launches = Vec::new();
    for _ in 0..args.launches {
        let run_rank = |endpoint| P::run_rank(inputs, endpoint, BackendExtras::default());
        let ranks = world.clone().run_endpoints(run_rank);
        let mut ranks = ranks.into_iter().collect::<anyhow::Result<Vec<_>>>()?;
        launches.push(ranks.swap_remove(0));
    }
    show(args, &BenchResults::of_launches(launches).context("there is a launch")?)
}

/// Returns the ranks that the user requested, with their links.
pub(super) fn world(args: &BenchArgs) -> World {
    let link_rate = args.link.as_ref().and_then(LinkRate::bytes_per_s);
    let latency = Duration::from_secs_f64(args.latency.unwrap_or_default());
    let world = ranks::world(args.ranks.unwrap_or(DEFAULT_RANKS), link_rate).link_latency(latency);
    if let Some(n_bytes) = args.frame { world.frame_bytes(n_bytes) } else { world }
}
