//! Ranks that cannot join, and a rank 0 that cannot listen: all ranks soon learn the reason.

use std::io::{self, Write};
use std::net::TcpStream;

use foldwire_bootstrap::message::Refusal;

use super::*;

/// Time within which all ranks learn the reason, whatever their time limit.
const SOON: Duration = Duration::from_secs(1);

fn in_time<T>(work: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let result = work();
    assert!(start.elapsed() < SOON, "{:?}", start.elapsed());
    result
}

fn explained(joining: Joining, is_reason: impl Fn(&Refusal) -> bool) {
    match failed(joining) {
        Error::Refused { reason, .. } | Error::Unfit { reason, .. } if is_reason(&reason) => {}
        error => panic!("{error}"),
    }
}

#[test]
fn a_wrong_token_ends_all() {
    let (listener, at) = listener();
    in_time(|| {
        let rank_0 = root(place(0, 4, &at), listener, LIMIT);
        let wrong = Place { token: Token::new("another secret of it").ok(), ..place(2, 4, &at) };
        let [rank_1, rank_2] = [member(place(1, 4, &at), LIMIT), member(wrong, LIMIT)];
        let rank_3 = member(place(3, 4, &at), LIMIT);
        for rank in [rank_1, rank_2, rank_0, rank_3] {
            explained(rank, |reason| *reason == Refusal::Token);
        }
    });
}

#[test]
fn a_wrong_size_ends_all() {
    for sizes in [[3, 3, 4], [4, 3, 3], [3, 4, 4]] {
        let (listener, at) = listener();
        let rank = |rank: u32| place(rank, sizes[rank as usize], &at);
        in_time(|| {
            let ranks =
                [root(rank(0), listener, LIMIT), member(rank(1), LIMIT), member(rank(2), LIMIT)];
            for rank in ranks {
                explained(rank, |reason| matches!(reason, Refusal::Size { .. }));
            }
        });
    }
}

/// After the last missing rank was refused, rank 0 waits half a second before the group fails.
#[test]
fn a_rank_that_was_turned_away_may_come_again() {
    let (listener, at) = listener();
    let rank_0 = root(place(0, 2, &at), listener, LIMIT);
    let wrong = Place { token: None, ..place(1, 2, &at) };
    assert!(matches!(failed(member(wrong, LIMIT)), Error::Refused { .. }));
    let rank_1 = member(place(1, 2, &at), LIMIT);
    drop((joined(rank_0), joined(rank_1)));
}

/// Another rank is still missing, so a refused process does not end the wait.
#[test]
fn who_is_still_to_come_is_waited_for() {
    let (listener, at) = listener();
    let rank_0 = root(place(0, 3, &at), listener, LIMIT);
    let wrong = Place { token: None, ..place(1, 3, &at) };
    assert!(matches!(failed(member(wrong, LIMIT)), Error::Refused { .. }));
    thread::sleep(SOON);
    let others = [1, 2].map(|rank| member(place(rank, 3, &at), LIMIT));
    drop((joined(rank_0), others.map(joined)));
}

fn is_in_use(reason: &Refusal) -> bool {
    let Refusal::CannotListen { os_error } = *reason else { return false };
    io::Error::from_raw_os_error(os_error).kind() == io::ErrorKind::AddrInUse
}

/// Joins three ranks at an address where rank 0 cannot listen. With `early`, the other ranks start
/// before rank 0.
fn cannot_listen(at: &Root, early: bool) {
    let ranks = || [1, 2].map(|rank| member(place(rank, 3, at), LIMIT));
    let rank_0 = || {
        thread::spawn({
            let place = place(0, 3, at);
            move || Rendezvous::new(place).limit(LIMIT).join()
        })
    };
    let (rank_0, others) = if early {
        let others = ranks();
        thread::sleep(Duration::from_millis(500));
        (rank_0(), others)
    } else {
        (rank_0(), ranks())
    };
    in_time(|| {
        others.into_iter().for_each(|rank| explained(rank, is_in_use));
        let error = failed(rank_0);
        assert!(matches!(error, Error::Listen { .. }), "{error}");
    });
}

/// Another program listens at the root and sends nothing.
#[test]
fn all_hear_that_the_port_is_in_use() {
    for early in [false, true] {
        let (_other, at) = listener();
        cannot_listen(&at, early);
    }
}

#[test]
fn all_hear_that_the_port_is_in_use_by_one_who_hangs_up() {
    let (other, at) = listener();
    // Serves until the program ends, or until it accepts a connection that was already reset.
    let server = thread::spawn(move || {
        while let Ok((stream, _)) = other.accept() {
            if stream.set_nodelay(true).is_err() || stream.peer_addr().is_err() {
                return;
            }
            drop(stream);
        }
    });
    cannot_listen(&at, true);
    drop(server);
}

/// A rank that connects to a mail server fails at once.
#[test]
fn a_foreign_greeting_is_told_at_once() {
    let (other, at) = listener();
    let server = thread::spawn(move || {
        let (mut stream, _) = other.accept().unwrap();
        stream.write_all(b"220 mail.example.org ESMTP\r\n").unwrap();
        stream
    });
    in_time(|| {
        let error = failed(member(place(1, 2, &at), LIMIT));
        assert!(matches!(error, Error::Impostor { .. }), "{error}");
    });
    drop(server.join().map(|stream: TcpStream| stream));
}
