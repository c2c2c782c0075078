//! Messages that ranks exchange on the control tag while they make calls.
//!
//! A notice says that its sender aborted a call, and why. A question contains the sender's call and
//! its earlier calls. The receiver compares them with its own calls, and answers with its own call.
//! Layout: docs/format.md, section 1.

use super::calls::{CallHistory, N_CALLS};
use crate::engine::{check_source, lane::misuse, transport_error};
use crate::error::{AbortReason, Error};
use crate::frame::{CallHeader, FrameError, HEADER_BYTES, Header, MessageKind};
use crate::transport::{Rank, Tag, Transport, TransportError, TransportErrorKind};
use core::cmp::Ordering;
use core::task::Poll;

/// Most irrelevant messages that are skipped in one poll of a rank.
pub(super) const MESSAGES_PER_LOOK: usize = 16;
/// Bytes of a notice's payload: reason, field, two zeros, culprit, the culprit's value.
const NOTICE_BYTES: usize = 16;

/// Message from one rank to another about a call.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct NoticeMessage {
    /// The sender's call.
    pub(crate) call: CallHeader,
    pub(crate) content: NoticeBody,
}

/// Content of a message.
#[derive(Clone, Copy, Debug, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "there is no heap, and few live at a time")]
pub(crate) enum NoticeBody {
    /// The sender aborted the call.
    GaveUp {
        reason: AbortReason,
        /// The rank to blame.
        culprit: Rank,
        /// The culprit's value, as a [number](CallHeader::number), if the sender disagreed with it.
        culprit_value: u64,
    },
    /// The sender makes the call, made these before, and requests the receiver's call.
    Query(CallHistory),
    /// The sender makes the call, and answers a question.
    Reply,
}

/// A received control message.
#[derive(Clone, Copy, Debug, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "there is no heap, and few live at a time")]
pub(crate) enum ReceivedNotice {
    Message(NoticeMessage),
    /// The sender is forming another group, or belongs to a later one, where calls are counted
    /// anew.
    Left,
}

impl NoticeMessage {
    /// Returns the notice of a rank that aborts a call with this error. Without an error, the
    /// caller dropped the call.
    pub(crate) fn gives_up(call: CallHeader, error: Option<&Error>, own: Rank) -> Self {
        let (reason, culprit) = match error {
            Some(error) => AbortReason::of(error, own),
            None => (AbortReason::Dropped, own),
        };
        let culprit_value = match error {
            Some(Error::Mismatch { theirs, .. }) => theirs.as_number(),
            _ => 0,
        };
        Self { call, content: NoticeBody::GaveUp { reason, culprit, culprit_value } }
    }

    /// Returns whether the sender aborted because ranks disagree.
    pub(super) const fn is_disagreement(&self) -> bool {
        matches!(self.content, NoticeBody::GaveUp { reason: AbortReason::Mismatch(_), .. })
    }

    /// Sends the message in this frame. The link must have credit.
    pub(crate) fn send<X: Transport>(
        &self,
        transport: &mut X,
        to: Rank,
        mut frame: X::Frame,
        checksum: bool,
    ) {
        let from = transport.rank();
        if let Some(n_bytes) = self.emit(from, frame.as_mut(), checksum) {
            // A peer that is gone needs no message.
            let _ = transport.send(to, Tag::CONTROL, frame, n_bytes);
        } else {
            transport.recycle(frame);
        }
    }

    /// Writes the message, and returns its length. `None` if the frame is too short.
    pub(super) fn emit(&self, from: Rank, frame: &mut [u8], checksum: bool) -> Option<usize> {
        let header = self.header(from);
        let end = HEADER_BYTES + header.n_bytes as usize;
        let payload = frame.get_mut(HEADER_BYTES..end)?;
        if let NoticeBody::GaveUp { reason, culprit, culprit_value } = self.content {
            let (reason, field) = reason.code();
            payload[..4].copy_from_slice(&[reason, field, 0, 0]);
            payload[4..8].copy_from_slice(&culprit.0.to_le_bytes());
            payload[8..].copy_from_slice(&culprit_value.to_le_bytes());
        }
        if let NoticeBody::Query(past) = self.content {
            let places = payload.chunks_exact_mut(HEADER_BYTES);
            for (call, place) in past.before(self.call.sequence).zip(places) {
                Self { call, content: NoticeBody::Reply }.header(from).emit(place, false);
            }
        }
        header.emit(frame.get_mut(..end)?, checksum);
        Some(end)
    }

    fn header(&self, from: Rank) -> Header {
        let (kind, part, n_bytes) = match self.content {
            NoticeBody::GaveUp { .. } => (MessageKind::Abort, 0, NOTICE_BYTES as u32),
            NoticeBody::Query(past) => {
                let n_past = past.before(self.call.sequence).count();
                (MessageKind::Call, 0, (n_past * HEADER_BYTES) as u32)
            }
            NoticeBody::Reply => (MessageKind::Call, 1, 0),
        };
        Header { part, n_bytes, ..Header::without_values(kind, self.call, from) }
    }

    /// Reads the message with this header. `None` unless it is exactly as the sender would write
    /// it.
    pub(crate) fn read(header: &Header, message: &[u8]) -> Option<Self> {
        let content = match (header.kind, header.part) {
            (MessageKind::Abort, 0) => {
                let payload: &[u8; NOTICE_BYTES] = message.get(HEADER_BYTES..)?.try_into().ok()?;
                let [reason, field, 0, 0, a, b, c, d, culprit_value @ ..] = *payload else {
                    return None;
                };
                NoticeBody::GaveUp {
                    reason: AbortReason::from_code((reason, field))?,
                    culprit: Rank(u32::from_le_bytes([a, b, c, d])),
                    culprit_value: u64::from_le_bytes(culprit_value),
                }
            }
            (MessageKind::Call, 0) => {
                NoticeBody::Query(read_calls(header, message.get(HEADER_BYTES..)?)?)
            }
            (MessageKind::Call, 1) => NoticeBody::Reply,
            _ => return None,
        };
        let read = Self { call: header.call, content };
        (read.header(header.from) == *header).then_some(read)
    }
}

/// Reads the earlier calls in a question. `None` unless they are exactly as the sender would write
/// them.
fn read_calls(question: &Header, payload: &[u8]) -> Option<CallHistory> {
    let mut calls = CallHistory::default();
    let headers = payload.chunks(HEADER_BYTES);
    if headers.len() >= N_CALLS {
        return None;
    }
    let mut expected_sequence = question.call.sequence.wrapping_sub(headers.len() as u32);
    for bytes in headers {
        let header = Header::parse(bytes, false).ok()?;
        let expected = NoticeMessage { call: header.call, content: NoticeBody::Reply };
        let is_sound = header == expected.header(question.from)
            && header.call.context == question.call.context
            && header.call.epoch == question.call.epoch
            && header.call.sequence == expected_sequence;
        if !is_sound {
            return None;
        }
        calls.insert(header.call);
        expected_sequence = expected_sequence.wrapping_add(1);
    }
    Some(calls)
}

/// Returns the next control message of a rank, if there is one. A rank has no link to itself.
pub(super) fn hear<X: Transport>(
    transport: &mut X,
    from: Rank,
    ours: &CallHeader,
) -> Result<Option<ReceivedNotice>, Error> {
    if from == transport.rank() {
        return Ok(None);
    }
    match listen(transport, from, ours) {
        Poll::Ready(heard) => heard,
        Poll::Pending => Ok(None),
    }
}

/// Returns the next control message of a rank. `None` if the rank is gone, and everything it sent
/// was received. Skips messages of earlier groups, and the views and fences from which this group
/// was formed.
pub(super) fn listen<X: Transport>(
    transport: &mut X,
    from: Rank,
    ours: &CallHeader,
) -> Poll<Result<Option<ReceivedNotice>, Error>> {
    for _ in 0..MESSAGES_PER_LOOK {
        let (frame, n_bytes) = match transport.poll_recv(from, Tag::CONTROL) {
            Poll::Ready(Ok(received)) => received,
            Poll::Ready(Err(error)) if error.kind() == TransportErrorKind::Misuse => {
                return Poll::Ready(Err(transport_error(error)));
            }
            // A rank that has ended is no failure until something is needed from it.
            Poll::Ready(Err(_)) => return Poll::Ready(Ok(None)),
            Poll::Pending => return Poll::Pending,
        };
        let heard = frame.as_ref().get(..n_bytes).map(|message| read(message, from, ours));
        transport.recycle(frame);
        let heard = heard.ok_or(misuse())??;
        if let Some(ReceivedNotice::Message(NoticeMessage {
            content: NoticeBody::GaveUp { culprit, .. },
            ..
        })) = heard
            && culprit.index() >= transport.size()
        {
            return Poll::Ready(Err(damaged(from)));
        }
        if heard.is_some() {
            return Poll::Ready(Ok(heard));
        }
    }
    Poll::Pending
}

/// Interprets a message on the control tag for the group that makes this call.
fn read(message: &[u8], from: Rank, ours: &CallHeader) -> Result<Option<ReceivedNotice>, Error> {
    let header = Header::parse(message, false);
    let header = header.map_err(|error| Error::Frame { rank: from, error })?;
    if header.call.context != ours.context {
        return Err(damaged(from));
    }
    match 0.cmp(&ours.age_of(header.call.epoch)) {
        // The message belongs to an earlier group.
        Ordering::Less => return Ok(None),
        // The sender belongs to a later group.
        Ordering::Greater => return Ok(Some(ReceivedNotice::Left)),
        Ordering::Equal if matches!(header.kind, MessageKind::View | MessageKind::Fence) => {
            return Ok(None);
        }
        Ordering::Equal => {}
    }
    check_source(from, &header)?;
    let message = NoticeMessage::read(&header, message);
    message.map(ReceivedNotice::Message).map(Some).ok_or(damaged(from))
}

const fn damaged(rank: Rank) -> Error {
    Error::Frame { rank, error: FrameError::Damaged }
}

/// Takes an empty frame. If there is none, makes the network progress, which may release the frame
/// of an earlier notice, and tries again.
pub(super) fn empty_frame<X: Transport>(transport: &mut X) -> Option<X::Frame> {
    if let Poll::Ready(frame) = transport.poll_frame() {
        return frame.ok();
    }
    // Frames come back even if it fails, as it does for a communicator that was stopped.
    let _ = transport.progress();
    match transport.poll_frame() {
        Poll::Ready(frame) => frame.ok(),
        Poll::Pending => None,
    }
}
