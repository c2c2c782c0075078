//! The host's side of a store over TCP: what it does with a connection's bytes, without sockets.
//!
//! A process that has proven itself cannot make the host hold more for it than
//! [`MAX_UNREAD_BYTES`] and one value, one message, and [`MAX_WAITS`] keys.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use foldwire::store::{StoreError, check_entry, check_key};

use super::protocol::{
    ANSWER_BYTES, Answer, Request, Role, accepts, encode_answer, proof, take_message,
};
use crate::message::{NONCE_BYTES, Nonce};
use crate::token::Token;

/// Most bytes of all keys and values, with what the map needs for each.
const MAX_STORED_BYTES: usize = 256 << 20;
/// Bytes that the map needs for a key, at most.
const ENTRY_BYTES: usize = 100;
/// Most bytes that a process may leave unread before its connection is closed.
pub(crate) const MAX_UNREAD_BYTES: usize = 64 << 20;
/// Most keys that a process may wait for at the same time. Ours waits for one.
pub(crate) const MAX_WAITS: usize = 64;

/// The values of a store.
#[derive(Debug, Default)]
pub(crate) struct StoredValues {
    by_key: BTreeMap<String, Vec<u8>>,
    n_bytes: usize,
}

impl StoredValues {
    pub(crate) fn get(&self, key: &str) -> Option<&[u8]> {
        self.by_key.get(key).map(Vec::as_slice)
    }

    pub(super) fn set(&mut self, key: &str, value: &[u8]) -> Result<(), StoreError> {
        check_entry(key, value)?;
        let n_entry_bytes = |value: &[u8]| ENTRY_BYTES + key.len() + value.len();
        let n_old = self.by_key.get(key).map_or(0, |old| n_entry_bytes(old));
        let n_bytes = self.n_bytes - n_old + n_entry_bytes(value);
        if n_bytes > MAX_STORED_BYTES {
            return Err(StoreError::Full);
        }
        self.n_bytes = n_bytes;
        self.by_key.insert(key.to_owned(), value.to_vec());
        Ok(())
    }
}

/// The host's side of one connection.
#[derive(Debug)]
pub(crate) struct Conversation {
    proof: ProofState,
    /// Bytes that came and were not read yet.
    pub(crate) received: Vec<u8>,
    pub(crate) unsent: Vec<u8>,
    /// Requests that wait for a key: number, key and deadline.
    waits: Vec<(u32, String, Instant)>,
}

#[derive(Debug)]
enum ProofState {
    /// The host's nonce, and the time until which the answer must come.
    Unproven(Nonce, Instant),
    Proven,
}

/// A connection that has ended, or whose peer broke the protocol.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Closed;

impl Conversation {
    /// Begins with the host's nonce. The other side must have proven itself by `until`.
    pub(crate) fn new(nonce: Nonce, until: Instant) -> Self {
        let proof = ProofState::Unproven(nonce, until);
        Self { proof, received: Vec::new(), unsent: nonce.to_vec(), waits: Vec::new() }
    }

    pub(crate) fn is_proven(&self) -> bool {
        matches!(self.proof, ProofState::Proven)
    }

    /// Returns whether the other side has not tried to prove itself yet.
    pub(super) fn is_silent(&self) -> bool {
        !self.is_proven() && self.received.len() < ANSWER_BYTES
    }

    pub(crate) fn n_waits(&self) -> usize {
        self.waits.len()
    }

    /// Serves what has been received. `Err` if the connection must end.
    pub(crate) fn serve(
        &mut self,
        token: Option<&Token>,
        values: &mut StoredValues,
        now: Instant,
    ) -> Result<(), Closed> {
        if let ProofState::Unproven(nonce, until) = &self.proof {
            let Some(answer) = self.received.first_chunk::<ANSWER_BYTES>() else {
                return if now > *until { Err(Closed) } else { Ok(()) };
            };
            let (theirs, their_proof) = answer.split_first_chunk::<NONCE_BYTES>().ok_or(Closed)?;
            let nonces = [nonce, theirs];
            if !accepts(token, Role::Other, nonces, their_proof) {
                return Err(Closed);
            }
            self.unsent.extend(proof(token, Role::Host, nonces));
            self.received.drain(..ANSWER_BYTES);
            self.proof = ProofState::Proven;
        }
        while let Some(message) = take_message(&mut self.received).map_err(|_| Closed)? {
            let (number, request) = Request::decode(&message).ok_or(Closed)?;
            match request {
                Request::Set { key, value } => {
                    let answer: Answer = values.set(key, value).map(|()| None);
                    self.unsent.extend(encode_answer(number, &answer));
                }
                Request::Wait { key, milliseconds } => {
                    check_key(key).map_err(|_| Closed)?;
                    if self.waits.len() >= MAX_WAITS {
                        return Err(Closed);
                    }
                    let until = now + Duration::from_millis(milliseconds.into());
                    self.waits.push((number, key.to_owned(), until));
                }
            }
        }
        Ok(())
    }

    /// Answers the waits whose keys are set, or whose time is over, unless the other side leaves
    /// its answers unread.
    pub(crate) fn answer_waits(&mut self, values: &StoredValues, now: Instant) {
        let unsent = &mut self.unsent;
        self.waits.retain(|(number, key, until)| {
            let value = values.get(key);
            let is_over = value.is_some() || now >= *until;
            let is_answered = is_over && unsent.len() <= MAX_UNREAD_BYTES;
            if is_answered {
                unsent.extend(encode_answer(*number, &Ok(value.map(<[u8]>::to_vec))));
            }
            !is_answered
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use foldwire::store::MAX_VALUE_BYTES;

    /// A connection whose other side has proven itself.
    fn proven(values: &mut StoredValues, now: Instant) -> Conversation {
        let (ours, theirs) = ([1; NONCE_BYTES], [2; NONCE_BYTES]);
        let mut conversation = Conversation::new(ours, now);
        conversation.received.extend(theirs);
        conversation.received.extend(proof(None, Role::Other, [&ours, &theirs]));
        conversation.serve(None, values, now).unwrap();
        assert!(conversation.is_proven());
        conversation
    }

    #[test]
    fn who_asks_much_and_reads_nothing_makes_the_host_hold_little() {
        let (mut values, now) = (StoredValues::default(), Instant::now());
        values.set("large", &vec![7; MAX_VALUE_BYTES]).unwrap();
        let mut conversation = proven(&mut values, now);
        for round in 0..100 {
            let wait = Request::Wait { key: "large", milliseconds: 0 };
            conversation.received.extend(wait.encode(round));
            let served = conversation.serve(None, &mut values, now);
            conversation.answer_waits(&values, now);
            assert!(conversation.unsent.len() <= MAX_UNREAD_BYTES + MAX_VALUE_BYTES + 100);
            assert!(conversation.n_waits() <= MAX_WAITS);
            assert_eq!(served.is_err(), round >= 80, "request {round}");
            if served.is_err() {
                return;
            }
        }
    }

    #[test]
    fn a_wait_for_too_many_keys_ends_the_connection() {
        let (mut values, now) = (StoredValues::default(), Instant::now());
        let mut conversation = proven(&mut values, now);
        for number in 0..=MAX_WAITS as u32 {
            let wait = Request::Wait { key: "none", milliseconds: 1000 };
            conversation.received.extend(wait.encode(number));
            let served = conversation.serve(None, &mut values, now);
            assert_eq!(served.is_err(), number as usize == MAX_WAITS);
        }
    }
}
