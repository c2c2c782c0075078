//! The session's secret, and proofs of knowing it.
//!
//! The secret is an HMAC-SHA-256, keyed by the token, over what this rank knows of the group: the
//! offers of all ranks, or the plan of a group that grows, which contains them. Two ranks that were
//! told different things cannot connect. Each offer has a nonce, so a recorded connection is
//! useless in another session. Without a token (on loopback only), the secret is only as secret as
//! the bootstrap's messages.
//!
//! Without encryption, each side of a connection proves that it knows the secret, as in the
//! bootstrap (`foldwire-bootstrap`, `token`). The proof is an HMAC over its role, the hello that
//! describes the connection, and both sides' nonces. The connector's first message also has a
//! proof, without the acceptor's nonce. So an acceptor waits only for ranks, or for a process that
//! replays a rank's first message.
//!
//! The proofs keep other programs out. They do not protect the data that follows from an attacker
//! that can read or change packets.

use std::fmt;

use foldwire::Rank;
use foldwire_bootstrap::Token;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// Bytes of a nonce, and of a proof.
pub(crate) const NONCE_BYTES: usize = 32;
pub(crate) type Nonce = [u8; NONCE_BYTES];
/// Bytes of the proof in a connector's first message, after the hello and the nonce.
pub(crate) const HELLO_PROOF_BYTES: usize = 16;

/// Role of a proof: its sender, and the message that contains it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConnectionProof {
    /// The connector's, in its first message. Zeros take the place of the acceptor's nonce.
    ConnectorHello,
    /// The connector's, in its answer.
    ConnectorAnswer,
    /// The acceptor's, in its reply.
    AcceptorReply,
}

/// Kinds of what the token proves: a rank's offer without its proof, the plan of a group that
/// grows, and what a rank knows of its session.
pub(crate) const OFFER: &[u8; 20] = b"foldwire tcp offer  ";
pub(crate) const PLAN: &[u8; 20] = b"foldwire tcp plan   ";
const SESSION: &[u8; 20] = b"foldwire tcp session";

/// Makes a proof that a rank that knows the token has made `what`.
pub(crate) fn token_proof(token: Option<&Token>, kind: &[u8; 20], what: &[u8]) -> Nonce {
    token_mac(token, kind, what).finalize().into_bytes().into()
}

/// Returns whether such a proof is valid. Compares in constant time.
pub(crate) fn accepts_token_proof(
    token: Option<&Token>,
    kind: &[u8; 20],
    what: &[u8],
    proof: &[u8],
) -> bool {
    token_mac(token, kind, what).verify_slice(proof).is_ok()
}

fn token_mac(token: Option<&Token>, kind: &[u8; 20], what: &[u8]) -> Hmac<Sha256> {
    let mut mac = mac(token.map_or("", Token::reveal).as_bytes());
    mac.update(kind);
    mac.update(what);
    mac
}

/// The session's secret. `Debug` does not show it.
#[derive(Clone)]
pub(crate) struct SessionSecret([u8; NONCE_BYTES]);

impl SessionSecret {
    /// Makes the secret of a group. `view` is what this rank knows of it.
    pub(crate) fn new(token: Option<&Token>, view: &[u8]) -> Self {
        Self(token_proof(token, SESSION, view))
    }

    #[cfg(feature = "noise")]
    pub(crate) const fn bytes(&self) -> &[u8; NONCE_BYTES] {
        &self.0
    }

    /// Makes the proof of one side of a connection. `about` is the encoded hello. `nonces` are the
    /// connector's and the acceptor's.
    pub(crate) fn proof(&self, role: ConnectionProof, about: &[u8], nonces: [&Nonce; 2]) -> Nonce {
        self.proof_mac(role, about, nonces).finalize().into_bytes().into()
    }

    /// Makes the proof in a connector's first message. It is as long as the authentication tag in
    /// the first message of an encrypted connection, so both kinds of first message have one
    /// length.
    pub(crate) fn hello_proof(&self, about: &[u8], own: &Nonce) -> [u8; HELLO_PROOF_BYTES] {
        let proof = self.proof(ConnectionProof::ConnectorHello, about, [own, &[0; NONCE_BYTES]]);
        let mut hello_proof = [0; HELLO_PROOF_BYTES];
        hello_proof.copy_from_slice(&proof[..HELLO_PROOF_BYTES]);
        hello_proof
    }

    /// Returns whether the proof in a first message is valid. Compares in constant time.
    pub(crate) fn accepts_hello_proof(
        &self,
        hello_proof: &[u8],
        about: &[u8],
        theirs: &Nonce,
    ) -> bool {
        let mac =
            self.proof_mac(ConnectionProof::ConnectorHello, about, [theirs, &[0; NONCE_BYTES]]);
        hello_proof.len() == HELLO_PROOF_BYTES && mac.verify_truncated_left(hello_proof).is_ok()
    }

    /// Returns whether a proof of the given kind is valid. Compares in constant time.
    pub(crate) fn accepts(
        &self,
        proof: &[u8],
        role: ConnectionProof,
        about: &[u8],
        nonces: [&Nonce; 2],
    ) -> bool {
        self.proof_mac(role, about, nonces).verify_slice(proof).is_ok()
    }

    /// Makes a proof that a rank of the session has said a word to all ranks.
    pub(crate) fn word_proof(&self, rank: Rank, word: &[u8]) -> Nonce {
        self.word_mac(rank, word).finalize().into_bytes().into()
    }

    /// Returns whether such a proof is valid. Compares in constant time.
    pub(crate) fn accepts_word(&self, proof: &[u8], rank: Rank, word: &[u8]) -> bool {
        self.word_mac(rank, word).verify_slice(proof).is_ok()
    }

    fn word_mac(&self, rank: Rank, word: &[u8]) -> Hmac<Sha256> {
        let mut mac = mac(&self.0);
        mac.update(b"says....");
        mac.update(&rank.0.to_le_bytes());
        mac.update(word);
        mac
    }

    /// Returns the HMAC over the role, the encoded hello and both nonces. All fields have fixed
    /// lengths, so no two connections have the same bytes.
    fn proof_mac(&self, role: ConnectionProof, about: &[u8], nonces: [&Nonce; 2]) -> Hmac<Sha256> {
        let mut mac = mac(&self.0);
        mac.update(match role {
            ConnectionProof::ConnectorHello => b"knocks..",
            ConnectionProof::ConnectorAnswer => b"connects",
            ConnectionProof::AcceptorReply => b"accepts.",
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

/// Draws a nonce.
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
        let secret = SessionSecret::new(Some(&token), b"the group");
        let proof = secret.proof(ConnectionProof::ConnectorAnswer, b"0 to 1", [&one, &two]);
        let accepts = |secret: &SessionSecret, role, about: &[u8], nonces| {
            secret.accepts(&proof, role, about, nonces)
        };
        assert!(accepts(&secret, ConnectionProof::ConnectorAnswer, b"0 to 1", [&one, &two]));
        assert!(
            !accepts(&secret, ConnectionProof::AcceptorReply, b"0 to 1", [&one, &two]),
            "no reflection"
        );
        assert!(
            !accepts(&secret, ConnectionProof::ConnectorHello, b"0 to 1", [&one, &two]),
            "an answer is not a hello"
        );
        assert!(!accepts(&secret, ConnectionProof::ConnectorAnswer, b"0 to 2", [&one, &two]));
        assert!(!accepts(&secret, ConnectionProof::ConnectorAnswer, b"0 to 1", [&two, &one]));
        for another in [
            SessionSecret::new(Some(&other), b"the group"),
            SessionSecret::new(None, b"the group"),
            SessionSecret::new(Some(&token), b"the groop"),
        ] {
            assert!(!accepts(&another, ConnectionProof::ConnectorAnswer, b"0 to 1", [&one, &two]));
        }
        assert!(!secret.accepts(
            &proof[1..],
            ConnectionProof::ConnectorAnswer,
            b"0 to 1",
            [&one, &two]
        ));
        assert!(!format!("{secret:?}").contains(char::is_numeric));
    }
}
