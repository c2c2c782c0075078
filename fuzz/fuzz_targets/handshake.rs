//! Any bytes at each end of the bootstrap protocol: see `foldwire_fuzz::handshake`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| foldwire_fuzz::handshake::check(input));
