//! The simulation of one program on all ranks: lanes, cores and network, event by event.
//!
//! | event | what happens |
//! |---|---|
//! | `Call` | a rank makes its call and requests a core |
//! | `Run` | a rank gets a core |
//! | `Done` | a rank's computation is done: its frame leaves, and the next step begins |
//! | `Request` | a handshake request arrives at the receiver; needed for long messages, and for short ones behind a long one on the same link |
//! | `Grant` | the receiver's grant arrives at the sender: the message may leave |
//! | `FirstByte` | a frame's first byte arrives; the frame occupies the receiver's link once earlier frames are through |
//! | `Arrive` | the whole frame has arrived |
//! | `Credit` | credit returns to a rank that waits for it |
//!
//! Cost: three events per message, each in about constant time (see [`queue`](super::queue)).
//! Memory grows with ranks × lanes, and with the number of frames in flight.

use std::collections::VecDeque;
use std::iter;

use foldwire::layout::Layout;
use foldwire::primitive::{Rules, SlotContent};
use foldwire::schedule::{ProgramSpec, Schedule, Step};
use foldwire::transport::Rank;

use super::links::{LinkKey, LinkTable};
use super::prices::{Prices, StepMessages, StepTimes};
use super::queue::{EventQueue, Picos};
use super::speeds::{PrimitiveSpeeds, WireSizeTable};
use super::work::count_step;
use super::{ClusterModel, CostError};

/// A program with the costs of its steps.
pub(super) struct PricedProgram<'a> {
    pub(super) schedule: &'static dyn Schedule,
    pub(super) call: ProgramSpec,
    pub(super) layout: Layout<'static>,
    /// Number of lanes, at most the number of rounds.
    pub(super) n_lanes: usize,
    pub(super) rules: Rules,
    /// True if input and result are the same buffer.
    pub(super) in_place: bool,
    pub(super) bytes_per_value: usize,
    pub(super) speeds: &'a PrimitiveSpeeds,
    pub(super) wire: &'a WireSizeTable,
    /// Sizes of raw values, for payloads that the call sends raw although the plan has another
    /// codec.
    pub(super) floats: &'a WireSizeTable,
    pub(super) cluster: &'a ClusterModel,
}

impl PricedProgram<'_> {
    /// Returns the bytes of a step's message, header included.
    fn message(&self, step: &Step, round: usize, n_values: usize, content: SlotContent) -> u32 {
        let has_plan_codec = content.codec == self.rules.codec();
        let table = if has_plan_codec { self.wire } else { self.floats };
        // The sum of a node's k ranks is encoded with k times the bound, so it takes as many bits
        // as one operand.
        let n_combined = self.schedule.n_combined(self.call) as u32;
        let operands = content.operands.div_ceil(n_combined);
        if step.n_parts == 1 {
            return table.message(iter::once(n_values), operands);
        }
        let run = self.layout.run(step, round);
        table.message(run.lens(), operands)
    }

    fn is_near(&self, from: u32, to: u32) -> bool {
        self.call.is_near(Rank(from), Rank(to))
    }
}

/// Time at which a rank makes its call, and duration of its computation before the first step.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RankStart {
    pub(super) at: Picos,
    pub(super) prelude: Picos,
}

/// Results of one rank.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RankTotals {
    pub(super) finished: Picos,
    pub(super) computing: Picos,
    /// The parts of `computing` that steps take.
    pub(super) work: StepTimes,
    pub(super) wire_bytes: u64,
    pub(super) n_messages: u64,
}

/// A frame in flight.
#[derive(Clone, Copy, Debug)]
struct ModelFrame {
    key: LinkKey,
    content: SlotContent,
    n_bytes: u32,
}

#[derive(Clone, Copy, Debug)]
enum ModelEvent {
    Call { rank: u32 },
    Run { rank: u32 },
    Done { rank: u32 },
    Request { frame: ModelFrame },
    Grant { frame: ModelFrame },
    FirstByte { frame: ModelFrame },
    Arrive { key: LinkKey, content: SlotContent },
    Credit { rank: u32 },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RankStatus {
    /// The rank has not made its call, or has its result.
    OutsideCall,
    /// The rank has nothing to do until something arrives.
    Idle,
    /// The rank waits for a core.
    Waiting,
    /// The rank has a core.
    Running,
}

#[derive(Debug)]
struct ModelLane {
    round: usize,
    index: usize,
    /// The current step, or `None` once all rounds are done.
    step: Option<Step>,
    n_values: usize,
    /// The frame taken for the current step.
    incoming: Option<SlotContent>,
    /// The lane's holding: what it keeps from one step to the next.
    held: Option<SlotContent>,
    /// The frame that leaves when the step is done, and its bytes.
    outgoing: Option<(SlotContent, u32)>,
}

#[derive(Debug)]
struct ModelRank {
    status: RankStatus,
    /// Computation before the next step: a scan at the start, or waking up.
    prelude: Picos,
    n_steps: usize,
    /// Number of lanes that have steps left.
    n_active: usize,
    /// The lane whose step is being computed.
    current: Option<usize>,
    /// The lane to try next.
    next: usize,
    has_core_since: Picos,
    /// Time from which the rank's link is free to send.
    egress_free: Picos,
    /// Time from which the rank's link is free to receive.
    ingress_free: Picos,
    /// Handshakes that arrived while the rank computes or has no core.
    handshakes: Vec<Handshake>,
    totals: RankTotals,
}

/// A message between the two ends of a link before a long frame leaves.
#[derive(Clone, Copy, Debug)]
enum Handshake {
    /// From the sender to the receiver.
    Request(ModelFrame),
    /// From the receiver to the sender.
    Grant(ModelFrame),
}

/// Cores of one node.
#[derive(Debug)]
struct NodeCores {
    n_free: usize,
    waiting: VecDeque<u32>,
}

pub(super) struct Simulation<'a> {
    program: &'a PricedProgram<'a>,
    prices: Prices,
    queue: EventQueue<ModelEvent>,
    lanes: Vec<ModelLane>,
    ranks: Vec<ModelRank>,
    links: LinkTable,
    cores: Vec<NodeCores>,
    n_unfinished: usize,
    n_events: u64,
}

impl<'a> Simulation<'a> {
    /// Creates a simulation in which the ranks start as in `starts`, in rank order.
    pub(super) fn new(program: &'a PricedProgram<'a>, starts: &[RankStart]) -> Self {
        let (size, host) = (program.call.size, &program.cluster.host);
        let n_nodes = size.div_ceil(host.ranks_per_node);
        let cores = |_| NodeCores { n_free: host.cores, waiting: VecDeque::new() };
        let mut run = Self {
            program,
            prices: Prices::new(program),
            queue: EventQueue::new(),
            lanes: Vec::with_capacity(size * program.n_lanes),
            ranks: Vec::with_capacity(size),
            links: LinkTable::default(),
            cores: (0..n_nodes).map(cores).collect(),
            n_unfinished: size,
            n_events: 0,
        };
        for (rank, start) in starts.iter().enumerate() {
            run.ranks.push(ModelRank {
                status: RankStatus::OutsideCall,
                prelude: start.prelude,
                n_steps: program.schedule.n_steps(program.call, Rank::new(rank)),
                n_active: program.n_lanes,
                current: None,
                next: 0,
                has_core_since: 0,
                egress_free: 0,
                ingress_free: 0,
                handshakes: Vec::new(),
                totals: RankTotals::default(),
            });
            for round in 0..program.n_lanes {
                let (index, n_values) = (0, 0);
                let (step, incoming, held, outgoing) = (None, None, None, None);
                run.lanes.push(ModelLane {
                    round,
                    index,
                    step,
                    n_values,
                    incoming,
                    held,
                    outgoing,
                });
                run.load_step(rank, round);
            }
            run.queue.push(start.at, ModelEvent::Call { rank: rank as u32 });
        }
        run
    }

    /// Runs until every rank has its result. Returns the ranks' totals in rank order, and the
    /// number of events.
    ///
    /// # Errors
    /// [`CostError::Stuck`] if a rank never gets its result.
    pub(super) fn run(mut self) -> Result<(Vec<RankTotals>, u64), CostError> {
        while self.n_unfinished > 0 {
            let Some((now, event)) = self.queue.pop() else { return Err(self.stuck()) };
            self.n_events += 1;
            match event {
                ModelEvent::Call { rank } => self.request_core(rank as usize, now),
                ModelEvent::Run { rank } => self.run_rank(rank as usize, now),
                ModelEvent::Done { rank } => self.done(rank as usize, now),
                ModelEvent::Request { frame } => {
                    self.receive_handshake(frame.key.to as usize, Handshake::Request(frame), now);
                }
                ModelEvent::Grant { frame } => {
                    self.receive_handshake(frame.key.from as usize, Handshake::Grant(frame), now);
                }
                ModelEvent::FirstByte { frame: ModelFrame { key, content, n_bytes } } => {
                    let crossing = self.prices.crossing(n_bytes);
                    let ingress = &mut self.ranks[key.to as usize].ingress_free;
                    *ingress = now.max(*ingress) + crossing;
                    let at = *ingress;
                    self.queue.push(at, ModelEvent::Arrive { key, content });
                }
                ModelEvent::Arrive { key, content } => {
                    self.links.arrive(key, content);
                    let lane = self.lane(key.to as usize, key.lane as usize);
                    let source = lane.step.and_then(|step| step.from);
                    if lane.incoming.is_none() && source == Some(Rank(key.from)) {
                        self.notify(key.to as usize, now);
                    }
                }
                ModelEvent::Credit { rank } => self.notify(rank as usize, now),
            }
        }
        let totals = self.ranks.iter().map(|state| state.totals).collect();
        Ok((totals, self.n_events))
    }

    /// The error of a simulation that has no events left: names a rank with steps left.
    fn stuck(&self) -> CostError {
        let waits = |rank: usize| {
            (0..self.program.n_lanes).find(|&lane| self.lane(rank, lane).step.is_some())
        };
        let found = (0..self.ranks.len()).find_map(|rank| Some((rank, waits(rank)?)));
        let (rank, lane) = found.unwrap_or((0, 0));
        CostError::Stuck { rank: Rank::new(rank), step: self.lane(rank, lane).index }
    }

    fn lane(&self, rank: usize, lane: usize) -> &ModelLane {
        &self.lanes[rank * self.program.n_lanes + lane]
    }

    fn lane_mut(&mut self, rank: usize, lane: usize) -> &mut ModelLane {
        &mut self.lanes[rank * self.program.n_lanes + lane]
    }

    fn cores(&mut self, rank: usize) -> &mut NodeCores {
        &mut self.cores[rank / self.program.cluster.host.ranks_per_node]
    }

    /// Loads the lane's step for its current round and index.
    fn load_step(&mut self, rank: usize, lane: usize) {
        let program = self.program;
        let n_steps = self.ranks[rank].n_steps;
        let lane = self.lane_mut(rank, lane);
        if lane.round < program.layout.n_rounds() && lane.index < n_steps {
            let step = program.schedule.step(program.call, Rank::new(rank), lane.index);
            lane.n_values = program.layout.run(&step, lane.round).n_values();
            lane.step = Some(step);
        } else {
            lane.step = None;
            self.ranks[rank].n_active -= 1;
        }
    }

    /// Wakes the rank if it is idle, because something that it may wait for has arrived.
    fn notify(&mut self, rank: usize, now: Picos) {
        if self.ranks[rank].status == RankStatus::Idle {
            self.ranks[rank].prelude = self.prices.waking;
            self.request_core(rank, now);
        }
    }

    fn request_core(&mut self, rank: usize, now: Picos) {
        self.ranks[rank].status = RankStatus::Waiting;
        let cores = self.cores(rank);
        if cores.n_free == 0 {
            cores.waiting.push_back(rank as u32);
        } else {
            cores.n_free -= 1;
            self.run_rank(rank, now);
        }
    }

    /// Gives the rank's core to the next rank that waits for a core, or marks the core as free.
    fn leave_core(&mut self, rank: usize, now: Picos) {
        match self.cores(rank).waiting.pop_front() {
            Some(next) => self.queue.push(now, ModelEvent::Run { rank: next }),
            None => self.cores(rank).n_free += 1,
        }
    }

    /// Starts the rank on the core that it has just been given.
    fn run_rank(&mut self, rank: usize, now: Picos) {
        let state = &mut self.ranks[rank];
        state.status = RankStatus::Running;
        state.has_core_since = now;
        let prelude = std::mem::take(&mut state.prelude);
        if prelude > 0 {
            self.compute(rank, prelude, now);
        } else {
            self.begin_next(rank, now);
        }
    }

    fn compute(&mut self, rank: usize, duration: Picos, now: Picos) {
        self.ranks[rank].totals.computing += duration;
        self.queue.push(now + duration, ModelEvent::Done { rank: rank as u32 });
    }

    /// Begins the next step that can run. Tries the lanes in turn, as the engine does. If no lane
    /// can continue, the rank leaves its core.
    fn begin_next(&mut self, rank: usize, now: Picos) {
        self.handle_handshakes(rank, now);
        let n_lanes = self.program.n_lanes;
        let first = self.ranks[rank].next;
        for lane in (first..n_lanes).chain(0..first) {
            if self.try_begin(rank, lane, now) {
                self.ranks[rank].current = Some(lane);
                self.ranks[rank].next = if lane + 1 == n_lanes { 0 } else { lane + 1 };
                return;
            }
        }
        let state = &mut self.ranks[rank];
        if state.n_active == 0 {
            state.status = RankStatus::OutsideCall;
            state.totals.finished = now;
            self.n_unfinished -= 1;
        } else {
            state.status = RankStatus::Idle;
        }
        self.leave_core(rank, now);
    }

    /// Begins the lane's step if the frame that it receives has arrived and there is credit for the
    /// frame that it sends. Takes the arrived frame even if there is no credit. Returns whether the
    /// step began.
    fn try_begin(&mut self, rank: usize, lane: usize, now: Picos) -> bool {
        let Some(step) = self.lane(rank, lane).step else { return false };
        if let (Some(from), None) = (step.from, self.lane(rank, lane).incoming) {
            let key = LinkKey { from: from.0, to: rank as u32, lane: lane as u32 };
            let Some((content, sender_waits)) = self.links.take(key) else { return false };
            self.lane_mut(rank, lane).incoming = Some(content);
            if sender_waits {
                self.queue.push(now + self.prices.latency, ModelEvent::Credit { rank: from.0 });
            }
        }
        if let Some(to) = step.to {
            let key = LinkKey { from: rank as u32, to: to.0, lane: lane as u32 };
            if !self.links.reserve(key, self.program.cluster.network.link_depth) {
                return false;
            }
        }
        let duration = self.compute_step(rank, lane, &step);
        self.compute(rank, duration, now);
        true
    }

    /// Applies the step to the lane's state, and returns how long the step takes.
    fn compute_step(&mut self, rank: usize, lane: usize, step: &Step) -> Picos {
        let (program, rules, in_place) = (self.program, self.program.rules, self.program.in_place);
        let state = self.lane_mut(rank, lane);
        let round = state.round;
        let (n_values, incoming) = (state.n_values, state.incoming.take());
        let place = (program.call, Rank::new(rank));
        let (work, sent) = count_step(rules, in_place, place, step, &mut state.held, incoming);
        let frame = |content| program.message(step, round, n_values, content);
        let outgoing = sent.map(|content| (content, frame(content)));
        state.outgoing = outgoing;
        let messages = StepMessages {
            received: incoming.map(frame),
            sent: outgoing.map(|(_, n_bytes)| n_bytes),
            is_new: sent.is_some_and(|content| !content.as_received),
        };
        let times = self.prices.of_step(n_values, &work, &messages);
        self.ranks[rank].totals.work.add(&times);
        times.total()
    }

    /// Completes the rank's computation. If its time slice is over, the rank then yields its core
    /// to a waiting rank.
    fn done(&mut self, rank: usize, now: Picos) {
        if let Some(lane) = self.ranks[rank].current.take() {
            self.complete(rank, lane, now);
        }
        let used = now - self.ranks[rank].has_core_since;
        if used >= self.prices.slice && !self.cores(rank).waiting.is_empty() {
            self.ranks[rank].status = RankStatus::Waiting;
            self.cores(rank).waiting.push_back(rank as u32);
            self.leave_core(rank, now);
        } else {
            self.begin_next(rank, now);
        }
    }

    /// Sends the step's frame, if any, and advances the lane.
    fn complete(&mut self, rank: usize, lane: usize, now: Picos) {
        let n_steps = self.ranks[rank].n_steps;
        let n_lanes = self.program.n_lanes;
        let state = self.lane_mut(rank, lane);
        let (step, frame) = (state.step, state.outgoing);
        state.index += 1;
        if state.index == n_steps {
            state.index = 0;
            state.round += n_lanes;
        }
        if let Some(to) = step.and_then(|step| step.to)
            && let Some((content, n_bytes)) = frame
        {
            let key = LinkKey { from: rank as u32, to: to.0, lane: lane as u32 };
            self.send(ModelFrame { key, content, n_bytes }, now);
        }
        self.load_step(rank, lane);
    }

    /// Transmits a frame, or sends the request for it if it needs a handshake.
    fn send(&mut self, frame: ModelFrame, now: Picos) {
        let ModelFrame { key, n_bytes, .. } = frame;
        let state = &mut self.ranks[key.from as usize];
        state.totals.wire_bytes += u64::from(n_bytes);
        state.totals.n_messages += 1;
        let eager = self.program.cluster.network.eager;
        if eager.is_some_and(|eager| self.links.needs_request(key, n_bytes > eager)) {
            // The request is short, but queues behind earlier frames.
            let arrival = now.max(state.egress_free) + self.prices.latency;
            self.queue.push(arrival, ModelEvent::Request { frame });
        } else {
            self.transmit(frame, now);
        }
    }

    /// Puts a frame on its sender's link. Within a node, the frame takes no bandwidth.
    fn transmit(&mut self, frame: ModelFrame, now: Picos) {
        let ModelFrame { key, content, n_bytes } = frame;
        let is_near = self.program.is_near(key.from, key.to);
        let crossing = if is_near { 0 } else { self.prices.crossing(n_bytes) };
        let state = &mut self.ranks[key.from as usize];
        let start = now.max(state.egress_free);
        state.egress_free = start + crossing;
        let first_byte = start + self.prices.latency;
        if crossing == 0 {
            self.queue.push(first_byte, ModelEvent::Arrive { key, content });
        } else {
            self.queue.push(first_byte, ModelEvent::FirstByte { frame });
        }
    }

    /// Passes a handshake to a rank. A rank outside a call handles it at once, an idle rank when it
    /// has woken up, and any other rank after its current step.
    fn receive_handshake(&mut self, rank: usize, handshake: Handshake, now: Picos) {
        self.ranks[rank].handshakes.push(handshake);
        match self.ranks[rank].status {
            RankStatus::OutsideCall => self.handle_handshakes(rank, now),
            _ => self.notify(rank, now),
        }
    }

    /// Grants requests, and transmits granted frames.
    fn handle_handshakes(&mut self, rank: usize, now: Picos) {
        for handshake in std::mem::take(&mut self.ranks[rank].handshakes) {
            match handshake {
                Handshake::Request(frame) => {
                    self.queue.push(now + self.prices.latency, ModelEvent::Grant { frame });
                }
                Handshake::Grant(frame) => {
                    self.links.grant(frame.key);
                    self.transmit(frame, now);
                }
            }
        }
    }
}
