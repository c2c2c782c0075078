//! One point of the product collective × schedule × pipeline × codec × op × type × size × count × …

use crate::{Backend, data, oracle};
use foldwire::codec::CodecId;
use foldwire::layout::Division;
use foldwire::pipeline::{self, Pipeline};
use foldwire::schedule::{
    self, Binomial, Call, Chain, Pairwise, RecursiveDoubling, Ring, Schedule,
};
use foldwire::{
    Bound, Collective, Communicator, Element, Error, Op, Plan, Rank, Report, Sampling, Scope,
    Transport,
};
use std::fmt;
use std::ops::Range;

/// The reductions of the suite.
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
    /// All of them.
    pub const ALL: [Self; 6] = [Self::Sum, Self::Avg, Self::Min, Self::Max, Self::Prod, Self::Norm];

    /// The library's operation.
    #[must_use]
    pub fn op<T: Element>(self) -> Op<'static, T> {
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

/// The ways to write the bound.
pub const BOUNDS: [Bound; 3] = [Bound::Absolute(1e-3), Bound::Relative(1e-3), Bound::Psnr(70.0)];

/// Every collective with every schedule that has it.
pub const ROUTES: [(Collective, &dyn Schedule); 13] = [
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
];

/// The sizes of the suite.
pub const SIZES: [usize; 11] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 16];

/// The counts of the suite for a size.
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
    pub is_f64: bool,
    pub size: usize,
    pub count: usize,
    pub root: usize,
    pub in_place: bool,
    pub bound: Bound,
    pub scope: Scope,
    /// NaN, infinities and fill values in the data.
    pub rough: bool,
    /// How an all-reduce divides the array.
    pub division: Division,
    /// Where a relative bound takes the range from.
    pub sampling: Sampling,
}

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} by {}, {} x {}, {:?}, {}, {} values on {} ranks, root {}, {}, {:?} {:?}, {:?}{}",
            self.collective.name(),
            self.schedule.name(),
            self.pipeline.name,
            self.codec.name(),
            self.op,
            if self.is_f64 { "f64" } else { "f32" },
            self.count,
            self.size,
            self.root,
            if self.in_place { "in place" } else { "out of place" },
            self.bound,
            self.scope,
            self.division,
            if self.rough { ", rough" } else { "" },
        )
    }
}

/// The lengths of the axes of the product, in the order of [`Case::from_indices`].
const AXES: [usize; 14] = [13, 5, 2, 6, 2, 11, 7, 3, 2, 3, 2, 2, 2, 2];

impl Case {
    /// The case with these choices on the axes.
    fn from_indices(i: [usize; AXES.len()]) -> Self {
        Self::of_size(SIZES[i[5]], i)
    }

    /// The case with these choices on the other axes and this size.
    fn of_size(size: usize, i: [usize; AXES.len()]) -> Self {
        let (collective, schedule) = ROUTES[i[0]];
        let op = Operation::ALL[i[3]];
        let scope = [Scope::PerOperand, Scope::Result][i[10]];
        // The result of a product has no bound to ask for, and next to a fill value of 1e37 no result
        // in floats is within it.
        let rough = i[11] == 1;
        let unbounded = rough || matches!(op, Operation::Prod | Operation::Norm);
        let scope = if unbounded { Scope::PerOperand } else { scope };
        Self {
            collective,
            schedule,
            pipeline: pipeline::ALL[i[1]],
            codec: CodecId::ALL[i[2]],
            op,
            is_f64: i[4] == 1,
            size,
            count: counts(size)[i[6]],
            root: [0, size - 1, size / 2][i[7]],
            in_place: i[8] == 1,
            bound: BOUNDS[i[9]],
            scope,
            rough,
            division: [Division::Blocks, Division::Interleaved][i[12]],
            sampling: [Sampling::Always, Sampling::Never][i[13]],
        }
    }

    /// The plan of the case.
    #[must_use]
    pub fn plan(&self) -> Plan {
        Plan {
            schedule: Some(self.schedule),
            pipeline: self.pipeline,
            codec: self.codec,
            bound: Some(self.bound),
            scope: self.scope,
            division: self.division,
            sampling: self.sampling,
        }
    }

    /// Runs the case, checks every rank's result, and returns digests of them.
    ///
    /// # Panics
    /// If a result is wrong, naming the case.
    pub fn check<B: Backend>(&self, backend: &B) -> Vec<u64> {
        if self.is_f64 {
            self.check_as::<f64, B>(backend)
        } else {
            self.check_as::<f32, B>(backend)
        }
    }

    fn input<T: Element>(&self, rank: usize) -> Vec<T> {
        if self.rough { data::rough(rank, self.count) } else { data::smooth(rank, self.count) }
    }

    fn share(&self, rank: usize) -> Range<usize> {
        foldwire::layout::share(self.count, self.size, rank)
    }

    /// The part of the logical array that `rank` ends with, if any.
    fn result_range(&self, rank: usize) -> Range<usize> {
        match self.collective {
            Collective::ReduceScatter | Collective::Scatter => self.share(rank),
            Collective::Gather | Collective::Reduce if rank != self.root => 0..0,
            _ => 0..self.count,
        }
    }

    fn check_as<T: Element, B: Backend>(&self, backend: &B) -> Vec<u64> {
        let outcomes = backend.run(self.size, |mut comm| {
            let outcome = self.run_rank::<T, _>(&mut comm);
            outcome.unwrap_or_else(|error| panic!("{self:?}, rank {}: {error}", comm.rank()))
        });
        let inputs = self.inputs();
        for (rank, (result, report)) in backend.ranks(self.size).zip(&outcomes) {
            self.check_rank(rank, result, report, &inputs);
        }
        let digests = outcomes.iter().map(|(result, _)| data::digest(result)).collect();
        let digests = backend.gather(digests);
        assert_eq!(digests.len(), self.size, "{self:?}: ranks are missing");
        if self.ends_everywhere() {
            for (rank, digest) in digests.iter().enumerate() {
                assert!(*digest == digests[0], "{self:?}: rank {rank} differs from rank 0");
            }
        }
        digests
    }

    /// Every rank's own array, by rank.
    #[must_use]
    pub fn inputs<T: Element>(&self) -> Vec<Vec<T>> {
        (0..self.size).map(|rank| self.input(rank)).collect()
    }

    /// Whether all ranks end with the same values.
    #[must_use]
    pub fn ends_everywhere(&self) -> bool {
        matches!(
            self.collective,
            Collective::AllReduce | Collective::AllGather | Collective::Broadcast
        )
    }

    /// Compares one rank's result, as [`run_rank`](Self::run_rank) gives it, with what all ranks'
    /// [`inputs`](Self::inputs) make.
    ///
    /// # Panics
    /// If it is wrong.
    pub fn check_rank<T: Element>(
        &self,
        rank: usize,
        result: &[T],
        report: &Report,
        inputs: &[Vec<T>],
    ) {
        let call =
            Call { collective: self.collective, size: self.size, root: Rank::new(self.root) };
        let encodings = self.schedule.n_encodings(call).max(self.size as u64) as f64 + 1.0;
        let bound_on_result = (self.scope == Scope::Result && self.codec != CodecId::Raw)
            .then(|| self.absolute_bound(inputs));
        let range = self.result_range(rank);
        assert_eq!(result.len(), range.len(), "{self:?}, rank {rank}");
        for (&got, i) in result.iter().zip(range) {
            let context = || format!("{self:?}, rank {rank}, value {i}: {report:?}");
            let error = self.check_value(got, i, inputs, report, encodings, &context);
            assert!(bound_on_result.is_none_or(|bound| error <= bound), "{}", context());
        }
    }

    /// Asserts that one value is right; returns its error.
    fn check_value<T: Element>(
        &self,
        got: T,
        i: usize,
        inputs: &[Vec<T>],
        report: &Report,
        encodings: f64,
        context: &dyn Fn() -> String,
    ) -> f64 {
        let got = got.to_f64();
        if !self.collective.reduces() {
            let owner = match self.collective {
                Collective::Broadcast | Collective::Scatter => self.root,
                _ => (0..self.size).find(|&r| self.share(r).contains(&i)).unwrap_or(0),
            };
            let sent = inputs[owner][i].to_f64();
            let same = got == sent || (got.is_nan() && sent.is_nan());
            let error = if same { 0.0 } else { (got - sent).abs() };
            assert!(error <= report.bound, "{}: {sent} became {got}", context());
            return error;
        }
        let operands: Vec<f64> = inputs.iter().map(|x| x[i].to_f64()).collect();
        let exact = oracle::reduce(self.op, &operands);
        let rounded = T::from_f64(exact).to_f64();
        if !rounded.is_finite() {
            // Beyond T, or not a number to begin with. A product may get there on one way and not on another.
            let same = got == rounded || (got.is_nan() && rounded.is_nan());
            assert!(same || self.multiplies(), "{}: {exact} became {got}", context());
            return 0.0;
        }
        if self.multiplies() && operands.iter().any(|x| x.abs() > 1e30) {
            // Products and norms of fill values move by the bound times the other operands.
            return 0.0;
        }
        let (bound, worst_case) = (report.bound, report.worst_case);
        let allowed = oracle::tolerance::<T>(self.op, &operands, bound, worst_case, encodings);
        assert!(
            (got - exact).abs() <= allowed,
            "{}: {exact} became {got}, off by {:e} of {allowed:e}",
            context(),
            (got - exact).abs()
        );
        (got - exact).abs()
    }

    fn multiplies(&self) -> bool {
        matches!(self.op, Operation::Prod | Operation::Norm)
    }

    /// The case's bound in the unit of the data.
    fn absolute_bound<T: Element>(&self, inputs: &[Vec<T>]) -> f64 {
        let finite = || inputs.iter().flatten().map(|x| x.to_f64()).filter(|x| x.is_finite());
        let (min, max) = finite().fold((f64::MAX, f64::MIN), |(a, b), x| (a.min(x), b.max(x)));
        let extent = (min <= max).then_some(foldwire::bound::Extent { min, max });
        self.bound.absolute(extent).unwrap_or(f64::NAN)
    }

    /// One rank's call: its result (empty where it has none) and report.
    ///
    /// # Errors
    /// The call's.
    pub fn run_rank<T: Element, X: Transport>(
        &self,
        comm: &mut Communicator<X>,
    ) -> Result<(Vec<T>, Report), Error> {
        let rank = comm.rank().index();
        let (plan, op, root) = (&self.plan(), self.op.op::<T>(), Rank::new(self.root));
        let mut data = self.input::<T>(rank);
        let (share, result) = (self.share(rank), self.result_range(rank));
        let garbage = T::from_f64(-77.0);
        let mut recv = vec![garbage; result.len()];
        let report = match (self.collective, self.in_place) {
            (Collective::AllReduce, true) => comm.all_reduce(&mut data, op, plan),
            (Collective::AllReduce, false) => comm.all_reduce_into(&data, &mut recv, op, plan),
            (Collective::ReduceScatter, true) => {
                let before = data.clone();
                let report = comm.reduce_scatter_in_place(&mut data, op, plan);
                let others = |x: &[T]| data::bits(&[&x[..share.start], &x[share.end..]].concat());
                assert!(others(&before) == others(&data), "{self:?}: other shares changed");
                report
            }
            (Collective::ReduceScatter, false) => comm.reduce_scatter(&data, &mut recv, op, plan),
            (Collective::AllGather, true) => {
                data[..share.start].fill(garbage);
                data[share.end..].fill(garbage);
                comm.all_gather_in_place(&mut data, plan)
            }
            (Collective::AllGather, false) => comm.all_gather(&data[share], &mut recv, plan),
            (Collective::Broadcast, in_place) => {
                if rank != self.root {
                    data.fill(garbage);
                }
                if !in_place {
                    recv.copy_from_slice(&data);
                    comm.broadcast(&mut recv, root, plan)
                } else {
                    comm.broadcast(&mut data, root, plan)
                }
            }
            (Collective::Scatter, _) => {
                let send = if rank == self.root { &data[..] } else { &[] };
                comm.scatter(self.count, send, &mut recv, root, plan)
            }
            (Collective::Gather, _) => comm.gather(self.count, &data[share], &mut recv, root, plan),
            (Collective::Reduce, true) => comm.reduce_in_place(&mut data, op, root, plan),
            (Collective::Reduce, false) => comm.reduce(&data, &mut recv, op, root, plan),
            (other, _) => panic!("the suite has no call for {}", other.name()),
        }?;
        let from_data =
            self.in_place && !matches!(self.collective, Collective::Scatter | Collective::Gather);
        Ok((if from_data { data[result].to_vec() } else { recv }, report))
    }
}

/// The whole product: about two million cases. Run a stride of it, or all of it on demand.
pub fn all() -> impl Iterator<Item = Case> {
    let total: usize = AXES.iter().product();
    (0..total).map(|mut index| {
        Case::from_indices(AXES.map(|n| {
            let choice = index % n;
            index /= n;
            choice
        }))
    })
}

/// Any case on groups of `size`.
#[must_use]
pub fn random_of(size: usize, random: &mut data::Random) -> Case {
    Case::of_size(size, AXES.map(|n| random.bits() as usize % n))
}

/// Few cases in which every pair of choices on two axes occurs.
#[must_use]
pub fn pairwise() -> Vec<Case> {
    cover().into_iter().map(Case::from_indices).collect()
}

/// The same cases, all on groups of `size`.
#[must_use]
pub fn pairwise_of(size: usize) -> Vec<Case> {
    cover().into_iter().map(|indices| Case::of_size(size, indices)).collect()
}

/// Indices in which every pair of choices on two axes occurs: greedy, deterministic.
fn cover() -> Vec<[usize; AXES.len()]> {
    let pairs = |i: &[usize; AXES.len()]| {
        let i = *i;
        (0..AXES.len()).flat_map(move |a| (0..a).map(move |b| (a, i[a], b, i[b])))
    };
    let mut missing = std::collections::BTreeSet::new();
    for (a, &choices) in AXES.iter().enumerate() {
        for (b, &others) in AXES[..a].iter().enumerate() {
            missing.extend((0..choices * others).map(|xy| (a, xy / others, b, xy % others)));
        }
    }
    let mut random = data::Random(42);
    let mut cases = Vec::new();
    while let Some(&(a, x, b, y)) = missing.iter().next() {
        // Of some candidates with the first missing pair, the one with most missing pairs.
        let candidates = (0..60).map(|_| {
            let mut indices = AXES.map(|n| random.bits() as usize % n);
            (indices[a], indices[b]) = (x, y);
            indices
        });
        let gain = |i: &[usize; AXES.len()]| pairs(i).filter(|pair| missing.contains(pair)).count();
        let Some(best) = candidates.max_by_key(gain) else { break };
        for pair in pairs(&best) {
            missing.remove(&pair);
        }
        cases.push(best);
    }
    cases
}

/// Cases that differ from `self` in one thing only.
impl Case {
    /// An all-reduce of smooth `f32` data by Foldwire's own way, to start from.
    #[must_use]
    pub fn all_reduce(size: usize, count: usize) -> Self {
        Self {
            collective: Collective::AllReduce,
            schedule: schedule::default_for(Collective::AllReduce),
            pipeline: pipeline::FUSED,
            codec: CodecId::FzLight,
            op: Operation::Sum,
            is_f64: false,
            size,
            count,
            root: 0,
            in_place: true,
            bound: Bound::Absolute(1e-3),
            scope: Scope::PerOperand,
            rough: false,
            division: Division::Interleaved,
            sampling: Sampling::Auto,
        }
    }
}
