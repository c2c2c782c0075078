//! The exchanges of the model's time steps, with one method to compress messages.

use std::time::{Duration, Instant};

use foldwire::codec::Loss;
use foldwire::{
    Bound, Collective, Communicator, Error, InterStep, Plan, Preset, Report, Transport,
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
        let codec = |plan: Plan| Self { plan, inter_step: None };
        // CAM's codecs keep no bound, so this bound is never used.
        let preset = |preset: Preset| preset.plan(Collective::AllToAll, Bound::Absolute(1.0));
        let lossy = preset(Preset::CamLossy32);
        let inter =
            |n_dropped| Self { plan: preset(Preset::CamInter), inter_step: Some(n_dropped) };
        [
            ("raw", codec(Plan::raw())),
            ("cam-intra", codec(preset(Preset::CamIntra))),
            ("cam-inter", inter(0)),
            ("cam-lossy32", codec(lossy)),
            // Drops the low 40 bits of each value instead of 32.
            ("cam-lossy40", codec(lossy.with_setting(40))),
            ("cam-sp", codec(preset(Preset::CamSp))),
            // Both methods: differences, as in cam-inter, and dropped bits, as in cam-lossy32.
            ("cam-both", inter(32)),
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

/// One rank's exchanges, with their time and traffic.
pub(super) struct MeteredExchange<'c, X: Transport> {
    comm: &'c mut Communicator<X>,
    method: &'c CompressionMethod,
    /// Messages of the previous step. `halos` has an entry per kind of halo, for sending and
    /// receiving, and for the south and north side. `transposes` has an entry per direction, for
    /// sending and receiving.
    halos: [[[MessageHistory; 2]; 2]; 3],
    transposes: [[MessageHistory; 2]; 2],
    pub(super) report: Report,
    /// Time in exchanges, including the computation of differences.
    pub(super) exchanging: Duration,
}

impl<'c, X: Transport> MeteredExchange<'c, X> {
    pub(super) fn new(comm: &'c mut Communicator<X>, method: &'c CompressionMethod) -> Self {
        let (halos, transposes) = Default::default();
        let (report, exchanging) = (Report::default(), Duration::ZERO);
        Self { comm, method, halos, transposes, report, exchanging }
    }

    fn exchange_halo(
        &mut self,
        halo: HaloKind,
        own: [&[f64]; 2],
        theirs: [&mut [f64]; 2],
    ) -> Result<(), Error> {
        let plan = &self.method.plan;
        let Some(n_dropped) = self.method.inter_step else {
            self.report += HaloPlanes { own, theirs }.exchange(self.comm, plan)?;
            return Ok(());
        };
        let [sent, received] = &mut self.halos[halo as usize];
        let [south, north] = sent;
        let own = [south.difference(own[0], n_dropped)?, north.difference(own[1], n_dropped)?];
        let [south, north] = theirs;
        self.report +=
            HaloPlanes { own, theirs: [&mut *south, &mut *north] }.exchange(self.comm, plan)?;
        let (rank, last) = (self.comm.rank().index(), self.comm.size() - 1);
        // A rank at a pole has no neighbour there, and received nothing.
        if rank > 0 {
            received[0].restore(south, n_dropped)?;
        }
        if rank < last {
            received[1].restore(north, n_dropped)?;
        }
        Ok(())
    }

    fn exchange_blocks(
        &mut self,
        direction: TransposeDirection,
        (send, n_sent): (&[f64], &[usize]),
        (recv, n_received): (&mut [f64], &[usize]),
    ) -> Result<(), Error> {
        let plan = &self.method.plan;
        let [sent, received] = &mut self.transposes[direction as usize];
        let message = match self.method.inter_step {
            Some(n_dropped) => sent.difference(send, n_dropped)?,
            None => send,
        };
        self.report += self.comm.all_to_all_v(message, n_sent, recv, n_received, plan)?;
        if let Some(n_dropped) = self.method.inter_step {
            received.restore(recv, n_dropped)?;
            // A rank's own block does not travel, so it loses no bits.
            let rank = self.comm.rank().index();
            let [from, to] = [n_sent, n_received].map(|n| n[..rank].iter().sum::<usize>());
            recv[to..][..n_received[rank]].copy_from_slice(&send[from..][..n_sent[rank]]);
        }
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
        let begun = Instant::now();
        self.exchange_halo(halo, own, theirs)?;
        self.exchanging += begun.elapsed();
        Ok(())
    }

    fn transpose(
        &mut self,
        direction: TransposeDirection,
        send: (&[f64], &[usize]),
        recv: (&mut [f64], &[usize]),
    ) -> Result<(), Error> {
        let begun = Instant::now();
        self.exchange_blocks(direction, send, recv)?;
        self.exchanging += begun.elapsed();
        Ok(())
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
    fn difference(&mut self, values: &[f64], n_dropped: u32) -> Result<&[f64], Error> {
        self.previous.resize(values.len(), 0.0);
        self.difference.resize(values.len(), 0.0);
        InterStep::new(&mut self.previous)
            .dropping(n_dropped)?
            .difference(values, &mut self.difference)?;
        Ok(&self.difference)
    }

    fn restore(&mut self, received: &mut [f64], n_dropped: u32) -> Result<(), Error> {
        self.previous.resize(received.len(), 0.0);
        InterStep::new(&mut self.previous).dropping(n_dropped)?.restore(received)
    }
}
