//! State that all ranks share: clock, links, NICs, and pending faults.
//!
//! No thread drives this state. When a rank sends, the simulator computes the whole route of the
//! frame at once (NICs, delay, faults). It queues the frame for the receiver together with its
//! arrival time. The receiver finds the frame once virtual time has reached that point. A heap
//! holds the times at which a rank can find something new, so that the executor knows how far time
//! can jump.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::rc::Rc;
use std::time::Duration;

use foldwire::frame::{HEADER_BYTES, Header};
use foldwire::{Collective, Rank, Tag};

use crate::link::{InFlightFrame, LinkQueue, NEVER, Nanos};
use crate::pool::SimPool;
use crate::{EventKind, Fault, Foreign, Frame, Harm, NetSettings, Random, Trace};

#[derive(Debug)]
pub(crate) struct SimFabric {
    pub(crate) net: NetSettings,
    pub(crate) size: usize,
    pub(crate) now: Nanos,
    pub(crate) random: Random,
    pub(crate) pool: Rc<SimPool>,
    pub(crate) ranks: Vec<SimRank>,
    pub(crate) trace: Trace,
    /// Frames that ranks have sent or received so far.
    pub(crate) n_moves: u64,
    /// True if no frame moved in the executor's last pass.
    pub(crate) is_idle: bool,
    /// All faults, and whether each has occurred.
    pub(crate) faults: Vec<(Fault, bool)>,
    links: Vec<LinkQueue>,
    /// Times at which a rank (row) learns that a peer (column) is lost, as a matrix.
    loss_times: Vec<Nanos>,
    /// Links (from row to column) that drop all frames, as a matrix.
    cut: Vec<bool>,
    wake_times: BinaryHeap<Reverse<Nanos>>,
    /// Messages sent to each rank, kept for replays.
    records: Vec<(Rank, Vec<u8>)>,
}

/// State of a rank, as the network sees it.
#[derive(Debug, Default)]
pub(crate) struct SimRank {
    /// The rank has dropped its endpoint, or died.
    pub(crate) is_closed: bool,
    /// A fault killed the rank: its calls have no effect.
    pub(crate) is_dead: bool,
    /// Time before which the executor does not poll the rank.
    pub(crate) asleep_until: Nanos,
    /// Frames that the rank has taken from the pool or received, and not yet sent or recycled.
    pub(crate) n_held: usize,
    n_sent: usize,
    /// Frames that the rank has sent or received.
    n_moved: usize,
    /// Time of the last frame sent or received, except on the [control tag](Tag::CONTROL).
    pub(crate) last_move: Nanos,
    /// Time from which the NIC is free to send.
    egress: Nanos,
    /// Time from which the NIC is free to receive.
    ingress: Nanos,
    /// Sent frames that leave only when the rank polls again.
    outbox: VecDeque<(Rank, Tag, Frame, usize)>,
}

fn nanos(time: Duration) -> Nanos {
    time.as_nanos() as Nanos
}

impl SimFabric {
    pub(crate) fn new(
        size: usize,
        net: NetSettings,
        seed: u64,
        faults: Vec<Fault>,
        trace: Trace,
    ) -> Self {
        Self {
            size,
            now: 0,
            random: Random(seed),
            pool: SimPool::new(net.frame_bytes),
            ranks: (0..size).map(|_| SimRank::default()).collect(),
            trace,
            n_moves: 0,
            is_idle: false,
            faults: faults.into_iter().map(|fault| (fault, false)).collect(),
            links: (0..size * size * net.channels.max(1) * Tag::COUNT)
                .map(|_| LinkQueue::default())
                .collect(),
            loss_times: vec![NEVER; size * size],
            cut: vec![false; size * size],
            wake_times: BinaryHeap::new(),
            records: Vec::new(),
            net,
        }
    }

    fn link(&mut self, from: Rank, to: Rank, tag: Tag) -> &mut LinkQueue {
        let first = self.pair(from, to) * self.n_tags();
        &mut self.links[first + tag.index()]
    }

    /// Number of tags of all channels together.
    pub(crate) fn n_tags(&self) -> usize {
        self.net.channels.max(1) * Tag::COUNT
    }

    fn pair(&self, from: Rank, to: Rank) -> usize {
        from.index() * self.size + to.index()
    }

    /// Returns whether two ranks share a node.
    pub(crate) fn is_near(&self, a: Rank, b: Rank) -> bool {
        let n = self.net.ranks_per_node.max(1);
        a.index() / n == b.index() / n
    }

    fn rank_state(&mut self, rank: Rank) -> &mut SimRank {
        &mut self.ranks[rank.index()]
    }

    /// Returns a random time, uniform in 0…`longest`.
    pub(crate) fn uniform(&mut self, longest: Duration) -> Nanos {
        self.random.below(nanos(longest) as usize + 1) as Nanos
    }

    fn delay(&mut self) -> Nanos {
        nanos(self.net.latency) + self.uniform(self.net.jitter)
    }

    /// Decides at random whether to answer "not yet" without a reason. Always false after an idle
    /// pass. So if the next pass is idle too, the ranks really cannot continue.
    pub(crate) fn refuses(&mut self) -> bool {
        !self.is_idle && self.random.one_in(self.net.refusal)
    }

    /// Decides at random whether the executor skips a rank. Always false after an idle pass.
    pub(crate) fn neglects(&mut self) -> bool {
        !self.is_idle && self.random.one_in(self.net.neglect)
    }

    /// Records that a rank can find something new at `time`.
    pub(crate) fn wake_at(&mut self, time: Nanos) {
        if time > self.now && time != NEVER {
            self.wake_times.push(Reverse(time));
        }
    }

    /// Returns the next time after now at which a rank can find something new.
    pub(crate) fn next_wake(&mut self) -> Option<Nanos> {
        while self.wake_times.peek().is_some_and(|&Reverse(time)| time <= self.now) {
            self.wake_times.pop();
        }
        self.wake_times.peek().map(|&Reverse(time)| time)
    }

    pub(crate) fn note(&mut self, rank: Rank, kind: EventKind) {
        self.trace.add(self.now, rank, kind);
    }

    /// Marks a fault as having occurred, and returns it.
    fn strike(&mut self, index: usize) -> Fault {
        let (fault, has_struck) = &mut self.faults[index];
        *has_struck = true;
        let fault = *fault;
        self.note(fault.rank(), EventKind::Fault(fault));
        fault
    }

    /// Applies the stalls and deaths that are due for `rank`, by the number of frames it has moved.
    pub(crate) fn strike_due(&mut self, rank: Rank) {
        for index in 0..self.faults.len() {
            let (
                Fault::Stall { rank: whom, after, .. } | Fault::Death { rank: whom, after },
                false,
            ) = self.faults[index]
            else {
                continue;
            };
            if whom != rank || self.ranks[rank.index()].n_moved < after {
                continue;
            }
            let until = match self.strike(index) {
                Fault::Stall { lasting: Some(time), .. } => self.now.saturating_add(nanos(time)),
                Fault::Stall { .. } => NEVER,
                _ => {
                    self.rank_state(rank).is_dead = true;
                    continue;
                }
            };
            self.wake_at(until);
            let state = self.rank_state(rank);
            state.asleep_until = state.asleep_until.max(until);
        }
    }

    fn count_move(&mut self, rank: Rank, tag: Tag) {
        self.n_moves += 1;
        let now = self.now;
        let state = self.rank_state(rank);
        state.n_moved += 1;
        if !tag.is_control() {
            state.last_move = now;
        }
        self.strike_due(rank);
    }

    pub(crate) fn has_space(&mut self, from: Rank, to: Rank, tag: Tag) -> bool {
        let (depth, now) = (tag.depth(self.net.depth.max(1)), self.now);
        self.link(from, to, tag).has_space(depth, now)
    }

    /// Returns whether `rank` knows that `peer` is lost.
    pub(crate) fn is_lost(&self, rank: Rank, peer: Rank) -> bool {
        self.loss_times[self.pair(rank, peer)] <= self.now
    }

    /// Sends a frame for which the link has space. With [`NetSettings::attended`], the frame leaves
    /// only when the rank polls again.
    pub(crate) fn send(&mut self, from: Rank, to: Rank, tag: Tag, frame: Frame, n_bytes: usize) {
        self.link(from, to, tag).spend();
        let header = self.header(&frame, n_bytes);
        self.note(from, EventKind::Sent { to, tag, n_bytes, header });
        let state = self.rank_state(from);
        state.n_held -= 1;
        state.outbox.push_back((to, tag, frame, n_bytes));
        if !self.net.attended {
            self.flush(from);
        }
        self.count_move(from, tag);
    }

    /// Parses the header if the trace keeps events.
    fn header(&self, frame: &Frame, n_bytes: usize) -> Option<Header> {
        let message = frame.as_ref().get(..n_bytes)?;
        if self.trace.keeps() { Header::parse(message, false).ok() } else { None }
    }

    /// Transmits waiting frames until the NIC is busy.
    pub(crate) fn send_waiting(&mut self, rank: Rank) {
        while self.rank_state(rank).egress <= self.now {
            let Some((to, tag, frame, n_bytes)) = self.rank_state(rank).outbox.pop_front() else {
                return;
            };
            self.transmit(rank, to, tag, frame, n_bytes);
        }
    }

    /// Transmits all waiting frames.
    fn flush(&mut self, rank: Rank) {
        while let Some((to, tag, frame, n_bytes)) = self.rank_state(rank).outbox.pop_front() {
            self.transmit(rank, to, tag, frame, n_bytes);
        }
    }

    /// Returns the receiver of the oldest frame that waits until `rank`, its sender, polls again.
    /// Considers only frames for whose tag `counts` is true.
    pub(crate) fn undelivered(&self, rank: Rank, counts: impl Fn(Tag) -> bool) -> Option<Rank> {
        let mut outbox = self.ranks[rank.index()].outbox.iter();
        outbox.find(|&&(_, tag, ..)| counts(tag)).map(|&(to, ..)| to)
    }

    /// Puts a frame on the wire: computes its arrival time, and applies faults to it.
    fn transmit(&mut self, from: Rank, to: Rank, tag: Tag, frame: Frame, n_bytes: usize) {
        let nth = self.rank_state(from).n_sent;
        self.rank_state(from).n_sent += 1;
        let arrival = if self.is_near(from, to) {
            self.now + self.delay()
        } else {
            let on_wire = (n_bytes as f64 / self.net.bandwidth * 1e9) as Nanos;
            let start = self.now.max(self.rank_state(from).egress);
            self.rank_state(from).egress = start + on_wire;
            self.wake_at(start + on_wire);
            let arrival = (start + self.delay()).max(self.rank_state(to).ingress) + on_wire;
            self.rank_state(to).ingress = arrival;
            arrival
        };
        let mut in_flight = InFlightFrame { frame, n_bytes, arrival, is_credited: true };

        let mut harm = None;
        for index in 0..self.faults.len() {
            let (
                Fault::Delay { rank, nth: which, .. }
                | Fault::Cut { rank, nth: which, .. }
                | Fault::Harm { rank, nth: which, .. },
                false,
            ) = self.faults[index]
            else {
                continue;
            };
            if (rank, which) != (from, nth) {
                continue;
            }
            if let Fault::Harm { harm: Harm::Repeat { behind }, .. } = self.faults[index].0 {
                // The fault strikes when the copy is queued.
                let copy = self.copy(&in_flight);
                self.link(from, to, tag).repeat(behind, index, copy);
                continue;
            }
            match self.strike(index) {
                Fault::Delay { by, .. } => in_flight.arrival += nanos(by),
                Fault::Cut { silent, .. } => self.cut(from, to, silent),
                Fault::Harm { harm: what, .. } => harm = Some(what),
                Fault::Stall { .. } | Fault::Death { .. } => {}
            }
        }
        if self.cut[self.pair(from, to)] {
            return self.pool.give(in_flight.frame);
        }
        self.wake_at(in_flight.arrival);
        match harm {
            None | Some(Harm::Repeat { .. }) => {}
            Some(Harm::Flip) => {
                let bit = self.random.below(n_bytes * 8);
                if let Some(byte) = in_flight.frame.as_mut().get_mut(bit / 8) {
                    *byte ^= 1 << (bit % 8);
                }
            }
            Some(Harm::Truncate) => in_flight.n_bytes = self.random.below(n_bytes),
            Some(Harm::Lose) => return self.pool.give(in_flight.frame),
            Some(Harm::Swap) => return self.link(from, to, tag).swap(in_flight),
            Some(Harm::Foreign(foreign)) => {
                let (forged, (from, to, tag)) = self.forge(&in_flight, foreign, (from, to, tag));
                self.link(from, to, tag).push(forged);
            }
        }
        self.record(&in_flight, to);
        if let Some(repeated) = self.link(from, to, tag).push(in_flight) {
            self.strike(repeated);
        }
    }

    /// Copies a frame without spending credit.
    fn copy(&self, in_flight: &InFlightFrame) -> InFlightFrame {
        let mut frame = self.pool.take();
        frame.as_mut().copy_from_slice(in_flight.frame.as_ref());
        let InFlightFrame { n_bytes, arrival, .. } = *in_flight;
        InFlightFrame { frame, n_bytes, arrival, is_credited: false }
    }

    /// Keeps a message for `to` if a replay fault is still pending.
    fn record(&mut self, in_flight: &InFlightFrame, to: Rank) {
        let replays = |(fault, has_struck): &(Fault, bool)| {
            let is_replay =
                matches!(fault, Fault::Harm { harm: Harm::Foreign(Foreign::Replay), .. });
            is_replay && !has_struck
        };
        if self.faults.iter().any(replays) {
            self.records.push((to, in_flight.frame.as_ref()[..in_flight.n_bytes].to_vec()));
        }
    }

    /// Picks a rank other than `a` and `b`; returns `a` if there is none.
    fn third_rank(&mut self, a: Rank, b: Rank) -> Rank {
        let others = (0..self.size).map(Rank::new).filter(|&rank| rank != a && rank != b);
        let others: Vec<_> = others.collect();
        if others.is_empty() { a } else { *self.random.pick(&others) }
    }

    /// Forges a frame from a copy of `model`, which was sent on `link`. Returns the forged frame
    /// with the link on which it arrives.
    fn forge(
        &mut self,
        model: &InFlightFrame,
        foreign: Foreign,
        link: (Rank, Rank, Tag),
    ) -> (InFlightFrame, (Rank, Rank, Tag)) {
        let (from, to, tag) = link;
        let mut forged = self.copy(model);
        let InFlightFrame { frame, n_bytes, .. } = &mut forged;
        let message = &mut frame.as_mut()[..*n_bytes];
        let header = Header::parse(message, false);
        let (Ok(mut header), true) = (header, foreign != Foreign::Stranger) else {
            *n_bytes = self.random.below(self.net.frame_bytes + 1);
            frame.as_mut().iter_mut().for_each(|byte| *byte = self.random.bits() as u8);
            return (forged, link);
        };
        let has_checksum = message[HEADER_BYTES - 8..HEADER_BYTES] != [0; 8];
        match foreign {
            Foreign::Stranger => {}
            Foreign::OldCall => {
                let earlier = 1 + self.random.below(header.call.sequence.max(1) as usize);
                header.call.sequence = header.call.sequence.wrapping_sub(earlier as u32);
            }
            Foreign::OtherCollective => {
                let others =
                    Collective::ALL.iter().filter(|&&other| other != header.call.collective);
                let others: Vec<_> = others.collect();
                header.call.collective = **self.random.pick(&others);
            }
            Foreign::OtherPart => header.part ^= 1 << self.random.below(3),
            Foreign::OtherTag => {
                let n_tags = self.n_tags();
                let other = (tag.index() + 1 + self.random.below(n_tags - 1)) % n_tags;
                return (forged, (from, to, Tag(other as u16)));
            }
            Foreign::OtherSender => return (forged, (self.third_rank(from, to), to, tag)),
            Foreign::OtherReceiver => return (forged, (from, self.third_rank(to, from), tag)),
            Foreign::Replay => {
                let earlier = self.records.iter().filter(|(receiver, _)| *receiver == to);
                let earlier: Vec<_> = earlier.map(|(_, message)| message).collect();
                // Without an earlier message, `forged` stays a copy of the current one.
                if !earlier.is_empty() {
                    let message = *self.random.pick(&earlier);
                    frame.as_mut()[..message.len()].copy_from_slice(message);
                    *n_bytes = message.len();
                }
                return (forged, link);
            }
        }
        header.emit(message, has_checksum);
        (forged, link)
    }

    /// Cuts the link between two ranks in both directions.
    fn cut(&mut self, a: Rank, b: Rank, silent: bool) {
        for (from, to) in [(a, b), (b, a)] {
            let pair = self.pair(from, to);
            self.cut[pair] = true;
            if !silent {
                self.report_loss(from, to);
            }
        }
    }

    /// Lets `rank` learn after a delay that `peer` is lost.
    fn report_loss(&mut self, rank: Rank, peer: Rank) {
        let at = self.now + self.delay();
        let pair = self.pair(rank, peer);
        self.loss_times[pair] = self.loss_times[pair].min(at);
        self.wake_at(at);
    }

    /// Takes the next frame that has arrived.
    pub(crate) fn receive(&mut self, rank: Rank, from: Rank, tag: Tag) -> Option<(Frame, usize)> {
        let now = self.now;
        let InFlightFrame { frame, n_bytes, is_credited, .. } =
            self.link(from, rank, tag).pop(now)?;
        if is_credited {
            let at = now + self.delay();
            self.link(from, rank, tag).refund(at);
            self.wake_at(at);
        }
        let header = self.header(&frame, n_bytes);
        self.note(rank, EventKind::Received { from, tag, n_bytes, header });
        self.rank_state(rank).n_held += 1;
        self.count_move(rank, tag);
        Some((frame, n_bytes))
    }

    /// Returns whether no frame with this tag is in flight from `from` to `rank`.
    pub(crate) fn is_drained(&mut self, rank: Rank, from: Rank, tag: Tag) -> bool {
        self.link(from, rank, tag).is_empty()
    }

    /// Ends the rank, either because it dropped its endpoint or because of a fault.
    pub(crate) fn close(&mut self, rank: Rank) {
        if self.rank_state(rank).is_closed {
            return;
        }
        self.rank_state(rank).is_closed = true;
        let is_dead = self.rank_state(rank).is_dead;
        self.note(rank, if is_dead { EventKind::Died } else { EventKind::Ended });
        if is_dead {
            for (.., frame, _) in std::mem::take(&mut self.rank_state(rank).outbox) {
                self.pool.give(frame);
            }
        } else {
            self.flush(rank);
        }
        for peer in (0..self.size).map(Rank::new) {
            self.report_loss(peer, rank);
        }
    }

    /// Returns all frames in the network to the pool.
    pub(crate) fn drain(&mut self) {
        let pool = &self.pool;
        self.links.iter_mut().flat_map(LinkQueue::drain).for_each(|frame| pool.give(frame));
    }
}
