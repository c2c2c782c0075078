//! Ranks that are missing, crash, leave, or send nothing.

use std::net::UdpSocket;
use std::panic::{self, AssertUnwindSafe};

use super::*;

#[test]
fn missing_ranks_are_named_to_those_who_are_there() {
    let (listener, at) = listener();
    let rank_0 = root(place(0, 6, &at), listener, SHORT);
    let rank_2 = member(place(2, 6, &at), SHORT);
    for error in [failed(rank_0), failed(rank_2)] {
        let Error::Missing { missing, size: 6, .. } = &error else { panic!("{error}") };
        assert_eq!(missing.first(), [1, 3, 4, 5].map(Rank));
        assert_eq!(missing.n_ranks(), 4);
        assert!(
            error.to_string().starts_with("waited 500ms for ranks 1, 3–5 of 6 ranks"),
            "{error}"
        );
    }
}

#[test]
fn without_rank_0_the_others_give_up_in_time() {
    let (listener, at) = listener();
    drop(listener);
    let start = Instant::now();
    let error = failed(member(place(1, 2, &at), SHORT));
    assert!(matches!(error, Error::Unreachable { .. }), "{error}");
    assert!(error.to_string().contains(&at.to_string()), "{error}");
    assert!(start.elapsed() < SHORT + Duration::from_secs(2));
}

#[test]
fn a_rank_that_gives_nothing_is_named() {
    let mut sessions = group(3, SHORT);
    let mut idle = sessions.pop().unwrap();
    for result in each(&mut sessions, Exchange::barrier) {
        let error = result.unwrap_err();
        let Error::Missing { missing, .. } = &error else { panic!("{error}") };
        assert_eq!(missing.first(), [Rank(2)]);
    }
    let error = idle.barrier().unwrap_err();
    assert!(matches!(error, Error::Missing { .. }), "the missing rank learns it too: {error}");
}

/// Ends a rank as a crash does: its connection closes without a goodbye.
fn crash(session: Session) {
    let crashed = panic::catch_unwind(AssertUnwindSafe(|| {
        let _session = session;
        panic::resume_unwind(Box::new("a crash"));
    }));
    assert!(crashed.is_err());
}

#[test]
fn everyone_hears_of_a_lost_rank_once() {
    let mut sessions = group(5, LIMIT);
    crash(sessions.remove(3));
    let (rank_0, others) = sessions.split_at_mut(1);
    assert_eq!(hear_of_loss(&mut rank_0[0], others), Rank(3));
    for session in others {
        assert_eq!(hear_of_loss(session, &mut []), Rank(3));
    }
    for session in &mut sessions {
        assert_eq!(session.poll_lost(), None);
    }
    for result in each(&mut sessions, Exchange::barrier) {
        assert!(matches!(result, Err(Error::Lost { rank: Rank(3) })));
    }
}

#[test]
fn everyone_hears_of_the_loss_of_rank_0() {
    let mut sessions = group(4, LIMIT);
    crash(sessions.remove(0));
    for session in &mut sessions {
        assert_eq!(hear_of_loss(session, &mut []), Rank(0));
        assert_eq!(session.poll_lost(), None);
        assert!(matches!(session.barrier(), Err(Error::Lost { rank: Rank(0) })));
    }
}

#[test]
fn a_loss_ends_an_all_gather_that_waits_for_it() {
    for lost in [0, 2] {
        let mut sessions = group(3, LIMIT);
        let start = Instant::now();
        let session = sessions.remove(lost);
        let crash = thread::spawn(move || {
            thread::sleep(Duration::from_millis(100));
            crash(session);
        });
        for result in each(&mut sessions, Exchange::barrier) {
            let error = result.unwrap_err();
            assert!(matches!(error, Error::Lost { rank } if rank.index() == lost), "{error}");
        }
        assert!(start.elapsed() < LIMIT / 2);
        crash.join().unwrap();
    }
}

#[test]
fn a_rank_that_gives_up_while_others_are_missing_ends_the_wait() {
    let (listener, at) = listener();
    let start = Instant::now();
    let rank_0 = root(place(0, 4, &at), listener, LIMIT);
    let rank_1 = member(place(1, 4, &at), LIMIT);
    let impatient = member(place(2, 4, &at), SHORT);
    let error = failed(impatient);
    assert!(matches!(error, Error::Silent { .. }), "{error}");
    for error in [failed(rank_0), failed(rank_1)] {
        assert!(matches!(error, Error::Left { rank: Rank(2) }), "{error}");
    }
    assert!(start.elapsed() < LIMIT / 2);
}

#[test]
fn a_goodbye_is_no_loss() {
    let mut sessions = group(4, LIMIT);
    drop(sessions.pop());
    thread::sleep(Duration::from_millis(50));
    for session in &mut sessions {
        assert_eq!(session.poll_lost(), None);
    }
    for result in each(&mut sessions, Exchange::barrier) {
        let error = result.unwrap_err();
        assert!(matches!(error, Error::Left { rank: Rank(3) }), "{error}");
    }
    drop(sessions.remove(0));
    for session in &mut sessions {
        assert_eq!(session.poll_lost(), None);
    }
}

#[test]
fn leaving_is_quick_whatever_the_others_do() {
    // No rank reads, so the goodbyes stay in the system's buffers.
    let mut sessions = group(3, LIMIT);
    let start = Instant::now();
    drop(sessions.remove(0));
    drop(sessions);
    assert!(start.elapsed() < Duration::from_secs(2));
}

#[test]
fn rank_0_passes_news_on_before_it_leaves() {
    let mut sessions = group(3, LIMIT);
    crash(sessions.remove(1));
    thread::sleep(Duration::from_millis(50));
    drop(sessions.remove(0));
    assert_eq!(hear_of_loss(&mut sessions[0], &mut []), Rank(1));
    assert_eq!(sessions[0].poll_lost(), None, "rank 0 left with a goodbye");
}

/// Collectives call `poll_lost` in their loops. Without a loss it costs a few system calls,
/// compared here with a read from an empty socket.
#[test]
fn asking_for_losses_is_cheap() {
    const CALLS: u32 = 200;
    let time = |call: &mut dyn FnMut()| {
        let start = Instant::now();
        (0..CALLS).for_each(|_| call());
        start.elapsed() / CALLS
    };
    let mut sessions = group(9, LIMIT);
    let empty = UdpSocket::bind("127.0.0.1:0").unwrap();
    empty.set_nonblocking(true).unwrap();
    for session in &mut sessions[..2] {
        // Alternate, so that other load on the machine affects both.
        let pairs = (0..50).map(|_| {
            let asked = time(&mut || assert_eq!(session.poll_lost(), None));
            [asked, time(&mut || assert!(empty.recv(&mut [0]).is_err()))]
        });
        let [asked, system] =
            pairs.reduce(|[a, b], [c, d]| [a.min(c), b.min(d)]).expect("there are some");
        assert!(asked < 20 * system, "{asked:?} for rank {}, {system:?}", session.rank());
        eprintln!("rank {}: {asked:?} per call, a system call {system:?}", session.rank());
    }
}
