//! Arbitrary bytes as a message: parsing returns a header or a typed error, and a header that was
//! accepted is emitted again as the same bytes.
#![no_main]

use foldwire::frame::{HEADER_BYTES, Header};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|message: &[u8]| {
    // With a checksum, which the fuzzer cannot guess, only refusals are likely; without, both.
    let _ = Header::parse(message, true);
    let Ok(header) = Header::parse(message, false) else { return };
    assert_eq!(header.n_bytes as usize, message.len() - HEADER_BYTES);
    let has_checksum = message[8] != 0;
    let mut again = message.to_vec();
    header.emit(&mut again, has_checksum);
    assert!(again == message, "{header:?}");
});
