//! What the ranks of a session know and strangers do not, and how to show that one knows it.
//!
//! The session's secret is HMAC-SHA-256, keyed by the token, over random numbers of all ranks,
//! which they tell each other by the bootstrap: so no connection of one session is of use in
//! another. Without a token (on loopback only) it is as secret as what the bootstrap carries.
//!
//! Without encryption each side of a connection proves that it knows the secret, as the bootstrap's
//! sides do (`foldwire-bootstrap`, `token`): by HMAC over its role, what the connection is for, and
//! both sides' random numbers. Who connects does so twice: once with its own number alone, so that
//! only ranks, or recordings of one, are listened to. That keeps strangers from connecting. It does
//! not hide or protect what follows from those who can read or change packets on their way.

use std::fmt;

use foldwire_bootstrap::Token;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// Bytes of random numbers, and of proofs.
pub(crate) const NONCE_BYTES: usize = 32;
pub(crate) type Nonce = [u8; NONCE_BYTES];
/// Bytes of the proof in a hello.
pub(crate) const HELLO_PROOF_BYTES: usize = 16;

/// In which words a side proves itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProofKind {
    /// Who connects, in its hello; the other side's random number counts as zeros.
    ConnectorHello,
    /// Who connects, in its answer.
    ConnectorAnswer,
    /// Who accepts.
    AcceptorReply,
}

/// Shows that a rank knows the token, to all of the bootstrap: that of its offer.
pub(crate) fn offer_proof(token: Option<&Token>, nonce: &Nonce) -> Nonce {
    offer_mac(token, nonce).finalize().into_bytes().into()
}

/// Whether it does. Compared in constant time.
pub(crate) fn accepts_offer(token: Option<&Token>, nonce: &Nonce, proof: &Nonce) -> bool {
    offer_mac(token, nonce).verify_slice(proof).is_ok()
}

fn offer_mac(token: Option<&Token>, nonce: &Nonce) -> Hmac<Sha256> {
    let mut mac = mac(token.map_or("", Token::reveal).as_bytes());
    mac.update(b"foldwire tcp offer  ");
    mac.update(nonce);
    mac
}

/// A session's secret. Not shown by `Debug`.
#[derive(Clone)]
pub(crate) struct SessionSecret([u8; NONCE_BYTES]);

impl SessionSecret {
    pub(crate) fn new(token: Option<&Token>, nonces: &[Nonce]) -> Self {
        let mut mac = mac(token.map_or("", Token::reveal).as_bytes());
        mac.update(b"foldwire tcp session");
        nonces.iter().for_each(|nonce| mac.update(nonce));
        Self(mac.finalize().into_bytes().into())
    }

    #[cfg(feature = "noise")]
    pub(crate) const fn bytes(&self) -> &[u8; NONCE_BYTES] {
        &self.0
    }

    /// The proof of one side of a connection; nonces are the connector's and the other's.
    pub(crate) fn proof(&self, role: ProofKind, about: &[u8], nonces: [&Nonce; 2]) -> Nonce {
        self.proof_mac(role, about, nonces).finalize().into_bytes().into()
    }

    /// The proof in a connector's hello, as long as encryption's.
    pub(crate) fn hello_proof(&self, about: &[u8], own: &Nonce) -> [u8; HELLO_PROOF_BYTES] {
        let proof = self.proof(ProofKind::ConnectorHello, about, [own, &[0; NONCE_BYTES]]);
        let mut hello_proof = [0; HELLO_PROOF_BYTES];
        hello_proof.copy_from_slice(&proof[..HELLO_PROOF_BYTES]);
        hello_proof
    }

    /// Whether such a proof is right. Compared in constant time.
    pub(crate) fn accepts_hello_proof(
        &self,
        hello_proof: &[u8],
        about: &[u8],
        theirs: &Nonce,
    ) -> bool {
        let mac = self.proof_mac(ProofKind::ConnectorHello, about, [theirs, &[0; NONCE_BYTES]]);
        hello_proof.len() == HELLO_PROOF_BYTES && mac.verify_truncated_left(hello_proof).is_ok()
    }

    /// Whether such a proof is right. Compared in constant time.
    pub(crate) fn accepts(
        &self,
        proof: &[u8],
        role: ProofKind,
        about: &[u8],
        nonces: [&Nonce; 2],
    ) -> bool {
        self.proof_mac(role, about, nonces).verify_slice(proof).is_ok()
    }

    /// All fields have fixed lengths, so no two transcripts have the same bytes.
    fn proof_mac(&self, role: ProofKind, about: &[u8], nonces: [&Nonce; 2]) -> Hmac<Sha256> {
        let mut mac = mac(&self.0);
        mac.update(match role {
            ProofKind::ConnectorHello => b"knocks..",
            ProofKind::ConnectorAnswer => b"connects",
            ProofKind::AcceptorReply => b"accepts.",
        });
        mac.update(about);
        nonces.iter().for_each(|nonce| mac.update(*nonce));
        mac
    }
}

impl fmt::Debug for SessionSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// A random number.
pub(crate) fn nonce() -> Result<Nonce, getrandom::Error> {
    let mut nonce = [0; NONCE_BYTES];
    getrandom::fill(&mut nonce)?;
    Ok(nonce)
}

fn mac(key: &[u8]) -> Hmac<Sha256> {
    Hmac::new_from_slice(key).expect("HMAC takes keys of any length")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proof_holds_for_its_own_connection_alone() {
        let [token, other] = ["0123456789abcdef", "0123456789abcdeF"].map(Token::new);
        let (token, other) = (token.unwrap(), other.unwrap());
        let (one, two) = ([1; NONCE_BYTES], [2; NONCE_BYTES]);
        let secret = SessionSecret::new(Some(&token), &[one, two]);
        let proof = secret.proof(ProofKind::ConnectorAnswer, b"0 to 1", [&one, &two]);
        let accepts = |secret: &SessionSecret, role, about: &[u8], nonces| {
            secret.accepts(&proof, role, about, nonces)
        };
        assert!(accepts(&secret, ProofKind::ConnectorAnswer, b"0 to 1", [&one, &two]));
        assert!(
            !accepts(&secret, ProofKind::AcceptorReply, b"0 to 1", [&one, &two]),
            "no reflection"
        );
        assert!(
            !accepts(&secret, ProofKind::ConnectorHello, b"0 to 1", [&one, &two]),
            "no hello is an answer"
        );
        assert!(!accepts(&secret, ProofKind::ConnectorAnswer, b"0 to 2", [&one, &two]));
        assert!(!accepts(&secret, ProofKind::ConnectorAnswer, b"0 to 1", [&two, &one]));
        for another in [
            SessionSecret::new(Some(&other), &[one, two]),
            SessionSecret::new(None, &[one, two]),
            SessionSecret::new(Some(&token), &[one, one]),
        ] {
            assert!(!accepts(&another, ProofKind::ConnectorAnswer, b"0 to 1", [&one, &two]));
        }
        assert!(!secret.accepts(&proof[1..], ProofKind::ConnectorAnswer, b"0 to 1", [&one, &two]));
        assert!(!format!("{secret:?}").contains(char::is_numeric));
    }
}
