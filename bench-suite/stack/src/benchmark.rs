//! Runs presets in turn, on the same threads and over the same links.
//!
//! All ranks stay alive during the whole benchmark. In each round every preset runs once, so that
//! disturbances of the machine affect all presets alike. Ranks start together behind a barrier. A
//! run lasts from the first rank's start to the last rank's end. The first round is a warm-up and
//! is not counted.

#[cfg(feature = "cuda")]
use foldwire::Call;
use foldwire::schedule::{Pairwise, ProgramSpec};
use foldwire::{Bound, Collective, Float, Op, Plan, Preset, Rank, Report};
use foldwire_threads::World;
#[cfg(feature = "cuda")]
use foldwire_workbench::device::DeviceArrays;
use foldwire_workbench::memory::median;
use foldwire_workbench::ranks;
use foldwire_workbench::threads::Pools;
use indicatif::ProgressBar;
use std::time::{Duration, Instant};

/// The presets to run, and their settings.
#[derive(Debug)]
pub(super) struct PresetBenchmark {
    pub(super) presets: Vec<Preset>,
    pub(super) bound: Bound,
    /// Bytes per second of each rank's link, each way.
    pub(super) link: Option<f64>,
    /// Number of counted rounds.
    pub(super) repeat: usize,
    /// Run presets as published, without the guarantee that all ranks get the same bits.
    pub(super) as_published: bool,
    /// Shape of each volume, slowest dimension first.
    pub(super) shape: Vec<usize>,
    /// Threads that each rank computes on, in all presets but the multi-threaded ones.
    pub(super) n_threads: usize,
    /// Thread pools of each rank.
    pub(super) pools: Vec<Pools>,
    /// The device whose memory holds volumes and results, if it is not the host's.
    #[cfg(feature = "cuda")]
    pub(super) device: foldwire_workbench::device::DeviceOption,
}

/// Rate in bytes per second below which a link is slow, so that a pairwise exchange takes less time
/// than a ring. For m bytes at ratio 5, the exchange saves 15 % of the 2·m/5 bytes on the link, and
/// spends about m / (4e9 bytes/s) on encoding. By this estimate both take the same time at this
/// rate. Measured over 1 Gbit/s between 8 ranks: 64 ms for the exchange, 70 ms for the ring.
const SLOW_LINK: f64 = 0.24e9;

/// Measurements and result of one preset.
#[derive(Debug)]
pub(super) struct PresetOutcome<T> {
    /// Time of each round.
    pub(super) times: Vec<Duration>,
    /// Each rank's report of the round whose time is closest to the median.
    pub(super) reports: Vec<Report>,
    /// Time of that round.
    pub(super) reported: Duration,
    /// Rank 0's result.
    pub(super) result: Vec<T>,
    /// True if all ranks had the same bits in the last round.
    pub(super) same_bits: bool,
}

impl<T> PresetOutcome<T> {
    /// Median time.
    pub(super) fn time(&self) -> Duration {
        median(&self.times)
    }
}

/// Start, end and report of one run on one rank.
struct RankRun {
    started: Instant,
    ended: Instant,
    report: Report,
}

impl PresetBenchmark {
    /// Number of runs of all presets, the warm-up included.
    pub(super) fn n_runs(&self) -> usize {
        self.presets.len() * (self.repeat + 1)
    }

    /// Returns the plan of a preset for shares of `n_bytes` bytes.
    ///
    /// Partial sums of images need more bits than a single image, because images are empty in
    /// different regions. On slow links Foldwire's ranks therefore exchange single images.
    fn plan(&self, preset: Preset, n_bytes: usize) -> Plan {
        let plan = preset.plan_for(Collective::AllReduce, self.bound, n_bytes);
        let plan = plan.with_shape(&self.shape);
        let plan = if self.as_published { plan.as_published() } else { plan };
        let is_slow = self.link.is_some_and(|rate| rate < SLOW_LINK);
        if preset == Preset::Foldwire && is_slow { plan.with_schedule(&Pairwise) } else { plan }
    }

    /// Runs the benchmark. `volumes` has one volume per rank.
    pub(super) fn run<T: Float>(
        &self,
        volumes: &[&[T]],
        progress: &ProgressBar,
    ) -> anyhow::Result<Vec<PresetOutcome<T>>> {
        let n_bytes = size_of_val(volumes[0]) / volumes.len();
        let plans: Vec<Plan> =
            self.presets.iter().map(|&preset| self.plan(preset, n_bytes)).collect();
        let call = ProgramSpec::new(Collective::AllReduce, volumes.len(), Rank(0));
        let whole = |plan| ranks::whole_message_bytes(plan, call, T::DTYPE, volumes[0].len());
        // Presets that work message by message have their own world, with longer frames.
        let long = plans.iter().filter_map(whole).max().unwrap_or(World::FRAME_BYTES);
        let long = ranks::world(volumes.len(), self.link).frame_bytes(long).communicators();
        let world = ranks::world(volumes.len(), self.link)
            .frame_bytes(ranks::frame_bytes(self.n_threads, T::DTYPE));
        let ranks = world.run_with(long, |mut comm, mut long| -> anyhow::Result<_> {
            let rank = comm.rank().index();
            #[cfg(feature = "cuda")]
            let mut arrays = match &self.device {
                Some(device) => {
                    let n = [volumes[rank].len(); 2];
                    let [one, other] =
                        [&comm, &long].map(|comm| DeviceArrays::new(device, comm, n));
                    Some([one?, other?])
                }
                None => None,
            };
            let mut results = vec![vec![T::from_f64(0.0); volumes[rank].len()]; plans.len()];
            let mut rounds = Vec::new();
            for _ in 0..=self.repeat {
                let mut round = Vec::new();
                let rows = self.presets.iter().zip(&plans);
                let count = || progress.inc(u64::from(rank == 0));
                for ((&preset, plan), result) in rows.zip(&mut results) {
                    #[cfg(feature = "cuda")]
                    let mut arrays =
                        arrays.as_mut().map(|both| &mut both[usize::from(!plan.overlaps())]);
                    let comm = if plan.overlaps() { &mut comm } else { &mut long };
                    comm.config_mut().threads = self.pools[rank].of(Some(preset));
                    #[cfg(feature = "cuda")]
                    if let Some(arrays) = &mut arrays {
                        arrays.upload(volumes[rank], result)?;
                    }
                    // This barrier also fails if a rank has failed since the last call.
                    comm.barrier()?;
                    let started = Instant::now();
                    #[cfg(feature = "cuda")]
                    if let Some(arrays) = &mut arrays {
                        let report = arrays.run(comm, plan, |send, recv| {
                            Call::all_reduce_into(send, recv, Op::Sum)
                        })?;
                        round.push(RankRun { started, ended: Instant::now(), report });
                        arrays.download(result)?;
                        count();
                        continue;
                    }
                    let report = comm.all_reduce_into(volumes[rank], result, Op::Sum, plan)?;
                    round.push(RankRun { started, ended: Instant::now(), report });
                    count();
                }
                rounds.push(round);
            }
            Ok((results, rounds))
        });
        let mut ranks = ranks::results(ranks)?;
        let outcomes = (0..plans.len()).map(|i| {
            // Round 0 is the warm-up.
            let time = |round: usize| {
                let runs = ranks.iter().map(|(_, rounds)| &rounds[round][i]);
                let start = runs.clone().map(|run| run.started).min();
                let end = runs.map(|run| run.ended).max();
                start.zip(end).map_or(Duration::ZERO, |(start, end)| end - start)
            };
            let times: Vec<Duration> = (1..=self.repeat).map(time).collect();
            let middle = median(&times);
            let chosen = (0..times.len()).min_by_key(|&k| times[k].abs_diff(middle)).unwrap_or(0);
            let reports = ranks.iter().map(|(_, rounds)| rounds[chosen + 1][i].report).collect();
            let bits = |rank: usize| bytemuck::cast_slice::<T, u8>(&ranks[rank].0[i]);
            let same_bits = (1..ranks.len()).all(|rank| bits(rank) == bits(0));
            let reported = times[chosen];
            PresetOutcome { times, reports, reported, result: Vec::new(), same_bits }
        });
        let mut outcomes: Vec<PresetOutcome<T>> = outcomes.collect();
        for (outcome, result) in outcomes.iter_mut().zip(&mut ranks[0].0) {
            outcome.result = std::mem::take(result);
        }
        Ok(outcomes)
    }
}

#[cfg(all(test, feature = "simulated"))]
mod tests {
    use super::*;
    use foldwire_cuda_host::{Faults, SimulatedDevice};
    use std::sync::mpsc;

    const N_RANKS: usize = 3;

    /// Runs the benchmark on ranks that share a device with these faults. Fails if it does not end.
    /// Returns the number of outcomes, and the place of the progress bar.
    fn outcome(faults: Faults) -> anyhow::Result<(usize, u64)> {
        let (send, receive) = mpsc::channel();
        std::thread::spawn(move || {
            let benchmark = PresetBenchmark {
                presets: vec![Preset::Raw, Preset::Foldwire],
                bound: Bound::Absolute(1e-3),
                link: None,
                repeat: 1,
                as_published: false,
                shape: vec![4000],
                n_threads: 1,
                pools: vec![Pools::NONE; N_RANKS],
                device: Some(SimulatedDevice::with_faults(faults)),
            };
            let volumes = vec![&[1.0_f32; 4000][..]; N_RANKS];
            let progress = ProgressBar::hidden();
            let outcomes = benchmark.run(&volumes, &progress);
            send.send(outcomes.map(|outcomes| (outcomes.len(), progress.position())))?;
            anyhow::Ok(())
        });
        receive.recv_timeout(Duration::from_secs(60)).expect("all ranks end")
    }

    #[test]
    fn a_rank_without_device_memory_ends_the_others() {
        let mut n_failed = 0;
        for n in (0..).step_by(23) {
            match outcome(Faults { allocations: Some(n), ..Faults::default() }) {
                Ok(done) => {
                    // Two presets, each with a warm-up and a timed call.
                    assert_eq!(done, (2, 4));
                    break;
                }
                Err(error) => {
                    // The check of a codec at its first use allocates, too.
                    let is_told = format!("{error:#}").contains("bytes of memory left");
                    assert!(is_told, "{n} allocations: {error:?}");
                    n_failed += 1;
                }
            }
        }
        assert!(n_failed > 3, "allocations fail");
    }

    #[test]
    fn a_rank_whose_device_fails_ends_the_others() {
        let mut n_failed = 0;
        for n in (0..2000).step_by(97) {
            n_failed +=
                usize::from(outcome(Faults { operations: Some(n), ..Faults::default() }).is_err());
        }
        assert!(n_failed > 3, "devices fail");
    }
}
