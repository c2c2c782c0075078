//! Chooses the fastest of several algorithms for each size by trial.
//!
//! Every candidate runs once, cold. A candidate is discarded if it fails on any rank or takes more
//! than twice as long as the fastest. The others alternate for some screening rounds. The fastest
//! three alternate for more rounds, and the fastest of these is chosen.
//!
//! The time of a round is the slowest rank's. Screening compares the shortest rounds, because one
//! disturbance must not discard a good candidate. The final comparison uses medians. Long runs skip
//! the screening rounds. Ranks exchange their times, so all of them choose the same candidate.

use foldwire::Float;

use super::benchmark::slowest;
use super::implementation::{CompletedRun, Implementation, Run};
use super::row::{median, percentile};
use super::runner::{AnyCommunicator, Runner, gather_json};

/// A candidate is discarded if its cold time exceeds the fastest one by this factor.
const DISCARD_FACTOR: f64 = 2.0;
/// Number of candidates in the final rounds.
const N_FINALISTS: usize = 3;
/// Approximate seconds of all screening rounds, and of all final rounds.
const ROUNDS_TIME: f64 = 0.4;
/// Least and largest number of screening rounds.
const SCREENING_ROUNDS: (usize, usize) = (3, 50);
/// Least and largest number of final rounds.
const FINAL_ROUNDS: (usize, usize) = (9, 200);
/// Least seconds of a long run, on which disturbances have little effect. Candidates with long runs
/// are screened by their cold times, and have few final rounds.
const LONG_RUN: f64 = 0.2;
/// Least and largest number of final rounds of long runs.
const LONG_RUN_ROUNDS: (usize, usize) = (3, 3);

/// An implementation that delegates to the fastest of its candidates, whose titles are the names of
/// algorithms.
pub(super) struct BestOf<A> {
    name: &'static str,
    title: &'static str,
    candidates: Vec<A>,
    chosen: usize,
}

impl<A> BestOf<A> {
    /// An implementation that chooses among these candidates.
    ///
    /// # Panics
    /// If there is no candidate.
    pub(super) fn new(name: &'static str, title: &'static str, candidates: Vec<A>) -> Self {
        assert!(!candidates.is_empty(), "one of the candidates is the best");
        Self { name, title, candidates, chosen: 0 }
    }

    /// Runs some candidates alternately. `selected` holds their expected times and indices. Returns
    /// the measured time and the index of each, the fastest first. `sum_up` computes a candidate's
    /// time from the slowest rank's time in each round.
    fn time_candidates<C: AnyCommunicator, T: Float>(
        &mut self,
        runner: &mut Runner<'_, C, T>,
        selected: &[(f64, usize)],
        (least, most): (usize, usize),
        sum_up: fn(&[f64]) -> f64,
    ) -> anyhow::Result<Vec<(f64, usize)>>
    where
        A: Implementation<C, T>,
    {
        let round_time: f64 = selected.iter().map(|&(time, _)| time).sum();
        let rounds = ((ROUNDS_TIME / round_time) as usize).clamp(least, most);
        let mut times = vec![Vec::new(); selected.len()];
        for _ in 0..rounds {
            for (&(_, at), times) in selected.iter().zip(&mut times) {
                times.push(runner.run(&mut self.candidates[at])?.0);
            }
        }
        let mut result = Vec::new();
        for (&(_, at), times) in selected.iter().zip(&times) {
            result.push((sum_up(&slowest(&gather_json(runner.comm, times)?)), at));
        }
        result.sort_by(|a, b| a.0.total_cmp(&b.0));
        Ok(result)
    }
}

impl<C: AnyCommunicator, T: Float, A: Implementation<C, T>> Implementation<C, T> for BestOf<A> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn title(&self) -> String {
        self.title.to_owned()
    }

    fn prepare(&mut self, runner: &mut Runner<'_, C, T>) -> anyhow::Result<()> {
        let mut cold = Vec::new();
        for (at, candidate) in self.candidates.iter_mut().enumerate() {
            if !candidate.suits(&runner.problem) {
                continue;
            }
            candidate.prepare(runner)?;
            // Some algorithms refuse some calls.
            let time = runner.run(candidate).map_or(f64::INFINITY, |(time, _)| time);
            cold.push((runner.largest(time)?, at));
        }
        let fastest = cold.iter().map(|&(time, _)| time).fold(f64::INFINITY, f64::min);
        anyhow::ensure!(fastest.is_finite(), "no algorithm of {} works", self.title);
        cold.retain(|&(time, _)| time <= DISCARD_FACTOR * fastest);
        let (mut finalists, rounds) = if fastest < LONG_RUN {
            (
                self.time_candidates(runner, &cold, SCREENING_ROUNDS, |times| {
                    percentile(times, 0.0)
                })?,
                FINAL_ROUNDS,
            )
        } else {
            cold.sort_by(|a, b| a.0.total_cmp(&b.0));
            (cold, LONG_RUN_ROUNDS)
        };
        finalists.truncate(N_FINALISTS);
        self.chosen = self.time_candidates(runner, &finalists, rounds, median)?[0].1;
        Ok(())
    }

    fn run(&mut self, run: Run<'_, C, T>) -> anyhow::Result<CompletedRun> {
        self.candidates[self.chosen].run(run)
    }

    fn algorithm(&self) -> Option<String> {
        Some(self.candidates[self.chosen].title())
    }
}

#[cfg(test)]
mod tests {
    use std::thread::sleep;
    use std::time::{Duration, Instant};

    use foldwire::Collective;
    use foldwire_threads::World;

    use super::super::problem::Problem;
    use super::super::runner::barrier;
    use super::*;
    use foldwire_workbench::data::Data;

    /// Sleeps for `ms[r]` milliseconds on rank r, or fails on that rank if it is `None`.
    struct Sleeper {
        name: &'static str,
        ms: [Option<u64>; 2],
    }

    impl<C: AnyCommunicator> Implementation<C, f32> for Sleeper {
        fn name(&self) -> &'static str {
            self.name
        }

        fn title(&self) -> String {
            self.name.to_owned()
        }

        fn suits(&self, _: &Problem) -> bool {
            self.name != "unfit"
        }

        fn run(&mut self, run: Run<'_, C, f32>) -> anyhow::Result<CompletedRun> {
            (run.start)(run.comm)?;
            let ms = self.ms[run.problem.rank].ok_or_else(|| anyhow::anyhow!("refused"))?;
            sleep(Duration::from_millis(ms));
            Ok(CompletedRun { ended: Instant::now(), report: None, result_at: None })
        }
    }

    fn choose(candidates: impl Fn() -> Vec<Sleeper> + Sync) -> Vec<Option<String>> {
        World::new(2).run(|mut comm| {
            let problem = Problem::sum(Collective::Broadcast, 1, 2, comm.rank().index());
            let data = Data::new(vec![1.0_f32], 2, String::new());
            let mut barrier = barrier;
            let mut runner = Runner::new(&mut comm, &mut barrier, problem, &data).ok()?;
            let mut best = BestOf::new("best", "Best", candidates());
            best.prepare(&mut runner).ok()?;
            Implementation::<foldwire::Communicator<foldwire_threads::Endpoint>, f32>::algorithm(
                &best,
            )
        })
    }

    #[test]
    fn all_ranks_choose_the_one_whose_slowest_rank_is_fastest() {
        let chosen = choose(|| {
            vec![
                Sleeper { name: "uneven", ms: [Some(0), Some(60)] },
                Sleeper { name: "even", ms: [Some(20), Some(20)] },
                Sleeper { name: "fails on one", ms: [Some(0), None] },
                Sleeper { name: "unfit", ms: [Some(0), Some(0)] },
            ]
        });
        assert_eq!(chosen, [Some("even".to_owned()), Some("even".to_owned())]);
    }

    #[test]
    fn if_nothing_works_that_is_an_error() {
        let chosen = choose(|| vec![Sleeper { name: "fails", ms: [None, None] }]);
        assert_eq!(chosen, [None, None]);
    }
}
