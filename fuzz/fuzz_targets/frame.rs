//! Any bytes as a message: see `foldwire_fuzz::frame`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| foldwire_fuzz::frame::check(input));
