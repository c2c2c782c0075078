//! Any bytes as an encoding: see `foldwire_fuzz::decode`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| foldwire_fuzz::decode::check(input));
