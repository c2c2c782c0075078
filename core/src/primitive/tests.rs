//! Checks that a lane can carry out every possible list, and that each list does what its step
//! says.

use super::*;
use crate::bound::{Bound, Quantum};
use crate::codec::{CodecId, CodecParams, Sizes};
use crate::element::DType;
use crate::layout::{Cut, Division, Layout, Shares, Window};
use crate::op::OpCode;
use crate::plan::Overlap;
use crate::preset::Preset;
use crate::schedule::{Collective, Part, ProgramSpec};
use crate::select;
use crate::transport::Rank;
use std::vec::Vec as List;

/// Returns all rules that calls can have.
fn all_rules() -> List<Rules> {
    let mut all = List::new();
    for collective in Collective::ALL {
        let reductions = [OpCode::Sum, OpCode::Avg, OpCode::Max, OpCode::Prod, OpCode::User];
        let ops = if collective.reduces() { &reductions[..] } else { &[OpCode::None] };
        for pipeline in &crate::pipeline::ALL {
            for &codec in CodecId::ALL {
                for &op in ops {
                    let rules = Rules::new(collective, pipeline, codec, op);
                    // Also with a codec that is exact, but not free, and with passes apart.
                    let exact = Rules { exact: true, ..rules };
                    for rules in [rules, exact, Rules { overlap: Overlap::Nothing, ..rules }] {
                        if !all.contains(&rules) {
                            all.push(rules);
                        }
                    }
                }
            }
        }
    }
    all
}

/// Returns all combinations of a step's properties, on a run of `n_parts`.
fn all_steps(n_parts: u16) -> impl Iterator<Item = Step> {
    (0..128_u32).map(move |bits| {
        let is_set = |bit: u32| bits >> bit & 1 == 1;
        let peer = |bit| is_set(bit).then_some(Rank(1));
        Step {
            from: peer(0),
            to: peer(1),
            own: is_set(2),
            keep: is_set(3),
            store: is_set(4),
            as_sent: is_set(5),
            local: is_set(6),
            ..Step::own(Part(0)).run(n_parts.into())
        }
    })
}

/// Returns the contents that a list leaves, and how often it writes the output. Panics if a lane
/// could not carry it out.
fn carry_out(
    list: &Primitives,
    n_parts: u16,
    mut contents: SlotContents,
    name: &str,
) -> (SlotContents, usize) {
    // A slot without a frame has no content. All slots except an empty `Held` and `In` have a
    // frame.
    let mut has_frame = contents.map(|content| content.is_some());
    has_frame[Slot::Out.index()] = true;
    has_frame[Slot::Spare.index()] = true;
    let mut n_stores = 0;
    let mut is_whole = false;
    for primitive in list {
        if let Primitive::Move { from, to } = *primitive {
            has_frame.swap(from.index(), to.index());
        }
        let writes = primitive.target();
        assert!(writes.is_none_or(|slot| has_frame[slot.index()]), "{name}: {primitive:?}");
        if *primitive == Primitive::Divide {
            assert!(is_whole, "{name}: nothing to divide, or divided before");
            is_whole = false;
        } else {
            let stores = writes.is_none() || *primitive == Primitive::FoldStore;
            n_stores += usize::from(stores);
            is_whole |= matches!(primitive, Primitive::StoreWhole { .. });
        }
        contents =
            primitive.after(contents, n_parts).unwrap_or_else(|| panic!("{name}: {primitive:?}"));
    }
    assert!(!is_whole, "{name}: sums are left in the output");
    (contents, n_stores)
}

/// Returns all held contents with which a step on a run of `n_parts` may begin: as many parts as
/// the step has, or more. Each combines `operands`.
fn all_held(
    codec: CodecId,
    n_parts: u16,
    operands: u32,
) -> impl Iterator<Item = Option<SlotContent>> {
    let held = move |codec, more| {
        let held = SlotContent::new(codec, operands, n_parts + more);
        Some(if more == 0 { held.received() } else { held })
    };
    let codecs = [CodecId::Raw, codec].into_iter().take(1 + usize::from(codec != CodecId::Raw));
    core::iter::once(None).chain(codecs.flat_map(move |codec| [0, 1].map(|more| held(codec, more))))
}

/// Returns whether the step puts its result behind the held content.
fn joins(step: &Step, held: Option<SlotContent>) -> bool {
    step.keep && !step.uses_held() && held.is_some()
}

/// Returns all links of a step of a call: between nodes and, for reductions, also within a node.
fn all_links(rules: Rules, step: &Step) -> List<StepLinks> {
    let mut all = List::new();
    for (codec, is_near) in
        [(rules.codec, false), (rules.codec, true), (CodecId::Raw, false), (CodecId::Raw, true)]
    {
        let received = step.from.map(|_| codec);
        // A value that is stored, or kept as it is sent, is complete.
        let is_complete = step.store || step.as_sent;
        let stays_floats = is_near && step.to.is_some() && !is_complete;
        let links = StepLinks { received, stays_floats, is_complete: false };
        let received = step.from.map(|_| rules.codec);
        let between = StepLinks { received, stays_floats: false, is_complete: false };
        if (rules.reduces || links == between) && !all.contains(&links) {
            all.push(links);
        }
    }
    all
}

/// Checks that the list of a step can be carried out, and leaves what the step says.
fn expect_list(rules: Rules, step: &Step, held: Option<SlotContent>, links: StepLinks) {
    let n_parts = step.n_parts;
    let received = if step.from.is_some() { 8 } else { 0 };
    let used = held.filter(|_| step.uses_held());
    let has_more = used.is_some_and(|held| held.n_parts > n_parts);
    let list = rules.primitives(step, held, links);
    let name = std::format!("{step} holding {held:?}, {links:?} by {rules:?}: {list:?}");
    let mut contents = [None; Slot::COUNT];
    contents[Slot::In.index()] =
        links.received.map(|codec| SlotContent::new(codec, 8, n_parts).received());
    contents[Slot::Held.index()] = held;
    let (after, n_stores) = carry_out(&list, n_parts, contents, &name);

    assert_eq!(n_stores, usize::from(step.store), "{name}");
    let own = if used.is_some() { 4 } else { 1 };
    let operands = received + if step.own { own } else { 0 };
    if step.to.is_some() {
        let out = after[Slot::Out.index()].expect(&name);
        assert_eq!((out.operands, out.n_parts), (operands, n_parts), "{name}");
        // Encoded content stays encoded, floats within a node stay floats, and passed payloads stay
        // as they are.
        let was_encoded = [links.received, used.map(|held| held.codec)]
            .into_iter()
            .flatten()
            .any(|codec| codec == rules.codec);
        let stays_encoded = rules.keeps_frames || step.from.is_none();
        let passes = !step.own && !rules.recodes;
        let wants = if passes {
            links.received.expect(&name)
        } else if step.own && links.stays_floats && (!was_encoded || !stays_encoded) {
            CodecId::Raw
        } else {
            rules.codec
        };
        assert_eq!(out.codec, wants, "{name}");
        let of_held = step.from.is_none() && !has_more;
        let is_new = match used {
            Some(held) if of_held && held.codec == out.codec => !held.as_received,
            _ => !passes,
        };
        assert_eq!(out.as_received, !is_new, "{name}");
    }
    let is_local = step.from.is_none() && held.is_none() && !step.takes();
    let left = held_after(step, &after);
    let n_held = held.map_or(0, |held| held.n_parts);
    if step.keep && !is_local {
        let kept = left.expect(&name);
        assert_eq!(kept.operands, operands, "{name}");
        let n_before = if joins(step, held) { n_held } else { 0 };
        assert_eq!(kept.n_parts, n_held.max(n_before + n_parts), "{name}");
        if step.reduces() && step.as_sent && !rules.recodes {
            assert_eq!(kept.codec, rules.codec, "{name}");
        }
        if let Some(held) = held.filter(|held| joins(step, Some(*held)) || held.n_parts > n_parts) {
            assert_eq!(kept.first_operands, held.first_operands, "{name}");
        }
    } else if !step.keep {
        let n_left = left.map_or(0, |left| left.n_parts);
        assert_eq!(n_left, if used.is_some() { n_held - n_parts } else { n_held }, "{name}");
    }
}

#[test]
fn every_list_can_be_carried_out_and_does_what_its_step_says() {
    let mut n_lists = 0;
    for (rules, n_parts) in all_rules().into_iter().flat_map(|rules| [(rules, 1), (rules, 3)]) {
        for step in all_steps(n_parts).filter(Step::is_well_formed) {
            for held in all_held(rules.codec, n_parts, if step.own { 4 } else { 8 }) {
                let is_reduced = step.reduces() && held.is_some() && step.uses_held();
                // If sums are kept as floats, no partial sum is held in the codec.
                let is_kept = held.is_some_and(|held| held.codec == rules.codec);
                if is_kept && rules.reduces && !rules.keeps_frames && is_reduced {
                    continue;
                }
                let made = match (step.from.is_some(), step.own) {
                    (received, true) if step.uses_held() => 4 + if received { 8 } else { 0 },
                    (received, true) => 1 + if received { 8 } else { 0 },
                    (_, false) => 8,
                };
                // Content can be put behind several parts only if it combines as many ranks' values
                // as they do.
                let is_uneven = held.is_some_and(|held| held.n_parts > 1 && held.operands != made);
                if joins(&step, held) && is_uneven {
                    continue;
                }
                for links in all_links(rules, &step) {
                    // The held content, and the content put behind it, were made in the same way
                    // and so have the same codec.
                    let received = links.received.unwrap_or(rules.codec);
                    let reduces = rules.reduces || step.reduces();
                    let sums_are_floats = step.own && reduces && !rules.keeps_frames;
                    let is_floats = rules.recodes || sums_are_floats;
                    let leaves_as_frame =
                        step.as_sent && (step.to.is_some() || step.reduces()) && !rules.recodes;
                    let made = match (leaves_as_frame && step.reduces(), is_floats) {
                        (true, _) => rules.codec,
                        (false, true) => CodecId::Raw,
                        (false, false) => received,
                    };
                    if joins(&step, held) && held.is_some_and(|held| held.codec != made) {
                        continue;
                    }
                    // If floats of several parts are held, a step does not encode only the last
                    // ones.
                    let is_more = held.is_some_and(|held| held.n_parts > n_parts);
                    let was_frame = links.received.is_some_and(|codec| codec != CodecId::Raw);
                    let sums_are_frames = rules.keeps_frames && is_reduced && was_frame;
                    let becomes_frame = sums_are_frames || leaves_as_frame;
                    if step.keep && step.uses_held() && is_more && !is_kept && becomes_frame {
                        continue;
                    }
                    expect_list(rules, &step, held, links);
                    n_lists += 1;
                }
            }
        }
    }
    assert!(n_lists > 4000, "{n_lists}");
}

#[test]
fn who_only_reads_stores_nothing_and_sends_the_same() {
    for rules in all_rules() {
        for step in all_steps(2).filter(|step| step.is_well_formed() && step.from.is_none()) {
            let contents = [None; Slot::COUNT];
            let outcome = |rules: Rules| {
                let links = StepLinks { received: None, stays_floats: false, is_complete: false };
                let list = rules.primitives(&step, None, links);
                let (after, n_stores) = carry_out(&list, 2, contents, &std::format!("{list:?}"));
                (after[Slot::Out.index()].filter(|_| step.to.is_some()), n_stores)
            };
            let (sent, _) = outcome(rules);
            assert_eq!(outcome(rules.reading_only()), (sent, 0), "{step} by {rules:?}");
        }
    }
}

#[test]
fn what_is_not_there_is_not_read() {
    let nothing = [None; Slot::COUNT];
    let [raw, codec] = [CodecId::Raw, CodecId::FzLight];
    for primitive in [
        Primitive::Transcode { from: Slot::Held, to: Slot::Out, codecs: [raw, codec] },
        Primitive::Move { from: Slot::In, to: Slot::Out },
        Primitive::Fold,
        Primitive::CombineInPlace { with: Slot::Held },
        Primitive::ReduceStore { codec: CodecId::FzLight },
        Primitive::Store { from: Slot::Held, codec, over_own: false },
        Primitive::Join { from: Slot::In },
    ] {
        assert_eq!(primitive.after(nothing, 1), None, "{primitive:?}");
    }
    let floats = SlotContent::new(raw, 3, 2);
    let mut contents = nothing;
    contents[Slot::Held.index()] = Some(floats);
    let store = |codec| Primitive::Store { from: Slot::Held, codec, over_own: true };
    assert_eq!(store(codec).after(contents, 2), None, "by another codec");
    assert_eq!(store(raw).after(contents, 1), Some(contents));
    assert_eq!(store(raw).after(contents, 2), Some(contents));
    assert_eq!(store(raw).after(contents, 3), None, "more than is there");
    let part = Primitive::Move { from: Slot::Held, to: Slot::Out };
    assert_eq!(part.after(contents, 1), None, "some of what is held");
    let over = Primitive::EncodeOwn { to: Slot::Held, codec };
    assert_eq!(over.after(contents, 1), None, "over what is still needed");
    contents[Slot::In.index()] = Some(SlotContent { codec, ..floats });
    let with = Slot::Held;
    assert_eq!(Primitive::Combine { with }.after(contents, 2), None, "of other codecs");
    assert_eq!(Primitive::Join { from: Slot::In }.after(contents, 2), None, "of other codecs");
}

/// Numbers of parts that the root of a scatter of 50,000 values encodes before and after its first
/// message, and numbers of parts in its messages.
fn scatter(preset: Preset, size: usize) -> ([usize; 2], List<usize>) {
    let (collective, root, count) = (Collective::Scatter, Rank::new(size / 2), 50_000);
    let plan = preset.plan(collective, Bound::Absolute(1.0));
    let schedule = plan.schedule.expect("published systems name theirs");
    let codec = Sizes::new(plan.codec, DType::F32, CodecParams::new(Quantum::LOSSLESS));
    let call = ProgramSpec::new(collective, size, root);
    let n_parts = schedule.n_parts(call);
    let (division, max_segment, lanes, shortest) = (Division::Blocks, count, 1, 1);
    let cut = Cut { n_parts, division, max_segment, lanes, shortest };
    let layout = Layout::new(call, root, Shares::Even(count), Window::Whole, cut);
    let call = select::with_runs(call, schedule, &plan, &codec, &layout, 1 << 20);
    let rules = Rules::of_plan(collective, &plan, OpCode::None);
    let (mut encoded, mut sent) = ([0; 2], List::new());
    let mut held = None;
    for index in 0..schedule.n_steps(call, root) {
        let step = schedule.step(call, root, index);
        let mut contents = [None; Slot::COUNT];
        contents[Slot::Held.index()] = held;
        for primitive in rules.primitives(&step, held, StepLinks::of(call, root, &step, None, held))
        {
            contents = primitive.after(contents, step.n_parts).expect("a valid list");
            let encodes =
                matches!(primitive, Primitive::EncodeOwn { .. } | Primitive::Transcode { .. });
            encoded[usize::from(!sent.is_empty())] +=
                usize::from(step.n_parts) * usize::from(encodes);
        }
        sent.extend(step.to.map(|_| usize::from(step.n_parts)));
        held = held_after(&step, &contents);
    }
    (encoded, sent)
}

#[test]
fn published_scatters_encode_all_parts_before_the_first_leaves() {
    for (size, sent) in [(3, [1, 1].to_vec()), (8, [4, 2, 1].to_vec()), (11, [3, 4, 2, 1].to_vec())]
    {
        for preset in [Preset::Gzccl, Preset::Zccl, Preset::CColl] {
            assert_eq!(scatter(preset, size), ([size - 1, 0], sent.clone()), "{}", preset.name());
        }
        // Compression in messages encodes each message before it leaves.
        let (encoded, _) = scatter(Preset::Cprp2p, size);
        assert_eq!(encoded, [sent[0], size - 1 - sent[0]]);
    }
}
