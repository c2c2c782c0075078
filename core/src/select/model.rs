//! The cost model: the work of each schedule, and the time that it takes.
//!
//! The documentation of [`select`](super) has the formula and its table.
//!
//! *Not implemented: measured latency.* The cost of a message is a constant here, although it
//! differs between transports. The number of lanes does not depend on latency either
//! ([`Config::lanes`](crate::Config::lanes)). Measurements of links (`collective/probe.rs`) cancel
//! the cost of messages. They could report it, and all ranks would have to agree on it.

use super::Network;
use crate::bundle;
use crate::codec::CodecId;
use crate::frame::HEADER_BYTES;
use crate::schedule::{
    self, Binomial, Bruck, Chain, Circulant, Collective, DoubleTree, Linear, Pairwise,
    PrefixDoubling, ProgramSpec, RecursiveDoubling, ReduceScatterGather, Ring, ScatterAllGather,
    Schedule, TwoLevels,
};
use crate::transport::FRAME_ALIGN;
use heapless::Vec;

/// Seconds for a message, whatever its size. The value suits MPI on a fast fabric, and the work
/// that a message costs threads.
pub(super) const MESSAGE_COST: f64 = 5e-6;
/// Additional cost of a message for each second that the array is on a link. Ranks sleep while they
/// wait for links, and wake up late.
const LATE_SHARE: f64 = 1.0 / 60.0;
/// Maximum additional cost of a message by [`LATE_SHARE`], in seconds.
const MAX_LATENESS: f64 = 10e-6;
/// Share of a message's cost that is the rank's own work (β in [`select`](super)). A message costs
/// only this share if it does not wait for another rank's message. The first value is for arrays
/// that are on a link for more than [`SLOW_SECONDS`], the second for all others. Between 8 threads,
/// a pairwise exchange of up to 256 KiB was faster than a circulant graph or a ring over links of 1
/// and 10 Gbit/s. It was slower if links had no rate limit.
const OWN_WORK_SLOW: f64 = 0.15;
const OWN_WORK: f64 = 0.5;
const SLOW_SECONDS: f64 = 20e-6;
/// The same share for a linear all-to-all, which sends everything before it receives. It took as
/// long as Bruck's exchange for 16 KiB between 16 threads, and twice as long for 4 KiB between 32
/// threads. Over a fabric it is predicted to take 1.8 times as long between 16 ranks.
const OWN_WORK_LINEAR: f64 = 0.3;
/// Bytes per second that a rank moves and reduces. The codec is included, and so are cores shared
/// with other ranks.
pub(super) const STEP_RATE: f64 = 1e9;
/// Share of an all-reduce's wire bytes that a pairwise exchange saves with a lossy codec (σ in
/// [`select`](super)). It sends single operands, which a codec makes shorter than partial sums. The
/// share depends on the data: 15 % on the wave fields of `foldwire stack` between 8 ranks, 7 % on
/// temperatures between 4, and nothing or less where noise dominates. The value is small, so that
/// little is lost if nothing is saved.
const SAVED: f64 = 0.03;
/// Number of bytes that a part moves in one round: the default size of a backend's frames.
const ROUND_BYTES: usize = 256 << 10;
/// Maximum number of rounds into which a part is cut if it is shorter than this many rounds of
/// [`ROUND_BYTES`]: one for each default lane of a communicator. No round is shorter than
/// [`Model::shortest_segment`].
const MAX_SHORT_ROUNDS: usize = 4;
/// Bytes of a chunk of 4096 `f32` values.
const CHUNK_BYTES: usize = 16 << 10;
/// Raw bytes per wire byte.
const RATIO: f64 = 5.0;

/// Factor by which a circulant graph or a pairwise exchange takes longer than a ring to move and
/// reduce the same bytes (D in [`select`](super)). A circulant graph copies bundles, and a pairwise
/// exchange encodes every operand. Between 8 threads on 2 cores the factor was 1.2 to 1.6 from 256
/// KiB on, where the rounds of a ring overlap. With this value, the model prefers the ring from the
/// size at which the ring was measured to be faster.
const COPY_FACTOR: f64 = 1.2;
/// The same factor for a broadcast in two halves: a scatter and an all-gather. A tree only forwards
/// frames. Between 8 threads the tree was faster at every size.
const HALVES_FACTOR: f64 = 2.0;
/// The same factor for a reduce in two halves: a reduce-scatter and a gather.
const REDUCE_HALVES_FACTOR: f64 = 3.0;
/// The same factor for a double tree, whose ranks copy the data that they send to two ranks.
/// Prediction for 64 MiB between 64 ranks, if links take no time: 25 ms along a double tree, 21 ms
/// along a chain.
const TREES_FACTOR: f64 = 1.4;
/// The same factors for a broadcast with a lossy codec, along a double tree, along a chain and in
/// two halves. A double tree copies only short frames, while the ranks of a chain wait for each
/// other. Double tree and chain took 2.7 and 3.2 ms for 4 MiB between 8 threads. The prediction
/// with a core for each thread is 0.99 and 1.15 ms, and for 64 MiB between 64 ranks 15.9 and 20.8
/// ms. For 256 KiB over links of 1 Gbit/s, a double tree took 0.68 ms and the two halves 0.85 ms.
const LOSSY_TREES_FACTOR: f64 = 1.1;
const LOSSY_CHAIN_FACTOR: f64 = 1.15;
const LOSSY_HALVES_FACTOR: f64 = 3.2;
/// Longest array for which a scan may use prefix doubling. With 8 threads on 2 cores, prefix
/// doubling took 209 µs for 64 KiB and 747 µs for 256 KiB, and a chain 232 and 449 µs.
const LONGEST_DOUBLED: usize = 64 << 10;
/// Minimum bytes for each segment of a message with several parts, if the codec is lossy. A part
/// that is shorter needs less. In shorter segments of longer parts, headers take a large share.
const MIN_SEGMENT: usize = 512;
/// Maximum bytes of a lossy codec's segment beyond its values.
const MAX_OVERHEAD: usize = 256;
/// Share of the array that the root of a tree encodes while other ranks wait for it. Between 2
/// threads without a rate limit, a broadcast of 256 MiB took as long as decoding the array and
/// encoding 0.8 of it with fz-light, or 0.7 with fz-nd.
const ENCODED_FIRST: f64 = 0.75;
/// Work and links overlap, but at least this share of the shorter time does not overlap the longer
/// one. With this share, the expected times of arrays of 4 MiB and more between 2 threads at 1
/// Gbit/s were 0.8 to 1.12 times the measured times with fz-light, fz-nd and dense.
const NOT_OVERLAPPED: f64 = 0.1;
/// The same share if the machine's speeds are not configured, because the machine may be busy.
const NOT_OVERLAPPED_DEFAULT: f64 = 0.25;

/// Cost of a schedule, as the model sees it.
struct ScheduleCost {
    schedule: &'static dyn Schedule,
    /// Number of consecutive messages that would cost as much as the schedule's messages (k in
    /// [`select`](super)).
    n_messages: f64,
    /// Number of times that a rank moves the array (u).
    moved: f64,
    /// Number of times that a rank reduces the array (v).
    reduced: f64,
    /// Factor by which moving and reducing takes longer than along a ring, apart from links (D).
    work_factor: f64,
    /// Share of the bytes on links that the schedule saves with a lossy codec (σ).
    saved: f64,
    /// Bytes on links in addition to those of the array.
    padding: f64,
}

impl ScheduleCost {
    fn new(schedule: &'static dyn Schedule, n_messages: usize, moved: f64, reduced: f64) -> Self {
        let n_messages = n_messages as f64;
        Self { schedule, n_messages, moved, reduced, work_factor: 1.0, saved: 0.0, padding: 0.0 }
    }
}

/// Speed of ranks with a codec, and length of their messages.
#[derive(Clone, Copy)]
pub(super) struct RankSpeed {
    /// Bytes per second moved and reduced.
    pub(super) step_rate: f64,
    /// Raw bytes per wire byte.
    pub(super) ratio: f64,
    /// Seconds for a message, whatever its size.
    pub(super) message: f64,
    /// Bytes of a message in addition to its values.
    pub(super) overhead: f64,
    /// Length in bytes of the shortest array for which this codec is considered.
    pub(super) from: usize,
}

impl RankSpeed {
    /// Default speed of all calls with this codec.
    pub(super) const fn of(codec: CodecId) -> Self {
        let ratio = ratio(codec);
        Self { step_rate: STEP_RATE, ratio, message: MESSAGE_COST, overhead: 0.0, from: 0 }
    }
}

/// A call and the conditions under which it runs.
pub(super) struct Model {
    pub(super) call: ProgramSpec,
    pub(super) n_bytes: usize,
    pub(super) codec: CodecId,
    pub(super) pace: RankSpeed,
    pub(super) network: Network,
    /// True if this machine's speeds are configured.
    pub(super) is_configured: bool,
    /// True if links are copies that the ranks' own cores make. A core that copies does nothing
    /// else.
    pub(super) are_copies: bool,
}

impl Model {
    /// Fastest schedule; the first of several equal ones.
    pub(super) fn fastest(&self) -> Option<&'static dyn Schedule> {
        let costs = self.costs();
        let possible = costs.iter().filter(|cost| self.fits_frames(cost.schedule));
        let timed = possible.map(|cost| (cost.schedule, self.seconds(cost)));
        timed.reduce(|best, next| if next.1 < best.1 { next } else { best }).map(|best| best.0)
    }

    /// Seconds of the call with this schedule. Unlike [`fastest`](Self::fastest), it counts the
    /// encoding that other ranks wait for, and lets work and links overlap. For a schedule that the
    /// model does not know, returns the seconds of the fastest one that it knows.
    pub(super) fn least_seconds(&self, schedule: &dyn Schedule) -> f64 {
        let costs = self.costs();
        let is_same =
            |cost: &&ScheduleCost| schedule::code(schedule) == schedule::code(cost.schedule);
        let seconds = |cost| self.overlapped_seconds(cost);
        let of_schedule = costs.iter().filter(is_same).map(seconds).reduce(f64::min);
        let possible = costs.iter().filter(|cost| self.fits_frames(cost.schedule));
        of_schedule.or_else(|| possible.map(seconds).reduce(f64::min)).unwrap_or_else(|| {
            // Scatter or gather: all parts but one cross the root's link, one message for each.
            let n = self.call.size;
            let default = schedule::default_for(self.call.collective);
            self.overlapped_seconds(&ScheduleCost::new(
                default,
                n - 1,
                (n - 1) as f64 / n as f64,
                0.0,
            ))
        })
    }

    /// Bytes of the shortest segments into which parts are cut, so that several lanes have work.
    const fn shortest_segment(&self) -> usize {
        super::shortest(self.codec) * CHUNK_BYTES
    }

    /// Seconds that a link takes for the whole array; 0 without a rate limit.
    fn array_link_seconds(&self) -> f64 {
        self.network.link_rate.map_or(0.0, |rate| self.n_bytes as f64 / (self.pace.ratio * rate))
    }

    /// Returns whether links take more than half as long as moving and reducing the array, and
    /// there are at least as many rounds as nodes. Rounds then follow each other from node to node.
    pub(super) fn is_bound_by_links(&self) -> bool {
        let n_nodes = self.call.size / self.call.ranks_per_node.max(1);
        self.array_link_seconds() > self.n_bytes as f64 / (2.0 * self.pace.step_rate)
            && n_nodes <= self.n_bytes.div_ceil(ROUND_BYTES)
    }

    /// Costs of the schedules that the model knows for this collective.
    fn costs(&self) -> Vec<ScheduleCost, 5> {
        let n = self.call.size.max(1);
        let doublings = n_doublings(n);
        // Share of the array that belongs to the other ranks.
        let others = (n - 1) as f64 / n as f64;
        // Along a chain, rounds follow each other.
        let n_rounds = self.n_bytes.div_ceil(ROUND_BYTES).max(1);
        let n_hops = (n_rounds + n).saturating_sub(2);
        let by_chain = n_hops as f64 / n_rounds as f64;
        // Length of the path down or up both trees, in messages. Each tree moves half of the array.
        // A round has a message for each tree.
        let half = self.n_bytes / 2;
        let n_pairs = half
            .div_ceil(ROUND_BYTES)
            .max((half / self.shortest_segment()).min(MAX_SHORT_ROUNDS))
            .max(1);
        let n_levels = 2 * n_pairs + (3 * doublings).saturating_sub(2);
        let by_trees = n_levels as f64 / (2 * n_pairs) as f64;
        let trees = |n_messages, moved, reduced| ScheduleCost {
            work_factor: TREES_FACTOR,
            ..ScheduleCost::new(&DoubleTree, n_messages, moved, reduced)
        };
        let circulant = |n_halves: usize, moved, reduced| ScheduleCost {
            work_factor: COPY_FACTOR,
            ..ScheduleCost::new(&Circulant, n_halves * doublings, moved, reduced)
        };
        let own_work =
            if self.array_link_seconds() > SLOW_SECONDS { OWN_WORK_SLOW } else { OWN_WORK };
        let n_exchanged = 1.0 + own_work * n.saturating_sub(2) as f64;
        let pairwise = |n_halves: f64, saved, moved, reduced| ScheduleCost {
            n_messages: n_halves * n_exchanged,
            work_factor: COPY_FACTOR,
            saved,
            ..ScheduleCost::new(&Pairwise, 0, moved, reduced)
        };
        let is_exact = self.codec.is_exact();
        let mut costs = Vec::new();
        let mut add = |cost: ScheduleCost| {
            let added = costs.push(cost);
            debug_assert!(added.is_ok(), "there is room for all costs");
        };
        match self.call.collective {
            Collective::AllReduce => {
                let rounds = n.ilog2() as usize + if n.is_power_of_two() { 0 } else { 2 };
                add(ScheduleCost::new(&Ring, 2 * (n - 1), 2.0 * others, others));
                add(circulant(2, 2.0 * others, others));
                add(ScheduleCost::new(&RecursiveDoubling, rounds, rounds as f64, rounds as f64));
                add(trees(2 * n_levels, 2.0 * by_trees, by_trees));
                add(pairwise(2.0, SAVED, 2.0 * others, others));
            }
            Collective::ReduceScatter => {
                add(ScheduleCost::new(&Ring, n - 1, others, others));
                add(circulant(1, others, others));
                add(pairwise(1.0, 2.0 * SAVED, others, others));
            }
            Collective::AllGather => {
                add(ScheduleCost::new(&Ring, n - 1, others, 0.0));
                add(circulant(1, others, 0.0));
                add(pairwise(1.0, 0.0, others, 0.0));
            }
            Collective::Broadcast => {
                let [chain_factor, trees_factor, halves_factor] = match is_exact {
                    true => [1.0, TREES_FACTOR, HALVES_FACTOR],
                    false => [LOSSY_CHAIN_FACTOR, LOSSY_TREES_FACTOR, LOSSY_HALVES_FACTOR],
                };
                let chain = ScheduleCost::new(&Chain, n_hops, by_chain, 0.0);
                add(ScheduleCost::new(&Binomial, doublings, doublings as f64, 0.0));
                add(ScheduleCost { work_factor: chain_factor, ..chain });
                add(ScheduleCost { work_factor: trees_factor, ..trees(n_levels, by_trees, 0.0) });
                let halves = ScheduleCost::new(&ScatterAllGather, 2 * doublings, 2.0 * others, 0.0);
                add(ScheduleCost { work_factor: halves_factor, ..halves });
            }
            Collective::Reduce => {
                add(ScheduleCost::new(&Binomial, doublings, doublings as f64, doublings as f64));
                add(ScheduleCost::new(&Chain, n_hops, by_chain, by_chain));
                add(trees(n_levels, by_trees, by_trees));
                let halves =
                    ScheduleCost::new(&ReduceScatterGather, 2 * doublings, 2.0 * others, others);
                add(ScheduleCost { work_factor: REDUCE_HALVES_FACTOR, ..halves });
            }
            Collective::Scan | Collective::ExclusiveScan => {
                add(ScheduleCost::new(&Chain, n_hops, by_chain, by_chain));
                let is_exclusive = self.call.collective == Collective::ExclusiveScan;
                let rounds = if is_exclusive { n_doublings((n - 1).max(1)) + 1 } else { doublings };
                if self.n_bytes <= LONGEST_DOUBLED {
                    add(ScheduleCost::new(&PrefixDoubling, rounds, rounds as f64, rounds as f64));
                }
            }
            Collective::AllToAll => {
                // Cost in messages of an exchange in which `n` ranks send everything at once.
                let at_once = |n: usize| {
                    (1.0 + OWN_WORK_LINEAR * n.saturating_sub(2) as f64).min((n - 1) as f64)
                };
                let cost = |schedule, n_messages, n_passed: usize, n_padded: usize| ScheduleCost {
                    n_messages,
                    padding: (n_padded * self.padding_of_part()) as f64,
                    ..ScheduleCost::new(schedule, 0, n_passed as f64 / n as f64, 0.0)
                };
                add(cost(&Linear, at_once(n), n - 1, 0));
                let n_passed = Bruck::n_passed(n);
                let bruck = cost(&Bruck, doublings as f64, n_passed, n_passed);
                add(ScheduleCost { work_factor: COPY_FACTOR, ..bruck });
                if TwoLevels::has_levels(self.call) {
                    let k = self.call.ranks_per_node;
                    let n_messages = at_once(n / k) + at_once(k);
                    let levels = cost(&TwoLevels, n_messages, 2 * n - k - n / k, n - k);
                    add(ScheduleCost { work_factor: COPY_FACTOR, ..levels });
                }
            }
            Collective::Scatter | Collective::Gather => {}
        }
        costs
    }

    /// Bytes that a part of an all-to-all takes in a bundle in addition to its values.
    fn padding_of_part(&self) -> usize {
        let part = self.n_bytes.div_ceil(self.call.size.max(1));
        let is_exact = self.codec.is_exact();
        if is_exact { part.next_multiple_of(FRAME_ALIGN) - part } else { 2 * FRAME_ALIGN }
    }

    /// Seconds of a schedule, counting only costs in which schedules differ.
    fn seconds(&self, cost: &ScheduleCost) -> f64 {
        self.message_seconds(cost)
            + self.work_seconds(cost, self.n_processed(cost))
            + self.link_seconds(cost)
    }

    /// Seconds of a schedule whose ranks work on some rounds while other rounds are on links.
    fn overlapped_seconds(&self, cost: &ScheduleCost) -> f64 {
        let n = self.call.size.max(1);
        let (encoded, n_parts) = match self.call.collective {
            Collective::AllReduce | Collective::ReduceScatter | Collective::AllGather => {
                (1.0 / n as f64, n)
            }
            Collective::AllToAll => (cost.moved, n),
            _ => (ENCODED_FIRST, 1),
        };
        let part = self.n_bytes / n_parts;
        let n_rounds =
            (part / self.shortest_segment()).clamp(1, MAX_SHORT_ROUNDS).max(part / ROUND_BYTES);
        // An all-reduce moves each part twice: to reduce it, and to distribute the result. A single
        // round overlaps nothing.
        let moves_twice = self.call.collective == Collective::AllReduce && n_rounds > 1;
        let n_times = if moves_twice { 2 } else { 1 };
        let least = if self.is_configured { NOT_OVERLAPPED } else { NOT_OVERLAPPED_DEFAULT };
        let alone = least.max(1.0 / (n_times * n_rounds) as f64);
        let work = self.work_seconds(cost, self.n_processed(cost) + encoded);
        let links = self.link_seconds(cost);
        if self.are_copies {
            return self.message_seconds(cost) + work + self.copied_share(n_rounds) * links;
        }
        self.message_seconds(cost) + work.max(links) + alone * work.min(links)
    }

    /// Share of a link's time that one rank spends on copies. In a broadcast or reduce, the sender
    /// makes half of the copies and the receiver the other half. They copy at the same time, except
    /// in one round.
    fn copied_share(&self, n_rounds: usize) -> f64 {
        match self.call.collective {
            Collective::Broadcast | Collective::Reduce => 0.5 + 0.5 / n_rounds as f64,
            _ => 1.0,
        }
    }

    /// Seconds that messages cost, whatever their sizes.
    fn message_seconds(&self, cost: &ScheduleCost) -> f64 {
        let lateness = (LATE_SHARE * self.array_link_seconds()).min(MAX_LATENESS);
        cost.n_messages * (self.pace.message + lateness)
    }

    /// Number of times that a rank processes the array. If values are only passed on, a rank
    /// decodes the array once and forwards compressed bytes after that.
    fn n_processed(&self, cost: &ScheduleCost) -> f64 {
        let is_passed_on =
            matches!(self.call.collective, Collective::Broadcast | Collective::AllToAll);
        let decoded = if is_passed_on { cost.moved.min(1.0) } else { cost.moved };
        decoded + (cost.moved - decoded) / self.pace.ratio + cost.reduced
    }

    /// Seconds in which a rank processes the array this many times.
    fn work_seconds(&self, cost: &ScheduleCost, n_processed: f64) -> f64 {
        cost.work_factor * n_processed * self.n_bytes as f64 / (2.0 * self.pace.step_rate)
    }

    /// Seconds that the schedule's bytes are on a link.
    fn link_seconds(&self, cost: &ScheduleCost) -> f64 {
        let saved = if self.codec.is_exact() { 0.0 } else { cost.saved };
        let padding = cost.padding + cost.n_messages * self.pace.overhead;
        let padding = self.network.link_rate.map_or(0.0, |rate| padding / rate);
        (1.0 - saved) * cost.moved * self.array_link_seconds() + padding
    }

    /// Returns whether a frame can hold all parts of the schedule's longest message, each as a
    /// whole or in a segment that is not too short ([`MIN_SEGMENT`]).
    fn fits_frames(&self, schedule: &dyn Schedule) -> bool {
        let n_together = schedule.min_run(self.call);
        let room = self.network.frame_bytes.saturating_sub(HEADER_BYTES);
        let is_all_to_all = self.call.collective == Collective::AllToAll;
        let n_parts = if is_all_to_all { self.call.size } else { schedule.n_parts(self.call) };
        let part = self.n_bytes.div_ceil(n_parts.max(1));
        let is_exact = self.codec.is_exact();
        let least = if is_exact { FRAME_ALIGN } else { (part + MAX_OVERHEAD).min(MIN_SEGMENT) };
        n_together == 1 || bundle::max_segment_bytes(n_together, room) >= least
    }
}

/// Raw bytes per wire byte.
pub(super) const fn ratio(codec: CodecId) -> f64 {
    if codec.is_exact() { 1.0 } else { RATIO }
}

/// ⌈log₂ n⌉ for n ≥ 1.
pub(super) const fn n_doublings(size: usize) -> usize {
    size.next_power_of_two().ilog2() as usize
}
