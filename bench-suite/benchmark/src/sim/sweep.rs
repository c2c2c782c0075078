//! Ranks × presets: one prediction each, in parallel on the cores of this machine.

use std::time::Instant;

use foldwire::codec::CodecId;
use foldwire::schedule::ProgramSpec;
use foldwire::{Bound, Collective, DType, Float, Overlap, Plan, Preset, Rank};
use foldwire_arguments::values::each_once;
use foldwire_arguments::{ScheduleName, SimArgs};
use foldwire_sim::cost::{
    CallPrediction, ClusterModel, CostError, Costs, HostModel, ModelCall, NetworkModel,
    WorkSeconds, predict,
};
use foldwire_workbench::{progress, ranks::whole_message_bytes};
use rayon::prelude::*;
use serde::Serialize;

use super::speeds::ModelSpeeds;

/// A prediction for values of one type. It is a function pointer, so that the rest of the sweep is
/// compiled once for all types.
type PredictFn = fn(&ModelCall, &ClusterModel, &Costs) -> Result<CallPrediction, CostError>;

/// Parameters that all predictions share.
#[derive(Debug, Clone)]
pub(super) struct SweepSetting {
    pub(super) collective: Collective,
    pub(super) ranks: Vec<usize>,
    pub(super) presets: Vec<Preset>,
    /// Schedule for all presets, instead of each preset's own.
    pub(super) schedule: Option<ScheduleName>,
    /// Bytes of a share from which gZCCL's all-reduce is a ring.
    pub(super) ring_from: usize,
    pub(super) as_published: bool,
    /// True if all presets run in Foldwire's engine, where segments overlap.
    pub(super) overlaps: bool,
    pub(super) bound: Bound,
    pub(super) dtype: DType,
    predict: PredictFn,
    /// Size of the array.
    pub(super) n_bytes: usize,
    pub(super) link: String,
    pub(super) cluster: ClusterModel,
    pub(super) lanes: usize,
    pub(super) frame_bytes: usize,
    pub(super) by_node: bool,
}

impl SweepSetting {
    pub(super) fn new<T: Float>(args: &SimArgs, collective: Collective) -> Self {
        let network = NetworkModel {
            latency: args.latency,
            rate: args.link.bytes_per_s(),
            send_overhead: args.overhead,
            recv_overhead: args.overhead,
            eager: args.eager,
            checksums: args.checksum,
            ..NetworkModel::default()
        };
        let ranks_per_node = args.ranks_per_node;
        let cores = args.cores.unwrap_or(ranks_per_node);
        let host = HostModel { ranks_per_node, cores, ..HostModel::default() };
        Self {
            collective,
            ranks: args.ranks.n_bytes().to_vec(),
            presets: args.presets().of(T::DTYPE),
            schedule: args.schedule,
            ring_from: args.ring_from,
            as_published: args.as_published,
            overlaps: false,
            bound: args.bound,
            dtype: T::DTYPE,
            predict: predict::<T>,
            n_bytes: args.size,
            link: args.link.to_string(),
            cluster: ClusterModel { network, host },
            lanes: args.lanes,
            frame_bytes: args.frame,
            by_node: args.by_node,
        }
    }

    fn plan(&self, preset: Preset, ranks: usize) -> Plan {
        let share = self.n_bytes / ranks.max(1);
        let plan = preset.plan_switched(self.collective, self.bound, share, self.ring_from);
        let mut plan = plan.for_values(self.dtype);
        if self.overlaps {
            plan.overlap = Overlap::Segments;
        }
        let plan = if self.as_published { plan.as_published() } else { plan };
        self.schedule.map_or(plan, |named| plan.with_schedule(named.0))
    }
}

impl SweepSetting {
    /// Codecs of the presets with their settings, each once, without raw.
    pub(super) fn codecs(&self) -> Vec<(CodecId, u16)> {
        let plans = self.presets.iter().map(|preset| self.plan(*preset, 1));
        let compressed = plans.filter(|plan| plan.codec != CodecId::Raw);
        each_once(compressed.map(|plan| (plan.codec, plan.setting)))
    }
}

/// One prediction.
#[derive(Debug, Clone, Serialize)]
pub(super) struct SweepRow {
    pub(super) ranks: usize,
    #[serde(serialize_with = "name")]
    pub(super) preset: Preset,
    pub(super) schedule: &'static str,
    pub(super) time_s: f64,
    /// Time of raw over this time.
    pub(super) speedup_raw: Option<f64>,
    /// Bytes of all ranks' messages.
    pub(super) wire_bytes: u64,
    pub(super) n_messages: u64,
    /// Fraction of the time that the busiest rank computes.
    pub(super) computing: f64,
    /// Fraction of the time that the busiest link sends; `None` if links take no time.
    pub(super) sending: Option<f64>,
    pub(super) n_events: u64,
    /// Nanoseconds for each value of the array.
    pub(super) budget_ns: Budget,
}

/// Time of the rank that computes most, and of the busiest link.
#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct Budget {
    pub(super) encode: f64,
    pub(super) decode: f64,
    pub(super) fold: f64,
    pub(super) copy: f64,
    pub(super) message: f64,
    /// The rank waits until all ranks have their results, or scans its input for a value range.
    pub(super) wait: f64,
    /// The busiest link sends, while ranks compute or wait.
    pub(super) wire: f64,
}

impl Budget {
    fn of(prediction: &CallPrediction, rate: Option<f64>, count: usize) -> Self {
        let CallPrediction { seconds, ranks, .. } = prediction;
        let busiest = ranks.iter().max_by(|a, b| a.computing.total_cmp(&b.computing));
        let work = busiest.map(|rank| rank.work).unwrap_or_default();
        let WorkSeconds { encode, decode, fold, copy, message } = work;
        let most = ranks.iter().map(|rank| rank.wire_bytes).max().unwrap_or(0);
        let wire = rate.map_or(0.0, |rate| most as f64 / rate);
        let ns = |seconds: f64| 1e9 * seconds / count.max(1) as f64;
        Self {
            encode: ns(encode),
            decode: ns(decode),
            fold: ns(fold),
            copy: ns(copy),
            message: ns(message),
            wait: ns((seconds - (encode + decode + fold + copy + message)).max(0.0)),
            wire: ns(wire),
        }
    }
}

fn name<S: serde::Serializer>(preset: &Preset, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(preset.name())
}

/// All predictions, in the order of ranks and presets.
#[derive(Debug)]
pub(super) struct Sweep {
    pub(super) rows: Vec<SweepRow>,
    /// Simulated events of all predictions, per second of computation on one core.
    pub(super) events_per_s: f64,
}

impl Sweep {
    /// Predicts all combinations of ranks and presets.
    ///
    /// # Errors
    /// Errors of the cost model ([`CostError`]).
    pub(super) fn run(setting: &SweepSetting, speeds: &ModelSpeeds) -> Result<Self, CostError> {
        let each = |&ranks: &usize| setting.presets.iter().map(move |&preset| (ranks, preset));
        let cases: Vec<_> = setting.ranks.iter().flat_map(each).collect();
        let progress = progress::bar("simulating", cases.len());
        let run = |&(ranks, preset): &(usize, Preset)| -> Result<(SweepRow, f64), CostError> {
            let started = Instant::now();
            let row = predict_row(setting, speeds, ranks, preset)?;
            progress.inc(1);
            Ok((row, started.elapsed().as_secs_f64()))
        };
        // The largest predictions take longest. They run first, so that no core is idle at the end.
        let mut results =
            cases.par_iter().rev().with_max_len(1).map(run).collect::<Result<Vec<_>, _>>()?;
        results.reverse();
        progress.finish_and_clear();
        let seconds: f64 = results.iter().map(|(_, seconds)| seconds).sum();
        let mut rows: Vec<SweepRow> = results.into_iter().map(|(row, _)| row).collect();
        let n_events: u64 = rows.iter().map(|row| row.n_events).sum();
        compare(&mut rows);
        Ok(Self { rows, events_per_s: n_events as f64 / seconds.max(1e-9) })
    }
}

pub(super) fn predict_row(
    setting: &SweepSetting,
    speeds: &ModelSpeeds,
    ranks: usize,
    preset: Preset,
) -> Result<SweepRow, CostError> {
    let plan = setting.plan(preset, ranks);
    let count = setting.n_bytes / setting.dtype.n_bytes();
    // A preset that works message by message has frames for whole messages.
    let call = ProgramSpec::new(setting.collective, ranks, Rank(0));
    let whole = whole_message_bytes(&plan, call, setting.dtype, count);
    let case = ModelCall {
        lanes: setting.lanes,
        frame_bytes: whole.map_or(setting.frame_bytes, |whole| whole.max(setting.frame_bytes)),
        by_node: setting.by_node,
        ..ModelCall::new(setting.collective, plan, ranks, count)
    };
    let prediction = (setting.predict)(&case, &setting.cluster, &speeds.costs(&plan, ranks))?;
    let time = prediction.seconds.max(1e-12);
    let busiest = prediction.ranks.iter().map(|rank| rank.computing).fold(0.0, f64::max);
    let most = prediction.ranks.iter().map(|rank| rank.wire_bytes).max().unwrap_or(0);
    Ok(SweepRow {
        ranks,
        preset,
        schedule: prediction.schedule,
        time_s: prediction.seconds,
        speedup_raw: None,
        wire_bytes: prediction.ranks.iter().map(|rank| rank.wire_bytes).sum(),
        n_messages: prediction.ranks.iter().map(|rank| rank.n_messages).sum(),
        computing: busiest / time,
        sending: setting.cluster.network.rate.map(|rate| most as f64 / rate / time),
        n_events: prediction.n_events,
        budget_ns: Budget::of(&prediction, setting.cluster.network.rate, count),
    })
}

/// Sets each row's speed-up over raw on the same number of ranks.
fn compare(rows: &mut [SweepRow]) {
    let raw: Vec<(usize, f64)> = rows
        .iter()
        .filter(|row| row.preset == Preset::Raw)
        .map(|row| (row.ranks, row.time_s))
        .collect();
    for row in rows {
        let same = raw.iter().find(|&&(ranks, _)| ranks == row.ranks);
        row.speedup_raw = same.filter(|_| row.time_s > 0.0).map(|&(_, time)| time / row.time_s);
    }
}
