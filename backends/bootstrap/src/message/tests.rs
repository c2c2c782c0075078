//! Round trips of messages, and rejection of other bytes.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

fn refusal() -> impl Strategy<Value = Refusal> {
    prop_oneof![
        Just(Refusal::Garbage),
        any::<u16>().prop_map(|theirs| Refusal::Version { theirs }),
        any::<(u32, u32)>().prop_map(|(theirs, ours)| Refusal::Size { theirs, ours }),
        any::<(u32, u32)>().prop_map(|(rank, size)| Refusal::Rank { rank, size }),
        Just(Refusal::Token),
        any::<u32>().prop_map(|rank| Refusal::Duplicate { rank }),
        Just(Refusal::Slow),
        any::<(u32, u32)>().prop_map(|(theirs, ours)| Refusal::Job { theirs, ours }),
        any::<i32>().prop_map(|os_error| Refusal::CannotListen { os_error }),
    ]
}

/// A message of any kind. Messages that borrow contents borrow `blob`.
fn message(blob: &'static [u8]) -> impl Strategy<Value = Message<'static>> {
    let rank = || any::<u32>().prop_map(Rank);
    prop_oneof![
        (rank(), any::<u32>(), any::<[u8; JOB_BYTES]>(), any::<(Nonce, Proof)>()).prop_map(
            |(rank, size, job, (nonce, proof))| Message::Hello { rank, size, job, nonce, proof }
        ),
        any::<(Nonce, Proof)>().prop_map(|(nonce, proof)| Message::Challenge { nonce, proof }),
        any::<Proof>().prop_map(|proof| Message::Answer { proof }),
        refusal().prop_map(Message::Refusal),
        Just(Message::Welcome),
        (any::<u32>(), vec(rank(), 0..=MAX_NAMED))
            .prop_map(|(n_missing, ranks)| Message::Missing { n_missing, ranks }),
        Just(Message::Give(blob)),
        rank().prop_map(move |from| Message::Share { from, bytes: blob }),
        rank().prop_map(Message::Lost),
        rank().prop_map(Message::Left),
        (rank(), refusal()).prop_map(|(rank, reason)| Message::Unfit { rank, reason }),
        Just(Message::Goodbye),
    ]
}

fn emitted(message: &Message<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    message.emit(&mut bytes);
    bytes
}

static BLOB: [u8; 300] = [7; 300];

proptest! {
    #[test]
    fn what_is_written_is_read(message in message(&BLOB), behind in vec(any::<u8>(), 0..9)) {
        let mut bytes = emitted(&message);
        let n_bytes = bytes.len();
        bytes.extend(behind);
        prop_assert_eq!(parse(&bytes), Ok(Some((message, n_bytes))));
    }

    #[test]
    fn a_beginning_is_no_message_and_no_fault(message in message(&BLOB)) {
        let bytes = emitted(&message);
        for n_bytes in 0..bytes.len() {
            prop_assert_eq!(parse(&bytes[..n_bytes]), Ok(None));
        }
    }

    #[test]
    fn what_is_read_is_written_as_the_same_bytes(
        mut bytes in vec(any::<u8>(), 0..160), kind in 0u8..14,
    ) {
        // Use valid kinds and matching lengths, since random bytes would hardly ever be accepted.
        if let Some(first) = bytes.first_mut() {
            *first = kind;
        }
        if bytes.len() >= HEAD_BYTES {
            let n_body = (bytes.len() - HEAD_BYTES) as u32;
            bytes[1..HEAD_BYTES].copy_from_slice(&n_body.to_le_bytes());
        }
        if let Ok(Some((message, n_bytes))) = parse(&bytes) {
            prop_assert_eq!(emitted(&message), &bytes[..n_bytes]);
        }
    }

    #[test]
    fn any_bytes_are_read_without_panic(bytes in vec(any::<u8>(), 0..400)) {
        if let Ok(Some((_, n_bytes))) = parse(&bytes) {
            prop_assert!(n_bytes <= bytes.len());
        }
    }
}

#[test]
fn a_length_is_refused_before_its_bytes_come() {
    for kind in 0..=u8::MAX {
        let head = [kind, 0xff, 0xff, 0xff, 0x7f];
        let expected = match body_bytes(kind) {
            Some(_) => Malformed::Length { kind, n_bytes: 0x7fff_ffff },
            None => Malformed::Kind(kind),
        };
        assert_eq!(parse(&head), Err(expected));
    }
}

#[test]
fn one_who_accepts_short_messages_waits_for_no_long_one() {
    let mut bytes = emitted(&Message::Give(&[1; MAX_HANDSHAKE_BYTES]));
    let n_bytes = MAX_HANDSHAKE_BYTES as u32;
    bytes.truncate(HEAD_BYTES);
    let refused = Err(Malformed::Length { kind: kind::GIVE, n_bytes });
    assert_eq!(parse_within(&bytes, MAX_HANDSHAKE_BYTES), refused);
    assert_eq!(parse(&bytes), Ok(None));
}

#[test]
fn no_message_is_longer_than_promised() {
    let longest = (0..=u8::MAX).filter_map(body_bytes).map(|(_, longest)| longest).max();
    assert_eq!(longest, Some(MAX_MESSAGE_BYTES - HEAD_BYTES));
}

#[test]
fn another_version_and_another_protocol_are_told_apart() {
    let (job, nonce, proof) = ([0; JOB_BYTES], [0; NONCE_BYTES], [0; PROOF_BYTES]);
    let hello = Message::Hello { rank: Rank(1), size: 2, job, nonce, proof };
    let mut bytes = emitted(&hello);
    bytes[HEAD_BYTES + MAGIC.len()] = 9;
    assert_eq!(parse(&bytes), Err(Malformed::Version { theirs: 9 }));
    bytes[HEAD_BYTES] = b'X';
    assert_eq!(parse(&bytes), Err(Malformed::Magic));
    assert_eq!(parse(b"GET / HTTP/1.1\r\n\r\n"), Err(Malformed::Kind(b'G')));
}

#[test]
#[should_panic(expected = "kind 7 cannot have 65537 bytes")]
fn nothing_too_long_is_written() {
    emitted(&Message::Give(&[0; MAX_GIVEN_BYTES + 1]));
}
