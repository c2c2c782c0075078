//! Notices over a transport in memory, of which the tests know all that is under way.

use super::*;
use crate::codec::CodecId;
use crate::element::DType;
use crate::frame::Measure;
use crate::layout::Division;
use crate::op::OpCode;
use crate::schedule::Collective;
use crate::transport::{MIN_FRAME_BYTES, TransportError, TransportErrorKind};
use core::time::Duration;
use std::collections::VecDeque;
use std::vec;
use std::vec::Vec;

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

/// Rank 0's end: what each rank has sent to it on the control tag, and to whom it has sent.
struct Memory {
    came: Vec<VecDeque<Vec<u8>>>,
    sent_to: Vec<Rank>,
    n_free: usize,
    /// Frames that are free again after the next progress.
    n_under_way: usize,
}

impl Memory {
    fn new(size: usize, n_free: usize) -> Self {
        Self { came: vec![VecDeque::new(); size], sent_to: vec![], n_free, n_under_way: 0 }
    }

    fn comes(&mut self, from: usize, kind: Kind, epoch: u16, sequence: u32) {
        let mut message = vec![0; HEADER_BYTES];
        header(kind, epoch, sequence).emit(&mut message, false);
        self.came[from].push_back(message);
    }
}

impl Transport for Memory {
    type Frame = Vec<u8>;
    type Error = Never;

    fn rank(&self) -> Rank {
        Rank(0)
    }

    fn size(&self) -> usize {
        self.came.len()
    }

    fn frame_capacity(&self) -> usize {
        MIN_FRAME_BYTES
    }

    fn poll_frame(&mut self) -> Poll<Result<Vec<u8>, Never>> {
        if self.n_free == 0 {
            return Poll::Pending;
        }
        self.n_free -= 1;
        Poll::Ready(Ok(vec![0; MIN_FRAME_BYTES]))
    }

    fn poll_ready(&mut self, _: Rank, _: Tag) -> Poll<Result<(), Never>> {
        Poll::Ready(Ok(()))
    }

    fn send(&mut self, to: Rank, _: Tag, _: Vec<u8>, _: usize) -> Result<(), Never> {
        self.sent_to.push(to);
        self.n_under_way += 1;
        Ok(())
    }

    fn poll_recv(&mut self, from: Rank, _: Tag) -> Poll<Result<(Vec<u8>, usize), Never>> {
        match self.came[from.index()].pop_front() {
            Some(message) => Poll::Ready(Ok((message, HEADER_BYTES))),
            None => Poll::Pending,
        }
    }

    fn recycle(&mut self, _: Vec<u8>) {}

    fn progress(&mut self) -> Result<(), Never> {
        self.n_free += core::mem::take(&mut self.n_under_way);
        Ok(())
    }

    fn now(&self) -> Duration {
        Duration::ZERO
    }

    fn idle(&mut self, _: Duration) {}
}

fn header(kind: Kind, epoch: u16, sequence: u32) -> Header {
    let call = CallHeader {
        epoch,
        sequence,
        collective: Collective::AllReduce,
        dtype: DType::F32,
        op: OpCode::Sum,
        codec: CodecId::Raw,
        division: Division::Blocks,
        pipeline: 0,
        root: 0,
        count: 1,
        measure: Measure::Lattice,
        step: 0.0,
    };
    Header { kind, call, part: 0, round: 0, n_values: 0, n_bytes: 0, operands: 0 }
}

/// What a call of this epoch and number finds while it waits for rank 1.
fn wait(transport: &mut Memory, epoch: u16, sequence: u32) -> Result<bool, Error> {
    let ours = header(Kind::Data, epoch, sequence).call;
    Notices::default().listen(transport, &ours, [Rank(1)].into_iter())
}

const ABORTED: Result<bool, Error> = Err(Error::Aborted { rank: Rank(1) });

#[test]
fn later_calls_are_later_also_where_numbers_wrap() {
    assert!(is_later(2, 1) && !is_later(1, 1) && !is_later(1, 2));
    assert!(is_later(0, u32::MAX) && !is_later(u32::MAX, 0));
}

#[test]
fn all_are_told_where_there_are_fewer_frames_than_ranks_and_they_come_back() {
    for n_free in 1..8 {
        let mut transport = Memory::new(7, n_free);
        tell(&mut transport, &header(Kind::Abort, 0, 1), false);
        assert_eq!(transport.sent_to, (1..7).map(Rank::new).collect::<Vec<_>>(), "{n_free} frames");
    }
}

#[test]
fn who_goes_on_to_another_group_ends_any_call_whatever_its_number() {
    for sequence in [1, 1 << 31, u32::MAX] {
        // A view has no number; a notice of a later group has one of that group's.
        for (kind, theirs) in [(Kind::View, 0), (Kind::Abort, sequence.wrapping_add(1))] {
            let mut transport = Memory::new(2, 0);
            transport.comes(1, kind, 3, theirs);
            assert_eq!(wait(&mut transport, 2, sequence), ABORTED, "{kind:?} in call {sequence}");
        }
    }
}

#[test]
fn what_is_of_no_interest_is_passed_over_and_one_look_ends() {
    let mut transport = Memory::new(2, 0);
    for _ in 0..2 * MESSAGES_PER_LOOK {
        transport.comes(1, Kind::View, 2, 0);
    }
    transport.comes(1, Kind::Abort, 1, 5);
    transport.comes(1, Kind::Abort, 2, 5);
    assert_eq!(wait(&mut transport, 2, 5), Ok(false));
    assert_eq!(transport.came[1].len(), MESSAGES_PER_LOOK + 2);
    assert_eq!(wait(&mut transport, 2, 5), Ok(false));
    assert_eq!(wait(&mut transport, 2, 5), ABORTED);
}
