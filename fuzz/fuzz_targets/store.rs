//! Any bytes at both ends of a store over TCP: see `foldwire_fuzz::store`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| foldwire_fuzz::store::check(input));
