//! A small PMI server: one that behaves, and ones that do not.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Barrier, Mutex};
use std::thread;
use std::time::Duration;

use super::meet::{Meeting, PmiRequest, meet};
use super::*;

const LIMIT: Duration = Duration::from_secs(20);

/// The values that ranks share at an honest server.
#[derive(Clone)]
struct Store {
    values: Arc<Mutex<HashMap<String, String>>>,
    barrier: Arc<Barrier>,
}

impl Store {
    fn new(size: usize) -> Self {
        Self { values: Arc::default(), barrier: Arc::new(Barrier::new(size)) }
    }

    /// Serves one rank until it says goodbye. Returns whether it did.
    fn serve(&self, mut lines: impl BufRead, mut out: impl Write) -> bool {
        loop {
            let mut line = String::new();
            if lines.read_line(&mut line).unwrap() == 0 {
                return false;
            }
            let reply = PmiReply::read(line.trim_end().as_bytes()).unwrap();
            let text = |key| reply.text(key).unwrap().to_owned();
            let answer = match reply.text("cmd").unwrap() {
                "initack" => {
                    "cmd=initack rc=0\ncmd=set size=2\ncmd=set rank=1\ncmd=set debug=0".into()
                }
                "init" => "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0".into(),
                "get_maxes" => "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024".into(),
                "get_my_kvsname" => "cmd=my_kvsname kvsname=kvs_7_0".into(),
                "put" => {
                    self.values.lock().unwrap().insert(text("key"), text("value"));
                    "cmd=put_result rc=0 msg=success".into()
                }
                "barrier_in" => {
                    self.barrier.wait();
                    "cmd=barrier_out".into()
                }
                "get" => match self.values.lock().unwrap().get(&text("key")) {
                    Some(value) => format!("cmd=get_result rc=0 msg=success value={value}"),
                    None => "cmd=get_result rc=-1 msg=key_not_found value=unknown".into(),
                },
                "finalize" => {
                    writeln!(out, "cmd=finalize_ack").unwrap();
                    return true;
                }
                other => panic!("{other}"),
            };
            writeln!(out, "{answer}").unwrap();
        }
    }
}

fn request(server: PmiServer, place: Option<(u64, u64)>, local_ranks: Option<u64>) -> PmiRequest {
    PmiRequest { server, place, local_ranks, address: None }
}

#[test]
fn ranks_meet_through_inherited_sockets() {
    let store = Store::new(3);
    let met: Vec<Meeting> = thread::scope(|scope| {
        let ranks: Vec<_> = (0..3)
            .map(|rank| {
                let (theirs, ours) = UnixStream::pair().unwrap();
                let store = store.clone();
                let serving = scope.spawn(move || {
                    store.serve(BufReader::new(theirs.try_clone().unwrap()), theirs)
                });
                scope.spawn(move || {
                    let server = PmiServer::Descriptor(ours.as_raw_fd());
                    let met = meet(&request(server, Some((rank, 3)), Some(3)), LIMIT);
                    assert!(serving.join().unwrap(), "rank {rank} says goodbye");
                    let (meeting, listener) = met.unwrap();
                    assert_eq!(listener.is_some(), rank == 0);
                    meeting
                })
            })
            .collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    });
    assert!(met.iter().zip(0..).all(|(met, rank)| (met.rank, met.size) == (rank, 3)));
    assert!(met[0].root.is_loopback(), "all ranks are on one machine");
    for other in &met[1..] {
        assert_eq!((&other.root, &other.name), (&met[0].root, &met[0].name));
        assert_eq!(other.secret, met[0].secret);
    }
}

#[test]
fn a_server_with_a_port_tells_rank_and_size() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let store = Store::new(1);
    let value = "foldwire1,10.0.0.1:77,0123456789abcdef0123456789abcdef,\
                 fedcba9876543210fedcba9876543210";
    store.values.lock().unwrap().insert("foldwire-root".into(), value.into());
    let serving = thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        store.serve(BufReader::new(stream.try_clone().unwrap()), stream)
    });
    let server = PmiServer::Port { address, id: 1 };
    let (met, _) = meet(&request(server, None, None), LIMIT).unwrap();
    assert_eq!((met.rank, met.size, met.root.to_string()), (1, 2, "10.0.0.1:77".to_owned()));
    assert!(serving.join().unwrap());
}

/// Meets as rank 1 of 2 at a server that answers with these bytes, and then closes the connection.
fn answered(bytes: &[u8]) -> Result<(), PmiError> {
    let (theirs, ours) = UnixStream::pair().unwrap();
    (&theirs).write_all(bytes).unwrap();
    theirs.shutdown(std::net::Shutdown::Write).unwrap();
    let server = PmiServer::Descriptor(ours.as_raw_fd());
    meet(&request(server, Some((1, 2)), None), LIMIT).map(|_| ())
}

const HONEST: [&str; 6] = [
    "cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=1\n",
    "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024\n",
    "cmd=my_kvsname kvsname=a\n",
    "cmd=barrier_out\n",
    "cmd=get_result rc=0 value=foldwire1,10.0.0.1:77,0123456789abcdef0123456789abcdef,\
     fedcba9876543210fedcba9876543210\n",
    "cmd=finalize_ack\n",
];

#[test]
fn every_part_of_a_conversation_is_a_typed_error_and_the_whole_is_none() {
    let whole = HONEST.concat();
    assert_eq!(answered(whole.as_bytes()), Ok(()));
    for end in 0..whole.len() {
        let error = answered(&whole.as_bytes()[..end]).unwrap_err();
        assert!(matches!(error, PmiError::Closed { .. }), "{end}: {error}");
    }
}

#[test]
fn answers_that_cannot_be_are_typed_errors() {
    for (at, answer, part) in [
        (0, "cmd=response_to_init rc=1 pmi_version=1\n", "refused `init`"),
        (0, "cmd=response_to_init rc=0 pmi_version=2\n", "not version 1"),
        (0, "cmd=response-to-init;rc=0\n", "not version 1"),
        (0, "   51cmd=fullinit-response;rc=0;\n", "not version 1"),
        (0, "\n", "not version 1"),
        (1, "cmd=maxes keylen_max=64\n", "not version 1"),
        (1, "cmd=maxes keylen_max=-1 vallen_max=1024\n", "not version 1"),
        (1, "cmd=maxes keylen_max=64 vallen_max=99999999999999999999\n", "not version 1"),
        (1, "cmd=maxes keylen_max=64 vallen_max=64\n", "vallen_max=64, but 160"),
        (1, "cmd=maxes keylen_max=13 vallen_max=1024\n", "keylen_max=13, but 13"),
        (2, "cmd=my_kvsname kvsname=\n", "not version 1"),
        (3, "cmd=barrier_out rc=-1\n", "refused `barrier_in`"),
        (4, "cmd=get_result rc=-1 msg=key_not_found value=unknown\n", "refused `get`"),
        (4, "cmd=get_result rc=0\n", "not version 1"),
        (4, "cmd=get_result rc=0 value=-\n", "rank 0 could not listen"),
        (4, "cmd=get_result rc=0 value=foldwire2,10.0.0.1:77\n", "published `foldwire2`"),
        (4, "cmd=get_result rc=0 value=foldwire1,10.0.0.1:0,0,0\n", "published `foldwire1`"),
        (4, "cmd=get_result rc=0 value=foldwire1,host:7,0,0\n", "published `foldwire1`"),
        (5, "cmd=finalize\n", "answered `finalize`"),
    ] {
        let mut lines = HONEST;
        lines[at] = answer;
        let error = answered(lines.concat().as_bytes()).unwrap_err().to_string();
        assert!(error.contains(part), "{answer}: {error}");
    }
}

proptest::proptest! {
    /// An honest conversation with some bytes replaced, and any bytes.
    #[test]
    fn any_bytes_are_an_answer_or_a_typed_error(
        changes in proptest::collection::vec((0usize..400, proptest::num::u8::ANY), 0..4),
        rest in proptest::collection::vec(proptest::num::u8::ANY, 0..300),
        keeps in 0usize..400,
    ) {
        let mut bytes = HONEST.concat().into_bytes();
        for (at, byte) in changes {
            let n_bytes = bytes.len();
            bytes[at % n_bytes] = byte;
        }
        bytes.truncate(keeps);
        bytes.extend_from_slice(&rest);
        if let Err(error) = answered(&bytes) {
            proptest::prop_assert!(!error.is_late(), "{}", error);
        }
    }
}

#[test]
fn a_line_without_an_end_is_refused_and_bytes_that_are_no_text_too() {
    assert_eq!(answered(&[b'a'; 3 * MAX_LINE_BYTES]), Err(PmiError::TooLong));
    assert_eq!(answered(b"cmd=\xff\n"), Err(PmiError::NotText { command: "init" }));
    assert_eq!(answered(b"cmd=\0\n"), Err(PmiError::NotText { command: "init" }));
}

#[test]
fn a_secret_is_not_shown() {
    let mut lines = HONEST;
    lines[4] = "cmd=get_resultx rc=0 value=foldwire1,10.0.0.1:77,0123,fedcba\n";
    let error = answered(lines.concat().as_bytes()).unwrap_err();
    assert!(!format!("{error} {error:?}").contains("fedcba"), "{error}");
}

#[test]
fn a_silent_server_ends_the_wait_at_the_limit() {
    let (_theirs, ours) = UnixStream::pair().unwrap();
    let server = PmiServer::Descriptor(ours.as_raw_fd());
    let limit = Duration::from_millis(100);
    let error = meet(&request(server, Some((0, 2)), None), limit).unwrap_err();
    assert_eq!(error, PmiError::Late { command: "init", limit });
    assert!(ours.read_timeout().unwrap().is_none(), "the launcher's socket is as before");
}

/// A server that lets a connection wait, and then lets its first command wait. The system repeats
/// the first packet of a connection after a second.
#[cfg(target_os = "linux")]
#[test]
fn connecting_and_talking_share_one_time_limit() {
    let socket = Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    let any: std::net::SocketAddr = ([127, 0, 0, 1], 0).into();
    socket.bind(&any.into()).unwrap();
    socket.listen(0).unwrap();
    let listener = TcpListener::from(socket);
    let address = listener.local_addr().unwrap();
    // Fills the queue of the listener, so that the next connection waits.
    let first = TcpStream::connect(address).unwrap();
    let serving = thread::spawn(move || {
        thread::sleep(Duration::from_millis(500));
        [listener.accept().unwrap(), listener.accept().unwrap()]
    });
    let (start, limit) = (Instant::now(), Duration::from_millis(2500));
    let server = PmiServer::Port { address: address.to_string(), id: 0 };
    let error = meet(&request(server, None, None), limit).unwrap_err();
    let took = start.elapsed();
    assert_eq!(error, PmiError::Late { command: "initack", limit });
    assert!(took < limit + Duration::from_millis(500), "{took:?}");
    drop((first, serving.join().unwrap()));
}

#[test]
fn the_shortest_time_left_is_a_limit() {
    let (_theirs, ours) = UnixStream::pair().unwrap();
    let socket = Socket::from(std::os::fd::OwnedFd::from(ours));
    for left in [Duration::ZERO, Duration::from_nanos(1), Duration::from_nanos(999)] {
        limit_calls(&socket, left).unwrap();
        assert!(socket.read_timeout().unwrap().is_some(), "{left:?}");
        assert!(socket.write_timeout().unwrap().is_some(), "{left:?}");
    }
}

#[test]
fn a_wait_without_a_limit_ends_with_the_server() {
    let (theirs, ours) = UnixStream::pair().unwrap();
    let server = PmiServer::Descriptor(ours.as_raw_fd());
    drop(theirs);
    let error = meet(&request(server, Some((0, 2)), None), Duration::MAX).unwrap_err();
    assert_eq!(error, PmiError::Closed { command: "init" });
}

#[test]
fn a_number_that_is_no_socket_is_named() {
    let file = std::fs::File::open("/proc/self/stat").unwrap();
    for number in [file.as_raw_fd(), i32::MAX, -1] {
        let server = PmiServer::Descriptor(number);
        let error = meet(&request(server, Some((0, 2)), None), LIMIT).unwrap_err();
        assert!(matches!(error, PmiError::Descriptor { .. }), "{error}");
        assert!(error.to_string().contains(&format!("PMI_FD={number}")), "{error}");
    }
}

#[test]
fn a_server_cannot_tell_a_rank_beyond_the_size() {
    for told in ["size=0\ncmd=set rank=0", "size=2\ncmd=set rank=2", "size=99999\ncmd=set rank=0"] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let text = format!("cmd=initack rc=0\ncmd=set {told}\ncmd=set debug=0\n{}", HONEST[0]);
        let serving = thread::spawn(move || {
            let (mut stream, _): (TcpStream, _) = listener.accept().unwrap();
            stream.write_all(text.as_bytes()).unwrap();
            stream
        });
        let server = PmiServer::Port { address, id: 0 };
        let error = meet(&request(server, None, None), LIMIT).unwrap_err();
        assert!(matches!(error, PmiError::Rank { .. }), "{told}: {error}");
        drop(serving.join().unwrap());
    }
}

#[test]
fn a_port_without_a_server_is_named() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    drop(listener);
    let server = PmiServer::Port { address: address.clone(), id: 0 };
    let error = meet(&request(server, None, None), LIMIT).unwrap_err();
    assert!(error.to_string().contains(&address), "{error}");
}

/// A blocked signal is kept, even if it is ignored.
#[cfg(target_os = "linux")]
#[test]
fn a_launcher_that_has_ended_is_an_error_and_no_signal() {
    use nix::sys::signal::{SigSet, Signal};

    /// The signal's bit in a set.
    const SIGPIPE: u64 = 1 << 12;
    let mut pipe = SigSet::empty();
    pipe.add(Signal::SIGPIPE);
    pipe.thread_block().unwrap();
    let (theirs, ours) = UnixStream::pair().unwrap();
    drop(theirs);
    let greeted = PmiClient::greet(Socket::from(ours), None, Instant::now() + LIMIT, LIMIT);
    assert!(matches!(greeted.err(), Some(PmiError::Closed { command: "init" })));
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
    let mut lines = status.lines();
    let pending = lines.find_map(|line| line.strip_prefix("SigPnd:")).unwrap();
    let pending = u64::from_str_radix(pending.trim(), 16).unwrap();
    assert_eq!(pending & SIGPIPE, 0);
}
