//! Ranks as threads of this process.

use std::sync::Mutex;
use std::time::Duration;

use anyhow::Context;
use foldwire::{DType, Float, Transport};
use foldwire_arguments::BenchArgs;
use foldwire_arguments::values::LinkRate;
use foldwire_threads::World;
use foldwire_workbench::ranks;
use foldwire_workbench::threads::Pools;

use super::call_mode::{BackendExtras, BenchInputs, CallMode};
use super::output::BenchResults;
use super::{FieldSource, Settings, plans, show};

/// Default number of ranks.
pub(super) const DEFAULT_RANKS: usize = 4;

/// Starts the ranks and runs the benchmark.
pub(super) fn run<T: Float + Into<f64>, P: CallMode<T>>(
    args: &BenchArgs,
    source: &FieldSource,
) -> anyhow::Result<()> {
    let size = args.network.ranks.unwrap_or(DEFAULT_RANKS);
    let settings = Settings::new::<T>(args, size)?;
    let world = world(args);
    let long = settings.whole_message_bytes::<T>(&plans(args, T::DTYPE, &[], Pools::NONE), size);
    let long = long.filter(|_| args.frame.is_none());
    settings.check_room::<T>(0..size)?;
    let data = source.data::<T>(size).with_fill(args.fill);
    let presets = args.presets().of(T::DTYPE);
    let pools = (0..size).map(|_| Pools::new(args.threads, &presets));
    let pools = pools.collect::<Result<Vec<_>, _>>()?;
    let mut launches = Vec::new();
    for _ in 0..args.launches {
        let comms = long.map(|n_bytes| world.clone().frame_bytes(n_bytes).communicators());
        let comms = Mutex::new(comms.into_iter().flatten().map(Some).collect::<Vec<_>>());
        let ranks = world.clone().run_endpoints(|endpoint| {
            let mut comms = comms.lock().expect("no rank panics here");
            let long_frames = comms.get_mut(endpoint.rank().index()).and_then(Option::take);
            drop(comms);
            let extras = BackendExtras { long_frames, ..BackendExtras::default() };
            let pools = pools[endpoint.rank().index()];
            let (settings, data) = (&settings, &data);
            let inputs = BenchInputs { args, settings, data, backend: "threads", pools };
            P::run_rank(inputs, endpoint, extras)
        });
        let mut ranks = ranks::results(ranks)?;
        launches.push(ranks.swap_remove(0));
    }
    show(args, &BenchResults::of_launches(launches).context("there is a launch")?)
}

/// Returns the ranks that the user requested, with their links.
pub(super) fn world(args: &BenchArgs) -> World {
    let link_rate = args.link.as_ref().and_then(LinkRate::bytes_per_s);
    let latency = Duration::from_secs_f64(args.latency.unwrap_or_default());
    let world =
        ranks::world(args.network.ranks.unwrap_or(DEFAULT_RANKS), link_rate).link_latency(latency);
    // For values of up to 8 bytes.
    let n_bytes = || ranks::frame_bytes(args.threads.unwrap_or(1), DType::F64);
    world.frame_bytes(args.frame.unwrap_or_else(n_bytes))
}
