//! Panics, and the floating-point environment.
#![allow(unsafe_code, reason = "calls C's functions for the floating-point environment")]

use std::ffi::c_int;

use foldwire_preload::guard::guarded;

#[test]
fn panics_stay_inside() {
    assert!(guarded(|| panic!("on purpose")).is_err());
    assert_eq!(guarded(|| 3).unwrap(), 3);
}

unsafe extern "C" {
    fn fesetround(direction: c_int) -> c_int;
    fn fegetround() -> c_int;
}

#[cfg(any(target_arch = "x86_64", target_arch = "x86"))]
const UPWARD: c_int = 0x800;
#[cfg(target_arch = "aarch64")]
const UPWARD: c_int = 0x40_0000;

#[test]
#[cfg(any(target_arch = "x86_64", target_arch = "x86", target_arch = "aarch64"))]
fn the_program_gets_its_rounding_back() {
    // SAFETY: floats are computed in the default environment only.
    unsafe {
        assert_eq!(fesetround(UPWARD), 0);
        assert_eq!(guarded(|| fegetround()).unwrap(), 0);
        assert_eq!(fegetround(), UPWARD);
        fesetround(0);
    }
}
