//! Runs the suite that every backend passes, with the transport of this example.

use super::wire::{Wire, connect};
use super::{main, run};
use foldwire_conformance::{AnyBackend, Backend, suite};

struct Wires {
    frame_bytes: usize,
}

impl Backend for Wires {
    type Transport = Wire;

    fn run_transports<R: Send>(&self, size: usize, body: impl Fn(Wire) -> R + Sync) -> Vec<R> {
        run(connect(size, self.frame_bytes), body)
    }
}

#[test]
fn the_conformance_suite_passes() {
    for (name, check) in suite::checks() {
        println!("{name}");
        let wires =
            |frame_bytes: Option<usize>| Wires { frame_bytes: frame_bytes.unwrap_or(65_536) };
        check(&|frame_bytes| AnyBackend::new(wires(frame_bytes)), 3);
    }
}

#[test]
fn runs() {
    main().unwrap();
}
