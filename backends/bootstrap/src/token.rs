//! The secret that ranks share, and how each side shows the other that it knows it.
//!
//! Both sides draw a nonce; each proves itself by HMAC-SHA-256, keyed by the token, over its role,
//! the protocol's version, rank, size, job and both nonces. The token itself never travels. A proof
//! is of no use in another connection, for another rank or job, or in the other direction. Who
//! knocks proves itself once before, without rank 0's nonce, so that only ranks, or recordings of
//! one, have rank 0 wait for an answer.
//!
//! This keeps strangers out of the bootstrap. It does not hide or protect what is said afterwards:
//! against those who can change packets on their way, use a network that is yours. Nor does it
//! protect the network that ranks set up by what they tell each other here: libfabric's endpoints
//! ask nobody for a token. (The connections of `foldwire-tcp` do.)

use std::fmt;

use foldwire::Rank;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::job::JOB_BYTES;
use crate::message::{NONCE_BYTES, Nonce, PROOF_BYTES, Proof, VERSION};

/// Fewest characters of a token: shorter ones could be guessed from a recorded handshake.
pub const MIN_TOKEN_CHARS: usize = 16;

/// A secret shared by the ranks of one job. Not shown by `Debug`.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

/// A token of too few characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a token needs at least {MIN_TOKEN_CHARS} characters, this one has {have}; make one with `openssl rand -hex 16`"
)]
pub struct TokenTooShort {
    /// Characters in it.
    pub have: usize,
}

impl Token {
    /// This text as a token.
    ///
    /// # Errors
    /// When it is too short.
    pub fn new(text: impl Into<String>) -> Result<Self, TokenTooShort> {
        let text = text.into();
        let have = text.chars().count();
        if have < MIN_TOKEN_CHARS { Err(TokenTooShort { have }) } else { Ok(Self(text)) }
    }

    /// A new one of 128 random bits.
    ///
    /// # Errors
    /// When the system has no random numbers.
    pub fn random() -> Result<Self, NoRandomNumbers> {
        let bytes: [u8; 16] = random()?;
        Ok(Self(bytes.iter().map(|byte| format!("{byte:02x}")).collect()))
    }

    /// The secret itself, to be handed to other ranks.
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

/// A nonce.
pub(crate) fn nonce() -> Result<Nonce, NoRandomNumbers> {
    random::<NONCE_BYTES>()
}

fn random<const N: usize>() -> Result<[u8; N], NoRandomNumbers> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(NoRandomNumbers)?;
    Ok(bytes)
}

/// Who proves itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProofKind {
    /// Rank 0, to the one who knocks.
    RootChallenge,
    /// The one who knocks, in its answer.
    MemberAnswer,
    /// The same, in its greeting; rank 0's nonce counts as zeros.
    MemberHello,
}

/// What one handshake is about: the same on both sides if all is well.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Transcript<'a> {
    /// Absent on loopback only; then the proof shows no more than that both mean the same rank,
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

    /// Compared in constant time.
    pub(crate) fn accepts(&self, proof: &Proof, kind: ProofKind) -> bool {
        self.mac(kind).verify_slice(proof).is_ok()
    }

    /// All fields have fixed lengths, so no two transcripts have the same bytes.
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
        assert!(!mine.accepts(&proof, ProofKind::MemberHello), "no greeting is an answer");
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

    /// Computed with Python: hmac.new(b"0123456789abcdef", b"foldwire bootstrap member" + …).
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
