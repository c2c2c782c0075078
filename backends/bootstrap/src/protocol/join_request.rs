//! A rank's side of the handshake: it sends a hello, and answers rank 0's challenge if rank 0 knows
//! the token.

use foldwire::Rank;

use crate::job::JOB_BYTES;
use crate::message::{Malformed, Message, NONCE_BYTES, Nonce, Proof, Refusal};
use crate::place::Place;
use crate::token::{ProofKind, Token, Transcript};

/// A rank's request to join its group.
#[derive(Debug)]
pub struct JoinRequest<'a> {
    token: Option<&'a Token>,
    rank: Rank,
    size: u32,
    job: [u8; JOB_BYTES],
    nonce: Nonce,
}

/// Result of the listener's first message, with the reply to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChallengeOutcome {
    /// Rank 0 knows the token. Send this proof in an [`Answer`](Message::Answer).
    Proof(Proof),
    /// Rank 0 refuses this rank.
    Refused(Refusal),
    /// The listener acts as rank 0 but does not know this rank's token. Reply with a refusal: a
    /// rank 0 that has another token can then report why a rank is missing.
    Impostor,
    /// The listener speaks another protocol.
    Foreign,
}

impl<'a> JoinRequest<'a> {
    /// Creates the request of the rank at `place`. `nonce` must be fresh.
    #[must_use]
    pub fn new(place: &'a Place, nonce: Nonce) -> Self {
        let (token, size) = (place.token.as_ref(), place.size as u32);
        Self { token, rank: place.rank, size, job: place.job.id(), nonce }
    }

    /// The first message of the handshake.
    #[must_use]
    pub fn hello(&self) -> Message<'static> {
        let &Self { rank, size, job, nonce, .. } = self;
        let proof = self.transcript([0; NONCE_BYTES]).proof(ProofKind::MemberHello);
        Message::Hello { rank, size, job, nonce, proof }
    }

    /// Processes the listener's first message.
    #[must_use]
    pub fn receive(&self, received: Result<Message<'_>, Malformed>) -> ChallengeOutcome {
        let (root_nonce, root_proof) = match received {
            Ok(Message::Challenge { nonce, proof }) => (nonce, proof),
            Ok(Message::Refusal(reason)) => return ChallengeOutcome::Refused(reason),
            Ok(_) | Err(_) => return ChallengeOutcome::Foreign,
        };
        let transcript = self.transcript(root_nonce);
        if transcript.accepts(&root_proof, ProofKind::RootChallenge) {
            ChallengeOutcome::Proof(transcript.proof(ProofKind::MemberAnswer))
        } else {
            ChallengeOutcome::Impostor
        }
    }

    fn transcript(&self, root_nonce: Nonce) -> Transcript<'a> {
        let &Self { token, rank, size, job, nonce: member_nonce } = self;
        Transcript { token, rank, size, job, root_nonce, member_nonce }
    }
}
