//! Which schedule a call takes when the caller leaves the choice open, and how many parts its
//! messages may carry.
//!
//! The caller's own rows ([`Config::select`](crate::Config::select)) come first, then the model.
//!
//! *The model.* Of what can do the call, it takes what is done soonest. With α seconds for each of
//! k messages one after the other, and C bytes per second moved and reduced, half of it for each, a
//! schedule by which a rank moves the m bytes u times and reduces them v times takes k·α + D·(u +
//! v)·m/2C + (1 − σ)·u·m/(ρ·R), where R is the rate of links that have one, ρ the ratio of raw to
//! wire bytes, and σ the share of those that a schedule saves (below). α is more where m/(ρ·R) is
//! long:
//!
//! | collective | by | k | u | v |
//! |---|---|---|---|---|
//! | all-reduce | ring | 2(n − 1) | 2(n − 1)/n | (n − 1)/n |
//! | | circulant graph | 2⌈log₂ n⌉ | the same | the same |
//! | | pairwise exchange | 2(1 + β·(n − 2)) | the same | the same |
//! | | recursive doubling | log₂ n; else ⌊log₂ n⌋ + 2 | k | k |
//! | | double tree | twice a broadcast's | the same | half |
//! | reduce-scatter | those three | half of those | (n − 1)/n | (n − 1)/n |
//! | all-gather | those three | half of those | (n − 1)/n | |
//! | broadcast, reduce | binomial tree | ⌈log₂ n⌉ | k | k, reduce |
//! | | chain, r rounds | r + n − 2 | k/r | k/r, reduce |
//! | | double tree, r/2 rounds | r + 3⌈log₂ n⌉ − 2 | k/r | k/r, reduce |
//! | | two halves | 2⌈log₂ n⌉ | 2(n − 1)/n | (n − 1)/n, reduce |
//! | scan | chain, r rounds | r + n − 2 | k/r | k/r |
//! | | doubling prefixes | ⌈log₂ n⌉; exclusive ⌈log₂(n − 1)⌉ + 1 | k | k |
//! | all-to-all | linear | 1 + 0.3·(n − 2) | (n − 1)/n | |
//! | | Bruck's exchange | ⌈log₂ n⌉ | ½·⌈log₂ n⌉, or less | |
//! | | two levels | those of two linear ones | (2n − k − N)/n | |
//!
//! D is 1 but for messages of many parts, or to several ranks, which are copied more. Those are for
//! frames that hold segments of a fair length of all their parts. By doubling prefixes all ranks
//! together add more than along a chain, so only arrays of up to 64 KiB are scanned so: where ranks
//! share cores, that counts. Everything else takes [`schedule::default_for`], and so do pipelines
//! that keep floats, but for broadcast and reduce.
//!
//! *Pairwise exchange.* Its messages wait for no other rank's, so but for the first each costs the
//! share β of α. A ring reduces partial sums where it sends single operands, which a lossy codec
//! makes shorter by the share σ; but it encodes each of them where a ring folds.
//!
//! *A broadcast or all-to-all by a lossy codec.* Each rank decodes once, and else passes on m/ρ
//! bytes: 1 + (u − 1)/ρ stands for u, links apart.
//!
//! *Bruck's exchange.* In its messages each part has a frame's alignment more or less, which counts
//! on links. A linear exchange sends everything at once.
//!
//! *Nodes.* Where it is known which ranks share one, long arrays take two levels: least bytes
//! between nodes, and all their ranks' links at once. Long are those that would take a ring, a
//! chain, a double tree or a pairwise exchange, and scatters and gathers without runs of parts,
//! where links take more than half as long as the work, and there are as many rounds as nodes; of
//! all-reduces, whatever the rates, all but those for recursive doubling. Of all-to-alls it is
//! short ones that do, since there two levels save messages, not bytes.
//!
//! *Runs of parts.* Along a binomial tree that packs short parts, ⌈log₂ n⌉ messages leave the root
//! of a scatter in place of n − 1, of which each costs it α at least, where the others overlap. But
//! what is packed waits until the last part of its run is encoded, and is copied where a run is
//! divided: about a pass over the array, or over the m/ρ bytes that a lossy codec makes of it. So
//! runs pay where that is less than α·C·(n − 1 − ⌈log₂ n⌉).

pub(crate) mod automatic;
mod model;
mod rows;
mod speeds;
#[cfg(feature = "alloc")]
pub(crate) mod trials;

pub use automatic::{Choice, ChoiceReason, CodecEstimate, plan};
pub use rows::{LinkFilter, SelectionRule, first_of};
#[cfg(feature = "alloc")]
pub use rows::{ParseRulesError, parse};
#[cfg(feature = "std")]
pub use rows::{VARIABLE, from_env};
pub use speeds::{ParseSpeedsError, Speeds};

use crate::bundle;
use crate::codec::{CodecId, Sizes};
use crate::frame::HEADER_BYTES;
use crate::layout::Layout;
use crate::op::OpCode;
use crate::plan::Plan;
use crate::schedule::{
    self, Chain, Collective, DoubleTree, Pairwise, ProgramSpec, RecursiveDoubling, Ring, Schedule,
    TwoLevels,
};
use model::{MESSAGE_COST, Model, RankSpeed, STEP_RATE, n_doublings, ratio};

/// What matters of a transport.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Network {
    /// Bytes per second of a rank's link, each way; `None`: unknown, or as fast as memory.
    pub link_rate: Option<f64>,
    /// Bytes that a frame holds.
    pub frame_bytes: usize,
}

/// The schedule that a call takes: the plan's own, else that of the first of the caller's `rows`
/// for it, else what the model says ([`schedule`](fn@schedule)). Every rank must ask with the same
/// arguments.
#[must_use]
pub fn chosen(
    rows: &[SelectionRule],
    call: ProgramSpec,
    op: OpCode,
    plan: &Plan,
    n_bytes: usize,
    network: Network,
) -> &'static dyn Schedule {
    let of_rows = || first_of(rows, call, n_bytes, network);
    let chosen = plan.schedule.or_else(of_rows);
    chosen.unwrap_or_else(|| schedule(call, op, plan, n_bytes, network))
}

/// The schedule for a call by `op` on an array of `n_bytes` by this plan, over a network. Every
/// rank must ask with the same arguments.
#[must_use]
pub fn schedule(
    call: ProgramSpec,
    op: OpCode,
    plan: &Plan,
    n_bytes: usize,
    network: Network,
) -> &'static dyn Schedule {
    if let Some(schedule) = plan.schedule {
        return schedule;
    }
    let collective = call.collective;
    let default = schedule::default_for(collective);
    // With floats, doubling would cost accuracy. Along none of the ways to broadcast or reduce more
    // errors add up than one for each rank.
    let reduction = if collective.reduces() { op } else { OpCode::Sum };
    let keeps_frames = plan.pipeline.keeps_frames(plan.codec, reduction);
    let is_tree = matches!(collective, Collective::Broadcast | Collective::Reduce);
    let pace = RankSpeed::of(plan.codec);
    let (codec, is_told, are_copies) = (plan.codec, false, false);
    let model = Model { call, n_bytes, codec, pace, network, is_told, are_copies };
    let soonest =
        if keeps_frames || is_tree { model.soonest().unwrap_or(default) } else { default };
    let is = |known: &dyn Schedule| schedule::code(soonest) == schedule::code(known);
    let is_long = match collective {
        Collective::AllReduce => !is(&RecursiveDoubling),
        _ if !model.is_bound_by_links() => false,
        Collective::Scatter | Collective::Gather => !runs_pay(plan.codec, call.size, n_bytes),
        _ => [&Ring as &dyn Schedule, &Chain, &DoubleTree, &Pairwise].into_iter().any(is),
    };
    if is_long && TwoLevels.supports(collective) && TwoLevels::has_levels(call) {
        return &TwoLevels;
    }
    soonest
}

/// Chunks of the shortest segments that parts are divided into so that several lanes have some
/// ([`Cut::shortest`](crate::layout::Cut::shortest)): few, so that ranks compute while frames are
/// on links; more where nothing is computed, and by codecs that learn from chunk to chunk, which
/// encode short segments worse. (All-reduces between 2 threads took 26 µs for 128 KiB at 10 Gbit/s
/// by fz-light in two segments of two chunks, 37 in one; and 300 µs for 256 KiB at 1 Gbit/s by
/// fz-nd in two of four chunks, 346 in four.)
#[must_use]
pub const fn shortest(codec: CodecId) -> usize {
    if codec.is_exact() || codec.takes_shape() { 4 } else { 2 }
}

/// Most parts that a message of a scatter or gather may carry ([`ProgramSpec::max_run`]), in frames of
/// `capacity` bytes: as many as are sure to fit together, if that is sooner. Parts that take
/// several rounds travel alone, and so do those of other collectives. Every rank must ask with the
/// same arguments.
pub fn max_run(call: ProgramSpec, codec: &Sizes, capacity: usize, layout: &Layout<'_>) -> u16 {
    if !matches!(call.collective, Collective::Scatter | Collective::Gather) {
        return 1;
    }
    let n_bytes = layout.count().saturating_mul(codec.bytes_per_value());
    let longest = layout.longest_short_part();
    let Some(longest) = longest.filter(|_| runs_pay(codec.id(), call.size, n_bytes)) else {
        return 1;
    };
    let Some(encoded) = codec.max_encoded_len(longest) else { return 1 };
    // Floats must fit as well.
    let n_bytes = encoded.max(longest * codec.bytes_per_value());
    let n_parts = bundle::max_parts(n_bytes, capacity.saturating_sub(HEADER_BYTES));
    u16::try_from(n_parts).unwrap_or(u16::MAX)
}

/// Whether messages should carry as many parts as fit, of an array of `n_bytes` over `size` ranks.
fn runs_pay(codec: CodecId, size: usize, n_bytes: usize) -> bool {
    let n_saved = size.saturating_sub(1 + n_doublings(size));
    (n_bytes as f64) < ratio(codec) * MESSAGE_COST * STEP_RATE * n_saved as f64
}

#[cfg(test)]
mod tests;
