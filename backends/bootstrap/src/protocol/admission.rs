//! Rank 0's side of one handshake: a stranger says who it is, is challenged, and shows that it
//! knows the token.

use foldwire::Rank;

use crate::message::{Malformed, Message, Nonce, Proof, Refusal};
use crate::place::Place;
use crate::token::{Role, Transcript};

/// What rank 0 knows of one who has knocked.
#[derive(Debug, Default)]
pub struct Admission {
    stage: Stage,
}

#[derive(Debug, Default)]
enum Stage {
    /// It has said nothing yet.
    #[default]
    Knocked,
    /// It has said who it is, and must show that it knows the token.
    Challenged { rank: Rank, root_nonce: Nonce, member_nonce: Nonce },
}

/// What a stranger's message leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
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
    /// Whether it has said who it is.
    #[must_use]
    pub fn is_challenged(&self) -> bool {
        matches!(self.stage, Stage::Challenged { .. })
    }

    /// Heeds a message. `draw` gives a nonce that nobody has seen, `is_taken` says whether a rank
    /// is there already.
    ///
    /// # Errors
    /// Those of `draw`.
    pub fn hear<E>(
        &mut self,
        heard: Result<Message<'_>, Malformed>,
        place: &Place,
        draw: impl FnOnce() -> Result<Nonce, E>,
        is_taken: impl FnOnce(Rank) -> bool,
    ) -> Result<Verdict, E> {
        let size = place.size as u32;
        let token = place.token.as_ref();
        let message = match heard {
            Ok(message) => message,
            Err(Malformed::Version { theirs }) => {
                return Ok(Verdict::TurnAway(Refusal::Version { theirs }));
            }
            Err(_) => return Ok(Verdict::TurnAway(Refusal::Garbage)),
        };
        Ok(match (&self.stage, message) {
            (Stage::Knocked, Message::Hello { size: theirs, .. }) if theirs != size => {
                Verdict::TurnAway(Refusal::Size { theirs, ours: size })
            }
            (Stage::Knocked, Message::Hello { rank, .. }) if rank.0 == 0 || rank.0 >= size => {
                Verdict::TurnAway(Refusal::Rank { rank: rank.0, size })
            }
            (Stage::Knocked, Message::Hello { rank, nonce: member_nonce, .. }) => {
                let root_nonce = draw()?;
                let transcript = Transcript { token, rank, size, root_nonce, member_nonce };
                let proof = transcript.proof(Role::Root);
                self.stage = Stage::Challenged { rank, root_nonce, member_nonce };
                Verdict::Challenge { nonce: root_nonce, proof }
            }
            (&Stage::Challenged { rank, root_nonce, member_nonce }, Message::Answer { proof }) => {
                let transcript = Transcript { token, rank, size, root_nonce, member_nonce };
                if !transcript.accepts(&proof, Role::Member) {
                    Verdict::TurnAway(Refusal::Token)
                } else if is_taken(rank) {
                    // Only now: who is there is nobody else's business.
                    Verdict::TurnAway(Refusal::Duplicate { rank: rank.0 })
                } else {
                    Verdict::Admit(rank)
                }
            }
            // It has found that rank 0 does not know its token.
            (Stage::Challenged { .. }, Message::Refusal(Refusal::Token)) => {
                Verdict::TurnAway(Refusal::Token)
            }
            _ => Verdict::TurnAway(Refusal::Garbage),
        })
    }
}
