//! The suite over libfabric: 1, 2, 3 and 5 processes over its providers `tcp` and `shm`. A provider
//! that this libfabric has not is skipped, saying so.
#![cfg(feature = "libfabric")]

use foldwire_tests::processes::session::{self, text};
use foldwire_tests::processes::sizes;
use foldwire_tests::skip;
use foldwire_tests::suite::N_CHECKS;
use std::fs;
use std::process::{Command, Output};
use std::sync::{PoisonError, RwLock};

/// Suites wait half of their time and may run beside each other; a test that looks at the clock has
/// the machine for itself.
static MACHINE: RwLock<()> = RwLock::new(());

/// Runs `suite libfabric` with some words as `n` processes; their outputs in rank order.
fn launch(n: usize, words: &[&str]) -> Vec<(u32, Output)> {
    let words = [&["libfabric"], words].concat();
    let outputs = session::launch(env!("CARGO_BIN_EXE_suite"), &words, n);
    for (process, _) in &outputs {
        // What a killed rank leaves there is in the way of a process that gets its number.
        let _ = fs::remove_file(format!("/dev/shm/{process}:0:0"));
    }
    outputs
}

/// Whether there is a provider here, which says so if not. libfabric's own program decides: a
/// provider that it finds must be one that can be used.
fn is_here(name: &str) -> bool {
    let providers = foldwire_libfabric::providers(&foldwire_libfabric::Settings::default());
    let is_usable = providers.iter().any(|found| found.offer.is_ok() && found.name == name);
    match Command::new("fi_info").args(["-p", name, "-t", "FI_EP_RDM"]).output() {
        Ok(output) if output.status.success() => {
            assert!(is_usable, "fi_info finds {name}, and {providers:?}");
        }
        Ok(_) => {}
        Err(error) => skip(&format!("whether {name} must be there: fi_info: {error}")),
    }
    if !is_usable {
        skip(&format!("this libfabric has no provider {name}"));
    }
    is_usable
}

fn check_suite(provider: &str) {
    if !is_here(provider) {
        return;
    }
    let _turn = MACHINE.read().unwrap_or_else(PoisonError::into_inner);
    for n in sizes() {
        let outputs = launch(n, &["--provider", provider]);
        let text = text(&outputs);
        assert!(
            outputs.iter().all(|(_, output)| output.status.success()),
            "{provider}, {n}\n{text}"
        );
        let n_checks = text.lines().filter(|line| line.starts_with("ok: ")).count();
        assert_eq!(n_checks, N_CHECKS, "{provider}, {n} ranks\n{text}");
    }
}

#[test]
fn up_to_five_ranks_over_tcp_do_what_every_backend_must() {
    check_suite("tcp");
}

#[test]
fn up_to_five_ranks_over_shared_memory_do_what_every_backend_must() {
    check_suite("shm");
}

#[test]
fn a_killed_rank_ends_every_other_ones_call_and_the_others_go_on() {
    let _turn = MACHINE.write().unwrap_or_else(PoisonError::into_inner);
    for provider in ["tcp", "shm"] {
        if !is_here(provider) {
            continue;
        }
        let outputs = launch(4, &["--provider", provider, "--lose-a-rank"]);
        let text = text(&outputs);
        let survivors = text.lines().filter(|line| line.starts_with("survivor ")).count();
        assert_eq!(survivors, 3, "{provider}\n{text}");
        let go_on = text.lines().filter(|line| line.starts_with("goes on ")).count();
        assert_eq!(go_on, 3, "{provider}\n{text}");
    }
}
