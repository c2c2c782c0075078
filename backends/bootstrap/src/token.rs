//! The secret that ranks share, and proofs of knowing it.
//!
//! Both ends of a connection draw a nonce. Each sends a proof: an HMAC-SHA-256, keyed by the token,
//! over its role, the protocol version, rank, size, job and both nonces. The token itself is never
//! sent. A proof is not valid on another connection, for another rank or job, or in the other
//! direction. The connecting rank also sends a first proof in its hello, without rank 0's nonce. So
//! rank 0 waits only for connections of ranks, or of a process that replays a rank's hello.
//!
//! The proofs keep other programs out of the bootstrap. They neither encrypt nor authenticate the
//! messages that follow; use a trusted network if an attacker could change packets. They also do
//! not protect the network that ranks set up with the exchanged addresses: libfabric's endpoints
//! check no token. (The connections of `foldwire-tcp` do.)

use std::fmt;

use foldwire::Rank;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::job::JOB_BYTES;
use crate::message::{NONCE_BYTES, Nonce, PROOF_BYTES, Proof, VERSION};

/// Minimum number of characters of a token. A shorter token could be guessed from a recorded
/// handshake.
pub const MIN_TOKEN_CHARS: usize = 16;

/// A secret that the ranks of one job share. `Debug` does not show it.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

/// A token has too few characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a token needs at least {MIN_TOKEN_CHARS} characters, this one has {have}; make one with \
    `openssl rand -hex 16`"
)]
pub struct TokenTooShort {
    /// Characters of the token.
    pub have: usize,
}

impl Token {
    /// Makes a token from a text.
    ///
    /// # Errors
    /// If the text has fewer than [`MIN_TOKEN_CHARS`] characters.
    pub fn new(text: impl Into<String>) -> Result<Self, TokenTooShort> {
        let text = text.into();
        let have = text.chars().count();
        if have < MIN_TOKEN_CHARS { Err(TokenTooShort { have }) } else { Ok(Self(text)) }
    }

    /// Makes a token from 128 random bits.
    ///
    /// # Errors
    /// If the system provides no random numbers.
    pub fn random() -> Result<Self, NoRandomNumbers> {
        let bytes: [u8; 16] = random()?;
        Ok(Self(bytes.iter().map(|byte| format!("{byte:02x}")).collect()))
    }

    /// The secret text, to pass it to other ranks.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

/// The system gave no random numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the system gave no random numbers ({0}); is /dev/urandom there?")]
pub struct NoRandomNumbers(getrandom::Error);

/// Draws a nonce.
pub(crate) fn nonce() -> Result<Nonce, NoRandomNumbers> {
    random::<NONCE_BYTES>()
}

fn random<const N: usize>() -> Result<[u8; N], NoRandomNumbers> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(NoRandomNumbers)?;
    Ok(bytes)
}

/// Sender and message of a proof.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProofKind {
    /// Rank 0's proof, in its challenge.
    RootChallenge,
    /// The connecting rank's proof, in its answer.
    MemberAnswer,
    /// The connecting rank's first proof, in its hello. Zeros take the place of rank 0's nonce.
    MemberHello,
}

/// Data of one handshake that the proofs cover. Equal on both sides of a valid handshake.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Transcript<'a> {
    /// May be absent on loopback only. The proof then shows only that both sides agree on rank,
    /// size and job.
    pub(crate) token: Option<&'a Token>,
    pub(crate) rank: Rank,
    pub(crate) size: u32,
    pub(crate) job: [u8; JOB_BYTES],
    pub(crate) root_nonce: Nonce,
    pub(crate) member_nonce: Nonce,
}

impl Transcript<'_> {
    pub(crate) fn proof(&self, kind: ProofKind) -> Proof {
        let proof: [u8; PROOF_BYTES] = self.mac(kind).finalize().into_bytes().into();
        proof
    }

    /// Returns whether `proof` is valid. Compares in constant time.
    pub(crate) fn accepts(&self, proof: &Proof, kind: ProofKind) -> bool {
        self.mac(kind).verify_slice(proof).is_ok()
    }

    /// Returns the HMAC over a proof's kind and the transcript. All fields have fixed lengths, so
    /// no two transcripts have the same bytes.
    fn mac(&self, kind: ProofKind) -> Hmac<Sha256> {
        let key = self.token.map_or("", Token::reveal);
        let mut mac = Hmac::new_from_slice(key.as_bytes()).expect("HMAC takes keys of any length");
        mac.update(match kind {
            ProofKind::RootChallenge => b"foldwire bootstrap root  ",
            ProofKind::MemberAnswer => b"foldwire bootstrap member",
            ProofKind::MemberHello => b"foldwire bootstrap knocks",
        });
        mac.update(&VERSION.to_le_bytes());
        mac.update(&self.rank.0.to_le_bytes());
        mac.update(&self.size.to_le_bytes());
        mac.update(&self.job);
        mac.update(&self.root_nonce);
        mac.update(&self.member_nonce);
        mac
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn transcript(token: Option<&Token>) -> Transcript<'_> {
        let (root_nonce, member_nonce) = ([1; 32], [2; 32]);
        Transcript { token, rank: Rank(3), size: 5, job: [9; 16], root_nonce, member_nonce }
    }

    #[test]
    fn a_proof_holds_for_its_own_transcript_alone() {
        let token = Token::new("0123456789abcdef").unwrap();
        let other = Token::new("0123456789abcdeF").unwrap();
        let mine = transcript(Some(&token));
        let proof = mine.proof(ProofKind::MemberAnswer);
        assert!(mine.accepts(&proof, ProofKind::MemberAnswer));
        assert!(!mine.accepts(&proof, ProofKind::RootChallenge), "no reflection");
        assert!(!mine.accepts(&proof, ProofKind::MemberHello), "an answer is not a hello");
        for else_where in [
            Transcript { token: Some(&other), ..mine },
            Transcript { token: None, ..mine },
            Transcript { rank: Rank(2), ..mine },
            Transcript { size: 6, ..mine },
            Transcript { job: [8; 16], ..mine },
            Transcript { root_nonce: [2; 32], ..mine },
            Transcript { member_nonce: [1; 32], ..mine },
        ] {
            assert!(!else_where.accepts(&proof, ProofKind::MemberAnswer), "{else_where:?}");
        }
        for bit in 0..8 * PROOF_BYTES {
            let mut damaged = proof;
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(!mine.accepts(&damaged, ProofKind::MemberAnswer));
        }
    }

    /// Expected value from Python: hmac.new(b"0123456789abcdef", b"foldwire bootstrap member" + …).
    #[test]
    fn a_proof_is_hmac_sha_256_of_the_documented_bytes() {
        let token = Token::new("0123456789abcdef").unwrap();
        let proof = transcript(Some(&token)).proof(ProofKind::MemberAnswer);
        let hex: String = proof.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, "1ebbfcbeb5b2213673bfbaec8712b68a4c6c11e9374d33f66b9893969163c542");
    }

    #[test]
    fn short_tokens_are_refused_and_random_ones_differ() {
        assert_eq!(Token::new("0123456789abcde"), Err(TokenTooShort { have: 15 }));
        let (a, b) = (Token::random().unwrap(), Token::random().unwrap());
        assert!(a != b && Token::new(a.reveal()).is_ok());
    }

    #[test]
    fn debug_does_not_tell() {
        let token = Token::new("a very long secret").unwrap();
        assert!(!format!("{token:?}").contains("secret"));
    }
}
