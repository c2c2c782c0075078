//! Rank 0's side of a rank that is in: it gives to all-gathers, one at a time, until it leaves.

use crate::message::{Malformed, Message};

/// What rank 0 has heard of a rank that is in.
#[derive(Debug, Default)]
pub struct MemberState {
    given: Option<Vec<u8>>,
}

/// How a rank goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Departure {
    /// In good order.
    Goodbye,
    /// It has said what does not belong there, and is as good as lost.
    Breach,
}

impl MemberState {
    /// Heeds a message. `None`: the rank stays.
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

    /// Whether its part of the next all-gather has come.
    #[must_use]
    pub fn has_given(&self) -> bool {
        self.given.is_some()
    }

    /// Its part of the next all-gather.
    pub fn take_given(&mut self) -> Option<Vec<u8>> {
        self.given.take()
    }
}
