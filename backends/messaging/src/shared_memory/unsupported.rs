//! Replacement for `shared_memory` on systems without files in memory. Ranks share no memory there.

use std::collections::VecDeque;

use foldwire::transport::{Rank, Tag};

use crate::Event;
use crate::frame::{MessageFrame, SlotId};

/// Shared frame, which never exists here.
pub(crate) enum SharedFrame {}

impl SharedFrame {
    pub(crate) fn slot(&self) -> SlotId {
        match *self {}
    }
}

impl AsRef<[u8]> for SharedFrame {
    fn as_ref(&self) -> &[u8] {
        match *self {}
    }
}

impl AsMut<[u8]> for SharedFrame {
    fn as_mut(&mut self) -> &mut [u8] {
        match *self {}
    }
}

/// Receive of an announced message, which never exists here.
#[allow(dead_code, reason = "nothing makes one")]
pub(crate) struct AnnouncedReceive {
    pub(crate) from: Rank,
    pub(crate) tag: Tag,
    pub(crate) buffer: MessageFrame,
}

/// Send that a ring has accepted, which never exists here.
#[allow(dead_code, reason = "nothing makes one")]
pub(crate) enum AcceptedSend {
    Shared(Option<Event<MessageFrame>>),
    Announced(MessageFrame),
}

/// Shared memory, which never exists here.
pub(crate) enum SharedMemory {}

impl SharedMemory {
    pub(crate) fn join<E>(
        _: Rank,
        _: &[i64],
        _: usize,
        _: impl FnMut(&[u8]) -> Result<Vec<Vec<u8>>, E>,
    ) -> Result<Option<Self>, E> {
        Ok(None)
    }

    pub(crate) fn contains(&self, _: Rank) -> bool {
        match *self {}
    }

    pub(crate) fn n_peers(&self) -> usize {
        match *self {}
    }

    pub(crate) fn allocate(&mut self, _: usize) -> Option<SharedFrame> {
        match *self {}
    }

    pub(crate) fn owns(&self, _: &SharedFrame) -> bool {
        match *self {}
    }

    pub(crate) fn send(
        &mut self,
        _: Rank,
        _: Tag,
        _: MessageFrame,
        _: usize,
        _: bool,
    ) -> Result<AcceptedSend, MessageFrame> {
        match *self {}
    }

    pub(crate) fn take_receives(&mut self) -> std::iter::Empty<AnnouncedReceive> {
        match *self {}
    }

    pub(crate) fn recv(&mut self, _: Rank, _: Tag, _: MessageFrame) -> Option<Event<MessageFrame>> {
        match *self {}
    }

    pub(crate) fn has_message(&self) -> bool {
        match *self {}
    }

    pub(crate) fn poll(&mut self, _: &mut VecDeque<Event<MessageFrame>>) {
        match *self {}
    }

    pub(crate) fn cancel(&mut self, _: &mut VecDeque<Event<MessageFrame>>) {
        match *self {}
    }

    pub(crate) fn forget(&mut self, _: Rank) {
        match *self {}
    }
}
