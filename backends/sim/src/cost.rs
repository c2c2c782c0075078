//! How long a collective takes on thousands of ranks: the real schedules and lanes, with modelled
//! compute and network.
//!
//! [`predict`] runs the programs that the engine would run (`foldwire`'s [`Schedule`]s, its
//! [`Layout`] of parts, rounds and segments, its rules for lanes) on virtual time. No values are
//! moved. What a step costs follows from
//!
//! - *compute*: the [`primitives`](Speeds) that its action asks of the codec in this pipeline
//!   (`work`), n·b / speed for n values of b bytes, and for each message `send_overhead`,
//!   `recv_overhead` (LogP's o; Culler et al., PPoPP'93) and `send_per_byte`, `recv_per_byte` of
//!   its frame, where software copies it (LogGOPS's O; Hoefler et al., HPDC'10);
//! - *network*: each rank has one link, full duplex, as in LogGP (Alexandrov et al., SPAA'95) with
//!   contention at both ends. A frame of w bytes that is sent at t leaves at s = max(t, egress
//!   free), occupies the egress for w/rate, reaches its receiver at s + latency and occupies the
//!   ingress for w/rate from then or from when those before it are through. This is the model of
//!   the threads backend's rate limit. Switches are not limited. A frame longer than `eager` waits
//!   for an answer of its receiver first, which both see between steps.
//! - *what waits for what*: a lane runs its program one step at a time; takes its frame first, then
//!   waits for credit, of which each (peer, lane) has `link_depth`; lanes of a rank compute in
//!   turn, because they share its core; ranks of a node share its cores. Credit is back when the
//!   receiver takes the frame; a rank that waits for it hears of that a latency later.
//! - *learning the extent* of the data, where the plan's bound refers to it: a look at the rank's
//!   own values, then a raw all-reduce of a few numbers; the call begins on each rank when that is
//!   over.
//!
//! | file | what it is |
//! |---|---|
//! | `speeds` | speeds of primitives; bytes on the wire |
//! | `work` | a step's primitives, counted |
//! | `run` | the events |
//! | `prices` | what steps and messages cost |
//! | `links` | credit, frames that wait |
//! | `queue` | events in order of time |
//!
//! Cost: three events a message, about 100 ns each; see docs/scale.md for what 4096 ranks take.
//!
//! # Examples
//! A raw all-reduce by 64 ranks over links of 100 Gbit/s, if computing took no time:
//! ```
//! use foldwire::{Collective, Plan};
//! use foldwire_sim::cost::{Case, Cluster, Costs, Network, predict};
//!
//! let case = Case::new(Collective::AllReduce, Plan::raw(), 64, 16 << 20);
//! let cluster = Cluster::of(Network { latency: 2e-6, rate: Some(12.5e9), ..Network::default() });
//! let prediction = predict::<f32>(&case, &cluster, &Costs::raw::<f32>())?;
//! // 2·63/64 of 64 MiB cross each link.
//! assert!((0.0105..0.0115).contains(&prediction.seconds));
//! # Ok::<(), foldwire_sim::cost::CostError>(())
//! ```

mod links;
mod prices;
mod queue;
mod run;
mod speeds;
#[cfg(test)]
mod tests;
mod work;

pub use speeds::{Speeds, Wire};

use foldwire::codec::{CodecParams, Sizes};
use foldwire::collective::{N_RANGE_VALUES, RANGE_SCHEDULE};
use foldwire::kernel::Level;
use foldwire::layout::{Cut, Division, Layout, Shares, Window};
use foldwire::op::OpCode;
use foldwire::primitive::Rules;
use foldwire::schedule::{Portion, ProgramSpec, Schedule};
use foldwire::transport::{MAX_LANES, Rank};
use foldwire::{Collective, Element, Error, Float, Plan, Quantum, layout, select};
use prices::picoseconds;
use run::{Account, Entry, Job, Run};

/// The call to be predicted.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// The collective.
    pub collective: Collective,
    /// The reduction; [`OpCode::None`] for collectives that only move.
    pub op: OpCode,
    /// The root, for the collectives that have one.
    pub root: Rank,
    /// How. What is priced is its own codec: of an automatic plan what
    /// [`select::plan`] says.
    pub plan: Plan,
    /// Number of ranks.
    pub size: usize,
    /// Values of the whole array.
    pub count: usize,
    /// Whether input and result are one buffer.
    pub in_place: bool,
    /// Lanes, 1…[`MAX_LANES`].
    pub lanes: usize,
    /// Bytes of a frame.
    pub frame_bytes: usize,
    /// Ranks know which of them share a node ([`Host::ranks_per_node`]), so that long
    /// arrays take two levels. What then stays in a node takes no network.
    pub by_node: bool,
}

impl Case {
    /// A sum (where there is something to reduce) of `count` values over `size` ranks with root 0,
    /// 4 lanes, and frames of 256 KiB + 4096, from one buffer into another, except a broadcast,
    /// which always has one.
    #[must_use]
    pub fn new(collective: Collective, plan: Plan, size: usize, count: usize) -> Self {
        let op = if collective.reduces() { OpCode::Sum } else { OpCode::None };
        Self {
            collective,
            op,
            root: Rank(0),
            plan,
            size,
            count,
            in_place: collective == Collective::Broadcast,
            lanes: 4,
            frame_bytes: (256 << 10) + 4096,
            by_node: false,
        }
    }
}

/// Links between ranks, all alike.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Network {
    /// Seconds from a frame's first byte leaving to its first byte arriving.
    pub latency: f64,
    /// Bytes per second of each rank's link, each way; `None`: links take no time, as between
    /// threads.
    pub rate: Option<f64>,
    /// Seconds that sending a message keeps the sender's core, whatever its size.
    pub send_overhead: f64,
    /// The same of a receiver.
    pub recv_overhead: f64,
    /// Seconds that each byte of a message keeps the sender's core besides, as where TCP copies it.
    pub send_per_byte: f64,
    /// The same of a receiver.
    pub recv_per_byte: f64,
    /// Bytes up to which a message leaves at once. A longer one asks its receiver first (MPI's
    /// rendezvous), and each of the two sees what the other says only when it looks at the network.
    /// Nor does a short one overtake it. `None`: all leave at once.
    pub eager: Option<u32>,
    /// Frames that a link may hold, sent and not taken, for each (peer, lane).
    pub link_depth: u32,
    /// Whether frames carry checksums.
    pub checksums: bool,
}

impl Default for Network {
    /// No latency, no limit, no overheads, no handshakes; links hold 4 frames; no checksums.
    fn default() -> Self {
        Self {
            latency: 0.0,
            rate: None,
            send_overhead: 0.0,
            recv_overhead: 0.0,
            send_per_byte: 0.0,
            recv_per_byte: 0.0,
            eager: None,
            link_depth: 4,
            checksums: false,
        }
    }
}

/// The machines that ranks run on, all alike.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Host {
    /// Ranks of one machine.
    pub ranks_per_node: usize,
    /// Cores that they share: so many of them compute at once.
    pub cores: usize,
    /// Seconds of a core that it takes an idle rank to wake up and find what has arrived.
    pub wake: f64,
    /// Seconds after which a rank leaves its core to others that wait for one; until then only if
    /// it has nothing to do.
    pub time_slice: f64,
}

impl Default for Host {
    /// A machine for each rank; idle ranks poll.
    fn default() -> Self {
        Self { ranks_per_node: 1, cores: 1, wake: 0.0, time_slice: 3e-3 }
    }
}

/// Network and machines.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cluster {
    /// What connects ranks.
    pub network: Network,
    /// What they run on.
    pub host: Host,
}

impl Cluster {
    /// One rank a machine.
    #[must_use]
    pub fn of(network: Network) -> Self {
        Self { network, host: Host::default() }
    }
}

/// What the plan's codec costs.
#[derive(Clone, Debug, PartialEq)]
pub struct Costs {
    /// Its primitives.
    pub speeds: Speeds,
    /// What segments become on the wire.
    pub wire: Wire,
    /// Bytes per second of a look at all values for their extent; infinite takes no time.
    pub look: f64,
    /// The same of a look at a sample, in bytes of all values.
    pub sample: f64,
}

impl Costs {
    /// Values as they are, and computing takes no time.
    #[must_use]
    pub fn raw<T: Float>() -> Self {
        Self::of(Speeds::FREE, Wire::exact(T::BYTES))
    }

    /// These, and looking for the extent takes no time.
    #[must_use]
    pub const fn of(speeds: Speeds, wire: Wire) -> Self {
        Self { speeds, wire, look: f64::INFINITY, sample: f64::INFINITY }
    }
}

/// Why there is no prediction.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum CostError {
    /// No ranks, cores or lanes, or a root that is no rank.
    #[error(
        "{size} ranks with root {root}, {lanes} lanes, {ranks_per_node} ranks a machine on {cores} cores: nothing can run"
    )]
    Empty {
        /// Ranks.
        size: usize,
        /// The root.
        root: Rank,
        /// Lanes.
        lanes: usize,
        /// Ranks of a machine.
        ranks_per_node: usize,
        /// Cores of a machine.
        cores: usize,
    },
    /// The call would be refused.
    #[error(transparent)]
    Refused(#[from] Error),
    /// The programs wait for each other: a fault of the schedule.
    #[error("rank {rank} waits for ever in step {step}")]
    Stuck {
        /// A rank that waits.
        rank: Rank,
        /// Its step.
        step: usize,
    },
}

/// What a call will do.
#[derive(Clone, Debug, PartialEq)]
pub struct Prediction {
    /// Until the last rank has its result.
    pub seconds: f64,
    /// The schedule that was taken.
    pub schedule: &'static str,
    /// Each rank's part, in rank order.
    pub ranks: Vec<RankPrediction>,
    /// Events that the simulation took.
    pub n_events: u64,
}

/// What one rank will do; counted as [`Report`](foldwire::Report) does.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RankPrediction {
    /// Until it has its result.
    pub seconds: f64,
    /// Of these, computing.
    pub computing: f64,
    /// Bytes of the messages that it sends, headers included.
    pub wire_bytes: u64,
    /// Messages that it sends.
    pub n_messages: u64,
}

/// How long the call, on values of `T`, takes on this cluster if all ranks make it at once.
///
/// # Errors
/// [`CostError`]: calls that the library refuses, and clusters on which nothing can run.
pub fn predict<T: Float>(
    case: &Case,
    cluster: &Cluster,
    costs: &Costs,
) -> Result<Prediction, CostError> {
    let case = &Case { plan: case.plan.for_values(T::DTYPE), ..*case };
    let &Case { collective, root, size, lanes, .. } = case;
    let host = &cluster.host;
    if [size, lanes, host.ranks_per_node, host.cores].contains(&0) || root.index() >= size {
        let (ranks_per_node, cores) = (host.ranks_per_node, host.cores);
        return Err(CostError::Empty { size, root, lanes, ranks_per_node, cores });
    }
    let per_node = if case.by_node { cluster.host.ranks_per_node } else { 1 };
    let call = ProgramSpec::new(collective, size, root).with_nodes(per_node);
    let n_bytes = case.count.saturating_mul(T::BYTES);
    let network =
        select::Network { link_rate: cluster.network.rate, frame_bytes: case.frame_bytes };
    let schedule = select::schedule(call, case.op, &case.plan, n_bytes, network);
    if size > collective.max_size() || !schedule.supports(collective) {
        return Err(Error::Unsupported { schedule: schedule.name(), collective }.into());
    }
    let call = call.by(schedule);
    let mut ranks = vec![RankPrediction::default(); size];
    let mut entries = vec![Entry::default(); size];
    let mut n_events = 0;
    if case.plan.needs_value_range() {
        for (rank, entry) in entries.iter_mut().enumerate() {
            entry.prelude = picoseconds(look::<T>(case, call, costs, rank));
        }
        n_events += exchange_extents(case, cluster, &mut ranks, &mut entries)?;
    }

    let division =
        if collective == Collective::AllReduce { case.plan.division } else { Division::Blocks };
    let (call, layout) = divide::<T>(case, call, schedule, division)?;
    let (wire, floats) = (costs.wire.table(size), Wire::exact(T::BYTES).table(size));
    let job = Job {
        schedule,
        call,
        layout,
        n_lanes: lanes.min(MAX_LANES).min(layout.n_rounds()),
        rules: Rules::of_plan(collective, &case.plan, case.op),
        in_place: case.in_place,
        bytes_per_value: T::BYTES,
        speeds: &costs.speeds,
        wire: &wire,
        floats: &floats,
        cluster,
    };
    n_events += account(&job, &entries, &mut ranks, |_, _| {})?;
    let seconds = ranks.iter().map(|rank| rank.seconds).fold(0.0, f64::max);
    Ok(Prediction { seconds, schedule: schedule.name(), ranks, n_events })
}

/// Seconds that a rank looks at its own values.
fn look<T: Float>(case: &Case, call: ProgramSpec, costs: &Costs, rank: usize) -> f64 {
    let rank = Rank::new(rank);
    let own = match call.input(rank) {
        Portion::Nothing => 0,
        Portion::Share => layout::share(case.count, case.size, rank.index()).len(),
        _ => case.count,
    };
    let speed = if case.plan.samples(case.count) { costs.sample } else { costs.look };
    (own * T::BYTES) as f64 / speed
}

/// The raw all-reduce of what ranks saw of their data; every rank enters the call when it has its
/// result.
fn exchange_extents(
    case: &Case,
    cluster: &Cluster,
    ranks: &mut [RankPrediction],
    entries: &mut [Entry],
) -> Result<u64, CostError> {
    let plan = Plan::raw();
    let exchange = Case { plan, count: N_RANGE_VALUES, ..*case };
    let call = ProgramSpec::new(Collective::AllReduce, case.size, Rank(0));
    let wire = &Wire::exact(f64::BYTES).table(case.size);
    let (call, layout) = divide::<f64>(&exchange, call, RANGE_SCHEDULE, Division::Blocks)?;
    let job = Job {
        schedule: RANGE_SCHEDULE,
        call,
        layout,
        n_lanes: 1,
        rules: Rules::new(Collective::AllReduce, &plan.pipeline, plan.codec, OpCode::Max),
        in_place: true,
        bytes_per_value: f64::BYTES,
        speeds: &Speeds::FREE,
        wire,
        floats: wire,
        cluster,
    };
    let looks = entries.to_vec();
    account(&job, &looks, ranks, |rank, finished| {
        entries[rank] = Entry { at: finished, prelude: 0 };
    })
}

/// Runs a program and adds it to the ranks' predictions; tells when each rank has finished.
fn account(
    job: &Job<'_>,
    entries: &[Entry],
    ranks: &mut [RankPrediction],
    mut finished: impl FnMut(usize, queue::Time),
) -> Result<u64, CostError> {
    let (accounts, n_events) = Run::new(job, entries).finish()?;
    for (rank, (account, sum)) in accounts.iter().zip(ranks).enumerate() {
        let Account { finished: at, computing, wire_bytes, n_messages } = *account;
        finished(rank, at);
        sum.seconds = at as f64 / 1e12;
        sum.computing += computing as f64 / 1e12;
        sum.wire_bytes += wire_bytes;
        sum.n_messages += n_messages;
    }
    Ok(n_events)
}

/// How the engine divides the array, and how many parts it lets messages carry.
fn divide<T: Float>(
    case: &Case,
    call: ProgramSpec,
    schedule: &dyn Schedule,
    division: Division,
) -> Result<(ProgramSpec, Layout<'static>), Error> {
    // What an encoding takes at most depends neither on the quantum nor on the level.
    let params = CodecParams::new(Quantum::LOSSLESS).at(Level::Scalar);
    let codec = Sizes::new(case.plan.codec, T::DTYPE, params);
    let max_segment = layout::max_segment(&codec, case.frame_bytes, schedule.min_run(call))?;
    let n_parts = schedule.n_parts(call);
    let (lanes, shortest) = (case.lanes.min(MAX_LANES), select::shortest(case.plan.codec));
    let cut = Cut { n_parts, division, max_segment, lanes, shortest };
    // Lengths are the same for every rank.
    let layout = Layout::new(call, Rank(0), Shares::Even(case.count), Window::Whole, cut);
    let max_run = select::max_run(call, &codec, case.frame_bytes, &layout);
    Ok((call.with_runs(max_run).with_runs_of(schedule), layout))
}
