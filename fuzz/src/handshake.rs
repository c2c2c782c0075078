//! Any bytes at each of the four ends of the bootstrap protocol: no panic, no memory beyond the
//! limit, and no rank is admitted without a proof that it knows the token.
//!
//! ```text
//!   input:  end (1 byte)  size of the pieces in which bytes arrive (1 byte)  acts
//!   end:    0 rank 0 and a stranger; 1 a joining rank and an impostor of rank 0;
//!           2 rank 0 and a member; 3 a member and rank 0
//!   act:    0 n bytes[n]        these bytes
//!           1 rank size         an honest greeting of this rank; from 128 on, of a rank that does
//!                               not know the token
//!           2                   an honest proof for the last message; with ends 2 and 3, an honest
//!                               part of a member, or an honest share from rank 0
//!           3 kind n bytes[n]   a message of this kind with this body
//! ```

use foldwire::Rank;
use foldwire_bootstrap::message::{
    MAX_GIVEN_BYTES, MAX_HANDSHAKE_BYTES, MAX_MESSAGE_BYTES, Message, NONCE_BYTES, PROOF_BYTES,
    Refusal,
};
use foldwire_bootstrap::protocol::{
    Admission, AdmissionVerdict, CHUNK_BYTES, ChallengeOutcome, JoinRequest, MemberState,
    Membership, ReceiveBuffer,
};
use foldwire_bootstrap::{Job, Launcher, Place, Root, Token};
use std::convert::Infallible;

const SIZE: usize = 4;

/// Runs the target on an input.
pub fn check(input: &[u8]) {
    let [end, piece, script @ ..] = input else { return };
    let script = HandshakeScript { rest: script };
    let piece = usize::from(*piece) * 67 + 1;
    match end % 4 {
        0 => stranger(script, piece),
        1 => impostor(script, piece),
        2 => member(script, piece),
        _ => root(script, piece),
    }
}

fn place(rank: u32) -> Place {
    Place {
        rank: Rank(rank),
        size: SIZE,
        root: Root::loopback(1),
        token: Token::new("a token of this fuzzer's").ok(),
        job: Job::named(&["fuzzing"]),
        launcher: Launcher::Foldwire,
    }
}

/// Script of the other side.
struct HandshakeScript<'a> {
    rest: &'a [u8],
}

enum HandshakeAct<'a> {
    Bytes(&'a [u8]),
    Hello { rank: u32, size: u32 },
    Prove,
    Message { kind: u8, body: &'a [u8] },
}

impl<'a> HandshakeScript<'a> {
    fn byte(&mut self) -> Option<u8> {
        let (&byte, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(byte)
    }

    fn bytes(&mut self) -> Option<&'a [u8]> {
        // Long messages test the limits.
        let n_bytes = usize::from(self.byte()?) * 9;
        let (bytes, rest) = self.rest.split_at(n_bytes.min(self.rest.len()));
        self.rest = rest;
        Some(bytes)
    }
}

impl<'a> Iterator for HandshakeScript<'a> {
    type Item = HandshakeAct<'a>;

    fn next(&mut self) -> Option<HandshakeAct<'a>> {
        Some(match self.byte()? % 4 {
            0 => HandshakeAct::Bytes(self.bytes()?),
            1 => HandshakeAct::Hello { rank: self.byte()?.into(), size: self.byte()?.into() },
            2 => HandshakeAct::Prove,
            _ => HandshakeAct::Message { kind: self.byte()?, body: self.bytes()? },
        })
    }
}

impl HandshakeAct<'_> {
    /// Converts the act to bytes. `honest` returns the message of act 2, if there is one.
    fn into_bytes(self, honest: impl FnOnce() -> Option<Message<'static>>) -> Vec<u8> {
        let mut bytes = Vec::new();
        match self {
            Self::Bytes(given) => bytes.extend(given),
            Self::Hello { rank, size } => {
                let nonce = [rank as u8; NONCE_BYTES];
                let myself = Place { rank: Rank(rank & 0x7f), size: size as usize, ..place(0) };
                let mut hello = JoinRequest::new(&myself, nonce).hello();
                if let Message::Hello { proof, .. } = &mut hello
                    && rank >= 0x80
                {
                    *proof = [0; PROOF_BYTES];
                }
                hello.emit(&mut bytes);
            }
            Self::Prove => {
                if let Some(message) = honest() {
                    message.emit(&mut bytes);
                }
            }
            Self::Message { kind, body } => {
                bytes.push(kind);
                bytes.extend((body.len() as u32).to_le_bytes());
                bytes.extend(body);
            }
        }
        bytes
    }
}

/// Delivers the bytes piece by piece. Calls `take` after each piece, which returns whether to
/// continue. The buffer never holds more than a message of `longest` bytes and one piece.
fn arrive(
    inbox: &mut ReceiveBuffer,
    mut bytes: &[u8],
    piece: usize,
    longest: usize,
    mut take: impl FnMut(&mut ReceiveBuffer) -> bool,
) -> bool {
    while !bytes.is_empty() {
        let n_read = inbox.fill(|room| {
            let n_bytes = bytes.len().min(piece).min(room.len());
            room[..n_bytes].copy_from_slice(&bytes[..n_bytes]);
            Ok::<_, Infallible>(n_bytes)
        });
        let Ok(n_read) = n_read;
        bytes = &bytes[n_read..];
        assert!(inbox.n_bytes() <= longest + CHUNK_BYTES);
        if !take(inbox) {
            return false;
        }
        assert!(inbox.n_bytes() < longest, "a whole or an overlong message is left");
    }
    true
}

/// A stranger connects to rank 0. Rank 2 is a member already.
fn stranger(script: HandshakeScript<'_>, piece: usize) {
    let (place, mut admission, mut inbox) =
        (place(0), Admission::default(), ReceiveBuffer::default());
    let mut greeted = None;
    let mut challenge: Option<Message<'static>> = None;
    let mut has_proven = false;
    for act in script {
        if let (HandshakeAct::Hello { rank, .. }, None) = (&act, &challenge) {
            greeted = Some(*rank);
        }
        let bytes = act.into_bytes(|| {
            // The stranger has the token if it greets like a rank that has it.
            let rank = greeted?;
            let myself = Place { rank: Rank(rank & 0x7f), ..place.clone() };
            let join_request = JoinRequest::new(&myself, [rank as u8; NONCE_BYTES]);
            match join_request.receive(Ok(challenge.clone()?)) {
                ChallengeOutcome::Proof(proof) => {
                    has_proven = true;
                    Some(Message::Answer { proof })
                }
                _ => None,
            }
        });
        let is_still_there = arrive(&mut inbox, &bytes, piece, MAX_HANDSHAKE_BYTES, |inbox| {
            while let Some(received) = inbox.next(MAX_HANDSHAKE_BYTES).transpose() {
                let draw = || Ok::<_, Infallible>([0x77; NONCE_BYTES]);
                let Ok(verdict) = admission.receive(received, &place, draw, |rank| rank == Rank(2));
                match verdict {
                    AdmissionVerdict::Challenge { nonce, proof } => {
                        assert!(challenge.is_none(), "a rank is challenged twice");
                        assert!(
                            greeted.is_some_and(|rank| rank < 0x80),
                            "a greeting without proof was accepted"
                        );
                        challenge = Some(Message::Challenge { nonce, proof });
                    }
                    AdmissionVerdict::Admit(rank) => {
                        assert!(has_proven, "rank {rank} was admitted without a proof");
                        assert!((1..SIZE).contains(&rank.index()) && rank != Rank(2));
                        return false;
                    }
                    AdmissionVerdict::TurnAway(Refusal::Duplicate { rank }) => {
                        assert!(has_proven && rank == 2);
                        return false;
                    }
                    AdmissionVerdict::TurnAway(_) => return false,
                }
            }
            true
        });
        if !is_still_there {
            return;
        }
    }
}

/// An impostor listens in place of rank 0.
fn impostor(script: HandshakeScript<'_>, piece: usize) {
    let (place, mut inbox) = (place(1), ReceiveBuffer::default());
    let join_request = JoinRequest::new(&place, [3; NONCE_BYTES]);
    let mut is_honest = false;
    for act in script {
        let bytes = act.into_bytes(|| {
            is_honest = true;
            let draw = || Ok::<_, Infallible>([0x77; NONCE_BYTES]);
            let Ok(verdict) =
                Admission::default().receive(Ok(join_request.hello()), &place, draw, |_| false);
            match verdict {
                AdmissionVerdict::Challenge { nonce, proof } => {
                    Some(Message::Challenge { nonce, proof })
                }
                other => panic!("an honest greeting led to {other:?}"),
            }
        });
        let goes_on = arrive(&mut inbox, &bytes, piece, MAX_HANDSHAKE_BYTES, |inbox| {
            match inbox.next(MAX_HANDSHAKE_BYTES).transpose() {
                None => true,
                Some(received) => {
                    if matches!(join_request.receive(received), ChallengeOutcome::Proof(_)) {
                        assert!(is_honest, "this rank has proven itself to an impostor");
                    }
                    false
                }
            }
        });
        if !goes_on {
            return;
        }
    }
}

/// A member sends anything to rank 0.
fn member(script: HandshakeScript<'_>, piece: usize) {
    let (mut member_state, mut inbox) = (MemberState::default(), ReceiveBuffer::default());
    for act in script {
        let gives = matches!(act, HandshakeAct::Prove);
        let bytes = act.into_bytes(|| Some(Message::Give(&[5; 700])));
        let stays = arrive(&mut inbox, &bytes, piece, MAX_MESSAGE_BYTES, |inbox| {
            while let Some(received) = inbox.next(MAX_MESSAGE_BYTES).transpose() {
                if member_state.receive(received).is_some() {
                    return false;
                }
            }
            true
        });
        if !stays {
            return;
        }
        // Rank 0 takes the member's part now and then.
        if gives {
            let given = member_state.take_given();
            assert!(given.is_none_or(|given| given.len() <= MAX_GIVEN_BYTES));
        }
    }
}

/// Rank 0 sends anything to a member.
fn root(script: HandshakeScript<'_>, piece: usize) {
    let (mut membership, mut inbox) = (Membership::new(SIZE), ReceiveBuffer::default());
    let (mut next, mut n_news) = (0, 0);
    for act in script {
        let takes = matches!(act, HandshakeAct::Prove);
        let bytes = act.into_bytes(|| {
            next = (next + 1) % SIZE;
            Some(Message::Share { from: Rank::new((next + SIZE - 1) % SIZE), bytes: &[6; 300] })
        });
        let goes_on = arrive(&mut inbox, &bytes, piece, MAX_MESSAGE_BYTES, |inbox| {
            while let Some(received) = inbox.next(MAX_MESSAGE_BYTES).transpose() {
                membership.receive(received);
                if membership.is_over() {
                    return false;
                }
            }
            true
        });
        if takes && let Some(parts) = membership.take_parts() {
            assert_eq!(parts.len(), SIZE);
        }
        while let Some(rank) = membership.take_lost() {
            n_news += 1;
            assert!(rank.index() < SIZE && n_news <= SIZE, "a rank is lost twice");
        }
        assert!(goes_on || membership.failure().is_some(), "the membership ended without a reason");
        if !goes_on {
            return;
        }
    }
}
