//! Predicted and measured times between threads of this process.
//!
//! Speeds are measured with as many busy threads as ranks compute at once. Two parameters of the
//! threads backend come from calls with one value in a message, which are not part of the
//! comparison:
//!
//! - the cost of a message, from calls whose ranks are all driven by one thread;
//! - the cost of waking up a rank, from calls with the same ranks and links as the predicted call.
//!
//! No parameter is fitted to the times that are compared.

use std::thread::available_parallelism;
use std::time::{Duration, Instant};

use anyhow::anyhow;
use foldwire::codec::CodecId;
use foldwire::schedule::RecursiveDoubling;
use foldwire::{Bound, Call, Collective, Float, Op, Plan, Preset};
use foldwire_arguments::SimArgs;
use foldwire_arguments::values::LinkRate;
use foldwire_sim::cost::{ClusterModel, Costs, HostModel, ModelCall, NetworkModel, predict};
use foldwire_threads::{World, drive};
use foldwire_workbench::data::{Data, FieldSource};
use foldwire_workbench::memory::median;
use foldwire_workbench::{progress, ranks};
use indicatif::ProgressBar;
use serde_json::json;

use super::super::measure::MeasurementTask;
use super::{Comparison, ValidationRow, bisect};
use crate::bench::preset_run::PresetRun;

/// Number of timed runs of each configuration.
const RUNS: usize = 9;
/// Number of consecutive calls with one value in a message.
const SMALL_CALLS: usize = 200;

/// One world, and the calls that run in it.
struct ValidationCase {
    ranks: usize,
    /// Link rate, as on the command line.
    link: &'static str,
    latency: Duration,
    n_bytes: usize,
    collective: Collective,
    presets: &'static [Preset],
}

const fn us(n: u64) -> Duration {
    Duration::from_micros(n)
}

/// The configurations. They cover one to several ranks per core, links from slower than the codec
/// to as fast as memory, with and without latency, and other collectives.
const CASES: [ValidationCase; 12] = {
    use Collective::{AllGather, AllReduce, Broadcast, ReduceScatter};
    use Preset::{Cprp2pPlus, Foldwire, GzcclPlus, HzcclPlus, Raw, ZcclPlus};
    const MOST: &[Preset] = &[Raw, ZcclPlus, HzcclPlus, Foldwire];
    const ENDS: &[Preset] = &[Raw, Foldwire];
    const fn case(
        (ranks, link, latency): (usize, &'static str, Duration),
        (collective, n_bytes): (Collective, usize),
        presets: &'static [Preset],
    ) -> ValidationCase {
        ValidationCase { ranks, link, latency, n_bytes, collective, presets }
    }
    [
        case((2, "1gbit", us(0)), (AllReduce, 8 << 20), MOST),
        case((4, "1gbit", us(50)), (AllReduce, 8 << 20), MOST),
        case((8, "1gbit", us(0)), (AllReduce, 8 << 20), MOST),
        case((2, "10gbit", us(20)), (AllReduce, 32 << 20), MOST),
        case((4, "10gbit", us(0)), (AllReduce, 32 << 20), MOST),
        case((8, "10gbit", us(20)), (AllReduce, 16 << 20), MOST),
        case((8, "10gbit", us(0)), (AllReduce, 16 << 20), &[Cprp2pPlus, GzcclPlus]),
        case((2, "none", us(0)), (AllReduce, 32 << 20), ENDS),
        case((8, "none", us(0)), (AllReduce, 16 << 20), ENDS),
        case((4, "10gbit", us(0)), (ReduceScatter, 32 << 20), ENDS),
        case((4, "1gbit", us(50)), (AllGather, 16 << 20), ENDS),
        case((8, "10gbit", us(0)), (Broadcast, 16 << 20), ENDS),
    ]
};

/// Measures and predicts every configuration.
///
/// # Errors
/// Fails if a call fails.
pub(super) fn compare<T: Float>(
    args: &SimArgs,
    source: &FieldSource,
) -> anyhow::Result<Comparison> {
    let cores = available_parallelism()?.get();
    let message = message_cost()?;
    let n_rows: usize = CASES.iter().map(|case| case.presets.len()).sum();
    let progress = progress::bar("validating", n_rows);
    let mut rows = Vec::new();
    for case in &CASES {
        let data = source.data::<T>(case.ranks);
        rows.extend(case.rows(args.bound, cores, message, &data, &progress)?);
    }
    progress.finish_and_clear();
    let (bound, data) = (args.bound.to_string(), source.data::<T>(1).about().to_owned());
    let head = vec![
        format!("predicted and measured: {cores} cores, {}, bound {bound}, {data}", T::DTYPE),
        format!(
            "median of {RUNS} runs of the slowest rank's time; a message costs {:.2} µs",
            message * 1e6
        ),
    ];
    let about = json!({ "cores": cores, "bound": bound, "data": data, "message_s": message });
    Ok(Comparison { head, about, rows })
}

/// Returns the seconds that sending and receiving a small message take together. One thread drives
/// all ranks, so no rank is woken up, and the time of a call is divided by its number of messages.
fn message_cost() -> anyhow::Result<f64> {
    const RANKS: usize = 8;
    let mut comms = World::new(RANKS).communicators();
    // One value for each part of the ring.
    let mut data = [[0.0_f32; RANKS]; RANKS];
    let plan = Plan::raw().with_schedule(&foldwire::schedule::Ring);
    let mut times = Vec::new();
    for _ in 0..SMALL_CALLS {
        let start = Instant::now();
        let operations = comms
            .iter_mut()
            .zip(&mut data)
            .map(|(comm, data)| comm.start(Call::all_reduce(data, Op::Sum), &plan))
            .collect::<Result<Vec<_>, _>>()?;
        let mut n_messages = 0;
        for report in drive(operations) {
            n_messages += report?.n_messages;
        }
        times.push(start.elapsed() / n_messages as u32);
    }
    Ok(median(&times).as_secs_f64())
}

impl ValidationCase {
    fn world(&self) -> anyhow::Result<World> {
        Ok(ranks::world(self.ranks, self.rate()?).link_latency(self.latency))
    }

    fn rate(&self) -> anyhow::Result<Option<f64>> {
        Ok(self.link.parse::<LinkRate>()?.bytes_per_s())
    }

    /// Measures and predicts each preset.
    fn rows<T: Float>(
        &self,
        bound: Bound,
        cores: usize,
        message: f64,
        data: &Data<T>,
        progress: &ProgressBar,
    ) -> anyhow::Result<Vec<ValidationRow>> {
        let costs = |codec| {
            let task = MeasurementTask {
                codec,
                setting: 0,
                bound,
                size: self.ranks,
                reduces: self.collective.reduces(),
                frame_bytes: ModelCall::new(self.collective, Plan::raw(), 1, 0).frame_bytes,
                busy: self.ranks.min(cores),
                // Bytes of the arrays of the ranks that share a core, which compete for its cache.
                array_bytes: self.n_bytes * self.ranks / self.ranks.min(cores),
            };
            task.costs(data)
        };
        let mut known: Vec<(CodecId, Costs)> = Vec::new();
        let network = NetworkModel {
            latency: self.latency.as_secs_f64(),
            rate: self.rate()?,
            send_overhead: message / 2.0,
            recv_overhead: message / 2.0,
            ..NetworkModel::default()
        };
        let host = HostModel { ranks_per_node: self.ranks, cores, ..HostModel::default() };
        let cluster = self.with_wake(ClusterModel { network, host })?;
        let mut row = |&preset: &Preset| {
            let plan = preset.plan_for(self.collective, bound, self.n_bytes / self.ranks);
            if !known.iter().any(|(codec, _)| *codec == plan.codec) {
                known.push((plan.codec, costs(plan.codec)?));
            }
            let of_codec = known.iter().find(|(codec, _)| *codec == plan.codec);
            let (_, costs) = of_codec.expect("measured above");
            let row = self.row(preset, &plan, bound, &cluster, costs, data);
            progress.inc(1);
            row
        };
        self.presets.iter().map(&mut row).collect()
    }

    fn row<T: Float>(
        &self,
        preset: Preset,
        plan: &Plan,
        bound: Bound,
        cluster: &ClusterModel,
        costs: &Costs,
        data: &Data<T>,
    ) -> anyhow::Result<ValidationRow> {
        let count = self.n_bytes / T::BYTES;
        let (collective, size) = (self.collective, self.ranks);
        let preset_run = PresetRun { world: self.world()?, collective, preset, bound, count, size };
        let mut times = preset_run.times(RUNS, data)?;
        times.sort_unstable_by(f64::total_cmp);
        let measured_s = times[RUNS / 2];
        let case = ModelCall::new(collective, *plan, size, count);
        let predicted_s = predict::<T>(&case, cluster, costs)?.seconds;
        Ok(ValidationRow {
            ranks: size,
            collective: collective.name(),
            preset: preset.name(),
            n_bytes: self.n_bytes,
            link: self.link.to_owned(),
            latency_s: self.latency.as_secs_f64(),
            wake_s: cluster.host.wake,
            measured_s,
            measured_range_s: [times[0], times[RUNS - 1]],
            predicted_s,
            error: predicted_s / measured_s - 1.0,
        })
    }

    /// Returns the cluster with the cost of waking up in this world. With that cost, the prediction
    /// for a call of one value equals its measured time.
    fn with_wake(&self, cluster: ClusterModel) -> anyhow::Result<ClusterModel> {
        let plan = Plan::raw().with_schedule(&RecursiveDoubling);
        let times = self.world()?.run(|mut comm| -> Result<Vec<Duration>, foldwire::Error> {
            let mut value = [0.0_f32];
            let mut call = || {
                let start = Instant::now();
                comm.all_reduce(&mut value, Op::Sum, &plan)?;
                Ok(start.elapsed())
            };
            (0..SMALL_CALLS).map(|_| call()).collect()
        });
        let times = times.into_iter().next().ok_or_else(|| anyhow!("a world has a rank"))??;
        let measured = median(&times).as_secs_f64();
        let case = ModelCall::new(Collective::AllReduce, plan, self.ranks, 1);
        let with = |wake| ClusterModel { host: HostModel { wake, ..cluster.host }, ..cluster };
        let predicted =
            |wake| Ok(predict::<f32>(&case, &with(wake), &Costs::raw::<f32>())?.seconds);
        bisect(measured, predicted).map(with)
    }
}
