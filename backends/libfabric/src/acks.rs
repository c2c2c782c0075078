//! Sends that are complete only when their receiver has posted a receive (`matched`).
//!
//! libfabric has a flag for that, `FI_MATCH_COMPLETE`, which hardly any provider accepts;
//! `FI_DELIVERY_COMPLETE` is satisfied with a message in the provider's memory. So a message that
//! shall be matched says so in its mark, and whoever receives it sends back an empty answer. The
//! buffer is released when the provider is done with it and the answer is here. Cost: one small
//! message for each that asks.

use std::collections::{HashMap, HashSet, VecDeque};

use foldwire::transport::{Rank, Tag};

use crate::fabric::Request;
use crate::ffi::{Buffer, Port};
use crate::{Errno, tags};

/// The mark of a message whose sender wants no answer.
pub(crate) const PLAIN: u8 = 0;
/// The mark of one whose sender does.
pub(crate) const ASKS: u8 = 1;

/// Messages on one link that ask for an answer.
#[derive(Default)]
struct Asked {
    /// Receives for answers that are posted.
    n_listening: usize,
    /// Messages that are not answered.
    n_unanswered: usize,
    /// Answers without a buffer that could be released.
    n_answers: usize,
    /// Messages that the provider is done with, not answered.
    sent: Vec<Buffer>,
}

impl Asked {
    /// A buffer whose message is both sent and answered. Which message does not matter: all on a
    /// link are alike.
    fn settle(&mut self) -> Option<Buffer> {
        if self.n_answers == 0 {
            return None;
        }
        let buffer = self.sent.pop()?;
        self.n_answers -= 1;
        Some(buffer)
    }
}

/// Answers that are awaited, and those that are owed.
#[derive(Default)]
pub(crate) struct Answers {
    asked: HashMap<(Rank, Tag), Asked>,
    owed: VecDeque<(Rank, Tag)>,
    /// Whom each answer is for that the provider has.
    under_way: Vec<Rank>,
    /// Ranks that neither give nor get answers any more.
    gone: HashSet<Rank>,
    /// Buffers for answers.
    spare: Vec<Buffer>,
}

impl Answers {
    /// Posts a receive for one more answer on a link, unless one is posted that no message has
    /// asked for yet.
    pub(crate) fn listen(
        &mut self,
        port: &mut Port<Request>,
        to: Rank,
        tag: Tag,
    ) -> Result<(), Errno> {
        let asked = self.asked.entry((to, tag)).or_default();
        if asked.n_listening > asked.n_unanswered {
            return Ok(());
        }
        let buffer = take_spare(&mut self.spare, port)?;
        let request = Request::AwaitAnswer { from: to, tag };
        match port.recv(tags::answer(to, tag), buffer, request) {
            Ok(()) => {
                asked.n_listening += 1;
                Ok(())
            }
            Err((buffer, errno)) => {
                self.spare.push(buffer);
                Err(errno)
            }
        }
    }

    /// Notes that a message asks.
    pub(crate) fn note_question(&mut self, to: Rank, tag: Tag) {
        self.asked.entry((to, tag)).or_default().n_unanswered += 1;
    }

    /// Notes that the provider is done with a message that asks; the buffer, if it was answered
    /// before or never will be.
    pub(crate) fn note_sent(&mut self, to: Rank, tag: Tag, buffer: Buffer) -> Option<Buffer> {
        if self.gone.contains(&to) {
            return Some(buffer);
        }
        let asked = self.asked.entry((to, tag)).or_default();
        asked.sent.push(buffer);
        asked.settle()
    }

    /// Notes an answer; the buffer of a message, if the provider is done with one.
    pub(crate) fn note_answer(&mut self, from: Rank, tag: Tag, empty: Buffer) -> Option<Buffer> {
        self.spare.push(empty);
        let asked = self.asked.entry((from, tag)).or_default();
        asked.n_listening = asked.n_listening.saturating_sub(1);
        asked.n_unanswered = asked.n_unanswered.saturating_sub(1);
        asked.n_answers += 1;
        asked.settle()
    }

    /// Notes that an answer of ours is out.
    pub(crate) fn note_answered(&mut self, to: Rank, empty: Buffer) {
        if let Some(at) = self.under_way.iter().position(|&other| other == to) {
            self.under_way.swap_remove(at);
        }
        self.spare.push(empty);
    }

    /// Gives up waiting for the answers of a rank, and answering it, for good; the buffers that
    /// waited for it.
    pub(crate) fn forget(&mut self, peer: Rank) -> Vec<(Tag, Buffer)> {
        self.gone.insert(peer);
        self.owed.retain(|&(to, _)| to != peer);
        self.under_way.retain(|&to| to != peer);
        let links = self.asked.iter_mut().filter(|((to, _), _)| *to == peer);
        let buffers = links
            .flat_map(|(&(_, tag), asked)| asked.sent.drain(..).map(move |buffer| (tag, buffer)));
        buffers.collect()
    }

    /// Promises an answer, unless the rank is forgotten.
    pub(crate) fn owe(&mut self, to: Rank, tag: Tag) {
        if !self.gone.contains(&to) {
            self.owed.push_back((to, tag));
        }
    }

    /// Whether answers are not out yet.
    pub(crate) fn has_debts(&self) -> bool {
        !self.owed.is_empty() || !self.under_way.is_empty()
    }

    /// Sends what is owed, as far as the network has room. A rank that it has no room for, perhaps
    /// for ever, keeps none of the others waiting. On failure the rank that could not be answered.
    pub(crate) fn pay(&mut self, port: &mut Port<Request>, me: Rank) -> Result<(), (Rank, Errno)> {
        let mut full: Vec<Rank> = Vec::new();
        for _ in 0..self.owed.len() {
            let Some((to, tag)) = self.owed.pop_front() else { return Ok(()) };
            if full.contains(&to) {
                self.owed.push_back((to, tag));
                continue;
            }
            let buffer = match take_spare(&mut self.spare, port) {
                Ok(buffer) => buffer,
                Err(errno) => {
                    self.owed.push_back((to, tag));
                    return Err((to, errno));
                }
            };
            let request = Request::Answer { to };
            match port.send(to.index(), tags::answer(me, tag), buffer, 0, PLAIN, request) {
                Ok(()) => self.under_way.push(to),
                Err((buffer, Errno::AGAIN)) => {
                    self.spare.push(buffer);
                    full.push(to);
                    self.owed.push_back((to, tag));
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

fn take_spare(spare: &mut Vec<Buffer>, port: &mut Port<Request>) -> Result<Buffer, Errno> {
    // The mark is all that an answer has.
    spare.pop().map_or_else(|| port.allocate(0), Ok)
}
