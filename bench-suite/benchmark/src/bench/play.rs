//! From one rank's endpoint to results: the same on every backend.

use foldwire::{Communicator, Float, Transport};
use foldwire_arguments::BenchArgs;
use foldwire_workbench::data::Data;

use super::contest::{Contest, Settings};
use super::contestant::Contestant;
use super::output::{Head, Results};
use super::stage::{Barrier, barrier};
use super::{config, presets, progress};

/// What ranks know before they meet.
#[derive(Clone, Copy)]
pub(super) struct Setting<'a, T> {
    pub(super) args: &'a BenchArgs,
    pub(super) settings: &'a Settings,
    pub(super) data: &'a Data<T>,
    /// The backend's name, and whatever else says what it is.
    pub(super) backend: &'a str,
}

/// What a backend adds to what all have.
pub(super) struct Extras<'a, X: Transport, T> {
    /// Its own barrier, if it has one.
    pub(super) barrier: Option<Box<dyn FnMut() + 'a>>,
    /// Contestants after the others, if calls are made one by one.
    pub(super) contestants: Vec<Box<dyn Contestant<Communicator<X>, T> + 'a>>,
}

impl<X: Transport, T> Default for Extras<'_, X, T> {
    fn default() -> Self {
        Self { barrier: None, contestants: Vec::new() }
    }
}

/// The barrier of a backend that has its own.
pub(super) fn of<'b, C>(mut wait: Box<dyn FnMut() + 'b>) -> Box<Barrier<'b, C>> {
    Box::new(move |_| {
        wait();
        Ok(())
    })
}

/// A way to make calls.
pub(super) trait Play<T: Float + Into<f64>> {
    /// This rank's part in the benchmark.
    ///
    /// # Errors
    /// When a call fails on any rank.
    fn play<'a, X: Transport + 'a>(
        setting: Setting<'a, T>,
        endpoint: X,
        extras: Extras<'a, X, T>,
    ) -> anyhow::Result<Results>;
}

/// One call after the other.
pub(super) struct OneByOne;

impl<T: Float + Into<f64>> Play<T> for OneByOne {
    fn play<'a, X: Transport + 'a>(
        setting: Setting<'a, T>,
        endpoint: X,
        extras: Extras<'a, X, T>,
    ) -> anyhow::Result<Results> {
        let Setting { args, settings, data, .. } = setting;
        let head = Head::new(&setting, &endpoint);
        let comm = Communicator::with_config(endpoint, config(args)?)?;
        let mut contestants = presets(args, data.shape())?;
        contestants.extend(extras.contestants);
        let progress = progress(comm.rank().index());
        let mut wait = extras.barrier.map_or_else(|| Box::new(barrier) as _, of);
        let shares_memory = head.shares_memory(settings);
        let (barrier, progress) = (wait.as_mut(), &progress);
        let contest =
            Contest { comm, barrier, contestants, settings, shares_memory, data, progress };
        Ok(Results { head, outcome: contest.play()? })
    }
}
