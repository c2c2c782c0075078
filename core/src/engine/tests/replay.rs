//! Replay of compiled calls.

use super::*;
use crate::frame::{HEADER_BYTES, MessageFields};
use crate::pipeline::RAW;
use crate::primitive::Slot;
use crate::schedule::RecursiveDoubling;

/// Returns the message that rank 1 of 2 sends in an all-gather of `engine`.
fn part_of_rank_1(program: &Program<'_>, n_values: usize) -> Vec<u8> {
    of_rank_1(program, 1, n_values)
}

/// Returns the message that rank 1 sends for a part.
fn of_rank_1(program: &Program<'_>, part: u32, n_values: usize) -> Vec<u8> {
    let (from, round, n_values) = (Rank(1), 0, n_values as u32);
    let fields = MessageFields { from, part, round, n_values };
    let mut message = vec![0; HEADER_BYTES + 4 * n_values as usize];
    let header = program.template.filled(&fields, 1, false);
    header.write(&mut message, program.checksum).expect("the message is long enough");
    message
}

#[test]
fn a_compiled_call_does_the_same_again_in_messages_of_its_own_number() {
    let call = ProgramSpec::new(Collective::AllGather, 2, Rank(0));
    let limits = Limits { stall: Duration::from_secs(1), deadline: None };
    for checksum in [false, true] {
        let mut transport = MemoryTransport::new(2, 8);
        let mut lanes = Lanes::default();
        let quick = || SlowCompute { is_quick: true, ..SlowCompute::default() };
        let (mut first, mut notices) = (quick(), Notices::default());
        let mut engine = engine(call, 20, &Pairwise, &mut lanes);
        lanes.record = Some(Compiled::default());
        engine.program.checksum = checksum;
        for expected in [Progress::Moved, Progress::Finished] {
            let found =
                engine.poll(&mut transport, &mut lanes, &mut first.raw(), limits, &mut notices);
            assert_eq!(found, Ok(expected));
            transport.puts(1, &part_of_rank_1(&engine.program, 10));
        }
        transport.clear();
        let compiled = lanes.record.take().expect("a record");
        assert!(compiled.is_whole(engine.program.n_steps));

        let mut again = quick();
        let (program, sequence) = (engine.program.numbered(7), 7);
        let mut replay = Replay::new(program.report());
        transport.puts(1, &part_of_rank_1(&program, 10));
        replay.begin(sequence, Duration::ZERO, &mut lanes);
        let on = (&program, &compiled);
        let found = replay.poll(on, &mut transport, &mut lanes, &mut again.raw(), &mut notices);
        assert_eq!(found, Ok(Some(Progress::Finished)));
        assert_eq!((&again.done, &again.places), (&first.done, &first.places));
        assert_eq!(transport.sent_to, [Rank(1); 2]);
        assert_eq!(replay.report.wire_bytes, engine.report.wire_bytes);

        // An engine must judge a message of another call, or of another length.
        for (sequence, n_values) in [(8, 10), (9, 9)] {
            replay.begin(9, Duration::ZERO, &mut lanes);
            transport.puts(1, &part_of_rank_1(&program.numbered(sequence), n_values));
            let found = replay.poll(on, &mut transport, &mut lanes, &mut again.raw(), &mut notices);
            assert_eq!(found, Ok(None));
            let mut engine = replay.into_engine((program, &compiled), &mut lanes);
            let found =
                engine.poll(&mut transport, &mut lanes, &mut again.raw(), limits, &mut notices);
            assert!(matches!(found, Err(Error::Mismatch { rank: Rank(1), .. })), "{found:?}");
            engine.abort(&mut transport, &mut lanes, &notices, None, &mut |_| ());
            transport.clear();
        }
    }
}

/// If 2 ranks exchange their arrays, the last step of each stores what was combined.
#[test]
fn a_step_that_only_stores_is_made_with_the_one_before_even_if_that_is_pending() {
    let call = ProgramSpec::new(Collective::AllReduce, 2, Rank(0));
    let limits = Limits { stall: Duration::from_secs(1), deadline: None };
    let (mut transport, mut notices) = (MemoryTransport::new(2, 8), Notices::default());
    let mut lanes = Lanes::default();
    let mut engine = engine(call, 20, &RecursiveDoubling, &mut lanes);
    lanes.record = Some(Compiled::default());
    let mut first = SlowCompute { is_quick: true, ..SlowCompute::default() };
    for expected in [Progress::Moved, Progress::Finished] {
        let found = engine.poll(&mut transport, &mut lanes, &mut first.raw(), limits, &mut notices);
        assert_eq!(found, Ok(expected));
        transport.puts(1, &of_rank_1(&engine.program, 0, 20));
    }
    transport.clear();
    let compiled = lanes.record.take().expect("a record");
    let program = engine.program;
    assert_eq!((program.n_steps, compiled.step(1).map(|step| step.n_steps)), (3, Some(2)));

    // The combination is pending twice, or the store is, or nothing is.
    for n_quick in 1..4 {
        let mut replay = Replay::new(program.report());
        replay.begin(1, Duration::ZERO, &mut lanes);
        transport.puts(1, &of_rank_1(&program, 0, 20));
        let mut again = SlowCompute { n_quick, ..SlowCompute::default() };
        let on = (&program, &compiled);
        let found = replay.poll(on, &mut transport, &mut lanes, &mut again.raw(), &mut notices);
        let is_replayed = found == Ok(Some(Progress::Finished));
        assert_eq!(is_replayed, n_quick == 3, "{found:?}");
        let mut engine = replay.into_engine((program, &compiled), &mut lanes);
        let mut is_finished = is_replayed;
        while !is_finished {
            let again = &mut again.raw();
            let found = engine.poll(&mut transport, &mut lanes, again, limits, &mut notices);
            is_finished = found.expect("nothing fails") == Progress::Finished;
        }
        let [combined, Primitive::Store { .. }] = again.done[1..] else {
            panic!("{:?}", again.done)
        };
        assert_eq!([again.done[0], combined], first.done[..2]);
        // Each message brought one frame.
        assert_eq!(transport.n_there(), 8 + 1 + n_quick, "no frame is lost");
    }
}

/// Floats that are only stored are combined in the output, not in the frame and then copied.
#[test]
fn floats_are_combined_where_they_are_stored() {
    let call = ProgramSpec::new(Collective::AllReduce, 2, Rank(0));
    let limits = Limits { stall: Duration::from_secs(1), deadline: None };
    let (mut transport, mut notices) = (MemoryTransport::new(2, 8), Notices::default());
    let mut lanes = Lanes::default();
    let mut engine = engine(call, 20, &RecursiveDoubling, &mut lanes);
    engine.program.rules = Rules::new(call.collective, &RAW, CodecId::Raw, OpCode::Sum);
    lanes.record = Some(Compiled::default());
    let mut first = SlowCompute { is_quick: true, ..SlowCompute::default() };
    for expected in [Progress::Moved, Progress::Finished] {
        let found = engine.poll(&mut transport, &mut lanes, &mut first.raw(), limits, &mut notices);
        assert_eq!(found, Ok(expected));
        transport.puts(1, &of_rank_1(&engine.program, 0, 20));
    }
    let in_frame = [Primitive::FoldInPlace, store(Slot::Held)];
    assert!(first.done.ends_with(&in_frame), "{:?}", first.done);
    let compiled = lanes.record.take().expect("a record");
    let step = compiled.step(1).expect("a step that receives");
    assert_eq!(*step.to_do, [Primitive::ReduceStore { codec: CodecId::Raw }]);
}

const fn store(from: Slot) -> Primitive {
    Primitive::Store { from, codec: CodecId::Raw, over_own: true }
}

#[test]
fn a_program_whose_steps_are_not_all_compiled_is_not_replayed() {
    let mut lanes: Lanes<Vec<u8>> = Lanes::default();
    let run = ProgramSpec::new(Collective::Scatter, 4, Rank(0)).with_runs(2);
    let of_runs = engine(run, 8000, &Binomial, &mut lanes).program;
    let single =
        engine(ProgramSpec::new(Collective::AllGather, 2, Rank(0)), 20, &Pairwise, &mut lanes);
    for (program, first) in [(&of_runs, 0), (&single.program, 1)] {
        let mut compiled = Compiled::default();
        for index in first..program.n_steps {
            let (step, contents) = (program.step(index), [None; Slot::COUNT]);
            compiled.add(program, index, (&step, None), contents, core::iter::empty());
        }
        assert!(!compiled.is_whole(program.n_steps));
    }
}

#[test]
fn what_a_forgotten_call_recorded_or_received_is_no_other_calls() {
    let mut lanes: Lanes<Vec<u8>> = Lanes::default();
    let call = ProgramSpec::new(Collective::AllGather, 2, Rank(0));
    lanes.record = Some(Compiled::default());
    let program = engine(call, 20, &Pairwise, &mut lanes).program;
    assert!(lanes.record.is_none());
    lanes.record = Some(Compiled::default());
    lanes.lanes[0].slots.put(Slot::In, vec![0; 64]).expect("the slot is empty");
    Replay::new(program.report()).begin(7, Duration::ZERO, &mut lanes);
    assert!(lanes.record.is_none() && !lanes.lanes[0].slots.has_frame(Slot::In));
}
