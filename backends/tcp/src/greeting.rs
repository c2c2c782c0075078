//! How the two ends of a new connection find out that both are ranks of this session.
//!
//! ```text
//! who connects                              who accepts
//! hello, nonce and proof (or key)  ──▶
//!                                  ◀──      nonce and proof (or key)
//! proof (or a sealed nothing)      ──▶
//! ```
//!
//! All messages have fixed lengths. The hello says who connects to whom, and which of their streams
//! it is; proofs and keys are about it (`secret`, `seal`). The first proof (or key, which is
//! authenticated) shows the secret without anything of the other side's: a recording has it too,
//! but nobody else keeps a place among those who are listened to. A connection that breaks the
//! order, or proves nothing, is a stranger's.

use std::io::{self, ErrorKind, Read, Write};

use foldwire::Rank;
use mio::net::TcpStream;

#[cfg(feature = "noise")]
use crate::seal::{self, Greeter, Seal};
use crate::secret::{KNOCK_BYTES, NONCE_BYTES, Nonce, Role, Secret, nonce};
use crate::wire::Wire;

/// First bytes of every connection, with the version of all that follows.
const MAGIC: [u8; 8] = *b"fwtcp\0\0\x03";
const HELLO_BYTES: usize = 20;
/// Bytes of the longest message.
const MAX_BYTES: usize = HELLO_BYTES + 2 * NONCE_BYTES;

/// What a connection is for.
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

/// Why a connection is of no use.
#[derive(Debug)]
pub(crate) enum Fault {
    /// It could not be made, or has ended.
    Broken(io::Error),
    /// The other side does not know the secret, or is no rank.
    Stranger,
}

/// What one side proves, and with what.
enum Proofs {
    Open {
        own: Nonce,
    },
    #[cfg(feature = "noise")]
    Sealed(Box<Greeter>),
}

/// What a side waits for.
enum Stage {
    /// To begin, as the one who connects.
    Begin(Hello),
    Hello,
    Reply(Hello, Proofs),
    Answer(Hello, Proofs, Vec<u8>),
    /// For its last message to leave.
    Done(Hello, Ready),
}

/// What makes a wire of a socket.
#[derive(Default)]
pub(crate) struct Ready {
    #[cfg(feature = "noise")]
    seal: Option<Seal>,
}

/// What one side says and hears, whoever carries it.
pub(crate) struct Talk {
    /// `None` once it is over, well or not.
    stage: Option<Stage>,
    pub(crate) outbox: Vec<u8>,
}

impl Talk {
    pub(crate) const fn connect(hello: Hello) -> Self {
        Self { stage: Some(Stage::Begin(hello)), outbox: Vec::new() }
    }

    pub(crate) const fn accept() -> Self {
        Self { stage: Some(Stage::Hello), outbox: Vec::new() }
    }

    /// Bytes of the next message that this side hears; `encrypts`: what an accepted connection must
    /// do. `None` if it hears no more.
    pub(crate) const fn n_needed(&self, encrypts: bool) -> Option<usize> {
        match &self.stage {
            Some(Stage::Begin(_)) => Some(0),
            Some(Stage::Hello) => Some(HELLO_BYTES + lengths(encrypts)[0]),
            Some(Stage::Reply(..)) => Some(lengths(encrypts)[1]),
            Some(Stage::Answer(..)) => Some(lengths(encrypts)[2]),
            Some(Stage::Done(..)) | None => None,
        }
    }

    /// Hears a message of that length, and says what follows.
    pub(crate) fn hear(
        &mut self,
        heard: &[u8],
        secret: &Secret,
        encrypts: bool,
    ) -> Result<(), Fault> {
        let next = match self.stage.take() {
            Some(Stage::Begin(hello)) => {
                let mut proofs = Proofs::new(true, hello, secret)?;
                self.outbox.extend(hello.encode());
                self.outbox.extend(proofs.opening(hello, secret)?);
                Stage::Reply(hello, proofs)
            }
            Some(Stage::Hello) => {
                let hello = Hello::decode(heard).ok_or(Fault::Stranger)?;
                if hello.encrypts != encrypts {
                    return Err(Fault::Stranger);
                }
                let mut proofs = Proofs::new(false, hello, secret)?;
                let opening = heard[HELLO_BYTES..].to_vec();
                self.outbox.extend(proofs.reply(hello, secret, &opening)?);
                Stage::Answer(hello, proofs, opening)
            }
            Some(Stage::Reply(hello, proofs)) => {
                let (answer, ready) = proofs.answer(hello, secret, heard)?;
                self.outbox.extend(answer);
                Stage::Done(hello, ready)
            }
            Some(Stage::Answer(hello, proofs, opening)) => {
                Stage::Done(hello, proofs.accept(hello, secret, &opening, heard)?)
            }
            Some(done @ Stage::Done(..)) => done,
            None => return Ok(()),
        };
        self.stage = Some(next);
        Ok(())
    }

    /// What the connection is for, once both sides have shown what they know.
    pub(crate) fn take_end(&mut self) -> Option<(Hello, Ready)> {
        match self.stage.take() {
            Some(Stage::Done(hello, ready)) => Some((hello, ready)),
            stage => {
                self.stage = stage;
                None
            }
        }
    }
}

/// A connection in the making.
pub(crate) struct Greeting {
    socket: Option<TcpStream>,
    talk: Talk,
    inbox: [u8; MAX_BYTES],
    n_here: usize,
}

impl Greeting {
    /// Of a connection that is being made.
    pub(crate) fn connect(socket: TcpStream, hello: Hello) -> Self {
        Self::new(socket, Talk::connect(hello))
    }

    /// Of a connection that somebody has made.
    pub(crate) fn accept(socket: TcpStream) -> Self {
        Self::new(socket, Talk::accept())
    }

    fn new(socket: TcpStream, talk: Talk) -> Self {
        Self { socket: Some(socket), talk, inbox: [0; MAX_BYTES], n_here: 0 }
    }

    /// Whether the other side has said who it is, in words that only a rank can have found.
    pub(crate) const fn has_said_hello(&self) -> bool {
        matches!(self.talk.stage, Some(Stage::Answer(..)))
    }

    /// Goes on as far as it can without waiting. What has become of it, once both sides have shown
    /// what they know; `encrypts`: what an accepted connection must do.
    pub(crate) fn advance(
        &mut self,
        secret: &Secret,
        encrypts: bool,
    ) -> Result<Option<(Hello, Wire)>, Fault> {
        while self.flush()? {
            let Some(n_needed) = self.talk.n_needed(encrypts) else { return self.end() };
            if n_needed == 0 && !is_connected(self.socket.as_ref())? || !self.fill(n_needed)? {
                return Ok(None);
            }
            self.talk.hear(&self.inbox[..n_needed], secret, encrypts)?;
            self.n_here = 0;
        }
        Ok(None)
    }

    /// The connection, if the talk has ended well.
    fn end(&mut self) -> Result<Option<(Hello, Wire)>, Fault> {
        let Some((hello, ready)) = self.talk.take_end() else { return Ok(None) };
        let Some(socket) = self.socket.take() else { return Ok(None) };
        let wire = Wire::new(socket).map_err(Fault::Broken)?;
        #[cfg(feature = "noise")]
        let wire = match ready.seal {
            Some(seal) => wire.sealed(seal),
            None => wire,
        };
        #[cfg(not(feature = "noise"))]
        let _ = ready;
        Ok(Some((hello, wire)))
    }

    /// Writes what is to be written; whether all of it has left.
    fn flush(&mut self) -> Result<bool, Fault> {
        let Some(socket) = &mut self.socket else { return Ok(true) };
        while !self.talk.outbox.is_empty() {
            match socket.write(&self.talk.outbox) {
                Ok(n_bytes) => _ = self.talk.outbox.drain(..n_bytes),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(Fault::Broken(error)),
            }
        }
        Ok(true)
    }

    /// Reads until so many bytes are here, and none beyond them; whether they are.
    fn fill(&mut self, n_needed: usize) -> Result<bool, Fault> {
        let Some(socket) = &mut self.socket else { return Ok(false) };
        while self.n_here < n_needed {
            match socket.read(&mut self.inbox[self.n_here..n_needed]) {
                Ok(0) => return Err(Fault::Broken(ErrorKind::UnexpectedEof.into())),
                Ok(n_bytes) => self.n_here += n_bytes,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(Fault::Broken(error)),
            }
        }
        Ok(true)
    }
}

/// Whether a connection that was begun is there.
fn is_connected(socket: Option<&TcpStream>) -> Result<bool, Fault> {
    let Some(socket) = socket else { return Ok(false) };
    if let Some(error) = socket.take_error().map_err(Fault::Broken)? {
        return Err(Fault::Broken(error));
    }
    match socket.peer_addr() {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == ErrorKind::NotConnected => Ok(false),
        Err(error) => Err(Fault::Broken(error)),
    }
}

/// Bytes behind the hello, of the reply, and of the answer.
const fn lengths(encrypts: bool) -> [usize; 3] {
    #[cfg(feature = "noise")]
    if encrypts {
        return [seal::KEY_BYTES, seal::KEY_BYTES, seal::ANSWER_BYTES];
    }
    #[cfg(not(feature = "noise"))]
    let _ = encrypts;
    [NONCE_BYTES + KNOCK_BYTES, 2 * NONCE_BYTES, NONCE_BYTES]
}

#[cfg(feature = "noise")]
fn stranger(_: snow::Error) -> Fault {
    Fault::Stranger
}

impl Proofs {
    fn new(connects: bool, hello: Hello, secret: &Secret) -> Result<Self, Fault> {
        #[cfg(feature = "noise")]
        if hello.encrypts {
            let greeter = Greeter::new(connects, secret, &hello.encode());
            return Ok(Self::Sealed(Box::new(greeter.map_err(stranger)?)));
        }
        let _ = (connects, hello, secret);
        let own = nonce().map_err(|error| Fault::Broken(io::Error::other(error)))?;
        Ok(Self::Open { own })
    }

    /// What the connector says behind its hello.
    fn opening(&mut self, hello: Hello, secret: &Secret) -> Result<Vec<u8>, Fault> {
        match self {
            Self::Open { own } => Ok([&own[..], &secret.knock(&hello.encode(), own)].concat()),
            #[cfg(feature = "noise")]
            Self::Sealed(greeter) => Ok(greeter.key().map_err(stranger)?.to_vec()),
        }
    }

    /// What the other side says to that.
    fn reply(&mut self, hello: Hello, secret: &Secret, opening: &[u8]) -> Result<Vec<u8>, Fault> {
        match self {
            Self::Open { own } => {
                let (theirs, about) = (nonce_of(opening)?, hello.encode());
                if !secret.accepts_knock(&opening[NONCE_BYTES..], &about, &theirs) {
                    return Err(Fault::Stranger);
                }
                let proof = secret.proof(Role::Accepts, &about, [&theirs, &*own]);
                Ok([*own, proof].concat())
            }
            #[cfg(feature = "noise")]
            Self::Sealed(greeter) => {
                greeter.hear(opening).map_err(stranger)?;
                Ok(greeter.key().map_err(stranger)?.to_vec())
            }
        }
    }

    /// What the connector says to the reply.
    fn answer(
        self,
        hello: Hello,
        secret: &Secret,
        reply: &[u8],
    ) -> Result<(Vec<u8>, Ready), Fault> {
        match self {
            Self::Open { own } => {
                let nonces = [&own, &nonce_of(reply)?];
                let about = hello.encode();
                if !secret.accepts(&reply[NONCE_BYTES..], Role::Accepts, &about, nonces) {
                    return Err(Fault::Stranger);
                }
                Ok((secret.proof(Role::Connects, &about, nonces).to_vec(), Ready::default()))
            }
            #[cfg(feature = "noise")]
            Self::Sealed(mut greeter) => {
                greeter.hear(reply).map_err(stranger)?;
                let (answer, seal) = greeter.answer().map_err(stranger)?;
                Ok((answer.to_vec(), Ready { seal: Some(seal) }))
            }
        }
    }

    /// Takes the answer.
    fn accept(
        self,
        hello: Hello,
        secret: &Secret,
        opening: &[u8],
        answer: &[u8],
    ) -> Result<Ready, Fault> {
        match self {
            Self::Open { own } => {
                let nonces = [&nonce_of(opening)?, &own];
                let is_right = secret.accepts(answer, Role::Connects, &hello.encode(), nonces);
                if is_right { Ok(Ready::default()) } else { Err(Fault::Stranger) }
            }
            #[cfg(feature = "noise")]
            Self::Sealed(greeter) => {
                Ok(Ready { seal: Some(greeter.accept(answer).map_err(stranger)?) })
            }
        }
    }
}

fn nonce_of(bytes: &[u8]) -> Result<Nonce, Fault> {
    bytes.first_chunk().copied().ok_or(Fault::Stranger)
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

    type Outcome = Result<Option<(Hello, Wire)>, Fault>;

    /// Both sides of a greeting with their secrets, until each has come to an end.
    fn greet(hello: Hello, encrypts: bool, secrets: [&Secret; 2]) -> [Outcome; 2] {
        let (one, two) = pair();
        let mut sides = [Greeting::connect(one, hello), Greeting::accept(two)];
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

    fn secret(byte: u8) -> Secret {
        Secret::new(None, &[[byte; NONCE_BYTES]])
    }

    fn ways() -> Vec<bool> {
        if cfg!(feature = "noise") { vec![false, true] } else { vec![false] }
    }

    #[test]
    fn ranks_of_one_session_know_each_other() {
        for encrypts in ways() {
            let hello = Hello { encrypts, ..HELLO };
            for end in greet(hello, encrypts, [&secret(1), &secret(1)]) {
                let (heard, wire) = end.unwrap().expect("an end within seconds");
                assert_eq!((heard, wire.is_plain()), (hello, !encrypts));
            }
        }
    }

    #[test]
    fn who_does_not_know_the_secret_is_a_stranger() {
        for encrypts in ways() {
            let ends = greet(Hello { encrypts, ..HELLO }, encrypts, [&secret(1), &secret(2)]);
            assert!(ends.iter().any(|end| matches!(end, Err(Fault::Stranger))));
            assert!(!ends.iter().any(|end| matches!(end, Ok(Some(_)))));
        }
    }

    #[cfg(feature = "noise")]
    #[test]
    fn who_would_encrypt_otherwise_is_a_stranger() {
        let encrypts = Hello { encrypts: true, ..HELLO };
        for (hello, accepts) in [(encrypts, false), (HELLO, true)] {
            let [_, end] = greet(hello, accepts, [&secret(1), &secret(1)]);
            assert!(matches!(end, Err(Fault::Stranger)));
        }
    }

    #[test]
    fn a_hello_is_read_as_written_and_nothing_else_is_one() {
        let bytes = HELLO.encode();
        assert_eq!(Hello::decode(&bytes), Some(HELLO));
        for byte in (0..8).chain([18, 19]) {
            let mut damaged = bytes;
            damaged[byte] ^= 0x80;
            assert_eq!(Hello::decode(&damaged), None, "byte {byte}");
        }
    }

    proptest! {
        #[test]
        fn who_hears_a_message_that_was_changed_trusts_nobody(
            encrypts in prop::sample::select(ways()),
            changed in 0..4usize,
            bit in any::<prop::sample::Index>(),
        ) {
            let secret = secret(1);
            let hello = Hello { encrypts, ..HELLO };
            let mut sides = [Talk::connect(hello), Talk::accept()];
            sides[0].hear(&[], &secret, encrypts).unwrap();
            // There are three messages: of the last number none is changed.
            for nth in 0..3 {
                let (speaker, hearer) = (nth % 2, (nth + 1) % 2);
                let mut said = std::mem::take(&mut sides[speaker].outbox);
                prop_assert_eq!(sides[hearer].n_needed(encrypts), Some(said.len()));
                if nth == changed {
                    let bit = bit.index(8 * said.len());
                    said[bit / 8] ^= 1 << (bit % 8);
                }
                if sides[hearer].hear(&said, &secret, encrypts).is_err() {
                    break;
                }
            }
            let trusts = sides.map(|mut side| side.take_end().is_some());
            let who_heard_it = (changed + 1) % 2;
            prop_assert_eq!(trusts[who_heard_it], changed == 3);
        }
    }
}
