//! Any bytes as calls and faults on a simulated network: see `foldwire_fuzz::sequence`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| foldwire_fuzz::sequence::check(input));
