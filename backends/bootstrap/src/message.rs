//! What ranks and rank 0 say to each other, and the one place where such bytes are read.
//!
//! ```text
//!   offset  bytes  field
//!   0       1      kind
//!   1       4      n_bytes, little-endian: length of the body
//!   5       n      body
//! ```
//!
//! All numbers are little-endian. Each kind has a largest body, checked before the body has come,
//! so that nobody can make a rank wait for, or store, more than [`MAX_MESSAGE_BYTES`]. [`parse`] is
//! pure: it reads a slice and says what is there.
//!
//! ```text
//!   rank k                                     rank 0
//!     Hello (version, k, size, job,
//!       nonce, proof)                   ───▶
//!                                       ◀───   Challenge (nonce, proof)     or Refusal
//!     Answer (proof)                    ───▶
//!                                       ◀───   Welcome: all ranks are here  or Refusal, Missing,
//!                                                                              Unfit
//!     Give                              ───▶
//!                                       ◀───   Share × size
//!                                       ◀───   Lost, Left: news of others
//!     Goodbye                           ◀──▶   Goodbye
//! ```

use std::io;

use foldwire::Rank;

use crate::job::JOB_BYTES;

/// Of this protocol.
pub const VERSION: u16 = 2;
/// Bytes of a nonce.
pub const NONCE_BYTES: usize = 32;
/// Bytes of a proof: an HMAC-SHA-256.
pub const PROOF_BYTES: usize = 32;
/// A number that is used once.
pub type Nonce = [u8; NONCE_BYTES];
/// Shows that its sender knows the token.
pub type Proof = [u8; PROOF_BYTES];
/// Most bytes that a rank can give to an all-gather.
pub const MAX_GIVEN_BYTES: usize = 64 * 1024;
/// Bytes before the body.
pub const HEAD_BYTES: usize = 5;
/// Most bytes of a message.
pub const MAX_MESSAGE_BYTES: usize = HEAD_BYTES + 4 + MAX_GIVEN_BYTES;
/// Most bytes of a message of the handshake.
pub const MAX_HANDSHAKE_BYTES: usize = HEAD_BYTES + 4 * HELLO_BYTES;
/// Most ranks that a verdict names.
pub const MAX_NAMED: usize = 32;

const MAGIC: [u8; 8] = *b"FWBOOT\r\n";

/// A message; what is long is borrowed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Message<'a> {
    /// To rank 0: let me in.
    Hello {
        /// The sender's.
        rank: Rank,
        /// Number of ranks that it expects.
        size: u32,
        /// Which [job](crate::Job) it means.
        job: [u8; JOB_BYTES],
        /// Drawn by the sender.
        nonce: Nonce,
        /// The sender's, before it has heard rank 0's nonce: only who knows the token is listened
        /// to. A recording of it opens nothing, since an answer must follow.
        proof: Proof,
    },
    /// From rank 0: first show me.
    Challenge {
        /// Drawn by rank 0.
        nonce: Nonce,
        /// Rank 0's own.
        proof: Proof,
    },
    /// To rank 0: here.
    Answer {
        /// The sender's.
        proof: Proof,
    },
    /// From rank 0: no. The connection ends.
    Refusal(Refusal),
    /// From rank 0: all ranks are here.
    Welcome,
    /// From rank 0: it has given up. The connection ends.
    Missing {
        /// How many have not come.
        n_missing: u32,
        /// The first of them, at most [`MAX_NAMED`].
        ranks: Vec<Rank>,
    },
    /// From rank 0: it has given up, since this rank was turned away. The connection ends.
    Unfit {
        /// The rank.
        rank: Rank,
        /// Why it was turned away.
        reason: Refusal,
    },
    /// To rank 0: the sender's part of an all-gather.
    Give(&'a [u8]),
    /// From rank 0: a rank's part, in rank order.
    Share {
        /// Whose part.
        from: Rank,
        /// What it gave.
        bytes: &'a [u8],
    },
    /// From rank 0: this rank has ended without a goodbye.
    Lost(Rank),
    /// From rank 0: this rank has said goodbye while others wait for it.
    Left(Rank),
    /// The sender ends in good order; nothing follows.
    Goodbye,
}

/// Why rank 0 lets somebody not in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// Not this protocol at all.
    #[error("it does not speak Foldwire's protocol")]
    Garbage,
    /// Another version of the protocol.
    #[error(
        "it speaks version {theirs} of the protocol, rank 0 version {VERSION}; run the same program everywhere"
    )]
    Version {
        /// The version of the one who knocked.
        theirs: u16,
    },
    /// Another number of ranks.
    #[error(
        "it expects {theirs} ranks, rank 0 expects {ours}; set the same FOLDWIRE_SIZE everywhere"
    )]
    Size {
        /// What the one who knocked expects.
        theirs: u32,
        /// What rank 0 expects.
        ours: u32,
    },
    /// No rank of this group, or rank 0's own.
    #[error("it says that it is rank {rank} of {size}; other ranks are 1 to {}", size.saturating_sub(1))]
    Rank {
        /// What it says.
        rank: u32,
        /// Number of ranks.
        size: u32,
    },
    /// It does not know the token.
    #[error("its FOLDWIRE_TOKEN is not that of rank 0; set the same everywhere")]
    Token,
    /// The rank is there already.
    #[error(
        "rank {rank} has joined already; give each process a FOLDWIRE_RANK of its own, and each job a FOLDWIRE_ROOT of its own"
    )]
    Duplicate {
        /// The rank.
        rank: u32,
    },
    /// It did not finish in time.
    #[error("it did not finish the handshake in time")]
    Slow,
    /// It is of another job.
    #[error(
        "it is of job {theirs:08x}, rank 0 of job {ours:08x}; give each job a FOLDWIRE_ROOT or a FOLDWIRE_JOB of its own, the same on all its ranks"
    )]
    Job {
        /// The beginning of its job's identity.
        theirs: u32,
        /// That of rank 0's.
        ours: u32,
    },
    /// Rank 0 cannot listen where the others look for it.
    #[error(
        "it cannot listen there ({}); set FOLDWIRE_ROOT=HOST:PORT to an address of rank 0's machine and a free port, the same on every rank",
        io::Error::from_raw_os_error(*os_error)
    )]
    CannotListen {
        /// What the system of rank 0 says, as a number.
        os_error: i32,
    },
}

/// Bytes that are no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Malformed {
    /// No kind has this number.
    #[error("no message has the kind {0}")]
    Kind(u8),
    /// A body of this kind cannot have this length.
    #[error("a message of kind {kind} has {n_bytes} bytes")]
    Length {
        /// The kind.
        kind: u8,
        /// What was announced.
        n_bytes: u32,
    },
    /// A greeting without Foldwire's mark.
    #[error("the greeting has not Foldwire's mark")]
    Magic,
    /// A greeting in another version.
    #[error("the greeting has version {theirs}, not {VERSION}")]
    Version {
        /// Its version.
        theirs: u16,
    },
    /// A refusal for no known reason, or with other numbers than its reason has.
    #[error("no refusal has the reason {0} and these numbers")]
    Reason(u8),
}

mod kind {
    pub(super) const HELLO: u8 = 1;
    pub(super) const CHALLENGE: u8 = 2;
    pub(super) const ANSWER: u8 = 3;
    pub(super) const REFUSAL: u8 = 4;
    pub(super) const WELCOME: u8 = 5;
    pub(super) const MISSING: u8 = 6;
    pub(super) const GIVE: u8 = 7;
    pub(super) const SHARE: u8 = 8;
    pub(super) const LOST: u8 = 9;
    pub(super) const LEFT: u8 = 10;
    pub(super) const GOODBYE: u8 = 11;
    pub(super) const UNFIT: u8 = 12;
}

const HELLO_BYTES: usize = MAGIC.len() + 2 + 4 + 4 + JOB_BYTES + NONCE_BYTES + PROOF_BYTES;
const REFUSAL_BYTES: usize = 1 + 4 + 4;

/// The message at the start of `bytes` and how many bytes it takes; `None` if its end is not there
/// yet.
///
/// # Errors
/// When these bytes are no message, however many follow.
pub fn parse(bytes: &[u8]) -> Result<Option<(Message<'_>, usize)>, Malformed> {
    parse_within(bytes, MAX_MESSAGE_BYTES)
}

/// As [`parse`], for one who accepts no message of more than `longest` bytes: nobody can make it
/// wait for, or store, more of them.
///
/// # Errors
/// As [`parse`]; [`Malformed::Length`] for a longer one.
pub fn parse_within(
    bytes: &[u8],
    longest: usize,
) -> Result<Option<(Message<'_>, usize)>, Malformed> {
    let n_allowed = longest.saturating_sub(HEAD_BYTES);
    let Some((&kind, rest)) = bytes.split_first() else { return Ok(None) };
    let (shortest, longest) = body_bytes(kind).ok_or(Malformed::Kind(kind))?;
    let Some((n_bytes, rest)) = rest.split_first_chunk() else { return Ok(None) };
    let n_bytes = u32::from_le_bytes(*n_bytes);
    let n_body = n_bytes as usize;
    if n_body < shortest || n_body > longest.min(n_allowed) {
        return Err(Malformed::Length { kind, n_bytes });
    }
    let Some(body) = rest.get(..n_body) else { return Ok(None) };
    let mut body = BodyReader { rest: body, otherwise: Malformed::Length { kind, n_bytes } };
    let message = parse_body(kind, &mut body)?;
    if body.rest.is_empty() {
        Ok(Some((message, HEAD_BYTES + n_body)))
    } else {
        Err(body.otherwise)
    }
}

/// Shortest and longest body of a kind.
fn body_bytes(kind: u8) -> Option<(usize, usize)> {
    Some(match kind {
        // A greeting of another version may be longer or shorter; it is answered, not thrown away.
        kind::HELLO => (MAGIC.len() + 2, 4 * HELLO_BYTES),
        kind::CHALLENGE => (NONCE_BYTES + PROOF_BYTES, NONCE_BYTES + PROOF_BYTES),
        kind::ANSWER => (PROOF_BYTES, PROOF_BYTES),
        kind::REFUSAL => (REFUSAL_BYTES, REFUSAL_BYTES),
        kind::WELCOME | kind::GOODBYE => (0, 0),
        kind::MISSING => (4, 4 + 4 * MAX_NAMED),
        kind::GIVE => (0, MAX_GIVEN_BYTES),
        kind::SHARE => (4, 4 + MAX_GIVEN_BYTES),
        kind::LOST | kind::LEFT => (4, 4),
        kind::UNFIT => (4 + REFUSAL_BYTES, 4 + REFUSAL_BYTES),
        _ => return None,
    })
}

/// `kind` is one that [`body_bytes`] knows.
fn parse_body<'a>(kind: u8, body: &mut BodyReader<'a>) -> Result<Message<'a>, Malformed> {
    Ok(match kind {
        kind::HELLO => {
            if body.array()? != MAGIC {
                return Err(Malformed::Magic);
            }
            let version = u16::from_le_bytes(body.array()?);
            if version != VERSION {
                return Err(Malformed::Version { theirs: version });
            }
            Message::Hello {
                rank: body.rank()?,
                size: body.u32()?,
                job: body.array()?,
                nonce: body.array()?,
                proof: body.array()?,
            }
        }
        kind::CHALLENGE => Message::Challenge { nonce: body.array()?, proof: body.array()? },
        kind::ANSWER => Message::Answer { proof: body.array()? },
        kind::REFUSAL => Message::Refusal(parse_refusal(body)?),
        kind::WELCOME => Message::Welcome,
        kind::MISSING => {
            let n_missing = body.u32()?;
            let mut ranks = Vec::with_capacity(MAX_NAMED);
            while !body.rest.is_empty() {
                ranks.push(body.rank()?);
            }
            Message::Missing { n_missing, ranks }
        }
        kind::GIVE => Message::Give(body.all()),
        kind::SHARE => Message::Share { from: body.rank()?, bytes: body.all() },
        kind::LOST => Message::Lost(body.rank()?),
        kind::LEFT => Message::Left(body.rank()?),
        kind::UNFIT => Message::Unfit { rank: body.rank()?, reason: parse_refusal(body)? },
        _ => Message::Goodbye,
    })
}

/// A reason and two numbers, unused ones 0.
fn parse_refusal(body: &mut BodyReader<'_>) -> Result<Refusal, Malformed> {
    let [reason] = body.array()?;
    Ok(match (reason, body.u32()?, body.u32()?) {
        (1, 0, 0) => Refusal::Garbage,
        (2, version, 0) => Refusal::Version {
            theirs: u16::try_from(version).map_err(|_| Malformed::Reason(reason))?,
        },
        (3, theirs, ours) => Refusal::Size { theirs, ours },
        (4, rank, size) => Refusal::Rank { rank, size },
        (5, 0, 0) => Refusal::Token,
        (6, rank, 0) => Refusal::Duplicate { rank },
        (7, 0, 0) => Refusal::Slow,
        (8, theirs, ours) => Refusal::Job { theirs, ours },
        (9, os_error, 0) => Refusal::CannotListen { os_error: os_error.cast_signed() },
        _ => return Err(Malformed::Reason(reason)),
    })
}

/// Takes a body apart.
struct BodyReader<'a> {
    rest: &'a [u8],
    /// The error when it is too short.
    otherwise: Malformed,
}

impl<'a> BodyReader<'a> {
    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (array, rest) = self.rest.split_first_chunk().ok_or(self.otherwise)?;
        self.rest = rest;
        Ok(*array)
    }

    fn u32(&mut self) -> Result<u32, Malformed> {
        self.array().map(u32::from_le_bytes)
    }

    fn rank(&mut self) -> Result<Rank, Malformed> {
        self.u32().map(Rank)
    }

    fn all(&mut self) -> &'a [u8] {
        core::mem::take(&mut self.rest)
    }
}

impl Refusal {
    fn emit(self, out: &mut Vec<u8>) {
        let (reason, a, b) = match self {
            Self::Garbage => (1, 0, 0),
            Self::Version { theirs } => (2, theirs.into(), 0),
            Self::Size { theirs, ours } => (3, theirs, ours),
            Self::Rank { rank, size } => (4, rank, size),
            Self::Token => (5, 0, 0),
            Self::Duplicate { rank } => (6, rank, 0),
            Self::Slow => (7, 0, 0),
            Self::Job { theirs, ours } => (8, theirs, ours),
            Self::CannotListen { os_error } => (9, os_error.cast_unsigned(), 0),
        };
        out.push(reason);
        out.extend(a.to_le_bytes());
        out.extend(b.to_le_bytes());
    }
}

impl Message<'_> {
    /// Appends the message to `out`.
    ///
    /// # Panics
    /// When it is longer than its kind may be: [`MAX_GIVEN_BYTES`], [`MAX_NAMED`].
    pub fn emit(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend([self.kind(), 0, 0, 0, 0]);
        match self {
            Self::Hello { rank, size, job, nonce, proof } => {
                out.extend(MAGIC);
                out.extend(VERSION.to_le_bytes());
                out.extend(rank.0.to_le_bytes());
                out.extend(size.to_le_bytes());
                out.extend(job);
                out.extend(nonce);
                out.extend(proof);
            }
            Self::Challenge { nonce, proof } => {
                out.extend(nonce);
                out.extend(proof);
            }
            Self::Answer { proof } => out.extend(proof),
            Self::Refusal(reason) => reason.emit(out),
            Self::Unfit { rank, reason } => {
                out.extend(rank.0.to_le_bytes());
                reason.emit(out);
            }
            Self::Missing { n_missing, ranks } => {
                out.extend(n_missing.to_le_bytes());
                out.extend(ranks.iter().flat_map(|rank| rank.0.to_le_bytes()));
            }
            Self::Give(bytes) => out.extend(*bytes),
            Self::Share { from, bytes } => {
                out.extend(from.0.to_le_bytes());
                out.extend(*bytes);
            }
            Self::Lost(rank) | Self::Left(rank) => out.extend(rank.0.to_le_bytes()),
            Self::Welcome | Self::Goodbye => {}
        }
        let n_bytes = out.len() - start - HEAD_BYTES;
        let fits = body_bytes(self.kind()).is_some_and(|(_, longest)| n_bytes <= longest);
        assert!(fits, "a message of kind {} cannot have {n_bytes} bytes", self.kind());
        out[start + 1..start + HEAD_BYTES].copy_from_slice(&(n_bytes as u32).to_le_bytes());
    }

    fn kind(&self) -> u8 {
        match self {
            Self::Hello { .. } => kind::HELLO,
            Self::Challenge { .. } => kind::CHALLENGE,
            Self::Answer { .. } => kind::ANSWER,
            Self::Refusal(_) => kind::REFUSAL,
            Self::Unfit { .. } => kind::UNFIT,
            Self::Welcome => kind::WELCOME,
            Self::Missing { .. } => kind::MISSING,
            Self::Give(_) => kind::GIVE,
            Self::Share { .. } => kind::SHARE,
            Self::Lost(_) => kind::LOST,
            Self::Left(_) => kind::LEFT,
            Self::Goodbye => kind::GOODBYE,
        }
    }
}

#[cfg(test)]
mod tests;
