//! Rank 0's side of one handshake: a stranger says who it is and shows that it knows the token, is
//! challenged, and shows it again.

use foldwire::Rank;

use crate::job::short;
use crate::message::{Malformed, Message, NONCE_BYTES, Nonce, Proof, Refusal};
use crate::place::Place;
use crate::token::{ProofKind, Transcript};

/// What rank 0 knows of one who has knocked.
#[derive(Debug, Default)]
pub struct Admission {
    stage: AdmissionStage,
    claim: Option<Rank>,
}

#[derive(Debug, Default)]
enum AdmissionStage {
    /// It has said nothing yet.
    #[default]
    AwaitingHello,
    /// It has said who it is, and must show that it is no recording.
    Challenged { rank: Rank, root_nonce: Nonce, member_nonce: Nonce },
}

/// What a stranger's message leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdmissionVerdict {
    /// Send this [`Challenge`](Message::Challenge), and hear what it answers.
    Challenge {
        /// Drawn by rank 0.
        nonce: Nonce,
        /// Rank 0's own.
        proof: Proof,
    },
    /// It is this rank.
    Admit(Rank),
    /// Send the reason and end the connection.
    TurnAway(Refusal),
}

impl Admission {
    /// Whether it has said who it is, as only somebody can who knows the token.
    #[must_use]
    pub fn is_challenged(&self) -> bool {
        matches!(self.stage, AdmissionStage::Challenged { .. })
    }

    /// Which rank of this job it says it is, whether or not that is true.
    #[must_use]
    pub fn claim(&self) -> Option<Rank> {
        self.claim
    }

    /// Heeds a message. `draw` gives a nonce that nobody has seen, `is_taken` says whether a rank
    /// is there already.
    ///
    /// # Errors
    /// Those of `draw`.
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
        let transcript = |rank, root_nonce, member_nonce| {
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
                let is_other = rank.0 > 0 && rank.0 < size;
                self.claim = is_other.then_some(rank);
                if theirs != size {
                    return Ok(AdmissionVerdict::TurnAway(Refusal::Size { theirs, ours: size }));
                }
                if !is_other {
                    return Ok(AdmissionVerdict::TurnAway(Refusal::Rank { rank: rank.0, size }));
                }
                if !transcript(rank, [0; NONCE_BYTES], nonce)
                    .accepts(&proof, ProofKind::MemberHello)
                {
                    return Ok(AdmissionVerdict::TurnAway(Refusal::Token));
                }
                let root_nonce = draw()?;
                let proof = transcript(rank, root_nonce, nonce).proof(ProofKind::RootChallenge);
                self.stage = AdmissionStage::Challenged { rank, root_nonce, member_nonce: nonce };
                AdmissionVerdict::Challenge { nonce: root_nonce, proof }
            }
            (
                &AdmissionStage::Challenged { rank, root_nonce, member_nonce },
                Message::Answer { proof },
            ) => {
                if !transcript(rank, root_nonce, member_nonce)
                    .accepts(&proof, ProofKind::MemberAnswer)
                {
                    AdmissionVerdict::TurnAway(Refusal::Token)
                } else if is_taken(rank) {
                    // Only now: who is there is nobody else's business.
                    AdmissionVerdict::TurnAway(Refusal::Duplicate { rank: rank.0 })
                } else {
                    AdmissionVerdict::Admit(rank)
                }
            }
            // It has found that rank 0 does not know its token.
            (AdmissionStage::Challenged { .. }, Message::Refusal(Refusal::Token)) => {
                AdmissionVerdict::TurnAway(Refusal::Token)
            }
            _ => AdmissionVerdict::TurnAway(Refusal::Garbage),
        })
    }
}
