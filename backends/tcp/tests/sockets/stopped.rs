//! Processes that are stopped in the middle of calls, and continue.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use std::{env, fmt::Write, thread};

use crate::common::sums;
use foldwire::{Communicator, Error};
use foldwire_bootstrap::Rendezvous;
use foldwire_tcp::{Settings, join};

/// Environment variable with the time limit of a call in milliseconds.
const LIMIT: &str = "FOLDWIRE_TEST_LIMIT";
const N_CALLS: usize = 300;

/// Runs as one of the two rank processes that a test starts from this program.
#[test]
fn as_a_rank() {
    let Ok(limit) = env::var(LIMIT) else { return };
    let mut session = Rendezvous::from_env().unwrap().join().unwrap();
    let endpoint = join(&Settings::from_env().unwrap(), &mut session).unwrap();
    let mut comm = Communicator::new(endpoint).unwrap();
    comm.config_mut().timeout = Duration::from_millis(limit.parse().unwrap());
    for _ in 0..N_CALLS {
        let (n_right, error, took) = sums(&mut comm, 1);
        match error {
            None => println!("right: {n_right}"),
            Some(error) => {
                let is_typed = matches!(error, Error::Stalled { .. } | Error::Aborted { .. });
                assert!(is_typed, "{error:?} after {took:?}");
                return println!("gave up");
            }
        }
        thread::sleep(Duration::from_millis(1));
    }
}

fn signal(name: &str, child: &Child) {
    let line = format!("kill -{name} {}", child.id());
    assert!(Command::new("sh").args(["-c", &line]).status().unwrap().success());
}

/// Runs two ranks whose calls have the time limit `limit`. Stops rank 1 for `lasting` after its
/// tenth sum. Returns the output of both ranks.
fn stopped(limit: Duration, lasting: Duration) -> [String; 2] {
    // The port was free a moment ago.
    let root = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let mut ranks = ["0", "1"].map(|rank| {
        Command::new(env::current_exe().unwrap())
            .args(["--exact", "stopped::as_a_rank", "--nocapture"])
            .env("FOLDWIRE_RANK", rank)
            .env("FOLDWIRE_SIZE", "2")
            .env("FOLDWIRE_ROOT", &root)
            .env(LIMIT, limit.as_millis().to_string())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap()
    });
    let mut said =
        ranks.each_mut().map(|child| BufReader::new(child.stdout.take().unwrap()).lines());
    let mut texts = [String::new(), String::new()];
    while texts[1].matches("right").count() < 10 {
        writeln!(texts[1], "{}", said[1].next().expect("a sum").unwrap()).unwrap();
    }
    signal("STOP", &ranks[1]);
    thread::sleep(lasting);
    signal("CONT", &ranks[1]);
    for ((text, said), rank) in texts.iter_mut().zip(said).zip(&mut ranks) {
        for line in said {
            writeln!(text, "{}", line.unwrap()).unwrap();
        }
        assert!(rank.wait().unwrap().success(), "{text}");
    }
    texts
}

#[test]
fn a_process_that_is_stopped_and_goes_on_in_time_is_waited_for() {
    for text in stopped(Duration::from_secs(10), Duration::from_millis(400)) {
        assert_eq!(text.matches("right: 1").count(), N_CALLS, "{text}");
    }
}

/// Rank 0 reaches its time limit. When the stopped rank continues, it finds the abort notice of
/// rank 0, or is past its own time limit.
#[test]
fn a_process_that_is_stopped_for_longer_is_given_up_by_both() {
    for text in stopped(Duration::from_millis(300), Duration::from_millis(900)) {
        assert_eq!(text.matches("gave up").count(), 1, "{text}");
    }
}
