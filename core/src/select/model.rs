//! The cost model: what each schedule does, and how long that takes.
//!
//! The formula and its table are in the documentation of [`select`](super).

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

/// Seconds that a message costs whatever its size: MPI on a fast fabric, or what threads do for it.
pub(super) const MESSAGE_COST: f64 = 5e-6;
/// Where an array is on the links for long, ranks sleep, and wake late: a message costs this part
/// of that time more, but no more than so many seconds.
const LATENESS: f64 = 1.0 / 60.0;
const LATEST: f64 = 10e-6;
/// The part of its cost that a message has which waits for no other rank's: what a rank does for
/// it, where an array is on the links for more than so many seconds, and elsewhere. (Between 8
/// threads a pairwise exchange of up to 256 KiB was sooner than a circulant graph or a ring over
/// links of 1 and 10 Gbit/s, but later without links and where they take no time.)
const SLOW_SIDE_BY_SIDE: f64 = 0.15;
const SIDE_BY_SIDE: f64 = 0.5;
const SLOW: f64 = 20e-6;
/// The same of an all-to-all that sends everything before it receives. (Between 16 threads it took
/// as long as Bruck's exchange for 16 KiB, between 32 twice as long for 4 KiB; over a fabric it is
/// predicted to take 1.8 times as long between 16 ranks.)
const AT_ONCE: f64 = 0.3;
/// Bytes per second that a rank moves and reduces, codec and cores shared with others included.
pub(super) const STEP_RATE: f64 = 1e9;
/// Wire bytes of a whole all-reduce that single operands save against partial sums. That is the
/// data's: 15 % on the wave fields of `foldwire stack` between 8 ranks, 7 % on temperatures between
/// 4, nothing or less where noise prevails. Where it is nothing, little must be lost.
const SAVED: f64 = 0.03;
/// Bytes of the array in a round of one part: what backends' frames hold.
const ROUND: usize = 256 << 10;
/// Rounds of shorter arrays, one for each lane that a communicator has by default, but none of less
/// than the shortest of so many bytes a chunk.
const LANES: usize = 4;
const CHUNK_BYTES: usize = 16 << 10;
/// Raw bytes per wire byte.
const RATIO: f64 = 5.0;

/// What a circulant graph or a pairwise exchange costs more than a ring of as many bytes, where
/// messages cost nothing: bundles are copied, single operands encoded. (Between 8 threads on 2
/// cores 1.2 to 1.6 from 256 KiB on, where the rounds of a ring overlap; this finds the size from
/// which on a ring is sooner.)
const DETOUR: f64 = 1.2;
/// The same of a broadcast in two halves, against half the work of moving and reducing for each: a
/// tree only passes frames on. (Between 8 threads the tree was sooner at every size.)
const HALVES: f64 = 2.0;
/// The same of a reduce in two halves.
const REDUCED_HALVES: f64 = 3.0;
/// The same of a double tree, whose ranks copy what they send to two others. (Of 64 MiB between 64
/// ranks, predicted: 25 ms where links take no time, along a chain 21.)
const TREES: f64 = 1.4;
/// The same of a broadcast by a lossy codec, along double tree and chain and in halves: frames that
/// are copied are short, but a chain's ranks wait for each other. (Of 4 MiB between 8 threads:
/// double tree 2.7 ms, chain 3.2; predicted for a core each 0.99 and 1.15, of 64 MiB between 64
/// ranks 15.9 and 20.8. Of 256 KiB over links of 1 Gbit/s: double tree 0.68 ms, halves 0.85.)
const COMPRESSED_TREES: f64 = 1.1;
const COMPRESSED_CHAIN: f64 = 1.15;
const COMPRESSED_HALVES: f64 = 3.2;
/// Longest array that is scanned by doubling: 8 threads on 2 cores took 209 µs for one of 64 KiB
/// and 747 for 256 KiB, along a chain 232 and 449.
const LONGEST_DOUBLED: usize = 64 << 10;
/// Least room for a segment of a lossy codec by a circulant graph, unless parts are shorter: in
/// shorter ones headers count.
const MIN_SEGMENT: usize = 512;
/// Bytes that a lossy codec's segment may have beyond its values.
const MAX_OVERHEAD: usize = 256;
/// The part of the array that the root of a tree encodes while others wait for it. (Between 2
/// threads without links fz-light and fz-nd took for a broadcast of 256 MiB what encoding 0.8 and
/// 0.7 of it beside decoding takes.)
const ENCODED_FIRST: f64 = 0.75;
/// The least part of the shorter of work and links that goes before the longer one or after it.
/// (So arrays of 4 MiB and more between 2 threads at 1 Gbit/s were expected to take 0.8 to 1.12
/// times what they took by fz-light, fz-nd and dense.)
const ALONE: f64 = 0.1;
/// The same where nobody has told how fast the machine is, which may be busy.
const ALONE_UNTOLD: f64 = 0.25;

/// What a schedule does, as the model sees it.
struct ScheduleCost {
    schedule: &'static dyn Schedule,
    /// Messages one after the other, or as many as they cost as much as.
    n_messages: f64,
    /// How often a rank moves the array, and reduces it.
    moved: f64,
    reduced: f64,
    /// By what factor that takes longer than elsewhere, links apart.
    detour: f64,
    /// The share of the bytes on links that it saves by a lossy codec.
    saved: f64,
    /// Bytes on links beside those of the array.
    padding: f64,
}

impl ScheduleCost {
    fn new(schedule: &'static dyn Schedule, n_messages: usize, moved: f64, reduced: f64) -> Self {
        let n_messages = n_messages as f64;
        Self { schedule, n_messages, moved, reduced, detour: 1.0, saved: 0.0, padding: 0.0 }
    }
}

/// How fast ranks are by a codec, and how short what they send.
#[derive(Clone, Copy)]
pub(super) struct RankSpeed {
    /// Bytes per second moved and reduced.
    pub(super) step_rate: f64,
    /// Raw bytes per wire byte.
    pub(super) ratio: f64,
    /// Seconds that a message costs whatever its size, and bytes that it has beside its values.
    pub(super) message: f64,
    pub(super) overhead: f64,
    /// It is for arrays of so many bytes or more.
    pub(super) from: usize,
}

impl RankSpeed {
    /// Of any call by this codec.
    pub(super) const fn of(codec: CodecId) -> Self {
        let ratio = ratio(codec);
        Self { step_rate: STEP_RATE, ratio, message: MESSAGE_COST, overhead: 0.0, from: 0 }
    }
}

/// What is to be done, and over what.
pub(super) struct Model {
    pub(super) call: ProgramSpec,
    pub(super) n_bytes: usize,
    pub(super) codec: CodecId,
    pub(super) pace: RankSpeed,
    pub(super) network: Network,
    /// Whether somebody has told how fast this machine is.
    pub(super) is_told: bool,
    /// Links are copies that ranks' own cores make: a core that copies does nothing else.
    pub(super) are_copies: bool,
}

impl Model {
    /// The schedule that takes least time; of several the first.
    pub(super) fn soonest(&self) -> Option<&'static dyn Schedule> {
        let offers = self.offers();
        let possible = offers.iter().filter(|offer| self.has_room(offer.schedule));
        let timed = possible.map(|offer| (offer.schedule, self.seconds(offer)));
        timed.reduce(|best, next| if next.1 < best.1 { next } else { best }).map(|best| best.0)
    }

    /// How long it takes by this schedule, first encoding and what overlaps included; by the best
    /// if the model does not know it.
    pub(super) fn least_seconds(&self, schedule: &dyn Schedule) -> f64 {
        let offers = self.offers();
        let is_asked =
            |offer: &&ScheduleCost| schedule::code(schedule) == schedule::code(offer.schedule);
        let seconds = |offer| self.overlapped(offer);
        let of_asked = offers.iter().filter(is_asked).map(seconds).reduce(f64::min);
        let possible = offers.iter().filter(|offer| self.has_room(offer.schedule));
        of_asked.or_else(|| possible.map(seconds).reduce(f64::min)).unwrap_or_else(|| {
            // All but a part of the array passes one link, in as many messages as there are parts.
            let n = self.call.size;
            let default = schedule::default_for(self.call.collective);
            self.overlapped(&ScheduleCost::new(default, n - 1, (n - 1) as f64 / n as f64, 0.0))
        })
    }

    /// Bytes of the shortest segments that parts are cut into for the sake of lanes.
    const fn shortest(&self) -> usize {
        super::shortest(self.codec) * CHUNK_BYTES
    }

    /// Seconds that the array is on a link.
    fn on_link(&self) -> f64 {
        self.network.link_rate.map_or(0.0, |rate| self.n_bytes as f64 / (self.pace.ratio * rate))
    }

    /// Whether links take most of the time, and nodes are so few that rounds follow each other from
    /// one to the next.
    pub(super) fn is_bound_by_links(&self) -> bool {
        let n_nodes = self.call.size / self.call.ranks_per_node.max(1);
        self.on_link() > self.n_bytes as f64 / (2.0 * self.pace.step_rate)
            && n_nodes <= self.n_bytes.div_ceil(ROUND)
    }

    fn offers(&self) -> Vec<ScheduleCost, 5> {
        let n = self.call.size.max(1);
        let doublings = n_doublings(n);
        // All of the array but a rank's own part.
        let others = (n - 1) as f64 / n as f64;
        // Along a chain, rounds follow each other.
        let n_rounds = self.n_bytes.div_ceil(ROUND).max(1);
        let n_hops = (n_rounds + n).saturating_sub(2);
        let by_chain = n_hops as f64 / n_rounds as f64;
        // Down the trees or up, in rounds of two messages, on all lanes.
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
                // To all others of so many, and of a rank's parts; with the padding of some.
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

    /// Bytes that a part of an all-to-all has in a bundle beside its values.
    fn padding_of_part(&self) -> usize {
        let part = self.n_bytes.div_ceil(self.call.size.max(1));
        let is_exact = self.codec.is_exact();
        if is_exact { part.next_multiple_of(FRAME_ALIGN) - part } else { 2 * FRAME_ALIGN }
    }

    /// How long a schedule takes, by what tells schedules from each other.
    fn seconds(&self, offer: &ScheduleCost) -> f64 {
        self.on_messages(offer) + self.at_work(offer, self.worked(offer)) + self.on_links(offer)
    }

    /// How long a schedule takes, where ranks compute while earlier rounds are on links, as a part
    /// of each array is.
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
        // Parts are reduced, and then they go out. What is one round has nothing beside it.
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

    /// The part of a link's time in which one rank copies. In a broadcast the sender makes half of
    /// the copies and the receiver the others, at the same time but for one round.
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

    /// How often a rank goes over the array.
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

    /// Whether frames hold segments of a fair length of all parts of a schedule's messages, or
    /// whole parts.
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
