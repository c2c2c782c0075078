//! Any records on an encrypted connection: see `foldwire_fuzz::seal`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| foldwire_fuzz::seal::check(input));
