//! The exchanges of the model's time steps, with one method to compress messages.

use std::ops::AddAssign;
use std::time::{Duration, Instant};

use foldwire::codec::Loss;
use foldwire::{
    Bound, Collective, Communicator, DType, Error, InterStep, Plan, Preset, Rank, Report, Transport,
};
use foldwire_sphere::{HaloKind, SphereExchange, TransposeDirection};

use crate::borders::HaloPlanes;

/// Method that compresses messages.
#[derive(Debug, Clone, Copy)]
pub(super) struct CompressionMethod {
    plan: Plan,
    /// Number of low bits to drop from each value, if messages hold differences from the previous
    /// step. `None` if messages hold the values themselves.
    inter_step: Option<u32>,
}

impl CompressionMethod {
    /// No compression, then the methods of CAM, the Community Atmosphere Model (source:
    /// [`Preset::CamIntra`]).
    pub(super) fn of_cam() -> [(&'static str, Self); 7] {
        let preset = |preset: Preset| Self {
            // CAM's codecs keep no bound, so this bound is never used.
            plan: preset.plan(Collective::AllToAll, Bound::Absolute(1.0)),
            inter_step: preset.inter_step(DType::F64),
        };
        let lossy = preset(Preset::CamLossy32);
        [
            ("raw", Self { plan: Plan::raw(), inter_step: None }),
            ("cam-intra", preset(Preset::CamIntra)),
            ("cam-inter", preset(Preset::CamInter)),
            ("cam-lossy32", lossy),
            // Drops the low 40 bits of each value instead of 32.
            ("cam-lossy40", Self { plan: lossy.plan.with_setting(40), ..lossy }),
            ("cam-sp", preset(Preset::CamSp)),
            ("cam-both", preset(Preset::CamBoth)),
        ]
    }

    /// Foldwire's own codec within this bound.
    pub(super) fn within(bound: Bound) -> Self {
        Self { plan: Plan::foldwire(bound), inter_step: None }
    }

    /// Returns whether all values arrive with the same bits.
    pub(super) fn is_exact(&self) -> bool {
        self.plan.codec.loss() == Loss::None && self.inter_step.is_none_or(|n| n == 0)
    }
}

/// Kinds of exchanges. CAM compresses the messages of all three.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ExchangeKind {
    /// Border rows, sent to the neighbours: CAM's `bndexch`.
    Halo,
    /// The transpositions: CAM's `realloc4a` and `realloc4b`.
    AllToAll,
    /// All heights, sent to rank 0.
    Gather,
}

impl ExchangeKind {
    pub(super) const ALL: [Self; 3] = [Self::Halo, Self::AllToAll, Self::Gather];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Halo => "halo",
            Self::AllToAll => "all-to-all-v",
            Self::Gather => "gather-v",
        }
    }
}

/// Messages and time of one kind of exchange.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Traffic {
    pub(super) report: Report,
    /// Time in exchanges, including the computation of differences.
    pub(super) elapsed: Duration,
    /// Time of the computation of differences.
    differencing: Duration,
    /// Values of the longest message, in a gather of the longest share, which may travel with
    /// others.
    pub(super) longest: usize,
}

impl Traffic {
    /// Time spent to compress and decompress, or to copy values that are not compressed. `None` if
    /// it was not measured, because calls do not time steps on so few values ([`Report::encode`]).
    pub(super) fn compressing(&self, kind: ExchangeKind) -> Option<Duration> {
        const FEWEST: usize = 1024;
        let Report { encode, fold, decode, .. } = self.report;
        let is_timed = kind == ExchangeKind::Halo || self.longest >= FEWEST;
        is_timed.then(|| encode + fold + decode + self.differencing)
    }
}

impl AddAssign for Traffic {
    fn add_assign(&mut self, other: Self) {
        self.report += other.report;
        self.elapsed += other.elapsed;
        self.differencing += other.differencing;
        self.longest = self.longest.max(other.longest);
    }
}

/// One rank's exchanges, with their time and traffic.
pub(super) struct MeteredExchange<'c, X: Transport> {
    comm: &'c mut Communicator<X>,
    method: &'c CompressionMethod,
    /// Messages of the previous step. `halos` has an entry per kind of halo, for sending and
    /// receiving, and for the south and north side. `transposes` has an entry per direction, for
    /// sending and receiving.
    halos: [[[MessageHistory; 2]; 2]; 3],
    transposes: [[MessageHistory; 2]; 2],
    gathers: [MessageHistory; 2],
    /// By kind of exchange.
    pub(super) traffic: [Traffic; 3],
}

impl<'c, X: Transport> MeteredExchange<'c, X> {
    pub(super) fn new(comm: &'c mut Communicator<X>, method: &'c CompressionMethod) -> Self {
        let (halos, transposes, gathers, traffic) = Default::default();
        Self { comm, method, halos, transposes, gathers, traffic }
    }

    /// Sends the values of each rank, `counts[rank]` many, to rank 0. There `all` becomes all
    /// values, and elsewhere nothing.
    ///
    /// # Errors
    /// Errors of the communicator.
    pub(super) fn gather(
        &mut self,
        values: &[f64],
        counts: &[usize],
        all: &mut Vec<f64>,
    ) -> Result<(), Error> {
        let rank = self.comm.rank();
        all.resize(if rank == Rank(0) { counts.iter().sum() } else { 0 }, 0.0);
        let n_sent = if rank == Rank(0) { 0 } else { values.len() };
        self.measure(ExchangeKind::Gather, n_sent, |this, differencing| {
            let plan = &this.method.plan;
            let [sent, received] = &mut this.gathers;
            let n_dropped = this.method.inter_step;
            let message = sent.message(values, n_dropped, differencing)?;
            let report = this.comm.gather_v(counts, message, all, Rank(0), plan)?;
            received.values(all, n_dropped, differencing)?;
            if let (Rank(0), Some(_)) = (rank, n_dropped) {
                // The root's own values do not travel, so they lose no bits.
                all[..values.len()].copy_from_slice(values);
            }
            Ok(report)
        })
    }

    fn exchange_halo(
        &mut self,
        halo: HaloKind,
        own: [&[f64]; 2],
        theirs: [&mut [f64]; 2],
        differencing: &mut Duration,
    ) -> Result<Report, Error> {
        let n_dropped = self.method.inter_step;
        let [[to_south, to_north], [from_south, from_north]] = &mut self.halos[halo as usize];
        let own = [
            to_south.message(own[0], n_dropped, differencing)?,
            to_north.message(own[1], n_dropped, differencing)?,
        ];
        let [south, north] = theirs;
        let planes = HaloPlanes { own, theirs: [&mut *south, &mut *north] };
        let report = planes.exchange(self.comm, &self.method.plan)?;
        let (rank, last) = (self.comm.rank().index(), self.comm.size() - 1);
        // A rank at a pole has no neighbour there, and received nothing.
        if rank > 0 {
            from_south.values(south, n_dropped, differencing)?;
        }
        if rank < last {
            from_north.values(north, n_dropped, differencing)?;
        }
        Ok(report)
    }

    fn exchange_blocks(
        &mut self,
        direction: TransposeDirection,
        (send, n_sent): (&[f64], &[usize]),
        (recv, n_received): (&mut [f64], &[usize]),
        differencing: &mut Duration,
    ) -> Result<Report, Error> {
        let [sent, received] = &mut self.transposes[direction as usize];
        let n_dropped = self.method.inter_step;
        let message = sent.message(send, n_dropped, differencing)?;
        let plan = &self.method.plan;
        let report = self.comm.all_to_all_v(message, n_sent, recv, n_received, plan)?;
        received.values(recv, n_dropped, differencing)?;
        if n_dropped.is_some() {
            // A rank's own block does not travel, so it loses no bits.
            let rank = self.comm.rank().index();
            let [from, to] = [n_sent, n_received].map(|n| n[..rank].iter().sum::<usize>());
            recv[to..][..n_received[rank]].copy_from_slice(&send[from..][..n_sent[rank]]);
        }
        Ok(report)
    }

    /// Adds an exchange, whose longest message has `longest` values, to the traffic of its kind.
    /// `exchange` adds the time of differences to its second argument.
    fn measure(
        &mut self,
        kind: ExchangeKind,
        longest: usize,
        exchange: impl FnOnce(&mut Self, &mut Duration) -> Result<Report, Error>,
    ) -> Result<(), Error> {
        let begun = Instant::now();
        let mut differencing = Duration::ZERO;
        let report = exchange(self, &mut differencing)?;
        let elapsed = begun.elapsed();
        self.traffic[kind as usize] += Traffic { report, elapsed, differencing, longest };
        Ok(())
    }
}

impl<X: Transport> SphereExchange for MeteredExchange<'_, X> {
    type Error = Error;

    fn halo(
        &mut self,
        halo: HaloKind,
        own: [&[f64]; 2],
        theirs: [&mut [f64]; 2],
    ) -> Result<(), Error> {
        let longest = if self.comm.size() > 1 { own[0].len().max(own[1].len()) } else { 0 };
        self.measure(ExchangeKind::Halo, longest, |this, differencing| {
            this.exchange_halo(halo, own, theirs, differencing)
        })
    }

    fn transpose(
        &mut self,
        direction: TransposeDirection,
        send: (&[f64], &[usize]),
        recv: (&mut [f64], &[usize]),
    ) -> Result<(), Error> {
        let rank = self.comm.rank().index();
        let others = send.1.iter().enumerate().filter(|(at, _)| *at != rank);
        let longest = others.map(|(_, &n)| n).max().unwrap_or(0);
        self.measure(ExchangeKind::AllToAll, longest, |this, differencing| {
            this.exchange_blocks(direction, send, recv, differencing)
        })
    }
}

/// Values of the previous message in a sequence, as its sender or its receiver keeps them.
#[derive(Debug, Default)]
struct MessageHistory {
    /// Values of the previous step. Empty before the first one.
    previous: Vec<f64>,
    difference: Vec<f64>,
}

impl MessageHistory {
    /// Returns what to send: the difference from the previous step, or the values themselves if
    /// `n_dropped` is `None`.
    fn message<'m>(
        &'m mut self,
        values: &'m [f64],
        n_dropped: Option<u32>,
        differencing: &mut Duration,
    ) -> Result<&'m [f64], Error> {
        let Some(n_dropped) = n_dropped else { return Ok(values) };
        let begun = Instant::now();
        self.previous.resize(values.len(), 0.0);
        self.difference.resize(values.len(), 0.0);
        InterStep::new(&mut self.previous)
            .dropping(n_dropped)?
            .difference(values, &mut self.difference)?;
        *differencing += begun.elapsed();
        Ok(&self.difference)
    }

    /// Converts what was received to values, in place.
    fn values(
        &mut self,
        received: &mut [f64],
        n_dropped: Option<u32>,
        differencing: &mut Duration,
    ) -> Result<(), Error> {
        let Some(n_dropped) = n_dropped else { return Ok(()) };
        let begun = Instant::now();
        self.previous.resize(received.len(), 0.0);
        InterStep::new(&mut self.previous).dropping(n_dropped)?.restore(received)?;
        *differencing += begun.elapsed();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use foldwire_threads::World;

    fn value(rank: usize, at: usize, step: usize) -> f64 {
        280.0 + (rank as f64 + at as f64 * 0.01 + step as f64 * 1e-3).sin()
    }

    fn values(rank: usize, n_values: usize, step: usize) -> Vec<f64> {
        (0..n_values).map(|at| value(rank, at, step)).collect()
    }

    /// Returns the value that arrives by this method.
    fn arrived(name: &str, x: f64) -> f64 {
        let without = |n_bits: u32| f64::from_bits(x.to_bits() >> n_bits << n_bits);
        match name {
            "cam-lossy32" | "cam-both" => without(32),
            "cam-lossy40" => without(40),
            "cam-sp" => f64::from(x as f32),
            _ => x,
        }
    }

    /// Runs `exchange` for some steps on each rank of each size, with each of CAM's methods.
    fn with_each_method(
        sizes: &[usize],
        exchange: impl Fn(&mut MeteredExchange<'_, foldwire_threads::Endpoint>, &str, usize) + Sync,
    ) {
        for &size in sizes {
            for (name, method) in &CompressionMethod::of_cam() {
                World::new(size).run(|mut comm| {
                    let mut side = MeteredExchange::new(&mut comm, method);
                    (0..3).for_each(|step| exchange(&mut side, name, step));
                });
            }
        }
    }

    #[test]
    fn a_gather_brings_all_values_to_rank_0_also_from_ranks_that_hold_none() {
        let counts = [7, 0, 2000, 1, 0];
        with_each_method(&[1, 2, 3, 5], |side, name, step| {
            let (rank, size) = (side.comm.rank().index(), side.comm.size());
            let counts = &counts[..size];
            let own = values(rank, counts[rank], step);
            let mut all = vec![0.0; 3];
            side.gather(&own, counts, &mut all).unwrap();
            let of = |from: usize| {
                let values = values(from, counts[from], step).into_iter();
                // The root's own values do not travel.
                values.map(move |x| if from == 0 { x } else { arrived(name, x) })
            };
            let want: Vec<f64> = (0..size).flat_map(of).collect();
            assert_eq!(all, if rank == 0 { want } else { Vec::new() }, "{name}");
            let longest = if rank == 0 { 0 } else { counts[rank] };
            assert_eq!(side.traffic[ExchangeKind::Gather as usize].longest, longest);
        });
    }

    /// The block from rank a to rank b has this many values: none to rank 2 and from rank 1.
    fn n_values(from: usize, to: usize) -> usize {
        if from == 1 || to == 2 { 0 } else { 3 + 500 * from + to }
    }

    #[test]
    fn a_transposition_delivers_every_block_also_to_ranks_that_hold_none() {
        with_each_method(&[1, 2, 3, 4], |side, name, step| {
            let (rank, size) = (side.comm.rank().index(), side.comm.size());
            let to: Vec<usize> = (0..size).map(|to| n_values(rank, to)).collect();
            let from: Vec<usize> = (0..size).map(|from| n_values(from, rank)).collect();
            let block = |from: usize, to: usize| values(from * size + to, n_values(from, to), step);
            let send: Vec<f64> = (0..size).flat_map(|to| block(rank, to)).collect();
            let mut recv = vec![0.0; from.iter().sum()];
            let direction = TransposeDirection::ToWaves;
            side.transpose(direction, (&send, &to), (&mut recv, &from)).unwrap();
            let of = |from: usize| {
                let values = block(from, rank).into_iter();
                values.map(move |x| if from == rank { x } else { arrived(name, x) })
            };
            let want: Vec<f64> = (0..size).flat_map(of).collect();
            assert_eq!(recv, want, "{name}");
        });
    }

    #[test]
    fn calls_on_few_values_have_no_time_of_compression_but_messages_have() {
        let traffic = |longest| Traffic { longest, ..Traffic::default() };
        assert_eq!(traffic(1023).compressing(ExchangeKind::AllToAll), None);
        assert_eq!(traffic(1024).compressing(ExchangeKind::AllToAll), Some(Duration::ZERO));
        assert_eq!(traffic(1).compressing(ExchangeKind::Halo), Some(Duration::ZERO));
    }
}
