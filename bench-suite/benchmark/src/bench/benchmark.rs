//! The benchmark as every rank runs it: sizes × rounds × implementations, all ranks in step.
//!
//! At each size every implementation prepares, runs once with its result checked, and warms up.
//! Then the implementations alternate, with one timed run each per round, so that disturbances of
//! the machine affect all of them alike. Short runs follow an untimed one, as in a loop. The number
//! of rounds follows from the warm-up times. Ranks exchange these times, so that all of them run
//! the same number.
//!
//! If ranks share memory and no link rate is given, each round ends with a memcpy of the same size
//! by every rank at once. A collective that only reads and writes one array would take this time.

use std::ops::Range;
use std::time::Duration;

use anyhow::Context;
use foldwire::schedule::ProgramSpec;
use foldwire::{Collective, Float, Rank, Report};
use foldwire_arguments::sizes::{Size, SizeList};
use foldwire_arguments::{BenchArgs, FormArg};
use foldwire_fields::memory;
use foldwire_fields::usage::{UsageError, usage};
use foldwire_workbench::data::Data;
use foldwire_workbench::memory::{Memcpy, gbps, median};
use foldwire_workbench::{ranks, room};
use indicatif::ProgressBar;
use serde::{Deserialize, Serialize};

use super::implementation::{Implementation, PlanImplementation};
use super::overlap::OverlapWork;
use super::problem::Problem;
use super::result_check::ResultCheck;
use super::row::{self, CollectiveRow};
use super::runner::{AnyCommunicator, Barrier, Runner, bits, gather_json};

/// Largest number of rounds, however short they are.
const MAX_ROUNDS: usize = 1000;
/// A run that takes less than this follows an untimed run of the same implementation: another
/// implementation, or a copy, leaves other caches, and ranks that are less in step. Over TCP that
/// changed the time of 4 bytes by a factor of two. In seconds.
pub(super) const SHORT_S: f64 = 1e-3;
/// Size of the array for the memcpy rate, larger than the caches. A build with debug assertions is
/// for tests: its rates mean nothing, and a short array gives one soon.
const MEMCPY_BYTES: usize = if cfg!(debug_assertions) { 1 << 20 } else { 64 << 20 };

/// Parameters of the benchmark.
#[derive(Debug, Clone)]
pub(super) struct Settings {
    /// The call as rank 0 sees it, on an array without values.
    pub(super) problem: Problem,
    /// Values in the array, for each size.
    pub(super) counts: Vec<usize>,
    /// Lengths of all ranks' shares, for each size.
    pub(super) shares: Vec<Vec<usize>>,
    pub(super) warmup: usize,
    pub(super) repeat: usize,
    /// Least duration of all rounds together, in seconds.
    pub(super) min_time: f64,
    pub(super) check: bool,
    /// Number of calls in progress at once.
    pub(super) in_flight: usize,
    /// Number of polls of a call while its rank computes; `None` if overlap is not measured.
    pub(super) overlap: Option<usize>,
    /// True if the user gave the rate of links.
    pub(super) has_links: bool,
}

impl Settings {
    /// Takes the settings from the arguments, for `size` ranks and values of `T`.
    pub(super) fn new<T: Float>(args: &BenchArgs, size: usize) -> Result<Self, UsageError> {
        if args.root >= size {
            return Err(usage!(
                "--root {} is no rank: the {size} ranks are 0 to {}",
                args.root,
                size - 1
            ));
        }
        let FormArg { collective, is_uneven } = args.form;
        let never = matches!(collective, Collective::Scatter | Collective::Gather)
            || (is_uneven && collective == Collective::AllToAll);
        if args.in_place && never {
            let name = args.form.name();
            return Err(usage!("{name} is not done in place; leave out --in-place"));
        }
        let counts = counts::<T>(&args.sizes)?;
        let problem = Problem {
            op: args.op,
            root: Rank::new(args.root),
            in_place: args.in_place,
            is_uneven,
            ..Problem::sum(collective, 0, size, 0)
        };
        let shares = |count| Problem { count, ..problem }.counts();
        let is_exchange = args.in_place && collective == Collective::AllToAll;
        if is_exchange && counts.iter().any(|count| !count.is_multiple_of(size)) {
            return Err(usage!(
                "an all-to-all is done in place with equal shares only; write --sizes that divide \
                 evenly among {size} ranks, or leave out --in-place"
            ));
        }
        Ok(Self {
            problem,
            shares: counts.iter().map(|&count| shares(count)).collect(),
            counts,
            warmup: args.warmup,
            repeat: args.repeat,
            min_time: args.min_time,
            check: args.check,
            in_flight: args.in_flight,
            overlap: args.overlap,
            has_links: args.link.as_ref().is_some_and(|link| link.bytes_per_s().is_some()),
        })
    }

    /// Rejects arrays that do not fit in this machine's memory. `ranks` are those that run on it.
    pub(super) fn check_room<T: Float>(&self, ranks: Range<usize>) -> Result<(), UsageError> {
        let count = self.counts.iter().copied().max().unwrap_or(0);
        let n_bytes = |rank| {
            let problem = Problem { count, rank, ..self.problem };
            let [sent, received] = problem.buffer_lens();
            let n_buffers = if self.in_flight > 1 { 1 + self.in_flight } else { 1 };
            // The array for memcpy, and its copy.
            (n_buffers * (sent + received) + 2 * count) as u128 * T::BYTES as u128
        };
        let n_ranks = ranks.len();
        room::check(ranks.map(n_bytes).sum()).map_err(|error| {
            usage!(
                "arrays of {} on {n_ranks} ranks: {error}; ask for smaller --sizes or fewer ranks",
                Size(count * T::BYTES)
            )
        })
    }

    /// Returns the bytes of a frame that holds every message of these plans that work message by
    /// message. `None` if there are none.
    pub(super) fn whole_message_bytes<T: Float>(
        &self,
        plans: &[PlanImplementation],
        size: usize,
    ) -> Option<usize> {
        let call = ProgramSpec::new(self.problem.collective, size, self.problem.root);
        // Frames must hold the longest share, so count an array in which all shares are that long.
        let longest_share = self.shares.iter().flatten().copied().max();
        let longest = self.counts.iter().copied().max()?;
        let longest = longest.max(longest_share.unwrap_or(0).saturating_mul(size));
        let bytes = |row: &PlanImplementation| {
            ranks::whole_message_bytes(&row.plan, call, T::DTYPE, longest)
        };
        plans.iter().filter_map(bytes).max()
    }
}

/// Returns the numbers of values of `T` in arrays of these sizes.
pub(crate) fn counts<T: Float>(sizes: &SizeList) -> Result<Vec<usize>, UsageError> {
    let count = |&n_bytes: &usize| {
        n_bytes.is_multiple_of(T::BYTES).then_some(n_bytes / T::BYTES).ok_or_else(|| {
            usage!(
                "{n_bytes} bytes are no whole number of {} values; write sizes that are multiples \
                 of {}",
                T::DTYPE,
                T::BYTES
            )
        })
    };
    sizes.n_bytes().iter().map(count).collect()
}

/// Results of the benchmark, the same on every rank.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct BenchmarkOutcome {
    pub(crate) rows: Vec<CollectiveRow>,
    /// One note for each implementation and size that was not supported.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) left_out: Vec<String>,
    /// Rate of memcpy on rank 0 alone, in 1e9 bytes/s.
    pub(crate) memcpy_gbps: f64,
}

/// The benchmark on one rank.
pub(super) struct Benchmark<'a, C: AnyCommunicator, T> {
    pub(super) comm: C,
    pub(super) barrier: &'a mut Barrier<'a, C>,
    pub(super) implementations: Vec<Box<dyn Implementation<C, T> + 'a>>,
    pub(super) settings: &'a Settings,
    /// True if frames move only through memory, so that a memcpy is a fair comparison for calls.
    pub(super) shares_memory: bool,
    pub(super) data: &'a Data<T>,
    pub(super) progress: &'a ProgressBar,
}

impl<C: AnyCommunicator, T: Float + Into<f64>> Benchmark<'_, C, T> {
    /// Runs the benchmark, together with all other ranks.
    ///
    /// # Errors
    /// Fails if a call fails on any rank. All ranks get an error, or run into their timeout.
    pub(super) fn run(mut self) -> anyhow::Result<BenchmarkOutcome> {
        let memcpy_gbps = self.memcpy_rate()?;
        self.progress.set_length((self.settings.counts.len() * self.implementations.len()) as u64);
        let (mut rows, mut left_out) = (Vec::new(), Vec::new());
        for &count in &self.settings.counts {
            let measured = self.measure(count, &mut left_out);
            rows.extend(measured.with_context(|| format!("{} bytes", count * T::BYTES))?);
        }
        self.progress.finish_and_clear();
        Ok(BenchmarkOutcome { rows, left_out, memcpy_gbps })
    }

    /// Measures memcpy on rank 0 while the other ranks wait.
    fn memcpy_rate(&mut self) -> anyhow::Result<f64> {
        let mut rate = 0.0;
        if self.comm.rank() == Rank(0) {
            let source = vec![1_u8; MEMCPY_BYTES];
            let mut memcpy = Memcpy::new(&source);
            let times: Vec<_> = (0..5).map(|_| memcpy.run()).collect();
            rate = gbps(MEMCPY_BYTES, median(&times));
        }
        Ok(gather_json(&mut self.comm, &rate)?[0])
    }

    /// Measures all implementations at one size.
    fn measure(
        &mut self,
        count: usize,
        left_out: &mut Vec<String>,
    ) -> anyhow::Result<Vec<CollectiveRow>> {
        let Self { comm, barrier, implementations, settings, shares_memory, data, progress } = self;
        let rank = comm.rank().index();
        let problem = Problem { count, rank, ..settings.problem };
        let shares_memory = *shares_memory;
        let mut local = memory::zeroed(if shares_memory { count } else { 0 })?;
        data.fill(rank, 0, &mut local);
        let mut memcpy = shares_memory.then(|| Memcpy::new(&local));
        let mut copies = Vec::new();
        let mut runner = Runner::new(comm, *barrier, problem, data)?;
        let mut runs = Vec::new();
        for implementation in implementations.iter_mut() {
            let what = format!("{} bytes, {}", count * T::BYTES, implementation.title());
            progress.set_message(what.clone());
            if let Some(refusal) = implementation.refusal(&mut runner)? {
                left_out.push(format!("{what}: left out, {refusal}"));
                progress.inc(1);
                continue;
            }
            implementation.prepare(&mut runner)?;
            let mut record = RankRecord::default();
            if settings.check {
                record.result_check = runner.check(implementation.as_mut(), data, None)?;
            }
            runs.push(ImplementationRun {
                implementation,
                record,
                warm: 0.0,
                is_short: false,
                work: None,
            });
            progress.inc(1);
        }
        // One more round than requested: the last one measures how long a warm round takes.
        for _ in 0..=settings.warmup {
            for run in &mut runs {
                run.warm = runner.run(run.implementation.as_mut())?.0;
            }
            if let Some(memcpy) = &mut memcpy {
                runner.copy(memcpy)?;
            }
        }
        if let Some(n_polls) = settings.overlap {
            for run in &mut runs {
                let work = runner.work_like(run.implementation.as_mut(), n_polls)?;
                run.set_work(work, &mut runner, settings.check.then_some(data))?;
            }
        }
        for run in &mut runs {
            run.is_short = runner.largest(run.warm)? < SHORT_S;
        }
        let is_short = runs.iter().any(|run| run.is_short);
        let round_time = runner.largest(runs.iter().map(ImplementationRun::round_time).sum())?;
        let rounds = rounds(settings.repeat, settings.min_time, round_time);
        for round in 0..rounds {
            // Implementations take turns to be first after a copy.
            let n_runs = runs.len().max(1);
            let (last, first) = runs.split_at_mut(round % n_runs);
            for run in first.iter_mut().chain(last) {
                run.run_round(&mut runner, settings.in_flight as f64)?;
            }
            if let Some(memcpy) = &mut memcpy {
                if is_short {
                    runner.copy(memcpy)?;
                }
                copies.push(runner.copy(memcpy)?);
            }
        }
        let mut rows = Vec::new();
        let magnitude = data.magnitude();
        for ImplementationRun { implementation, record, .. } in &runs {
            let records = gather_json(runner.comm, record)?;
            let rounding = problem.rounding::<T>(magnitude);
            let n_bytes = count * T::BYTES;
            let names = (implementation.name(), implementation.title());
            let mut row = CollectiveRow::new(names, n_bytes, &problem, &records, rounding);
            row.algorithm = implementation.algorithm();
            row.set_schedule(implementation.swept_schedule(runner.comm, &problem));
            rows.push(row);
        }
        let copies = gather_json(runner.comm, &copies)?;
        CollectiveRow::compare(&mut rows, shares_memory.then(|| row::median(&slowest(&copies))));
        Ok(rows)
    }
}

/// An implementation at one size, with its measurements.
struct ImplementationRun<'p, 'a, C, T> {
    implementation: &'p mut Box<dyn Implementation<C, T> + 'a>,
    record: RankRecord,
    /// Seconds of the last warm-up run on this rank.
    warm: f64,
    /// True if the last warm-up run was short on every rank.
    is_short: bool,
    /// Computation during the calls, if overlap is measured.
    work: Option<OverlapWork>,
}

impl<C: AnyCommunicator, T: Float + Into<f64>> ImplementationRun<'_, '_, C, T> {
    /// Runs one call while this rank computes `work`, and checks the result if `check` holds the
    /// data. Keeps `work` for the rounds if the implementation supports such calls.
    fn set_work(
        &mut self,
        work: OverlapWork,
        runner: &mut Runner<'_, C, T>,
        check: Option<&Data<T>>,
    ) -> anyhow::Result<()> {
        let implementation = self.implementation.as_mut();
        let can = match check {
            None => runner.run_beside(implementation, &work)?.is_some(),
            Some(data) => {
                let result_check = runner.check(implementation, data, Some(&work))?;
                let both = |so_far: ResultCheck| {
                    result_check.map_or(so_far, |result_check| so_far.and(result_check))
                };
                self.record.result_check = self.record.result_check.map(both);
                result_check.is_some()
            }
        };
        self.work = can.then_some(work);
        Ok(())
    }

    /// Returns the expected seconds of a round.
    fn round_time(&self) -> f64 {
        // The call, the work, and both together, which take up to twice as long.
        if self.work.is_some() { 4.0 * self.warm } else { self.warm }
    }

    /// Runs a timed round of `n_calls` concurrent calls.
    fn run_round(&mut self, runner: &mut Runner<'_, C, T>, n_calls: f64) -> anyhow::Result<()> {
        let Self { implementation, record, is_short, work, .. } = self;
        if *is_short {
            runner.run(implementation.as_mut())?;
        }
        let (time, completed) = runner.run(implementation.as_mut())?;
        record.times.push(time / n_calls);
        record.report = completed.report.map(ReportSummary::from);
        if let Some(work) = work
            && let Some([alone, total]) = runner.run_beside(implementation.as_mut(), work)?
        {
            record.works.push(alone / n_calls);
            record.totals.push(total / n_calls);
        }
        Ok(())
    }
}

/// Returns the slowest rank's time in each round.
pub(crate) fn slowest(ranks: &[impl AsRef<[f64]>]) -> Vec<f64> {
    let n_rounds = ranks.first().map_or(0, |times| times.as_ref().len());
    let longest = |round: usize| ranks.iter().map(|r| r.as_ref()[round]).fold(0.0, f64::max);
    (0..n_rounds).map(longest).collect()
}

/// Returns the medians over rounds of the slowest rank's time, for several lists of this rank's
/// times; the same on every rank.
pub(super) fn medians(
    comm: &mut dyn AnyCommunicator,
    times: &[Vec<f64>],
) -> anyhow::Result<Vec<f64>> {
    times.iter().map(|times| Ok(row::median(&slowest(&gather_json(comm, times)?)))).collect()
}

/// Returns the number of timed rounds.
pub(super) fn rounds(repeat: usize, min_time: f64, round_time: f64) -> usize {
    let enough = (min_time / round_time.max(1e-9)).ceil();
    repeat.max((enough as usize).min(MAX_ROUNDS))
}

/// Measurements of one implementation on one rank.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct RankRecord {
    /// Seconds per call, one entry for each round.
    pub(super) times: Vec<f64>,
    /// Seconds per call of the work alone; empty unless overlap is measured.
    pub(super) works: Vec<f64>,
    /// Seconds per call of the call and the work together; empty unless overlap is measured.
    pub(super) totals: Vec<f64>,
    /// Report of the last round.
    pub(super) report: Option<ReportSummary>,
    pub(super) result_check: Option<ResultCheck>,
}

/// The parts of a call's report that the results need.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(super) struct ReportSummary {
    pub(super) raw_bytes: u64,
    pub(super) wire_bytes: u64,
    /// Infinite if the codec keeps no bound.
    #[serde(with = "bits")]
    pub(super) bound: f64,
    pub(super) worst_case: Option<f64>,
    pub(super) as_published: bool,
    pub(super) threads: u16,
    pub(super) encode: Duration,
    pub(super) fold: Duration,
    pub(super) decode: Duration,
    pub(super) waiting: Duration,
}

impl Default for ReportSummary {
    fn default() -> Self {
        Report::default().into()
    }
}

impl From<Report> for ReportSummary {
    fn from(report: Report) -> Self {
        Self {
            raw_bytes: report.raw_bytes,
            wire_bytes: report.wire_bytes,
            bound: report.bound,
            worst_case: report.worst_case,
            as_published: report.as_published,
            threads: report.threads,
            encode: report.encode,
            fold: report.fold,
            decode: report.decode,
            waiting: report.waiting(),
        }
    }
}

#[cfg(test)]
mod tests {
    use foldwire_threads::World;

    use super::*;

    #[test]
    fn short_calls_are_repeated_for_a_while_and_long_ones_as_often_as_asked() {
        assert_eq!(rounds(11, 0.3, 1.0), 11);
        assert_eq!(rounds(11, 0.3, 0.001), 300);
        assert_eq!(rounds(11, 0.3, 0.0), MAX_ROUNDS);
        assert_eq!(rounds(2000, 0.3, 0.0), 2000);
        assert_eq!(rounds(3, 0.0, 1e-6), 3);
    }

    #[test]
    fn every_rank_hears_what_each_says_however_long_it_is() {
        let result_check =
            ResultCheck { max_error: f64::INFINITY, n_beyond: 7, ..ResultCheck::default() };
        let report =
            ReportSummary { bound: 0.1 + 0.2, waiting: Duration::MAX, ..ReportSummary::default() };
        let full = RankRecord {
            times: vec![0.5, 0.1 + 0.2],
            works: vec![1.0, 2.0],
            totals: vec![3.0, 1e-9],
            report: Some(report),
            result_check: Some(result_check),
        };
        let records = [
            RankRecord::default(),
            full,
            RankRecord { result_check: Some(result_check), ..RankRecord::default() },
        ];
        let received = World::new(3).run(|mut comm| {
            let mine = &records[comm.rank().index()];
            gather_json(&mut comm, mine).unwrap()
        });
        assert!(received.iter().all(|received| *received == records), "{received:?}");
    }
}
