//! Any values through every codec: see `foldwire_fuzz::roundtrip`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| foldwire_fuzz::roundtrip::check(input));
