//! A run of the flow on several ranks, with one method to compress messages.

use std::time::{Duration, Instant};

use foldwire::layout::share;
use foldwire::{Error, Rank};
use foldwire_sphere::{Sphere, State};
use foldwire_workbench::ranks;
use indicatif::ProgressBar;

use super::exchange::{CompressionMethod, MeteredExchange, Traffic};

/// Settings of a run, the same for all methods.
#[derive(Clone, Copy)]
pub(super) struct Experiment<'s> {
    pub(super) sphere: &'s Sphere,
    pub(super) state: &'s State,
    pub(super) n_ranks: usize,
    pub(super) n_steps: usize,
    /// Bytes per second of each rank's link; `None` for the speed of memory.
    pub(super) link_rate: Option<f64>,
    /// Steps between samples of the heights. The last step is a sample, too.
    pub(super) sample_every: usize,
    /// Steps between gathers of all heights on rank 0. The last step has one, too. `None`: no
    /// gathers.
    pub(super) gather_every: Option<usize>,
    pub(super) progress: &'s ProgressBar,
}

/// Measurements and samples of one run.
#[derive(Default)]
pub(super) struct ClimateRun {
    /// Duration of each step on rank 0, without gathers.
    pub(super) steps: Vec<Duration>,
    /// Duration of each gather on rank 0.
    pub(super) gathers: Vec<Duration>,
    /// By kind of exchange: sum over all ranks and steps.
    pub(super) traffic: [Traffic; 3],
    /// Samples: the time in days, and the heights of all rows.
    pub(super) samples: Vec<(f64, Vec<f64>)>,
    /// Heights of all rows at the last step, as rank 0 gathered them. Empty without gathers.
    pub(super) gathered: Vec<f64>,
}

/// Results of one rank.
struct RankRun {
    steps: Vec<Duration>,
    gathers: Vec<Duration>,
    traffic: [Traffic; 3],
    samples: Vec<(usize, Vec<f64>)>,
    gathered: Vec<f64>,
}

impl Experiment<'_> {
    /// Runs the flow.
    ///
    /// # Errors
    /// Errors of the ranks.
    pub(super) fn run(&self, method: &CompressionMethod) -> anyhow::Result<ClimateRun> {
        let world = ranks::world(self.n_ranks, self.link_rate);
        let ranks = world.run(|mut comm| {
            let rank = comm.rank();
            self.run_rank(rank, MeteredExchange::new(&mut comm, method))
        });
        let mut run = ClimateRun::default();
        for (rank, of_rank) in ranks::results(ranks)?.into_iter().enumerate() {
            run.traffic.iter_mut().zip(of_rank.traffic).for_each(|(sum, traffic)| *sum += traffic);
            if rank == 0 {
                let RankRun { steps, gathers, samples, gathered, .. } = of_rank;
                (run.steps, run.gathers, run.gathered) = (steps, gathers, gathered);
                let days = |step| step as f64 * self.sphere.seconds_of_step() / 86_400.0;
                run.samples = samples.into_iter().map(|(step, rows)| (days(step), rows)).collect();
            } else {
                let all = run.samples.iter_mut().zip(of_rank.samples);
                all.for_each(|((_, all), (_, rows))| all.extend(rows));
            }
        }
        Ok(run)
    }

    fn run_rank<X: foldwire::Transport>(
        &self,
        rank: Rank,
        mut exchange: MeteredExchange<'_, X>,
    ) -> Result<RankRun, Error> {
        let Self { sphere, n_ranks, n_steps, .. } = *self;
        let mut band = sphere.band(n_ranks, rank.index(), self.state).ok_or(Error::Internal)?;
        let n_each = band.heights().len() / share(sphere.n_rows(), n_ranks, rank.index()).len();
        let counts: Vec<usize> =
            (0..n_ranks).map(|rank| share(sphere.n_rows(), n_ranks, rank).len() * n_each).collect();
        let (mut steps, mut gathers) = (Vec::with_capacity(n_steps), Vec::new());
        let (mut samples, mut gathered) = (Vec::new(), Vec::new());
        for step in 1..=n_steps {
            let begun = Instant::now();
            band.step(&mut exchange)?;
            steps.push(begun.elapsed());
            let is_due = |every: usize| step % every == 0 || step == n_steps;
            if self.gather_every.is_some_and(is_due) {
                let begun = Instant::now();
                exchange.gather(band.heights(), &counts, &mut gathered)?;
                gathers.push(begun.elapsed());
            }
            if is_due(self.sample_every) {
                samples.push((step, band.heights().to_vec()));
            }
            if rank == Rank(0) {
                self.progress.inc(1);
            }
        }
        Ok(RankRun { steps, gathers, traffic: exchange.traffic, samples, gathered })
    }
}
