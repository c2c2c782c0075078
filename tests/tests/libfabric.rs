//! The suite over libfabric: 1, 2, 3 and 5 processes over the providers `tcp` and `shm`. The tests
//! report and skip a provider that this libfabric does not have.
#![cfg(feature = "libfabric")]

use foldwire_tests::processes::session::{self, text};
use foldwire_tests::processes::sizes;
use foldwire_tests::skip;
use foldwire_tests::suite::N_CHECKS;
use std::fs;
use std::process::{Command, Output};
use std::sync::{PoisonError, RwLock};

/// Suites wait half of their time, so they may run at the same time. A test that measures time runs
/// alone.
static MACHINE: RwLock<()> = RwLock::new(());

/// Runs `suite libfabric` with these arguments as `n` processes. Returns their outputs in rank
/// order.
fn launch(n: usize, words: &[&str]) -> Vec<(u32, Output)> {
    let words = [&["libfabric"], words].concat();
    let outputs = session::launch(env!("CARGO_BIN_EXE_suite"), &words, n);
    for (process, _) in &outputs {
        // Remove the killed rank's leftover, which would disturb a process with the same ID.
        let _ = fs::remove_file(format!("/dev/shm/{process}:0:0"));
    }
    outputs
}

/// Returns whether a provider is usable here, and reports if it is not. A provider that libfabric's
/// own program finds must be usable.
fn is_here(name: &str) -> bool {
    let providers = foldwire_libfabric::providers(&foldwire_libfabric::Settings::default());
    let is_usable = providers.iter().any(|found| found.offer.is_ok() && found.name == name);
    match Command::new("fi_info").args(["-p", name, "-t", "FI_EP_RDM"]).output() {
        Ok(output) if output.status.success() => {
            assert!(is_usable, "fi_info finds {name}, and {providers:?}");
        }
        Ok(_) => {}
        Err(error) => skip(&format!("check of provider {name} against fi_info: {error}")),
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
