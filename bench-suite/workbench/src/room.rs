//! Whether there is memory for what the user asks for.
//!
//! It is asked before any is taken, for all buffers of all ranks together: systems promise more
//! memory than they have, and end a program that uses it.

use foldwire_fields::memory::NoMemory;
use sysinfo::System;

/// Refuses more memory than is free, the limit of a container and swap included. Where that is not
/// known everything passes.
///
/// # Errors
/// [`NoMemory`].
pub fn check(need: u128) -> Result<(), NoMemory> {
    match free() {
        Some(have) if need > have.into() => Err(NoMemory { need, have: Some(have) }),
        _ => Ok(()),
    }
}

/// Bytes that programs can still have.
fn free() -> Option<u64> {
    let mut system = System::new().ok()?;
    system.refresh_memory();
    let machine = system.available_memory().saturating_add(system.free_swap());
    let container = system.cgroup_limits().map_or(u64::MAX, |limits| {
        // What it calls free lacks pages of files, which make room for others.
        limits.total_memory.saturating_sub(limits.rss).saturating_add(limits.free_swap)
    });
    Some(machine.min(container)).filter(|&free| free > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn little_passes_and_what_no_machine_has_does_not() {
        check(1 << 20).unwrap();
        let error = check(1 << 70).unwrap_err();
        assert_eq!(error.need, 1 << 70);
        assert!(error.have.is_some_and(|have| have > 1 << 20));
    }
}
