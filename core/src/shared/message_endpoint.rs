//! The two endpoints of a message in progress: its send and its receive.

use super::mailbox::{
    GRANT, MAX_OPENING, NO_MEMORY, OPENING, Opening, OpeningContent, PeerMessages, REST,
};
use crate::collective::{Communicator, Cursor, Receiving, SegmentLabel, Sending};
use crate::element::Element;
use crate::engine::check_fields;
use crate::error::{Buffer, Error, Field};
use crate::heap_frame::HeapFrame;
use crate::report::Report;
use crate::transport::{Rank, Transport};
use alloc::vec::Vec;
use core::marker::PhantomData;

/// One endpoint of a message.
pub(super) trait MessageEndpoint<X: Transport> {
    type Value: Element;
    type Buffer;
    const IS_SENT: bool;

    /// Starts the endpoint. A receive takes `number` as its position in the order of starts; a send
    /// ignores it.
    fn begin(
        &mut self,
        comm: &mut Communicator<X>,
        peer: &mut PeerMessages,
        number: u64,
    ) -> Result<(), Error>;

    /// Rank of the other endpoint.
    fn peer(&self) -> Rank;

    /// Progress of the message.
    fn cursor(&self) -> &Cursor;

    /// Moves at most one segment. Returns whether anything moved.
    fn advance(
        &mut self,
        comm: &mut Communicator<X>,
        peer: &mut PeerMessages,
        report: &mut Report,
    ) -> Result<bool, Error>;

    /// Returns the tag that this receive waits for, and the tag of a message that has arrived and
    /// has no receive. `None` if this receive's message has arrived, if no other has, or for a
    /// send.
    fn mismatched_tags(&self, peer: &PeerMessages) -> Option<[u32; 2]>;

    /// Returns the caller's buffer.
    fn into_buffer(self) -> Self::Buffer;
}

/// Sending endpoint of a message.
pub(super) struct SendingEndpoint<T: Element, S> {
    data: S,
    /// Length of the buffer at the start.
    n_values: usize,
    message: Sending<T>,
    /// Number of the message, among the messages to its receiver.
    number: u32,
    /// Number of values in a segment after the opening.
    segment: usize,
}

impl<T: Element, S: AsRef<[T]>> SendingEndpoint<T, S> {
    /// Creates the endpoint of a prepared message.
    pub(super) fn new(data: S, mut message: Sending<T>) -> Self {
        let (n_values, segment) = (data.as_ref().len(), message.segment);
        message.segment = segment.min(MAX_OPENING);
        Self { data, n_values, message, number: 0, segment }
    }
}

impl<X: Transport, T: Element, S: AsRef<[T]>> MessageEndpoint<X> for SendingEndpoint<T, S> {
    type Value = T;
    type Buffer = S;
    const IS_SENT: bool = true;

    fn begin(
        &mut self,
        comm: &mut Communicator<X>,
        peer: &mut PeerMessages,
        _: u64,
    ) -> Result<(), Error> {
        if self.message.to == comm.rank() {
            let data = self.data.as_ref();
            self.message.cursor.is_done = true;
            peer.hold_own(comm, &self.message, data);
            return Ok(());
        }
        self.number = peer.start_send();
        Ok(())
    }

    fn peer(&self) -> Rank {
        self.message.to
    }

    fn cursor(&self) -> &Cursor {
        &self.message.cursor
    }

    fn advance(
        &mut self,
        comm: &mut Communicator<X>,
        peer: &mut PeerMessages,
        report: &mut Report,
    ) -> Result<bool, Error> {
        let data = self.data.as_ref();
        let (need, have) = (self.n_values, data.len());
        if need != have {
            return Err(Error::Length { buffer: Buffer::Send, need, have });
        }
        let (number, message) = (self.number, &mut self.message);
        if message.cursor.n_segments == 0 {
            let coding = SegmentLabel { tag: OPENING, number };
            let opens =
                peer.opens_next(number) && comm.send_segment(coding, message, data, report)?;
            if opens {
                peer.has_opened(number, message.cursor.is_done);
                message.segment = self.segment;
            }
            return Ok(opens);
        }
        let received = peer.receive_grants(comm, message.to)?;
        if !peer.may_send_rest(number) {
            comm.transport.expect(message.to, GRANT);
            return Ok(received);
        }
        let sent = comm.send_segment(SegmentLabel { tag: REST, number }, message, data, report)?;
        if message.cursor.is_done {
            peer.finish_send();
        }
        Ok(received || sent)
    }

    fn mismatched_tags(&self, _: &PeerMessages) -> Option<[u32; 2]> {
        None
    }

    fn into_buffer(self) -> S {
        self.data
    }
}

/// Receiving endpoint of a message.
pub(super) struct ReceivingEndpoint<T, R> {
    data: R,
    /// Length of the buffer at the start.
    n_values: usize,
    message: Receiving,
    /// Number of the receive, in the order of starts.
    number: u64,
    /// Number of the message, once its opening has arrived.
    received: Option<u32>,
    /// Frame to decode into, if the values are not consecutive.
    scratch: Option<HeapFrame>,
    values: PhantomData<fn() -> T>,
}

impl<T: Element, R: AsMut<[T]>> ReceivingEndpoint<T, R> {
    /// Creates the endpoint of a message that has been checked.
    pub(super) fn new<X: Transport>(
        comm: &Communicator<X>,
        mut data: R,
        message: Receiving,
    ) -> Result<Self, Error> {
        let n_values = data.as_mut().len();
        let mut scratch = None;
        if message.is_strided() {
            scratch = Some(HeapFrame::try_new(comm.transport.frame_capacity()).ok_or(NO_MEMORY)?);
        }
        let (number, received, values) = (0, None, PhantomData);
        Ok(Self { data, n_values, message, number, received, scratch, values })
    }

    /// Takes the opening, if it has arrived. Returns whether any frame arrived.
    fn open<X: Transport>(
        &mut self,
        comm: &mut Communicator<X>,
        peer: &mut PeerMessages,
        report: &mut Report,
    ) -> Result<bool, Error> {
        let data = self.data.as_mut();
        let (message, room) = (&mut self.message, scratch(&mut self.scratch));
        let (from, tag) = (message.from, message.tag);
        let (opening, moved) =
            peer.take_opening(comm, (from, self.number, tag), |comm, header, bytes| {
                comm.check_message::<T>(from, header.call.sequence, header)?;
                comm.take_segment(message, data, (header, bytes), room, report)
            })?;
        let header = match opening {
            None => {
                if moved {
                    comm.transport.expect(from, OPENING);
                }
                return Ok(moved);
            }
            Some(Opening::Taken(header)) => header,
            Some(Opening::Held(held)) => {
                let header = held.header;
                comm.check_message::<T>(from, header.call.sequence, &header)?;
                match held.content {
                    OpeningContent::Frame(frame) => {
                        let bytes = frame.as_ref();
                        comm.take_segment(message, data, (&header, bytes), room, report)?;
                    }
                    OpeningContent::Own(own) => {
                        let rows = message.rows;
                        let (ours, theirs) = (rows.n_values() as u64, header.call.count);
                        check_fields(from, &[(Field::Count, ours, theirs)])?;
                        let own = own.downcast::<Vec<T>>().map_err(|_| Error::Internal)?;
                        let positions = rows.runs(0..own.len()).flatten();
                        positions.zip(&*own).for_each(|(position, value)| data[position] = *value);
                        message.cursor.is_done = true;
                    }
                }
                header
            }
        };
        let number = header.call.sequence;
        self.received = Some(number);
        if !message.cursor.is_done {
            peer.expect_rest(number, tag);
        }
        Ok(true)
    }
}

fn scratch(frame: &mut Option<HeapFrame>) -> &mut [u8] {
    frame.as_mut().map(AsMut::as_mut).unwrap_or_default()
}

impl<X: Transport, T: Element, R: AsMut<[T]>> MessageEndpoint<X> for ReceivingEndpoint<T, R> {
    type Value = T;
    type Buffer = R;
    const IS_SENT: bool = false;

    fn begin(
        &mut self,
        comm: &mut Communicator<X>,
        peer: &mut PeerMessages,
        number: u64,
    ) -> Result<(), Error> {
        self.number = number;
        peer.start_receive(number, self.message.tag);
        if self.message.from != comm.rank() {
            comm.transport.expect(self.message.from, OPENING);
        }
        Ok(())
    }

    fn peer(&self) -> Rank {
        self.message.from
    }

    fn cursor(&self) -> &Cursor {
        &self.message.cursor
    }

    fn advance(
        &mut self,
        comm: &mut Communicator<X>,
        peer: &mut PeerMessages,
        report: &mut Report,
    ) -> Result<bool, Error> {
        let data = self.data.as_mut();
        let (need, have) = (self.n_values, data.len());
        if need != have {
            return Err(Error::Length { buffer: Buffer::Recv, need, have });
        }
        let Some(number) = self.received else { return self.open(comm, peer, report) };
        let message = &mut self.message;
        let from = message.from;
        let granted = peer.send_grants(comm, from)?;
        if !peer.rest_is_next(number) {
            return Ok(granted);
        }
        let room = scratch(&mut self.scratch);
        let taken = comm.take_frame(from, REST, |comm, bytes| {
            let Some(header) = comm.read_message(from, bytes)? else { return Ok(()) };
            comm.check_message::<T>(from, number, &header)?;
            comm.take_segment(message, data, (&header, bytes), room, report)
        })?;
        if message.cursor.is_done {
            peer.finish_receive();
        } else {
            comm.transport.expect(from, REST);
        }
        Ok(granted || taken.is_some())
    }

    fn mismatched_tags(&self, peer: &PeerMessages) -> Option<[u32; 2]> {
        let tag = self.message.tag;
        self.received.is_none().then(|| peer.unexpected_tag()).flatten().map(|other| [tag, other])
    }

    fn into_buffer(self) -> R {
        self.data
    }
}
