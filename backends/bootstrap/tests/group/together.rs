//! Joining, and all-gathers.

use foldwire_bootstrap::message::MAX_GIVEN_BYTES;

use super::*;

/// Input of a rank in a round. Length and contents differ between all inputs, and one is empty.
fn part(rank: usize, round: usize) -> Vec<u8> {
    vec![(16 * rank + round) as u8; rank * 7 + round]
}

#[test]
fn every_rank_gets_every_part_in_rank_order_each_time() {
    const ROUNDS: usize = 5;
    for size in [1, 2, 3, 5, 9] {
        let mut sessions = group(size, LIMIT);
        let by_rank = each(&mut sessions, |session| {
            let mut rounds = Vec::new();
            for round in 0..ROUNDS {
                rounds.push(session.all_gather(&part(session.rank().index(), round)).unwrap());
            }
            rounds
        });
        let expected: Vec<Vec<_>> =
            (0..ROUNDS).map(|round| (0..size).map(|rank| part(rank, round)).collect()).collect();
        assert_eq!(by_rank, vec![expected; size]);
        for session in &mut sessions {
            assert_eq!((session.size(), session.poll_lost()), (size, None));
        }
    }
}

#[test]
fn the_largest_part_goes_through_and_a_larger_one_is_refused() {
    let mut sessions = group(4, LIMIT);
    let largest = vec![3; MAX_GIVEN_BYTES];
    for parts in each(&mut sessions, |session| session.all_gather(&largest).unwrap()) {
        assert!(parts.len() == 4 && parts.iter().all(|part| *part == largest));
    }
    let too_long = sessions[1].all_gather(&[0; MAX_GIVEN_BYTES + 1]);
    assert!(matches!(too_long, Err(Error::TooLong { n_bytes }) if n_bytes == MAX_GIVEN_BYTES + 1));
    for result in each(&mut sessions, Exchange::barrier) {
        result.expect("the group is unaffected");
    }
}

#[test]
fn ranks_may_come_in_any_order_and_before_rank_0() {
    // Closing the listener frees its port: connections are refused until rank 0 binds.
    let (listener, at) = listener();
    drop(listener);
    let members: Vec<_> = (1..4).rev().map(|rank| member(place(rank, 4, &at), LIMIT)).collect();
    thread::sleep(Duration::from_millis(200));
    let rank_0 = Rendezvous::new(place(0, 4, &at)).limit(LIMIT).join().unwrap();
    let ranks: Vec<_> = members.into_iter().map(|member| joined(member).rank().0).collect();
    assert_eq!(ranks, [3, 2, 1]);
    drop(rank_0);
}

#[test]
fn the_longest_time_limit_is_one() {
    let mut sessions = group(3, Duration::MAX);
    for result in each(&mut sessions, Exchange::barrier) {
        result.expect("the group is whole");
    }
}

#[test]
fn ipv6_works_as_well() {
    let (listener, at) = listener_at("::1");
    assert!(at.to_string().starts_with("[::1]:"));
    let rank_0 = root(place(0, 2, &at), listener, LIMIT);
    let rank_1 = member(place(1, 2, &at), LIMIT);
    let mut sessions = [joined(rank_0), joined(rank_1)];
    for parts in
        each(&mut sessions, |session| session.all_gather(&[session.rank().0 as u8]).unwrap())
    {
        assert_eq!(parts, [[0], [1]]);
    }
}

#[test]
fn loopback_needs_no_token_and_all_else_does() {
    let (listener, at) = listener();
    let open = |rank| Place { token: None, ..place(rank, 2, &at) };
    let rank_0 = root(open(0), listener, LIMIT);
    let rank_1 = member(open(1), LIMIT);
    drop((joined(rank_0), joined(rank_1)));

    for rank in 0..2 {
        // This address is reserved for documentation, so no host has it.
        let far = Root::new("192.0.2.1", 29_753);
        let open = Place { token: None, ..place(rank, 2, &far) };
        let error = Rendezvous::new(open).limit(SHORT).join().unwrap_err();
        assert!(matches!(error, Error::NoToken { .. }), "{error}");
        assert!(error.to_string().contains("set FOLDWIRE_TOKEN"), "{error}");
    }
}

/// The root names the loopback interface, but others can reach the socket.
#[test]
fn a_socket_that_others_can_reach_needs_a_token() {
    for address in ["0.0.0.0:0", "[::]:0"] {
        let Ok(listener) = TcpListener::bind(address) else { continue };
        let at = Root::loopback(listener.local_addr().unwrap().port());
        let open = Place { token: None, ..place(0, 2, &at) };
        let error = Rendezvous::new(open).listener(listener).limit(SHORT).join().unwrap_err();
        assert!(matches!(error, Error::NoToken { .. }), "{error}");
        assert!(!error.to_string().contains("127.0.0.1"), "{error}");
    }
}

#[test]
fn a_single_rank_needs_no_network() {
    let place = Place { size: 1, token: None, ..place(0, 1, &Root::new("no.such.host", 1)) };
    let mut session = Rendezvous::new(place).join().unwrap();
    assert_eq!(session.all_gather(b"x").unwrap(), [b"x"]);
    assert_eq!(session.poll_lost(), None);
}

#[test]
fn a_port_in_use_is_an_error_that_names_it() {
    let (_taken, at) = listener();
    let error = Rendezvous::new(place(0, 2, &at)).limit(SHORT).join().unwrap_err();
    assert!(matches!(error, Error::Listen { .. }), "{error}");
    assert!(error.to_string().contains(&at.to_string()), "{error}");
}

#[test]
fn an_unknown_host_is_an_error_at_the_limit_that_names_it() {
    let nowhere = Root::new("no.such.host.invalid", 1);
    for rank in [0, 1] {
        let start = Instant::now();
        let error = Rendezvous::new(place(rank, 2, &nowhere)).limit(SHORT).join().unwrap_err();
        assert!(matches!(error, Error::Resolve { .. }), "{error}");
        assert!(error.to_string().contains("no.such.host.invalid"), "{error}");
        assert!(start.elapsed() < LIMIT);
    }
}
