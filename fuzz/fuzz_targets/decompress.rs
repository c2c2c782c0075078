//! Any bytes as a compressed array: see `foldwire_fuzz::decompress`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| foldwire_fuzz::decompress::check(input));
