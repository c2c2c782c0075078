//! Wrong or hostile connections to rank 0: the group joins all the same, and a refused process
//! learns the reason.

use std::io::{Read, Write};
use std::net::TcpStream;

use foldwire_bootstrap::JOB_BYTES;
use foldwire_bootstrap::message::{
    self, MAX_MESSAGE_BYTES, Message, NONCE_BYTES, PROOF_BYTES, Refusal,
};
use foldwire_bootstrap::protocol::{Admission, AdmissionVerdict, JoinRequest};

use super::*;

fn connect(at: &Root) -> TcpStream {
    let stream = TcpStream::connect(address(at)).expect("rank 0 listens");
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    stream
}

/// Hello of a process that knows everything but the token.
fn hello(rank: u32, size: u32) -> Vec<u8> {
    hello_of(rank, size, Job::at_given_root())
}

fn hello_of(rank: u32, size: u32, job: Job) -> Vec<u8> {
    let (rank, job) = (Rank(rank), job.id());
    let (nonce, proof) = ([9; NONCE_BYTES], [0; PROOF_BYTES]);
    let mut bytes = Vec::new();
    Message::Hello { rank, size, job, nonce, proof }.emit(&mut bytes);
    bytes
}

/// Valid hello: a rank sends it, and another process may replay it.
fn true_hello(place: &Place) -> Vec<u8> {
    let mut bytes = Vec::new();
    JoinRequest::new(place, [8; NONCE_BYTES]).hello().emit(&mut bytes);
    bytes
}

/// Sends `bytes` and returns the refusal in the reply, ignoring a challenge before it.
fn refusal(at: &Root, bytes: &[u8]) -> Option<Refusal> {
    let mut stream = connect(at);
    stream.write_all(bytes).unwrap();
    let mut answer = Vec::new();
    // A reset ends the reply as well.
    let _ = stream.read_to_end(&mut answer);
    let mut rest = &answer[..];
    while let Ok(Some((message, n_bytes))) = message::parse(rest) {
        if let Message::Refusal(reason) = message {
            return Some(reason);
        }
        rest = &rest[n_bytes..];
    }
    None
}

#[test]
fn strangers_neither_stop_nor_delay_the_group() {
    let (listener, at) = listener();
    let start = Instant::now();
    let rank_0 = root(place(0, 3, &at), listener, LIMIT);

    let silent: Vec<_> = (0..20).map(|_| connect(&at)).collect();
    let mut slow = connect(&at);
    slow.write_all(&hello(1, 3)[..7]).unwrap();
    let mut challenged = connect(&at);
    challenged.write_all(&true_hello(&place(1, 3, &at))).unwrap();
    drop(connect(&at));

    // The version follows the magic, which has 8 bytes.
    let mut next_version = hello(1, 3);
    next_version[message::HEAD_BYTES + 8] = 3;
    let recorded = true_hello(&place(1, 3, &at));
    // A recorded hello, and an answer (kind 3, 32 bytes) with a wrong proof.
    let unproven = [&recorded[..], &[3, 32, 0, 0, 0], &[0; 32]].concat();
    let other = Job::named(&["other"]);
    let start_of = |id: [u8; JOB_BYTES]| u32::from_be_bytes([id[0], id[1], id[2], id[3]]);
    let (theirs, ours) = (start_of(other.id()), start_of(Job::at_given_root().id()));
    // An answer without a hello.
    let skipping = [&[3, 32, 0, 0, 0][..], &[0; 32]].concat();
    // A message of kind 7 that announces 4 GiB.
    let huge = [7, 0xff, 0xff, 0xff, 0xff];
    for (bytes, reason) in [
        (&b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"[..], Refusal::Garbage),
        (&huge, Refusal::Garbage),
        (&skipping, Refusal::Garbage),
        (&next_version, Refusal::Version { theirs: 3 }),
        (&hello_of(1, 3, other), Refusal::Job { theirs, ours }),
        (&hello(1, 3), Refusal::Token),
        (&hello(1, 4), Refusal::Token),
        (&hello(3, 3), Refusal::Token),
        (&true_hello(&place(1, 4, &at)), Refusal::Size { theirs: 4, ours: 3 }),
        (&true_hello(&place(0, 3, &at)), Refusal::Rank { rank: 0, size: 3 }),
        (&true_hello(&place(3, 3, &at)), Refusal::Rank { rank: 3, size: 3 }),
        (&true_hello(&place(u32::MAX, 3, &at)), Refusal::Rank { rank: u32::MAX, size: 3 }),
        (&unproven, Refusal::Token),
    ] {
        assert_eq!(refusal(&at, bytes), Some(reason));
    }
    let mut flood = connect(&at);
    // Rank 0 may close the connection before all is written.
    let _ = flood.write_all(&vec![8; 4 * MAX_MESSAGE_BYTES]);

    let rank_1 = member(place(1, 3, &at), LIMIT);
    let rank_2 = member(place(2, 3, &at), LIMIT);
    let mut sessions = [joined(rank_0), joined(rank_1), joined(rank_2)];
    assert!(
        start.elapsed() < Duration::from_secs(4),
        "it must not wait for the deadline of silent connections"
    );
    for result in each(&mut sessions, Exchange::barrier) {
        result.expect("the group is whole");
    }
    drop((silent, slow, challenged, flood));
}

/// Rank 0 waits at least half a second after the last refusal before it gives up.
#[test]
fn strangers_who_do_not_know_the_size_cannot_end_the_wait() {
    let (listener, at) = listener();
    let rank_0 = root(place(0, 5, &at), listener, LIMIT);
    for token in [None, Token::new("another secret of it").ok()] {
        for (rank, size) in [(1, 2), (1, 500), (4, 500)] {
            let stranger = Place { token: token.clone(), ..place(rank, size, &at) };
            let error = failed(member(stranger, LIMIT));
            assert!(matches!(error, Error::Refused { reason: Refusal::Token, .. }), "{error}");
        }
    }
    for rank in 1..500 {
        assert_eq!(refusal(&at, &hello(rank, 500)), Some(Refusal::Token));
    }
    thread::sleep(Duration::from_secs(1));
    let others = [1, 2, 3, 4].map(|rank| member(place(rank, 5, &at), LIMIT));
    drop((joined(rank_0), others.map(joined)));
}

#[test]
fn a_crowd_of_silent_strangers_does_not_keep_ranks_out() {
    let (listener, at) = listener();
    let rank_0 = root(place(0, 2, &at), listener, LIMIT);
    let crowd: Vec<_> = (0..150).map(|_| connect(&at)).collect();
    let rank_1 = member(place(1, 2, &at), LIMIT);
    drop((joined(rank_0), joined(rank_1)));
    drop(crowd);
}

/// Acts as rank 0 up to a rank's answer, or with `at_once` up to its hello. Then sends `reason`, if
/// any, and closes the connection.
fn put_off(listener: &TcpListener, place: &Place, at_once: bool, reason: Option<Refusal>) {
    let (stream, _) = listener.accept().unwrap();
    let (mut admission, mut received) = (Admission::default(), Vec::new());
    let say = |message: &Message<'_>| {
        let mut bytes = Vec::new();
        message.emit(&mut bytes);
        (&stream).write_all(&bytes).unwrap();
    };
    loop {
        let mut bytes = [0; 1024];
        let n_bytes = (&stream).read(&mut bytes).unwrap();
        assert!(n_bytes > 0, "the rank closed the connection");
        received.extend_from_slice(&bytes[..n_bytes]);
        let Some((message, n_bytes)) = message::parse(&received).unwrap() else { continue };
        let draw = || Ok::<_, ()>([5; NONCE_BYTES]);
        match admission.receive(Ok(message), place, draw, |_| false).unwrap() {
            AdmissionVerdict::Challenge { nonce, proof } if !at_once => {
                say(&Message::Challenge { nonce, proof });
            }
            verdict => {
                assert!(!matches!(verdict, AdmissionVerdict::TurnAway(_)));
                reason.iter().for_each(|&reason| say(&Message::Refusal(reason)));
                return;
            }
        }
        received.drain(..n_bytes);
    }
}

#[test]
fn a_rank_that_is_put_off_knocks_again() {
    let slow = Some(Refusal::Slow);
    for (at_once, reason) in [(true, slow), (true, None), (false, slow), (false, None)] {
        let (listener, at) = listener();
        let rank_1 = member(place(1, 2, &at), LIMIT);
        put_off(&listener, &place(0, 2, &at), at_once, reason);
        let rank_0 = root(place(0, 2, &at), listener, LIMIT);
        drop((joined(rank_0), joined(rank_1)));
    }
}

#[test]
fn a_silent_stranger_is_turned_away() {
    let (listener, at) = listener();
    let rank_0 = root(place(0, 2, &at), listener, LIMIT);
    assert_eq!(refusal(&at, b""), Some(Refusal::Slow));
    let rank_1 = member(place(1, 2, &at), LIMIT);
    drop((joined(rank_0), joined(rank_1)));
}

#[test]
fn a_wrong_token_is_found_on_both_sides() {
    let (listener, at) = listener();
    let rank_0 = root(place(0, 2, &at), listener, Duration::from_secs(2));
    for wrong in [Token::new("another secret of it").ok(), None] {
        let error = failed(member(Place { token: wrong, ..place(1, 2, &at) }, LIMIT));
        assert!(matches!(error, Error::Refused { reason: Refusal::Token, .. }), "{error}");
        assert!(error.to_string().contains("FOLDWIRE_TOKEN"), "{error}");
    }
    let error = failed(rank_0);
    assert!(matches!(error, Error::Unfit { reason: Refusal::Token, .. }), "{error}");
    assert!(error.to_string().contains("its FOLDWIRE_TOKEN differs from rank 0's"), "{error}");
}

#[test]
fn a_wrong_size_and_a_rank_that_is_there_are_refused_with_the_reason() {
    let (listener, at) = listener();
    let rank_0 = root(place(0, 3, &at), listener, LIMIT);
    let rank_1 = member(place(1, 3, &at), LIMIT);
    let error = failed(member(place(1, 4, &at), LIMIT));
    assert!(
        matches!(error, Error::Refused { reason: Refusal::Size { theirs: 4, ours: 3 }, .. }),
        "{error}"
    );

    // Rank 1 or its twin may join first. The other one is refused.
    let twin = member(place(1, 3, &at), LIMIT);
    while !(rank_1.is_finished() || twin.is_finished()) {
        thread::sleep(Duration::from_millis(1));
    }
    let (refused, other) = if twin.is_finished() { (twin, rank_1) } else { (rank_1, twin) };
    let error = failed(refused);
    assert!(
        matches!(error, Error::Refused { reason: Refusal::Duplicate { rank: 1 }, .. }),
        "{error}"
    );
    let rank_2 = member(place(2, 3, &at), LIMIT);
    drop((joined(rank_0), joined(other), joined(rank_2)));
}

#[test]
fn a_listener_of_another_kind_is_no_rank_0() {
    let (listener, at) = listener();
    let server = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(b"220 mail.example.org ESMTP\r\n").unwrap();
        stream
    });
    let error = failed(member(place(1, 2, &at), LIMIT));
    assert!(matches!(error, Error::Impostor { .. }), "{error}");
    drop(server.join());
}

#[test]
fn a_root_that_cannot_prove_itself_learns_nothing() {
    let (listener, at) = listener();
    let server = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut challenge = Vec::new();
        Message::Challenge { nonce: [1; 32], proof: [2; 32] }.emit(&mut challenge);
        stream.write_all(&challenge).unwrap();
        let mut received = Vec::new();
        stream.read_to_end(&mut received).unwrap();
        received
    });
    let error = failed(member(place(1, 2, &at), LIMIT));
    assert!(matches!(error, Error::Impostor { .. }), "{error}");
    let received = server.join().unwrap();
    let (_, n_hello) = message::parse(&received).unwrap().expect("a hello");
    let (rest, n_rest) = message::parse(&received[n_hello..]).unwrap().expect("a refusal");
    assert_eq!(rest, Message::Refusal(Refusal::Token), "no answer to the challenge");
    assert_eq!(received.len(), n_hello + n_rest);
}
