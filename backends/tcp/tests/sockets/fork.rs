//! A fork of a rank is no rank: its calls are refused, and neither its end nor a drop in it counts
//! as a loss. Programs that a rank starts inherit none of its descriptors.

use std::net::TcpListener;
use std::process::{Command, Stdio};
use std::time::Duration;
use std::{env, process, thread};

use crate::common::sums;
use crate::ffi;
use foldwire::transport::TransportErrorKind;
use foldwire::{Communicator, Error, Op, Plan};
use foldwire_bootstrap::{Exchange, Rendezvous};
use foldwire_tcp::{Settings, join};

/// Environment variable that says what the forked child does: `calls`, `drops` or `exits`.
const WAY: &str = "FOLDWIRE_TEST_WAY";

/// Runs as one of the two rank processes that a test starts from this program.
#[test]
fn as_a_rank() {
    let Ok(way) = env::var(WAY) else { return };
    let mut session = Rendezvous::from_env().unwrap().join().unwrap();
    let endpoint = join(&Settings::from_env().unwrap(), &mut session).unwrap();
    let mut comm = Communicator::new(endpoint).unwrap();
    assert_eq!(sums(&mut comm, 3).0, 3);
    if let Some(child) = ffi::fork() {
        assert_eq!(ffi::wait(child), 0, "the child's calls were not refused");
    } else {
        // Nothing here may panic, since the test harness belongs to the parent.
        let is_refused = match &*way {
            "calls" => {
                let refused = |error| {
                    let kind = TransportErrorKind::OtherProcess;
                    matches!(error, Error::Transport { kind: found, .. } if found == kind)
                };
                let plan = Plan::raw();
                let first = comm.all_reduce(&mut [1.0f32; 9], Op::Sum, &plan).err();
                let second = comm.all_reduce(&mut [1.0f32; 9], Op::Sum, &plan);
                let gather = session.all_gather(b"child");
                drop((comm, session));
                first.is_some_and(refused)
                    && second.is_err()
                    && matches!(gather, Err(foldwire_bootstrap::Error::OtherProcess))
            }
            "drops" => {
                drop((comm, session));
                true
            }
            "exits" => process::exit(0),
            _ => false,
        };
        ffi::exit_now(i32::from(!is_refused));
    }
    // Anything that the child has sent has arrived by now.
    thread::sleep(Duration::from_millis(50));
    assert_eq!(sums(&mut comm, 20).0, 20);
    assert_eq!(session.poll_lost(), None);
    assert_eq!(session.all_gather(b"parent").unwrap(), [b"parent"; 2]);
    if cfg!(target_os = "linux") {
        let listed = Command::new("ls").args(["-l", "/proc/self/fd"]).output().unwrap();
        let listed = String::from_utf8_lossy(&listed.stdout);
        let is_ours = |line: &&str| line.contains("socket:") || line.contains("anon_inode:");
        assert_eq!(listed.lines().find(is_ours), None);
    }
    println!("went on");
}

/// Runs two ranks, each with a child that does what `way` names.
fn forked(way: &str) {
    // The port was free a moment ago.
    let root = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let ranks = ["0", "1"].map(|rank| {
        Command::new(env::current_exe().unwrap())
            .args(["--exact", "fork::as_a_rank", "--nocapture"])
            .env("FOLDWIRE_RANK", rank)
            .env("FOLDWIRE_SIZE", "2")
            .env("FOLDWIRE_ROOT", &root)
            .env(WAY, way)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    });
    for rank in ranks {
        let output = rank.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && said.contains("went on"), "{way}: {said}{errors}");
    }
}

#[test]
fn calls_of_a_forked_process_are_refused_and_disturb_nobody() {
    forked("calls");
}

#[test]
fn what_a_forked_process_drops_disturbs_nobody() {
    forked("drops");
}

#[test]
fn the_end_of_a_forked_process_disturbs_nobody() {
    forked("exits");
}
