//! Schedules: collective algorithms as pure functions that say who sends what to whom, and in which
//! order.
//!
//! A schedule cuts the logical array into *parts* and gives every rank a program: step `0`, `1`, …
//! Each [`Step`] receives at most one part, then combines, keeps or stores it, and sends at most
//! one part. If parts are short, a step handles a run of parts in one message. A schedule owns no
//! memory and does no I/O, so a program can be printed, checked (`check`, with feature `alloc`) and
//! simulated. A step is a set of flags, as in NCCL (`device/primitives.h`: one generic operation
//! behind send, recv, recvReduceSend, …).
//!
//! To add a schedule, write a new file here and add one line to [`ALL`]. ARCHITECTURE.md lists what
//! else belongs to it.

#[cfg(feature = "alloc")]
pub mod check;

mod binomial;
mod bruck;
mod chain;
mod circulant;
mod division;
mod double_tree;
mod linear;
mod pairwise;
mod prefix_doubling;
mod print;
mod recursive_doubling;
mod recursive_halving;
mod reduce_scatter_gather;
mod ring;
mod scatter_all_gather;
mod step;
mod two_levels;

pub use binomial::Binomial;
pub use bruck::Bruck;
pub use chain::Chain;
pub use circulant::Circulant;
pub use division::Division;
pub use double_tree::DoubleTree;
pub use linear::Linear;
pub use pairwise::Pairwise;
pub use prefix_doubling::PrefixDoubling;
pub use print::program;
pub use recursive_doubling::RecursiveDoubling;
pub use recursive_halving::RecursiveHalving;
pub use reduce_scatter_gather::ReduceScatterGather;
pub use ring::Ring;
pub use scatter_all_gather::ScatterAllGather;
pub use step::{SourceRows, Step};
pub use two_levels::TwoLevels;

use crate::coded_enum::coded_enum;
use crate::transport::{MAX_SIZE, Rank};

/// Every schedule.
pub static ALL: &[&dyn Schedule] = &[
    &Ring,
    &RecursiveDoubling,
    &Pairwise,
    &Binomial,
    &Chain,
    &Linear,
    &TwoLevels,
    &Circulant,
    &ScatterAllGather,
    &PrefixDoubling,
    &ReduceScatterGather,
    &DoubleTree,
    &RecursiveHalving,
    &Bruck,
];

/// Number of a schedule in a message's header: its index in [`ALL`], or 15 for a schedule from
/// outside this crate.
#[must_use]
pub fn code(schedule: &dyn Schedule) -> u8 {
    let place = ALL.iter().position(|known| known.name() == schedule.name());
    place.map_or(15, |place| place.min(15) as u8)
}

/// Name of the schedule with this [`code`].
#[must_use]
pub fn name_of(code: u8) -> &'static str {
    ALL.get(usize::from(code)).map_or("another", |schedule| schedule.name())
}

/// Schedule that the published systems use. [`select`](crate::select) uses it too unless it has
/// data for a better choice.
#[must_use]
pub fn default_for(collective: Collective) -> &'static dyn Schedule {
    match collective {
        Collective::AllReduce | Collective::ReduceScatter | Collective::AllGather => &Ring,
        Collective::Broadcast | Collective::Scatter | Collective::Gather | Collective::Reduce => {
            &Binomial
        }
        Collective::AllToAll => &Linear,
        Collective::Scan | Collective::ExclusiveScan => &Chain,
    }
}

coded_enum! {
    /// Collective operations.
    ///
    /// The table says what each rank starts and ends with. `count` values are divided into `size`
    /// *shares* where it says so. Share r is defined by [`crate::layout::share`].
    ///
    /// | collective | each rank starts with | each rank ends with |
    /// |---|---|---|
    /// | all-reduce | `count` values | the reduction of all ranks' values, `count` values |
    /// | reduce-scatter | `count` values | its share of the reduction |
    /// | all-gather | its share | all shares, `count` values |
    /// | broadcast | root: `count` values | `count` values |
    /// | scatter | root: `count` values | its share |
    /// | gather | its share | root: all shares |
    /// | reduce | `count` values | root: the reduction |
    /// | all-to-all | `count` values, a share for each rank | one share from each rank |
    /// | scan | `count` values | the reduction of its own values and those of all ranks before it |
    /// | exclusive scan | `count` values | the reduction of the values of all ranks before it; rank 0: nothing |
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    #[non_exhaustive]
    #[allow(missing_docs)]
    pub enum Collective {
        AllReduce = 0, "all-reduce";
        ReduceScatter = 1, "reduce-scatter";
        AllGather = 2, "all-gather";
        Broadcast = 3, "broadcast";
        Scatter = 4, "scatter";
        Gather = 5, "gather";
        Reduce = 6, "reduce";
        AllToAll = 7, "all-to-all";
        Scan = 8, "scan";
        ExclusiveScan = 9, "exclusive-scan";
    }
}

/// Portion of the logical array that a rank has before or after a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Portion {
    /// Nothing.
    Nothing,
    /// The whole array.
    Whole,
    /// The rank's share.
    Share,
    /// In an all-to-all, the parts that the rank sends: those whose source it is.
    Row,
    /// In an all-to-all, the parts that the rank receives: those whose destination it is.
    Column,
}

impl Collective {
    /// Input and output portions: `[[root's input, others' input], [root's output, others'
    /// output]]`. Both columns describe any rank if the collective has no root.
    ///
    /// This is the only such table. Checks of lengths, layouts, the schedule checker and the cost
    /// model of `foldwire-sim` use it. The conformance suite states the results independently.
    const fn portions(self) -> [[Portion; 2]; 2] {
        use Portion::{Column, Nothing, Row, Share, Whole};
        match self {
            Self::AllReduce => [[Whole, Whole], [Whole, Whole]],
            Self::ReduceScatter => [[Whole, Whole], [Share, Share]],
            Self::AllGather => [[Share, Share], [Whole, Whole]],
            Self::Broadcast => [[Whole, Nothing], [Whole, Whole]],
            Self::Scatter => [[Whole, Nothing], [Share, Share]],
            Self::Gather => [[Share, Share], [Whole, Nothing]],
            Self::Reduce => [[Whole, Whole], [Whole, Nothing]],
            Self::AllToAll => [[Row, Row], [Column, Column]],
            Self::Scan => [[Whole, Whole], [Whole, Whole]],
            // Rank 0 takes the root's column: it has no result.
            Self::ExclusiveScan => [[Whole, Whole], [Nothing, Whole]],
        }
    }

    /// Maximum number of ranks. An all-to-all has `size²` parts, whose numbers must fit 32 bits;
    /// other collectives are limited by the transport only.
    #[must_use]
    pub const fn max_size(self) -> usize {
        match self {
            Self::AllToAll => 1 << 16,
            _ => MAX_SIZE,
        }
    }

    /// Number of parts if parts belong to ranks: one for each rank, or in an all-to-all one for
    /// each pair of ranks. A schedule that moves the array as a whole has fewer
    /// ([`Schedule::n_parts`]).
    #[must_use]
    pub const fn n_parts(self, size: usize) -> usize {
        match self {
            Self::AllToAll => size * size,
            _ => size,
        }
    }

    /// Returns whether the collective combines values (as opposed to only moving them).
    #[must_use]
    pub const fn reduces(self) -> bool {
        matches!(self, Self::AllReduce | Self::ReduceScatter | Self::Reduce) || self.is_scan()
    }

    /// Returns whether each rank's result combines only the ranks up to it, so that results differ
    /// between ranks.
    #[must_use]
    pub const fn is_scan(self) -> bool {
        matches!(self, Self::Scan | Self::ExclusiveScan)
    }

    /// Returns whether the collective has a root.
    #[must_use]
    pub const fn has_root(self) -> bool {
        matches!(self, Self::Broadcast | Self::Scatter | Self::Gather | Self::Reduce)
    }
}

/// Arguments from which a schedule builds its programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProgramSpec {
    /// The collective.
    pub collective: Collective,
    /// Number of ranks, at least 1.
    pub size: usize,
    /// The root, for the collectives that have one; rank 0 otherwise.
    pub root: Rank,
    /// Maximum number of parts in a message, at least 1
    /// ([`select::with_runs`](crate::select::with_runs)).
    pub max_run: u16,
    /// True if the root of a scatter encodes all parts before the first one leaves. Only a schedule
    /// whose messages hold all of them follows it.
    pub encodes_first: bool,
    /// Number of consecutive ranks that share a node; 1 if the node layout is unknown.
    pub ranks_per_node: usize,
}

impl ProgramSpec {
    /// A spec with one part per message and an unknown node layout.
    #[must_use]
    pub const fn new(collective: Collective, size: usize, root: Rank) -> Self {
        let (max_run, encodes_first, ranks_per_node) = (1, false, 1);
        Self { collective, size, root, max_run, encodes_first, ranks_per_node }
    }

    /// The same spec with `n_ranks` (at least 1) consecutive ranks in each node.
    #[must_use]
    pub const fn with_nodes(self, n_ranks: usize) -> Self {
        Self { ranks_per_node: n_ranks, ..self }
    }

    /// The same spec as `schedule` may see it. In a reduction, only a schedule that adds up values
    /// inside nodes first ([`Schedule::n_combined`]) sees the node layout. With any other schedule
    /// two ranks could compute the same sum in different ways, as partners in recursive doubling
    /// would.
    #[must_use]
    pub fn by(self, schedule: &dyn Schedule) -> Self {
        let combines_outside = self.collective.reduces() && schedule.n_combined(self) == 1;
        if combines_outside { self.with_nodes(1) } else { self }
    }

    /// Number of ranks whose values enter a reduction's result on `rank`. In scans these are the
    /// first ranks, else all.
    #[must_use]
    pub const fn n_operands(self, rank: Rank) -> usize {
        match self.collective {
            Collective::Scan => rank.index() + 1,
            Collective::ExclusiveScan => rank.index(),
            _ => self.size,
        }
    }

    /// Returns whether two ranks are known to share a node.
    #[must_use]
    pub const fn is_near(self, a: Rank, b: Rank) -> bool {
        let n = self.ranks_per_node;
        n > 1 && a.index() / n == b.index() / n
    }

    /// The same spec with up to `max_run` parts in a message.
    #[must_use]
    pub const fn with_runs(self, max_run: u16) -> Self {
        Self { max_run, ..self }
    }

    /// The same spec, in which the root of a scatter encodes all parts before the first one leaves.
    #[must_use]
    pub const fn encoding_first(self) -> Self {
        Self { encodes_first: true, ..self }
    }

    /// The same spec with `max_run` raised to the minimum that `schedule` needs.
    #[must_use]
    pub fn with_runs_of(self, schedule: &dyn Schedule) -> Self {
        let least = u16::try_from(schedule.min_run(self)).unwrap_or(u16::MAX);
        self.with_runs(self.max_run.max(least))
    }

    /// Portion that `rank` starts with.
    #[must_use]
    pub const fn input(self, rank: Rank) -> Portion {
        self.collective.portions()[0][(rank.0 != self.root.0) as usize]
    }

    /// Portion that `rank` ends with.
    #[must_use]
    pub const fn output(self, rank: Rank) -> Portion {
        self.collective.portions()[1][(rank.0 != self.root.0) as usize]
    }

    /// Part of an all-to-all that goes from `source` to `destination`.
    #[must_use]
    pub const fn part_between(self, source: Rank, destination: Rank) -> Part {
        Part::new(source.index() * self.size + destination.index())
    }

    /// Source and destination of a part of an all-to-all.
    #[must_use]
    pub const fn ends_of(self, part: Part) -> (Rank, Rank) {
        (Rank::new(part.index() / self.size), Rank::new(part.index() % self.size))
    }

    /// Returns whether a rank's portion contains a part. A [`Portion::Share`] needs one part per
    /// rank.
    #[must_use]
    pub const fn has(self, portion: Portion, rank: Rank, part: Part) -> bool {
        match portion {
            Portion::Nothing => false,
            Portion::Whole => true,
            Portion::Share => part.0 == rank.0,
            Portion::Row => self.ends_of(part).0.0 == rank.0,
            Portion::Column => self.ends_of(part).1.0 == rank.0,
        }
    }
}

/// A piece of the logical array, numbered `0..Schedule::n_parts`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Part(pub u32);

impl Part {
    /// The part with this index.
    ///
    /// # Panics
    /// If `index` does not fit 32 bits.
    #[must_use]
    pub const fn new(index: usize) -> Self {
        assert!(index <= u32::MAX as usize);
        Self(index as u32)
    }

    /// This part as an array index.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// An algorithm for one or more collectives.
///
/// `step` must be a pure function: the same arguments give the same answer on every rank. The
/// programs of all ranks together must pass `check`, whose documentation lists the requirements.
/// The engine relies on one of these requirements where the output may overlap the input: a rank
/// never reads a local part after it stored that part's output.
///
/// The values of `n_parts`, `n_steps` and `step` are meaningful only for a supported collective and
/// `rank < size`.
pub trait Schedule: Sync {
    /// Name, as used in the literature.
    fn name(&self) -> &'static str;

    /// Returns whether the schedule can do this collective, for every size and root.
    fn supports(&self, collective: Collective) -> bool;

    /// Number of parts that the array is divided into. If ranks have shares, it must be
    /// [`Collective::n_parts`]: one part per rank, or one for each pair of ranks. Otherwise the
    /// schedule may choose any number from 1 on.
    fn n_parts(&self, call: ProgramSpec) -> usize {
        call.collective.n_parts(call.size)
    }

    /// Minimum value of [`ProgramSpec::max_run`] that the schedule needs: the largest number of
    /// consecutive parts that a message carries or a rank holds. The segments of that many parts
    /// must fit one frame, so segments of a long array become short. The default is 1.
    fn min_run(&self, _call: ProgramSpec) -> usize {
        1
    }

    /// Returns whether ranks forward parts that are neither from nor for themselves. Then every
    /// rank must know the length of every part, so the schedule cannot move shares that are
    /// [`Exchanged`](crate::layout::Shares::Exchanged).
    fn passes_on(&self, _call: ProgramSpec) -> bool {
        false
    }

    /// Number of steps in `rank`'s program.
    fn n_steps(&self, call: ProgramSpec, rank: Rank) -> usize;

    /// Number of encoding errors that can add up in a value of a sum if every partial sum is
    /// decoded, added to and encoded again (by pipelines that keep floats). It is 0 for collectives
    /// that only move values.
    fn n_encodings(&self, call: ProgramSpec) -> u64;

    /// Number of ranks of a node whose values a reduction combines as floats before anything is
    /// encoded. The default is 1. An encoded value may then deviate by that many times the bound of
    /// one operand. If the number is above 1, one rank completes each part.
    fn n_combined(&self, _call: ProgramSpec) -> usize {
        1
    }

    /// Step `index < n_steps` of `rank`'s program.
    fn step(&self, call: ProgramSpec, rank: Rank, index: usize) -> Step;
}
