//! Ranks as threads of this process.

use foldwire::Communicator;
use foldwire_arguments::P2pArgs;
use foldwire_arguments::values::LinkRate;
use foldwire_threads::Endpoint;
use foldwire_workbench::data::FieldSource;
use foldwire_workbench::ranks;

use super::benchmark::MessageBenchmark;
use super::output::{P2pHead, P2pResults};
use super::{check, plans, show};
use crate::bench::runner::{Barrier, barrier};
use crate::bench::{config_from_env, progress};

/// Default number of ranks.
const DEFAULT_RANKS: usize = 2;

/// Starts the ranks and runs the benchmark.
pub(super) fn run(args: &P2pArgs, source: &FieldSource) -> anyhow::Result<()> {
    let size = args.ranks.unwrap_or(DEFAULT_RANKS);
    check(args, size, size)?;
    let data = source.data::<f32>(size);
    let world = ranks::world(size, args.link.as_ref().and_then(LinkRate::bytes_per_s));
    let ranks = world.run_endpoints(|endpoint| -> anyhow::Result<P2pResults> {
        let comm = Communicator::with_config(endpoint, config_from_env()?)?;
        let head = P2pHead::new(args, &comm, "threads", &data);
        let progress = progress(comm.rank().index());
        let mut wait: Box<Barrier<'_, Communicator<Endpoint>>> = Box::new(barrier);
        let (barrier, implementations, data) = (wait.as_mut(), plans(args), &data);
        let benchmark =
            MessageBenchmark { args, comm, barrier, implementations, data, progress: &progress };
        Ok(P2pResults { head, rows: benchmark.run()? })
    });
    let mut ranks = ranks.into_iter().collect::<anyhow::Result<Vec<_>>>()?;
    show(args, &ranks.swap_remove(0))
}
