//! Messages between the ranks and rank 0, and their parser.
//!
//! ```text
//!   offset  bytes  field
//!   0       1      kind
//!   1       4      n_bytes, little-endian: length of the body
//!   5       n      body
//! ```
//!
//! All numbers are little-endian. Each kind has a longest body. The length is checked before the
//! body arrives, so a peer cannot make a rank wait for, or store, more than [`MAX_MESSAGE_BYTES`].
//! [`parse`] is a pure function of a slice.
//!
//! ```text
//!   rank k                                     rank 0
//!     Hello (version, k, size, job,
//!       nonce, proof)                   ───▶
//!                                       ◀───   Challenge (nonce, proof)     or Refusal
//!     Answer (proof)                    ───▶
//!                                       ◀───   Welcome: all ranks have joined,
//!                                                or Refusal, Missing, Unfit
//!     Give                              ───▶
//!                                       ◀───   Share × size
//!                                       ◀───   Lost, Left: of other ranks
//!     Goodbye                           ◀──▶   Goodbye
//! ```

use std::io;

use foldwire::Rank;

use crate::job::JOB_BYTES;

/// Version of the protocol.
pub const VERSION: u16 = 2;
/// Bytes of a nonce.
pub const NONCE_BYTES: usize = 32;
/// Bytes of a proof: an HMAC-SHA-256.
pub const PROOF_BYTES: usize = 32;
/// A number that is used once.
pub type Nonce = [u8; NONCE_BYTES];
/// A proof that the sender knows the token.
pub type Proof = [u8; PROOF_BYTES];
/// Maximum bytes of a rank's input to an all-gather.
pub const MAX_GIVEN_BYTES: usize = 64 * 1024;
/// Bytes of kind and length, before the body.
pub const HEAD_BYTES: usize = 5;
/// Maximum bytes of a message.
pub const MAX_MESSAGE_BYTES: usize = HEAD_BYTES + 4 + MAX_GIVEN_BYTES;
/// Maximum bytes of a message of the handshake. A hello of another version may be longer than ours.
pub const MAX_HANDSHAKE_BYTES: usize = HEAD_BYTES + 4 * HELLO_BYTES;
/// Maximum number of ranks listed in [`Message::Missing`].
pub const MAX_NAMED: usize = 32;

const MAGIC: [u8; 8] = *b"FWBOOT\r\n";

/// A message, which borrows long contents.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Message<'a> {
    /// To rank 0: request to join.
    Hello {
        /// The sender's rank.
        rank: Rank,
        /// Number of ranks that the sender expects.
        size: u32,
        /// Identity of the sender's [job](crate::Job).
        job: [u8; JOB_BYTES],
        /// The sender's nonce.
        nonce: Nonce,
        /// The sender's first proof, made without rank 0's nonce. It lets rank 0 reject at once a
        /// sender that does not know the token. A replay of this proof is not enough to join, since
        /// the answer needs a new proof.
        proof: Proof,
    },
    /// From rank 0: request for a proof over both nonces.
    Challenge {
        /// Rank 0's nonce.
        nonce: Nonce,
        /// Rank 0's proof.
        proof: Proof,
    },
    /// To rank 0: the reply to a challenge.
    Answer {
        /// The sender's proof over both nonces.
        proof: Proof,
    },
    /// From rank 0, or from a rank that does not trust rank 0. The connection ends.
    Refusal(Refusal),
    /// From rank 0: all ranks have joined.
    Welcome,
    /// From rank 0: it no longer waits for missing ranks. The connection ends.
    Missing {
        /// Number of missing ranks.
        n_missing: u32,
        /// The first missing ranks, at most [`MAX_NAMED`].
        ranks: Vec<Rank>,
    },
    /// From rank 0: it no longer waits, since it refused the process of another rank. The
    /// connection ends.
    Unfit {
        /// The refused rank.
        rank: Rank,
        /// Reason for the refusal.
        reason: Refusal,
    },
    /// To rank 0: the sender's input of an all-gather.
    Give(&'a [u8]),
    /// From rank 0: one rank's input of an all-gather. Sent for all ranks, in rank order.
    Share {
        /// The rank that gave the input.
        from: Rank,
        /// The input.
        bytes: &'a [u8],
    },
    /// From rank 0: the named rank has ended without a goodbye.
    Lost(Rank),
    /// From rank 0: the named rank has said goodbye while other ranks wait for it.
    Left(Rank),
    /// The sender leaves and sends nothing more.
    Goodbye,
}

/// Reason for which rank 0 refuses a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The process speaks another protocol.
    #[error("it does not speak Foldwire's protocol")]
    Garbage,
    /// The process has another version of the protocol.
    #[error(
        "it speaks version {theirs} of the protocol, rank 0 version {VERSION}; run the same \
        program everywhere"
    )]
    Version {
        /// The process's version.
        theirs: u16,
    },
    /// The process expects another number of ranks.
    #[error(
        "it expects {theirs} ranks, rank 0 expects {ours}; set the same FOLDWIRE_SIZE everywhere"
    )]
    Size {
        /// Number of ranks that the process expects.
        theirs: u32,
        /// Number of ranks that rank 0 expects.
        ours: u32,
    },
    /// The process claims rank 0, or a rank beyond the group.
    #[error("it claims to be rank {rank} of {size}, but must be one of ranks 1 to {}; set \
        FOLDWIRE_RANK to another rank on each process", size.saturating_sub(1))]
    Rank {
        /// The claimed rank.
        rank: u32,
        /// Number of ranks.
        size: u32,
    },
    /// The process does not know the token.
    #[error("its FOLDWIRE_TOKEN differs from rank 0's; set the same everywhere")]
    Token,
    /// Another process has joined as this rank.
    #[error(
        "rank {rank} has already joined; give each process its own FOLDWIRE_RANK, and each job its \
        own FOLDWIRE_ROOT"
    )]
    Duplicate {
        /// The rank.
        rank: u32,
    },
    /// The process did not finish the handshake in time.
    #[error("it did not finish the handshake in time")]
    Slow,
    /// The process belongs to another job.
    #[error(
        "it is of job {theirs:08x}, rank 0 of job {ours:08x}; give each job its own FOLDWIRE_ROOT \
        or FOLDWIRE_JOB, the same on all its ranks"
    )]
    Job {
        /// First bytes of the identity of the process's job.
        theirs: u32,
        /// First bytes of the identity of rank 0's job.
        ours: u32,
    },
    /// Rank 0 cannot listen at its root.
    #[error(
        "rank 0 cannot listen there ({}); set FOLDWIRE_ROOT=HOST:PORT to an address of rank 0's \
        machine and a free port, the same on every rank",
        io::Error::from_raw_os_error(*os_error)
    )]
    CannotListen {
        /// Error code of rank 0's system.
        os_error: i32,
    },
}

/// Reason for which bytes are not a valid message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Malformed {
    /// No message has this kind.
    #[error("no message has the kind {0}")]
    Kind(u8),
    /// A body of this kind cannot have this length.
    #[error("a message of kind {kind} cannot have {n_bytes} bytes")]
    Length {
        /// The kind.
        kind: u8,
        /// The announced length of the body.
        n_bytes: u32,
    },
    /// A hello does not start with Foldwire's magic bytes.
    #[error("the hello does not start with Foldwire's magic bytes")]
    Magic,
    /// A hello has another version.
    #[error("the hello has version {theirs}, not {VERSION}")]
    Version {
        /// The sender's version.
        theirs: u16,
    },
    /// A refusal has an unknown reason, or numbers that its reason cannot have.
    #[error("no refusal has the reason {0} with these numbers")]
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

/// Parses the message at the start of `bytes`. Returns it with its length in bytes, or `None` if it
/// is incomplete.
///
/// # Errors
/// If the bytes cannot be the start of a message.
pub fn parse(bytes: &[u8]) -> Result<Option<(Message<'_>, usize)>, Malformed> {
    parse_within(bytes, MAX_MESSAGE_BYTES)
}

/// Like [`parse`], for messages of at most `longest` bytes. A peer cannot make the caller wait for,
/// or store, more bytes.
///
/// # Errors
/// See [`parse`]; also [`Malformed::Length`] for a longer message.
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

/// Returns the shortest and longest body of a kind, in bytes, or `None` for an unknown kind.
fn body_bytes(kind: u8) -> Option<(usize, usize)> {
    Some(match kind {
        // A hello of another version may have another length. Accept it here, so that the sender
        // gets an answer about its version.
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

/// Parses a body. `kind` must be known to [`body_bytes`].
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

/// Parses a refusal: a reason and two numbers, 0 where unused.
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

/// Reads the fields of a body.
struct BodyReader<'a> {
    rest: &'a [u8],
    /// Error if the body is too short or too long.
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
    /// If the body is longer than its kind allows; see [`MAX_GIVEN_BYTES`] and [`MAX_NAMED`].
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
