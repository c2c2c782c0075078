//! Detects whether ranks share a host, for shared memory and for the network.

use std::os::unix::fs::MetadataExt;
use std::time::SystemTime;
use std::{fs, process};

/// Returns a text that is equal on ranks that can share memory: same kernel, same view of processes
/// and of `/dev/shm`. Ranks in different network namespaces count as different hosts, so that an
/// emulated cluster uses its network.
pub(crate) fn identity() -> String {
    identity_of("/proc/sys/kernel/random/boot_id", "/dev/shm").unwrap_or_else(|| {
        // Unknown: treat this rank as alone on its host.
        format!("unknown {} {:?}", process::id(), SystemTime::now())
    })
}

fn identity_of(boot_id: &str, shared: &str) -> Option<String> {
    let boot_id = fs::read_to_string(boot_id).ok()?;
    let processes = fs::read_link("/proc/self/ns/pid").ok()?;
    let network = fs::read_link("/proc/self/ns/net").ok()?;
    let device = fs::metadata(shared).ok()?.dev();
    Some(format!("{} {} {} {device}", boot_id.trim(), processes.display(), network.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_itself_and_has_one_line() {
        let again = identity_of("/proc/sys/kernel/random/boot_id", "/dev/shm");
        assert!(again.is_none_or(|again| again == identity()));
        assert!(!identity().contains('\n'));
    }

    #[test]
    fn without_a_boot_id_there_is_no_identity() {
        assert_eq!(identity_of("/nonexistent", "/dev/shm"), None);
    }
}
