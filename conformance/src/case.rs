//! A case: one point of the product collective × schedule × pipeline × codec × op × type × size ×
//! count × …

mod call;
mod check;
mod cover;
mod deal;

pub use call::Buffers;
pub use cover::{all, pairwise, pairwise_of};
pub use deal::{Counts, Deal};

use crate::data::{self, Random};
use foldwire::codec::{CodecId, CodecParams, Loss, Sizes};
use foldwire::kernel::Level;
use foldwire::layout::{self, Division};
use foldwire::pipeline::{self, Pipeline};
use foldwire::schedule::{
    self, Binomial, Bruck, Chain, Circulant, DoubleTree, Linear, Pairwise, PrefixDoubling,
    ProgramSpec, RecursiveDoubling, RecursiveHalving, ReduceScatterGather, Ring, ScatterAllGather,
    Schedule,
};
use foldwire::transport::{MIN_FRAME_BYTES, Rank};
use foldwire::{
    Bound, Collective, DType, Error, Float, Op, Plan, Quantum, Rounding, Sampling, Scope,
};
use std::fmt;
use std::ops::Range;

/// Reductions of the suite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Operation {
    Sum,
    Avg,
    Min,
    Max,
    Prod,
    /// √(a² + b²), a user operation.
    Norm,
}

impl Operation {
    /// All operations.
    pub const ALL: [Self; 6] = [Self::Sum, Self::Avg, Self::Min, Self::Max, Self::Prod, Self::Norm];

    /// The library's operation.
    #[must_use]
    pub fn op<T: Float>(self) -> Op<'static, T> {
        match self {
            Self::Sum => Op::Sum,
            Self::Avg => Op::Avg,
            Self::Min => Op::Min,
            Self::Max => Op::Max,
            Self::Prod => Op::Prod,
            Self::Norm => Op::User(&|a: T, b: T| {
                let (a, b) = (a.to_f64(), b.to_f64());
                T::from_f64((a * a + b * b).sqrt())
            }),
        }
    }
}

/// Returns whether no rank can finish the collective before all other ranks have called it. In
/// other collectives a rank that only sends can finish early, such as the root of a broadcast or
/// rank 0 of a scan.
#[must_use]
pub const fn needs_all(collective: Collective) -> bool {
    matches!(
        collective,
        Collective::AllReduce
            | Collective::ReduceScatter
            | Collective::AllGather
            | Collective::AllToAll
    )
}

/// Scopes of a bound.
const SCOPES: [Scope; 2] = [Scope::PerOperand, Scope::Result];

/// Roundings of input values to a lattice.
const ROUNDINGS: [Rounding; 2] = [Rounding::Nearest, Rounding::unbiased(7)];

/// Kinds of bounds.
pub const BOUNDS: [Bound; 3] = [Bound::Absolute(1e-3), Bound::Relative(1e-3), Bound::Psnr(70.0)];

/// Every collective with every schedule that supports it. Two levels are left out, because they
/// equal the default schedules if the node layout is unknown.
pub const ROUTES: [(Collective, &dyn Schedule); 31] = [
    (Collective::AllReduce, &Ring),
    (Collective::AllReduce, &RecursiveDoubling),
    (Collective::AllReduce, &Pairwise),
    (Collective::ReduceScatter, &Ring),
    (Collective::ReduceScatter, &Pairwise),
    (Collective::AllGather, &Pairwise),
    (Collective::AllGather, &Ring),
    (Collective::Broadcast, &Binomial),
    (Collective::Scatter, &Binomial),
    (Collective::Gather, &Binomial),
    (Collective::Reduce, &Binomial),
    (Collective::Broadcast, &Chain),
    (Collective::Reduce, &Chain),
    (Collective::AllToAll, &Linear),
    (Collective::AllToAll, &Pairwise),
    (Collective::Scan, &Chain),
    (Collective::ExclusiveScan, &Chain),
    (Collective::AllReduce, &Circulant),
    (Collective::ReduceScatter, &Circulant),
    (Collective::AllGather, &Circulant),
    (Collective::Broadcast, &ScatterAllGather),
    (Collective::Scan, &PrefixDoubling),
    (Collective::ExclusiveScan, &PrefixDoubling),
    (Collective::Reduce, &ReduceScatterGather),
    (Collective::AllReduce, &DoubleTree),
    (Collective::Broadcast, &DoubleTree),
    (Collective::Reduce, &DoubleTree),
    (Collective::AllReduce, &RecursiveHalving),
    (Collective::ReduceScatter, &RecursiveHalving),
    (Collective::AllGather, &RecursiveHalving),
    (Collective::AllToAll, &Bruck),
];

/// Group sizes of the suite.
pub const SIZES: [usize; 11] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 16];

/// Counts of the suite for a group size: fewer values than ranks, about one chunk of 4096 values,
/// and many chunks.
#[must_use]
pub fn counts(size: usize) -> [usize; 7] {
    [0, 1, size - 1, 4095, 4096, 4097, 100_003]
}

/// One case.
#[derive(Clone, Copy)]
#[allow(missing_docs)]
pub struct Case {
    pub collective: Collective,
    pub schedule: &'static dyn Schedule,
    pub pipeline: Pipeline,
    pub codec: CodecId,
    pub op: Operation,
    pub dtype: DType,
    pub size: usize,
    pub count: usize,
    pub root: usize,
    pub in_place: bool,
    pub bound: Bound,
    pub scope: Scope,
    /// True if the data has NaN, infinities and NetCDF's fill value, about 1e37.
    pub rough: bool,
    /// Division of the array in an all-reduce.
    pub division: Division,
    /// Source of the value range for a relative bound.
    pub sampling: Sampling,
    /// Rounding of input values to a lattice.
    pub rounding: Rounding,
    /// False if the call works message by message.
    pub overlaps: bool,
    /// Most lanes of the call; 0: as many as the communicator has.
    pub lanes: usize,
    /// Division of the values among ranks, if the call can take counts.
    pub deal: Deal,
    /// Number of consecutive ranks known to share a node, for two levels; 1 if the layout is
    /// unknown.
    pub per_node: usize,
}

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} by {}, {} x {}, {:?}, {}, {} values on {} ranks, root {}, {}, {:?} {:?}, \
             {:?}{}{}{}",
            self.collective.name(),
            self.schedule.name(),
            self.pipeline.name,
            self.codec.name(),
            self.op,
            self.dtype,
            self.count,
            self.size,
            self.root,
            if self.in_place { "in place" } else { "out of place" },
            self.bound,
            self.scope,
            self.division,
            if self.rough { ", rough" } else { "" },
            if self.rounding == Rounding::Nearest { "" } else { ", unbiased" },
            if self.overlaps { "" } else { ", message by message" },
        )?;
        if self.lanes != 0 {
            write!(f, ", at most {} lanes", self.lanes)?;
        }
        match (self.deal, self.collective) {
            (Deal::Even, _) => Ok(()),
            (_, Collective::AllToAll) => {
                let counts: Vec<Counts> = (0..self.size).map(|rank| self.counts(rank)).collect();
                write!(f, ", {counts:?}")
            }
            _ => write!(f, ", {:?}", self.counts(0)),
        }
    }
}

/// Number of choices on each axis of the product, in the order of [`axis`].
const AXES: [usize; 16] = [
    ROUTES.len(),
    pipeline::ALL.len(),
    CODECS.len(),
    Operation::ALL.len(),
    DType::FLOATS.len(),
    SIZES.len(),
    7, // counts
    3, // roots
    2, // in place or not
    BOUNDS.len(),
    SCOPES.len(),
    2, // smooth or rough data
    2, // divisions
    2, // samplings
    ROUNDINGS.len(),
    3, // overlapping on all lanes or on two, or message by message
];
/// Index of each axis.
mod axis {
    pub(super) const ROUTE: usize = 0;
    pub(super) const PIPELINE: usize = 1;
    pub(super) const CODEC: usize = 2;
    pub(super) const OP: usize = 3;
    pub(super) const TYPE: usize = 4;
    pub(super) const SIZE: usize = 5;
    pub(super) const COUNT: usize = 6;
    pub(super) const ROOT: usize = 7;
    pub(super) const IN_PLACE: usize = 8;
    pub(super) const BOUND: usize = 9;
    pub(super) const SCOPE: usize = 10;
    pub(super) const ROUGH: usize = 11;
    pub(super) const DIVISION: usize = 12;
    pub(super) const SAMPLING: usize = 13;
    pub(super) const ROUNDING: usize = 14;
    pub(super) const OVERLAP: usize = 15;
}

/// Index of the choice on each axis.
type Indices = [usize; AXES.len()];

/// One codec of each kind that the engine distinguishes: by loss, by whether encoding a decoded
/// value is exact, and by the operations on frames. Every other codec is like one of these.
pub const CODECS: [CodecId; 5] =
    [CodecId::Raw, CodecId::FzLight, CodecId::Truncate, CodecId::XorLz, CodecId::Szx];

/// Codec that values of this type use if `codec` is requested.
fn coding(codec: CodecId, dtype: DType) -> CodecId {
    Plan::raw().with_codec(codec).for_values(dtype).codec
}

/// Returns for each axis whether its choice has an effect.
fn effective_axes(i: &Indices) -> [bool; AXES.len()] {
    let collective = ROUTES[i[axis::ROUTE]].0;
    let of_all = needs_all(collective);
    let codec = coding(CODECS[i[axis::CODEC]], DType::FLOATS[i[axis::TYPE]]);
    let is_lossy = codec.loss() == Loss::Bound;
    let op = Operation::ALL[i[axis::OP]];
    let amplifies = matches!(op, Operation::Prod | Operation::Norm);
    // The suite requests no bound on the result in three cases. Products and norms amplify errors.
    // In reductions of rough data, rounding at a fill value of 1e37 exceeds every bound. In
    // reductions in 16-bit types, rounding exceeds the suite's bounds.
    let is_narrow = matches!(DType::FLOATS[i[axis::TYPE]], DType::F16 | DType::Bf16);
    let has_bound = !collective.reduces() || !amplifies && !is_narrow && i[axis::ROUGH] == 0;
    let on_result = has_bound && SCOPES[i[axis::SCOPE]] == Scope::Result;
    let mut has_effect = [true; AXES.len()];
    // Scans have no average.
    has_effect[axis::OP] = collective.reduces() && !(collective.is_scan() && op == Operation::Avg);
    has_effect[axis::ROOT] = !of_all && !collective.is_scan();
    has_effect[axis::IN_PLACE] = of_all
        || collective.is_scan()
        || matches!(collective, Collective::Reduce | Collective::Gather);
    has_effect[axis::BOUND] = is_lossy;
    has_effect[axis::SCOPE] = is_lossy && has_bound;
    has_effect[axis::DIVISION] = collective == Collective::AllReduce;
    // A sample is taken only to find a value range.
    has_effect[axis::SAMPLING] =
        is_lossy && BOUNDS[i[axis::BOUND]].needs_value_range() && !on_result;
    // A rank rounds its input in the memory of the result, which must be large enough for it.
    let can_round = match collective {
        Collective::AllReduce | Collective::AllGather => true,
        Collective::ReduceScatter => i[axis::IN_PLACE] == 1,
        _ => false,
    };
    has_effect[axis::ROUNDING] = is_lossy && codec.has_lattice() && can_round;
    has_effect
}

/// The same case with the first choice on every axis without effect.
fn normalised(i: Indices) -> Indices {
    let has_effect = effective_axes(&i);
    std::array::from_fn(|axis| if has_effect[axis] { i[axis] } else { 0 })
}

impl Case {
    /// The case of this size with these choices on the other axes.
    fn of_size(size: usize, i: Indices) -> Self {
        let i = normalised(i);
        let (collective, schedule) = ROUTES[i[axis::ROUTE]];
        Self {
            collective,
            schedule,
            pipeline: pipeline::ALL[i[axis::PIPELINE]],
            codec: CODECS[i[axis::CODEC]],
            op: Operation::ALL[i[axis::OP]],
            dtype: DType::FLOATS[i[axis::TYPE]],
            size,
            count: counts(size)[i[axis::COUNT]],
            root: [0, size - 1, size / 2][i[axis::ROOT]],
            in_place: i[axis::IN_PLACE] == 1,
            bound: BOUNDS[i[axis::BOUND]],
            scope: SCOPES[i[axis::SCOPE]],
            rough: i[axis::ROUGH] == 1,
            division: [Division::Blocks, Division::Interleaved][i[axis::DIVISION]],
            sampling: [Sampling::Always, Sampling::Never][i[axis::SAMPLING]],
            rounding: ROUNDINGS[i[axis::ROUNDING]],
            overlaps: i[axis::OVERLAP] != 1,
            lanes: if i[axis::OVERLAP] == 2 { 2 } else { 0 },
            deal: Deal::Even,
            per_node: 1,
        }
    }

    /// Minimum frame size in bytes for the case's schedule.
    #[must_use]
    pub fn min_frame_bytes(&self) -> usize {
        let call = ProgramSpec::new(self.collective, self.size, Rank(0)).with_nodes(self.per_node);
        let n_parts = self.schedule.min_run(call);
        let params = CodecParams::new(Quantum::LOSSLESS).at(Level::Scalar);
        let codec = Sizes::new(self.codec, self.dtype, params);
        match layout::max_segment(&codec, 0, n_parts) {
            Err(Error::FrameTooSmall { need, .. }) => need.max(MIN_FRAME_BYTES),
            other => panic!("no frame fits in no bytes: {other:?}"),
        }
    }

    /// Returns whether a rank with this case and a rank with the case `other` make the same call,
    /// or calls whose difference no rank can detect. Both cases must come from [`Choice`]s.
    /// [`in_place`](Self::in_place) may differ, because each rank decides that for itself.
    #[must_use]
    pub fn is_same_call(&self, other: &Self) -> bool {
        let parts = |case: &Self| {
            let data = (case.dtype, case.size, case.count, case.rough);
            let call = (case.collective, case.schedule.name(), case.op, case.root, case.division);
            let plan = case.plan().for_values(case.dtype);
            let bound = plan.bound.filter(|_| plan.codec.loss() == Loss::Bound);
            let agreed = (bound, case.scope, case.sampling, case.rounding);
            (data, call, plan.pipeline_in_use().code(), plan.codec, agreed)
        };
        parts(self) == parts(other)
            && (0..self.size).all(|rank| self.counts(rank) == other.counts(rank))
    }

    /// The plan of the case.
    #[must_use]
    pub fn plan(&self) -> Plan {
        let plan = Plan::raw()
            .with_schedule(self.schedule)
            .with_pipeline(self.pipeline)
            .with_bound(self.bound)
            .with_codec(self.codec)
            .with_scope(self.scope)
            .with_division(self.division)
            .with_sampling(self.sampling)
            .with_rounding(self.rounding)
            .with_lanes(self.lanes);
        if self.overlaps { plan } else { plan.without_overlap() }
    }

    /// Codec that values of the case's type use.
    #[must_use]
    pub fn coding(&self) -> CodecId {
        coding(self.codec, self.dtype)
    }

    fn input<T: Float>(&self, rank: usize) -> Vec<T> {
        if self.rough { data::rough(rank, self.count) } else { data::smooth(rank, self.count) }
    }

    /// Returns whether the result replaces the operand. In an all-to-all that requires equal
    /// shares.
    fn is_in_place(&self) -> bool {
        let has_equal = self.deal == Deal::Even && self.count.is_multiple_of(self.size);
        self.in_place && (self.collective != Collective::AllToAll || has_equal)
    }

    /// Range of the logical array that `rank` ends with; empty if the rank has no result. In an
    /// all-to-all, the range of its result.
    fn result_range(&self, rank: usize) -> Range<usize> {
        match self.collective {
            Collective::AllToAll => 0..self.n_received(rank),
            Collective::ReduceScatter | Collective::Scatter => self.share(rank),
            Collective::Gather | Collective::Reduce if rank != self.root => 0..0,
            Collective::ExclusiveScan if rank == 0 => 0..0,
            _ => 0..self.count,
        }
    }
}

/// A choice on every axis, for groups of any size and short arrays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    indices: Indices,
    deal: Deal,
}

impl Choice {
    /// Random choices, with values divided evenly.
    pub fn draw(random: &mut Random) -> Self {
        Self { indices: AXES.map(|n| random.below(n)), deal: Deal::Even }
    }

    /// The same choices with values divided by `deal`. Returns them unchanged if the collective has
    /// no call with counts, or if the schedule does not support it.
    #[must_use]
    pub fn dealt(self, deal: Deal) -> Self {
        let (collective, schedule) = ROUTES[self.indices[axis::ROUTE]];
        let passes_on = schedule.passes_on(ProgramSpec::new(collective, 2, Rank(0)));
        if deal::takes_counts(collective) && !passes_on { Self { deal, ..self } } else { self }
    }

    /// These choices for a later array of a group call. The array keeps its bound and its count,
    /// and takes the other choices from the group's `first` array.
    #[must_use]
    pub fn in_group_of(&self, first: &Self) -> Self {
        let mut indices = first.indices;
        if ROUTES[indices[axis::ROUTE]].0 != Collective::AllReduce {
            indices[axis::ROUTE] = 0;
        }
        for axis in [axis::COUNT, axis::BOUND] {
            indices[axis] = self.indices[axis];
        }
        indices[axis::IN_PLACE] = 1;
        // Arrays of a group have bounds, and a codec whose loss is a setting keeps no bound.
        if CODECS[indices[axis::CODEC]].loss() == Loss::Setting {
            indices[axis::CODEC] = 0;
        }
        Self { indices, deal: Deal::Even }
    }

    /// Returns whether ranks pass counts to the call, because their shares are uneven.
    #[must_use]
    pub const fn has_counts(&self) -> bool {
        matches!(self.deal, Deal::Uneven(_))
    }

    /// The same choices with one changed at random, for a rank whose call disagrees with the other
    /// ranks' calls. The group size and the kind of data stay the same, and so does overlap: with
    /// one lane no rank could detect a difference.
    #[must_use]
    pub fn twisted(self, random: &mut Random) -> Self {
        let may_differ = |axis: &usize| ![axis::SIZE, axis::ROUGH, axis::OVERLAP].contains(axis);
        let axes: Vec<usize> = (0..AXES.len()).filter(may_differ).collect();
        let axis = *random.pick(&axes);
        let mut indices = self.indices;
        indices[axis] = (indices[axis] + 1 + random.below(AXES[axis] - 1)) % AXES[axis];
        Self { indices, deal: Deal::Even }.dealt(self.deal)
    }

    /// The chosen group size.
    #[must_use]
    pub const fn size(&self) -> usize {
        SIZES[self.indices[axis::SIZE]]
    }

    /// The case of these choices on `size` ranks with a short array.
    #[must_use]
    pub fn short_case(&self, size: usize) -> Case {
        let count = [0, 1, size - 1, 31, 100, 500, 2000][self.indices[axis::COUNT]];
        Case { count, deal: self.deal, ..Case::of_size(size, self.indices) }
    }
}

/// Cases to start from; callers change single fields.
impl Case {
    /// An all-reduce of smooth `f32` data with Foldwire's own plan.
    #[must_use]
    pub fn all_reduce(size: usize, count: usize) -> Self {
        Self {
            collective: Collective::AllReduce,
            schedule: schedule::default_for(Collective::AllReduce),
            pipeline: pipeline::FUSED,
            codec: CodecId::FzLight,
            op: Operation::Sum,
            dtype: DType::F32,
            size,
            count,
            root: 0,
            in_place: true,
            bound: Bound::Absolute(1e-3),
            scope: Scope::PerOperand,
            rough: false,
            division: Division::Interleaved,
            sampling: Sampling::Auto,
            rounding: Rounding::Nearest,
            overlaps: true,
            lanes: 0,
            deal: Deal::Even,
            per_node: 1,
        }
    }
}
