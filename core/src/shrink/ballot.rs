//! Message that ranks exchange while they form a group of survivors: a header and a set of ranks.
//!
//! Layout: docs/format.md, section 1. A ballot belongs to no call. It is accepted only if all
//! fields of its header are exactly as the sender would write them.

use crate::frame::{CallHeader, FrameError, HEADER_BYTES, Header, MessageKind};
use crate::group::RankSet;
use crate::transport::{MAX_LANES, Rank, Tag, Transport};
use core::task::Poll;

/// A proposed group, and the tags to fence. All members must agree on both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct View {
    /// Members of the group, as ranks of the transport.
    pub(super) members: RankSet,
    /// Tags `0..n_tags` may hold frames of calls that failed.
    pub(super) n_tags: u8,
}

/// A rank's view as a message to another rank, for agreement or as a fence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ballot {
    /// Context of the communicator that has failed.
    pub(super) context: u8,
    /// Epoch of the group that is being formed.
    pub(super) epoch: u16,
    pub(super) view: View,
    /// True if the sender has received a ballot of this epoch from the receiver.
    pub(super) heard: bool,
}

impl Ballot {
    /// Writes the ballot for a transport of `size` ranks. Returns the message's length in bytes.
    pub(super) fn emit(
        &self,
        kind: MessageKind,
        from: Rank,
        size: usize,
        frame: &mut [u8],
        checksum: bool,
    ) -> usize {
        let header = self.header(kind, from, size);
        let end = HEADER_BYTES + header.n_bytes as usize;
        self.view.members.write(&mut frame[HEADER_BYTES..end]);
        header.emit(frame, checksum);
        end
    }

    /// Sends the ballot, or returns `Pending` if credit or a frame is missing. Also `Ready` if the
    /// ballot can never be sent, because the receiver is gone or frames are too short.
    pub(super) fn send<X: Transport>(
        &self,
        transport: &mut X,
        to: Rank,
        tag: Tag,
        kind: MessageKind,
        checksum: bool,
    ) -> Poll<()> {
        match transport.poll_ready(to, tag) {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(Err(_)) => return Poll::Ready(()),
            Poll::Ready(Ok(())) => {}
        }
        let Poll::Ready(Ok(mut frame)) = transport.poll_frame() else { return Poll::Pending };
        let size = transport.size();
        let Some(bytes) = frame.as_mut().get_mut(..HEADER_BYTES + RankSet::n_bytes(size)) else {
            transport.recycle(frame);
            return Poll::Ready(());
        };
        let n_bytes = self.emit(kind, transport.rank(), size, bytes, checksum);
        // If sending fails, nothing will arrive from the receiver either, and it counts as silent.
        let _ = transport.send(to, tag, frame, n_bytes);
        Poll::Ready(())
    }

    /// Reads the ballot of a message with this header, which arrived from rank `from`.
    pub(super) fn read(
        header: &Header,
        message: &[u8],
        from: Rank,
        size: usize,
    ) -> Result<Self, FrameError> {
        let payload = message.get(HEADER_BYTES..).unwrap_or_default();
        let members = RankSet::read(payload, size).ok_or(FrameError::Damaged)?;
        let n_tags = u8::try_from(header.round).map_err(|_| FrameError::Damaged)?;
        let view = View { members, n_tags };
        let (context, epoch) = (header.call.context, header.call.epoch);
        let ballot = Self { context, epoch, view, heard: header.part == 1 };
        let is_sound = ballot.header(header.kind, from, size) == *header
            && (header.kind == MessageKind::View
                || header.kind == MessageKind::Fence && ballot.heard)
            && header.call.step.to_bits() == 0
            && usize::from(n_tags) <= MAX_LANES;
        is_sound.then_some(ballot).ok_or(FrameError::Damaged)
    }

    fn header(&self, kind: MessageKind, from: Rank, size: usize) -> Header {
        let no_call = CallHeader::of_no_call(self.context, self.epoch);
        let call = CallHeader { count: size as u64, ..no_call };
        Header {
            part: u32::from(self.heard),
            round: u32::from(self.view.n_tags),
            n_values: self.view.members.len() as u32,
            n_bytes: RankSet::n_bytes(size) as u32,
            ..Header::without_values(kind, call, from)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::CodecId;
    use crate::frame::StepQuantity;
    use crate::transport::MIN_FRAME_BYTES;
    use std::vec;

    #[test]
    fn what_was_emitted_is_read_and_fits_the_smallest_frame() {
        for size in [1, 2, 9, 64, 1000, 4096] {
            let members = RankSet::first(size).without(Rank::new(size / 2));
            let view = View { members, n_tags: 3 };
            for (kind, heard) in
                [(MessageKind::View, false), (MessageKind::View, true), (MessageKind::Fence, true)]
            {
                let ballot = Ballot { context: 5, epoch: 77, view, heard };
                let mut frame = vec![0xaa; MIN_FRAME_BYTES];
                let n_bytes = ballot.emit(kind, Rank(0), size, &mut frame, true);
                let message = &frame[..n_bytes];
                let header = Header::parse(message, true).expect("what was emitted");
                assert_eq!(header.kind, kind);
                assert_eq!(Ballot::read(&header, message, Rank(0), size), Ok(ballot));
                assert!(Ballot::read(&header, message, Rank(0), size + 8).is_err());
                assert!(Ballot::read(&header, message, Rank(1), size).is_err());
            }
        }
    }

    #[test]
    fn whatever_else_differs_is_refused() {
        let view = View { members: RankSet::first(5), n_tags: 4 };
        let ballot = Ballot { context: 0, epoch: 1, view, heard: true };
        let mut frame = vec![0; MIN_FRAME_BYTES];
        let n_bytes = ballot.emit(MessageKind::View, Rank(3), 5, &mut frame, false);
        let message = &frame[..n_bytes];
        let good = Header::parse(message, false).expect("what was emitted");
        let call = |change: fn(&mut CallHeader)| {
            let mut header = good;
            change(&mut header.call);
            header
        };
        let bad = [
            call(|call| call.sequence = 1),
            call(|call| call.count = 6),
            call(|call| call.root = 1),
            call(|call| call.step = 1.0),
            call(|call| call.measure = StepQuantity::Range),
            call(|call| call.codec = CodecId::FzLight),
            call(|call| call.schedule = 1),
            call(|call| call.lanes = 2),
            Header { from: Rank(2), ..good },
            Header { part: 2, ..good },
            Header { kind: MessageKind::Fence, part: 0, ..good },
            Header { round: 9, ..good },
            Header { round: 300, ..good },
            Header { n_values: 4, ..good },
        ];
        for header in bad {
            let read = Ballot::read(&header, message, Rank(3), 5);
            assert_eq!(read, Err(FrameError::Damaged), "{header:?}");
        }
        assert_eq!(Ballot::read(&good, message, Rank(3), 5), Ok(ballot));
    }

    #[test]
    fn there_are_no_more_tags_than_lanes() {
        for n_tags in 0..=MAX_LANES as u8 + 1 {
            let view = View { members: RankSet::first(2), n_tags };
            let ballot = Ballot { context: 0, epoch: 1, view, heard: false };
            let mut frame = vec![0; MIN_FRAME_BYTES];
            let n_bytes = ballot.emit(MessageKind::View, Rank(1), 2, &mut frame, false);
            let message = &frame[..n_bytes];
            let header = Header::parse(message, false).expect("what was emitted");
            let read = Ballot::read(&header, message, Rank(1), 2);
            let is_refused = usize::from(n_tags) > MAX_LANES;
            assert_eq!(read, if is_refused { Err(FrameError::Damaged) } else { Ok(ballot) });
        }
    }

    /// If a ballot can be read from a message, it is emitted again bit for bit.
    #[test]
    fn every_flipped_bit_is_refused_or_means_something() {
        let view = View { members: RankSet::first(11).without(Rank(4)), n_tags: 4 };
        let ballot = Ballot { context: 0, epoch: 1, view, heard: false };
        let mut frame = vec![0; MIN_FRAME_BYTES];
        let n_bytes = ballot.emit(MessageKind::View, Rank(6), 11, &mut frame, false);
        let mut n_read = 0;
        for bit in 0..8 * n_bytes {
            let mut message = frame[..n_bytes].to_vec();
            message[bit / 8] ^= 1 << (bit % 8);
            let Ok(header) = Header::parse(&message, false) else { continue };
            let Ok(read) = Ballot::read(&header, &message, Rank(6), 11) else { continue };
            n_read += 1;
            let mut again = vec![0; MIN_FRAME_BYTES];
            let n_again = read.emit(header.kind, Rank(6), 11, &mut again, false);
            assert_eq!(again[..n_again], message, "bit {bit}");
        }
        // The bits of the context and the epoch, three of the number of tags, and the flag `heard`.
        assert_eq!(n_read, 8 + 16 + 3 + 1);
    }

    /// Checks the bytes in docs/format.md.
    #[test]
    fn a_view_and_a_fence() {
        let view = View { members: RankSet::first(11).without(Rank(4)), n_tags: 4 };
        let with = |kind, part| {
            std::format!(
                "465704{kind:02x}1009000000000200 00000000 0b00000000000000 0000000000000000 \
                 00000000 {part:02x}000000 04000000 0a000000 07000000 00000000 0000000000000000 \
                 ef07"
            )
        };
        for (kind, heard) in [(MessageKind::View, false), (MessageKind::Fence, true)] {
            let mut frame = vec![0xaa; MIN_FRAME_BYTES];
            let n_bytes = Ballot { context: 9, epoch: 2, view, heard }.emit(
                kind,
                Rank(7),
                11,
                &mut frame,
                false,
            );
            let hex: std::string::String =
                frame[..n_bytes].iter().map(|byte| std::format!("{byte:02x}")).collect();
            let expected = with(kind as u8, u8::from(heard));
            assert_eq!(hex, expected.replace(' ', ""));
        }
    }
}
