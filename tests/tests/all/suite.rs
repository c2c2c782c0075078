//! The suite for all backends, with ranks as threads. `mpi.rs` and `libfabric.rs` run it with
//! processes. `conformance.rs` has every pair of choices; the suite compares other backends with
//! those results.

use foldwire_tests::deadline::in_parallel;
use foldwire_tests::{AnyBackend, Threads, suite};

#[test]
fn threads_do_what_every_backend_must() {
    let make = |frame_bytes| AnyBackend::new(Threads { frame_bytes });
    in_parallel(1..=5, |size| {
        for (name, check) in &suite::checks()[1..] {
            println!("{name}, {size} ranks");
            check(&make, size);
        }
    });
}
