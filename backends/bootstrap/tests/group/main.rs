//! Groups over loopback, one thread per rank: joining, wrong or hostile connections, and failures.

mod apart;
mod jobs;
mod strangers;
mod together;
mod unfit;

use std::net::{SocketAddr, TcpListener};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use foldwire::Rank;
use foldwire_bootstrap::{Error, Exchange, Job, Launcher, Place, Rendezvous, Root, Session, Token};

/// Time limit that is long enough for a loaded machine. No passing test waits until it ends.
const LIMIT: Duration = Duration::from_secs(30);
/// Time limit of tests that wait until it ends.
const SHORT: Duration = Duration::from_millis(500);

/// A listener for rank 0, and its address.
fn listener() -> (TcpListener, Root) {
    listener_at("127.0.0.1")
}

fn listener_at(host: &str) -> (TcpListener, Root) {
    let listener = TcpListener::bind((host, 0)).expect("a loopback port is free");
    let port = listener.local_addr().unwrap().port();
    (listener, Root::new(host, port))
}

fn token() -> Option<Token> {
    Some(Token::new("a secret of the test").unwrap())
}

fn place(rank: u32, size: usize, root: &Root) -> Place {
    let (rank, root, job) = (Rank(rank), root.clone(), Job::at_given_root());
    Place { rank, size, root, token: token(), job, launcher: Launcher::Foldwire }
}

type Joining = JoinHandle<Result<Session, Error>>;

/// Joins as rank 0 in a thread.
fn root(place: Place, listener: TcpListener, limit: Duration) -> Joining {
    thread::spawn(move || Rendezvous::new(place).listener(listener).limit(limit).join())
}

/// Joins as another rank in a thread.
fn member(place: Place, limit: Duration) -> Joining {
    thread::spawn(move || Rendezvous::new(place).limit(limit).join())
}

fn joined(joining: Joining) -> Session {
    joining.join().expect("no panic").expect("the group joins")
}

fn failed(joining: Joining) -> Error {
    joining.join().expect("no panic").expect_err("the group does not join")
}

/// The sessions of a group that has joined, in rank order.
fn group(size: usize, limit: Duration) -> Vec<Session> {
    let (listener, at) = listener();
    let mut joining = vec![root(place(0, size, &at), listener, limit)];
    joining.extend((1..size as u32).map(|rank| member(place(rank, size, &at), limit)));
    joining.into_iter().map(joined).collect()
}

/// Runs `work` on all ranks concurrently, and returns the results in rank order.
fn each<T: Send>(sessions: &mut [Session], work: impl Fn(&mut Session) -> T + Sync) -> Vec<T> {
    thread::scope(|scope| {
        let threads: Vec<_> =
            sessions.iter_mut().map(|session| scope.spawn(|| work(session))).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    })
}

/// Polls until `session` learns of a loss. `others` must include rank 0, which forwards losses when
/// it is polled.
fn hear_of_loss(session: &mut Session, others: &mut [Session]) -> Rank {
    let start = Instant::now();
    loop {
        if let Some(rank) = session.poll_lost() {
            return rank;
        }
        for other in &mut *others {
            other.poll_lost();
        }
        assert!(start.elapsed() < LIMIT, "rank {} never learns of the loss", session.rank());
        thread::sleep(Duration::from_millis(1));
    }
}

fn address(root: &Root) -> SocketAddr {
    root.to_string().parse().expect("tests listen at IP addresses")
}
