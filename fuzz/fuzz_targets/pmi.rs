//! Any bytes from a launcher's PMI server: see `foldwire_fuzz::pmi`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| foldwire_fuzz::pmi::check(input));
