//! Encodes of local input that a device may begin before a lane asks for them.
//!
//! One message fills only a part of a device. So while an encode is pending, the lane names those
//! that it will ask for later, in order: of the run's other parts, of the steps that follow, and of
//! the lane's next rounds. A device begins as many as it has streams and memory for. gZCCL's
//! scatter is the model: its root encodes all blocks at once. A block longer than a
//! frame has a segment in each of several rounds.
//!
//! A name is a forecast: the lane does not know yet which payloads it will receive. An encode that
//! it named but does not ask for has cost time, and one that it did not name runs when it asks.
//!
//! A device may read the input early, because no rank reads it after results were stored over it.

use super::Program;
use super::compute::Computing;
use super::lane::{Lane, StepProgress};
use super::slots::FrameBuffer;
use crate::error::Error;
use crate::layout::Run;
use crate::primitive::{Primitive, Slot, SlotContent, SlotContents, StepLinks, held_after};
use crate::schedule::Step;
use core::ops::Range;

/// Most steps of a round that are forecast.
const MAX_STEPS: usize = 32;

impl<F: FrameBuffer> Lane<F> {
    /// Names the encodes that come after the pending one.
    pub(super) fn begin_ahead(
        &self,
        program: &Program<'_>,
        compute: &mut Computing<'_>,
        (step, run): (&Step, &Run<'_>),
    ) -> Result<(), Error> {
        let StepProgress::Computing { to_do, n_done } = &self.progress else { return Ok(()) };
        let Some((&pending, rest)) = to_do.split_last() else { return Ok(()) };
        if !matches!(pending, Primitive::EncodeOwn { .. })
            || name_parts(pending, run, *n_done + 1, compute)?.is_none()
        {
            return Ok(());
        }
        // The rest of this round, if its contents can be forecast.
        let after = pending.after(self.slots.contents(), step.n_parts);
        let mut named = Named { n_encodes: 0, after };
        if let Some(contents) = after {
            let rest = rest.iter().rev().copied();
            let Some(step) = name_step(rest, run, contents, compute)? else { return Ok(()) };
            named = step;
        }
        if let Some(contents) = named.after {
            let held = held_after(step, &contents);
            let steps = self.step + 1..program.n_steps;
            if name_steps(program, self.round, steps, held, compute)?.is_none() {
                return Ok(());
            }
        }
        let (first, n_rounds) = (self.round + program.n_lanes, program.layout.n_rounds());
        for round in (first..n_rounds).step_by(program.n_lanes) {
            match name_steps(program, round, 0..program.n_steps, None, compute)? {
                // The device begins no more, or there is nothing to begin.
                None | Some(0) => break,
                Some(_) => {}
            }
        }
        Ok(())
    }
}

/// Encodes that were named of a step.
struct Named {
    n_encodes: usize,
    /// Contents of the slots after the step's primitives, if they can be forecast.
    after: Option<SlotContents>,
}

/// Names the encodes of some steps of a round, at whose start `held` is held. Returns their number,
/// or `None` if the device begins no more.
fn name_steps(
    program: &Program<'_>,
    round: usize,
    steps: Range<usize>,
    mut held: Option<SlotContent>,
    compute: &mut Computing<'_>,
) -> Result<Option<usize>, Error> {
    let mut n_encodes = 0;
    for index in steps.take(MAX_STEPS) {
        let step = program.step(index);
        if program.layout.skips(step.part, round) {
            continue;
        }
        // A message as most steps receive it.
        let codec = program.rules.codec();
        let received = step.from.map(|_| SlotContent::new(codec, 1, step.n_parts).received());
        let mut contents = [None; Slot::COUNT];
        (contents[Slot::In.index()], contents[Slot::Held.index()]) = (received, held);
        let links = StepLinks::of(program.call, program.rank, &step, received, held);
        let primitives = program.rules.primitives(&step, held, links);
        let run = program.layout.run(&step, round);
        let Some(named) = name_step(primitives.into_iter(), &run, contents, compute)? else {
            return Ok(None);
        };
        n_encodes += named.n_encodes;
        let Some(contents) = named.after else { break };
        held = held_after(&step, &contents);
    }
    Ok(Some(n_encodes))
}

/// Names the encodes among the primitives of a step. Returns `None` if the device begins no more.
fn name_step(
    primitives: impl Iterator<Item = Primitive>,
    run: &Run<'_>,
    mut contents: SlotContents,
    compute: &mut Computing<'_>,
) -> Result<Option<Named>, Error> {
    let mut n_encodes = 0;
    for primitive in primitives {
        if matches!(primitive, Primitive::EncodeOwn { .. }) {
            let Some(n) = name_parts(primitive, run, 0, compute)? else { return Ok(None) };
            n_encodes += n;
        }
        let Some(after) = primitive.after(contents, run.n_parts()) else {
            return Ok(Some(Named { n_encodes, after: None }));
        };
        contents = after;
    }
    Ok(Some(Named { n_encodes, after: Some(contents) }))
}

/// Names the encodes of a run's parts from number `first` on. Returns their number, or `None` if
/// the device begins no more.
fn name_parts(
    encode: Primitive,
    run: &Run<'_>,
    first: u16,
    compute: &mut Computing<'_>,
) -> Result<Option<usize>, Error> {
    let parts = first..run.n_parts();
    let n_parts = parts.len();
    for place in parts {
        let segment = run.segment(place.into());
        if !compute.work.begin_ahead(compute.lane, encode, &segment)? {
            return Ok(None);
        }
    }
    Ok(Some(n_parts))
}
