//! Any bytes as an encoding that values are folded into: see `foldwire_fuzz::fold`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| foldwire_fuzz::fold::check(input));
