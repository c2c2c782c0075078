//! Notices over a transport in memory. The tests know everything that is in transit.

use super::message::MESSAGES_PER_LOOK;
use super::*;
use crate::codec::CodecId;
use crate::element::DType;
use crate::error::Field;
use crate::frame::{FrameError, HEADER_BYTES, Header, MessageKind, StepQuantity};
use crate::layout::Division;
use crate::op::OpCode;
use crate::schedule::Collective;
use crate::transport::{FRAME_ALIGN, MIN_FRAME_BYTES, TransportError, TransportErrorKind};
use core::time::Duration;
use std::collections::VecDeque;
use std::vec;
use std::vec::Vec;

/// Error of a transport that was stopped.
#[derive(Debug)]
pub(crate) struct Stopped;

impl TransportError for Stopped {
    fn kind(&self) -> TransportErrorKind {
        TransportErrorKind::Other
    }

    fn peer(&self) -> Option<Rank> {
        None
    }
}

/// A frame that satisfies [`Transport::Frame`].
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct Page([u8; MIN_FRAME_BYTES]);

const _: () = assert!(align_of::<Page>() == FRAME_ALIGN);

impl AsRef<[u8]> for Page {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl AsMut<[u8]> for Page {
    fn as_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

/// Rank 0's endpoint: the control messages that each rank has sent to it, and the ranks to which it
/// has sent.
pub(crate) struct MemoryTransport {
    came: Vec<VecDeque<Vec<u8>>>,
    pub(crate) sent_to: Vec<Rank>,
    n_free: usize,
    /// Frames that are free again after the next progress.
    n_under_way: usize,
    /// True if progress fails, as it does for a communicator that was stopped.
    is_stopped: bool,
    /// Number of nudges during computations.
    pub(crate) n_nudges: usize,
    /// Time that its clock shows.
    pub(crate) now: Duration,
}

impl MemoryTransport {
    pub(crate) fn new(size: usize, n_free: usize) -> Self {
        let came = vec![VecDeque::new(); size];
        let (sent_to, now) = (vec![], Duration::ZERO);
        Self { came, sent_to, n_free, n_under_way: 0, is_stopped: false, n_nudges: 0, now }
    }

    /// Delivers these bytes from a rank.
    pub(crate) fn puts(&mut self, from: usize, message: &[u8]) {
        self.came[from].push_back(message.to_vec());
    }

    /// Returns the number of frames that no lane has.
    #[cfg(feature = "alloc")]
    pub(crate) const fn n_there(&self) -> usize {
        self.n_free + self.n_under_way
    }

    /// Drops all messages that have arrived and were not received.
    #[cfg(feature = "alloc")]
    pub(crate) fn clear(&mut self) {
        self.came.iter_mut().for_each(VecDeque::clear);
    }

    fn comes(&mut self, from: usize, kind: MessageKind, epoch: u16, sequence: u32) {
        let (header, payload) = match kind {
            MessageKind::Abort => (Header { n_bytes: 16, ..header(kind, epoch, sequence) }, 16),
            _ => (header(kind, epoch, sequence), 0),
        };
        let mut message = vec![0; HEADER_BYTES + payload];
        Header { from: Rank::new(from), ..header }.emit(&mut message, false);
        self.came[from].push_back(message);
    }

    /// Same as [`comes`](Self::comes), for any call and content.
    pub(crate) fn says(&mut self, from: usize, call: CallHeader, content: NoticeBody) {
        let mut frame = vec![0; MIN_FRAME_BYTES];
        let n_bytes = NoticeMessage { call, content }.emit(Rank::new(from), &mut frame, false);
        frame.truncate(n_bytes.expect("the frame is long enough"));
        self.came[from].push_back(frame);
    }
}

impl Transport for MemoryTransport {
    type Frame = Page;
    type Error = Stopped;

    fn rank(&self) -> Rank {
        Rank(0)
    }

    fn size(&self) -> usize {
        self.came.len()
    }

    fn frame_capacity(&self) -> usize {
        MIN_FRAME_BYTES
    }

    fn poll_frame(&mut self) -> Poll<Result<Page, Stopped>> {
        if self.n_free == 0 {
            return Poll::Pending;
        }
        self.n_free -= 1;
        Poll::Ready(Ok(Page([0; MIN_FRAME_BYTES])))
    }

    fn poll_ready(&mut self, _: Rank, _: Tag) -> Poll<Result<(), Stopped>> {
        Poll::Ready(Ok(()))
    }

    fn send(&mut self, to: Rank, _: Tag, _: Page, _: usize) -> Result<(), Stopped> {
        self.sent_to.push(to);
        self.n_under_way += 1;
        Ok(())
    }

    fn poll_recv(&mut self, from: Rank, _: Tag) -> Poll<Result<(Page, usize), Stopped>> {
        assert_ne!(from, self.rank(), "no rank has a link to itself");
        match self.came[from.index()].pop_front() {
            Some(message) => {
                let mut frame = Page([0; MIN_FRAME_BYTES]);
                frame.0[..message.len()].copy_from_slice(&message);
                Poll::Ready(Ok((frame, message.len())))
            }
            None => Poll::Pending,
        }
    }

    fn recycle(&mut self, _: Page) {
        self.n_free += 1;
    }

    fn progress(&mut self) -> Result<(), Stopped> {
        self.n_free += core::mem::take(&mut self.n_under_way);
        if self.is_stopped { Err(Stopped) } else { Ok(()) }
    }

    fn nudge(&mut self) {
        self.n_nudges += 1;
    }

    fn now(&self) -> Duration {
        self.now
    }

    fn idle(&mut self, _: Duration) {}
}

fn header(kind: MessageKind, epoch: u16, sequence: u32) -> Header {
    let call = CallHeader {
        context: 0,
        epoch,
        sequence,
        collective: Collective::AllReduce,
        dtype: DType::F32,
        op: OpCode::Sum,
        codec: CodecId::Raw,
        division: Division::Blocks,
        pipeline: 0,
        schedule: 0,
        lanes: 1,
        root: 0,
        count: 1,
        measure: StepQuantity::Lattice,
        step: 0.0,
    };
    let from = Rank(0);
    let as_floats = false;
    Header { kind, call, as_floats, from, part: 0, round: 0, n_values: 0, n_bytes: 0, operands: 0 }
}

/// Polls rank 1 in a call of this epoch and number.
fn wait(transport: &mut MemoryTransport, epoch: u16, sequence: u32) -> Result<bool, Error> {
    let ours = header(MessageKind::Data, epoch, sequence).call;
    Notices::default().listen(transport, &ours, &[Rank(1)])
}

const fn aborted(reason: AbortReason, culprit: Rank) -> Result<bool, Error> {
    Err(Error::Aborted { rank: Rank(1), culprit, reason })
}

#[test]
fn later_calls_are_later_also_where_numbers_wrap() {
    assert!(is_later(2, 1) && !is_later(1, 1) && !is_later(1, 2));
    assert!(is_later(0, u32::MAX) && !is_later(u32::MAX, 0));
}

#[test]
fn all_are_told_where_there_are_fewer_frames_than_ranks_and_they_come_back() {
    for (n_free, is_stopped) in (1..8).flat_map(|n| [(n, false), (n, true)]) {
        let mut transport = MemoryTransport { is_stopped, ..MemoryTransport::new(7, n_free) };
        let notice = NoticeMessage::gives_up(header(MessageKind::Abort, 0, 1).call, None, Rank(0));
        tell(&mut transport, &notice, Rank(0), false);
        assert_eq!(transport.sent_to, (1..7).map(Rank::new).collect::<Vec<_>>(), "{n_free} frames");
    }
}

#[test]
fn who_waits_for_a_rank_that_went_on_to_another_group_ends_its_call_whatever_its_number() {
    for sequence in [1, 1 << 31, u32::MAX] {
        // A view has no call number; a notice of a later group has one of that group.
        for (kind, theirs) in
            [(MessageKind::View, 0), (MessageKind::Abort, sequence.wrapping_add(1))]
        {
            let mut transport = MemoryTransport::new(2, 0);
            transport.comes(1, kind, 3, theirs);
            let ours = header(MessageKind::Data, 2, sequence).call;
            let mut notices = Notices::default();
            let mut wait = || notices.listen(&mut transport, &ours, &[Rank(1)]);
            // Rank 1's earlier messages may have arrived just now, so lanes poll once more.
            assert_eq!(wait(), Ok(true), "{kind:?} in call {sequence}");
            assert_eq!(wait(), aborted(AbortReason::Left, Rank(1)), "{kind:?} in call {sequence}");
        }
    }
}

#[test]
fn who_goes_on_after_a_later_call_leaves_this_one_to_be_finished() {
    let mut transport = MemoryTransport::new(3, 0);
    let ours = header(MessageKind::Data, 2, 5).call;
    let mut notices = Notices::default();
    notices.begin(&mut transport, &ours, false, true).expect("nothing has come");
    // Rank 1 has finished call 5, aborts call 6, and shrinks.
    transport.comes(1, MessageKind::Abort, 2, 6);
    transport.comes(1, MessageKind::View, 3, 0);
    for _ in 0..3 {
        assert!(notices.listen(&mut transport, &ours, &[Rank(2)]).is_ok());
        notices.listen_in_turn(&mut transport, &ours).expect("call 5 can be finished");
    }
    assert!(transport.came[1].is_empty(), "both were heard");
    // If call 5 still waits for rank 1, the two ranks count calls differently: the notice ends call
    // 5. It also ends call 6 when this rank begins it.
    let told = aborted(AbortReason::Dropped, Rank(0));
    assert_eq!(notices.listen(&mut transport, &ours, &[Rank(1)]), told);
    let next = CallHeader { sequence: 6, ..ours };
    assert_eq!(notices.begin(&mut transport, &next, false, true), told);
}

#[test]
fn what_is_of_no_interest_is_passed_over_and_one_look_ends() {
    let mut transport = MemoryTransport::new(2, 0);
    for _ in 0..2 * MESSAGES_PER_LOOK {
        transport.comes(1, MessageKind::View, 2, 0);
    }
    transport.comes(1, MessageKind::Abort, 1, 5);
    transport.comes(1, MessageKind::Abort, 2, 5);
    assert_eq!(wait(&mut transport, 2, 5), Ok(false));
    assert_eq!(transport.came[1].len(), MESSAGES_PER_LOOK + 2);
    assert_eq!(wait(&mut transport, 2, 5), Ok(false));
    assert_eq!(wait(&mut transport, 2, 5), aborted(AbortReason::Dropped, Rank(0)));
}

/// Returns the header of call 5 in epoch 2 with this operation.
fn call(op: OpCode) -> CallHeader {
    CallHeader { op, ..header(MessageKind::Data, 2, 5).call }
}

/// Begins call 5, a sum, on rank 0, and waits for rank 1.
fn sum(transport: &mut MemoryTransport) -> (Notices, Result<bool, Error>) {
    let mut notices = Notices::default();
    notices.begin(transport, &call(OpCode::Sum), false, true).expect("nothing has come");
    let found = notices.listen(transport, &call(OpCode::Sum), &[Rank(1)]);
    (notices, found)
}

/// Returns the text of an error that says that rank `with` disagrees on the operation.
fn disagrees(found: Result<bool, Error>, with: Rank) -> std::string::String {
    match found {
        Err(error @ Error::Mismatch { rank, field: Field::Op, .. }) if rank == with => {
            std::string::ToString::to_string(&error)
        }
        other => panic!("{other:?}"),
    }
}

/// Returns the notice of a rank that disagreed on the operation with `culprit`, whose operation is
/// `culprit_value`.
const fn disagreed(culprit: Rank, culprit_value: OpCode) -> NoticeBody {
    NoticeBody::GaveUp {
        reason: AbortReason::Mismatch(Field::Op),
        culprit,
        culprit_value: culprit_value as u64,
    }
}

#[test]
fn who_hears_of_a_disagreement_says_with_whom_it_disagrees_itself() {
    // Rank 1 reports that it disagrees with rank 2. This rank's sum agrees with rank 1's call, then
    // with rank 2's, then with neither.
    for (teller, culprit_value, with, expected) in [
        (
            OpCode::Sum,
            OpCode::Avg,
            Rank(2),
            "rank 2 disagrees on the operation: avg there, sum here",
        ),
        (
            OpCode::Avg,
            OpCode::Sum,
            Rank(1),
            "rank 1 disagrees on the operation: avg there, sum here",
        ),
        (
            OpCode::Min,
            OpCode::Max,
            Rank(1),
            "rank 1 disagrees on the operation: min there, sum here",
        ),
    ] {
        let mut transport = MemoryTransport::new(3, 0);
        let mut notices = Notices::default();
        notices.begin(&mut transport, &call(OpCode::Sum), false, true).expect("nothing has come");
        transport.says(1, call(teller), disagreed(Rank(2), culprit_value));
        let found = notices.listen(&mut transport, &call(OpCode::Sum), &[Rank(1)]);
        assert_eq!(disagrees(found, with), expected);
    }
}

#[test]
fn nobody_disagrees_with_itself_nor_with_who_said_the_same() {
    // Rank 1 makes a sum, as this rank does.
    for (culprit, culprit_value) in [(Rank(0), OpCode::Avg), (Rank(2), OpCode::Sum)] {
        let mut transport = MemoryTransport::new(3, 0);
        let mut notices = Notices::default();
        notices.begin(&mut transport, &call(OpCode::Sum), false, true).expect("nothing has come");
        transport.says(1, call(OpCode::Sum), disagreed(culprit, culprit_value));
        let found = notices.listen(&mut transport, &call(OpCode::Sum), &[Rank(1)]);
        assert_eq!(found, aborted(AbortReason::Mismatch(Field::Op), culprit));
    }
}

#[test]
fn who_is_behind_hears_why_the_first_later_call_was_given_up() {
    let mut transport = MemoryTransport::new(3, 0);
    let ours = call(OpCode::Sum);
    let mut notices = Notices::default();
    notices.begin(&mut transport, &ours, false, true).expect("nothing has come");
    // Ranks 1 and 2 disagreed in call 6, which this rank has not begun. Rank 2's notice comes
    // first.
    for (rank, culprit) in [(2, Rank(1)), (1, Rank(2))] {
        let content = disagreed(culprit, OpCode::Max);
        transport.says(rank, CallHeader { sequence: 6, ..ours }, content);
        assert_eq!(notices.listen(&mut transport, &ours, &[Rank::new(rank)]), Ok(true));
    }
    let (culprit, reason) = (Rank(1), AbortReason::Mismatch(Field::Op));
    let told = Err(Error::Aborted { rank: Rank(2), culprit, reason });
    assert_eq!(notices.listen(&mut transport, &ours, &[Rank(1)]), told);
}

#[test]
fn a_question_about_another_call_is_a_disagreement_and_one_about_the_same_is_answered() {
    let mut transport = MemoryTransport::new(3, 9);
    transport.says(1, call(OpCode::Avg), NoticeBody::Query(CallHistory::default()));
    let mut notices = Notices::default();
    let found = notices.begin(&mut transport, &call(OpCode::Sum), false, true);
    assert_eq!(disagrees(found, Rank(1)), "rank 1 disagrees on the operation: avg there, sum here");

    let mut transport = MemoryTransport::new(3, 9);
    transport.says(1, call(OpCode::Sum), NoticeBody::Query(CallHistory::default()));
    let (mut notices, found) = sum(&mut transport);
    assert_eq!(found, Ok(false));
    assert_eq!(transport.sent_to, [Rank(1)]);
    notices.answer(&mut transport, &call(OpCode::Sum), false);
    assert_eq!(transport.sent_to, [Rank(1)], "once");
}

#[test]
fn who_asks_about_a_later_call_is_answered_when_it_comes() {
    let mut transport = MemoryTransport::new(3, 9);
    let later = CallHeader { sequence: 7, ..call(OpCode::Sum) };
    transport.says(1, later, NoticeBody::Query(CallHistory::default()));
    let (mut notices, _) = sum(&mut transport);
    for sequence in [6, 7] {
        assert_eq!(transport.sent_to, []);
        let ours = CallHeader { sequence, ..call(OpCode::Sum) };
        notices.begin(&mut transport, &ours, false, true).expect("the same call");
    }
    assert_eq!(transport.sent_to, [Rank(1)]);
}

#[test]
fn only_who_asks_about_a_call_that_has_not_begun_waits_for_this_rank_there() {
    // This rank's first call has number 5.
    for (asked, waits) in [(4, false), (5, false), (6, true), (7, true)] {
        let mut transport = MemoryTransport::new(2, 9);
        let (mut notices, _) = sum(&mut transport);
        let theirs = CallHeader { sequence: asked, ..call(OpCode::Sum) };
        transport.says(1, theirs, NoticeBody::Query(CallHistory::default()));
        assert_eq!(notices.listen(&mut transport, &call(OpCode::Sum), &[Rank(1)]), Ok(true));
        assert_eq!(notices.queried_by(), waits.then_some(Rank(1)), "call {asked}");
        let next = CallHeader { sequence: 6, ..call(OpCode::Sum) };
        notices.begin(&mut transport, &next, false, true).expect("the same call");
        assert_eq!(notices.queried_by(), None, "it must query again");
    }
}

#[test]
fn of_several_questions_about_later_calls_the_latest_is_waited_for() {
    // Also where call numbers wrap, so that the later call has the smaller number.
    for first in [5, u32::MAX - 2, u32::MAX - 1, u32::MAX] {
        for asked in [[1, 2], [2, 1]] {
            let mut transport = MemoryTransport::new(3, 9);
            let ours = CallHeader { sequence: first, ..call(OpCode::Sum) };
            let mut notices = Notices::default();
            notices.begin(&mut transport, &ours, false, true).expect("nothing has come");
            for (rank, ahead) in [1, 2].into_iter().zip(asked) {
                let later = CallHeader { sequence: first.wrapping_add(ahead), ..ours };
                transport.says(rank, later, NoticeBody::Query(CallHistory::default()));
                assert_eq!(notices.listen(&mut transport, &ours, &[Rank::new(rank)]), Ok(true));
            }
            for ahead in [1, 2] {
                assert_eq!(transport.sent_to, [], "{asked:?} ahead of {first}");
                let ours = CallHeader { sequence: first.wrapping_add(ahead), ..ours };
                notices.begin(&mut transport, &ours, false, true).expect("the same call");
            }
            assert_eq!(transport.sent_to, [Rank(1), Rank(2)], "{asked:?} ahead of {first}");
        }
    }
}

#[test]
fn a_question_with_calls_that_its_sender_cannot_have_made_before_is_damaged() {
    let read = |frame: &[u8]| {
        let header = Header::parse(frame, false).expect("a header");
        NoticeMessage::read(&header, frame)
    };
    let mut past = CallHistory::default();
    (3..5).for_each(|sequence| past.insert(CallHeader { sequence, ..call(OpCode::Sum) }));
    let question = NoticeMessage { call: call(OpCode::Sum), content: NoticeBody::Query(past) };
    let mut frame = vec![0; 3 * HEADER_BYTES];
    assert_eq!(question.emit(Rank(1), &mut frame, false), Some(3 * HEADER_BYTES));
    assert_eq!(read(&frame), Some(question));
    let sound = Header::parse(&frame[HEADER_BYTES..2 * HEADER_BYTES], false).expect("a header");
    let CallHeader { context, epoch, sequence, .. } = sound.call;
    for damaged in [
        Header { kind: MessageKind::Data, ..sound },
        Header { from: Rank(0), ..sound },
        Header { call: CallHeader { context: context + 1, ..sound.call }, ..sound },
        Header { call: CallHeader { epoch: epoch + 1, ..sound.call }, ..sound },
        Header { call: CallHeader { sequence: sequence + 1, ..sound.call }, ..sound },
        Header { call: CallHeader { sequence: sequence - 1, ..sound.call }, ..sound },
    ] {
        let mut frame = frame.clone();
        damaged.emit(&mut frame[HEADER_BYTES..2 * HEADER_BYTES], false);
        assert_eq!(read(&frame), None, "{damaged:?}");
    }
}

#[test]
fn nobody_beyond_the_group_is_to_blame() {
    for (culprit, is_member) in [(2, true), (3, false), (4, false)] {
        let mut transport = MemoryTransport::new(3, 0);
        let culprit = Rank::new(culprit);
        let content =
            NoticeBody::GaveUp { reason: AbortReason::Dropped, culprit, culprit_value: 0 };
        transport.says(1, call(OpCode::Sum), content);
        let found = Notices::default().listen(&mut transport, &call(OpCode::Sum), &[Rank(1)]);
        let damaged = Err(Error::Frame { rank: Rank(1), error: FrameError::Damaged });
        let expected = if is_member { aborted(AbortReason::Dropped, culprit) } else { damaged };
        assert_eq!(found, expected);
    }
}

#[test]
fn a_rank_that_is_behind_is_compared_with_the_call_it_is_in() {
    for (theirs, differs) in [(OpCode::Sum, false), (OpCode::Avg, true)] {
        let mut transport = MemoryTransport::new(2, 9);
        let (mut notices, _) = sum(&mut transport);
        let next = CallHeader { sequence: 6, op: OpCode::Max, ..call(OpCode::Sum) };
        notices.begin(&mut transport, &next, false, true).expect("nothing has come");
        transport.says(1, call(theirs), NoticeBody::Query(CallHistory::default()));
        let found = notices.listen(&mut transport, &next, &[Rank(1)]);
        assert_eq!(found.is_err(), differs, "{found:?}");
    }
}

#[test]
fn nobody_is_asked_twice_before_it_answers_nor_with_a_frame_that_a_lane_may_want() {
    let mut transport = MemoryTransport::new(3, 5);
    let (mut notices, _) = sum(&mut transport);
    let ours = call(OpCode::Sum);
    notices.query(&mut transport, &ours, &[Rank(1)], 5, false);
    assert_eq!((&transport.sent_to[..], transport.n_free), (&[][..], 5));
    for _ in 0..2 {
        notices.query(&mut transport, &ours, &[Rank(1), Rank(0)], 4, false);
        assert_eq!((&transport.sent_to[..], transport.n_free), (&[Rank(1)][..], 4));
    }
    transport.says(1, ours, NoticeBody::Reply);
    assert_eq!(notices.listen(&mut transport, &ours, &[Rank(1)]), Ok(true));
    notices.query(&mut transport, &ours, &[Rank(1)], 0, false);
    assert_eq!(transport.sent_to, [Rank(1)], "not twice in a call");
    let next = CallHeader { sequence: 6, ..ours };
    notices.begin(&mut transport, &next, false, true).expect("nothing has come");
    notices.query(&mut transport, &next, &[Rank(1)], 0, false);
    assert_eq!(transport.sent_to, [Rank(1), Rank(1)]);
}

#[test]
fn a_question_tells_of_earlier_calls_as_well() {
    let mut past = CallHistory::default();
    for sequence in 1..=5 {
        let op = if sequence == 3 { OpCode::Avg } else { OpCode::Sum };
        past.insert(CallHeader { sequence, op, ..call(OpCode::Sum) });
    }
    let mut transport = MemoryTransport::new(2, 9);
    transport.says(1, call(OpCode::Sum), NoticeBody::Query(past));
    assert_eq!(transport.came[1][0].len(), 5 * HEADER_BYTES);
    let mut notices = Notices::default();
    notices.calls.insert(CallHeader { sequence: 3, ..call(OpCode::Sum) });
    let found = notices.begin(&mut transport, &call(OpCode::Sum), false, true);
    let culprit_value = disagrees(found, Rank(1));
    assert_eq!(culprit_value, "rank 1 disagrees on the operation: avg there, sum here");
}
