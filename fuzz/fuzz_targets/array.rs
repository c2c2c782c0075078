//! Any array through codec interp: see `foldwire_fuzz::array`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| foldwire_fuzz::array::check(input));
