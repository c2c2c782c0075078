//! A compiled program: for each step the message that it received, what it computed, and the
//! message that it sent.
//!
//! A step that runs again on the same slot contents computes the same, and its messages have the
//! same headers except for the call's number. So a [`Replay`](super::Replay) needs neither
//! schedule, nor layout, nor rules. A step is compiled while the engine runs it, because only then
//! it is known how many ranks' values its messages combine.
//!
//! Only programs of one round, with one part in each message, are compiled.

use super::Program;
use crate::codec::CodecId;
use crate::frame::{HEADER_BYTES, MessageFields, Template};
use crate::layout::Segment;
use crate::primitive::{Primitive, Primitives, Slot, SlotContent, SlotContents, held_after};
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
    pub(super) codec: CodecId,
    /// Length of the message in bytes, if its values are not compressed.
    pub(super) n_bytes: Option<usize>,
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
    /// Contents of the slots once the message has been received.
    pub(super) contents: SlotContents,
    pub(super) received: Option<Received>,
    /// Slots that need a frame before the step computes.
    pub(super) frames: heapless::Vec<Slot, 2>,
    pub(super) to_do: Primitives,
    pub(super) sent: Option<Sent>,
    /// True if `Held` has a content after the step.
    pub(super) holds: bool,
    /// Number of program steps that it covers: 2 if a following step that only stores was merged
    /// into it.
    pub(super) n_steps: usize,
}

impl CompiledStep {
    /// Merges the next step into this one if the next step only stores, and so waits for no peer.
    fn absorb(&mut self, next: &Self) {
        let &[Primitive::Store { from, codec, over_own }] = &*next.to_do else { return };
        let communicates = self.sent.is_some() || next.received.is_some() || next.sent.is_some();
        if communicates || self.n_steps > 1 || self.segment != next.segment || self.to_do.is_full()
        {
            return;
        }
        // If this step moves a payload only so that the next one stores it, store it from where it
        // is.
        let from = match *self.to_do {
            [.., Primitive::Move { from: place, to }] if to == from && !next.holds => {
                self.to_do.pop();
                place
            }
            _ => from,
        };
        // Likewise, combine floats in the output if they are only stored. (Operands may be
        // swapped: see `op`.)
        let combined = match *self.to_do {
            [.., Primitive::FoldInPlace]
                if (from, codec) == (Slot::In, CodecId::Raw) && !next.holds =>
            {
                self.to_do.pop();
                Primitive::ReduceStore { codec }
            }
            _ => Primitive::Store { from, codec, over_own },
        };
        // Cannot fail: the list was not full.
        let _ = self.to_do.push(combined);
        (self.holds, self.n_steps) = (next.holds, 2);
    }
}

/// The compiled steps of a program, from the first one on.
#[derive(Debug, Default)]
pub(crate) struct Compiled {
    steps: Vec<CompiledStep>,
    /// True if a step could not be compiled.
    is_refused: bool,
    /// True if any step receives a message.
    pub(super) receives: bool,
}

impl Compiled {
    pub(super) fn step(&self, index: usize) -> Option<&CompiledStep> {
        self.steps.get(index)
    }

    /// Returns whether a program of this many steps can be replayed.
    pub(crate) fn is_whole(&self, n_steps: usize) -> bool {
        self.steps.len() == n_steps && !self.is_refused
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
        self.receives |= compiled.as_ref().is_some_and(|step| step.received.is_some());
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
            let n_bytes = HEADER_BYTES + segment.len * program.header.dtype.n_bytes();
            let n_bytes = (content.codec == CodecId::Raw).then_some(n_bytes);
            let (header, codec) = (header(from, content), content.codec);
            Some(Received { from, header, codec, n_bytes, next })
        }
        (None, None) => None,
        _ => return None,
    };
    let (before, to_do) = (contents, to_do.collect::<Primitives>());
    for primitive in &to_do {
        if matches!(primitive, Primitive::Join { .. } | Primitive::Replace { .. }) {
            return None;
        }
        contents = primitive.after(contents, 1)?;
    }
    let writes = |slot| to_do.iter().any(|primitive| primitive.needs_frame(slot));
    let frames = [Slot::Out, Slot::Spare].into_iter().filter(|&slot| writes(slot)).collect();
    let sent = match (step.to, contents[Slot::Out.index()]) {
        (Some(to), Some(content)) => Some(Sent { to, header: header(program.rank, content) }),
        (Some(_), None) => return None,
        (None, _) => None,
    };
    contents[Slot::Out.index()] = None;
    let (contents, holds) = (before, held_after(step, &contents).is_some());
    Some(CompiledStep { segment, contents, received, frames, to_do, sent, holds, n_steps: 1 })
}
