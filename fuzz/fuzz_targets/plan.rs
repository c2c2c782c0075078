//! Any text as a plan, a bound, speeds or rules: see `foldwire_fuzz::plan`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| foldwire_fuzz::plan::check(input));
