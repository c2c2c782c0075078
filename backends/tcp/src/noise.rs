//! Encryption of a connection (feature `noise`): the [Noise protocol](https://noiseprotocol.org)
//! `NNpsk0_25519_AESGCM_SHA256`, keyed by the session's secret, through the crate `snow`.
//!
//! Each side draws a key for this connection only, so recorded data stays secret even if the token
//! becomes known later. A third message proves that the connector does not replay a recording. Then
//! records follow: two bytes of length (big-endian), and that many bytes of ciphertext. The last 16
//! bytes of the ciphertext are the authentication tag.

use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Read, Write};

use snow::{Builder, HandshakeState, TransportState};

use crate::header::ProtocolViolation;
use crate::secret::SessionSecret;

const PATTERN: &str = "Noise_NNpsk0_25519_AESGCM_SHA256";
/// Bytes of the authentication tag of a record.
const TAG_BYTES: usize = 16;
const LENGTH_BYTES: usize = 2;
/// Most bytes of a record after its length.
const MAX_RECORD_BYTES: usize = u16::MAX as usize;
const MAX_PLAIN_BYTES: usize = MAX_RECORD_BYTES - TAG_BYTES;
/// Bytes of the first and second message of a handshake: a key and its authentication tag.
pub(crate) const KEY_BYTES: usize = 32 + TAG_BYTES;
/// Bytes of the third message: an empty record, without its length.
pub(crate) const ANSWER_BYTES: usize = TAG_BYTES;

/// State of a handshake.
pub(crate) struct NoiseHandshake(HandshakeState);

impl NoiseHandshake {
    /// Starts a handshake. `about` describes the connection, and must be equal on both sides.
    pub(crate) fn new(
        connects: bool,
        secret: &SessionSecret,
        about: &[u8],
    ) -> Result<Self, snow::Error> {
        let builder = Builder::new(PATTERN.parse()?).prologue(about)?.psk(0, secret.bytes())?;
        let state = if connects { builder.build_initiator() } else { builder.build_responder() };
        Ok(Self(state?))
    }

    /// Returns this side's key message.
    pub(crate) fn key(&mut self) -> Result<[u8; KEY_BYTES], snow::Error> {
        let mut key = [0; KEY_BYTES];
        self.0.write_message(&[], &mut key)?;
        Ok(key)
    }

    /// Processes the peer's key message. Fails if the peer does not know the secret.
    pub(crate) fn receive(&mut self, key: &[u8]) -> Result<(), snow::Error> {
        self.0.read_message(key, &mut []).map(|_| ())
    }

    /// Returns the connector's third message, and the encrypted channel.
    pub(crate) fn answer(self) -> Result<([u8; ANSWER_BYTES], NoiseChannel), snow::Error> {
        let mut state = self.0.into_transport_mode()?;
        let mut answer = [0; ANSWER_BYTES];
        state.write_message(&[], &mut answer)?;
        Ok((answer, NoiseChannel::new(state)))
    }

    /// Processes the third message, and returns the encrypted channel.
    pub(crate) fn accept(self, answer: &[u8]) -> Result<NoiseChannel, snow::Error> {
        let mut state = self.0.into_transport_mode()?;
        state.read_message(answer, &mut [])?;
        Ok(NoiseChannel::new(state))
    }
}

/// Encrypts what is written and decrypts what is read.
pub(crate) struct NoiseChannel {
    state: TransportState,
    /// Plaintext of the next record, gathered from several slices.
    gathered: Vec<u8>,
    /// The last record; the system has taken the first `n_written` bytes.
    outbox: Vec<u8>,
    n_written: usize,
    /// Received bytes; the next record begins at `start`.
    inbox: Vec<u8>,
    start: usize,
    /// Plaintext of the last record; the first `n_taken` bytes were read.
    plain: Vec<u8>,
    n_taken: usize,
}

impl NoiseChannel {
    fn new(state: TransportState) -> Self {
        Self {
            state,
            gathered: Vec::new(),
            outbox: Vec::new(),
            n_written: 0,
            inbox: Vec::new(),
            start: 0,
            plain: Vec::new(),
            n_taken: 0,
        }
    }

    pub(crate) const fn is_flushed(&self) -> bool {
        self.n_written == self.outbox.len()
    }

    pub(crate) fn flush(&mut self, to: &mut impl Write) -> io::Result<()> {
        while !self.is_flushed() {
            match to.write(&self.outbox[self.n_written..]) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(n_bytes) => self.n_written += n_bytes,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Sends the rest of the previous record, and then writes one record with as many bytes of
    /// `from` as it can hold. Returns their number.
    pub(crate) fn write(&mut self, to: &mut impl Write, from: &[IoSlice<'_>]) -> io::Result<usize> {
        self.flush(to)?;
        self.gathered.clear();
        for slice in from {
            let room = MAX_PLAIN_BYTES - self.gathered.len();
            self.gathered.extend_from_slice(&slice[..slice.len().min(room)]);
        }
        if self.gathered.is_empty() {
            return Ok(0);
        }
        self.outbox.resize(LENGTH_BYTES + self.gathered.len() + TAG_BYTES, 0);
        let encrypted = self.state.write_message(&self.gathered, &mut self.outbox[LENGTH_BYTES..]);
        let n_bytes = encrypted.map_err(io::Error::other)?;
        self.outbox[..LENGTH_BYTES].copy_from_slice(&(n_bytes as u16).to_be_bytes());
        self.n_written = 0;
        match self.flush(to) {
            Err(error) if error.kind() != ErrorKind::WouldBlock => Err(error),
            _ => Ok(self.gathered.len()),
        }
    }

    pub(crate) fn read(
        &mut self,
        from: &mut impl Read,
        into: &mut [IoSliceMut<'_>],
    ) -> io::Result<usize> {
        while self.n_taken == self.plain.len() {
            if !self.open()? {
                self.fill(from)?;
                if self.start == self.inbox.len() {
                    return Ok(0);
                }
            }
        }
        let mut n_bytes = 0;
        for slice in into {
            let rest = &self.plain[self.n_taken..];
            let n_here = slice.len().min(rest.len());
            slice[..n_here].copy_from_slice(&rest[..n_here]);
            self.n_taken += n_here;
            n_bytes += n_here;
        }
        Ok(n_bytes)
    }

    /// Bytes allocated for received and for decrypted data.
    pub(crate) const fn n_held(&self) -> [usize; 2] {
        [self.inbox.capacity(), self.plain.capacity()]
    }

    /// Decrypts the next record, if it has arrived completely.
    fn open(&mut self) -> io::Result<bool> {
        let here = &self.inbox[self.start..];
        let Some((length, rest)) = here.split_first_chunk::<LENGTH_BYTES>() else {
            return Ok(false);
        };
        let n_bytes = usize::from(u16::from_be_bytes(*length));
        let Some(record) = rest.get(..n_bytes) else { return Ok(false) };
        let forged = || io::Error::new(ErrorKind::InvalidData, ProtocolViolation::Forged);
        let n_plain = n_bytes.checked_sub(TAG_BYTES).ok_or_else(forged)?;
        self.plain.resize(n_plain, 0);
        if self.state.read_message(record, &mut self.plain).is_err() {
            // Drop the unauthenticated plaintext. The record stays the next one, so that reading
            // again fails again.
            self.plain.clear();
            self.n_taken = 0;
            return Err(forged());
        }
        self.start += LENGTH_BYTES + n_bytes;
        self.n_taken = 0;
        Ok(true)
    }

    /// Appends received bytes to the incomplete record in `inbox`. At the end of the connection,
    /// discards the incomplete record.
    fn fill(&mut self, from: &mut impl Read) -> io::Result<()> {
        self.inbox.drain(..self.start);
        self.start = 0;
        let n_before = self.inbox.len();
        self.inbox.resize(LENGTH_BYTES + MAX_RECORD_BYTES, 0);
        let read = from.read(&mut self.inbox[n_before..]);
        self.inbox.truncate(n_before + read.as_ref().map_or(0, |n_bytes| *n_bytes));
        if read? == 0 {
            self.inbox.clear();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
#[cfg(test)]
pub(crate) use tests::pair;
