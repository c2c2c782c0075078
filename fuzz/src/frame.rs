//! Any bytes as a message: whatever `Header::parse` accepts is emitted again as the same bytes, and
//! a checksum finds every bit that was flipped on the way.

use foldwire::frame::{HEADER_BYTES, Header};

/// Where the header says whether there is a checksum, in bit 0 (docs/format.md).
const FLAGS_AT: usize = 8;

/// The target. The last byte says which bit is flipped.
pub fn check(message: &[u8]) {
    // With a checksum, which the fuzzer cannot guess, only refusals are likely; without, both.
    let _ = Header::parse(message, true);
    let Ok(header) = Header::parse(message, false) else { return };
    assert_eq!(header.n_bytes as usize, message.len() - HEADER_BYTES);
    let mut again = message.to_vec();
    header.emit(&mut again, message[FLAGS_AT] & 1 != 0);
    assert!(again == message, "{header:?}");

    header.emit(&mut again, true);
    let checked = Header::parse(&again, true).expect("what we write, we can read");
    // Not the headers themselves: a step that is no number differs from itself.
    assert_eq!(format!("{checked:?}"), format!("{header:?}"));
    let last = usize::from(*message.last().unwrap_or(&0));
    let bit = (last * 0x9e37 + message.len()) % (8 * again.len());
    again[bit / 8] ^= 1 << (bit % 8);
    assert!(Header::parse(&again, true).is_err(), "bit {bit} of {header:?}");
}
