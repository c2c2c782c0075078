//! Ranks as threads of this process.

use foldwire::error::Error;
use foldwire::frame::HEADER_BYTES;
use foldwire::kernel::CHUNK;
use foldwire::schedule::ProgramSpec;
use foldwire::transport::{MIN_FRAME_BYTES, TransportErrorKind};
use foldwire::{Bound, Collective, DType, Plan, bundle};
use foldwire_threads::World;

/// Ranks with links of this rate in bytes per second, each way. With `None`, links have the speed
/// of memory.
pub fn world(n_ranks: usize, link_rate: Option<f64>) -> World {
    let world = World::new(n_ranks);
    if let Some(rate) = link_rate { world.link_rate(rate) } else { world }
}

/// Returns the results of all ranks, in rank order.
///
/// # Errors
/// If ranks failed: the error of the first one that does not only report that another rank has
/// failed or is gone.
pub fn results<R, E: Into<anyhow::Error>>(
    ranks: impl IntoIterator<Item = Result<R, E>>,
) -> anyhow::Result<Vec<R>> {
    let (mut results, mut failure) = (Vec::new(), None);
    for rank in ranks {
        match rank.map_err(Into::into) {
            Ok(result) => results.push(result),
            Err(error) if failure.as_ref().is_none_or(is_of_another_rank) => failure = Some(error),
            Err(_) => {}
        }
    }
    failure.map_or(Ok(results), Err)
}

fn is_of_another_rank(error: &anyhow::Error) -> bool {
    matches!(
        error.downcast_ref(),
        Some(Error::Aborted { .. } | Error::Transport { kind: TransportErrorKind::PeerLost, .. })
    )
}

/// Returns the bytes of a frame that holds a message of `n_values` values, or a piece of it. `None`
/// if none can.
pub fn message_bytes(plan: &Plan, dtype: DType, n_values: usize) -> Option<usize> {
    plan.max_payload_bytes(dtype, plan.max_piece(dtype, n_values))?.checked_add(HEADER_BYTES)
}

/// Values of a message for each thread. The codec fz-light gains from threads from 48 chunks of
/// 4096 values on, and segments may be half as long as a message allows.
const VALUES_PER_THREAD: usize = 48 * 4096;

/// Returns the bytes of frames for plans whose work overlaps: the default, or enough for ranks that
/// compute on several threads.
pub fn frame_bytes(n_threads: usize, dtype: DType) -> usize {
    let plan = Plan::foldwire(Bound::Absolute(1.0));
    let threaded = message_bytes(&plan, dtype, n_threads.saturating_mul(VALUES_PER_THREAD));
    threaded.filter(|_| n_threads > 1).unwrap_or(World::FRAME_BYTES)
}

/// Returns the bytes of a frame that holds every message of this plan in a call on `count` values,
/// if the plan works message by message as its authors do. `None` for other plans. Such frames
/// belong to a world of their own, since other plans are faster with shorter ones.
///
/// A message carries one part of the array, or all of it: to and from a root, and where the length
/// decides about the schedule, or a piece of a part. Scatters and gathers pack all parts.
pub fn whole_message_bytes(
    plan: &Plan,
    call: ProgramSpec,
    dtype: DType,
    count: usize,
) -> Option<usize> {
    if plan.overlaps() {
        return None;
    }
    let schedule = plan.schedule.filter(|_| !call.collective.has_root());
    let n_parts = schedule.map_or(1, |schedule| schedule.n_parts(call));
    let packs = matches!(call.collective, Collective::Scatter | Collective::Gather);
    let n_packed = if packs { call.size } else { 1 };
    let n_values = count.div_ceil(n_parts.max(n_packed).max(1));
    // Segments of more than a chunk have whole chunks, so the last one needs room to be whole.
    let n_values = if n_values > CHUNK { n_values.next_multiple_of(CHUNK) } else { n_values };
    let payload = plan.max_payload_bytes(dtype, plan.max_piece(dtype, n_values))?;
    let n_bytes = bundle::room(n_packed, payload)?.checked_add(HEADER_BYTES)?;
    Some(n_bytes.max(MIN_FRAME_BYTES))
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::{Context, anyhow};
    use foldwire::error::AbortReason;
    use foldwire::{Op, Preset, Rank};

    #[test]
    fn the_error_of_the_rank_that_failed_first_is_returned() {
        let lost = |mut comm: foldwire::Communicator<foldwire_threads::Endpoint>| {
            if comm.rank() == Rank(1) {
                return Err(anyhow!("no memory"));
            }
            comm.all_reduce_scalar(1.0, Op::Sum).context("the first call").map(drop)
        };
        let error = results(world(3, None).run(lost)).expect_err("rank 1 failed");
        assert_eq!(error.to_string(), "no memory");
        let (rank, culprit, reason) = (Rank(0), Rank(2), AbortReason::Device);
        let aborted = || Err::<(), _>(Error::Aborted { rank, culprit, reason });
        let error = results([aborted(), aborted()]).expect_err("both failed");
        assert!(is_of_another_rank(&error));
        assert_eq!(results::<_, Error>([Ok(1), Ok(2)]).expect("neither failed"), [1, 2]);
    }

    #[test]
    fn frames_hold_a_part_or_all_of_the_array() {
        let bytes = |preset: Preset, collective| {
            let plan = preset.plan(collective, Bound::Absolute(1.0));
            let call = ProgramSpec::new(collective, 4, Rank(0));
            whole_message_bytes(&plan, call, DType::F32, 4000)
        };
        let raw = |collective| bytes(Preset::RawRing, collective);
        assert_eq!(raw(Collective::AllReduce), Some(4000 + HEADER_BYTES));
        assert_eq!(raw(Collective::Broadcast), Some(16_000 + HEADER_BYTES));
        // Each of four parts at a multiple of 64 bytes, and their ends.
        assert_eq!(raw(Collective::Scatter), Some(4 * (4032 + 4) + 4 + HEADER_BYTES));
        assert!(bytes(Preset::Cprp2p, Collective::AllReduce) > raw(Collective::AllReduce));
        let piece = 32 * 1024 + HEADER_BYTES;
        let longer = ProgramSpec::new(Collective::AllGather, 4, Rank(0));
        let plan = Preset::RawRing.plan(Collective::AllGather, Bound::Absolute(1.0));
        assert_eq!(whole_message_bytes(&plan, longer, DType::F32, 1 << 20), Some(piece));
        assert!(bytes(Preset::MpcOpt, Collective::AllGather) > raw(Collective::Broadcast));
        assert_eq!(bytes(Preset::ZcclPlus, Collective::AllReduce), None);
        let call = ProgramSpec::new(Collective::AllReduce, 4, Rank(0));
        let plan = Preset::RawRing.plan(Collective::AllReduce, Bound::Absolute(1.0));
        assert_eq!(whole_message_bytes(&plan, call, DType::F32, 3), Some(MIN_FRAME_BYTES));
        // Parts of 4100 values.
        let bytes = whole_message_bytes(&plan, call, DType::F32, 16_400);
        assert_eq!(bytes, Some(2 * 4 * CHUNK + HEADER_BYTES));
    }
}
