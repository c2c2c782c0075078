//! Any bytes as an encoding that is reduced into values: see `foldwire_fuzz::reduce`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| foldwire_fuzz::reduce::check(input));
