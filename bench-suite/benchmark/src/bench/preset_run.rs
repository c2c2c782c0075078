//! Times of one preset on threads, for the validation of the cost model.

use foldwire::{Bound, Float, Preset};
use foldwire_threads::World;
use foldwire_workbench::data::Data;
use foldwire_workbench::ranks;

use super::implementation::PlanImplementation;
use super::problem::Problem;
use super::runner::{Barrier, Runner, barrier};

/// A collective of one preset over threads.
#[derive(Debug, Clone)]
pub(crate) struct PresetRun {
    pub(crate) world: World,
    pub(crate) collective: foldwire::Collective,
    pub(crate) preset: Preset,
    pub(crate) bound: Bound,
    pub(crate) count: usize,
    pub(crate) size: usize,
}

impl PresetRun {
    /// Returns the slowest rank's seconds in each of `n` runs, after an untimed run. Input and
    /// result have separate buffers, and the root is rank 0.
    pub(crate) fn times<T: Float>(&self, n: usize, data: &Data<T>) -> anyhow::Result<Vec<f64>> {
        let ranks = self.world.clone().run(|mut comm| -> anyhow::Result<Vec<f64>> {
            let rank = comm.rank().index();
            let problem = Problem::sum(self.collective, self.count, self.size, rank);
            let mut wait: Box<Barrier<'_, _>> = Box::new(barrier);
            let mut runner = Runner::new(&mut comm, wait.as_mut(), problem, data)?;
            let mut implementation =
                PlanImplementation::preset(self.preset, self.collective, self.bound);
            runner.run(&mut implementation)?;
            (0..n).map(|_| Ok(runner.run(&mut implementation)?.0)).collect()
        });
        let ranks = ranks::results(ranks)?;
        Ok((0..n).map(|run| ranks.iter().map(|times| times[run]).fold(0.0, f64::max)).collect())
    }
}
