//! A cost model for collectives on thousands of ranks: real schedules and lanes, modelled compute
//! and network.
//!
//! [`predict`] runs the engine's own programs on virtual time: `foldwire`'s [`Schedule`]s, its
//! [`Layout`] of parts, rounds and segments, and its rules for lanes. It moves no values. Four
//! things determine the time:
//!
//! - *Compute.* A step executes some [primitives](PrimitiveSpeeds) of the codec, which depend on
//!   the pipeline (`work`). A primitive takes n·b / speed for n values of b bytes. Each message
//!   adds `send_overhead` and `recv_overhead` (LogP's o; Culler et al., PPoPP'93). Each byte of a
//!   frame adds `send_per_byte` and `recv_per_byte` where software copies it (LogGOPS's O; Hoefler
//!   et al., HPDC'10).
//! - *Network.* Each rank has one full-duplex link, as in LogGP (Alexandrov et al., SPAA'95), with
//!   contention at both ends. A frame of w bytes sent at t leaves at s = max(t, egress free), and
//!   occupies the egress for w/rate. It reaches its receiver at s + latency. It then occupies the
//!   ingress for w/rate, once earlier frames have left the ingress. The rate limit of the threads
//!   backend uses the same model. Switches have no limit. A frame longer than `eager` first waits
//!   for a handshake with its receiver. Both ranks handle handshakes only between steps.
//! - *Dependencies.* A lane runs its program one step at a time. It first takes the frame that the
//!   step receives, then waits for credit for the frame that the step sends. Each (peer, lane) has
//!   credit for `link_depth` frames. Credit returns when the receiver takes a frame; a rank that
//!   waits for credit learns of its return one latency later. The lanes of a rank share its core,
//!   so they compute one after the other. The ranks of a node share its cores.
//! - *Value range.* If the plan's bound refers to the value range of the data, each rank first
//!   scans its input. Then the ranks exchange their ranges in a raw all-reduce of a few numbers.
//!   The call begins on each rank when that all-reduce is over.
//!
//! | file | content |
//! |---|---|
//! | `speeds` | speeds of primitives; bytes on the wire |
//! | `work` | counts of a step's primitives |
//! | `run` | the simulation, event by event |
//! | `prices` | costs of steps and messages |
//! | `links` | credit and waiting frames |
//! | `queue` | events in order of time |
//!
//! Cost: three events per message, about 100 ns each. docs/scale.md lists the cost for 4096 ranks.
//!
//! # Examples
//! A raw all-reduce of 64 ranks over links of 100 Gbit/s, with free computing:
//! ```
//! use foldwire::{Collective, Plan};
//! use foldwire_sim::cost::{ClusterModel, Costs, ModelCall, NetworkModel, predict};
//!
//! let case = ModelCall::new(Collective::AllReduce, Plan::raw(), 64, 16 << 20);
//! let network = NetworkModel { latency: 2e-6, rate: Some(12.5e9), ..NetworkModel::default() };
//! let cluster = ClusterModel::of(network);
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

pub use speeds::{PerPrimitive, PrimitiveSpeeds, WireSizes};

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
use run::{PricedProgram, RankStart, RankTotals, Simulation};

/// The call to predict.
#[derive(Clone, Copy, Debug)]
pub struct ModelCall {
    /// The collective.
    pub collective: Collective,
    /// The reduction; [`OpCode::None`] for collectives that only move values.
    pub op: OpCode,
    /// The root, for the collectives that have one.
    pub root: Rank,
    /// The plan. The model prices the plan's own codec, so resolve an automatic plan with
    /// [`select::plan`] first.
    pub plan: Plan,
    /// Number of ranks.
    pub size: usize,
    /// Number of values in the whole array.
    pub count: usize,
    /// True if input and result are the same buffer.
    pub in_place: bool,
    /// Number of lanes, 1…[`MAX_LANES`]. A plan [without overlap](Plan::without_overlap) uses one.
    pub lanes: usize,
    /// Bytes of a frame.
    pub frame_bytes: usize,
    /// True if ranks know which of them share a node ([`HostModel::ranks_per_node`]). Long arrays
    /// then use a two-level schedule, and messages within a node take no bandwidth, except in a
    /// reduction by another schedule. If false, all messages occupy links.
    pub by_node: bool,
}

impl ModelCall {
    /// Creates a call on `count` values and `size` ranks with root 0, 4 lanes, and frames of 256
    /// KiB + 4096 bytes. Its reduction is a sum, if the collective reduces. Input and result are
    /// separate buffers, except in a broadcast, which always has one buffer.
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

/// The links between ranks, all alike.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NetworkModel {
    /// Seconds from the departure of a frame's first byte to its arrival.
    pub latency: f64,
    /// Bytes per second of each rank's link in each direction. With `None`, links take no time, as
    /// between threads.
    pub rate: Option<f64>,
    /// Seconds that the sender's core spends on each message, whatever its size.
    pub send_overhead: f64,
    /// Seconds that the receiver's core spends on each message, whatever its size.
    pub recv_overhead: f64,
    /// Seconds that the sender's core spends on each byte of a message, for example where TCP
    /// copies it.
    pub send_per_byte: f64,
    /// Seconds that the receiver's core spends on each byte of a message.
    pub recv_per_byte: f64,
    /// Length in bytes up to which a message leaves without a handshake. A longer message needs a
    /// handshake (MPI's rendezvous): the sender's request and the receiver's grant. Each is seen
    /// only when its receiver polls the network. A short message does not overtake a long one. With
    /// `None`, no message needs a handshake.
    pub eager: Option<u32>,
    /// Maximum number of frames that are sent but that the receiver has not taken, for each (peer,
    /// lane).
    pub link_depth: u32,
    /// True if frames carry checksums.
    pub checksums: bool,
}

impl Default for NetworkModel {
    /// No latency, rate limit, overheads, handshakes or checksums; links hold 4 frames.
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

/// The machines (nodes) that ranks run on, all alike.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HostModel {
    /// Number of ranks per machine.
    pub ranks_per_node: usize,
    /// Number of cores that the ranks of a machine share.
    pub cores: usize,
    /// Seconds of core time that an idle rank needs to wake up and find an arrived frame.
    pub wake: f64,
    /// Seconds after which a rank yields its core to a waiting rank. Before that, it yields only
    /// when it has nothing to do.
    pub time_slice: f64,
}

impl Default for HostModel {
    /// One machine per rank; ranks poll while idle.
    fn default() -> Self {
        Self { ranks_per_node: 1, cores: 1, wake: 0.0, time_slice: 3e-3 }
    }
}

/// Network and machines.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ClusterModel {
    /// The network between ranks.
    pub network: NetworkModel,
    /// The machines.
    pub host: HostModel,
}

impl ClusterModel {
    /// A cluster with one rank per machine.
    #[must_use]
    pub fn of(network: NetworkModel) -> Self {
        Self { network, host: HostModel::default() }
    }
}

/// Costs of a plan's codec.
#[derive(Clone, Debug, PartialEq)]
pub struct Costs {
    /// Speeds of the codec's primitives.
    pub speeds: PrimitiveSpeeds,
    /// Sizes of segments on the wire.
    pub wire: WireSizes,
    /// Bytes per second of a scan of all values for their range; infinity makes the scan free.
    pub look: f64,
    /// As `look`, for a scan of a sample: bytes of the whole input, not of the sample, per second.
    pub sample: f64,
}

impl Costs {
    /// Costs of the raw codec, with free computing.
    #[must_use]
    pub fn raw<T: Float>() -> Self {
        Self::of(PrimitiveSpeeds::FREE, WireSizes::exact(T::BYTES))
    }

    /// Costs of these speeds and sizes, with free scans.
    #[must_use]
    pub const fn of(speeds: PrimitiveSpeeds, wire: WireSizes) -> Self {
        Self { speeds, wire, look: f64::INFINITY, sample: f64::INFINITY }
    }
}

/// Reason why a call cannot be predicted.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum CostError {
    /// A number of ranks, cores, lanes or messages on a link is 0, or the root is not a rank.
    #[error(
        "cannot predict a call of {size} ranks with root {root}, {lanes} lanes, {ranks_per_node} \
         ranks per machine, {cores} cores and {link_depth} messages on a link; the numbers must be \
         at least 1, and the root below the number of ranks"
    )]
    Empty {
        /// Number of ranks.
        size: usize,
        /// The root.
        root: Rank,
        /// Number of lanes.
        lanes: usize,
        /// Ranks per machine.
        ranks_per_node: usize,
        /// Cores per machine.
        cores: usize,
        /// Messages that a link holds.
        link_depth: u32,
    },
    /// The library would refuse the call.
    #[error(transparent)]
    Refused(#[from] Error),
    /// The ranks' programs wait for each other, which is a defect of the schedule.
    #[error("the schedule deadlocks: rank {rank} waits forever in step {step}")]
    Stuck {
        /// A rank that waits.
        rank: Rank,
        /// The step in which the rank waits.
        step: usize,
    },
}

/// Predicted cost of a call.
#[derive(Clone, Debug, PartialEq)]
pub struct CallPrediction {
    /// Seconds until the last rank has its result.
    pub seconds: f64,
    /// Name of the schedule.
    pub schedule: &'static str,
    /// Predicted cost of each rank, in rank order.
    pub ranks: Vec<RankPrediction>,
    /// Number of events in the simulation.
    pub n_events: u64,
}

/// Predicted cost of one rank, counted as in [`Report`](foldwire::Report).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RankPrediction {
    /// Seconds until the rank has its result.
    pub seconds: f64,
    /// Seconds of computing, contained in `seconds`.
    pub computing: f64,
    /// The parts of `computing` that the call's steps take.
    pub work: WorkSeconds,
    /// Bytes of the messages that the rank sends, headers included.
    pub wire_bytes: u64,
    /// Number of messages that the rank sends.
    pub n_messages: u64,
}

/// Seconds of a rank's steps, by kind of work.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct WorkSeconds {
    /// Encoding values.
    pub encode: f64,
    /// Decoding frames.
    pub decode: f64,
    /// Combining values or frames. Primitives that decode, combine and encode in one pass count
    /// here as a whole.
    pub fold: f64,
    /// Copying values and frames.
    pub copy: f64,
    /// Sending and receiving messages, checksums included.
    pub message: f64,
}

/// Predicts how long a call on values of `T` takes on this cluster, if all ranks make it at the
/// same time.
///
/// # Errors
/// [`CostError::Refused`] if the library would refuse the call. [`CostError::Empty`] if there are
/// no ranks, lanes, cores or places on a link, or the root is not a rank. [`CostError::Stuck`] if
/// the schedule deadlocks.
pub fn predict<T: Float>(
    case: &ModelCall,
    cluster: &ClusterModel,
    costs: &Costs,
) -> Result<CallPrediction, CostError> {
    let lanes = if case.plan.overlaps() { case.lanes } else { case.lanes.min(1) };
    let case = &ModelCall { plan: case.plan.for_values(T::DTYPE), lanes, ..*case };
    let &ModelCall { collective, root, size, lanes, .. } = case;
    let (host, link_depth) = (&cluster.host, cluster.network.link_depth);
    let numbers = [size, lanes, host.ranks_per_node, host.cores, link_depth as usize];
    if numbers.contains(&0) || root.index() >= size {
        let (ranks_per_node, cores) = (host.ranks_per_node, host.cores);
        return Err(CostError::Empty { size, root, lanes, ranks_per_node, cores, link_depth });
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
    let mut starts = vec![RankStart::default(); size];
    let mut n_events = 0;
    if case.plan.needs_value_range() {
        for (rank, start) in starts.iter_mut().enumerate() {
            start.prelude = picoseconds(scan_seconds::<T>(case, call, costs, rank));
        }
        n_events += exchange_ranges(case, cluster, &mut ranks, &mut starts)?;
    }

    let division =
        if collective == Collective::AllReduce { case.plan.division } else { Division::Blocks };
    let (call, layout) = divide::<T>(case, call, schedule, division)?;
    // Sizes of payloads in the plan's codec, and of payloads that are sent raw in spite of it.
    let (wire, floats) = (costs.wire.table(size), WireSizes::exact(T::BYTES).table(size));
    let program = PricedProgram {
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
    n_events += simulate(&program, &starts, &mut ranks, |_, _| {})?;
    let seconds = ranks.iter().map(|rank| rank.seconds).fold(0.0, f64::max);
    Ok(CallPrediction { seconds, schedule: schedule.name(), ranks, n_events })
}

/// Returns the seconds that a rank spends on scanning its input for the value range.
fn scan_seconds<T: Float>(case: &ModelCall, call: ProgramSpec, costs: &Costs, rank: usize) -> f64 {
    let rank = Rank::new(rank);
    let n_values = match call.input(rank) {
        Portion::Nothing => 0,
        Portion::Share => layout::share(case.count, case.size, rank.index()).len(),
        _ => case.count,
    };
    let speed = if case.plan.samples(case.count) { costs.sample } else { costs.look };
    (n_values * T::BYTES) as f64 / speed
}

/// Simulates the raw all-reduce of the ranks' value ranges. Changes `starts`: each rank starts its
/// call when it has the result. Returns the number of events.
fn exchange_ranges(
    case: &ModelCall,
    cluster: &ClusterModel,
    ranks: &mut [RankPrediction],
    starts: &mut [RankStart],
) -> Result<u64, CostError> {
    let plan = Plan::raw();
    let exchange = ModelCall { plan, count: N_RANGE_VALUES, ..*case };
    let call = ProgramSpec::new(Collective::AllReduce, case.size, Rank(0));
    let wire = &WireSizes::exact(f64::BYTES).table(case.size);
    let (call, layout) = divide::<f64>(&exchange, call, RANGE_SCHEDULE, Division::Blocks)?;
    let program = PricedProgram {
        schedule: RANGE_SCHEDULE,
        call,
        layout,
        n_lanes: 1,
        rules: Rules::new(Collective::AllReduce, &plan.pipeline, plan.codec, OpCode::Max),
        in_place: true,
        bytes_per_value: f64::BYTES,
        speeds: &PrimitiveSpeeds::FREE,
        wire,
        floats: wire,
        cluster,
    };
    let scans = starts.to_vec();
    simulate(&program, &scans, ranks, |rank, finished| {
        starts[rank] = RankStart { at: finished, prelude: 0 };
    })
}

/// Simulates a program and adds its costs to the ranks' predictions. Passes each rank's finish time
/// to `finished`. Returns the number of events.
fn simulate(
    program: &PricedProgram<'_>,
    starts: &[RankStart],
    ranks: &mut [RankPrediction],
    mut finished: impl FnMut(usize, queue::Picos),
) -> Result<u64, CostError> {
    let (totals, n_events) = Simulation::new(program, starts).run()?;
    for (rank, (rank_totals, sum)) in totals.iter().zip(ranks).enumerate() {
        let RankTotals { finished: at, computing, work, wire_bytes, n_messages } = *rank_totals;
        finished(rank, at);
        sum.seconds = at as f64 / 1e12;
        sum.computing += computing as f64 / 1e12;
        sum.work.encode += work.encode / 1e12;
        sum.work.decode += work.decode / 1e12;
        sum.work.fold += work.fold / 1e12;
        sum.work.copy += work.copy / 1e12;
        sum.work.message += work.message / 1e12;
        sum.wire_bytes += wire_bytes;
        sum.n_messages += n_messages;
    }
    Ok(n_events)
}

/// Divides the array as the engine does, and sets how many parts a message may carry.
fn divide<T: Float>(
    case: &ModelCall,
    call: ProgramSpec,
    schedule: &dyn Schedule,
    division: Division,
) -> Result<(ProgramSpec, Layout<'static>), Error> {
    // The maximum size of an encoding depends neither on the quantum nor on the level.
    let params = CodecParams::new(Quantum::LOSSLESS).at(Level::Scalar);
    let codec = Sizes::new(case.plan.codec, T::DTYPE, params);
    let max_segment = layout::max_segment(&codec, case.frame_bytes, schedule.min_run(call))?;
    let max_segment = case.plan.max_piece(T::DTYPE, max_segment);
    let n_parts = schedule.n_parts(call);
    // To give all lanes work, segments may be shortened to `shortest` chunks.
    let (lanes, shortest) = (case.lanes.min(MAX_LANES), select::shortest(case.plan.codec));
    let cut = Cut { n_parts, division, max_segment, lanes, shortest };
    // The layout of rank 0 serves for all ranks, because lengths are the same for every rank.
    let layout = Layout::new(call, Rank(0), Shares::Even(case.count), Window::Whole, cut);
    let frame_bytes = case.frame_bytes;
    let call = select::with_runs(call, schedule, &case.plan, &codec, &layout, frame_bytes);
    Ok((call, layout))
}
