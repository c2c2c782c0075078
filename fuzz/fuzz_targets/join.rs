//! Any input to ranks that connect to each other: see `foldwire_fuzz::join`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| foldwire_fuzz::join::check(input));
