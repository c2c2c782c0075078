//! The bytes of chunks, written down: docs/format.md, section 7. If a change of the library changes
//! any of them, it is a new format.
//!
//! They were not printed by the library but by encoders written anew from the format's description,
//! in another language.

use super::{bits, decode, encode};
use crate::bound::Quantum;
use crate::codec::chunked::{HEADER_BYTES, INDEX_ENTRY};
use crate::codec::{CodecId, CodecParams};
use crate::element::Float;
use crate::kernel::{Level, PAD};
use std::format;
use std::string::String;

const CODED: u8 = 1;

/// Encoding the values, one chunk, gives these bytes behind the byte that says that it is coded, at
/// every level, and decoding gives these values.
fn check<T: Float>(id: CodecId, setting: u16, values: &[T], hex: &str, decoded: &[T]) {
    for level in Level::available() {
        let params = CodecParams::new(Quantum::LOSSLESS).with_setting(setting).at(level);
        let codec = id.instance::<T>(&params);
        let bytes = encode(codec.as_dyn(), values);
        let chunk = &bytes[HEADER_BYTES + INDEX_ENTRY..bytes.len() - PAD];
        let found: String = chunk[1..].iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!((chunk[0], found), (CODED, hex.split_whitespace().collect()), "at {level}");
        assert_eq!(bits(&decode(codec.as_dyn(), &bytes, values.len())), bits(decoded));
    }
}

#[test]
fn xor_lz() {
    let values = [1.0_f32, 1.5, 1.5, -2.0, 0.001, 0.0010000002, 0.0];
    check(
        CodecId::XorLz,
        0,
        &values,
        "20086000 0000803f 00004000 00c0ff6f 1283fa1f 7012833a",
        &values,
    );
    // A word of which only the lowest nibble remains, words of two, and words that are zero.
    let nan = f64::from_bits(0x7ff8_0000_0000_0001);
    let near = [f64::from_bits(0x3ff0_0000_0000_0001), f64::from_bits(0x3ff0_0000_0000_0011)];
    let values = [1.0, 1.0, near[0], near[1], -1.0, 0.0, nan, nan, 3.0];
    check(
        CodecId::XorLz,
        0,
        &values,
        "f0ee00f0 00000000 000000f0 3f011011 00000000 00008000 00000000 00f0bf01
         00000000 00f87f01 00000000 00f03f",
        &values,
    );
}
