//! The simulated device reports each fault of a kernel.

use foldwire_cuda_host::Device;

/// Runs case `which` of the kernel on two blocks; returns the report, and what it wrote.
fn run(which: u64) -> (Option<String>, Vec<u32>) {
    let mut device = Device::new();
    let out = device.allocate(256);
    let report = device.launch("fault", 2, 64, &[out, which]).err().map(|error| error.report);
    let mut bytes = [0; 256];
    device.read(out, &mut bytes);
    let words = bytes.as_chunks().0.iter().map(|word| u32::from_le_bytes(*word)).collect();
    (report, words)
}

#[test]
fn a_kernel_without_fault_runs() {
    let (report, words) = run(0);
    assert_eq!(report, None);
    for (thread, word) in (0..64).zip(words) {
        assert_eq!(word, (thread + 1) % 64 + thread / 32 * 32 + (thread + 1) % 32);
    }
}

#[test]
fn each_fault_is_reported() {
    for (which, expected) in [
        (1, "not at the collective"),
        (2, "not at the collective"),
        (3, "a write outside of all buffers"),
        (4, "not aligned"),
        (5, "nothing has written"),
        (6, "a race in shared memory"),
        // The next array begins there.
        (7, "outside of a shared array"),
        (8, "not at the collective"),
        (9, "outside of a shared array"),
        (10, "outside of a shared array"),
    ] {
        let report = run(which).0.unwrap_or_else(|| panic!("fault {which} is not found"));
        assert!(report.contains(expected), "fault {which}: {report}");
        assert!(report.contains("in block 0"), "fault {which}: {report}");
    }
}

#[test]
fn launches_that_no_kernel_suits_are_refused() {
    let mut device = Device::new();
    let out = device.allocate(256);
    assert!(device.launch("no such kernel", 1, 64, &[out, 0]).is_err());
    assert!(device.launch("fault", 1, 64, &[out]).is_err());
    assert!(device.launch("fault", 0, 64, &[out, 0]).is_err());
    assert!(device.launch("fault", 1, 33, &[out, 0]).is_err());
    assert!(device.launch("fault", 1, 96, &[out, 0]).is_err());
}
