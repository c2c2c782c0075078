//! Joins the ranks of an MPI job.

use anyhow::Context;
use foldwire_mpi_native as native;
use foldwire_workbench::streams;
use mpi::topology::Communicator as _;
use mpi::traits::CommunicatorCollectives;

use super::{Job, Library, MAX_FAULT, Measurement, agree};
use crate::bench::runner::Barrier;

/// Runs this process's rank.
pub(super) fn run<M: Measurement>(
    job: Job<'_>,
    measurement: impl FnOnce(usize) -> anyhow::Result<M>,
) -> anyhow::Result<()> {
    let universe = mpi::initialize().context("MPI does not start")?;
    let world = universe.world();
    let set_up = measurement(world.size() as usize);
    let agreed = agree(world.rank() as usize, set_up, |fault| {
        let mut mine = [0; MAX_FAULT];
        mine[..fault.len()].copy_from_slice(fault);
        let mut all = vec![0; MAX_FAULT * world.size() as usize];
        world.all_gather_into(&mine[..], &mut all[..]);
        let text = |padded: &[u8]| padded.iter().copied().take_while(|&byte| byte != 0).collect();
        Ok(all.chunks(MAX_FAULT).map(text).collect())
    })?;
    let Some(measurement) = agreed else { return Ok(()) };
    let backend = format!("MPI ({})", native::library());
    let mut settings = foldwire_mpi::Options::default();
    settings.frame_bytes = job.frame_bytes.unwrap_or(settings.frame_bytes);
    settings.link_rate = job.link_rate;
    let joined = foldwire_mpi::join_with(&world, settings).map_err(Into::into);
    let run = |endpoint| measurement.run_rank(endpoint, &backend, Some(&world));
    match joined.and_then(run) {
        Ok(results) if world.rank() == 0 => measurement.show(&backend, &results),
        Ok(_) => Ok(()),
        Err(error) => {
            streams::remark(format_args!("error: rank {}: {error:#}", world.rank()));
            world.abort(1)
        }
    }
}

/// The library's own barrier.
pub(super) fn barrier<'b, C>(library: &Library) -> Box<Barrier<'b, C>> {
    let library = library.duplicate();
    Box::new(move |_| {
        library.barrier();
        Ok(())
    })
}
