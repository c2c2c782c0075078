//! Access for fuzzing to what reads bytes of stores and launchers. Not part of the public
//! interface.

use std::time::{Duration, Instant};

use crate::message::NONCE_BYTES;
use crate::store::exchange::Gathered;
use crate::store::tcp::conversation::{Conversation, MAX_UNREAD_BYTES, MAX_WAITS, StoredValues};
use crate::store::tcp::protocol::{
    Request, Role, decode_answer, encode_answer, proof, take_message,
};
use crate::token::Token;

/// Nonce of a [`StoreHost`].
const NONCE: [u8; NONCE_BYTES] = [0x77; NONCE_BYTES];

/// The host of a store and one connection, without sockets.
#[allow(missing_debug_implementations, reason = "for fuzzing alone")]
pub struct StoreHost {
    token: Token,
    values: StoredValues,
    conversation: Conversation,
    start: Instant,
    now: Duration,
}

impl StoreHost {
    /// Accepts a connection to an empty store.
    #[must_use]
    pub fn new(token: Token) -> Self {
        let (start, now) = (Instant::now(), Duration::ZERO);
        let conversation = Conversation::new(NONCE, start + Duration::from_secs(5));
        Self { token, values: StoredValues::default(), conversation, start, now }
    }

    /// Returns the first message of a process that knows a token.
    #[must_use]
    pub fn honest_proof(token: &Token) -> Vec<u8> {
        let own = [9; NONCE_BYTES];
        [&own[..], &proof(Some(token), Role::Other, [&NONCE, &own])].concat()
    }

    /// Takes received bytes. Returns whether the connection goes on.
    pub fn receive(&mut self, bytes: &[u8]) -> bool {
        self.conversation.received.extend(bytes);
        let now = self.start + self.now;
        let served = self.conversation.serve(Some(&self.token), &mut self.values, now);
        self.conversation.answer_waits(&self.values, now);
        served.is_ok()
    }

    /// Lets time pass.
    pub fn pass(&mut self, time: Duration) {
        self.now += time;
        self.conversation.answer_waits(&self.values, self.start + self.now);
    }

    /// Returns whether the other side has proven itself.
    #[must_use]
    pub fn is_proven(&self) -> bool {
        self.conversation.is_proven()
    }

    /// Reads a value.
    #[must_use]
    pub fn value(&self, key: &str) -> Option<&[u8]> {
        self.values.get(key)
    }

    /// Takes the bytes for the other side.
    pub fn take_unsent(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.conversation.unsent)
    }

    /// Returns whether the host holds no more for the connection than it promises.
    #[must_use]
    pub fn is_within_limits(&self) -> bool {
        let longest = foldwire::store::MAX_VALUE_BYTES + 100;
        self.conversation.n_waits() <= MAX_WAITS
            && self.conversation.unsent.len() <= MAX_UNREAD_BYTES + longest
    }
}

/// Encodes a request to set a value, or to wait for one.
#[must_use]
pub fn store_request(number: u32, key: &str, value: Option<&[u8]>) -> Vec<u8> {
    let wait = Request::Wait { key, milliseconds: 10 };
    value.map_or(wait, |value| Request::Set { key, value }).encode(number)
}

/// Takes the next message, without its length.
///
/// # Errors
/// If the length is impossible.
pub fn next_message(received: &mut Vec<u8>) -> Result<Option<Vec<u8>>, &'static str> {
    take_message(received).map_err(|_| "a message is too long")
}

/// Decodes an answer of a store's host, and encodes it again, with its length.
#[must_use]
pub fn reencode_answer(message: &[u8]) -> Option<(u32, Vec<u8>)> {
    let (number, answer) = decode_answer(message)?;
    Some((number, encode_answer(number, &answer)))
}

/// Decodes a request to a store's host, and encodes it again, with its length.
#[must_use]
pub fn reencode_request(message: &[u8]) -> Option<Vec<u8>> {
    let (number, request) = Request::decode(message)?;
    Some(request.encode(number))
}

/// Decodes what rank 0 of a job with `size` ranks publishes in a store, and encodes it again.
#[must_use]
pub fn reencode_gathered(value: &[u8], size: usize) -> Option<Vec<u8>> {
    Some(Gathered::decode(value, size)?.encode(size))
}

/// Result of [`meet_by_pmi`]: rank, size, root and the name of the job; or the text of an error.
#[cfg(unix)]
pub type PmiMeeting = Result<(u64, u64, crate::Root, String), String>;

/// Meets the other ranks through the PMI server at the other end of a socket. `place` is what the
/// environment says about this rank, and `id` its number at `PMI_PORT`.
#[cfg(unix)]
pub fn meet_by_pmi(
    socket: std::os::unix::net::UnixStream,
    place: Option<(u64, u64)>,
    id: Option<u64>,
    limit: Duration,
) -> PmiMeeting {
    use crate::pmi::meet::{PmiRequest, meet_at};
    use crate::pmi::{PmiClient, PmiServer};
    use crate::rendezvous::deadline_after;

    let (server, local_ranks) = (PmiServer::Descriptor(-1), place.map(|(_, size)| size));
    let request = PmiRequest { server, place, local_ranks, address: None };
    let socket = std::os::fd::OwnedFd::from(socket).into();
    let client = PmiClient::greet(socket, id, deadline_after(limit), limit);
    match client.and_then(|client| meet_at(client, &request)) {
        Ok((met, _)) => {
            assert_eq!(met.secret.reveal().len(), 32, "ranks publish another secret");
            Ok((met.rank, met.size, met.root, met.name))
        }
        Err(error) => Err(error.to_string()),
    }
}
