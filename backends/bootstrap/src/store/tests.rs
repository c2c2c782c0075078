//! Every store keeps the contract, and ranks meet in each of them.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use foldwire::Rank;
use foldwire::store::{MAX_VALUE_BYTES, Store, StoreError, StoreRequest};

use super::*;
use crate::message::{MAX_GIVEN_BYTES, Refusal};
use crate::{Error, Exchange, Token};

const LIMIT: Duration = Duration::from_secs(20);

/// A folder for one test, removed at its end.
struct TemporaryFolder(PathBuf);

impl TemporaryFolder {
    fn new(name: &str) -> Self {
        let folder = format!("foldwire-store-{name}-{}", std::process::id());
        Self(std::env::temp_dir().join(folder))
    }
}

impl Drop for TemporaryFolder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn token() -> Option<Token> {
    Some(Token::new("0123456789abcdef").unwrap())
}

/// Calls `body` with a function that opens a store over TCP, which another thread hosts.
fn with_tcp(token: Option<Token>, body: impl FnOnce(SocketAddr)) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut host = TcpStore::host(listener, token).unwrap();
            while !is_over.load(Ordering::Relaxed) {
                host.progress();
                thread::sleep(Duration::from_micros(200));
            }
        });
        let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| body(address)));
        is_over.store(true, Ordering::Relaxed);
        ended.unwrap();
    });
}

/// Checks the contract with two ends of one store.
fn keeps_the_contract(mut one: impl Store, mut two: impl Store + Send) {
    assert_eq!(one.get("a/b"), Ok(None));
    let start = Instant::now();
    assert_eq!(one.wait("a/b", Duration::from_millis(30)), Ok(None));
    assert!(start.elapsed() >= Duration::from_millis(29));
    one.set("a/b", b"first").unwrap();
    assert_eq!(two.get("a/b").unwrap().as_deref(), Some(&b"first"[..]));
    two.set("a/b", b"").unwrap();
    assert_eq!(one.wait("a/b", LIMIT).unwrap().as_deref(), Some(&b""[..]));
    assert_eq!(one.get("a"), Ok(None), "a prefix of a key is another key");
    let long = vec![7; MAX_VALUE_BYTES];
    one.set("long", &long).unwrap();
    assert!(two.get("long").unwrap() == Some(long));
    for key in ["", "a b", "../a\0"] {
        assert_eq!(one.set(key, b""), Err(StoreError::Key), "{key}");
        assert_eq!(one.get(key), Err(StoreError::Key), "{key}");
        assert_eq!(one.wait(key, LIMIT), Err(StoreError::Key), "{key}");
    }
    let n_bytes = MAX_VALUE_BYTES + 1;
    assert_eq!(one.set("long", &vec![0; n_bytes]), Err(StoreError::TooLong { n_bytes }));
    one.set("../../a", b"not outside").unwrap();
    assert_eq!(two.get("../../a").unwrap().as_deref(), Some(&b"not outside"[..]));
    thread::scope(|scope| {
        scope.spawn(move || {
            thread::sleep(Duration::from_millis(30));
            two.set("late", b"value").unwrap();
        });
        assert_eq!(one.wait("late", LIMIT).unwrap().as_deref(), Some(&b"value"[..]));
    });
}

#[test]
fn every_store_keeps_the_contract() {
    let memory = MemoryStore::default();
    keeps_the_contract(memory.clone(), memory);
    let folder = TemporaryFolder::new("contract");
    let file = || FileStore::new(&folder.0).unwrap();
    keeps_the_contract(file(), file());
    let names = std::fs::read_dir(&folder.0).unwrap().map(|entry| entry.unwrap().file_name());
    assert_eq!(names.filter(|name| name.to_string_lossy().starts_with('t')).count(), 0);
    for token in [None, token()] {
        with_tcp(token.clone(), |address| {
            let open = || TcpStore::connect(address, token.clone(), LIMIT);
            keeps_the_contract(open(), open());
        });
    }
}

/// Other processes may write to the folder. A pipe would block who opens it.
#[cfg(unix)]
#[test]
fn what_is_no_file_is_no_value_and_stops_nobody() {
    let folder = TemporaryFolder::new("pipe");
    let mut store = FileStore::new(&folder.0).unwrap();
    let made = std::process::Command::new("mkfifo").arg(folder.0.join("kpipe")).status();
    assert!(made.unwrap().success());
    std::fs::create_dir(folder.0.join("kfolder")).unwrap();
    let (ended, outcome) = std::sync::mpsc::channel();
    thread::spawn(move || {
        _ = ended.send(["pipe", "folder"].map(|key| store.wait(key, Duration::ZERO)));
    });
    let outcome = outcome.recv_timeout(LIMIT).expect("a pipe blocks nobody");
    assert_eq!(outcome, [Err(StoreError::Damaged), Err(StoreError::Damaged)]);
}

/// Lets the ranks gather twice, each with its own store.
fn gather<S: Store>(size: usize, open: impl Fn(usize) -> S + Sync) {
    thread::scope(|scope| {
        for rank in 0..size {
            let open = &open;
            scope.spawn(move || {
                let place = StorePlace { limit: LIMIT, ..StorePlace::new(rank, size, "job") };
                let mut exchange = StoreExchange::new(open(rank), place).unwrap();
                for round in 0..2 {
                    let all = exchange.all_gather(&vec![rank as u8; rank + round]).unwrap();
                    let expected = (0..size).map(|rank| vec![rank as u8; rank + round]);
                    assert_eq!(all, expected.collect::<Vec<_>>());
                }
                exchange.barrier().unwrap();
            });
        }
    });
}

#[test]
fn ranks_meet_in_every_store() {
    for size in [1, 2, 5] {
        let memory = MemoryStore::default();
        gather(size, |_| memory.clone());
        let folder = TemporaryFolder::new(&format!("meet-{size}"));
        gather(size, |_| FileStore::new(&folder.0).unwrap());
        with_tcp(token(), |address| gather(size, |_| TcpStore::connect(address, token(), LIMIT)));
    }
}

fn outcomes(size: usize, places: Vec<StorePlace>) -> Vec<Result<Vec<Vec<u8>>, Error>> {
    let store = MemoryStore::default();
    assert_eq!(places.len(), size);
    thread::scope(|scope| {
        let ranks: Vec<_> = places
            .into_iter()
            .enumerate()
            .map(|(nth, place)| {
                let store = store.clone();
                scope.spawn(move || StoreExchange::new(store, place)?.all_gather(&[nth as u8]))
            })
            .collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}

#[test]
fn all_ranks_learn_who_is_missing() {
    let limit = Duration::from_millis(200);
    let place = |rank| StorePlace { limit, ..StorePlace::new(rank, 4, "job") };
    for outcome in outcomes(2, vec![place(0), place(2)]) {
        match outcome {
            Err(Error::Missing { missing, size: 4, .. }) => {
                assert_eq!(missing.first(), [Rank(1), Rank(3)]);
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn ranks_that_do_not_fit_together_learn_why() {
    let limit = Duration::from_millis(200);
    let place = |rank, size| StorePlace { limit, ..StorePlace::new(rank, size, "job") };
    for outcome in outcomes(2, vec![place(0, 2), place(1, 3)]) {
        match outcome {
            Err(Error::Unfit { rank, reason: Refusal::Size { theirs, ours }, .. }) => {
                assert_eq!((rank, theirs, ours), (Rank(1), 3, 2));
            }
            other => panic!("{other:?}"),
        }
    }
    let twice = outcomes(3, vec![place(0, 2), place(1, 2), place(1, 2)]);
    let n_refused = twice.iter().filter(|it| matches!(it, Err(Error::SameRank { .. }))).count();
    assert_eq!(n_refused, 1, "{twice:?}");
    let store = MemoryStore::default;
    for (rank, size) in [(2, 2), (0, 0), (0, 1 << 17)] {
        let made = StoreExchange::new(store(), StorePlace::new(rank, size, "job"));
        assert!(matches!(made, Err(Error::BadPlace { .. })), "{rank} of {size}");
    }
    let made = StoreExchange::new(store(), StorePlace::new(0, 1, "two words"));
    assert!(matches!(made, Err(Error::Store(StoreError::Key))));
}

#[test]
fn hostile_values_are_errors() {
    for value in [&b""[..], b"\x01", &[2, 0, 0, 0, 1], &[2, 0, 0, 0, 9, 1], &[0xff; 64]] {
        let mut store = MemoryStore::default();
        store.set("job/0/0/1", value).unwrap();
        store.set("job/0/0", value).unwrap();
        for rank in 0..2 {
            let limit = Duration::from_millis(20);
            let place = StorePlace { limit, ..StorePlace::new(rank, 2, "job") };
            // Rank 1 overwrites its own value; rank 0 reads the hostile one.
            let mut exchange = StoreExchange::new(store.clone(), place).unwrap();
            let outcome = exchange.all_gather(&[5]);
            let is_typed = matches!(outcome, Err(Error::Store(_) | Error::Unfit { .. }));
            let could_be_sound = rank == 0 && value.starts_with(&[2, 0, 0, 0]);
            assert!(is_typed || outcome.is_ok() && could_be_sound, "{value:?}: {outcome:?}");
            store.set("job/0/0", value).unwrap();
        }
    }
}

/// Sets a rank's input of the first round, as the rank itself would.
fn give(store: &mut impl Store, rank: usize, size: u32, bytes: &[u8]) {
    let part = [&size.to_le_bytes()[..], bytes].concat();
    store.set(&format!("job/0/0/{rank}"), &part).unwrap();
}

/// 70 inputs of 64 KiB are longer than one value may be.
#[test]
fn inputs_that_are_too_long_for_one_value_come_in_several() {
    let (mut store, size) = (MemoryStore::default(), 70);
    let input = |rank: usize| vec![rank as u8; MAX_GIVEN_BYTES];
    (1..size).for_each(|rank| give(&mut store, rank, size as u32, &input(rank)));
    for rank in [0, 1, size - 1] {
        let place = StorePlace { limit: LIMIT, ..StorePlace::new(rank, size, "job") };
        let all = StoreExchange::new(store.clone(), place).unwrap().all_gather(&input(rank));
        let all = all.unwrap();
        assert!(all.len() == size && all.iter().zip(0..).all(|(it, rank)| *it == input(rank)));
    }
}

/// Lets ranks 0 and 1 of 3 gather, and returns their errors, which come long before the limit.
fn errors(mut store: impl Store + Clone + Send, part_of_2: &[u8]) -> [Error; 2] {
    store.set("job/0/0/2", part_of_2).unwrap();
    let start = Instant::now();
    let errors = thread::scope(|scope| {
        [1, 0]
            .map(|rank| {
                let place = StorePlace { limit: LIMIT, ..StorePlace::new(rank, 3, "job") };
                let mut exchange = StoreExchange::new(store.clone(), place).unwrap();
                scope.spawn(move || exchange.all_gather(&[rank as u8; 1000]).unwrap_err())
            })
            .map(|rank| rank.join().unwrap())
    });
    assert!(start.elapsed() < LIMIT / 2, "{:?}", start.elapsed());
    errors
}

#[test]
fn all_ranks_learn_at_once_why_rank_0_cannot_gather() {
    for error in errors(MemoryStore::default(), b"?") {
        assert!(matches!(error, Error::Store(StoreError::Damaged)), "{error}");
    }
    let mut memory = MemoryStore::default();
    let small = move |request: StoreRequest<'_>| match request {
        StoreRequest::Set { value, .. } if value.len() > 2000 => Err(StoreError::Full),
        StoreRequest::Set { key, value } => memory.set(key, value).map(|()| None),
        StoreRequest::Get { key } => memory.get(key),
        StoreRequest::Wait { key, limit } => memory.wait(key, limit),
    };
    let part = [&3u32.to_le_bytes()[..], &[2; 1000]].concat();
    for error in errors(small, &part) {
        assert!(matches!(error, Error::Store(StoreError::Full)), "{error}");
    }
    for error in errors(MemoryStore::default(), &[4, 0, 0, 0]) {
        match error {
            Error::Unfit {
                rank: Rank(2), reason: Refusal::Size { theirs: 4, ours: 3 }, ..
            } => {}
            other => panic!("{other}"),
        }
    }
}

#[test]
fn the_first_error_is_the_one_that_is_told() {
    let broken = |request: StoreRequest<'_>| match request {
        StoreRequest::Wait { .. } => Err(StoreError::Damaged),
        _ => Err(StoreError::Failed),
    };
    let mut exchange = StoreExchange::new(broken, StorePlace::new(0, 2, "job")).unwrap();
    let error = exchange.all_gather(b"").unwrap_err();
    assert!(matches!(error, Error::Store(StoreError::Damaged)), "{error}");
}

#[test]
fn who_does_not_know_the_token_gets_nothing() {
    let other = Some(Token::new("0123456789abcdeF").unwrap());
    with_tcp(token(), |address| {
        let mut ours = TcpStore::connect(address, token(), LIMIT);
        ours.set("key", b"secret").unwrap();
        for wrong in [None, other] {
            let mut stranger = TcpStore::connect(address, wrong, LIMIT);
            assert_eq!(stranger.get("key"), Err(StoreError::Untrusted));
            assert_eq!(stranger.set("key", b"theirs"), Err(StoreError::Untrusted));
        }
        // Bytes of another protocol, and silence.
        let mut silent = Vec::new();
        for nth in 0..100 {
            let mut socket = TcpStream::connect(address).unwrap();
            if nth % 2 == 0 {
                let _ = socket.write_all(&[0x5a; 200]);
            }
            silent.push(socket);
        }
        assert_eq!(ours.get("key").unwrap().as_deref(), Some(&b"secret"[..]));
        let mut said = Vec::new();
        let mut first = silent.swap_remove(0);
        first.set_read_timeout(Some(LIMIT)).unwrap();
        let _ = first.read_to_end(&mut said);
        assert!(said.len() <= 32, "only the nonce");
    });
    // The other way around: the host is the stranger.
    with_tcp(None, |address| {
        let mut ours = TcpStore::connect(address, token(), LIMIT);
        assert_eq!(ours.get("key"), Err(StoreError::Untrusted));
    });
    let everywhere = TcpListener::bind("0.0.0.0:0").unwrap();
    assert!(TcpStore::host(everywhere, None).is_err());
}

/// A host resets a connection without a proof if many wait, at any moment.
#[test]
fn a_process_whose_connection_is_reset_tries_again() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let client =
        thread::spawn(move || TcpStore::connect(address, token(), LIMIT).set("key", b"value"));
    listener.set_nonblocking(true).unwrap();
    let accepted = || loop {
        match listener.accept() {
            Ok((socket, _)) => break socket,
            Err(_) if client.is_finished() => panic!("the client has given up"),
            Err(_) => thread::sleep(Duration::from_millis(1)),
        }
    };
    for (nonce, proof) in [(0, 0), (7, 0), (32, 0), (32, 64), (32, 64), (32, 64), (32, 64)] {
        let mut socket = accepted();
        socket.set_nonblocking(false).unwrap();
        socket.write_all(&vec![9; nonce]).unwrap();
        socket.read_exact(&mut vec![0; proof]).unwrap();
        socket2::SockRef::from(&socket).set_linger(Some(Duration::ZERO)).unwrap();
    }
    let mut host = TcpStore::host(listener, token()).unwrap();
    while !client.is_finished() {
        host.progress();
        thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(client.join().unwrap(), Ok(()));
}

/// Lets many processes set a value each, while the host is busy at first.
fn crowd(n_clients: usize, n_strangers: usize) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let mut host = TcpStore::host(listener, token()).unwrap();
    let strangers: Vec<_> =
        (0..n_strangers).map(|_| TcpStream::connect(address).unwrap()).collect();
    thread::scope(|scope| {
        let clients: Vec<_> = (0..n_clients)
            .map(|nth| {
                scope.spawn(move || {
                    let mut store = TcpStore::connect(address, token(), LIMIT);
                    store.set(&format!("key-{nth}"), b"value")
                })
            })
            .collect();
        thread::sleep(Duration::from_millis(300));
        while clients.iter().any(|client| !client.is_finished()) {
            host.progress();
            thread::sleep(Duration::from_millis(1));
        }
        for client in clients {
            assert_eq!(client.join().unwrap(), Ok(()));
        }
    });
    drop(strangers);
}

#[test]
fn many_processes_reach_a_busy_host_at_once() {
    crowd(128, 0);
}

#[test]
fn a_crowd_of_silent_strangers_keeps_no_process_out() {
    crowd(8, 100);
}

/// No host listens; one listens and says nothing; one is busy.
#[test]
fn who_waits_for_a_host_can_end_the_wait() {
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let busy = TcpListener::bind("127.0.0.1:0").unwrap();
    let (silent_at, busy_at) = (silent.local_addr().unwrap(), busy.local_addr().unwrap());
    let mut host = TcpStore::host(busy, None).unwrap();
    let connected = thread::spawn(move || {
        let mut store = TcpStore::connect(busy_at, None, LIMIT);
        store.set("key", b"value").unwrap();
        store
    });
    while !connected.is_finished() {
        host.progress();
    }
    let stores = [nobody, silent_at].map(|at| TcpStore::connect(at, None, LIMIT));
    for (nth, store) in stores.into_iter().chain(connected.join().ok()).enumerate() {
        let start = Instant::now();
        let mut store = store.with_stop_check(move || start.elapsed() < LIMIT / 100);
        for _ in 0..2 {
            assert_eq!(store.wait("key", LIMIT), Err(StoreError::Failed), "{nth}");
            assert_eq!(store.set("key", b"value"), Err(StoreError::Failed), "{nth}");
        }
        assert!(start.elapsed() < LIMIT / 4, "{nth}");
    }
}

#[test]
fn a_host_that_is_gone_is_an_error_in_time() {
    let unused = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let start = Instant::now();
    let mut store = TcpStore::connect(unused, None, Duration::from_millis(100));
    assert_eq!(store.get("key"), Err(StoreError::Unreachable));
    assert!(start.elapsed() < LIMIT / 2);
}
