//! Rank 0's view of an admitted rank, which sends the inputs of all-gathers until it leaves.

use crate::message::{Malformed, Message};

/// State of an admitted rank.
#[derive(Debug, Default)]
pub struct MemberState {
    /// Input of the next all-gather, once it has arrived.
    given: Option<Vec<u8>>,
}

/// End of a rank's membership.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Departure {
    /// The rank said goodbye.
    Goodbye,
    /// The rank sent an invalid or unexpected message, or its connection ended without a goodbye.
    /// The rank counts as lost.
    Breach,
}

impl MemberState {
    /// Processes a message. `None` if the rank stays in the group.
    pub fn receive(&mut self, received: Result<Message<'_>, Malformed>) -> Option<Departure> {
        match received {
            Ok(Message::Give(bytes)) if self.given.is_none() => {
                self.given = Some(bytes.to_vec());
                None
            }
            Ok(Message::Goodbye) => Some(Departure::Goodbye),
            Ok(_) | Err(_) => Some(Departure::Breach),
        }
    }

    /// Returns whether the rank's input of the next all-gather has arrived.
    #[must_use]
    pub fn has_given(&self) -> bool {
        self.given.is_some()
    }

    /// Takes the rank's input of the next all-gather.
    pub fn take_given(&mut self) -> Option<Vec<u8>> {
        self.given.take()
    }
}
