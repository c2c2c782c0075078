//! Any bytes on a connection of the TCP backend: no panic, and no trust without a proof. The rank
//! receives the peer's messages in order, or drops the peer.
//!
//! The first byte of an input selects what is tested:
//!
//! ```text
//!   0: the handshake; the messages to the connector are changed
//!   1: the handshake; the messages to the other side are changed
//!   2 or more: a stream of messages from a peer
//!
//!   handshake: for each message to that side, a kind (1 byte), modulo 3, and
//!              0                      leaves the message unchanged
//!              1 bytes                replaces the message by the next bytes, of the same length
//!              2 position[2]          flips the bit at this position
//!   stream:    size of the pieces in which bytes arrive (1 byte), then acts
//!   act:       kind (bits 0–2; bit 3: the connection; bit 4: the message is matched, so its sender
//!              waits for an answer), and
//!              0 n bytes[n]           the peer sends these bytes
//!              1 tag number n more body   the peer sends a message of 21·n bytes, without the last
//!                                     `more` of them; its number is `number` − 2
//!              2 tag                  the peer answers a matched message
//!              3                      the peer says goodbye
//!              4 tag                  the rank posts a receive
//!              5 tag                  the rank has sent a matched message
//! ```

use foldwire::Tag;
use foldwire_bootstrap::Token;
use foldwire_tcp::PeerLoss;
use foldwire_tcp::fuzzing::{HandshakeEnd, PeerEvent, PeerInput, answer, goodbye, message};
use std::collections::{BTreeMap, BTreeSet};

const FRAME_BYTES: usize = 5000;
/// Credit of a link, in frames.
const LINK_DEPTH: usize = 2;

/// Runs the target on an input.
pub fn check(input: &[u8]) {
    match input {
        [0, rest @ ..] => handshake(rest, true, false),
        [1, rest @ ..] => handshake(rest, false, false),
        [_, piece, rest @ ..] => stream(rest, usize::from(*piece) * 31 + 1),
        _ => {}
    }
}

/// Runs a handshake between two sides. One of them receives changed messages: the connector, if
/// `harms_connector`, or else the side that accepts.
pub(crate) fn handshake(mut script: &[u8], harms_connector: bool, encrypts: bool) {
    let token = Token::new("a token of this fuzzer's").expect("it is long enough");
    // The connector speaks first.
    let mut sides = [true, false].map(|connects| HandshakeEnd::new(connects, encrypts, &token));
    let mut is_honest = true;
    let mut message = sides[0].receive(&[]).expect("the connector speaks first");
    for listener in [1, 0, 1] {
        let n_needed = sides[listener].n_needed().expect("the listener expects a message");
        assert_eq!(
            message.len(),
            n_needed,
            "a message has another length than its receiver expects"
        );
        if (listener == 0) == harms_connector
            && let [kind, rest @ ..] = script
        {
            script = rest;
            let honest = message.clone();
            match kind % 3 {
                1 => {
                    let (bytes, rest) = script.split_at(n_needed.min(script.len()));
                    message[..bytes.len()].copy_from_slice(bytes);
                    script = rest;
                }
                2 => {
                    if let [one, two, rest @ ..] = script {
                        let bit = usize::from(u16::from_le_bytes([*one, *two])) % (8 * n_needed);
                        message[bit / 8] ^= 1 << (bit % 8);
                        script = rest;
                    }
                }
                _ => {}
            }
            is_honest &= message == honest;
        }
        match sides[listener].receive(&message) {
            Some(next) => message = next,
            None => break,
        }
    }
    let [connector, other] = sides.each_mut().map(HandshakeEnd::trusts);
    assert!(!is_honest || connector && other, "honest sides do not trust each other");
    // The connector trusts the other side before it sends its last message. A change of that
    // message therefore affects only the other side.
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

/// Takes the next act from the script. Returns the connection, and the act.
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
    events: Vec<PeerEvent>,
    loss: Option<PeerLoss>,
}

/// Checks that bytes in pieces have the same result as all bytes at once, and the right one.
fn stream(script: &[u8], piece: usize) {
    let whole = outcome(script, usize::MAX);
    let in_pieces = outcome(script, piece);
    assert_eq!(whole, in_pieces, "the result depends on how bytes arrive");
    if let Some(expected) = expected(script) {
        assert_eq!(whole.events, expected);
        assert_eq!(whole.loss, None);
    }
}

fn outcome(mut script: &[u8], piece: usize) -> StreamOutcome {
    let mut input = PeerInput::new(2, FRAME_BYTES, LINK_DEPTH);
    let mut outcome = StreamOutcome { events: Vec::new(), loss: None };
    while let (Some((on, act)), None) = (next_act(&mut script), outcome.loss) {
        let bytes = match act {
            PeerAct::Bytes(bytes) => bytes.to_vec(),
            PeerAct::Message { tag, number, matched, n_bytes, body } => {
                [&message(tag, n_bytes, number, matched), body].concat()
            }
            PeerAct::Answer(tag) => answer(tag),
            PeerAct::Goodbye => goodbye(),
            PeerAct::Post(tag) => {
                input.post(tag);
                Vec::new()
            }
            PeerAct::Send(tag) => {
                input.sent_matched(tag);
                Vec::new()
            }
        };
        outcome.loss = bytes.chunks(piece).find_map(|piece| input.receive(on, piece).err());
        outcome.events.extend(std::iter::from_fn(|| input.next_event()));
    }
    outcome
}

/// Returns the events of a rank whose peer keeps to the protocol. Returns `None` if the peer
/// violates it.
fn expected(mut script: &[u8]) -> Option<Vec<PeerEvent>> {
    let mut events = Vec::new();
    // Tags with a posted receive.
    let mut posted = BTreeSet::new();
    // Number of the next message to deliver, by tag.
    let mut next: BTreeMap<Tag, u32> = BTreeMap::new();
    // Messages that have arrived and are not delivered, by tag and number.
    let mut arrived: BTreeMap<(Tag, u32), Vec<u8>> = BTreeMap::new();
    // Tags of matched messages without an answer.
    let mut awaited = BTreeSet::new();
    while let Some((_, act)) = next_act(&mut script) {
        match act {
            PeerAct::Bytes(bytes) if !bytes.is_empty() => return None,
            PeerAct::Message { tag, number, n_bytes, body, .. } => {
                let ahead = number.wrapping_sub(*next.entry(tag).or_default());
                let is_valid = n_bytes == body.len()
                    && n_bytes <= FRAME_BYTES
                    && (ahead as usize) < 2 * LINK_DEPTH
                    && arrived.insert((tag, number), body.to_vec()).is_none();
                if !is_valid || tag.is_control() {
                    return None;
                }
            }
            PeerAct::Answer(tag) => {
                if !awaited.remove(&tag) {
                    return None;
                }
                events.push(PeerEvent::Answer(tag));
            }
            PeerAct::Post(tag) => _ = posted.insert(tag),
            PeerAct::Send(tag) => _ = awaited.insert(tag),
            PeerAct::Goodbye | PeerAct::Bytes(_) => {}
        }
        posted.retain(|&tag| {
            let next = next.entry(tag).or_default();
            let Some(body) = arrived.remove(&(tag, *next)) else { return true };
            *next += 1;
            events.push(PeerEvent::Message(tag, body));
            false
        });
    }
    Some(events)
}
