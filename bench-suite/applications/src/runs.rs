//! Time and messages of runs, which all programs measure alike.

use std::time::Duration;

use foldwire::Report;
use foldwire_arguments::values::LinkRate;
use foldwire_workbench::memory::median_run;
use serde::Serialize;

/// Time and messages of a rank, or of a run on all ranks.
#[derive(Debug, Default)]
pub(crate) struct RunCost {
    /// Time of the slowest rank.
    pub(crate) time: Duration,
    /// Time of exchanges, mean over ranks.
    pub(crate) exchanging: Duration,
    /// Sum over all ranks and exchanges.
    pub(crate) report: Report,
}

impl RunCost {
    /// Adds one rank of `n_ranks`.
    pub(crate) fn add(&mut self, rank: &Self, n_ranks: usize) {
        self.time = self.time.max(rank.time);
        self.exchanging += rank.exchanging / n_ranks as u32;
        self.report += rank.report;
    }
}

/// Results that the rows of all programs have.
#[derive(Debug, Serialize)]
pub(crate) struct CostRow {
    ranks: usize,
    link: String,
    /// Seconds of the reported run, whose time is closest to the median.
    pub(crate) time_s: f64,
    /// Seconds of each run.
    times_s: Vec<f64>,
    /// Seconds of the exchange per step, mean over ranks.
    pub(crate) exchange_s: f64,
    /// Bytes sent by all ranks together, before compression.
    raw_bytes: u64,
    /// Bytes sent by all ranks together, after compression.
    pub(crate) wire_bytes: u64,
    pub(crate) ratio: f64,
}

impl CostRow {
    /// Returns the costs of runs of `n_steps(run)` steps between these ranks, and the reported run.
    pub(crate) fn new<'r, R>(
        (ranks, link): (usize, &LinkRate),
        runs: &'r [R],
        cost: impl Fn(&R) -> &RunCost,
        n_steps: impl Fn(&R) -> usize,
    ) -> (Self, &'r R) {
        let (times_s, run) = median_run(runs, |run| cost(run).time);
        let RunCost { time, exchanging, report } = cost(run);
        let row = Self {
            ranks,
            link: link.to_string(),
            time_s: time.as_secs_f64(),
            times_s,
            exchange_s: exchanging.as_secs_f64() / n_steps(run).max(1) as f64,
            raw_bytes: report.raw_bytes,
            wire_bytes: report.wire_bytes,
            ratio: report.ratio(),
        };
        (row, run)
    }
}
