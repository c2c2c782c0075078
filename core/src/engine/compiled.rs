//! A compiled program: for each step the message that it received, what it computed, and the
//! message that it sent.
//!
//! A step that runs again on the same slot contents computes the same, and its messages have the
//! same headers except for the call's number. So `Lane::replay` needs neither schedule, nor layout,
//! nor rules. A step is compiled while the engine runs it, because only then it is known how many
//! ranks' values its messages combine.
//!
//! Only programs of one round, with one part in each message, are compiled.

use super::Program;
use crate::frame::{MessageFields, Template};
use crate::layout::Segment;
use crate::primitive::{MAX_PRIMITIVES, Primitive, Slot, SlotContent, SlotContents, held_after};
use crate::schedule::Step;
use crate::transport::Rank;
use alloc::vec::Vec;

/// Largest number of steps of a program that is compiled.
const MAX_STEPS: usize = 64;

/// A message that a step receives.
#[derive(Debug)]
pub(super) struct Received {
    pub(super) from: Rank,
    pub(super) header: Template,
    pub(super) content: SlotContent,
    /// Rank from which the lane receives next.
    pub(super) next: Option<Rank>,
}

/// A message that a step sends.
#[derive(Debug)]
pub(super) struct Sent {
    pub(super) to: Rank,
    pub(super) header: Template,
}

/// A step as it ran.
#[derive(Debug)]
pub(super) struct CompiledStep {
    pub(super) segment: Segment,
    pub(super) received: Option<Received>,
    /// Slots that need a frame before the step computes.
    pub(super) frames: heapless::Vec<Slot, 2>,
    /// Primitives of the step, each with the slot contents after it.
    pub(super) to_do: heapless::Vec<(Primitive, SlotContents), MAX_PRIMITIVES>,
    pub(super) sent: Option<Sent>,
    /// Content of `Held` after the step.
    pub(super) held: Option<SlotContent>,
    /// Number of program steps that it covers: 2 if a following step that only stores was merged
    /// into it.
    pub(super) n_steps: usize,
}

impl CompiledStep {
    /// Merges the next step into this one if the next step only stores, and so waits for no peer.
    fn absorb(&mut self, next: &Self) {
        let &[(Primitive::Store { from, codec, over_own }, after)] = &*next.to_do else { return };
        let communicates = self.sent.is_some() || next.received.is_some() || next.sent.is_some();
        if communicates || self.n_steps > 1 || self.segment != next.segment || self.to_do.is_full()
        {
            return;
        }
        // If this step moves a payload only so that the next one stores it, store it from where it
        // is.
        let (from, after) = match *self.to_do {
            [.., (_, after), (Primitive::Move { from: place, to }, _)]
                if to == from && next.held.is_none() =>
            {
                self.to_do.pop();
                (place, after)
            }
            _ => (from, after),
        };
        // Cannot fail: the list was not full.
        let _ = self.to_do.push((Primitive::Store { from, codec, over_own }, after));
        (self.held, self.n_steps) = (next.held, 2);
    }
}

/// The compiled steps of a program, from the first one on.
#[derive(Debug, Default)]
pub(crate) struct Compiled {
    steps: Vec<CompiledStep>,
    /// True if a step could not be compiled.
    is_refused: bool,
}

impl Compiled {
    pub(super) fn step(&self, index: usize) -> Option<&CompiledStep> {
        self.steps.get(index)
    }

    /// Returns whether a program of this many steps can be replayed.
    pub(crate) fn is_whole(&self, n_steps: usize) -> bool {
        self.steps.len() == n_steps && !self.is_refused
    }

    /// Returns whether any step receives a message.
    pub(super) fn receives(&self) -> bool {
        self.steps.iter().any(|step| step.received.is_some())
    }

    /// Adds the step with this index, which runs the primitives `to_do` on these slot contents.
    /// `next` is the rank from which the lane receives afterwards.
    pub(super) fn add(
        &mut self,
        program: &Program<'_>,
        index: usize,
        (step, next): (&Step, Option<Rank>),
        contents: SlotContents,
        to_do: impl Iterator<Item = Primitive>,
    ) {
        if index < self.steps.len() || self.is_refused {
            return;
        }
        let compiled = (index == self.steps.len() && index < MAX_STEPS)
            .then(|| compile(program, (step, next), contents, to_do))
            .flatten();
        self.is_refused = compiled.is_none();
        if let (Some(before), Some(compiled)) = (self.steps.last_mut(), &compiled) {
            before.absorb(compiled);
        }
        self.steps.extend(compiled);
    }
}

/// Compiles the step, if possible.
fn compile(
    program: &Program<'_>,
    (step, next): (&Step, Option<Rank>),
    mut contents: SlotContents,
    to_do: impl Iterator<Item = Primitive>,
) -> Option<CompiledStep> {
    let is_single = step.n_parts == 1 && contents.iter().flatten().all(|held| held.n_parts == 1);
    if !is_single || program.layout.n_rounds() != 1 {
        return None;
    }
    let segment = program.layout.segment(step.part, 0);
    let header = |from, content: SlotContent| {
        let fields =
            MessageFields { from, part: step.part.0, round: 0, n_values: segment.len as u32 };
        let as_floats = content.codec != program.rules.codec();
        program.template_of(step.part).filled(&fields, content.operands, as_floats)
    };
    let received = match (step.from, contents[Slot::In.index()]) {
        (Some(from), Some(content)) => {
            Some(Received { from, header: header(from, content), content, next })
        }
        (None, None) => None,
        _ => return None,
    };
    let mut after = heapless::Vec::new();
    for primitive in to_do {
        if matches!(primitive, Primitive::Join { .. } | Primitive::Replace { .. }) {
            return None;
        }
        contents = primitive.after(contents, 1)?;
        after.push((primitive, contents)).ok()?;
    }
    let writes = |slot| after.iter().any(|(primitive, _)| primitive.needs_frame(slot));
    let frames = [Slot::Out, Slot::Spare].into_iter().filter(|&slot| writes(slot)).collect();
    let sent = match (step.to, contents[Slot::Out.index()]) {
        (Some(to), Some(content)) => Some(Sent { to, header: header(program.rank, content) }),
        (Some(_), None) => return None,
        (None, _) => None,
    };
    contents[Slot::Out.index()] = None;
    let held = held_after(step, &contents);
    Some(CompiledStep { segment, received, frames, to_do: after, sent, held, n_steps: 1 })
}
