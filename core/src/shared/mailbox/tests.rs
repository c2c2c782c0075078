//! Messages between two ranks on one thread, whose numbers are about to wrap.

use super::*;
use crate::collective::Config;
use crate::plan::Plan;
use crate::shared::{Pending, SharedCommunicator};
use crate::transport::{FRAMES_PER_LANE, TransportError};
use core::task::Poll;
use core::time::Duration;
use std::vec;

#[derive(Debug)]
struct Never;

impl TransportError for Never {
    fn kind(&self) -> TransportErrorKind {
        TransportErrorKind::Other
    }

    fn peer(&self) -> Option<Rank> {
        None
    }
}

type Queue = Rc<RefCell<BTreeMap<Tag, VecDeque<(HeapFrame, usize)>>>>;

/// Transport of one of two ranks: frames that it sends, and frames that arrive.
struct TestEndpoint {
    rank: Rank,
    sent: Queue,
    received: Queue,
}

fn endpoints() -> [TestEndpoint; 2] {
    let [a, b] = [Queue::default(), Queue::default()];
    let second = TestEndpoint { rank: Rank(1), sent: Rc::clone(&b), received: Rc::clone(&a) };
    [TestEndpoint { rank: Rank(0), sent: a, received: b }, second]
}

impl Transport for TestEndpoint {
    type Frame = HeapFrame;
    type Error = Never;

    fn rank(&self) -> Rank {
        self.rank
    }

    fn size(&self) -> usize {
        2
    }

    fn frame_capacity(&self) -> usize {
        4096
    }

    fn n_channels(&self) -> usize {
        2
    }

    fn n_frames(&self) -> Option<usize> {
        Some(2 * FRAMES_PER_LANE)
    }

    fn poll_frame(&mut self) -> Poll<Result<HeapFrame, Never>> {
        Poll::Ready(Ok(HeapFrame::new(4096)))
    }

    fn poll_ready(&mut self, _: Rank, _: Tag) -> Poll<Result<(), Never>> {
        Poll::Ready(Ok(()))
    }

    fn send(&mut self, _: Rank, tag: Tag, frame: HeapFrame, n_bytes: usize) -> Result<(), Never> {
        self.sent.borrow_mut().entry(tag).or_default().push_back((frame, n_bytes));
        Ok(())
    }

    fn poll_recv(&mut self, _: Rank, tag: Tag) -> Poll<Result<(HeapFrame, usize), Never>> {
        let frame = self.received.borrow_mut().get_mut(&tag).and_then(VecDeque::pop_front);
        frame.map_or(Poll::Pending, |frame| Poll::Ready(Ok(frame)))
    }

    fn recycle(&mut self, _: HeapFrame) {}

    fn progress(&mut self) -> Result<(), Never> {
        Ok(())
    }

    fn now(&self) -> Duration {
        Duration::ZERO
    }

    fn idle(&mut self, _: Duration) {}
}

/// Message numbers have 32 bits. The first segment of a message is its opening. The rest of a long
/// message waits for the receiver's grant, which carries the number too.
#[test]
fn numbers_of_messages_wrap() {
    for n_before in [0, u32::MAX - 2, u32::MAX] {
        let comms = endpoints().map(|endpoint| {
            let config = Config::default().with_lanes(1).with_messages();
            SharedCommunicator::with_config(endpoint, config, 1).expect("two channels")
        });
        for (comm, other) in comms.iter().zip([Rank(1), Rank(0)]) {
            let mailbox = comm.mailbox.as_ref().expect("it has a channel");
            let mut peers = mailbox.peers.borrow_mut();
            let peer = peers.entry(other).or_default();
            (peer.n_sent, peer.n_opened, peer.n_received) = (n_before, n_before, n_before);
        }
        let [from, to] = &comms;
        let values = |at: usize| vec![at as f32; [5, 9000][at % 2]];
        let start = |at| from.start_send(values(at), Rank(1), at as u32, &Plan::raw());
        let sent: Vec<_> = (0..8).map(|at| start(at).expect("there is room")).collect();
        // Receive in another order than the order of the sends.
        for at in [3, 2, 1, 0, 5, 4, 7, 6] {
            let room = vec![0.0; values(at).len()];
            let mut received = to.start_recv(room, Rank(0), at as u32).expect("there is room");
            for _ in 0..1000 {
                from.progress();
                if received.poll().is_ready() {
                    break;
                }
            }
            assert!(received.is_finished(), "message {at} after {n_before}");
            let (data, _) = received.wait().into_result().expect("the message arrived");
            assert!(data == values(at), "message {at} after {n_before}");
        }
        assert!(sent.iter().all(Pending::is_finished));
        for (comm, other) in comms.iter().zip([Rank(1), Rank(0)]) {
            let mailbox = comm.mailbox.as_ref().expect("it has a channel");
            let peer = &mailbox.peers.borrow()[&other];
            let n_after = n_before.wrapping_add(8);
            let numbers = if other == Rank(1) { peer.n_sent } else { peer.n_received };
            assert_eq!(numbers, n_after);
        }
    }
}
