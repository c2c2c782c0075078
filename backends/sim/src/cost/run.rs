//! One run of a program by all ranks: lanes, cores and the network, event by event.
//!
//! | event | what happens then |
//! |---|---|
//! | call | a rank makes its call: it asks for a core, as ranks do that something arrives for |
//! | run | a core is there for it |
//! | done | what it computed is done: the frame leaves, the next step begins |
//! | ask | a message too long to be sent at once, or behind one on the same stream, asks its receiver |
//! | answer | the receiver has answered: the message may leave |
//! | first byte | a frame reaches its receiver's link, and occupies it as soon as those before it are through |
//! | arrive | all of it is there |
//! | credit | credit has come back to a rank that waited for it |
//!
//! Cost: three events for each message, each of which takes about constant time (see
//! [`queue`](super::queue)). Memory for ranks × lanes, and for the frames under way.

use std::collections::VecDeque;
use std::iter;

use foldwire::layout::Layout;
use foldwire::primitive::{Rules, SlotContent};
use foldwire::schedule::{ProgramSpec, Schedule, Step};
use foldwire::transport::Rank;

use super::links::{Key, Links};
use super::prices::{Messages, Prices};
use super::queue::{Queue, Time};
use super::speeds::{Speeds, Table};
use super::work::act;
use super::{Cluster, CostError};

/// One program, and what its steps cost.
pub(super) struct Job<'a> {
    pub(super) schedule: &'static dyn Schedule,
    pub(super) call: ProgramSpec,
    pub(super) layout: Layout<'static>,
    /// At most as many as there are rounds.
    pub(super) n_lanes: usize,
    pub(super) rules: Rules,
    /// There is one buffer for input and result.
    pub(super) in_place: bool,
    pub(super) bytes_per_value: usize,
    pub(super) speeds: &'a Speeds,
    pub(super) wire: &'a Table,
    /// For floats of a call whose codec is another.
    pub(super) floats: &'a Table,
    pub(super) cluster: &'a Cluster,
}

impl Job<'_> {
    /// Bytes of the message of a step on `n_values`, header included.
    fn message(&self, step: &Step, round: usize, n_values: usize, content: SlotContent) -> u32 {
        let is_wire = content.codec == self.rules.codec();
        let table = if is_wire { self.wire } else { self.floats };
        // Sums of a node's ranks are encoded as coarsely as there are ranks.
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

/// When a rank makes its call, and for how long it first computes on its own.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Entry {
    pub(super) at: Time,
    pub(super) prelude: Time,
}

/// What came of a rank.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Account {
    pub(super) finished: Time,
    pub(super) computing: Time,
    pub(super) wire_bytes: u64,
    pub(super) n_messages: u64,
}

/// A frame under way.
#[derive(Clone, Copy, Debug)]
struct Frame {
    key: Key,
    content: SlotContent,
    n_bytes: u32,
}

#[derive(Clone, Copy, Debug)]
enum Event {
    Call { rank: u32 },
    Run { rank: u32 },
    Done { rank: u32 },
    Ask { frame: Frame },
    Answer { frame: Frame },
    FirstByte { frame: Frame },
    Arrive { key: Key, content: SlotContent },
    Credit { rank: u32 },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Status {
    /// Has not called yet, or has its result.
    Away,
    /// Nothing to do until something arrives.
    Idle,
    /// Waits for a core.
    Waiting,
    /// Has a core.
    Running,
}

#[derive(Debug)]
struct Lane {
    round: usize,
    index: usize,
    /// The current step, and the values of its segments; `None` once all rounds are done.
    step: Option<Step>,
    n_values: usize,
    /// The frame that was taken for it.
    incoming: Option<SlotContent>,
    held: Option<SlotContent>,
    /// The frame that leaves when the step is done, and its bytes.
    outgoing: Option<(SlotContent, u32)>,
}

#[derive(Debug)]
struct Member {
    status: Status,
    /// What it computes first when it gets a core: before its first step, or in waking up.
    prelude: Time,
    n_steps: usize,
    n_active: usize,
    /// The lane whose step is being computed.
    current: Option<usize>,
    /// The lane that is looked at next.
    next: usize,
    has_core_since: Time,
    egress_free: Time,
    ingress_free: Time,
    /// Handshakes that wait until the rank looks at the network: it is computing, or has no core.
    unseen: Vec<Handshake>,
    account: Account,
}

/// What passes between the ends of a frame before it leaves.
#[derive(Clone, Copy, Debug)]
enum Handshake {
    /// Seen by the receiver.
    Asked(Frame),
    /// Seen by the sender.
    Answered(Frame),
}

/// Cores of one node.
#[derive(Debug)]
struct Cores {
    n_free: usize,
    waiting: VecDeque<u32>,
}

pub(super) struct Run<'a> {
    job: &'a Job<'a>,
    prices: Prices,
    queue: Queue<Event>,
    lanes: Vec<Lane>,
    members: Vec<Member>,
    links: Links,
    cores: Vec<Cores>,
    n_left: usize,
    n_events: u64,
}

impl<'a> Run<'a> {
    /// A run that the ranks enter as `entries` say, in rank order.
    pub(super) fn new(job: &'a Job<'a>, entries: &[Entry]) -> Self {
        let (size, host) = (job.call.size, &job.cluster.host);
        let n_nodes = size.div_ceil(host.ranks_per_node);
        let cores = |_| Cores { n_free: host.cores, waiting: VecDeque::new() };
        let mut run = Self {
            job,
            prices: Prices::new(job),
            queue: Queue::new(),
            lanes: Vec::with_capacity(size * job.n_lanes),
            members: Vec::with_capacity(size),
            links: Links::default(),
            cores: (0..n_nodes).map(cores).collect(),
            n_left: size,
            n_events: 0,
        };
        for (rank, entry) in entries.iter().enumerate() {
            run.members.push(Member {
                status: Status::Away,
                prelude: entry.prelude,
                n_steps: job.schedule.n_steps(job.call, Rank::new(rank)),
                n_active: job.n_lanes,
                current: None,
                next: 0,
                has_core_since: 0,
                egress_free: 0,
                ingress_free: 0,
                unseen: Vec::new(),
                account: Account::default(),
            });
            for round in 0..job.n_lanes {
                let (index, n_values) = (0, 0);
                let (step, incoming, held, outgoing) = (None, None, None, None);
                run.lanes.push(Lane { round, index, step, n_values, incoming, held, outgoing });
                run.look_up(rank, round);
            }
            run.queue.push(entry.at, Event::Call { rank: rank as u32 });
        }
        run
    }

    /// Runs until every rank has its result; the accounts in rank order, and the number of events.
    ///
    /// # Errors
    /// [`CostError::Stuck`] if that never happens.
    pub(super) fn finish(mut self) -> Result<(Vec<Account>, u64), CostError> {
        while self.n_left > 0 {
            let Some((now, event)) = self.queue.pop() else { return Err(self.stuck()) };
            self.n_events += 1;
            match event {
                Event::Call { rank } => self.ask_for_core(rank as usize, now),
                Event::Run { rank } => self.run(rank as usize, now),
                Event::Done { rank } => self.done(rank as usize, now),
                Event::Ask { frame } => {
                    self.hear(frame.key.to as usize, Handshake::Asked(frame), now);
                }
                Event::Answer { frame } => {
                    self.hear(frame.key.from as usize, Handshake::Answered(frame), now);
                }
                Event::FirstByte { frame: Frame { key, content, n_bytes } } => {
                    let crossing = self.prices.crossing(n_bytes);
                    let ingress = &mut self.members[key.to as usize].ingress_free;
                    *ingress = now.max(*ingress) + crossing;
                    let at = *ingress;
                    self.queue.push(at, Event::Arrive { key, content });
                }
                Event::Arrive { key, content } => {
                    self.links.arrive(key, content);
                    let lane = self.lane(key.to as usize, key.lane as usize);
                    let source = lane.step.and_then(|step| step.from);
                    if lane.incoming.is_none() && source == Some(Rank(key.from)) {
                        self.notify(key.to as usize, now);
                    }
                }
                Event::Credit { rank } => self.notify(rank as usize, now),
            }
        }
        let accounts = self.members.iter().map(|member| member.account).collect();
        Ok((accounts, self.n_events))
    }

    fn stuck(&self) -> CostError {
        let waits =
            |rank: usize| (0..self.job.n_lanes).find(|&lane| self.lane(rank, lane).step.is_some());
        let found = (0..self.members.len()).find_map(|rank| Some((rank, waits(rank)?)));
        let (rank, lane) = found.unwrap_or((0, 0));
        CostError::Stuck { rank: Rank::new(rank), step: self.lane(rank, lane).index }
    }

    fn lane(&self, rank: usize, lane: usize) -> &Lane {
        &self.lanes[rank * self.job.n_lanes + lane]
    }

    fn lane_mut(&mut self, rank: usize, lane: usize) -> &mut Lane {
        &mut self.lanes[rank * self.job.n_lanes + lane]
    }

    fn cores(&mut self, rank: usize) -> &mut Cores {
        &mut self.cores[rank / self.job.cluster.host.ranks_per_node]
    }

    /// Finds the lane's step by its round and index.
    fn look_up(&mut self, rank: usize, lane: usize) {
        let job = self.job;
        let n_steps = self.members[rank].n_steps;
        let lane = self.lane_mut(rank, lane);
        if lane.round < job.layout.n_rounds() && lane.index < n_steps {
            let step = job.schedule.step(job.call, Rank::new(rank), lane.index);
            lane.n_values = job.layout.run(&step, lane.round).n_values();
            lane.step = Some(step);
        } else {
            lane.step = None;
            self.members[rank].n_active -= 1;
        }
    }

    /// Something has come that the rank may wait for.
    fn notify(&mut self, rank: usize, now: Time) {
        if self.members[rank].status == Status::Idle {
            self.members[rank].prelude = self.prices.waking;
            self.ask_for_core(rank, now);
        }
    }

    fn ask_for_core(&mut self, rank: usize, now: Time) {
        self.members[rank].status = Status::Waiting;
        let cores = self.cores(rank);
        if cores.n_free == 0 {
            cores.waiting.push_back(rank as u32);
        } else {
            cores.n_free -= 1;
            self.run(rank, now);
        }
    }

    /// Leaves the rank's core to the next that waits for one.
    fn leave_core(&mut self, rank: usize, now: Time) {
        match self.cores(rank).waiting.pop_front() {
            Some(next) => self.queue.push(now, Event::Run { rank: next }),
            None => self.cores(rank).n_free += 1,
        }
    }

    /// The rank has a core.
    fn run(&mut self, rank: usize, now: Time) {
        let member = &mut self.members[rank];
        member.status = Status::Running;
        member.has_core_since = now;
        let prelude = std::mem::take(&mut member.prelude);
        if prelude > 0 {
            self.compute(rank, prelude, now);
        } else {
            self.pass(rank, now);
        }
    }

    fn compute(&mut self, rank: usize, duration: Time, now: Time) {
        self.members[rank].account.computing += duration;
        self.queue.push(now + duration, Event::Done { rank: rank as u32 });
    }

    /// Begins the first step for which nothing is missing, looking at lanes in turn as the engine
    /// does.
    fn pass(&mut self, rank: usize, now: Time) {
        self.see(rank, now);
        let n_lanes = self.job.n_lanes;
        let first = self.members[rank].next;
        for lane in (first..n_lanes).chain(0..first) {
            if self.turn(rank, lane, now) {
                self.members[rank].current = Some(lane);
                self.members[rank].next = if lane + 1 == n_lanes { 0 } else { lane + 1 };
                return;
            }
        }
        let member = &mut self.members[rank];
        if member.n_active == 0 {
            member.status = Status::Away;
            member.account.finished = now;
            self.n_left -= 1;
        } else {
            member.status = Status::Idle;
        }
        self.leave_core(rank, now);
    }

    /// Begins the lane's step if nothing is missing for it: first the frame is taken, then credit.
    fn turn(&mut self, rank: usize, lane: usize, now: Time) -> bool {
        let Some(step) = self.lane(rank, lane).step else { return false };
        if let (Some(from), None) = (step.from, self.lane(rank, lane).incoming) {
            let key = Key { from: from.0, to: rank as u32, lane: lane as u32 };
            let Some((content, sender_waits)) = self.links.take(key) else { return false };
            self.lane_mut(rank, lane).incoming = Some(content);
            if sender_waits {
                self.queue.push(now + self.prices.latency, Event::Credit { rank: from.0 });
            }
        }
        if let Some(to) = step.to {
            let key = Key { from: rank as u32, to: to.0, lane: lane as u32 };
            if !self.links.reserve(key, self.job.cluster.network.link_depth) {
                return false;
            }
        }
        let duration = self.begin(rank, lane, &step);
        self.compute(rank, duration, now);
        true
    }

    /// Does what the step does with what the lane holds; how long that takes.
    fn begin(&mut self, rank: usize, lane: usize, step: &Step) -> Time {
        let (job, rules, in_place) = (self.job, self.job.rules, self.job.in_place);
        let state = self.lane_mut(rank, lane);
        let round = state.round;
        let (n_values, incoming) = (state.n_values, state.incoming.take());
        let place = (job.call, Rank::new(rank));
        let (work, sent) = act(rules, in_place, place, step, &mut state.held, incoming);
        let frame = |content| job.message(step, round, n_values, content);
        let outgoing = sent.map(|content| (content, frame(content)));
        state.outgoing = outgoing;
        let messages = Messages {
            received: incoming.map(frame),
            sent: outgoing.map(|(_, n_bytes)| n_bytes),
            is_new: sent.is_some_and(|content| !content.as_received),
        };
        self.prices.of_step(n_values, &work, &messages)
    }

    /// What the rank computed is done.
    fn done(&mut self, rank: usize, now: Time) {
        if let Some(lane) = self.members[rank].current.take() {
            self.complete(rank, lane, now);
        }
        let used = now - self.members[rank].has_core_since;
        if used >= self.prices.slice && !self.cores(rank).waiting.is_empty() {
            self.members[rank].status = Status::Waiting;
            self.cores(rank).waiting.push_back(rank as u32);
            self.leave_core(rank, now);
        } else {
            self.pass(rank, now);
        }
    }

    /// Sends what the lane's step has to send, and moves on.
    fn complete(&mut self, rank: usize, lane: usize, now: Time) {
        let n_steps = self.members[rank].n_steps;
        let n_lanes = self.job.n_lanes;
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
            let key = Key { from: rank as u32, to: to.0, lane: lane as u32 };
            self.send(Frame { key, content, n_bytes }, now);
        }
        self.look_up(rank, lane);
    }

    fn send(&mut self, frame: Frame, now: Time) {
        let Frame { key, n_bytes, .. } = frame;
        let member = &mut self.members[key.from as usize];
        member.account.wire_bytes += u64::from(n_bytes);
        member.account.n_messages += 1;
        let eager = self.job.cluster.network.eager;
        if eager.is_some_and(|eager| self.links.asks(key, n_bytes > eager)) {
            // The question is short, and queues behind what was sent before.
            let there = now.max(member.egress_free) + self.prices.latency;
            self.queue.push(there, Event::Ask { frame });
        } else {
            self.transmit(frame, now);
        }
    }

    /// Puts a frame on its sender's link; inside a node it crosses none.
    fn transmit(&mut self, frame: Frame, now: Time) {
        let Frame { key, content, n_bytes } = frame;
        let is_near = self.job.is_near(key.from, key.to);
        let crossing = if is_near { 0 } else { self.prices.crossing(n_bytes) };
        let member = &mut self.members[key.from as usize];
        let start = now.max(member.egress_free);
        member.egress_free = start + crossing;
        let there = start + self.prices.latency;
        if crossing == 0 {
            self.queue.push(there, Event::Arrive { key, content });
        } else {
            self.queue.push(there, Event::FirstByte { frame });
        }
    }

    /// A handshake has come. A rank sees it when it is not in a call, at once if it is idle, else
    /// after its current step.
    fn hear(&mut self, rank: usize, handshake: Handshake, now: Time) {
        self.members[rank].unseen.push(handshake);
        match self.members[rank].status {
            Status::Away => self.see(rank, now),
            _ => self.notify(rank, now),
        }
    }

    /// Answers who has asked, and sends what was answered.
    fn see(&mut self, rank: usize, now: Time) {
        for handshake in std::mem::take(&mut self.members[rank].unseen) {
            match handshake {
                Handshake::Asked(frame) => {
                    self.queue.push(now + self.prices.latency, Event::Answer { frame });
                }
                Handshake::Answered(frame) => {
                    self.links.leaves(frame.key);
                    self.transmit(frame, now);
                }
            }
        }
    }
}
