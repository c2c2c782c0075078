//! Every list that can be made is one that a lane can carry out, and does what its step says.

use super::*;
use crate::schedule::Part;
use crate::transport::Rank;
use std::vec::Vec as List;

/// All rules that calls can have.
fn all_rules() -> List<Rules> {
    let mut all = List::new();
    for collective in Collective::ALL {
        let reductions = [OpCode::Sum, OpCode::Avg, OpCode::Max, OpCode::Prod, OpCode::User];
        let ops = if collective.reduces() { &reductions[..] } else { &[OpCode::None] };
        for pipeline in &crate::pipeline::ALL {
            for &codec in CodecId::ALL {
                for &op in ops {
                    let rules = Rules::new(collective, pipeline, codec, op);
                    // Also of a codec that is exact, but not for free.
                    for rules in [rules, Rules { exact: true, ..rules }] {
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

/// All steps that make something of something.
fn all_steps() -> impl Iterator<Item = Step> {
    (0..64_u32).map(|bits| {
        let is_set = |bit: u32| bits >> bit & 1 == 1;
        let peer = |bit| is_set(bit).then_some(Rank(1));
        Step {
            from: peer(0),
            to: peer(1),
            own: is_set(2),
            keep: is_set(3),
            store: is_set(4),
            as_sent: is_set(5),
            ..Step::own(Part(0))
        }
    })
}

/// What a list leaves, and how often it writes the output; panics where a lane could not go on.
fn carry_out(list: &Primitives, mut contents: Contents, name: &str) -> (Contents, usize) {
    // Nothing is in a slot without a frame: all but an empty `Held` and `In` have one.
    let mut has_frame = contents.map(|content| content.is_some());
    has_frame[Slot::Out.index()] = true;
    has_frame[Slot::Spare.index()] = true;
    let mut n_stores = 0;
    for primitive in list {
        if let Primitive::Move { from, to } = *primitive {
            has_frame.swap(from.index(), to.index());
        }
        let writes = primitive.target();
        assert!(writes.is_none_or(|slot| has_frame[slot.index()]), "{name}: {primitive:?}");
        let stores = writes.is_none() || *primitive == Primitive::FoldStore;
        n_stores += usize::from(stores);
        contents = primitive.after(contents).unwrap_or_else(|| panic!("{name}: {primitive:?}"));
    }
    (contents, n_stores)
}

#[test]
fn every_list_can_be_carried_out_and_does_what_its_step_says() {
    let mut n_lists = 0;
    for rules in all_rules() {
        for step in all_steps().filter(Step::is_well_formed) {
            for held in [None, Some(Form::Frame), Some(Form::Floats)] {
                let list = rules.primitives(&step, held);
                let name = std::format!("{step} holding {held:?} by {rules:?}: {list:?}");
                let content = |form, operands, as_received| Content { form, operands, as_received };
                let mut contents = [None; Slot::COUNT];
                contents[Slot::In.index()] = step.from.map(|_| content(Form::Frame, 8, true));
                contents[Slot::Held.index()] = held.map(|form| content(form, 4, false));
                let (after, n_stores) = carry_out(&list, contents, &name);

                assert_eq!(n_stores, usize::from(step.store), "{name}");
                let received = if step.from.is_some() { 8 } else { 0 };
                let own = if held.is_some() { 4 } else { 1 };
                let operands = received + if step.own { own } else { 0 };
                if step.to.is_some() {
                    let out = after[Slot::Out.index()].expect(&name);
                    assert_eq!((out.form, out.operands), (Form::Frame, operands), "{name}");
                    let passes = !step.own && !rules.recodes;
                    assert_eq!(out.as_received, passes, "{name}");
                }
                let is_local = step.from.is_none() && held.is_none();
                if step.keep && !is_local {
                    let kept = after[Slot::Held.index()].expect(&name);
                    assert_eq!(kept.operands, operands, "{name}");
                }
                n_lists += 1;
            }
        }
    }
    assert!(n_lists > 1000, "{n_lists}");
}

#[test]
fn who_only_reads_stores_nothing_and_sends_the_same() {
    for rules in all_rules() {
        for step in all_steps().filter(|step| step.is_well_formed() && step.from.is_none()) {
            let contents = [None; Slot::COUNT];
            let outcome = |rules: Rules| {
                let list = rules.primitives(&step, None);
                let (after, n_stores) = carry_out(&list, contents, &std::format!("{list:?}"));
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
    for primitive in [
        Primitive::Encode { from: Slot::Held, to: Slot::Out },
        Primitive::Decode { from: Slot::In, to: Slot::Spare },
        Primitive::Move { from: Slot::In, to: Slot::Out },
        Primitive::Fold,
        Primitive::CombineInPlace { with: Slot::Held },
        Primitive::ReduceStore,
        Primitive::Store { from: Slot::Held, over_own: false },
    ] {
        assert_eq!(primitive.after(nothing), None, "{primitive:?}");
    }
    let floats = Content { form: Form::Floats, operands: 3, as_received: false };
    let mut contents = nothing;
    contents[Slot::Held.index()] = Some(floats);
    assert_eq!(Primitive::Store { from: Slot::Held, over_own: true }.after(contents), None);
    assert_eq!(Primitive::StoreFloats { from: Slot::Held }.after(contents), Some(contents));
}
