//! Rank 0's side of one handshake: the connecting process sends a hello with a proof that it knows
//! the token, receives a challenge, and sends a second proof.

use foldwire::Rank;

use crate::job::short;
use crate::message::{Malformed, Message, NONCE_BYTES, Nonce, Proof, Refusal};
use crate::place::Place;
use crate::token::{ProofKind, Transcript};

/// State of one handshake on rank 0.
#[derive(Debug, Default)]
pub struct Admission {
    stage: AdmissionStage,
    claim: Option<Rank>,
}

#[derive(Debug, Default)]
enum AdmissionStage {
    #[default]
    AwaitingHello,
    /// The hello was valid. The answer must show that the hello was not a replay.
    Challenged { rank: Rank, root_nonce: Nonce, member_nonce: Nonce },
}

/// Reaction to a message of the connecting process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdmissionVerdict {
    /// Send this [`Challenge`](Message::Challenge), and wait for the answer.
    Challenge {
        /// Rank 0's nonce.
        nonce: Nonce,
        /// Rank 0's proof.
        proof: Proof,
    },
    /// Admit the process as this rank.
    Admit(Rank),
    /// Send the reason and close the connection.
    TurnAway(Refusal),
}

impl Admission {
    /// Returns whether the process has sent a valid hello, which requires the token.
    #[must_use]
    pub fn is_challenged(&self) -> bool {
        matches!(self.stage, AdmissionStage::Challenged { .. })
    }

    /// The rank of this job that the process claims to be: a valid rank in a hello that is proven,
    /// or that names this job's size.
    #[must_use]
    pub fn claim(&self) -> Option<Rank> {
        self.claim
    }

    /// Processes a message. `draw` returns a fresh nonce, and `is_taken` whether a rank has already
    /// joined.
    ///
    /// # Errors
    /// If `draw` fails.
    pub fn receive<E>(
        &mut self,
        received: Result<Message<'_>, Malformed>,
        place: &Place,
        draw: impl FnOnce() -> Result<Nonce, E>,
        is_taken: impl FnOnce(Rank) -> bool,
    ) -> Result<AdmissionVerdict, E> {
        let (size, job) = (place.size as u32, place.job.id());
        let message = match received {
            Ok(message) => message,
            Err(Malformed::Version { theirs }) => {
                return Ok(AdmissionVerdict::TurnAway(Refusal::Version { theirs }));
            }
            Err(_) => return Ok(AdmissionVerdict::TurnAway(Refusal::Garbage)),
        };
        let transcript = |rank, size, root_nonce, member_nonce| {
            let token = place.token.as_ref();
            Transcript { token, rank, size, job, root_nonce, member_nonce }
        };
        Ok(match (&self.stage, message) {
            (AdmissionStage::AwaitingHello, Message::Hello { job: theirs, .. })
                if theirs != job =>
            {
                let (theirs, ours) = (short(&theirs), short(&job));
                AdmissionVerdict::TurnAway(Refusal::Job { theirs, ours })
            }
            (
                AdmissionStage::AwaitingHello,
                Message::Hello { rank, size: theirs, nonce, proof, .. },
            ) => {
                // The proof comes first: what a process without the token says about the size must
                // neither count nor tell it the size.
                let is_proven = transcript(rank, theirs, [0; NONCE_BYTES], nonce)
                    .accepts(&proof, ProofKind::MemberHello);
                let is_valid_rank = rank.0 > 0 && rank.0 < size;
                let counts = is_valid_rank && (is_proven || theirs == size);
                self.claim = counts.then_some(rank);
                if !is_proven {
                    return Ok(AdmissionVerdict::TurnAway(Refusal::Token));
                }
                if theirs != size {
                    return Ok(AdmissionVerdict::TurnAway(Refusal::Size { theirs, ours: size }));
                }
                if !is_valid_rank {
                    return Ok(AdmissionVerdict::TurnAway(Refusal::Rank { rank: rank.0, size }));
                }
                let root_nonce = draw()?;
                let proof =
                    transcript(rank, size, root_nonce, nonce).proof(ProofKind::RootChallenge);
                self.stage = AdmissionStage::Challenged { rank, root_nonce, member_nonce: nonce };
                AdmissionVerdict::Challenge { nonce: root_nonce, proof }
            }
            (
                &AdmissionStage::Challenged { rank, root_nonce, member_nonce },
                Message::Answer { proof },
            ) => {
                if !transcript(rank, size, root_nonce, member_nonce)
                    .accepts(&proof, ProofKind::MemberAnswer)
                {
                    AdmissionVerdict::TurnAway(Refusal::Token)
                } else if is_taken(rank) {
                    // Checked only now: a process without the token must not learn which ranks have
                    // joined.
                    AdmissionVerdict::TurnAway(Refusal::Duplicate { rank: rank.0 })
                } else {
                    AdmissionVerdict::Admit(rank)
                }
            }
            // The process has found that rank 0's token differs from its own.
            (AdmissionStage::Challenged { .. }, Message::Refusal(Refusal::Token)) => {
                AdmissionVerdict::TurnAway(Refusal::Token)
            }
            _ => AdmissionVerdict::TurnAway(Refusal::Garbage),
        })
    }
}
