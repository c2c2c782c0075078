//! Any bytes as two encodings that are combined: see `foldwire_fuzz::combine`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| foldwire_fuzz::combine::check(input));
