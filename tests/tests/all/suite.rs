//! The suite for all backends, on ranks as threads. (On processes: `mpi.rs`, `libfabric.rs`. Every
//! pair of choices, whose results the suite compares with those of threads: `conformance.rs`.)

use foldwire_tests::deadline::at_once;
use foldwire_tests::{Threads, suite};

#[test]
fn threads_do_what_every_backend_must() {
    let make = |frame_bytes| Threads { frame_bytes };
    at_once(1..=5, |size| {
        for (name, check) in &suite::checks()[1..] {
            println!("{name}, {size} ranks");
            check(&make, size);
        }
    });
}
