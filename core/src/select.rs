//! Selection of the schedule if the caller leaves it open, and of the number of parts in a message.
//!
//! The caller's own rules ([`Config::select`](crate::Config::select)) come first, then the model.
//!
//! *The model.* Among the schedules that can do the call, the model selects the fastest. It uses
//! these quantities:
//!
//! | symbol | meaning |
//! |---|---|
//! | n, r | number of ranks, and of rounds in which a schedule moves its parts |
//! | α | seconds for a message, whatever its size |
//! | β | share of α that a message of a pairwise exchange costs (below) |
//! | k | number of messages one after the other |
//! | C | bytes per second that a rank both moves and reduces, where each takes half of the time |
//! | u, v | how many times a rank moves and reduces the m bytes of the array |
//! | R | rate of a link, if it has one |
//! | ρ | ratio of raw to wire bytes |
//! | σ | share of the wire bytes that a schedule saves (below) |
//! | D | factor for copies |
//!
//! A call then takes k·α + D·(u + v)·m/2C + (1 − σ)·u·m/(ρ·R) seconds. α grows with m/(ρ·R), the
//! time of the array on a link. The table has k, u and v:
//!
//! | collective | by | k | u | v |
//! |---|---|---|---|---|
//! | all-reduce | ring | 2(n − 1) | 2(n − 1)/n | (n − 1)/n |
//! | | circulant graph | 2⌈log₂ n⌉ | the same | the same |
//! | | pairwise exchange | 2(1 + β·(n − 2)) | the same | the same |
//! | | recursive doubling | log₂ n; else ⌊log₂ n⌋ + 2 | k | k |
//! | | double tree | twice a broadcast's | twice a broadcast's | half of u |
//! | reduce-scatter | those three | half of the all-reduce's | (n − 1)/n | (n − 1)/n |
//! | all-gather | those three | half of the all-reduce's | (n − 1)/n | |
//! | broadcast, reduce | binomial tree | ⌈log₂ n⌉ | k | k, reduce |
//! | | chain, r rounds | r + n − 2 | k/r | k/r, reduce |
//! | | double tree, r/2 rounds | r + 3⌈log₂ n⌉ − 2 | k/r | k/r, reduce |
//! | | two halves | 2⌈log₂ n⌉ | 2(n − 1)/n | (n − 1)/n, reduce |
//! | scan | chain, r rounds | r + n − 2 | k/r | k/r |
//! | | doubling prefixes | ⌈log₂ n⌉; exclusive ⌈log₂(n − 1)⌉ + 1 | k | k |
//! | all-to-all | linear | 1 + 0.3·(n − 2) | (n − 1)/n | |
//! | | Bruck's exchange | ⌈log₂ n⌉ | ½·⌈log₂ n⌉, or less | |
//! | | two levels | linear among N ranks, plus linear among p | (2n − p − N)/n | |
//!
//! "Those three" are the ring, the circulant graph and the pairwise exchange. "Two halves" are a
//! scatter and an all-gather, or a reduce-scatter and a gather. For the all-to-all by two levels, p
//! and N are the numbers of ranks in a node and of nodes.
//!
//! D is 1, except for schedules that send messages with many parts or the same data to several
//! ranks, which takes more copies. A schedule that sends messages with many parts is used only if a
//! frame can hold a segment of useful length of each part. With doubling prefixes all ranks
//! together add more than along a chain, which counts where ranks share cores. So they are used
//! only for arrays of up to 64 KiB. Collectives that the table leaves out use
//! [`schedule::default_for`]. So do pipelines that keep floats, except in a broadcast or reduce.
//!
//! *Pairwise exchange.* Its messages do not wait for other ranks' messages, so each message but the
//! first costs only the share β of α. It sends single operands, where a ring sends partial sums. A
//! lossy codec makes these operands shorter by the share σ. But a pairwise exchange encodes each
//! operand, where a ring folds.
//!
//! *Broadcast or all-to-all with a lossy codec.* Each rank decodes once and otherwise forwards m/ρ
//! bytes. So 1 + (u − 1)/ρ replaces u, except on links.
//!
//! *Bruck's exchange.* In its messages each part is padded to a frame's alignment, which counts on
//! links. A linear exchange sends each part in a message of its own, all at once.
//!
//! *Nodes.* If it is known which ranks share a node, long arrays use two levels. These send the
//! fewest bytes between nodes, over the links of all ranks of a node at once. Arrays count as long
//! in these cases:
//!
//! - A call that would otherwise use a ring, a chain, a double tree or a pairwise exchange, or a
//!   scatter or gather without runs of parts. Links must take more than half as long as the work,
//!   and there must be at least as many rounds as nodes.
//! - An all-reduce, whatever the rates, unless it would use recursive doubling.
//!
//! In an all-to-all, two levels save messages and not bytes. So short arrays use them there.
//!
//! *Runs of parts.* Along a binomial tree that packs short parts, ⌈log₂ n⌉ messages leave the root
//! of a scatter instead of n − 1. Each message that leaves the root costs at least α; messages of
//! other ranks overlap. But packed parts wait until the last part of their run is encoded, and are
//! copied where a run is divided. That takes about one pass at C bytes per second over the array,
//! or over the m/ρ bytes that a lossy codec makes of it. So runs pay if these bytes are fewer
//! than α·C·(n − 1 − ⌈log₂ n⌉).

pub(crate) mod automatic;
mod model;
mod rules;
mod speeds;
#[cfg(feature = "alloc")]
pub(crate) mod trials;

pub use automatic::{Choice, ChoiceReason, CodecEstimate, plan};
pub use rules::{LinkFilter, SelectionRule, first_of};
#[cfg(feature = "alloc")]
pub use rules::{ParseRulesError, parse};
#[cfg(feature = "std")]
pub use rules::{VARIABLE, from_env};
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

/// Properties of a transport that the choice depends on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Network {
    /// Bytes per second of a rank's link, in each direction; `None` if unknown or as fast as
    /// memory.
    pub link_rate: Option<f64>,
    /// Number of bytes in a frame.
    pub frame_bytes: usize,
}

/// Selects the schedule of a call: the plan's own, else the one of the caller's first matching
/// rule, else the model's ([`schedule`](fn@schedule)). Every rank must pass the same arguments.
#[must_use]
pub fn chosen(
    rules: &[SelectionRule],
    call: ProgramSpec,
    op: OpCode,
    plan: &Plan,
    n_bytes: usize,
    network: Network,
) -> &'static dyn Schedule {
    let of_rules = || first_of(rules, call, n_bytes, network);
    let chosen = plan.schedule.or_else(of_rules);
    chosen.unwrap_or_else(|| schedule(call, op, plan, n_bytes, network))
}

/// Selects the schedule of a call with `op` on an array of `n_bytes` by this plan, over a network.
/// Every rank must pass the same arguments.
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
    // In a pipeline that keeps floats, recursive doubling would add up more encoding errors than
    // the default. In all schedules of a broadcast or reduce, at most one error for each rank adds
    // up.
    let reduction = if collective.reduces() { op } else { OpCode::Sum };
    let keeps_frames = plan.pipeline.keeps_frames(plan.codec, reduction);
    let is_tree = matches!(collective, Collective::Broadcast | Collective::Reduce);
    let pace = RankSpeed::of(plan.codec);
    let (codec, is_configured, are_copies) = (plan.codec, false, false);
    let model = Model { call, n_bytes, codec, pace, network, is_configured, are_copies };
    let fastest =
        if keeps_frames || is_tree { model.fastest().unwrap_or(default) } else { default };
    let is = |known: &dyn Schedule| schedule::code(fastest) == schedule::code(known);
    let is_long = match collective {
        Collective::AllReduce => !is(&RecursiveDoubling),
        _ if !model.is_bound_by_links() => false,
        Collective::Scatter | Collective::Gather => !runs_pay(plan.codec, call.size, n_bytes),
        _ => [&Ring as &dyn Schedule, &Chain, &DoubleTree, &Pairwise].into_iter().any(is),
    };
    if is_long && TwoLevels.supports(collective) && TwoLevels::has_levels(call) {
        return &TwoLevels;
    }
    fastest
}

/// Number of chunks in the shortest segments that parts are divided into to give several lanes work
/// ([`Cut::shortest`](crate::layout::Cut::shortest)). The number is small, so that ranks compute
/// while frames are on links. It is larger if nothing is computed, and for codecs that learn from
/// chunk to chunk, because these encode short segments worse. Between 2 threads, all-reduces of 128
/// KiB at 10 Gbit/s with fz-light took 26 µs in two segments of two chunks, 37 µs in one segment.
/// All-reduces of 256 KiB at 1 Gbit/s with fz-nd took 300 µs in two segments of four chunks, 346 µs
/// in four.
#[must_use]
pub const fn shortest(codec: CodecId) -> usize {
    if codec.is_exact() || codec.takes_shape() { 4 } else { 2 }
}

/// The call with the properties of its messages: how many parts each may carry in frames of
/// `capacity` bytes, and whether the root of a scatter encodes first. Every rank must pass the same
/// arguments.
///
/// A plan [without overlap](Plan::without_overlap) packs as many parts as fit, as published systems
/// do. If it compresses once, the root of its scatter also encodes all parts before the first one
/// leaves (ZCCL, gZCCL). Plans that compress in each message encode what they send.
#[must_use]
pub fn with_runs(
    call: ProgramSpec,
    schedule: &dyn Schedule,
    plan: &Plan,
    codec: &Sizes,
    layout: &Layout<'_>,
    capacity: usize,
) -> ProgramSpec {
    let max_run = max_run(call, plan, codec, capacity, layout);
    let recodes = plan.pipeline.recodes(codec.id(), OpCode::None);
    // A broadcast that begins with a scatter does so in frames that need not hold all parts.
    let is_scatter = matches!(call.collective, Collective::Scatter);
    let encodes_first = is_scatter && !plan.overlaps() && !codec.id().is_free() && !recodes;
    // The schedule may need more parts in a message than `max_run`.
    let call = call.with_runs(max_run).with_runs_of(schedule);
    if encodes_first { call.encoding_first() } else { call }
}

/// Maximum number of parts in a message of a scatter or gather ([`ProgramSpec::max_run`]), in
/// frames of `capacity` bytes. It is 1 unless packing is faster, or the plan packs always. Parts
/// that take several rounds fill their frames, so they travel alone. So do parts of other
/// collectives.
///
/// That many parts fit a frame even if each has its maximum encoded size, because an encoder does
/// not know sizes in advance, and joined messages must fit as well. All ranks compute the same
/// number from count, codec and frame capacity. So no header contains it, and schedules stay pure.
fn max_run(
    call: ProgramSpec,
    plan: &Plan,
    codec: &Sizes,
    capacity: usize,
    layout: &Layout<'_>,
) -> u16 {
    if !matches!(call.collective, Collective::Scatter | Collective::Gather) {
        return 1;
    }
    let n_bytes = layout.count().saturating_mul(codec.bytes_per_value());
    let packs = !plan.overlaps() || runs_pay(codec.id(), call.size, n_bytes);
    let Some(longest) = layout.longest_short_part().filter(|_| packs) else { return 1 };
    let Some(encoded) = codec.max_encoded_len(longest) else { return 1 };
    // The values must fit uncompressed as well.
    let n_bytes = encoded.max(longest * codec.bytes_per_value());
    let n_parts = bundle::max_parts(n_bytes, capacity.saturating_sub(HEADER_BYTES));
    u16::try_from(n_parts).unwrap_or(u16::MAX)
}

/// Returns whether messages of a scatter or gather should carry as many parts as fit, for an array
/// of `n_bytes` over `size` ranks.
fn runs_pay(codec: CodecId, size: usize, n_bytes: usize) -> bool {
    let n_saved = size.saturating_sub(1 + n_doublings(size));
    (n_bytes as f64) < ratio(codec) * MESSAGE_COST * STEP_RATE * n_saved as f64
}

#[cfg(test)]
mod tests;
