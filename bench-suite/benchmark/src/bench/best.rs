//! The best of several ways to do the same, chosen for each size by trial.
//!
//! Every candidate runs once, cold. Those that failed on any rank, or took more than twice as long
//! as the fastest, are out. The rest take turns for some rounds, and the fastest three of them for
//! more. Which is fastest is told first by the shortest round (of a round, the slowest rank's time
//! counts), since one disturbance must not put a good one out, then by the median. Where runs are
//! long there is no second heat. Since ranks tell each other their times, all of them choose alike.

use foldwire::Float;

use super::implementation::{CompletedRun, Implementation, ProblemBuffers, StartClock};
use super::problem::Problem;
use super::row::median;
use super::runner::{AnyCommunicator, Runner, gather_json};

/// Cold times over the fastest one from which a candidate is out.
const HOPELESS: f64 = 2.0;
/// How many come into the final.
const N_FINALISTS: usize = 3;
/// Seconds of the heat and of the final, about, and their least and most rounds.
const TRIAL_TIME: f64 = 0.4;
const HEAT_ROUNDS: (usize, usize) = (3, 50);
const FINAL_ROUNDS: (usize, usize) = (9, 200);
/// Seconds of a run that is hardly disturbed: the cold run is the heat, and the final is short.
const LONG: f64 = 0.2;
const LONG_FINAL_ROUNDS: (usize, usize) = (3, 3);

/// A way among others.
pub(super) trait AlgorithmCandidate<C: AnyCommunicator, T: Float>:
    Implementation<C, T>
{
    /// What it is called among the others.
    fn algorithm_name(&self) -> &str;

    /// Whether it is for this problem; the same on all ranks.
    fn suits(&self, problem: &Problem) -> bool;
}

/// Candidates, of which one is chosen.
pub(super) struct BestOf<A> {
    name: &'static str,
    title: &'static str,
    candidates: Vec<A>,
    chosen: usize,
}

impl<A> BestOf<A> {
    /// # Panics
    /// If there is no candidate.
    pub(super) fn new(name: &'static str, title: &'static str, candidates: Vec<A>) -> Self {
        assert!(!candidates.is_empty(), "one of the candidates is the best");
        Self { name, title, candidates, chosen: 0 }
    }
}

impl<A> BestOf<A> {
    /// Runs candidates in turn, given by expected time and index; answers with the time that
    /// `sum_up` makes of the slowest rank's, and the index, the fastest first.
    fn race<C: AnyCommunicator, T: Float>(
        &mut self,
        runner: &mut Runner<'_, C, T>,
        field: &[(f64, usize)],
        (least, most): (usize, usize),
        sum_up: fn(&[f64]) -> f64,
    ) -> anyhow::Result<Vec<(f64, usize)>>
    where
        A: AlgorithmCandidate<C, T>,
    {
        let round_time: f64 = field.iter().map(|&(time, _)| time).sum();
        let rounds = ((TRIAL_TIME / round_time) as usize).clamp(least, most);
        let mut times = vec![Vec::new(); field.len()];
        for _ in 0..rounds {
            for (&(_, at), times) in field.iter().zip(&mut times) {
                times.push(runner.run(&mut self.candidates[at])?.0);
            }
        }
        let mut result = Vec::new();
        for (&(_, at), times) in field.iter().zip(&times) {
            let ranks = gather_json(runner.comm, times)?;
            let slowest = |round: usize| ranks.iter().map(|times| times[round]).fold(0.0, f64::max);
            result.push((sum_up(&(0..rounds).map(slowest).collect::<Vec<_>>()), at));
        }
        result.sort_by(|a, b| a.0.total_cmp(&b.0));
        Ok(result)
    }
}

fn shortest(times: &[f64]) -> f64 {
    times.iter().copied().fold(f64::INFINITY, f64::min)
}

impl<C: AnyCommunicator, T: Float, A: AlgorithmCandidate<C, T>> Implementation<C, T> for BestOf<A> {
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
        anyhow::ensure!(fastest.is_finite(), "no way of {} works", self.title);
        cold.retain(|&(time, _)| time <= HOPELESS * fastest);
        let (mut finalists, rounds) = if fastest < LONG {
            (self.race(runner, &cold, HEAT_ROUNDS, shortest)?, FINAL_ROUNDS)
        } else {
            cold.sort_by(|a, b| a.0.total_cmp(&b.0));
            (cold, LONG_FINAL_ROUNDS)
        };
        finalists.truncate(N_FINALISTS);
        self.chosen = self.race(runner, &finalists, rounds, median)?[0].1;
        Ok(())
    }

    fn run(
        &mut self,
        comm: &mut C,
        problem: &Problem,
        buffers: &mut ProblemBuffers<T>,
        start: &mut StartClock<'_, C>,
    ) -> anyhow::Result<CompletedRun> {
        self.candidates[self.chosen].run(comm, problem, buffers, start)
    }

    fn algorithm(&self) -> Option<String> {
        Some(self.candidates[self.chosen].algorithm_name().to_owned())
    }
}

#[cfg(test)]
mod tests {
    use std::thread::sleep;
    use std::time::{Duration, Instant};

    use foldwire::{Collective, Rank};
    use foldwire_threads::World;

    use super::super::runner::barrier;
    use super::*;
    use foldwire_arguments::OpArg;
    use foldwire_workbench::data::Data;

    /// Takes so many milliseconds on a rank, or fails there.
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

        fn run(
            &mut self,
            comm: &mut C,
            problem: &Problem,
            _: &mut ProblemBuffers<f32>,
            start: &mut StartClock<'_, C>,
        ) -> anyhow::Result<CompletedRun> {
            start(comm)?;
            let ms = self.ms[problem.rank].ok_or_else(|| anyhow::anyhow!("refused"))?;
            sleep(Duration::from_millis(ms));
            Ok(CompletedRun { ended: Instant::now(), report: None, result_at: None })
        }
    }

    impl<C: AnyCommunicator> AlgorithmCandidate<C, f32> for Sleeper {
        fn algorithm_name(&self) -> &str {
            self.name
        }

        fn suits(&self, _: &Problem) -> bool {
            self.name != "unfit"
        }
    }

    fn choose(candidates: impl Fn() -> Vec<Sleeper> + Sync) -> Vec<Option<String>> {
        World::new(2).run(|mut comm| {
            let problem = Problem {
                collective: Collective::Broadcast,
                op: OpArg::Sum,
                root: Rank(0),
                in_place: false,
                is_uneven: false,
                count: 1,
                size: 2,
                rank: comm.rank().index(),
            };
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
