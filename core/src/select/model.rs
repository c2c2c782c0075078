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

/// Seconds for a message, whatever its size: with MPI on a fast fabric, or for the work of threads.
pub(super) const MESSAGE_COST: f64 = 5e-6;
/// Share of an array's time on the links that a message costs more: ranks sleep in that time, and
/// wake up late.
const LATENESS: f64 = 1.0 / 60.0;
/// Maximum of that additional cost, in seconds.
const LATEST: f64 = 10e-6;
/// Share of a message's cost if the message waits for no other rank's, that is, the rank's own work
/// for it. The first value is for arrays that are on the links for more than [`SLOW`] seconds, the
/// second for other arrays. Between 8 threads a pairwise exchange of up to 256 KiB was faster than
/// a circulant graph or a ring over links of 1 and 10 Gbit/s. It was slower without links and where
/// links take no time.
const SLOW_SIDE_BY_SIDE: f64 = 0.15;
const SIDE_BY_SIDE: f64 = 0.5;
const SLOW: f64 = 20e-6;
/// The same share for an all-to-all that sends everything before it receives. Between 16 threads it
/// took as long as Bruck's exchange for 16 KiB, between 32 threads twice as long for 4 KiB. Over a
/// fabric the prediction is 1.8 times as long between 16 ranks.
const AT_ONCE: f64 = 0.3;
/// Bytes per second that a rank moves and reduces. The codec is included, and so are cores shared
/// with other ranks.
pub(super) const STEP_RATE: f64 = 1e9;
/// Share of a whole all-reduce's wire bytes that single operands save compared with partial sums.
/// It depends on the data: 15 % on the wave fields of `foldwire stack` between 8 ranks, 7 % on
/// temperatures between 4, and nothing or less where noise dominates. The value is small, so that
/// little is lost if nothing is saved.
const SAVED: f64 = 0.03;
/// Bytes of the array in a round of one part: the size of a backend's frames.
const ROUND: usize = 256 << 10;
/// Maximum number of rounds of shorter arrays: one for each default lane of a communicator. No
/// round is shorter than the shortest segment.
const LANES: usize = 4;
/// Bytes of a chunk in the shortest segment.
const CHUNK_BYTES: usize = 16 << 10;
/// Raw bytes per wire byte.
const RATIO: f64 = 5.0;

/// Factor by which a circulant graph or a pairwise exchange works longer than a ring that moves the
/// same bytes, apart from the cost of messages. Bundles are copied, and single operands are
/// encoded. Between 8 threads on 2 cores it was 1.2 to 1.6 from 256 KiB on, where the rounds of a
/// ring overlap. This value finds the size from which a ring is faster.
const DETOUR: f64 = 1.2;
/// The same factor for a broadcast in two halves, relative to half the work of moving and reducing
/// for each: a tree only forwards frames. Between 8 threads the tree was faster at every size.
const HALVES: f64 = 2.0;
/// The same factor for a reduce in two halves.
const REDUCED_HALVES: f64 = 3.0;
/// The same factor for a double tree, whose ranks copy the data that they send to two ranks.
/// Predicted for 64 MiB between 64 ranks: 25 ms if links take no time, 21 ms along a chain.
const TREES: f64 = 1.4;
/// The same factors for a broadcast with a lossy codec, along a double tree, along a chain and in
/// two halves. The frames to copy are short, but a chain's ranks wait for each other. For 4 MiB
/// between 8 threads: double tree 2.7 ms, chain 3.2 ms; predicted with a core for each, 0.99 and
/// 1.15 ms. Predicted for 64 MiB between 64 ranks: 15.9 and 20.8 ms. For 256 KiB over links of 1
/// Gbit/s: double tree 0.68 ms, halves 0.85 ms.
const COMPRESSED_TREES: f64 = 1.1;
const COMPRESSED_CHAIN: f64 = 1.15;
const COMPRESSED_HALVES: f64 = 3.2;
/// Longest array that is scanned by doubling. 8 threads on 2 cores took 209 µs for 64 KiB and 747
/// µs for 256 KiB; along a chain 232 and 449 µs.
const LONGEST_DOUBLED: usize = 64 << 10;
/// Minimum space for a lossy codec's segment in a circulant graph, unless parts are shorter. In
/// shorter segments headers count.
const MIN_SEGMENT: usize = 512;
/// Maximum bytes of a lossy codec's segment beyond its values.
const MAX_OVERHEAD: usize = 256;
/// Share of the array that the root of a tree encodes while other ranks wait for it. Between 2
/// threads without links, a broadcast of 256 MiB took the time to decode the array and to encode
/// 0.8 of it with fz-light, 0.7 with fz-nd.
const ENCODED_FIRST: f64 = 0.75;
/// Minimum share of the shorter of work and link time that does not overlap the longer one. With
/// it, the expected times of arrays of 4 MiB and more between 2 threads at 1 Gbit/s were 0.8 to
/// 1.12 times the measured times with fz-light, fz-nd and dense.
const ALONE: f64 = 0.1;
/// The same share if the machine's speeds are not configured, because the machine may be busy.
const ALONE_UNTOLD: f64 = 0.25;

/// Cost of a schedule, as the model sees it.
struct ScheduleCost {
    schedule: &'static dyn Schedule,
    /// Number of messages one after the other, or the number that costs as much.
    n_messages: f64,
    /// Number of times that a rank moves the array.
    moved: f64,
    /// Number of times that a rank reduces the array.
    reduced: f64,
    /// Factor by which that takes longer than elsewhere, apart from links.
    detour: f64,
    /// Share of the bytes on links that the schedule saves with a lossy codec.
    saved: f64,
    /// Bytes on links in addition to those of the array.
    padding: f64,
}

impl ScheduleCost {
    fn new(schedule: &'static dyn Schedule, n_messages: usize, moved: f64, reduced: f64) -> Self {
        let n_messages = n_messages as f64;
        Self { schedule, n_messages, moved, reduced, detour: 1.0, saved: 0.0, padding: 0.0 }
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
    /// Bytes of a message beside its values.
    pub(super) overhead: f64,
    /// Minimum bytes of an array for this codec.
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
    pub(super) is_told: bool,
    /// True if links are copies that the ranks' own cores make. A core that copies does nothing
    /// else.
    pub(super) are_copies: bool,
}

impl Model {
    /// Fastest schedule; the first of several equal ones.
    pub(super) fn soonest(&self) -> Option<&'static dyn Schedule> {
        let offers = self.offers();
        let possible = offers.iter().filter(|offer| self.has_room(offer.schedule));
        let timed = possible.map(|offer| (offer.schedule, self.seconds(offer)));
        timed.reduce(|best, next| if next.1 < best.1 { next } else { best }).map(|best| best.0)
    }

    /// Seconds of the call with this schedule, with first encoding and overlap taken into account.
    /// For a schedule that the model does not know, the seconds of the fastest one.
    pub(super) fn least_seconds(&self, schedule: &dyn Schedule) -> f64 {
        let offers = self.offers();
        let is_asked =
            |offer: &&ScheduleCost| schedule::code(schedule) == schedule::code(offer.schedule);
        let seconds = |offer| self.overlapped(offer);
        let of_asked = offers.iter().filter(is_asked).map(seconds).reduce(f64::min);
        let possible = offers.iter().filter(|offer| self.has_room(offer.schedule));
        of_asked.or_else(|| possible.map(seconds).reduce(f64::min)).unwrap_or_else(|| {
            // The whole array except a part crosses one link, in as many messages as there are
            // other parts.
            let n = self.call.size;
            let default = schedule::default_for(self.call.collective);
            self.overlapped(&ScheduleCost::new(default, n - 1, (n - 1) as f64 / n as f64, 0.0))
        })
    }

    /// Bytes of the shortest segments that parts are cut into to give several lanes work.
    const fn shortest(&self) -> usize {
        super::shortest(self.codec) * CHUNK_BYTES
    }

    /// Seconds that the array is on a link.
    fn on_link(&self) -> f64 {
        self.network.link_rate.map_or(0.0, |rate| self.n_bytes as f64 / (self.pace.ratio * rate))
    }

    /// Returns whether links take most of the time, and nodes are few enough for rounds to follow
    /// each other from node to node.
    pub(super) fn is_bound_by_links(&self) -> bool {
        let n_nodes = self.call.size / self.call.ranks_per_node.max(1);
        self.on_link() > self.n_bytes as f64 / (2.0 * self.pace.step_rate)
            && n_nodes <= self.n_bytes.div_ceil(ROUND)
    }

    fn offers(&self) -> Vec<ScheduleCost, 5> {
        let n = self.call.size.max(1);
        let doublings = n_doublings(n);
        // Share of the array that is not the rank's own part.
        let others = (n - 1) as f64 / n as f64;
        // Along a chain, rounds follow each other.
        let n_rounds = self.n_bytes.div_ceil(ROUND).max(1);
        let n_hops = (n_rounds + n).saturating_sub(2);
        let by_chain = n_hops as f64 / n_rounds as f64;
        // Down or up the trees, in rounds of two messages, on all lanes.
        let half = self.n_bytes / 2;
        let n_pairs = half.div_ceil(ROUND).max((half / self.shortest()).min(LANES)).max(1);
        let n_levels = 2 * n_pairs + (3 * doublings).saturating_sub(2);
        let by_trees = n_levels as f64 / (2 * n_pairs) as f64;
        let trees = |n_messages, moved, reduced| ScheduleCost {
            detour: TREES,
            ..ScheduleCost::new(&DoubleTree, n_messages, moved, reduced)
        };
        let circulant = |n_halves: usize, moved, reduced| ScheduleCost {
            detour: DETOUR,
            ..ScheduleCost::new(&Circulant, n_halves * doublings, moved, reduced)
        };
        let side_by_side = if self.on_link() > SLOW { SLOW_SIDE_BY_SIDE } else { SIDE_BY_SIDE };
        let n_exchanged = 1.0 + side_by_side * n.saturating_sub(2) as f64;
        let pairwise = |n_halves: f64, saved, moved, reduced| ScheduleCost {
            n_messages: n_halves * n_exchanged,
            detour: DETOUR,
            saved,
            ..ScheduleCost::new(&Pairwise, 0, moved, reduced)
        };
        let is_exact = self.codec.is_exact();
        let mut offers = Vec::new();
        let mut add = |offer: ScheduleCost| {
            let added = offers.push(offer);
            debug_assert!(added.is_ok(), "there is room for all offers");
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
                let [by_chain_at, by_trees_at, by_halves_at] = match is_exact {
                    true => [1.0, TREES, HALVES],
                    false => [COMPRESSED_CHAIN, COMPRESSED_TREES, COMPRESSED_HALVES],
                };
                let chain = ScheduleCost::new(&Chain, n_hops, by_chain, 0.0);
                add(ScheduleCost::new(&Binomial, doublings, doublings as f64, 0.0));
                add(ScheduleCost { detour: by_chain_at, ..chain });
                add(ScheduleCost { detour: by_trees_at, ..trees(n_levels, by_trees, 0.0) });
                let halves = ScheduleCost::new(&ScatterAllGather, 2 * doublings, 2.0 * others, 0.0);
                add(ScheduleCost { detour: by_halves_at, ..halves });
            }
            Collective::Reduce => {
                add(ScheduleCost::new(&Binomial, doublings, doublings as f64, doublings as f64));
                add(ScheduleCost::new(&Chain, n_hops, by_chain, by_chain));
                add(trees(n_levels, by_trees, by_trees));
                let halves =
                    ScheduleCost::new(&ReduceScatterGather, 2 * doublings, 2.0 * others, others);
                add(ScheduleCost { detour: REDUCED_HALVES, ..halves });
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
                // Number of messages for an exchange among `n` ranks at once.
                let at_once =
                    |n: usize| (1.0 + AT_ONCE * n.saturating_sub(2) as f64).min((n - 1) as f64);
                let offer = |schedule, n_messages, n_passed: usize, n_padded: usize| ScheduleCost {
                    n_messages,
                    padding: (n_padded * self.padding_of_part()) as f64,
                    ..ScheduleCost::new(schedule, 0, n_passed as f64 / n as f64, 0.0)
                };
                add(offer(&Linear, at_once(n), n - 1, 0));
                let n_passed = Bruck::n_passed(n);
                let bruck = offer(&Bruck, doublings as f64, n_passed, n_passed);
                add(ScheduleCost { detour: DETOUR, ..bruck });
                if TwoLevels::has_levels(self.call) {
                    let k = self.call.ranks_per_node;
                    let n_messages = at_once(n / k) + at_once(k);
                    let levels = offer(&TwoLevels, n_messages, 2 * n - k - n / k, n - k);
                    add(ScheduleCost { detour: DETOUR, ..levels });
                }
            }
            Collective::Scatter | Collective::Gather => {}
        }
        offers
    }

    /// Bytes that a part of an all-to-all takes in a bundle in addition to its values.
    fn padding_of_part(&self) -> usize {
        let part = self.n_bytes.div_ceil(self.call.size.max(1));
        let is_exact = self.codec.is_exact();
        if is_exact { part.next_multiple_of(FRAME_ALIGN) - part } else { 2 * FRAME_ALIGN }
    }

    /// Seconds of a schedule, counting only costs in which schedules differ.
    fn seconds(&self, offer: &ScheduleCost) -> f64 {
        self.on_messages(offer) + self.at_work(offer, self.worked(offer)) + self.on_links(offer)
    }

    /// Seconds of a schedule whose ranks compute part of the array while earlier rounds are on
    /// links.
    fn overlapped(&self, offer: &ScheduleCost) -> f64 {
        let n = self.call.size.max(1);
        let (encoded, n_parts) = match self.call.collective {
            Collective::AllReduce | Collective::ReduceScatter | Collective::AllGather => {
                (1.0 / n as f64, n)
            }
            Collective::AllToAll => (offer.moved, n),
            _ => (ENCODED_FIRST, 1),
        };
        let part = self.n_bytes / n_parts;
        let n_rounds = (part / self.shortest()).clamp(1, LANES).max(part / ROUND);
        // Parts are reduced and then sent out. A single round overlaps nothing.
        let moves_twice = self.call.collective == Collective::AllReduce && n_rounds > 1;
        let n_times = if moves_twice { 2 } else { 1 };
        let least = if self.is_told { ALONE } else { ALONE_UNTOLD };
        let alone = least.max(1.0 / (n_times * n_rounds) as f64);
        let work = self.at_work(offer, self.worked(offer) + encoded);
        let links = self.on_links(offer);
        if self.are_copies {
            return self.on_messages(offer) + work + self.part_copied(n_rounds) * links;
        }
        self.on_messages(offer) + work.max(links) + alone * work.min(links)
    }

    /// Share of a link's time in which one rank copies. In a broadcast the sender makes half of the
    /// copies and the receiver the other half, at the same time except for one round.
    fn part_copied(&self, n_rounds: usize) -> f64 {
        match self.call.collective {
            Collective::Broadcast | Collective::Reduce => 0.5 + 0.5 / n_rounds as f64,
            _ => 1.0,
        }
    }

    fn on_messages(&self, offer: &ScheduleCost) -> f64 {
        let lateness = (LATENESS * self.on_link()).min(LATEST);
        offer.n_messages * (self.pace.message + lateness)
    }

    /// Number of times that a rank processes the array.
    fn worked(&self, offer: &ScheduleCost) -> f64 {
        let is_passed_on =
            matches!(self.call.collective, Collective::Broadcast | Collective::AllToAll);
        let decoded = if is_passed_on { offer.moved.min(1.0) } else { offer.moved };
        decoded + (offer.moved - decoded) / self.pace.ratio + offer.reduced
    }

    fn at_work(&self, offer: &ScheduleCost, worked: f64) -> f64 {
        offer.detour * worked * self.n_bytes as f64 / (2.0 * self.pace.step_rate)
    }

    fn on_links(&self, offer: &ScheduleCost) -> f64 {
        let saved = if self.codec.is_exact() { 0.0 } else { offer.saved };
        let padding = offer.padding + offer.n_messages * self.pace.overhead;
        let padding = self.network.link_rate.map_or(0.0, |rate| padding / rate);
        (1.0 - saved) * offer.moved * self.on_link() + padding
    }

    /// Returns whether a frame holds segments of a fair length, or whole parts, of all parts of a
    /// message.
    fn has_room(&self, schedule: &dyn Schedule) -> bool {
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
