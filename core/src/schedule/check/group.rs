//! All ranks of a checked schedule, and how the checker runs them.

use super::super::{Collective, Part, ProgramSpec, Schedule, SourceRows, Step};
use super::bit_set::BitSet;
use super::run::ValueRun;
use super::value::PartValue;
use super::{Fault, Message, Summary};
use crate::transport::Rank;
use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

/// All ranks and the links between them.
pub(super) struct CheckedGroup<'a> {
    schedule: &'a dyn Schedule,
    call: ProgramSpec,
    n_parts: usize,
    ranks: Vec<CheckedRank>,
    /// The frame in each link that is not empty.
    links: BTreeMap<(Rank, Rank), CheckedFrame>,
    /// For each part of a collective that reduces nothing: the ranks that start with the part.
    /// `None` until a rank stores the part.
    origins: Vec<Option<BitSet>>,
    /// For each part: the first stored output, which all other outputs must equal.
    outputs: Vec<Option<StoredPart>>,
    summary: Summary,
    /// All messages that have arrived, if the caller wants a list.
    pub(super) messages: Option<Vec<Message>>,
}

/// State of one rank.
struct CheckedRank {
    n_steps: usize,
    next_step: usize,
    /// The next step's incoming frame, while the step waits for credit to send.
    received: Option<CheckedFrame>,
    /// The rank's holding.
    held: Option<ValueRun>,
    /// Parts whose local value may still be used.
    local: BitSet,
    /// Parts that are stored in the output.
    stored: BitSet,
    clock: MessageClock,
}

/// Clock of a rank. A message takes one unit of time ([`Summary::critical_path`]).
#[derive(Default)]
struct MessageClock {
    now: usize,
    /// Time at which the rank is done sending its last message: one unit after the departure.
    sent: usize,
    /// Arrival of the last message.
    received: usize,
}

/// A message in a link.
struct CheckedFrame {
    run: ValueRun,
    departure: usize,
}

/// The rank that stored a part first, and what determines the bits of its value.
struct StoredPart {
    rank: Rank,
    /// See [`PartValue::tree`].
    tree: u64,
    /// See [`PartValue::as_sent`].
    as_sent: bool,
}

impl<'a> CheckedGroup<'a> {
    pub(super) fn new(schedule: &'a dyn Schedule, call: ProgramSpec) -> Result<Self, Fault> {
        let ProgramSpec { collective, size, root, max_run, .. } = call;
        if root.index() >= size || max_run == 0 {
            return Err(Fault::BadCall { root, size });
        }
        if !schedule.supports(collective) {
            return Err(Fault::Unsupported { collective });
        }
        let n_parts = schedule.n_parts(call);
        // Without shares, the schedule may cut the array into any number of parts.
        let has_shares = !collective.is_scan()
            && !matches!(
                collective,
                Collective::AllReduce | Collective::Broadcast | Collective::Reduce
            );
        if n_parts == 0 || has_shares && n_parts != collective.n_parts(size) {
            return Err(Fault::PartCount { n_parts, size });
        }
        let call = call.with_runs_of(schedule);
        let ranks = (0..size)
            .map(|r| {
                let rank = Rank::new(r);
                let mut local = BitSet::new(n_parts);
                let starts_with = |&p: &usize| call.has(call.input(rank), rank, Part::new(p));
                (0..n_parts).filter(starts_with).for_each(|p| local.insert(p));
                CheckedRank {
                    n_steps: schedule.n_steps(call, rank),
                    next_step: 0,
                    received: None,
                    held: None,
                    local,
                    stored: BitSet::new(n_parts),
                    clock: MessageClock::default(),
                }
            })
            .collect();
        Ok(Self {
            schedule,
            call,
            n_parts,
            ranks,
            links: BTreeMap::new(),
            origins: vec![None; n_parts],
            outputs: (0..n_parts).map(|_| None).collect(),
            summary: Summary::default(),
            messages: None,
        })
    }

    /// Runs every rank until none can continue.
    pub(super) fn run(&mut self) -> Result<(), Fault> {
        let mut runnable: Vec<Rank> = (0..self.call.size).rev().map(Rank::new).collect();
        while let Some(rank) = runnable.pop() {
            self.advance(rank, &mut runnable)?;
        }
        Ok(())
    }

    /// Runs `rank` until it cannot continue. Adds ranks that may be able to continue after that to
    /// `runnable`.
    fn advance(&mut self, rank: Rank, runnable: &mut Vec<Rank>) -> Result<(), Fault> {
        while let Some(step) = self.next_step(rank)? {
            if let Some(from) = step.from
                && self.state(rank).received.is_none()
            {
                let Some(frame) = self.links.remove(&(from, rank)) else { break };
                self.receive(rank, from, step, frame)?;
                runnable.push(from);
            }
            if let Some(to) = step.to
                && self.links.contains_key(&(rank, to))
            {
                break;
            }
            self.act(rank, step)?;
            runnable.extend(step.to);
        }
        Ok(())
    }

    /// Checks the form of `rank`'s next step, and returns the step. `None` if the program has
    /// ended.
    fn next_step(&self, rank: Rank) -> Result<Option<Step>, Fault> {
        let CheckedRank { next_step: index, n_steps, .. } = self.ranks[rank.index()];
        if index == n_steps {
            return Ok(None);
        }
        let step = self.schedule.step(self.call, rank, index);
        let Step { part, n_parts, from, to, .. } = step;
        if !step.is_well_formed() || !self.has_rows(step) {
            return Err(Fault::Malformed { rank, step: index });
        }
        let is_bad = |peer: &Rank| *peer == rank || peer.index() >= self.call.size;
        if let Some(peer) = from.into_iter().chain(to).find(is_bad) {
            return Err(Fault::BadPeer { rank, step: index, peer });
        }
        if part.index() >= self.n_parts {
            return Err(Fault::BadPart { rank, step: index, part, n_parts: self.n_parts });
        }
        let (n_parts, max) = (usize::from(n_parts), self.max_run());
        if n_parts > max {
            return Err(Fault::LongRun { rank, step: index, n_parts, max });
        }
        Ok(Some(step))
    }

    /// Checks that a frame contains the parts that the step expects, and keeps the frame for the
    /// step.
    fn receive(
        &mut self,
        rank: Rank,
        from: Rank,
        step: Step,
        frame: CheckedFrame,
    ) -> Result<(), Fault> {
        let state = self.state(rank);
        let index = state.next_step;
        if frame.run.first() != step.part {
            let (expected, arrived) = (step.part, frame.run.first());
            return Err(Fault::WrongPart { rank, step: index, from, expected, arrived });
        }
        let (expected, arrived) = (usize::from(step.n_parts), frame.run.len());
        if arrived != expected {
            return Err(Fault::WrongRun { rank, step: index, from, expected, arrived });
        }
        let differs = |pair: &(Part, Part)| pair.0 != pair.1;
        let other = self.parts(step).zip(frame.run.parts()).find(differs);
        if let Some((expected, arrived)) = other {
            return Err(Fault::WrongPart { rank, step: index, from, expected, arrived });
        }
        let state = self.state(rank);
        let clock = &mut state.clock;
        clock.received = clock.received.max(frame.departure) + 1;
        clock.now = clock.now.max(clock.received);
        let arrival = clock.received;
        let CheckedFrame { ref run, departure } = frame;
        let part = run.first();
        let message = Message { from, to: rank, part, n_parts: arrived, departure, arrival };
        state.received = Some(frame);
        if let Some(messages) = &mut self.messages {
            messages.push(message);
        }
        Ok(())
    }

    /// Carries out a step whose frame has been received and whose outgoing link has space.
    fn act(&mut self, rank: Rank, step: Step) -> Result<(), Fault> {
        let Step { part, to, keep, .. } = step;
        let index = self.ranks[rank.index()].next_step;
        let received = self.state(rank).received.take().map(|frame| frame.run);
        let held = self.ranks[rank.index()].held.as_ref();
        // If a step sends or stores a local part, `keep` does not put that part into the holding.
        // It only says that a later step uses the local part again.
        let keeps_local = step.from.is_none() && keep && held.is_none() && !step.takes();
        if let Some(held) = held.filter(|_| step.uses_held()) {
            self.check_is_held(held, rank, step)?;
        }

        let own = if step.own { Some(self.own(rank, step, keeps_local)?) } else { None };
        if step.before
            && let Some(received) = &received
        {
            for (part, value) in &received.0 {
                self.store(rank, *part, value)?;
            }
        }
        let mut run = match (received, own) {
            (Some(mut received), Some(own)) => {
                for ((part, value), (_, own)) in received.0.iter_mut().zip(&own.0) {
                    value.combine(own).map_err(|contributor| Fault::DoubleCount {
                        rank,
                        step: index,
                        part: *part,
                        contributor,
                    })?;
                }
                received
            }
            (Some(run), None) | (None, Some(run)) => run,
            (None, None) => {
                unreachable!("a well-formed step receives a frame or uses its own operand")
            }
        };

        if keep && !keeps_local {
            self.hold(rank, step, run.clone())?;
        }
        for (part, value) in &mut run.0 {
            value.as_sent |= to.is_some() || step.as_sent;
            if step.store && !step.before {
                self.store(rank, *part, value)?;
            }
        }
        if let Some(to) = to {
            if !run.is_even_from(0) {
                return Err(Fault::Uneven { rank, step: index, part });
            }
            let clock = &mut self.state(rank).clock;
            let departure = clock.now.max(clock.sent);
            clock.sent = departure + 1;
            self.links.insert((rank, to), CheckedFrame { run, departure });
            self.summary.n_messages += 1;
            self.summary.n_root_messages += usize::from(rank == self.call.root);
        }
        self.state(rank).next_step += 1;
        Ok(())
    }

    /// Takes the rank's own operand for a step: from the holding if the step uses the holding, else
    /// from the local parts. Later steps cannot use the operand again, unless it is local and
    /// `keeps_local` is set.
    fn own(&mut self, rank: Rank, step: Step, keeps_local: bool) -> Result<ValueRun, Fault> {
        let size = self.call.size;
        let parts: Vec<Part> = self.parts(step).collect();
        let state = self.state(rank);
        if let Some(held) = state.held.as_mut().filter(|_| step.uses_held()) {
            let places = step.places(held.len()).expect("`check_is_held` found the places");
            let run = held.take_out(places);
            state.held.take_if(|held| held.len() == 0);
            return Ok(run);
        }
        let local = |part| Ok((part, state.local_value(size, rank, part, keeps_local)?));
        Ok(ValueRun(parts.into_iter().map(local).collect::<Result<_, _>>()?))
    }

    /// Returns an error unless the holding has the step's parts at the step's places.
    fn check_is_held(&self, held: &ValueRun, rank: Rank, step: Step) -> Result<(), Fault> {
        let index = self.ranks[rank.index()].next_step;
        let places = step.places(held.len());
        if !places.is_some_and(|places| held.has_at(places, self.parts(step))) {
            let (part, held) = (step.part, held.first());
            return Err(Fault::OtherPartHeld { rank, step: index, part, held });
        }
        if (step.front || step.is_of_rows()) && !held.is_even_from(0) {
            return Err(Fault::Uneven { rank, step: index, part: step.part });
        }
        Ok(())
    }

    /// Adds a run to the holding where the step says: at an end of the holding, or in its rows.
    fn hold(&mut self, rank: Rank, step: Step, run: ValueRun) -> Result<(), Fault> {
        let (n_all, max) = (self.n_parts, self.max_run());
        let state = &mut self.ranks[rank.index()];
        let (index, part) = (state.next_step, step.part);
        let Some(held) = &mut state.held else {
            state.held = Some(run);
            return Ok(());
        };
        let n_parts = held.len() + run.len();
        if n_parts > n_all {
            return Err(Fault::HoldingLost { rank, step: index, part });
        }
        if n_parts > max {
            return Err(Fault::LongRun { rank, step: index, n_parts, max });
        }
        let [first, second] = if step.front { [&run, &*held] } else { [&*held, &run] };
        let follows = (first.first().index() + first.len()) % n_all == second.first().index();
        let places = step.places(n_parts).filter(|_| step.rows.is_some() || follows);
        let Some(places) = places else {
            let held = held.first();
            return Err(Fault::OtherPartHeld { rank, step: index, part, held });
        };
        held.put_in(run, places);
        let is_end = !step.front && !step.is_of_rows();
        if !held.is_even_from(usize::from(is_end)) {
            return Err(Fault::Uneven { rank, step: index, part });
        }
        Ok(())
    }

    /// Maximum number of parts in a run.
    fn max_run(&self) -> usize {
        usize::from(self.call.max_run).min(self.n_parts)
    }

    /// Returns whether the step's rows, if it has any, are possible in this call.
    fn has_rows(&self, step: Step) -> bool {
        let ProgramSpec { collective, size, .. } = self.call;
        step.rows.is_none_or(|SourceRows { len, back, ring, held }| {
            let is_all_to_all = collective == Collective::AllToAll && (back as usize) < size;
            let is_row = len > 0 && (held == 0 || held > len);
            is_all_to_all && is_row && ring > 0 && size.is_multiple_of(ring as usize)
        })
    }

    /// The parts of a step, in order.
    fn parts(&self, step: Step) -> impl Iterator<Item = Part> + use<> {
        let (call, n_parts) = (self.call, self.n_parts);
        (0..usize::from(step.n_parts)).map(move |place| step.part_at(call, n_parts, place))
    }

    /// Checks a value that a step stores, and records it as an output.
    fn store(&mut self, rank: Rank, part: Part, value: &PartValue) -> Result<(), Fault> {
        let call = self.call;
        let state = self.state(rank);
        let step = state.next_step;
        if !call.has(call.output(rank), rank, part) {
            return Err(Fault::NotOutput { rank, step, part });
        }
        if state.stored.contains(part.index()) {
            return Err(Fault::StoredTwice { rank, step, part });
        }
        state.stored.insert(part.index());
        // In place, an all-to-all stores a part over the part that went the other way.
        let overwritten = if call.collective == Collective::AllToAll {
            let (source, destination) = call.ends_of(part);
            call.part_between(destination, source)
        } else {
            part
        };
        state.local.remove(overwritten.index());

        let operands;
        let needed = if call.collective.reduces() {
            operands = BitSet::first(call.n_operands(rank), call.size);
            &operands
        } else {
            self.origins[part.index()].get_or_insert_with(|| origin(call, part))
        };
        if let Some(r) = needed.first_difference(&value.contributors) {
            let contributor = Rank::new(r);
            return Err(Fault::WrongContributors { rank, step, part, contributor });
        }

        if call.collective.is_scan() {
            // Results differ between ranks, so there is nothing to compare.
            return Ok(());
        }
        let &PartValue { tree, as_sent, .. } = value;
        let first = self.outputs[part.index()].get_or_insert(StoredPart { rank, tree, as_sent });
        if (first.tree, first.as_sent) != (tree, as_sent) {
            return Err(Fault::DifferentBits { rank, step, part, other: first.rank });
        }
        Ok(())
    }

    /// Checks the final state, after no rank can continue.
    pub(super) fn conclude(mut self) -> Result<Summary, Fault> {
        self.find_stuck()?;
        if let Some((&(from, to), frame)) = self.links.first_key_value() {
            return Err(Fault::Undelivered { from, to, part: frame.run.first() });
        }
        for (r, state) in self.ranks.iter().enumerate() {
            let rank = Rank::new(r);
            if let Some(held) = &state.held {
                return Err(Fault::HoldingLeft { rank, part: held.first() });
            }
            let output = self.call.output(rank);
            let ends_with = |p: usize| self.call.has(output, rank, Part::new(p));
            let is_missing = |&p: &usize| ends_with(p) && !state.stored.contains(p);
            if let Some(p) = (0..self.n_parts).find(is_missing) {
                return Err(Fault::NeverStored { rank, part: Part::new(p) });
            }
            let summary = &mut self.summary;
            summary.n_steps += state.n_steps;
            summary.max_steps = summary.max_steps.max(state.n_steps);
            summary.critical_path = summary.critical_path.max(state.clock.now);
        }
        Ok(self.summary)
    }

    /// Returns an error if a rank's program has not ended. If some rank waits for a rank whose
    /// program has ended, the error names that pair, because the fault is there.
    fn find_stuck(&self) -> Result<(), Fault> {
        let mut first = None;
        let mut n_stuck = 0;
        for rank in (0..self.call.size).map(Rank::new) {
            let Some(Step { from, to, .. }) = self.next_step(rank)? else { continue };
            let CheckedRank { next_step: step, ref received, .. } = self.ranks[rank.index()];
            let (peer, fault) = match (from, to) {
                (Some(from), _) if received.is_none() => {
                    (from, Fault::NeverSent { rank, step, from })
                }
                (_, Some(to)) => (to, Fault::NeverReceived { rank, step, to }),
                _ => unreachable!("only a step that receives or sends can wait"),
            };
            if self.has_ended(peer) {
                return Err(fault);
            }
            n_stuck += 1;
            first.get_or_insert((rank, step, peer));
        }
        match first {
            None => Ok(()),
            Some((rank, step, peer)) => Err(Fault::Deadlock { rank, step, peer, n_stuck }),
        }
    }

    fn has_ended(&self, rank: Rank) -> bool {
        let state = &self.ranks[rank.index()];
        state.next_step == state.n_steps
    }

    fn state(&mut self, rank: Rank) -> &mut CheckedRank {
        &mut self.ranks[rank.index()]
    }
}

impl CheckedRank {
    /// Takes the local value of `part`. A later step can use it again only if `keep` is set.
    fn local_value(
        &mut self,
        size: usize,
        rank: Rank,
        part: Part,
        keep: bool,
    ) -> Result<PartValue, Fault> {
        if !self.local.contains(part.index()) {
            return Err(Fault::NoLocal { rank, step: self.next_step, part });
        }
        if !keep {
            self.local.remove(part.index());
        }
        Ok(PartValue::local(size, rank, part))
    }
}

/// The ranks that start with a part.
fn origin(call: ProgramSpec, part: Part) -> BitSet {
    let mut origin = BitSet::new(call.size);
    let starts_with = |&rank: &Rank| call.has(call.input(rank), rank, part);
    (0..call.size).map(Rank::new).filter(starts_with).for_each(|rank| origin.insert(rank.index()));
    origin
}
