//! Any bytes on a connection of the TCP backend: no panic, and no trust without a proof. The rank
//! receives the sent messages in order, or drops the peer.
//!
//! ```text
//!   input:    end (1 byte)  then
//!   greeting: for each message  kind (1 byte)  bytes: kind selects the honest message, these bytes
//!             in its place, or the honest message with one bit flipped (2 bytes of position)
//!   stream:   size of the pieces in which bytes arrive (1 byte)  acts
//!   act:      kind (low 3 bits; bit 3: the connection; bit 4: matched), and
//!             0 n bytes[n]           these bytes
//!             1 tag number n more    a message of n bytes; all but `more` of them follow
//!             2 tag                  an answer
//!             3                      a goodbye
//!             4 tag                  the rank posts a receive
//!             5 tag                  the rank has sent a matched message
//! ```

use foldwire::Tag;
use foldwire_bootstrap::Token;
use foldwire_tcp::PeerLoss;
use foldwire_tcp::fuzzing::{HandshakeEnd, PeerEvent, PeerInput, answer, goodbye, message};
use std::collections::{BTreeMap, BTreeSet};

const FRAME_BYTES: usize = 5000;
const LINK_DEPTH: usize = 2;

/// The target.
pub fn check(input: &[u8]) {
    match input {
        [0, rest @ ..] => greeting(rest, true, false),
        [1, rest @ ..] => greeting(rest, false, false),
        [_, piece, rest @ ..] => stream(rest, usize::from(*piece) * 31 + 1),
        _ => {}
    }
}

/// Runs a handshake between two sides. One side, the connector or the other, receives changed
/// messages.
pub(crate) fn greeting(mut script: &[u8], harms_connector: bool, encrypts: bool) {
    let token = Token::new("a token of this fuzzer's").expect("it is long enough");
    // In the order in which they speak.
    let mut sides = [true, false].map(|connects| HandshakeEnd::new(connects, encrypts, &token));
    let mut is_honest = true;
    let mut said = sides[0].receive(&[]).expect("the connector speaks first");
    for listener in [1, 0, 1] {
        let n_needed = sides[listener].n_needed().expect("the listener expects a message");
        assert_eq!(said.len(), n_needed, "a message has another length than its receiver expects");
        if (listener == 0) == harms_connector
            && let [kind, rest @ ..] = script
        {
            script = rest;
            let honest = said.clone();
            match kind % 3 {
                1 => {
                    let (bytes, rest) = script.split_at(n_needed.min(script.len()));
                    said[..bytes.len()].copy_from_slice(bytes);
                    script = rest;
                }
                2 => {
                    if let [one, two, rest @ ..] = script {
                        let bit = usize::from(u16::from_le_bytes([*one, *two])) % (8 * n_needed);
                        said[bit / 8] ^= 1 << (bit % 8);
                        script = rest;
                    }
                }
                _ => {}
            }
            is_honest &= said == honest;
        }
        match sides[listener].receive(&said) {
            Some(next) => said = next,
            None => break,
        }
    }
    let [connector, other] = sides.each_mut().map(HandshakeEnd::trusts);
    assert!(!is_honest || connector && other, "honest sides do not trust each other");
    // The connector trusts before it sends its last message. So a change of that message affects
    // the other side only.
    let harmed = if harms_connector { connector } else { other };
    assert!(is_honest || !harmed, "a stranger is trusted");
}

/// One act of a peer, or of the rank itself.
enum PeerAct<'a> {
    Bytes(&'a [u8]),
    Message { tag: Tag, number: u32, matched: bool, n_bytes: usize, body: &'a [u8] },
    Answer(Tag),
    Goodbye,
    Post(Tag),
    Send(Tag),
}

fn next_act<'a>(script: &mut &'a [u8]) -> Option<(usize, PeerAct<'a>)> {
    let mut byte = || {
        let (&byte, rest) = script.split_first()?;
        *script = rest;
        Some(byte)
    };
    let kind = byte()?;
    let tag = |byte: u8| if byte % 8 == 7 { Tag::CONTROL } else { Tag(u16::from(byte % 8)) };
    let act = match kind % 8 {
        1 => {
            let (tag, number) = (tag(byte()?), u32::from(byte()?).wrapping_sub(2));
            let (n_bytes, n_more) = (usize::from(byte()?) * 21, usize::from(byte()?));
            let n_here = n_bytes.saturating_sub(n_more).min(script.len());
            let (body, rest) = script.split_at(n_here);
            *script = rest;
            PeerAct::Message { tag, number, matched: kind & 16 != 0, n_bytes, body }
        }
        2 => PeerAct::Answer(tag(byte()?)),
        3 => PeerAct::Goodbye,
        4 => PeerAct::Post(tag(byte()?)),
        5 => PeerAct::Send(tag(byte()?)),
        _ => {
            let n_bytes = usize::from(byte()?).min(script.len());
            let (bytes, rest) = script.split_at(n_bytes);
            *script = rest;
            PeerAct::Bytes(bytes)
        }
    };
    Some((usize::from(kind >> 3 & 1), act))
}

/// Result of a peer's bytes.
#[derive(Debug, PartialEq, Eq)]
struct StreamOutcome {
    heard: Vec<PeerEvent>,
    loss: Option<PeerLoss>,
}

fn stream(script: &[u8], piece: usize) {
    let whole = outcome(script, usize::MAX);
    let in_pieces = outcome(script, piece);
    assert_eq!(whole, in_pieces, "the result depends on how bytes arrive");
    if let Some(expected) = expected(script) {
        assert_eq!(whole.heard, expected);
        assert_eq!(whole.loss, None);
    }
}

fn outcome(mut script: &[u8], piece: usize) -> StreamOutcome {
    let mut hearing = PeerInput::new(2, FRAME_BYTES, LINK_DEPTH);
    let mut outcome = StreamOutcome { heard: Vec::new(), loss: None };
    while let (Some((on, act)), None) = (next_act(&mut script), outcome.loss) {
        let bytes = match act {
            PeerAct::Bytes(bytes) => bytes.to_vec(),
            PeerAct::Message { tag, number, matched, n_bytes, body } => {
                [&message(tag, n_bytes, number, matched), body].concat()
            }
            PeerAct::Answer(tag) => answer(tag),
            PeerAct::Goodbye => goodbye(),
            PeerAct::Post(tag) => {
                hearing.post(tag);
                Vec::new()
            }
            PeerAct::Send(tag) => {
                hearing.sent_matched(tag);
                Vec::new()
            }
        };
        outcome.loss = bytes.chunks(piece).find_map(|piece| hearing.receive(on, piece).err());
        outcome.heard.extend(std::iter::from_fn(|| hearing.next_event()));
    }
    outcome
}

/// Returns what the rank must receive from a peer that keeps to the protocol; `None` if the peer
/// does not.
fn expected(mut script: &[u8]) -> Option<Vec<PeerEvent>> {
    let mut heard = Vec::new();
    // By tag: posted receives, the number of the next message to take, and the messages that have
    // arrived.
    let mut posted = BTreeSet::new();
    let mut next: BTreeMap<Tag, u32> = BTreeMap::new();
    let mut here: BTreeMap<(Tag, u32), Vec<u8>> = BTreeMap::new();
    let mut awaited = BTreeSet::new();
    while let Some((_, act)) = next_act(&mut script) {
        match act {
            PeerAct::Bytes(bytes) if !bytes.is_empty() => return None,
            PeerAct::Message { tag, number, n_bytes, body, .. } => {
                let ahead = number.wrapping_sub(*next.entry(tag).or_default());
                let is_right = n_bytes == body.len()
                    && n_bytes <= FRAME_BYTES
                    && (ahead as usize) < 2 * LINK_DEPTH
                    && here.insert((tag, number), body.to_vec()).is_none();
                if !is_right || tag.is_control() {
                    return None;
                }
            }
            PeerAct::Answer(tag) => {
                if !awaited.remove(&tag) {
                    return None;
                }
                heard.push(PeerEvent::Answer(tag));
            }
            PeerAct::Post(tag) => _ = posted.insert(tag),
            PeerAct::Send(tag) => _ = awaited.insert(tag),
            PeerAct::Goodbye | PeerAct::Bytes(_) => {}
        }
        posted.retain(|&tag| {
            let next = next.entry(tag).or_default();
            let Some(body) = here.remove(&(tag, *next)) else { return true };
            *next += 1;
            heard.push(PeerEvent::Message(tag, body));
            false
        });
    }
    Some(heard)
}
