//! Any bytes as a file of values: see `foldwire_fuzz::field`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| foldwire_fuzz::field::check(input));
