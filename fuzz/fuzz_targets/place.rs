//! Detects a rank's place in its group from any environment variables: see `foldwire_fuzz::place`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| foldwire_fuzz::place::check(input));
