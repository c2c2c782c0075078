//! Workspaces of the process: they are lent again, and end when memory is short.

use foldwire::Error;
use foldwire::device::Device;
use foldwire::error::DeviceErrorKind;
use foldwire_cuda::{WorkspaceConfig, pool};
use foldwire_cuda_host::{Faults, SimulatedDevice};

const SHORT: WorkspaceConfig = WorkspaceConfig { n_streams: 1, ..WorkspaceConfig::new(2, 4096) };
const LONG: WorkspaceConfig = WorkspaceConfig { frame_bytes: 8192, ..SHORT };

#[test]
fn unused_workspaces_end_when_memory_is_short() {
    let device = SimulatedDevice::new();
    pool::register(200, device.clone());
    drop(pool::lend(200, SHORT, None));
    let n_live = device.n_live();
    assert!(n_live > 0, "the pool keeps the workspace");
    drop(pool::lend(200, SHORT, None));
    assert_eq!(device.n_live(), n_live, "it is lent again");
    // There is memory for one workspace.
    device.plant(Faults { live: Some(n_live), ..Faults::default() });
    let mut lent = pool::lend(200, LONG, None);
    assert_eq!(lent.begin(), Ok(()));
    assert_eq!(device.n_live(), n_live);
    // That one is in use.
    let mut other = pool::lend(200, SHORT, None);
    assert_eq!(other.begin(), Err(Error::Device { kind: DeviceErrorKind::OutOfMemory }));
    let last_error = other.last_error();
    drop(other);
    assert!(last_error.take().is_some_and(|error| error.to_string().contains("memory left")));
    assert_eq!(device.n_live(), n_live);
}
