//! The suite for all backends, on ranks as threads. (On processes: `mpi.rs`, `libfabric.rs`.)

use foldwire_tests::{Threads, suite};

#[test]
fn threads_do_what_every_backend_must() {
    let make = |frame_bytes| Threads { frame_bytes };
    for size in 1..=5 {
        for (name, check) in suite::checks() {
            println!("{name}, {size} ranks");
            check(&make, size);
        }
    }
}
