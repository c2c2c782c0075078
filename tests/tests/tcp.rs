//! The suite over TCP: 1, 2, 3 and 5 ranks as threads of this process, connected by sockets. Groups
//! alternate between one connection and several, with and without encryption and shared memory.
//! Tests that need processes start processes.
#![cfg(feature = "tcp")]

use foldwire_tcp::Settings;
use foldwire_tests::processes::session::{launch, text};
use foldwire_tests::processes::sizes;
use foldwire_tests::processes::tcp::{TcpThreads, settings};
use foldwire_tests::{AnyBackend, suite};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

type ConnectionVariant = fn(Settings) -> Settings;

const WAYS: [ConnectionVariant; 4] = [
    |settings| settings,
    |settings| settings.share_memory(false),
    |settings| settings.streams(3).share_memory(false),
    |settings| settings.streams(2).encrypt(true),
];

#[test]
fn up_to_five_ranks_over_tcp_do_what_every_backend_must() {
    thread::scope(|scope| {
        for size in sizes() {
            scope.spawn(move || {
                // Each size begins with another variant.
                let n_groups = AtomicUsize::new(size);
                let make = |frame_bytes| {
                    let way = WAYS[n_groups.fetch_add(1, Ordering::Relaxed) % WAYS.len()];
                    AnyBackend::new(TcpThreads { settings: way(settings(frame_bytes)) })
                };
                for (name, check) in suite::checks() {
                    let start = Instant::now();
                    check(&make, size);
                    println!("{name}, {size} ranks, {:.2} s", start.elapsed().as_secs_f64());
                }
            });
        }
    });
}

#[test]
fn a_killed_rank_ends_every_other_ones_call_and_the_others_go_on() {
    let outputs = launch(env!("CARGO_BIN_EXE_suite"), &["tcp", "--lose-a-rank"], 4);
    let text = text(&outputs);
    let survivors = |how: &str| text.lines().filter(|line| line.starts_with(how)).count();
    assert_eq!((survivors("survivor "), survivors("goes on ")), (3, 3), "{text}");
    // A killed rank is detected at once, not by a time limit.
    assert!(text.contains("PeerLost") && !text.contains("Stalled"), "{text}");
}
