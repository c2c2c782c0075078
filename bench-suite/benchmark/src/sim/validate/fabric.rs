//! Predicts times that `foldwire bench` measured over any fabric (a network and its software).
//!
//! The CPU cost of the fabric's software comes from separate results (`--fabric`), never from the
//! results that are compared. The separate results are times of uncompressed calls. Three of these
//! times determine three parameters. Each parameter is chosen so that the model reproduces the
//! time:
//!
//! | time of | between | determines |
//! |---|---|---|
//! | one value | ranks with a core each | time of a message at each end, in addition to the latency that the user states |
//! | a long array | the same | time of a byte at each end |
//! | one value | all ranks of a machine, if it has fewer cores | time that a rank takes to wake up |
//!
//! Codecs are measured on this machine, as for the comparison between threads.

use std::path::PathBuf;

use anyhow::bail;
use foldwire::transport::Rank;
use foldwire::{DType, Float, Preset};
use foldwire_arguments::SimArgs;
use foldwire_fields::usage::{UsageError, usage};
use foldwire_sim::cost::{ClusterModel, Costs, HostModel, ModelCall, NetworkModel, predict};
use foldwire_workbench::data::FieldSource;
use foldwire_workbench::{progress, with_float};
use serde_json::json;

use super::super::measure::MeasurementTask;
use super::results::{FabricResults, PresetTimes};
use super::{Comparison, ValidationRow, bisect};
use crate::bench::output::BenchHead;

/// Predicts the results in the files.
///
/// # Errors
/// Fails if the files cannot be compared, or the library rejects a call.
pub(super) fn compare(
    args: &SimArgs,
    files: &[PathBuf],
    source: &FieldSource,
) -> anyhow::Result<Comparison> {
    let ranks_per_node = args.ranks_per_node;
    let cores = args.cores.unwrap_or(ranks_per_node);
    let host = HostModel { ranks_per_node, cores, ..HostModel::default() };
    let mut machine = LocalMachine { source, host, known: Vec::new() };
    let (all, of_fabric) = (read(files)?, read(&args.fabric)?);
    let (latency, eager) = (args.latency, args.eager);
    let given = FabricModel { latency, eager, overhead: 0.0, per_byte: 0.0, wake: 0.0 };
    let fabric = if of_fabric.is_empty() {
        FabricModel { overhead: args.overhead, ..given }
    } else {
        given.measured(&of_fabric, &mut machine)?
    };
    let progress = progress::bar("validating", all.iter().map(|results| results.times.len()).sum());
    let mut rows = Vec::new();
    for results in &all {
        for times in &results.times {
            let predicted_s = machine.timed_case((results, times))?.predicted(fabric)?;
            rows.push(fabric.row(results, times, predicted_s));
            progress.inc(1);
        }
    }
    progress.finish_and_clear();
    let mut backends: Vec<&str> = all.iter().map(|results| &*results.head.backend).collect();
    backends.dedup();
    let (backends, data) = (backends.join(", "), &all[0].head.data);
    let FabricModel { overhead, per_byte, wake, .. } = fabric;
    let head = vec![
        format!("predicted, and measured over {backends}"),
        format!("{ranks_per_node} ranks a machine on {cores} cores; {data}"),
        format!(
            "each end of a message takes {:.2} µs of a core and {:.3} ns a byte, waking up {:.1} \
            µs",
            overhead * 1e6,
            per_byte * 1e9,
            wake * 1e6
        ),
    ];
    let about = json!({
        "backends": backends,
        "ranks_per_node": ranks_per_node,
        "cores": cores,
        "data": data,
        "eager": eager,
        "message_s": overhead,
        "byte_s": per_byte,
    });
    Ok(Comparison { head, about, rows })
}

fn read(files: &[PathBuf]) -> Result<Vec<FabricResults>, UsageError> {
    files.iter().map(|path| FabricResults::read(path)).collect()
}

/// Parameters of the fabric.
#[derive(Debug, Clone, Copy)]
struct FabricModel {
    /// Seconds of a message on the network.
    latency: f64,
    /// Bytes up to which a message leaves at once.
    eager: Option<u32>,
    /// Seconds of CPU time for a message, at each end.
    overhead: f64,
    /// Seconds of CPU time for each of its bytes, at each end.
    per_byte: f64,
    /// Seconds of CPU time for waking up a rank.
    wake: f64,
}

impl FabricModel {
    /// Returns these parameters, with `overhead`, `per_byte` and `wake` determined from the results
    /// in the files.
    fn measured(
        self,
        files: &[FabricResults],
        machine: &mut LocalMachine<'_>,
    ) -> anyhow::Result<Self> {
        let of_file = |results| {
            let results: &FabricResults = results;
            let raw = results.times.iter().filter(|times| times.preset == Preset::Raw);
            raw.map(move |times| (results, times))
        };
        let all: Vec<(&FabricResults, &PresetTimes)> = files.iter().flat_map(of_file).collect();
        let has_core = |ranks: usize| ranks.min(machine.host.ranks_per_node) <= machine.host.cores;
        let (with_core, sharing_cores): (Vec<_>, Vec<_>) =
            all.into_iter().partition(|(results, _)| has_core(results.head.ranks));
        let n_bytes = |(_, times): &&(&FabricResults, &PresetTimes)| times.n_bytes;
        let (short, long) =
            match (with_core.iter().min_by_key(n_bytes), with_core.iter().max_by_key(n_bytes)) {
                (Some(&short), Some(&long)) if short.1.n_bytes < long.1.n_bytes => (short, long),
                _ => {
                    bail!(usage!(
                        "--fabric needs raw times of one value and of a long array between ranks \
                     with a core each: `foldwire bench allgather --backend … --preset raw --sizes \
                     8,64M --link RATE --json`"
                    ));
                }
            };
        let short = machine.timed_case(short)?;
        let with = |overhead| Self { overhead, ..self };
        let found = short.solve(|overhead| short.predicted(with(overhead))).map(with)?;
        let long = machine.timed_case(long)?;
        let with = |per_byte| Self { per_byte, ..found };
        let found = long.solve(|per_byte| long.predicted(with(per_byte))).map(with)?;
        let Some(&shared) = sharing_cores.iter().min_by_key(n_bytes) else { return Ok(found) };
        let shared = machine.timed_case(shared)?;
        let with = |wake| Self { wake, ..found };
        shared.solve(|wake| shared.predicted(with(wake))).map(with)
    }

    fn row(self, results: &FabricResults, times: &PresetTimes, predicted_s: f64) -> ValidationRow {
        ValidationRow {
            ranks: results.head.ranks,
            collective: results.collective.name(),
            preset: times.preset.name(),
            n_bytes: times.n_bytes,
            link: results.link.to_string(),
            latency_s: self.latency,
            wake_s: self.wake,
            measured_s: times.median,
            measured_range_s: times.range,
            predicted_s,
            error: predicted_s / times.median - 1.0,
        }
    }
}

/// Measures codecs on this machine, as a substitute for the machines on which the ranks ran.
struct LocalMachine<'a> {
    source: &'a FieldSource,
    host: HostModel,
    /// Measurements so far.
    known: Vec<(DType, MeasurementTask, Costs)>,
}

impl LocalMachine<'_> {
    fn timed_case<'r>(
        &mut self,
        (results, times): (&'r FabricResults, &'r PresetTimes),
    ) -> anyhow::Result<TimedCase<'r>> {
        let costs = with_float!(results.dtype, T => self.costs::<T>(results, times)?);
        Ok(TimedCase { results, times, host: self.host, costs })
    }

    fn costs<T: Float>(
        &mut self,
        results: &FabricResults,
        times: &PresetTimes,
    ) -> anyhow::Result<Costs> {
        let plan = times.plan(results);
        let n_ranks = results.head.ranks.min(self.host.ranks_per_node);
        let busy = n_ranks.min(self.host.cores);
        let task = MeasurementTask {
            codec: plan.codec,
            setting: plan.setting,
            bound: results.bound,
            size: results.head.ranks,
            reduces: results.collective.reduces(),
            frame_bytes: results.head.frame_bytes,
            busy,
            array_bytes: times.n_bytes * n_ranks / busy,
        };
        let data = self.source.data::<T>(results.head.ranks);
        if data.about() != results.head.data {
            bail!(usage!("the results are of {}; name that field with --field", results.head.data));
        }
        let known =
            self.known.iter().find(|(dtype, known, _)| *dtype == T::DTYPE && *known == task);
        if let Some((.., costs)) = known {
            return Ok(costs.clone());
        }
        let costs = task.costs(&data)?;
        self.known.push((T::DTYPE, task, costs.clone()));
        Ok(costs)
    }
}

/// A measured time, and everything that its prediction needs except the fabric.
struct TimedCase<'r> {
    results: &'r FabricResults,
    times: &'r PresetTimes,
    host: HostModel,
    costs: Costs,
}

impl TimedCase<'_> {
    fn predicted(&self, fabric: FabricModel) -> anyhow::Result<f64> {
        with_float!(self.results.dtype, T => self.predicted_with::<T>(fabric))
    }

    fn predicted_with<T: Float>(&self, fabric: FabricModel) -> anyhow::Result<f64> {
        let FabricResults { head, collective, link, .. } = self.results;
        let &BenchHead { ranks, root, in_place, lanes, frame_bytes, checksums, .. } = head;
        let plan = self.times.plan(self.results);
        let case = ModelCall::new(*collective, plan, ranks, self.times.n_bytes / T::BYTES);
        let in_place = in_place || case.in_place;
        let case =
            ModelCall { root: Rank::new(root.unwrap_or(0)), in_place, lanes, frame_bytes, ..case };
        let network = NetworkModel {
            latency: fabric.latency,
            rate: link.bytes_per_s(),
            send_overhead: fabric.overhead,
            recv_overhead: fabric.overhead,
            send_per_byte: fabric.per_byte,
            recv_per_byte: fabric.per_byte,
            eager: fabric.eager,
            checksums,
            ..NetworkModel::default()
        };
        let host = HostModel { wake: fabric.wake, ..self.host };
        Ok(predict::<T>(&case, &ClusterModel { network, host }, &self.costs)?.seconds)
    }

    /// Finds the parameter at which the prediction equals the measured time.
    fn solve(&self, predicted: impl Fn(f64) -> anyhow::Result<f64>) -> anyhow::Result<f64> {
        bisect(self.times.median, predicted)
    }
}
