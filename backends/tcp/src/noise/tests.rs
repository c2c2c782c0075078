//! Encrypted data is read up to the first record that was tampered with, and not beyond.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;

use super::*;

/// The connector's channel and the acceptor's.
pub(crate) fn pair() -> [NoiseChannel; 2] {
    let secret = SessionSecret::new(None, b"a group");
    let sides =
        [true, false].map(|connects| NoiseHandshake::new(connects, &secret, b"a test").unwrap());
    let [mut connector, mut other] = sides;
    other.receive(&connector.key().unwrap()).unwrap();
    connector.receive(&other.key().unwrap()).unwrap();
    let (answer, connector) = connector.answer().unwrap();
    [connector, other.accept(&answer).unwrap()]
}

/// Returns the record that one write makes.
fn encrypted(by: &mut NoiseChannel, plain: &[u8]) -> Vec<u8> {
    let mut record = Vec::new();
    assert_eq!(by.write(&mut record, &[IoSlice::new(plain)]).unwrap(), plain.len());
    record
}

/// A connection that delivers bytes in pieces and would block between them.
struct ChunkedReader<'a> {
    rest: &'a [u8],
    longest: usize,
    is_pause: bool,
}

impl Read for ChunkedReader<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.is_pause = !self.is_pause;
        if self.is_pause {
            return Err(ErrorKind::WouldBlock.into());
        }
        let (here, rest) = self.rest.split_at(self.longest.min(into.len()).min(self.rest.len()));
        into[..here.len()].copy_from_slice(here);
        self.rest = rest;
        Ok(here.len())
    }
}

/// Reads until the end or an error.
fn read_all(
    by: &mut NoiseChannel,
    from: &mut ChunkedReader<'_>,
) -> (Vec<u8>, Result<(), ErrorKind>) {
    let mut read = Vec::new();
    loop {
        let (mut few, mut more) = ([0; 3], [0; 50]);
        match by.read(from, &mut [IoSliceMut::new(&mut few), IoSliceMut::new(&mut more)]) {
            Ok(0) => return (read, Ok(())),
            Ok(n_bytes) => read.extend([&few[..], &more].concat().iter().take(n_bytes)),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return (read, Err(error.kind())),
        }
    }
}

/// Expected result of reading `bytes`: the plaintext of the unchanged records with which `bytes`
/// begins. Then an error if a complete record follows, and success if not.
fn expected(
    records: &[Vec<u8>],
    plains: &[Vec<u8>],
    bytes: &[u8],
) -> (Vec<u8>, Result<(), ErrorKind>) {
    let (mut read, mut rest) = (Vec::new(), bytes);
    for (record, plain) in records.iter().zip(plains) {
        let Some(behind) = rest.strip_prefix(&record[..]) else { break };
        rest = behind;
        read.extend(plain);
    }
    let is_record = rest
        .split_first_chunk()
        .is_some_and(|(length, rest)| rest.len() >= usize::from(u16::from_be_bytes(*length)));
    (read, if is_record { Err(ErrorKind::InvalidData) } else { Ok(()) })
}

/// A change to records on their way.
#[derive(Clone, Debug)]
enum Tampering {
    None,
    Flip {
        bit: Index,
    },
    Cut {
        at: Index,
    },
    Insert {
        at: Index,
        bytes: Vec<u8>,
    },
    Length {
        of: Index,
        length: u16,
    },
    Drop {
        which: Index,
    },
    Repeat {
        which: Index,
        before: Index,
    },
    Swap {
        one: Index,
        two: Index,
    },
    /// Inserts a record that the reader has made.
    Reflect {
        before: Index,
    },
}

fn tampering() -> impl Strategy<Value = Tampering> {
    let index = any::<Index>;
    prop_oneof![
        Just(Tampering::None),
        index().prop_map(|bit| Tampering::Flip { bit }),
        index().prop_map(|at| Tampering::Cut { at }),
        (index(), vec(any::<u8>(), 1..40)).prop_map(|(at, bytes)| Tampering::Insert { at, bytes }),
        (index(), prop_oneof![0..90u16, any::<u16>()])
            .prop_map(|(of, length)| Tampering::Length { of, length }),
        index().prop_map(|which| Tampering::Drop { which }),
        (index(), index()).prop_map(|(which, before)| Tampering::Repeat { which, before }),
        (index(), index()).prop_map(|(one, two)| Tampering::Swap { one, two }),
        index().prop_map(|before| Tampering::Reflect { before }),
    ]
}

impl Tampering {
    fn apply(self, records: &[Vec<u8>], reader: &mut NoiseChannel) -> Vec<u8> {
        let n_records = records.len();
        let mut changed = records.to_vec();
        match self {
            Self::Drop { which } => _ = changed.remove(which.index(n_records)),
            Self::Repeat { which, before } => {
                let again = changed[which.index(n_records)].clone();
                changed.insert(before.index(n_records + 1), again);
            }
            Self::Swap { one, two } => changed.swap(one.index(n_records), two.index(n_records)),
            Self::Reflect { before } => {
                changed.insert(before.index(n_records + 1), encrypted(reader, b"its own"));
            }
            Self::Length { of, length } => {
                changed[of.index(n_records)][..LENGTH_BYTES].copy_from_slice(&length.to_be_bytes());
            }
            Self::None | Self::Flip { .. } | Self::Cut { .. } | Self::Insert { .. } => {}
        }
        let mut bytes = changed.concat();
        match self {
            Self::Flip { bit } => {
                let bit = bit.index(8 * bytes.len());
                bytes[bit / 8] ^= 1 << (bit % 8);
            }
            Self::Cut { at } => bytes.truncate(at.index(bytes.len())),
            Self::Insert { at, bytes: more } => {
                let at = at.index(bytes.len() + 1);
                _ = bytes.splice(at..at, more);
            }
            _ => {}
        }
        bytes
    }
}

proptest! {
    #[test]
    fn what_is_read_is_what_was_sealed_and_is_not_harmed(
        plains in vec(vec(any::<u8>(), 1..70), 1..6),
        tampering in tampering(),
        longest in 1..200usize,
    ) {
        let [mut writer, mut reader] = pair();
        let records: Vec<_> = plains.iter().map(|plain| encrypted(&mut writer, plain)).collect();
        let bytes = tampering.apply(&records, &mut reader);
        let mut pieces = ChunkedReader { rest: &bytes, longest, is_pause: false };
        let read = read_all(&mut reader, &mut pieces);
        prop_assert_eq!(&read, &expected(&records, &plains, &bytes));
        // Reading again has the same result, and returns no bytes.
        prop_assert_eq!(read_all(&mut reader, &mut pieces), (Vec::new(), read.1));
    }

    #[test]
    fn no_memory_is_taken_before_what_it_is_for_is_here(
        claimed in any::<u16>(),
        n_bytes in 0..300usize,
    ) {
        let [_, mut reader] = pair();
        let bytes = [&claimed.to_be_bytes()[..], &vec![7; n_bytes]].concat();
        let mut pieces = ChunkedReader { rest: &bytes, longest: 100, is_pause: false };
        let _ = read_all(&mut reader, &mut pieces);
        let [incoming, plain] = reader.n_held();
        prop_assert!(incoming <= LENGTH_BYTES + MAX_RECORD_BYTES && plain <= n_bytes);
    }
}

#[test]
fn the_longest_record_is_read_and_what_is_longer_becomes_two() {
    let [mut writer, mut reader] = pair();
    let plain: Vec<u8> = (0..MAX_PLAIN_BYTES + 9).map(|i| (i % 251) as u8).collect();
    let mut bytes = Vec::new();
    let n_taken = writer.write(&mut bytes, &[IoSlice::new(&plain)]).unwrap();
    assert_eq!((n_taken, bytes.len()), (MAX_PLAIN_BYTES, LENGTH_BYTES + MAX_RECORD_BYTES));
    writer.write(&mut bytes, &[IoSlice::new(&plain[n_taken..])]).unwrap();
    let mut pieces = ChunkedReader { rest: &bytes, longest: 9000, is_pause: false };
    assert_eq!(read_all(&mut reader, &mut pieces), (plain, Ok(())));
}

/// If a channel forgot its failure, the first case would read unauthenticated bytes, and the second
/// would panic.
#[test]
fn who_reads_on_behind_a_forged_record_gets_nothing() {
    for plain in [&b""[..], b"a record of some length, which is read"] {
        let [mut writer, mut reader] = pair();
        let mut bytes = encrypted(&mut writer, plain);
        let forged = [&[0, TAG_BYTES as u8 + 3][..], &[9; TAG_BYTES + 3]].concat();
        bytes.extend(&forged);
        let mut pieces = ChunkedReader { rest: &bytes, longest: 100, is_pause: false };
        let is_forged = Err(ErrorKind::InvalidData);
        assert_eq!(read_all(&mut reader, &mut pieces), (plain.to_vec(), is_forged));
        assert_eq!(read_all(&mut reader, &mut pieces), (Vec::new(), is_forged));
    }
}
