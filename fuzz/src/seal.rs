//! Any bytes on an encrypted connection. The reader returns the plaintext up to the first changed
//! record, and nothing after it, for pieces of any size. It allocates memory only for received
//! bytes.
//!
//! ```text
//!   input:  size of the pieces in which bytes are written and arrive (1 byte)
//!           size of the buffer for each read (1 byte)  acts
//!   act:    kind (1 byte), and
//!           0 n             seals n bytes, which arrive
//!           1 n             seals n · 300 bytes, which arrive
//!           2 n             seals n bytes, which do not arrive yet
//!           3 i             record i arrives, perhaps again
//!           4 i position[2] record i arrives with the bit at this position flipped
//!           5 i n           record i arrives without its last n bytes
//!           6 i length[2]   record i arrives with its length field replaced
//!           7 n             n bytes arrive that the reader itself has sealed
//!           8 n bytes[n]    these bytes arrive
//! ```
//!
//! Keys are random, so each run of a script has other ciphertext.

use foldwire_tcp::fuzzing::EncryptedEnd;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Read, Write};

const LENGTH_BYTES: usize = 2;
/// Bytes of a record in addition to its plaintext and its length.
const TAG_BYTES: usize = 16;
const MAX_RECORD_BYTES: usize = u16::MAX as usize;
/// The script ends after this many bytes are sealed or have arrived.
const MAX_BYTES: usize = 70_000;
/// Largest number of pieces in which bytes arrive.
const MAX_PIECES: usize = 100;

/// Runs the target on an input.
pub fn check(input: &[u8]) {
    let [piece, n_read_bytes, script @ ..] = input else { return };
    let piece = usize::from(*piece) * 83 + 1;
    let n_read_bytes = usize::from(*n_read_bytes) * 57 + 1;
    let [writer, mut reader] = EncryptedEnd::pair();
    let mut sender = RecordSender { sealed: writer, piece, records: Vec::new(), n_sealed: 0 };
    let arriving = arriving(script, &mut sender, &mut reader);
    let (plain, end) = expected(&sender.records, &arriving);

    let piece = piece.max(arriving.len() / MAX_PIECES);
    let mut wire = PiecewiseReader { rest: &arriving, piece, n_arrived: 0, is_pause: false };
    let mut read = Vec::new();
    assert_eq!(read_on(&mut reader, &mut wire, n_read_bytes, &mut read), end);
    assert!(read == plain, "the read bytes are not the sealed bytes that arrived");
    for _ in 0..2 {
        assert_eq!(
            read_on(&mut reader, &mut wire, n_read_bytes, &mut read),
            end,
            "reading after the end gives another result"
        );
        assert_eq!(read.len(), plain.len(), "bytes are read after the end");
    }
}

/// Reason why reading ended.
#[derive(Debug, PartialEq, Eq)]
enum ReadEnd {
    /// The connection ended.
    Ended,
    /// A record was changed, replayed, or not sealed by the writer.
    Forged,
}

/// The sealing side of the connection.
struct RecordSender {
    sealed: EncryptedEnd,
    piece: usize,
    /// Records and their plaintext.
    records: Vec<(Vec<u8>, Vec<u8>)>,
    n_sealed: usize,
}

impl RecordSender {
    /// Seals `n_bytes` bytes. Returns the records.
    fn seal(&mut self, n_bytes: usize) -> Vec<u8> {
        let plain = plain(self.n_sealed, n_bytes);
        self.n_sealed += n_bytes;
        let mut rest = &plain[..];
        let mut all = Vec::new();
        while !rest.is_empty() {
            let (record, n_taken) = seal(&mut self.sealed, rest, self.piece);
            let (taken, behind) = rest.split_at(n_taken);
            assert!(behind.is_empty() || n_taken == MAX_RECORD_BYTES - TAG_BYTES);
            all.extend_from_slice(&record);
            self.records.push((record, taken.to_vec()));
            rest = behind;
        }
        all
    }
}

/// Returns test data: bytes `start..start + n_bytes` of a sequence with period 251, so that moved
/// records are detected.
fn plain(start: usize, n_bytes: usize) -> Vec<u8> {
    let numbers = std::array::from_fn::<_, 251, _>(|i| i as u8);
    let skipped = start % numbers.len();
    let mut bytes = numbers.repeat(n_bytes.div_ceil(numbers.len()) + 1);
    bytes.copy_within(skipped..skipped + n_bytes, 0);
    bytes.truncate(n_bytes);
    bytes
}

/// Seals one record. Returns it, and the number of plaintext bytes in it.
fn seal(end: &mut EncryptedEnd, plain: &[u8], piece: usize) -> (Vec<u8>, usize) {
    let mut to = PiecewiseWriter { bytes: Vec::new(), piece, is_pause: false };
    let (one, two) = plain.split_at(piece.min(plain.len()));
    let n_taken = end.write(&mut to, &[IoSlice::new(one), IoSlice::new(two)]);
    let n_taken = n_taken.expect("the last record has left");
    while let Err(error) = end.flush(&mut to) {
        assert_eq!(error.kind(), ErrorKind::WouldBlock);
    }
    assert_eq!(to.bytes.len(), LENGTH_BYTES + n_taken + TAG_BYTES);
    (to.bytes, n_taken)
}

/// Runs the script. Returns the bytes that arrive.
fn arriving(mut script: &[u8], sender: &mut RecordSender, reader: &mut EncryptedEnd) -> Vec<u8> {
    let mut arriving = Vec::new();
    while sender.n_sealed.max(arriving.len()) < MAX_BYTES
        && let Some(bytes) = next(&mut script, sender, reader)
    {
        arriving.extend_from_slice(&bytes);
    }
    arriving
}

/// Executes the next act. Returns the bytes that arrive, or `None` at the end of the script.
fn next(
    script: &mut &[u8],
    sender: &mut RecordSender,
    reader: &mut EncryptedEnd,
) -> Option<Vec<u8>> {
    let mut byte = || {
        let (&byte, rest) = script.split_first()?;
        *script = rest;
        Some(usize::from(byte))
    };
    let (kind, n) = (byte()? % 9, byte()?);
    match kind {
        0 => return Some(sender.seal(n)),
        1 => return Some(sender.seal(n * 300)),
        2 => {
            sender.seal(n);
            return Some(Vec::new());
        }
        7 if n > 0 => return Some(seal(reader, &vec![7; n], sender.piece).0),
        8 => {
            let (bytes, rest) = script.split_at(n.min(script.len()));
            *script = rest;
            return Some(bytes.to_vec());
        }
        _ => {}
    }
    let Some((record, _)) = sender.records.get(n % sender.records.len().max(1)) else {
        return Some(Vec::new());
    };
    let mut record = record.clone();
    match kind {
        4 => {
            let bit = (byte()? | byte()? << 8) % (8 * record.len());
            record[bit / 8] ^= 1 << (bit % 8);
        }
        5 => record.truncate(record.len() - byte()?.min(record.len())),
        6 => record[..LENGTH_BYTES].copy_from_slice(&[byte()? as u8, byte()? as u8]),
        _ => {}
    }
    Some(record)
}

/// Returns the plaintext that the reader must return, and how reading must end. The plaintext is
/// that of the records that arrive unchanged and in order, from the first one. If a complete record
/// follows them, it is forged. If an incomplete record follows them, the connection ended.
fn expected(records: &[(Vec<u8>, Vec<u8>)], arriving: &[u8]) -> (Vec<u8>, ReadEnd) {
    let (mut read, mut rest) = (Vec::new(), arriving);
    for (record, plain) in records {
        let Some(behind) = rest.strip_prefix(&record[..]) else { break };
        rest = behind;
        read.extend_from_slice(plain);
    }
    let is_record = rest
        .split_first_chunk()
        .is_some_and(|(length, rest)| rest.len() >= usize::from(u16::from_be_bytes(*length)));
    (read, if is_record { ReadEnd::Forged } else { ReadEnd::Ended })
}

/// Appends plaintext to `read` until the end. Each read takes at most `n_read_bytes` bytes, in two
/// buffers.
fn read_on(
    end: &mut EncryptedEnd,
    from: &mut PiecewiseReader<'_>,
    n_read_bytes: usize,
    read: &mut Vec<u8>,
) -> ReadEnd {
    let n_first = n_read_bytes / 3;
    let (mut one, mut two) = (vec![0; n_first], vec![0; n_read_bytes - n_first]);
    loop {
        let n_read = end.read(from, &mut [IoSliceMut::new(&mut one), IoSliceMut::new(&mut two)]);
        let [inbox, plain] = end.n_held();
        assert!(inbox <= LENGTH_BYTES + MAX_RECORD_BYTES, "{inbox} bytes for incoming records");
        // A growing buffer may be up to twice as long as its contents.
        assert!(
            plain <= 2 * from.n_arrived,
            "{plain} bytes of plaintext for {} received bytes",
            from.n_arrived
        );
        match n_read {
            Ok(0) => return ReadEnd::Ended,
            Ok(n_bytes) => {
                assert!(n_bytes <= n_read_bytes);
                let n_one = n_bytes.min(one.len());
                read.extend_from_slice(&one[..n_one]);
                read.extend_from_slice(&two[..n_bytes - n_one]);
            }
            Err(error) => match error.kind() {
                ErrorKind::WouldBlock => {}
                ErrorKind::InvalidData => return ReadEnd::Forged,
                kind => panic!("no connection here returns {kind}"),
            },
        }
    }
}

/// A connection that delivers bytes in pieces, and would block between two pieces.
struct PiecewiseReader<'a> {
    rest: &'a [u8],
    piece: usize,
    n_arrived: usize,
    is_pause: bool,
}

impl Read for PiecewiseReader<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.is_pause = !self.is_pause;
        if self.is_pause {
            return Err(ErrorKind::WouldBlock.into());
        }
        let (here, rest) = self.rest.split_at(self.piece.min(into.len()).min(self.rest.len()));
        into[..here.len()].copy_from_slice(here);
        self.rest = rest;
        self.n_arrived += here.len();
        Ok(here.len())
    }
}

/// A connection that accepts bytes in pieces, and would block between two pieces.
struct PiecewiseWriter {
    bytes: Vec<u8>,
    piece: usize,
    is_pause: bool,
}

impl Write for PiecewiseWriter {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        self.is_pause = !self.is_pause;
        if self.is_pause {
            return Err(ErrorKind::WouldBlock.into());
        }
        let n_bytes = self.piece.min(from.len());
        self.bytes.extend_from_slice(&from[..n_bytes]);
        Ok(n_bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
