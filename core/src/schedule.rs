//! Who talks to whom, in which order: algorithms as pure functions.
//!
//! A schedule cuts the logical array into *parts* and gives every rank a program: step `0`, `1`, …
//! Each [`Step`] receives at most one part, combines, keeps or stores it, and sends at most one
//! part; where parts are short, a run of them in one message. A schedule owns no memory and does no
//! I/O, so a program can be printed, checked (`check`, with `alloc`) and simulated. A step is
//! flags, as in NCCL (`device/primitives.h`: one generic operation behind send, recv,
//! recvReduceSend, …).
//!
//! Adding one: a new file here and one line in [`ALL`].

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

/// A schedule's number in a message's header: its place in [`ALL`], or 15 for one of yours.
#[must_use]
pub fn code(schedule: &dyn Schedule) -> u8 {
    let place = ALL.iter().position(|known| known.name() == schedule.name());
    place.map_or(15, |place| place.min(15) as u8)
}

/// The name of the schedule of this [`code`].
#[must_use]
pub fn name_of(code: u8) -> &'static str {
    ALL.get(usize::from(code)).map_or("another", |schedule| schedule.name())
}

/// The schedule that the published systems use, and [`select`](crate::select) unless it knows
/// better.
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

/// What is to be achieved. `count` values are divided into `size` *shares* where the table says so
/// (share r of `count` values: see [`crate::layout::share`]).
///
/// | collective | each rank starts with | each rank ends with |
/// |---|---|---|
/// | all-reduce | `count` values | the reduction of all, `count` values |
/// | reduce-scatter | `count` values | its share of the reduction |
/// | all-gather | its share | all shares, `count` values |
/// | broadcast | root: `count` values | `count` values |
/// | scatter | root: `count` values | its share |
/// | gather | its share | root: all shares |
/// | reduce | `count` values | root: the reduction |
/// | all-to-all | `count` values, a share for each rank | of each rank what it has for this one |
/// | scan | `count` values | the reduction of its own and those of all ranks before it |
/// | exclusive scan | `count` values | the same but for its own; rank 0 nothing |
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum Collective {
    AllReduce,
    ReduceScatter,
    AllGather,
    Broadcast,
    Scatter,
    Gather,
    Reduce,
    AllToAll,
    Scan,
    ExclusiveScan,
}

/// What of the logical array a rank has, before a call or after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Portion {
    /// Nothing.
    Nothing,
    /// All of it.
    Whole,
    /// Its share.
    Share,
    /// Of an all-to-all, what it has for each rank: the parts of which it is the source.
    Row,
    /// Of an all-to-all, what each rank has for it: the parts of which it is the destination.
    Column,
}

impl Collective {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::AllReduce,
        Self::ReduceScatter,
        Self::AllGather,
        Self::Broadcast,
        Self::Scatter,
        Self::Gather,
        Self::Reduce,
        Self::AllToAll,
        Self::Scan,
        Self::ExclusiveScan,
    ];

    /// What each rank starts with and ends with: the root, or where there is none any rank; and
    /// the others.
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
            // The root is rank 0.
            Self::ExclusiveScan => [[Whole, Whole], [Nothing, Whole]],
        }
    }

    /// Most ranks that can do it: those of a transport, but parts have numbers of 32 bits.
    #[must_use]
    pub const fn max_size(self) -> usize {
        match self {
            Self::AllToAll => 1 << 16,
            _ => MAX_SIZE,
        }
    }

    /// Into how many parts the array is divided where every rank's is its own: what a schedule says
    /// unless it moves the array as a whole.
    #[must_use]
    pub const fn n_parts(self, size: usize) -> usize {
        match self {
            Self::AllToAll => size * size,
            _ => size,
        }
    }

    /// Whether values are combined (as opposed to only moved).
    #[must_use]
    pub const fn reduces(self) -> bool {
        matches!(self, Self::AllReduce | Self::ReduceScatter | Self::Reduce) || self.is_scan()
    }

    /// Whether a rank's result is of the ranks up to it, and another than each other rank's.
    #[must_use]
    pub const fn is_scan(self) -> bool {
        matches!(self, Self::Scan | Self::ExclusiveScan)
    }

    /// Whether a rank is its root.
    #[must_use]
    pub const fn has_root(self) -> bool {
        matches!(self, Self::Broadcast | Self::Scatter | Self::Gather | Self::Reduce)
    }

    /// The name in lower case, words joined by a hyphen.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::AllReduce => "all-reduce",
            Self::ReduceScatter => "reduce-scatter",
            Self::AllGather => "all-gather",
            Self::Broadcast => "broadcast",
            Self::Scatter => "scatter",
            Self::Gather => "gather",
            Self::Reduce => "reduce",
            Self::AllToAll => "all-to-all",
            Self::Scan => "scan",
            Self::ExclusiveScan => "exclusive-scan",
        }
    }
}

/// What a program is made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProgramSpec {
    /// The collective.
    pub collective: Collective,
    /// Number of ranks, at least 1.
    pub size: usize,
    /// The root, for the collectives that have one; rank 0 otherwise.
    pub root: Rank,
    /// Most parts that a message may carry, at least 1
    /// ([`select::max_run`](crate::select::max_run)).
    pub max_run: u16,
    /// So many ranks in a row share a node; 1 if nothing is known of nodes.
    pub ranks_per_node: usize,
}

impl ProgramSpec {
    /// A call whose messages carry one part each, of ranks of which nothing else is known.
    #[must_use]
    pub const fn new(collective: Collective, size: usize, root: Rank) -> Self {
        Self { collective, size, root, max_run: 1, ranks_per_node: 1 }
    }

    /// The same call where each `n_ranks` (at least 1) in a row share a node.
    #[must_use]
    pub const fn with_nodes(self, n_ranks: usize) -> Self {
        Self { ranks_per_node: n_ranks, ..self }
    }

    /// The same call by a schedule, which knows nothing of nodes where values are combined, unless
    /// it does so in them: two ranks that make the same sum must not do so in two ways.
    #[must_use]
    pub fn by(self, schedule: &dyn Schedule) -> Self {
        let combines_outside = self.collective.reduces() && schedule.n_combined(self) == 1;
        if combines_outside { self.with_nodes(1) } else { self }
    }

    /// Of how many ranks, from rank 0 on, or of all, a reduction's result on `rank` is made.
    #[must_use]
    pub const fn n_operands(self, rank: Rank) -> usize {
        match self.collective {
            Collective::Scan => rank.index() + 1,
            Collective::ExclusiveScan => rank.index(),
            _ => self.size,
        }
    }

    /// Whether two ranks are known to share a node.
    #[must_use]
    pub const fn is_near(self, a: Rank, b: Rank) -> bool {
        let n = self.ranks_per_node;
        n > 1 && a.index() / n == b.index() / n
    }

    /// The same call where so many parts fit a frame.
    #[must_use]
    pub const fn with_runs(self, max_run: u16) -> Self {
        Self { max_run, ..self }
    }

    /// The same call where at least as many parts fit a frame as a schedule needs.
    #[must_use]
    pub fn with_runs_of(self, schedule: &dyn Schedule) -> Self {
        let least = u16::try_from(schedule.min_run(self)).unwrap_or(u16::MAX);
        self.with_runs(self.max_run.max(least))
    }

    /// What `rank` starts with.
    #[must_use]
    pub const fn input(self, rank: Rank) -> Portion {
        self.collective.portions()[0][(rank.0 != self.root.0) as usize]
    }

    /// What `rank` ends with.
    #[must_use]
    pub const fn output(self, rank: Rank) -> Portion {
        self.collective.portions()[1][(rank.0 != self.root.0) as usize]
    }

    /// The part of an all-to-all that goes from one rank to another.
    #[must_use]
    pub const fn part_between(self, source: Rank, destination: Rank) -> Part {
        Part::new(source.index() * self.size + destination.index())
    }

    /// Source and destination of a part of an all-to-all.
    #[must_use]
    pub const fn ends_of(self, part: Part) -> (Rank, Rank) {
        (Rank::new(part.index() / self.size), Rank::new(part.index() % self.size))
    }

    /// Whether a part is in a rank's portion. Where the array is one part, whoever has a share has
    /// it.
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

/// A share of the logical array, `0..Schedule::n_parts`.
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
/// `step` must be a pure function: the same arguments give the same answer, on every rank. The
/// programs of all ranks together must pass `check`, which says what that takes. Where the output
/// may overlap the input, the engine relies on one of its rules: a rank never reads its local part
/// after it stored that part's output.
///
/// `n_parts`, `n_steps` and `step` mean something only for a supported collective and
/// `rank < size`.
pub trait Schedule: Sync {
    /// Its name, as the literature has it.
    fn name(&self) -> &'static str;

    /// Whether it can do this collective (for every size and root).
    fn supports(&self, collective: Collective) -> bool;

    /// Into how many parts it divides the array: 1, or as many as the collective has
    /// ([`Collective::n_parts`]): a share per rank, or one for each pair of ranks.
    fn n_parts(&self, call: ProgramSpec) -> usize;

    /// How many parts in a row its messages carry, and its ranks hold, at most, if it cannot do
    /// with fewer: then the segments of so many parts fit a frame, and those of a long array are
    /// short. 1 unless it says so.
    fn min_run(&self, _call: ProgramSpec) -> usize {
        1
    }

    /// Whether ranks pass parts on that are of one other rank and for another. Then all must know
    /// how long each part is.
    fn passes_on(&self, _call: ProgramSpec) -> bool {
        false
    }

    /// Number of steps in `rank`'s program.
    fn n_steps(&self, call: ProgramSpec, rank: Rank) -> usize;

    /// How many encoding errors can add up in a value of a sum when every partial sum is decoded,
    /// added to and encoded again (pipelines that keep floats). 0 for collectives that only move.
    fn n_encodings(&self, call: ProgramSpec) -> u64;

    /// How many ranks' values of a reduction are combined as floats, in a node, before any is
    /// encoded; 1 unless it says so. What is encoded may then be so many times as far off. A
    /// schedule that says more has each part completed by one rank.
    fn n_combined(&self, _call: ProgramSpec) -> usize {
        1
    }

    /// Step `index < n_steps` of `rank`'s program.
    fn step(&self, call: ProgramSpec, rank: Rank, index: usize) -> Step;
}
