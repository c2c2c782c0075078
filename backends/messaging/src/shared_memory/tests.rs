use super::message::{ANNOUNCED, MATCHED, NOTIFY, RETURNED, SHORT};
use super::*;
use crate::ffi::ring::RingMessage;
use crate::frame::SlotId;
use std::convert::Infallible;
use std::sync::{Barrier, Mutex};
use std::thread;

use foldwire::HeapFrame;

const FRAME_BYTES: usize = 20_000;
/// Bytes of a message in a frame that changes hands.
const LONG: usize = SHORT_BYTES + 1;
/// Messages that are copied in the ring, and one that is not.
const LENGTHS: [usize; 3] = [1000, SHORT_BYTES, LONG];

/// Returns the shared memory of each rank. `alter` changes the bytes that a rank passes to the
/// all-gather.
fn group(nodes: &[i64], alter: impl Fn(usize, &mut Vec<u8>) + Sync) -> Vec<Option<SharedMemory>> {
    let (given, all_there) = (Mutex::new(vec![]), Barrier::new(nodes.len()));
    let join = |rank: usize| {
        let all_gather = |mine: &[u8]| {
            let mut mine = mine.to_vec();
            alter(rank, &mut mine);
            given.lock().unwrap().push((rank, mine));
            all_there.wait();
            let mut all = given.lock().unwrap().clone();
            all_there.wait();
            given.lock().unwrap().clear();
            all_there.wait();
            all.sort();
            Ok::<_, Infallible>(all.into_iter().map(|(_, bytes)| bytes).collect())
        };
        SharedMemory::join(Rank::new(rank), nodes, FRAME_BYTES, all_gather).unwrap()
    };
    thread::scope(|scope| {
        let join = &join;
        let joined: Vec<_> = (0..nodes.len()).map(|rank| scope.spawn(move || join(rank))).collect();
        joined.into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}

fn pair() -> [SharedMemory; 2] {
    let mut both = group(&[0, 0], |_, _| {}).into_iter().flatten();
    [both.next().unwrap(), both.next().unwrap()]
}

fn frame(shared: &mut SharedMemory, content: u8) -> MessageFrame {
    let mut frame = shared.allocate(FRAME_BYTES).unwrap();
    frame.as_mut().fill(content);
    MessageFrame(FrameMemory::Shared(frame))
}

fn polled(shared: &mut SharedMemory) -> Vec<Event<MessageFrame>> {
    let mut events = VecDeque::new();
    shared.poll(&mut events);
    events.into()
}

fn heap(content: u8) -> MessageFrame {
    let mut frame = HeapFrame::new(FRAME_BYTES);
    frame.as_mut().fill(content);
    MessageFrame(FrameMemory::Heap(frame))
}

/// Takes all free frames of a rank.
fn take_all(shared: &mut SharedMemory) -> Vec<SharedFrame> {
    std::iter::from_fn(|| shared.allocate(FRAME_BYTES)).collect()
}

/// Returns the event of a send that shared memory carries.
fn of_shared(sent: AcceptedSend) -> Option<Event<MessageFrame>> {
    match sent {
        AcceptedSend::Shared(done) => done,
        AcceptedSend::Announced(frame) => panic!("{frame:?} is announced"),
    }
}

/// Sends a frame that must be announced.
fn announce(shared: &mut SharedMemory, tag: Tag, content: u8, matched: bool) {
    match shared.send(ONE, tag, heap(content), LONG, matched) {
        Ok(AcceptedSend::Announced(frame)) => assert_eq!(frame.as_ref()[LONG - 1], content),
        other => panic!("{other:?}"),
    }
}

/// Returns the tags of the receives that the message layer must post.
fn tags_to_post(shared: &mut SharedMemory) -> Vec<Tag> {
    let from_zero = |receive: AnnouncedReceive| (receive.from == ZERO).then_some(receive.tag);
    shared.take_receives().map(|receive| from_zero(receive).expect("zero announced it")).collect()
}

const ZERO: Rank = Rank(0);
const ONE: Rank = Rank(1);

/// Returns the content and the frame of a received message.
fn received(event: Option<Event<MessageFrame>>, tag: Tag, length: usize) -> (u8, MessageFrame) {
    match event {
        Some(Event::Received { from: ZERO, tag: found, buffer, n_bytes })
            if (found, n_bytes) == (tag, length) =>
        {
            (buffer.as_ref()[n_bytes - 1], buffer)
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn frames_come_in_order_by_tag_and_others_take_their_place() {
    LENGTHS.into_iter().for_each(frames_come_in_order);
}

fn frames_come_in_order(length: usize) {
    let [mut zero, mut one] = pair();
    assert!(
        zero.contains(ONE) && one.contains(ZERO) && !zero.contains(ZERO) && !zero.contains(Rank(2))
    );
    // Far more messages than a ring holds, and more frames than a file has slots.
    for turn in 0..200_u8 {
        for (tag, more) in [(Tag(0), 0), (Tag(1), 1)] {
            let sent = frame(&mut zero, turn.wrapping_add(more));
            let done = zero
                .send(ONE, tag, sent, length, false)
                .map(of_shared)
                .expect("the ring has space");
            let Some(Event::Released { to: ONE, matched: false, buffer, .. }) = done else {
                panic!("{done:?}")
            };
            assert_eq!(buffer.as_ref().len(), FRAME_BYTES, "the spare frame has the full size");
        }
        // Post one receive before its message is polled, and the other after.
        let room = frame(&mut one, 255);
        let early = if turn % 2 == 0 {
            one.recv(ZERO, Tag(1), room)
        } else {
            Some(Event::Returned { buffer: room })
        };
        let found = polled(&mut one).pop();
        let found = match early {
            None => found,
            Some(Event::Returned { buffer }) => one.recv(ZERO, Tag(1), buffer),
            other => panic!("{other:?}"),
        };
        let (content, buffer) = received(found, Tag(1), length);
        assert_eq!(content, turn.wrapping_add(1));
        assert_eq!(received(one.recv(ZERO, Tag(0), buffer), Tag(0), length).0, turn);
        assert!(polled(&mut zero).is_empty(), "an unmatched send completes at once");
    }
    // Each sent frame was replaced by a returned one.
    assert!(zero.memory.free.len() < 10);
}

#[test]
fn what_is_sent_to_be_matched_is_done_when_it_was_asked_for() {
    for length in LENGTHS {
        let [mut zero, mut one] = pair();
        let sent = frame(&mut zero, 7);
        let done =
            zero.send(ONE, Tag(3), sent, length, true).map(of_shared).expect("the ring has space");
        // The frame of a short message comes back at once, but does not count as matched.
        match done {
            None => assert_eq!(length, LONG),
            Some(Event::Released { to: ONE, tag: Tag(3), matched: false, .. }) => {
                assert_ne!(length, LONG);
            }
            other => panic!("{other:?}"),
        }
        assert!(polled(&mut one).is_empty() && polled(&mut zero).is_empty());
        let mine = frame(&mut one, 0);
        assert_eq!(received(one.recv(ZERO, Tag(3), mine), Tag(3), length).0, 7);
        // The answer to a short message leaves with the next poll.
        assert!(polled(&mut one).is_empty());
        match polled(&mut zero).pop() {
            Some(Event::Released { to: ONE, tag: Tag(3), matched: true, .. }) => {
                assert_eq!(length, LONG);
            }
            Some(Event::Matched { to: ONE, tag: Tag(3) }) => assert_ne!(length, LONG),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn an_answer_travels_with_a_message_the_other_way() {
    for length in LENGTHS {
        let [mut zero, mut one] = pair();
        let sent = frame(&mut zero, 7);
        assert!(zero.send(ONE, Tag(3), sent, 1000, true).is_ok());
        let mine = frame(&mut one, 0);
        assert!(one.recv(ZERO, Tag(3), mine).is_none());
        assert_eq!(received(polled(&mut one).pop(), Tag(3), 1000).0, 7);
        let back = frame(&mut one, 8);
        assert!(one.send(ZERO, Tag(4), back, length, true).is_ok());
        let found = polled(&mut zero);
        assert!(matches!(found[..], [Event::Matched { to: ONE, tag: Tag(3) }]), "{found:?}");
        let mine = frame(&mut zero, 0);
        let found = zero.recv(ONE, Tag(4), mine);
        assert!(matches!(found, Some(Event::Received { from: ONE, tag: Tag(4), .. })));
        assert!(polled(&mut zero).is_empty() && zero.peers[0].unanswered.is_empty());
    }
}

#[test]
fn frames_on_the_heap_are_copied() {
    let sends = LENGTHS.into_iter().flat_map(|length| [(length, false), (length, true)]);
    for (length, matched) in sends {
        let [mut zero, mut one] = pair();
        let done = zero
            .send(ONE, Tag(0), heap(9), length, matched)
            .map(of_shared)
            .expect("the ring has space");
        assert_eq!(done.is_some(), !matched || length != LONG);
        assert!(one.recv(ZERO, Tag(0), heap(1)).is_none());
        let (content, buffer) = received(polled(&mut one).pop(), Tag(0), length);
        assert!(content == 9 && buffer.as_ref()[length] == 1);
        assert!(polled(&mut one).is_empty());
        assert_eq!(polled(&mut zero).len(), usize::from(matched));
    }
}

#[test]
fn without_frames_left_every_link_still_moves() {
    let [mut zero, mut one] = pair();
    let kept = take_all(&mut zero);
    assert!(kept.len() > 1000 && zero.allocate(1000).is_none());
    // More messages than a ring holds, to links whose receives are not posted.
    for tag in 1..100 {
        announce(&mut zero, Tag(tag), tag as u8, tag % 2 == 0);
        assert!(polled(&mut one).is_empty() && tags_to_post(&mut one).is_empty());
    }
    // They delay no other link.
    for turn in 0..100 {
        let mine = frame(&mut one, 0);
        assert!(one.recv(ZERO, Tag(0), mine).is_none());
        let length = LENGTHS[usize::from(turn) % LENGTHS.len()];
        if length == LONG {
            announce(&mut zero, Tag(0), turn, turn % 2 == 0);
            assert!(polled(&mut one).is_empty());
            assert_eq!(tags_to_post(&mut one), [Tag(0)]);
        } else {
            let done = zero.send(ONE, Tag(0), heap(turn), length, false).map(of_shared);
            assert!(done.expect("the ring has space").is_some());
            assert_eq!(received(polled(&mut one).pop(), Tag(0), length).0, turn);
        }
    }
    for tag in (1..100).rev().map(Tag) {
        let mine = frame(&mut one, 0);
        assert!(one.recv(ZERO, tag, mine).is_none());
        assert_eq!(tags_to_post(&mut one), [tag]);
    }
    assert!(polled(&mut one).is_empty() && polled(&mut zero).is_empty());
    assert!(zero.peers[0].unanswered.is_empty(), "the message layer answers");
}

#[test]
fn messages_of_a_link_keep_their_order_by_whichever_way_they_travel() {
    let [mut zero, mut one] = pair();
    let mut kept = take_all(&mut zero);
    announce(&mut zero, Tag(3), 1, true);
    zero.memory.free.push(kept.pop().unwrap());
    // The only free frame takes the copy, so none is left to complete the send at once.
    let done = zero.send(ONE, Tag(3), heap(2), LONG, false).map(of_shared);
    assert!(done.expect("the ring has space").is_none());
    announce(&mut zero, Tag(3), 3, false);
    assert!(polled(&mut one).is_empty());
    for content in 1..=3 {
        let mine = frame(&mut one, 0);
        let found = one.recv(ZERO, Tag(3), mine);
        if content == 2 {
            assert_eq!(received(found, Tag(3), LONG).0, content);
        } else {
            assert!(found.is_none());
            assert_eq!(tags_to_post(&mut one), [Tag(3)]);
        }
    }
    let found = polled(&mut zero);
    assert!(matches!(found[..], [Event::Released { to: ONE, matched: false, .. }]), "{found:?}");
}

#[test]
fn frames_of_the_heap_lose_no_slots() {
    let [mut zero, mut one] = pair();
    let mut kept = take_all(&mut zero);
    zero.memory.free.push(kept.pop().unwrap());
    for turn in 0..100 {
        let matched = turn % 2 == 0;
        let done = zero.send(ONE, Tag(0), heap(turn), LONG, matched).map(of_shared);
        assert!(done.expect("the ring has space").is_none());
        let mine = frame(&mut one, 0);
        assert!(one.recv(ZERO, Tag(0), mine).is_none());
        assert_eq!(received(polled(&mut one).pop(), Tag(0), LONG).0, turn);
        match polled(&mut zero).pop() {
            Some(Event::Released { buffer, matched: found, .. }) if found == matched => {
                assert!(buffer.slot().is_some());
                zero.memory.release(buffer);
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_ring_that_is_full_gives_the_frame_back() {
    LENGTHS.into_iter().for_each(fill_a_ring);
}

fn fill_a_ring(length: usize) {
    let [mut zero, mut one] = pair();
    let mut n_sent = 0;
    let back = loop {
        let sent = frame(&mut zero, n_sent);
        match zero.send(ONE, Tag(0), sent, length, false) {
            Ok(_) => n_sent += 1,
            Err(frame) => break frame,
        }
    };
    assert_eq!((u32::from(n_sent), back.as_ref()[0]), (crate::ffi::ring::RING_DEPTH, n_sent));
    for expected in 0..n_sent {
        polled(&mut one);
        let mine = frame(&mut one, 0);
        assert_eq!(received(one.recv(ZERO, Tag(0), mine), Tag(0), length).0, expected);
    }
    assert!(zero.send(ONE, Tag(0), back, length, false).is_ok());
}

#[test]
fn a_rank_that_sends_nonsense_is_as_good_as_lost() {
    let good = RingMessage { slot: SlotId { owner: 0, index: 0 }, n_bytes: 1000, word: 0 };
    let slot = |owner, index| RingMessage { slot: SlotId { owner, index }, ..good };
    for message in [
        slot(2, 0),
        slot(u32::MAX, 0),
        // A file has fewer slots.
        slot(0, 1 << 13),
        slot(0, u32::MAX),
        RingMessage { n_bytes: FRAME_BYTES as u64 + 1, ..good },
        RingMessage { n_bytes: u64::MAX, ..good },
        RingMessage { word: 0xffff, ..good },
        RingMessage { word: 1 << 21, ..good },
        // A frame that is sent `matched` comes back.
        RingMessage { word: MATCHED, ..good },
        // Shared memory does not carry what is announced, and answers no announcement.
        RingMessage { word: ANNOUNCED | SHORT, ..good },
        RingMessage { word: ANNOUNCED | MATCHED, ..good },
        RingMessage { word: ANNOUNCED | RETURNED, ..good },
        // No entry is as long, and no short message passes a slot.
        RingMessage { n_bytes: SHORT_BYTES as u64 + 1, word: SHORT, ..good },
        RingMessage { n_bytes: u64::MAX, word: SHORT, ..good },
        RingMessage { word: SHORT | NOTIFY, ..good },
        // It carries an answer to nothing.
        RingMessage { slot: SlotId { owner: SHORT | RETURNED, index: 0 }, word: SHORT, ..good },
        RingMessage {
            slot: SlotId { owner: SHORT | MATCHED | RETURNED, index: 0 },
            word: SHORT,
            ..good
        },
        // It carries an answer to a frame, which passes no slot.
        RingMessage { slot: SlotId { owner: RETURNED, index: 0 }, word: SHORT, ..good },
        RingMessage { n_bytes: 0, word: SHORT | MATCHED | RETURNED, ..good },
        // No message was sent with these flags, so none can be returned.
        RingMessage { word: RETURNED, ..good },
        RingMessage { word: RETURNED | NOTIFY | MATCHED, ..good },
    ] {
        let [mut zero, mut one] = pair();
        let sent = frame(&mut zero, 3);
        assert!(zero.send(ONE, Tag(0), sent, LONG, false).is_ok());
        let sender = &mut zero.peers[0].sender;
        assert!(sender.push(message, &[]) && sender.push(good, &[]));
        let found = polled(&mut one);
        assert!(matches!(found[..], [Event::Lost { peer: ZERO }]), "{message:?}: {found:?}");
        assert!(polled(&mut one).is_empty(), "later messages of it are ignored");
        // The message before it can still be received.
        let mine = frame(&mut one, 0);
        assert_eq!(received(one.recv(ZERO, Tag(0), mine), Tag(0), LONG).0, 3);
    }
}

#[test]
fn all_ranks_of_a_node_share_memory_or_none() {
    let shares =
        |all: Vec<Option<SharedMemory>>| all.iter().map(Option::is_some).collect::<Vec<_>>();
    let nodes = [0, 1, 0, 3, 1, 0];
    let all = group(&nodes, |_, _| {});
    for (shared, (rank, node)) in all.iter().zip(nodes.iter().enumerate()) {
        for (peer, other) in nodes.iter().enumerate() {
            let has = shared.as_ref().is_some_and(|shared| shared.contains(Rank::new(peer)));
            assert_eq!(has, peer != rank && node == other, "rank {rank} and {peer}");
        }
    }
    // Change one field of rank 4's descriptor (format, frame size, process, file descriptor,
    // token), or cut it off, or send none.
    const CHANGES: [fn(&mut Vec<u8>); 7] = [
        |bytes| bytes[0] = 1,
        |bytes| bytes[8] ^= 1,
        // No process has this number. (One beside it may be a thread of this process.)
        |bytes| bytes[16..20].fill(0x7f),
        |bytes| bytes[20] = 255,
        |bytes| bytes[30] ^= 1,
        |bytes| bytes.truncate(20),
        Vec::clear,
    ];
    for change in CHANGES {
        let alter = |rank: usize, bytes: &mut Vec<u8>| {
            if rank == 4 && bytes.len() > 1 {
                change(bytes);
            }
        };
        assert_eq!(shares(group(&nodes, alter)), [true, false, true, false, false, true]);
    }
}

#[test]
fn cancelled_receives_come_back_and_a_forgotten_rank_is_not_heard() {
    let [mut zero, mut one] = pair();
    for tag in [Tag(0), Tag(5)] {
        let mine = frame(&mut one, 4);
        assert!(one.recv(ZERO, tag, mine).is_none());
    }
    let kept = take_all(&mut zero);
    announce(&mut zero, Tag(5), 2, false);
    zero.memory.free.extend(kept);
    let mut events = polled(&mut one).into();
    one.cancel(&mut events);
    assert!(
        events.len() == 2 && events.iter().all(|event| matches!(event, Event::Returned { .. }))
    );
    let sent = frame(&mut zero, 1);
    assert!(zero.send(ONE, Tag(0), sent, 1000, false).is_ok() && one.has_message());
    one.forget(ZERO);
    assert!(!one.has_message() && polled(&mut one).is_empty());
}

/// A slot's number means something only in the memory of one group.
#[test]
fn a_frame_belongs_to_one_group() {
    let ([mut zero, one], [other, _]) = (pair(), pair());
    let frame = zero.allocate(FRAME_BYTES).unwrap();
    assert!(zero.owns(&frame) && one.memory.shared_frame(frame.slot()).is_some());
    assert!(!other.owns(&frame) && other.memory.shared_frame(frame.slot()).is_some());
    let there = one.memory.shared_frame(frame.slot()).unwrap();
    assert!(one.owns(&there));
}
