//! Any bytes as a message. `Header::parse` refuses it, or emitting the header gives the same bytes.
//! A checksum detects every flipped bit.

use foldwire::frame::{HEADER_BYTES, Header};

/// Offset of the header's flags. Bit 0 means that there is a checksum (docs/format.md).
const FLAGS_AT: usize = 8;

/// Runs the target on an input. The last byte selects the bit that is flipped.
pub fn check(message: &[u8]) {
    // The fuzzer cannot guess a checksum. So this mostly fails, and the next line covers both
    // results.
    let _ = Header::parse(message, true);
    let Ok(header) = Header::parse(message, false) else { return };
    assert_eq!(header.n_bytes as usize, message.len() - HEADER_BYTES);
    let mut again = message.to_vec();
    header.emit(&mut again, message[FLAGS_AT] & 1 != 0);
    assert!(again == message, "{header:?}");

    header.emit(&mut again, true);
    let checked = Header::parse(&again, true).expect("what we write, we can read");
    // Compare the text: a step that is NaN does not equal itself.
    assert_eq!(format!("{checked:?}"), format!("{header:?}"));
    let last = usize::from(*message.last().unwrap_or(&0));
    let bit = (last * 0x9e37 + message.len()) % (8 * again.len());
    again[bit / 8] ^= 1 << (bit % 8);
    assert!(Header::parse(&again, true).is_err(), "bit {bit} of {header:?}");
}
