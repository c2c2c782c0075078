//! Any bytes on a connection of the TCP backend: see `foldwire_fuzz::tcp`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| foldwire_fuzz::tcp::check(input));
