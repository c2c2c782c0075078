//! Sends that are complete only when their receiver has posted a receive (`matched`).
//!
//! libfabric has a flag for that, `FI_MATCH_COMPLETE`, which hardly any provider accepts;
//! `FI_DELIVERY_COMPLETE` is satisfied with a message in the provider's memory. So a message that
//! shall be matched says so in its mark, and whoever receives it sends back an empty answer. The
//! buffer is released when the provider is done with it and the answer is here. Cost: one small
//! message for each that asks.

use std::collections::{HashMap, HashSet, VecDeque};

use foldwire::transport::{Rank, Tag};

use crate::fabric::FabricRequest;
use crate::ffi::{MessageBuffer, RdmEndpoint};
use crate::{Errno, tags};

/// The mark of a message whose sender wants no answer.
pub(crate) const PLAIN: u8 = 0;
/// The mark of one whose sender does.
pub(crate) const WANTS_ACK: u8 = 1;

/// Messages on one link that ask for an answer.
#[derive(Default)]
struct LinkAcks {
    /// Receives for answers that are posted.
    n_posted: usize,
    /// Messages that are not answered.
    n_unacked: usize,
    /// Acks without a buffer that could be released.
    n_unclaimed: usize,
    /// Messages that the provider is done with, not answered.
    sent: Vec<MessageBuffer>,
}

impl LinkAcks {
    /// A buffer whose message is both sent and answered. Which message does not matter: all on a
    /// link are alike.
    fn settle(&mut self) -> Option<MessageBuffer> {
        if self.n_unclaimed == 0 {
            return None;
        }
        let buffer = self.sent.pop()?;
        self.n_unclaimed -= 1;
        Some(buffer)
    }
}

/// Acks that are awaited, and those that are queued.
#[derive(Default)]
pub(crate) struct Acks {
    links: HashMap<(Rank, Tag), LinkAcks>,
    queued: VecDeque<(Rank, Tag)>,
    /// Whom each answer is for that the provider has.
    sending: Vec<Rank>,
    /// Ranks that neither give nor get answers any more.
    forgotten: HashSet<Rank>,
    /// Buffers for answers.
    spare: Vec<MessageBuffer>,
}

impl Acks {
    /// Posts a receive for one more answer on a link, unless one is posted that no message has
    /// link for yet.
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

    /// Notes that a message asks.
    pub(crate) fn note_accepted(&mut self, to: Rank, tag: Tag) {
        self.links.entry((to, tag)).or_default().n_unacked += 1;
    }

    /// Notes that the provider is done with a message that asks; the buffer, if it was answered
    /// before or never will be.
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

    /// Notes an answer; the buffer of a message, if the provider is done with one.
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

    /// Notes that an answer of ours is out.
    pub(crate) fn note_ack_sent(&mut self, to: Rank, empty: MessageBuffer) {
        if let Some(at) = self.sending.iter().position(|&other| other == to) {
            self.sending.swap_remove(at);
        }
        self.spare.push(empty);
    }

    /// Gives up waiting for the answers of a rank, and answering it, for good; the buffers that
    /// waited for it.
    pub(crate) fn forget(&mut self, peer: Rank) -> Vec<(Tag, MessageBuffer)> {
        self.forgotten.insert(peer);
        self.queued.retain(|&(to, _)| to != peer);
        self.sending.retain(|&to| to != peer);
        let links = self.links.iter_mut().filter(|((to, _), _)| *to == peer);
        let buffers = links
            .flat_map(|(&(_, tag), link)| link.sent.drain(..).map(move |buffer| (tag, buffer)));
        buffers.collect()
    }

    /// Promises an answer, unless the rank is forgotten.
    pub(crate) fn queue_ack(&mut self, to: Rank, tag: Tag) {
        if !self.forgotten.contains(&to) {
            self.queued.push_back((to, tag));
        }
    }

    /// Whether answers are not out yet.
    pub(crate) fn has_unsent(&self) -> bool {
        !self.queued.is_empty() || !self.sending.is_empty()
    }

    /// Sends what is queued, as far as the network has room. A rank that it has no room for, perhaps
    /// for ever, keeps none of the others waiting. On failure the rank that could not be answered.
    pub(crate) fn send_queued(
        &mut self,
        rdm: &mut RdmEndpoint<FabricRequest>,
        me: Rank,
    ) -> Result<(), (Rank, Errno)> {
        let mut full: Vec<Rank> = Vec::new();
        for _ in 0..self.queued.len() {
            let Some((to, tag)) = self.queued.pop_front() else { return Ok(()) };
            if full.contains(&to) {
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
                    full.push(to);
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
    // The mark is all that an answer has.
    spare.pop().map_or_else(|| rdm.allocate(0), Ok)
}
