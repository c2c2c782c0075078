//! Runs one rank of the benchmark, from its endpoint to its results, in the same way on every
//! backend.

use foldwire::{Communicator, Float, Rank, Transport};
use foldwire_arguments::BenchArgs;
use foldwire_workbench::data::Data;
use foldwire_workbench::device::open;
use foldwire_workbench::streams;
use foldwire_workbench::threads::Pools;

use super::benchmark::{Benchmark, Settings};
use super::implementation::Implementation;
use super::output::{BenchHead, BenchResults};
use super::{config, plans, presets, progress};
use crate::job::{self, Library};

/// Everything a rank knows before it joins the other ranks.
#[derive(Clone, Copy)]
pub(super) struct BenchInputs<'a, T> {
    pub(super) args: &'a BenchArgs,
    pub(super) settings: &'a Settings,
    pub(super) data: &'a Data<T>,
    /// Name and details of the backend, for people.
    pub(super) backend: &'a str,
    /// This rank's thread pools.
    pub(super) pools: Pools,
}

/// Additions of a backend to the common benchmark.
pub(super) struct BackendExtras<'a, X: Transport, T> {
    /// The MPI library, if it takes part.
    pub(super) library: Option<&'a Library>,
    /// A communicator of the same ranks whose frames hold whole messages.
    pub(super) long_frames: Option<Communicator<X>>,
    /// Additional implementations, for calls that run one after the other.
    pub(super) implementations: Vec<Box<dyn Implementation<Communicator<X>, T> + 'a>>,
}

impl<X: Transport, T> Default for BackendExtras<'_, X, T> {
    fn default() -> Self {
        Self { library: None, long_frames: None, implementations: Vec::new() }
    }
}

/// Way in which a benchmark makes its calls: one after the other, or several at once.
pub(super) trait CallMode<T: Float + Into<f64>> {
    /// Runs this rank of the benchmark.
    ///
    /// # Errors
    /// Fails if a call fails on any rank.
    fn run_rank<'a, X: Transport + 'a>(
        inputs: BenchInputs<'a, T>,
        endpoint: X,
        extras: BackendExtras<'a, X, T>,
    ) -> anyhow::Result<BenchResults>;
}

/// Says which presets work message by message, if frames are shorter than their messages.
pub(super) fn remark_short_frames<T: Float>(
    inputs: &BenchInputs<'_, T>,
    transport: &impl Transport,
) {
    let plans = plans(inputs.args, T::DTYPE, &[], Pools::NONE);
    let whole = inputs.settings.whole_message_bytes::<T>(&plans, transport.size());
    let have = transport.frame_capacity();
    if let Some(need) = whole.filter(|need| *need > have) {
        let rows = plans.iter().filter(|row| !row.plan.overlaps()).map(|row| row.name);
        streams::remark(format_args!(
            "note: {} work message by message, and messages of {need} bytes do not fit frames of \
             {have}; to measure them as published, add --frame {need}",
            rows.collect::<Vec<_>>().join(", ")
        ));
    }
}

/// Makes one call after the other.
pub(super) struct SequentialCalls;

impl<T: Float + Into<f64>> CallMode<T> for SequentialCalls {
    fn run_rank<'a, X: Transport + 'a>(
        inputs: BenchInputs<'a, T>,
        endpoint: X,
        extras: BackendExtras<'a, X, T>,
    ) -> anyhow::Result<BenchResults> {
        let BenchInputs { args, settings, data, pools, .. } = inputs;
        let head = BenchHead::new(&inputs, &endpoint);
        let comm = Communicator::with_config(endpoint, config(args)?)?;
        let long = extras.long_frames;
        if comm.rank() == Rank(0) {
            remark_short_frames(&inputs, long.as_ref().unwrap_or(&comm).transport());
        }
        let device = open(args.device.as_deref())?;
        let mut implementations = presets(args, data.shape(), pools, long, &device)?;
        implementations.extend(extras.implementations);
        let progress = progress(comm.rank().index());
        let mut wait = job::barrier_of(extras.library);
        let shares_memory = head.shares_memory(settings);
        let (barrier, progress) = (wait.as_mut(), &progress);
        let benchmark =
            Benchmark { comm, barrier, implementations, settings, shares_memory, data, progress };
        Ok(BenchResults { head, outcome: benchmark.run()? })
    }
}
