//! Handshake in which both ends of a new connection prove that they are ranks of this session.
//!
//! ```text
//! connector                                 acceptor
//! hello, nonce and proof (or key)  ──▶
//!                                  ◀──      nonce and proof (or key)
//! proof (or an empty record)       ──▶
//! ```
//!
//! An encrypted connection uses the alternatives in parentheses. All messages have fixed lengths.
//! The hello names both ranks and the stream; proofs and keys authenticate it (modules `secret`,
//! `noise`).
//!
//! The connector's first proof (or key) depends on the secret, but on no nonce of the acceptor. So
//! a process without the secret can only replay a rank's first message, and then keep the acceptor
//! waiting. Any other first message without the secret is rejected at once. A connection that
//! breaks the order, or whose proof is wrong, is untrusted and is closed.

use std::io::{self, ErrorKind, Read, Write};

use foldwire::Rank;
use mio::net::TcpStream;

use crate::byte_stream::ByteStream;
#[cfg(feature = "noise")]
use crate::noise::{self, NoiseChannel, NoiseHandshake};
use crate::secret::{ConnectionProof, HELLO_PROOF_BYTES, NONCE_BYTES, Nonce, SessionSecret, nonce};

/// First bytes of every connection. The last one is the version of the protocol.
const MAGIC: [u8; 8] = *b"fwtcp\0\0\x05";
const HELLO_BYTES: usize = 20;
/// Bytes of the longest message.
const MAX_BYTES: usize = HELLO_BYTES + 2 * NONCE_BYTES;

/// Identity of a connection: its ranks, its number among the connections between them, and whether
/// it is encrypted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hello {
    pub(crate) from: Rank,
    pub(crate) to: Rank,
    pub(crate) stream: u16,
    pub(crate) encrypts: bool,
}

impl Hello {
    pub(crate) fn encode(self) -> [u8; HELLO_BYTES] {
        let mut bytes = [0; HELLO_BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&self.from.0.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.to.0.to_le_bytes());
        bytes[16..18].copy_from_slice(&self.stream.to_le_bytes());
        bytes[18] = u8::from(self.encrypts);
        bytes
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let (hello, _) = bytes.split_first_chunk::<HELLO_BYTES>()?;
        let word = |at: usize| u32::from_le_bytes([0, 1, 2, 3].map(|i| hello[at + i]));
        let (from, to) = (Rank(word(8)), Rank(word(12)));
        let stream = u16::from_le_bytes([hello[16], hello[17]]);
        let read = Self { from, to, stream, encrypts: hello[18] == 1 };
        (read.encode() == *hello).then_some(read)
    }
}

/// Reason for which a handshake failed.
#[derive(Debug)]
pub(crate) enum HandshakeError {
    /// The connection could not be made, or has ended.
    Io(io::Error),
    /// The peer does not know the secret, or does not speak the protocol.
    Untrusted,
}

/// Authentication method of one side, with its state.
enum Authentication {
    Hmac {
        /// This side's nonce.
        own: Nonce,
    },
    #[cfg(feature = "noise")]
    Noise(Box<NoiseHandshake>),
}

/// The event that a side waits for.
enum HandshakeStage {
    /// Connector: the start.
    Begin(Hello),
    /// Acceptor: the connector's first message.
    Hello,
    /// Connector: the acceptor's reply.
    Reply(Hello, Authentication),
    /// Acceptor: the connector's answer. Holds the first message without its hello.
    Answer(Hello, Authentication, Vec<u8>),
    /// The system must still take this side's last message.
    Done(Hello, ConnectionSecurity),
}

/// Encryption state of an authenticated connection.
#[derive(Default)]
pub(crate) struct ConnectionSecurity {
    #[cfg(feature = "noise")]
    channel: Option<NoiseChannel>,
}

/// One side's state machine, without a socket.
pub(crate) struct HandshakeSide {
    /// `None` after the end, with or without success.
    stage: Option<HandshakeStage>,
    pub(crate) outbox: Vec<u8>,
}

impl HandshakeSide {
    pub(crate) const fn connect(hello: Hello) -> Self {
        Self { stage: Some(HandshakeStage::Begin(hello)), outbox: Vec::new() }
    }

    pub(crate) const fn accept() -> Self {
        Self { stage: Some(HandshakeStage::Hello), outbox: Vec::new() }
    }

    /// Length in bytes of the next message to receive, or `None` after the last one. It is 0 for a
    /// connector that has not sent its first message. `encrypts` tells whether this session
    /// encrypts its connections.
    pub(crate) const fn n_needed(&self, encrypts: bool) -> Option<usize> {
        match &self.stage {
            Some(HandshakeStage::Begin(_)) => Some(0),
            Some(HandshakeStage::Hello) => Some(HELLO_BYTES + lengths(encrypts)[0]),
            Some(HandshakeStage::Reply(..)) => Some(lengths(encrypts)[1]),
            Some(HandshakeStage::Answer(..)) => Some(lengths(encrypts)[2]),
            Some(HandshakeStage::Done(..)) | None => None,
        }
    }

    /// Processes a message of [`n_needed`](Self::n_needed) bytes, and appends this side's next
    /// message to `outbox`. Rejects a hello that does not match `encrypts`.
    pub(crate) fn receive(
        &mut self,
        received: &[u8],
        secret: &SessionSecret,
        encrypts: bool,
    ) -> Result<(), HandshakeError> {
        let next = match self.stage.take() {
            Some(HandshakeStage::Begin(hello)) => {
                let mut authentication = Authentication::new(true, hello, secret)?;
                self.outbox.extend(hello.encode());
                self.outbox.extend(authentication.opening(hello, secret)?);
                HandshakeStage::Reply(hello, authentication)
            }
            Some(HandshakeStage::Hello) => {
                let hello = Hello::decode(received).ok_or(HandshakeError::Untrusted)?;
                if hello.encrypts != encrypts {
                    return Err(HandshakeError::Untrusted);
                }
                let mut authentication = Authentication::new(false, hello, secret)?;
                let opening = received[HELLO_BYTES..].to_vec();
                self.outbox.extend(authentication.reply(hello, secret, &opening)?);
                HandshakeStage::Answer(hello, authentication, opening)
            }
            Some(HandshakeStage::Reply(hello, authentication)) => {
                let (answer, security) = authentication.answer(hello, secret, received)?;
                self.outbox.extend(answer);
                HandshakeStage::Done(hello, security)
            }
            Some(HandshakeStage::Answer(hello, authentication, opening)) => HandshakeStage::Done(
                hello,
                authentication.accept(hello, secret, &opening, received)?,
            ),
            Some(done @ HandshakeStage::Done(..)) => done,
            None => return Ok(()),
        };
        self.stage = Some(next);
        Ok(())
    }

    /// Takes the result, once both sides have proven that they know the secret.
    pub(crate) fn take_end(&mut self) -> Option<(Hello, ConnectionSecurity)> {
        match self.stage.take() {
            Some(HandshakeStage::Done(hello, security)) => Some((hello, security)),
            stage => {
                self.stage = stage;
                None
            }
        }
    }
}

/// A connection whose handshake is in progress.
pub(crate) struct PendingHandshake {
    socket: Option<TcpStream>,
    side: HandshakeSide,
    inbox: [u8; MAX_BYTES],
    /// Bytes of the next message that are in `inbox`.
    n_here: usize,
}

impl PendingHandshake {
    /// Starts the connector's side on a socket that is connecting.
    pub(crate) fn connect(socket: TcpStream, hello: Hello) -> Self {
        Self::new(socket, HandshakeSide::connect(hello))
    }

    /// Starts the acceptor's side.
    pub(crate) fn accept(socket: TcpStream) -> Self {
        Self::new(socket, HandshakeSide::accept())
    }

    fn new(socket: TcpStream, side: HandshakeSide) -> Self {
        Self { socket: Some(socket), side, inbox: [0; MAX_BYTES], n_here: 0 }
    }

    /// Returns whether the peer has sent a hello whose proof is valid.
    pub(crate) const fn has_valid_hello(&self) -> bool {
        matches!(self.side.stage, Some(HandshakeStage::Answer(..)))
    }

    /// Advances as far as possible without waiting. Returns the connection once both sides have
    /// proven that they know the secret. `encrypts` tells whether this session encrypts its
    /// connections.
    pub(crate) fn advance(
        &mut self,
        secret: &SessionSecret,
        encrypts: bool,
    ) -> Result<Option<(Hello, ByteStream)>, HandshakeError> {
        while self.flush()? {
            let Some(n_needed) = self.side.n_needed(encrypts) else { return self.end() };
            // A connector begins when its socket is connected.
            if n_needed == 0 && !is_connected(self.socket.as_ref())? || !self.fill(n_needed)? {
                return Ok(None);
            }
            self.side.receive(&self.inbox[..n_needed], secret, encrypts)?;
            self.n_here = 0;
        }
        Ok(None)
    }

    /// Returns the connection if the handshake has succeeded.
    fn end(&mut self) -> Result<Option<(Hello, ByteStream)>, HandshakeError> {
        let Some((hello, security)) = self.side.take_end() else { return Ok(None) };
        let Some(socket) = self.socket.take() else { return Ok(None) };
        let connection = ByteStream::new(socket).map_err(HandshakeError::Io)?;
        #[cfg(feature = "noise")]
        let connection = match security.channel {
            Some(channel) => connection.encrypted(channel),
            None => connection,
        };
        #[cfg(not(feature = "noise"))]
        let _ = security;
        Ok(Some((hello, connection)))
    }

    /// Writes the queued bytes, and returns whether the system has taken all of them.
    fn flush(&mut self) -> Result<bool, HandshakeError> {
        let Some(socket) = &mut self.socket else { return Ok(true) };
        while !self.side.outbox.is_empty() {
            match socket.write(&self.side.outbox) {
                Ok(n_bytes) => _ = self.side.outbox.drain(..n_bytes),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(HandshakeError::Io(error)),
            }
        }
        Ok(true)
    }

    /// Reads until `n_needed` bytes have arrived, but no further, and returns whether they have.
    fn fill(&mut self, n_needed: usize) -> Result<bool, HandshakeError> {
        let Some(socket) = &mut self.socket else { return Ok(false) };
        while self.n_here < n_needed {
            match socket.read(&mut self.inbox[self.n_here..n_needed]) {
                Ok(0) => return Err(HandshakeError::Io(ErrorKind::UnexpectedEof.into())),
                Ok(n_bytes) => self.n_here += n_bytes,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(HandshakeError::Io(error)),
            }
        }
        Ok(true)
    }
}

/// Returns whether a connecting socket is connected.
fn is_connected(socket: Option<&TcpStream>) -> Result<bool, HandshakeError> {
    let Some(socket) = socket else { return Ok(false) };
    if let Some(error) = socket.take_error().map_err(HandshakeError::Io)? {
        return Err(HandshakeError::Io(error));
    }
    match socket.peer_addr() {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == ErrorKind::NotConnected => Ok(false),
        Err(error) => Err(HandshakeError::Io(error)),
    }
}

/// Lengths in bytes of the three messages: the first one without its hello, the reply, the answer.
const fn lengths(encrypts: bool) -> [usize; 3] {
    #[cfg(feature = "noise")]
    if encrypts {
        return [noise::KEY_BYTES, noise::KEY_BYTES, noise::ANSWER_BYTES];
    }
    #[cfg(not(feature = "noise"))]
    let _ = encrypts;
    // Reply and answer contain a proof, which is as long as a nonce.
    [NONCE_BYTES + HELLO_PROOF_BYTES, 2 * NONCE_BYTES, NONCE_BYTES]
}

#[cfg(feature = "noise")]
fn untrusted(_: snow::Error) -> HandshakeError {
    HandshakeError::Untrusted
}

impl Authentication {
    fn new(connects: bool, hello: Hello, secret: &SessionSecret) -> Result<Self, HandshakeError> {
        #[cfg(feature = "noise")]
        if hello.encrypts {
            let noise = NoiseHandshake::new(connects, secret, &hello.encode());
            return Ok(Self::Noise(Box::new(noise.map_err(untrusted)?)));
        }
        let _ = (connects, hello, secret);
        let own = nonce().map_err(|error| HandshakeError::Io(io::Error::other(error)))?;
        Ok(Self::Hmac { own })
    }

    /// Returns the part of the connector's first message that follows the hello.
    fn opening(&mut self, hello: Hello, secret: &SessionSecret) -> Result<Vec<u8>, HandshakeError> {
        match self {
            Self::Hmac { own } => {
                Ok([&own[..], &secret.hello_proof(&hello.encode(), own)].concat())
            }
            #[cfg(feature = "noise")]
            Self::Noise(noise) => Ok(noise.key().map_err(untrusted)?.to_vec()),
        }
    }

    /// Checks the opening, and returns the acceptor's reply.
    fn reply(
        &mut self,
        hello: Hello,
        secret: &SessionSecret,
        opening: &[u8],
    ) -> Result<Vec<u8>, HandshakeError> {
        match self {
            Self::Hmac { own } => {
                let (peer, about) = (nonce_of(opening)?, hello.encode());
                if !secret.accepts_hello_proof(&opening[NONCE_BYTES..], &about, &peer) {
                    return Err(HandshakeError::Untrusted);
                }
                let proof = secret.proof(ConnectionProof::AcceptorReply, &about, [&peer, &*own]);
                Ok([*own, proof].concat())
            }
            #[cfg(feature = "noise")]
            Self::Noise(noise) => {
                noise.receive(opening).map_err(untrusted)?;
                Ok(noise.key().map_err(untrusted)?.to_vec())
            }
        }
    }

    /// Checks the reply, and returns the connector's answer.
    fn answer(
        self,
        hello: Hello,
        secret: &SessionSecret,
        reply: &[u8],
    ) -> Result<(Vec<u8>, ConnectionSecurity), HandshakeError> {
        match self {
            Self::Hmac { own } => {
                let nonces = [&own, &nonce_of(reply)?];
                let about = hello.encode();
                if !secret.accepts(
                    &reply[NONCE_BYTES..],
                    ConnectionProof::AcceptorReply,
                    &about,
                    nonces,
                ) {
                    return Err(HandshakeError::Untrusted);
                }
                Ok((
                    secret.proof(ConnectionProof::ConnectorAnswer, &about, nonces).to_vec(),
                    ConnectionSecurity::default(),
                ))
            }
            #[cfg(feature = "noise")]
            Self::Noise(mut noise) => {
                noise.receive(reply).map_err(untrusted)?;
                let (answer, channel) = noise.answer().map_err(untrusted)?;
                Ok((answer.to_vec(), ConnectionSecurity { channel: Some(channel) }))
            }
        }
    }

    /// Checks the connector's answer, on the acceptor.
    fn accept(
        self,
        hello: Hello,
        secret: &SessionSecret,
        opening: &[u8],
        answer: &[u8],
    ) -> Result<ConnectionSecurity, HandshakeError> {
        match self {
            Self::Hmac { own } => {
                let nonces = [&nonce_of(opening)?, &own];
                let is_right = secret.accepts(
                    answer,
                    ConnectionProof::ConnectorAnswer,
                    &hello.encode(),
                    nonces,
                );
                if is_right {
                    Ok(ConnectionSecurity::default())
                } else {
                    Err(HandshakeError::Untrusted)
                }
            }
            #[cfg(feature = "noise")]
            Self::Noise(noise) => {
                Ok(ConnectionSecurity { channel: Some(noise.accept(answer).map_err(untrusted)?) })
            }
        }
    }
}

fn nonce_of(bytes: &[u8]) -> Result<Nonce, HandshakeError> {
    bytes.first_chunk().copied().ok_or(HandshakeError::Untrusted)
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream as StdStream};
    use std::time::{Duration, Instant};

    use proptest::prelude::*;

    use super::*;

    const HELLO: Hello = Hello { from: Rank(3), to: Rank(1), stream: 2, encrypts: false };

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let one = StdStream::connect(listener.local_addr().unwrap()).unwrap();
        let (two, _) = listener.accept().unwrap();
        let both = [one, two].map(|socket| {
            socket.set_nonblocking(true).unwrap();
            TcpStream::from_std(socket)
        });
        both.into()
    }

    type HandshakeResult = Result<Option<(Hello, ByteStream)>, HandshakeError>;

    /// Runs both sides of a handshake with their secrets until both have ended or one has failed.
    fn greet(hello: Hello, encrypts: bool, secrets: [&SessionSecret; 2]) -> [HandshakeResult; 2] {
        let (one, two) = pair();
        let mut sides = [PendingHandshake::connect(one, hello), PendingHandshake::accept(two)];
        let mut ends = [Ok(None), Ok(None)];
        let start = Instant::now();
        while ends.iter().all(Result::is_ok)
            && ends.iter().any(|end| matches!(end, Ok(None)))
            && start.elapsed() < Duration::from_secs(5)
        {
            for i in 0..2 {
                if matches!(ends[i], Ok(None)) {
                    ends[i] = sides[i].advance(secrets[i], [hello.encrypts, encrypts][i]);
                }
            }
        }
        ends
    }

    fn secret(byte: u8) -> SessionSecret {
        SessionSecret::new(None, &[byte])
    }

    fn variants() -> Vec<bool> {
        if cfg!(feature = "noise") { vec![false, true] } else { vec![false] }
    }

    #[test]
    fn ranks_of_one_session_know_each_other() {
        for encrypts in variants() {
            let hello = Hello { encrypts, ..HELLO };
            for end in greet(hello, encrypts, [&secret(1), &secret(1)]) {
                let (received, connection) = end.unwrap().expect("an end within seconds");
                assert_eq!((received, connection.is_plain()), (hello, !encrypts));
            }
        }
    }

    #[test]
    fn who_does_not_know_the_secret_is_a_stranger() {
        for encrypts in variants() {
            let ends = greet(Hello { encrypts, ..HELLO }, encrypts, [&secret(1), &secret(2)]);
            assert!(ends.iter().any(|end| matches!(end, Err(HandshakeError::Untrusted))));
            assert!(!ends.iter().any(|end| matches!(end, Ok(Some(_)))));
        }
    }

    #[cfg(feature = "noise")]
    #[test]
    fn who_would_encrypt_otherwise_is_a_stranger() {
        let encrypts = Hello { encrypts: true, ..HELLO };
        for (hello, accepts) in [(encrypts, false), (HELLO, true)] {
            let [_, end] = greet(hello, accepts, [&secret(1), &secret(1)]);
            assert!(matches!(end, Err(HandshakeError::Untrusted)));
        }
    }

    #[test]
    fn a_hello_is_read_as_written_and_nothing_else_is_one() {
        let bytes = HELLO.encode();
        assert_eq!(Hello::decode(&bytes), Some(HELLO));
        // The magic, the encryption flag and the unused byte.
        for byte in (0..8).chain([18, 19]) {
            let mut damaged = bytes;
            damaged[byte] ^= 0x80;
            assert_eq!(Hello::decode(&damaged), None, "byte {byte}");
        }
    }

    proptest! {
        #[test]
        fn who_hears_a_message_that_was_changed_trusts_nobody(
            encrypts in prop::sample::select(variants()),
            changed in 0..4usize,
            bit in any::<prop::sample::Index>(),
        ) {
            let secret = secret(1);
            let hello = Hello { encrypts, ..HELLO };
            let mut sides = [HandshakeSide::connect(hello), HandshakeSide::accept()];
            sides[0].receive(&[], &secret, encrypts).unwrap();
            // There are three messages, so `changed == 3` changes none.
            for nth in 0..3 {
                let (speaker, hearer) = (nth % 2, (nth + 1) % 2);
                let mut said = std::mem::take(&mut sides[speaker].outbox);
                prop_assert_eq!(sides[hearer].n_needed(encrypts), Some(said.len()));
                if nth == changed {
                    let bit = bit.index(8 * said.len());
                    said[bit / 8] ^= 1 << (bit % 8);
                }
                if sides[hearer].receive(&said, &secret, encrypts).is_err() {
                    break;
                }
            }
            let trusts = sides.map(|mut side| side.take_end().is_some());
            let who_heard_it = (changed + 1) % 2;
            prop_assert_eq!(trusts[who_heard_it], changed == 3);
        }
    }
}
