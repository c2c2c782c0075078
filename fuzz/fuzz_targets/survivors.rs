//! Any messages of one rank while the others form a group: see `foldwire_fuzz::survivors`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| foldwire_fuzz::survivors::check(input));
