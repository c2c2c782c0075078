//! A machine that vanishes while data is on its way to it: real sockets in a network namespace,
//! whose only device is taken down.

use std::process::Command;
use std::time::Duration;
use std::{env, thread};

use crate::common::{TamperedExchange, apart, ranks, settings, sums, token};
use foldwire::transport::{Rank, TransportErrorKind as Kind};
use foldwire::{Communicator, Error};
use foldwire_bootstrap::Exchange;
use foldwire_tcp::join;

const NAME: &str = "vanish::a_machine_that_vanishes_is_lost_though_something_is_on_its_way_to_it";
const INSIDE: &str = "FOLDWIRE_TEST_INSIDE";

fn ip(words: &str) -> bool {
    Command::new("ip").args(words.split(' ')).status().is_ok_and(|status| status.success())
}

/// Run it as root: `cargo test -p foldwire-tcp --test sockets vanish:: -- --ignored`.
#[test]
#[ignore = "takes half a minute; needs root, unshare and ip"]
fn a_machine_that_vanishes_is_lost_though_something_is_on_its_way_to_it() {
    if env::var_os(INSIDE).is_none() {
        let mut inside = Command::new("unshare");
        inside.arg("--net").arg(env::current_exe().unwrap());
        let status = inside.args(["--exact", NAME, "--ignored"]).env(INSIDE, "1").status();
        return assert!(status.expect("unshare is there").success());
    }
    assert!(ip("link set lo up") && ip("address add 10.77.0.1/32 dev lo"));
    let token = token("0123456789abcdef");
    let settings = settings().address([10, 77, 0, 1].into()).token(token.clone());
    let ends = ranks(2, |inner| {
        let rank = inner.rank();
        // Only ranks on different machines have an idle connection, which detects the loss.
        let exchange = &mut TamperedExchange { inner, tamper: Some(apart(rank, &token)) };
        let mut comm = Communicator::new(join(&settings, exchange).unwrap()).unwrap();
        comm.config_mut().timeout = Duration::from_secs(60);
        comm.barrier().unwrap();
        // Both ranks sum until a call fails.
        if rank == Rank(1) {
            thread::scope(|scope| {
                scope.spawn(|| {
                    thread::sleep(Duration::from_millis(200));
                    assert!(ip("link set lo down"));
                });
                sums(&mut comm, usize::MAX)
            })
        } else {
            sums(&mut comm, usize::MAX)
        }
    });
    for (n_right, error, took) in ends {
        let is_lost = matches!(error, Some(Error::Transport { kind: Kind::PeerLost, .. }));
        assert!(is_lost && n_right > 0, "{n_right}, {error:?} after {took:?}");
        // The system probes an idle connection for 25 s (`byte_stream.rs`).
        let limits = Duration::from_secs(20)..Duration::from_secs(30);
        assert!(limits.contains(&took), "{took:?}");
    }
}
