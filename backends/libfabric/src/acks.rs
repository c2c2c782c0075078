//! Acknowledgements of `matched` sends, which complete only after their receiver has posted a
//! receive.
//!
//! libfabric has a flag for such sends, `FI_MATCH_COMPLETE`, but hardly any provider accepts it.
//! `FI_DELIVERY_COMPLETE` does not suffice: such a send completes once the message is in the memory
//! of the receiver's provider. So the mark of a matched message requests an acknowledgement, and
//! the receiver sends back an empty message. The buffer is released when the provider is done with
//! it and the acknowledgement has arrived. The cost is one small message for each matched send.

use std::collections::{HashMap, HashSet, VecDeque};

use foldwire::transport::{Rank, Tag};

use crate::fabric::FabricRequest;
use crate::ffi::{MessageBuffer, RdmEndpoint};
use crate::{Errno, tags};

/// Mark of a message without acknowledgement.
pub(crate) const PLAIN: u8 = 0;
/// Mark of a message whose sender requests an acknowledgement.
pub(crate) const WANTS_ACK: u8 = 1;

/// State of the messages on one link that request an acknowledgement.
#[derive(Default)]
struct LinkAcks {
    /// Posted receives for acknowledgements.
    n_posted: usize,
    /// Messages without an acknowledgement so far.
    n_unacked: usize,
    /// Acknowledgements that have arrived before the provider released a buffer.
    n_unclaimed: usize,
    /// Buffers that the provider has released, of messages not yet acknowledged.
    sent: Vec<MessageBuffer>,
}

impl LinkAcks {
    /// Takes a buffer if a message is both sent and acknowledged. Acknowledgements of a link are
    /// not told apart, so any sent buffer of the link will do.
    fn settle(&mut self) -> Option<MessageBuffer> {
        if self.n_unclaimed == 0 {
            return None;
        }
        let buffer = self.sent.pop()?;
        self.n_unclaimed -= 1;
        Some(buffer)
    }
}

/// Acknowledgements that this rank awaits, and those that it must send.
#[derive(Default)]
pub(crate) struct Acks {
    links: HashMap<(Rank, Tag), LinkAcks>,
    /// Acknowledgements to send: receiver and tag.
    queued: VecDeque<(Rank, Tag)>,
    /// Receiver of each acknowledgement that the provider is sending.
    sending: Vec<Rank>,
    /// Ranks that exchange no more acknowledgements with this one.
    forgotten: HashSet<Rank>,
    /// Free buffers for acknowledgements.
    spare: Vec<MessageBuffer>,
}

impl Acks {
    /// Posts a receive for one more acknowledgement on a link, unless more receives are posted than
    /// messages wait for an acknowledgement.
    pub(crate) fn post_receive(
        &mut self,
        rdm: &mut RdmEndpoint<FabricRequest>,
        to: Rank,
        tag: Tag,
    ) -> Result<(), Errno> {
        let link = self.links.entry((to, tag)).or_default();
        if link.n_posted > link.n_unacked {
            return Ok(());
        }
        let buffer = take_buffer(&mut self.spare, rdm)?;
        let request = FabricRequest::ReceiveAck { from: to, tag };
        match rdm.recv(tags::ack(to, tag), buffer, request) {
            Ok(()) => {
                link.n_posted += 1;
                Ok(())
            }
            Err((buffer, errno)) => {
                self.spare.push(buffer);
                Err(errno)
            }
        }
    }

    /// Records that the provider accepted a message that requests an acknowledgement.
    pub(crate) fn note_accepted(&mut self, to: Rank, tag: Tag) {
        self.links.entry((to, tag)).or_default().n_unacked += 1;
    }

    /// Records that the provider has sent a message that requests an acknowledgement. Returns its
    /// buffer if the acknowledgement has arrived already, or never will.
    pub(crate) fn note_sent(
        &mut self,
        to: Rank,
        tag: Tag,
        buffer: MessageBuffer,
    ) -> Option<MessageBuffer> {
        if self.forgotten.contains(&to) {
            return Some(buffer);
        }
        let link = self.links.entry((to, tag)).or_default();
        link.sent.push(buffer);
        link.settle()
    }

    /// Records an acknowledgement. Returns the buffer of a message, if the provider has released
    /// one.
    pub(crate) fn note_ack_received(
        &mut self,
        from: Rank,
        tag: Tag,
        empty: MessageBuffer,
    ) -> Option<MessageBuffer> {
        self.spare.push(empty);
        let link = self.links.entry((from, tag)).or_default();
        link.n_posted = link.n_posted.saturating_sub(1);
        link.n_unacked = link.n_unacked.saturating_sub(1);
        link.n_unclaimed += 1;
        link.settle()
    }

    /// Records that the provider has sent an acknowledgement of this rank.
    pub(crate) fn note_ack_sent(&mut self, to: Rank, empty: MessageBuffer) {
        if let Some(at) = self.sending.iter().position(|&other| other == to) {
            self.sending.swap_remove(at);
        }
        self.spare.push(empty);
    }

    /// Stops exchanging acknowledgements with a rank for good. Returns the sent buffers that waited
    /// for an acknowledgement.
    pub(crate) fn forget(&mut self, peer: Rank) -> Vec<(Tag, MessageBuffer)> {
        self.forgotten.insert(peer);
        self.queued.retain(|&(to, _)| to != peer);
        self.sending.retain(|&to| to != peer);
        let links = self.links.iter_mut().filter(|((to, _), _)| *to == peer);
        let buffers = links
            .flat_map(|(&(_, tag), link)| link.sent.drain(..).map(move |buffer| (tag, buffer)));
        buffers.collect()
    }

    /// Returns whether acknowledgements with a rank have stopped for good.
    pub(crate) fn is_forgotten(&self, peer: Rank) -> bool {
        self.forgotten.contains(&peer)
    }

    /// Queues an acknowledgement, unless the rank is forgotten.
    pub(crate) fn queue_ack(&mut self, to: Rank, tag: Tag) {
        if !self.forgotten.contains(&to) {
            self.queued.push_back((to, tag));
        }
    }

    /// Returns whether acknowledgements are still unsent.
    pub(crate) fn has_unsent(&self) -> bool {
        !self.queued.is_empty() || !self.sending.is_empty()
    }

    /// Sends the queued acknowledgements that the network accepts now. If it accepts none for one
    /// rank, perhaps for ever, that does not delay the other ranks. On failure, returns the
    /// receiver of the acknowledgement.
    pub(crate) fn send_queued(
        &mut self,
        rdm: &mut RdmEndpoint<FabricRequest>,
        me: Rank,
    ) -> Result<(), (Rank, Errno)> {
        let mut busy: Vec<Rank> = Vec::new();
        for _ in 0..self.queued.len() {
            let Some((to, tag)) = self.queued.pop_front() else { return Ok(()) };
            if busy.contains(&to) {
                self.queued.push_back((to, tag));
                continue;
            }
            let buffer = match take_buffer(&mut self.spare, rdm) {
                Ok(buffer) => buffer,
                Err(errno) => {
                    self.queued.push_back((to, tag));
                    return Err((to, errno));
                }
            };
            let request = FabricRequest::SendAck { to };
            match rdm.send(to.index(), tags::ack(me, tag), buffer, 0, PLAIN, request) {
                Ok(()) => self.sending.push(to),
                Err((buffer, Errno::AGAIN)) => {
                    self.spare.push(buffer);
                    busy.push(to);
                    self.queued.push_back((to, tag));
                }
                Err((buffer, errno)) => {
                    self.spare.push(buffer);
                    return Err((to, errno));
                }
            }
        }
        Ok(())
    }
}

fn take_buffer(
    spare: &mut Vec<MessageBuffer>,
    rdm: &mut RdmEndpoint<FabricRequest>,
) -> Result<MessageBuffer, Errno> {
    // An acknowledgement has no bytes besides its mark. However memory is refused, no peer is at
    // fault.
    spare.pop().map_or_else(|| rdm.allocate(0).map_err(|_| Errno::NO_MEMORY), Ok)
}
