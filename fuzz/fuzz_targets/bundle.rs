//! Any bytes as a bundle, a message's payload of several segments: see `foldwire_fuzz::bundle`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| foldwire_fuzz::bundle::check(input));
