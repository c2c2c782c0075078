//! Check that the memory for a request is free.
//!
//! The check comes before the first allocation, for all buffers of all ranks together. Some systems
//! grant more memory than they have, and kill a program that uses it.

use foldwire_fields::memory::NoMemory;
use sysinfo::System;

/// Refuses to use more memory than is free. The limit of a container and free swap space count. If
/// the free memory is unknown, every request passes.
///
/// # Errors
/// [`NoMemory`].
pub fn check(need: u128) -> Result<(), NoMemory> {
    match free() {
        Some(have) if need > have.into() => Err(NoMemory { need, have: Some(have) }),
        _ => Ok(()),
    }
}

/// Bytes that programs can still allocate.
fn free() -> Option<u64> {
    let mut system = System::new().ok()?;
    system.refresh_memory();
    let machine = system.available_memory().saturating_add(system.free_swap());
    let container = system.cgroup_limits().map_or(u64::MAX, |limits| {
        // The container's own figure of free memory excludes the page cache, which is reclaimable.
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
