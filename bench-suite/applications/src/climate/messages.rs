//! Table of a method's messages: sizes, times, and the work to compress them.

use std::time::Duration;

use foldwire_arguments::ClimateArgs;
use foldwire_workbench::memory::median;
use foldwire_workbench::table::{self, Columns};
use serde::Serialize;

use super::exchange::{ExchangeKind, Traffic};
use super::simulate::ClimateRun;

/// Messages of one method.
#[derive(Debug, Serialize)]
pub(super) struct MessageRow {
    /// Seconds per step, with its share of the gathers: median over steps and runs.
    step_s: f64,
    /// Seconds of exchanges per step, mean over steps, runs and ranks.
    exchange_s: f64,
    /// Bytes sent by all ranks together, before compression.
    raw_bytes: u64,
    /// Bytes sent by all ranks together, after compression.
    wire_bytes: u64,
    /// Change of the bytes sent, relative to the raw run: 0 if equal, −0.5 if half.
    size_change: f64,
    /// Time per step of the raw run / time per step of this run.
    speedup_raw: f64,
    kinds: Vec<KindRow>,
}

/// Messages of one kind.
#[derive(Debug, Serialize)]
struct KindRow {
    kind: &'static str,
    n_messages: u64,
    /// Uncompressed bytes of the longest message, in a gather of the longest share.
    longest_bytes: usize,
    raw_bytes: u64,
    wire_bytes: u64,
    size_change: f64,
    /// Time to compress and decompress / time of all steps, on all ranks. For the raw run, the time
    /// to copy values. `None` if it was not measured.
    overhead: Option<f64>,
}

impl MessageRow {
    /// Summarizes the runs of a method. `raw` is the row of the raw runs, unless this is it.
    pub(super) fn new(n_ranks: usize, runs: &[ClimateRun], raw: Option<&Self>) -> Self {
        let of_runs = |times: fn(&ClimateRun) -> &[Duration]| -> Vec<Duration> {
            runs.iter().flat_map(|run| times(run).iter().copied()).collect()
        };
        let (steps, gathers) = (of_runs(|run| &run.steps), of_runs(|run| &run.gathers));
        let gathers_per_step = gathers.len() as f64 / steps.len() as f64;
        let step_s =
            median(&steps).as_secs_f64() + median(&gathers).as_secs_f64() * gathers_per_step;
        let total: Duration = steps.iter().chain(&gathers).sum();
        let rank_s = total.as_secs_f64() * n_ranks as f64;
        let mut traffic = [Traffic::default(); 3];
        for run in runs {
            traffic.iter_mut().zip(run.traffic).for_each(|(sum, traffic)| *sum += traffic);
        }
        let elapsed: Duration = traffic.iter().map(|kind| kind.elapsed).sum();
        let kinds =
            ExchangeKind::ALL.into_iter().zip(&traffic).enumerate().map(|(at, (kind, traffic))| {
                let wire_bytes = traffic.report.wire_bytes / runs.len() as u64;
                KindRow {
                    kind: kind.name(),
                    n_messages: traffic.report.n_messages / runs.len() as u64,
                    longest_bytes: traffic.longest * size_of::<f64>(),
                    raw_bytes: traffic.report.raw_bytes / runs.len() as u64,
                    wire_bytes,
                    size_change: change(wire_bytes, raw.map(|raw| raw.kinds[at].wire_bytes)),
                    overhead: traffic.compressing(kind).map(|time| time.as_secs_f64() / rank_s),
                }
            });
        let kinds: Vec<KindRow> = kinds.collect();
        let wire_bytes = kinds.iter().map(|kind| kind.wire_bytes).sum();
        Self {
            step_s,
            exchange_s: elapsed.as_secs_f64() / (n_ranks * steps.len()) as f64,
            raw_bytes: kinds.iter().map(|kind| kind.raw_bytes).sum(),
            wire_bytes,
            size_change: change(wire_bytes, raw.map(|raw| raw.wire_bytes)),
            speedup_raw: raw.map_or(1.0, |raw| raw.step_s / step_s),
            kinds,
        }
    }

    /// Lengths of the longest messages, for a line above the table.
    pub(super) fn lengths(&self, args: &ClimateArgs) -> String {
        let kind = |row: &KindRow| {
            let every = match args.gather_every {
                n if row.kind == ExchangeKind::Gather.name() => format!(", every {n} steps"),
                _ => String::new(),
            };
            format!("{} {}{every}", row.kind, table::bytes(row.longest_bytes as u64))
        };
        self.kinds.iter().map(kind).collect::<Vec<_>>().join("; ")
    }
}

/// Relative change of bytes. A single rank sends nothing, and 0 / 0 is no change.
fn change(n_bytes: u64, raw: Option<u64>) -> f64 {
    raw.filter(|&raw| raw > 0).map_or(0.0, |raw| n_bytes as f64 / raw as f64 - 1.0)
}

/// The table, with a row for each name.
pub(super) fn render<'r>(rows: impl Iterator<Item = (&'r str, &'r MessageRow)>) -> String {
    let mut table = Columns::of(rows)
        .text("messages", "", |(name, _)| *name)
        .number("step", "ms", |(_, row)| format!("{:.2}", row.step_s * 1e3))
        .number("exchange", "ms", |(_, row)| format!("{:.2}", row.exchange_s * 1e3))
        .number("speed-up", "x raw", |(_, row)| format!("{:.2}", row.speedup_raw))
        .number("wire", "all ranks", |(_, row)| table::bytes(row.wire_bytes))
        .number("size", "% of raw", |(_, row)| format!("{:+.1}", row.size_change * 100.0));
    let kinds = ["halo", "all-to-all", "gather"];
    for (at, kind) in kinds.into_iter().enumerate() {
        table = table.number(kind, "% of raw", |(_, row)| {
            format!("{:+.1}", row.kinds[at].size_change * 100.0)
        });
    }
    for (at, kind) in kinds.into_iter().enumerate() {
        table = table.maybe(kind, "work %", |(_, row)| {
            row.kinds[at].overhead.map(|part| format!("{:.2}", part * 100.0))
        });
    }
    table.render()
}
