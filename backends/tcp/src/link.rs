//! Links with one peer, one for each tag. A link restores the order of messages, which may travel
//! over several connections, and gives them to receives.
//!
//! Some messages have the flag `matched`. The receiver answers such a message when a receive takes
//! it. Until then the sender keeps the message's frame. This limits how far a sender gets ahead of
//! the receives (*Credit* in `foldwire-messaging`'s `endpoint.rs`).

use std::collections::VecDeque;

use foldwire::transport::Tag;
use foldwire_messaging::MessageFrame;

use crate::header::ProtocolViolation;

/// A message that has arrived completely.
pub(crate) struct ReceivedMessage {
    pub(crate) frame: MessageFrame,
    pub(crate) n_bytes: usize,
    /// True if the sender waits for an answer.
    pub(crate) matched: bool,
    /// True if the frame came from the sender, who gets another in exchange.
    pub(crate) is_senders: bool,
}

/// Messages of one tag, in both directions.
#[derive(Default)]
pub(crate) struct TagLink {
    /// Count of messages sent, which is also the number of the next one.
    n_sent: u32,
    /// Count of messages that a receive has taken, which is also the number of the next one to
    /// take.
    n_taken: u32,
    /// Arrived messages by number, starting with number `n_taken`.
    arrived: VecDeque<Option<ReceivedMessage>>,
    /// The posted receive.
    pub(crate) posted: Option<MessageFrame>,
    /// Frame of the `matched` message that its receiver has not yet answered.
    pub(crate) awaits: Option<MessageFrame>,
}

impl TagLink {
    /// Returns the number of the next message to be sent, and counts it.
    pub(crate) const fn next_number(&mut self) -> u32 {
        let number = self.n_sent;
        self.n_sent = number.wrapping_add(1);
        number
    }

    /// Takes the posted receive and its message, if both are present.
    pub(crate) fn take(&mut self) -> Option<(MessageFrame, ReceivedMessage)> {
        let arrived = self.arrived.front_mut()?.take_if(|_| self.posted.is_some())?;
        self.arrived.pop_front();
        self.n_taken = self.n_taken.wrapping_add(1);
        Some((self.posted.take()?, arrived))
    }
}

/// The links with one peer.
pub(crate) struct PeerLinks {
    links: Vec<TagLink>,
    /// Number of messages that may arrive beyond the last one taken.
    window: usize,
}

impl PeerLinks {
    /// Creates links whose senders have a credit of `depth`. Every `depth`-th message is
    /// `matched`, and at most one such message is unanswered. So a sender is never more than
    /// 2·`depth` messages ahead of the receives.
    pub(crate) const fn new(depth: usize) -> Self {
        Self { links: Vec::new(), window: 2 * depth }
    }

    /// Returns the link of a valid tag.
    pub(crate) fn of(&mut self, tag: Tag) -> &mut TagLink {
        if self.links.len() <= tag.index() {
            self.links.resize_with(tag.index() + 1, TagLink::default);
        }
        &mut self.links[tag.index()]
    }

    /// Checks that the message with this number may arrive now. Returns its distance from the next
    /// message to be taken.
    pub(crate) fn admit(&mut self, tag: Tag, number: u32) -> Result<usize, ProtocolViolation> {
        let window = self.window;
        let link = self.of(tag);
        let ahead = number.wrapping_sub(link.n_taken) as usize;
        if ahead >= window || link.arrived.get(ahead).is_some_and(Option::is_some) {
            return Err(ProtocolViolation::OutOfOrder { number, next: link.n_taken });
        }
        Ok(ahead)
    }

    /// Stores an arrived message.
    pub(crate) fn store(
        &mut self,
        tag: Tag,
        number: u32,
        message: ReceivedMessage,
    ) -> Result<(), ProtocolViolation> {
        let ahead = self.admit(tag, number)?;
        let arrived = &mut self.of(tag).arrived;
        if arrived.len() <= ahead {
            arrived.resize_with(ahead + 1, || None);
        }
        arrived[ahead] = Some(message);
        Ok(())
    }

    /// All links with their tags.
    pub(crate) fn all(&mut self) -> impl Iterator<Item = (Tag, &mut TagLink)> {
        (0..).map(Tag).zip(&mut self.links)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use foldwire::HeapFrame;

    fn message(n_bytes: usize) -> ReceivedMessage {
        let frame = HeapFrame::new(8).into();
        ReceivedMessage { frame, n_bytes, matched: false, is_senders: false }
    }

    fn taken(links: &mut PeerLinks, tag: Tag) -> Option<usize> {
        let link = links.of(tag);
        link.posted.get_or_insert_with(|| HeapFrame::new(8).into());
        link.take().map(|(_, arrived)| arrived.n_bytes)
    }

    #[test]
    fn messages_are_taken_in_the_order_sent_not_in_the_order_of_arrival() {
        let (mut links, tag) = (PeerLinks::new(2), Tag(4));
        for number in [2, 0, 3] {
            links.store(tag, number, message(number as usize)).unwrap();
        }
        assert!(links.of(tag).take().is_none(), "no receive is posted");
        assert_eq!(taken(&mut links, tag), Some(0));
        assert_eq!(taken(&mut links, tag), None);
        links.store(tag, 1, message(1)).unwrap();
        let rest: Vec<_> = (0..4).map(|_| taken(&mut links, tag)).collect();
        assert_eq!(rest, [Some(1), Some(2), Some(3), None]);
    }

    #[test]
    fn a_message_beyond_the_credit_or_sent_twice_is_refused() {
        let (mut links, tag) = (PeerLinks::new(2), Tag(0));
        let refused = |number, next| Err(ProtocolViolation::OutOfOrder { number, next });
        assert_eq!(links.admit(tag, 4), refused(4, 0));
        assert_eq!(links.admit(tag, u32::MAX), refused(u32::MAX, 0));
        links.store(tag, 0, message(1)).unwrap();
        assert_eq!(links.admit(tag, 0), refused(0, 0));
        assert_eq!(taken(&mut links, tag), Some(1));
        assert_eq!(links.admit(tag, 0), refused(0, 1));
        assert_eq!(links.admit(tag, 4), Ok(3));
    }

    #[test]
    fn numbers_wrap_around() {
        let (mut links, tag) = (PeerLinks::new(2), Tag(0));
        let link = links.of(tag);
        (link.n_sent, link.n_taken) = (u32::MAX, u32::MAX);
        assert_eq!([link.next_number(), link.next_number()], [u32::MAX, 0]);
        links.store(tag, 0, message(2)).unwrap();
        links.store(tag, u32::MAX, message(1)).unwrap();
        assert_eq!([(); 2].map(|()| taken(&mut links, tag)), [Some(1), Some(2)]);
    }
}
