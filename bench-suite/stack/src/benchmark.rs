//! Runs presets against each other: in turn, on the same threads, over the same links.
//!
//! All ranks stay alive for the whole race. In each round every preset runs once, so that whatever
//! disturbs the machine disturbs all alike; ranks start together behind a barrier, and a run lasts
//! from the first rank's start to the last rank's end. One round warms up and is not counted.

use foldwire::schedule::Pairwise;
use foldwire::{Bound, Collective, Error, Float, Op, Plan, Preset, Report};
use foldwire_workbench::memory::median;
use foldwire_workbench::ranks;
use foldwire_workbench::threads::Pools;
use indicatif::ProgressBar;
use std::sync::Barrier;
use std::time::{Duration, Instant};

/// What to run.
#[derive(Debug)]
pub(super) struct PresetBenchmark {
    pub(super) presets: Vec<Preset>,
    pub(super) bound: Bound,
    /// Bytes per second of each rank's link, each way.
    pub(super) link: Option<f64>,
    /// Rounds that count.
    pub(super) repeat: usize,
    /// Without the promise of the same bits.
    pub(super) as_published: bool,
    /// Of each volume, slowest dimension first.
    pub(super) shape: Vec<usize>,
    /// Of each rank.
    pub(super) pools: Vec<Pools>,
}

/// Links of less than so many bytes per second are slow: over 1 Gbit/s an exchange between 8 ranks
/// takes 64 ms, and a ring 70.
const SLOW_LINK: f64 = 0.24e9;

/// What one preset did.
#[derive(Debug)]
pub(super) struct PresetOutcome<T> {
    /// One for each round.
    pub(super) times: Vec<Duration>,
    /// Each rank's report of the round with the median time.
    pub(super) reports: Vec<Report>,
    /// Rank 0's result.
    pub(super) result: Vec<T>,
    /// Whether every rank had the same bits in the last round.
    pub(super) same_bits: bool,
}

impl<T> PresetOutcome<T> {
    /// The median time.
    pub(super) fn time(&self) -> Duration {
        median(&self.times)
    }
}

/// One rank's account of one run.
struct RankRun {
    started: Instant,
    ended: Instant,
    report: Report,
}

impl PresetBenchmark {
    /// Runs of all presets together, the warm-up included.
    pub(super) fn n_runs(&self) -> usize {
        self.presets.len() * (self.repeat + 1)
    }

    /// What a preset does with shares of so many bytes. Partial sums of images need more bits than
    /// one image, as each is empty where others are not; so Foldwire's ranks exchange single images
    /// where bytes count most.
    fn plan(&self, preset: Preset, n_bytes: usize) -> Plan {
        let plan = preset.plan_for(Collective::AllReduce, self.bound, n_bytes);
        let plan = plan.with_shape(&self.shape);
        let plan = if self.as_published { plan.as_published() } else { plan };
        let is_slow = self.link.is_some_and(|rate| rate < SLOW_LINK);
        if preset == Preset::Foldwire && is_slow { plan.with_schedule(&Pairwise) } else { plan }
    }

    /// Runs the race; one volume a rank.
    pub(super) fn run<T: Float>(
        &self,
        volumes: &[Vec<T>],
        progress: &ProgressBar,
    ) -> Result<Vec<PresetOutcome<T>>, Error> {
        let world = ranks::world(volumes.len(), self.link);
        let n_bytes = size_of_val(&volumes[0][..]) / volumes.len();
        let plans: Vec<Plan> =
            self.presets.iter().map(|&preset| self.plan(preset, n_bytes)).collect();
        let barrier = Barrier::new(volumes.len());
        let ranks = world.run(|mut comm| -> Result<_, Error> {
            let rank = comm.rank().index();
            let mut results = vec![vec![T::from_f64(0.0); volumes[rank].len()]; plans.len()];
            let mut rounds = Vec::new();
            for _ in 0..=self.repeat {
                let mut round = Vec::new();
                let rows = self.presets.iter().zip(&plans);
                for ((&preset, plan), result) in rows.zip(&mut results) {
                    comm.config_mut().threads = self.pools[rank].of(Some(preset));
                    barrier.wait();
                    let started = Instant::now();
                    // A failing rank makes all others fail, so none is left at the barrier.
                    let report = comm.all_reduce_into(&volumes[rank], result, Op::Sum, plan)?;
                    round.push(RankRun { started, ended: Instant::now(), report });
                    if rank == 0 {
                        progress.inc(1);
                    }
                }
                rounds.push(round);
            }
            Ok((results, rounds))
        });
        let mut ranks = ranks.into_iter().collect::<Result<Vec<_>, _>>()?;
        let outcomes = (0..plans.len()).map(|i| {
            // The first round warmed up.
            let time = |round: usize| {
                let runs = ranks.iter().map(|(_, rounds)| &rounds[round][i]);
                let start = runs.clone().map(|run| run.started).min();
                let end = runs.map(|run| run.ended).max();
                start.zip(end).map_or(Duration::ZERO, |(start, end)| end - start)
            };
            let times: Vec<Duration> = (1..=self.repeat).map(time).collect();
            let middle = median(&times);
            let chosen = (0..times.len()).min_by_key(|&k| times[k].abs_diff(middle)).unwrap_or(0);
            let reports = ranks.iter().map(|(_, rounds)| rounds[chosen + 1][i].report).collect();
            let bits = |rank: usize| bytemuck::cast_slice::<T, u8>(&ranks[rank].0[i]);
            let same_bits = (1..ranks.len()).all(|rank| bits(rank) == bits(0));
            PresetOutcome { times, reports, result: Vec::new(), same_bits }
        });
        let mut outcomes: Vec<PresetOutcome<T>> = outcomes.collect();
        for (outcome, result) in outcomes.iter_mut().zip(&mut ranks[0].0) {
            outcome.result = std::mem::take(result);
        }
        Ok(outcomes)
    }
}
