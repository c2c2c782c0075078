//! Any values in the store through which a group grows: see `foldwire_fuzz::grow`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| foldwire_fuzz::grow::check(input));
