//! A rank other than rank 0. It tries to connect to rank 0 until rank 0 admits it, and then
//! exchanges messages with rank 0.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::process;
use std::thread;
use std::time::{Duration, Instant};

use foldwire::Rank;
use mio::Token;

use crate::connection::{Connection, ReadStatus};
use crate::error::Error;
use crate::message::{MAX_HANDSHAKE_BYTES, Message, Refusal};
use crate::place::Place;
use crate::poller::Poller;
use crate::protocol::{ChallengeOutcome, GroupFailure, JoinRequest, Membership};
use crate::rank_connections::GOODBYE_LIMIT;
use crate::rendezvous::{HANDSHAKE_LIMIT, SHORTEST_LIMIT, deadline_after};
use crate::root::Root;
use crate::token;

/// First and last pause between attempts to connect. The pause doubles with each attempt.
const FIRST_PAUSE: Duration = Duration::from_millis(5);
const LAST_PAUSE: Duration = Duration::from_millis(250);
/// Time without an answer at the root after which the spare ports are tried.
const SILENCE: Duration = Duration::from_millis(200);
/// Time limit for an answer at a spare port.
const SPARE_LIMIT: Duration = Duration::from_millis(200);

/// A rank's connection to rank 0.
///
/// Dropping it sends a goodbye, unless the thread panics: then rank 0 counts this rank as lost. In
/// a forked process it sends nothing.
#[derive(Debug)]
pub(crate) struct MemberConnection {
    owner_pid: u32,
    root: Root,
    size: usize,
    limit: Duration,
    poller: Poller,
    connection: Connection,
    membership: Membership,
}

impl MemberConnection {
    /// Connects to the root of `place`, retries until the deadline, and waits until all ranks have
    /// joined.
    pub(crate) fn join(place: &Place, deadline: Instant, limit: Duration) -> Result<Self, Error> {
        Self::join_at(|| place.root.resolve_by(deadline), place, deadline, limit)
    }

    /// Same as [`join`](Self::join), with a function that returns the root's addresses.
    fn join_at(
        resolve: impl Fn() -> io::Result<Vec<SocketAddr>>,
        place: &Place,
        deadline: Instant,
        limit: Duration,
    ) -> Result<Self, Error> {
        let root = || place.root.clone();
        let mut search = RootSearch { place, limit, deadline, refusal: None };
        let mut pause = FIRST_PAUSE;
        loop {
            // In each attempt, because a name may get another address.
            let addresses =
                resolve().map_err(|source| Error::Resolve { root: root(), limit, source })?;
            let spares: Vec<SocketAddr> = place.spare_addresses(&addresses).collect();
            let (mut stranger, mut n_strangers) = (None, 0);
            let mut fault = io::ErrorKind::TimedOut.into();
            for &address in &addresses {
                match search.try_root(address, &spares) {
                    Ok(member) => return Ok(member),
                    Err(AttemptError::Fatal(error)) => return Err(error),
                    Err(AttemptError::NotRankZero(error)) => {
                        n_strangers += 1;
                        // A rank 0 that refuses this rank says more than another program.
                        stranger = stranger.filter(is_refused).or(Some(error));
                    }
                    Err(AttemptError::Retry(source)) => fault = source,
                }
            }
            if let Some(member) = search.try_spares(&spares)? {
                return Ok(member);
            }
            match stranger {
                // Rank 0 listens at a given address or not at all, so it is an error if others have
                // them all.
                Some(error)
                    if !place.job.chooses_port()
                        && (n_strangers == addresses.len() || is_refused(&error)) =>
                {
                    return Err(error);
                }
                stranger if Instant::now() + pause >= deadline => {
                    let refused = |reason| Error::Refused { root: root(), reason };
                    let unreachable = || Error::Unreachable { root: root(), limit, source: fault };
                    let refusal = search.refusal.map(refused);
                    return Err(refusal.or(stranger).unwrap_or_else(unreachable));
                }
                _ => {}
            }
            thread::sleep(pause);
            pause = (pause * 2).min(LAST_PAUSE);
        }
    }

    fn new(place: &Place, limit: Duration, poller: Poller, connection: Connection) -> Self {
        Self {
            owner_pid: process::id(),
            root: place.root.clone(),
            size: place.size,
            limit,
            poller,
            connection,
            membership: Membership::new(place.size),
        }
    }

    fn wait_for_welcome(mut self) -> Result<Self, Error> {
        let deadline = self.deadline();
        while !self.membership.is_welcome() {
            self.wait(deadline)?;
        }
        Ok(self)
    }

    /// See [`Exchange::all_gather`](crate::Exchange::all_gather).
    pub(crate) fn all_gather(&mut self, mine: &[u8]) -> Result<Vec<Vec<u8>>, Error> {
        self.process_messages();
        self.check()?;
        self.connection.send(&Message::Give(mine));
        let deadline = self.deadline();
        loop {
            if let Some(parts) = self.membership.take_parts() {
                return Ok(parts);
            }
            self.wait(deadline)?;
        }
    }

    /// See [`Exchange::poll_lost`](crate::Exchange::poll_lost).
    pub(crate) fn poll_lost(&mut self) -> Option<Rank> {
        self.process_messages();
        self.membership.take_lost()
    }

    /// See [`Exchange::local_address`](crate::Exchange::local_address).
    pub(crate) fn local_address(&self) -> Option<IpAddr> {
        self.connection.local_address()
    }

    /// Deadline of a wait that starts now. It lies [`HANDSHAKE_LIMIT`] after the time limit.
    /// Rank 0 waits only for the limit, so its list of missing ranks arrives before the deadline.
    fn deadline(&self) -> Instant {
        deadline_after(self.limit) + HANDSHAKE_LIMIT
    }

    /// Waits for messages of rank 0 and processes them. Fails if the group has failed.
    fn wait(&mut self, deadline: Instant) -> Result<(), Error> {
        self.check()?;
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            self.membership.fail(GroupFailure::Silent);
            return self.check();
        }
        drop(self.poller.wait(left)?);
        self.process_messages();
        Ok(())
    }

    /// Fails if the group has failed.
    fn check(&self) -> Result<(), Error> {
        let (root, size, limit) = (self.root.clone(), self.size, self.limit);
        Err(match self.membership.failure() {
            None => return Ok(()),
            Some(GroupFailure::Refused(reason)) => Error::Refused { root, reason: *reason },
            Some(GroupFailure::Missing(missing)) => {
                Error::Missing { missing: missing.clone(), size, limit, turned_away: None }
            }
            Some(&GroupFailure::Unfit(rank, reason)) => Error::Unfit { rank, size, reason },
            Some(GroupFailure::Silent) => Error::Silent { root, limit },
            Some(GroupFailure::Lost(rank)) => Error::Lost { rank: *rank },
            Some(GroupFailure::Left(rank)) => Error::Left { rank: *rank },
            Some(GroupFailure::Protocol) => Error::Protocol { rank: Rank(0) },
        })
    }

    /// Sends queued messages to rank 0, and processes the messages received from it.
    fn process_messages(&mut self) {
        self.connection.flush();
        while !self.membership.is_over() {
            let status = self.connection.read();
            while let Some(received) = self.connection.next().transpose() {
                self.membership.receive(received);
                if self.membership.is_over() {
                    return;
                }
            }
            match status {
                ReadStatus::Data => {}
                ReadStatus::Blocked => return,
                ReadStatus::Closed => self.membership.end(GroupFailure::Lost(Rank(0))),
            }
        }
    }
}

impl Drop for MemberConnection {
    fn drop(&mut self) {
        let is_own = process::id() == self.owner_pid;
        if is_own && !self.membership.is_over() && !thread::panicking() {
            self.connection.send(&Message::Goodbye);
            self.connection.close(Instant::now() + GOODBYE_LIMIT);
        }
    }
}

/// Returns whether rank 0 may have closed the connection without reading this rank's answer, so
/// that the rank should connect again.
///
/// Rank 0 closes connections that are too many or too slow. If rank 0 has ended instead, the next
/// attempt to connect fails.
fn is_retryable(error: &Error) -> bool {
    matches!(error, Error::Lost { rank: Rank(0) } | Error::Refused { reason: Refusal::Slow, .. })
}

/// Returns whether the error is a refusal that this rank's own job may have caused.
fn is_refused(error: &Error) -> bool {
    matches!(error, Error::Refused { reason, .. } if !matches!(reason, Refusal::Job { .. }))
}

/// Error of one attempt to join.
enum AttemptError {
    /// The listener closed the connection, or did not answer in time.
    Retry(io::Error),
    /// The listener has not proven to be rank 0 of this job.
    NotRankZero(Error),
    /// Rank 0 refuses this rank, or this rank cannot go on.
    Fatal(Error),
}

impl<E: Into<Error>> From<E> for AttemptError {
    fn from(error: E) -> Self {
        Self::Fatal(error.into())
    }
}

/// A rank's search for rank 0.
///
/// If another program has the root's port, rank 0 admits ranks at a spare address, or reports there
/// why it cannot listen at the root. A stranger may listen at any of these addresses. So a refusal
/// without a proof ends the search at a given root only. Elsewhere the rank searches on, and
/// reports the refusal at its time limit. A name of the root may have several addresses, and
/// rank 0 may listen at any of them; another program ends the search only if it has them all.
struct RootSearch<'a> {
    place: &'a Place,
    limit: Duration,
    deadline: Instant,
    /// Last refusal without a proof, except that of another job.
    refusal: Option<Refusal>,
}

impl RootSearch<'_> {
    /// Tries an address of the root, and the spare addresses while the listener is silent.
    fn try_root(
        &mut self,
        address: SocketAddr,
        spares: &[SocketAddr],
    ) -> Result<MemberConnection, AttemptError> {
        let attempt = self.deadline.min(Instant::now() + HANDSHAKE_LIMIT);
        self.handshake(connect(address, attempt).map_err(AttemptError::Retry)?, attempt, spares)
    }

    /// Tries spare addresses. Returns `None` if rank 0 listens at none of them: there may be other
    /// programs, or none.
    fn try_spares(&mut self, spares: &[SocketAddr]) -> Result<Option<MemberConnection>, Error> {
        for &address in spares {
            let attempt = self.deadline.min(Instant::now() + SPARE_LIMIT);
            let Ok(stream) = connect(address, attempt) else { continue };
            match self.handshake(stream, attempt, &[]) {
                Ok(member) => return Ok(Some(member)),
                Err(AttemptError::Fatal(error)) => return Err(error),
                Err(AttemptError::Retry(_) | AttemptError::NotRankZero(_)) => {}
            }
        }
        Ok(None)
    }

    /// Proves to the listener that this process belongs to the group, and waits until all ranks
    /// have joined. A listener that sends nothing may be another program; while it is silent, the
    /// rank tries `spares`.
    fn handshake(
        &mut self,
        stream: TcpStream,
        deadline: Instant,
        spares: &[SocketAddr],
    ) -> Result<MemberConnection, AttemptError> {
        let place = self.place;
        let reset = || AttemptError::Retry(io::ErrorKind::ConnectionReset.into());
        let mut poller = Poller::new()?;
        let mut connection = Connection::new(stream).map_err(AttemptError::Retry)?;
        connection.register(poller.registry(), Token(0)).map_err(Error::System)?;
        let request = JoinRequest::new(place, token::nonce().map_err(Error::from)?);
        let impostor = || Error::Impostor { root: place.root.clone(), size: place.size };
        connection.send(&request.hello());
        let answer = loop {
            let status = connection.read();
            if let Some(received) = connection.next_within(MAX_HANDSHAKE_BYTES).transpose() {
                break request.receive(received);
            }
            match status {
                ReadStatus::Data => {}
                ReadStatus::Closed => return Err(reset()),
                ReadStatus::Blocked => {
                    let left = deadline.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return Err(AttemptError::Retry(io::ErrorKind::TimedOut.into()));
                    }
                    let is_silent = poller.wait(left.min(SILENCE))?.next().is_none();
                    if is_silent && let Some(member) = self.try_spares(spares)? {
                        return Ok(member);
                    }
                }
            }
        };
        match answer {
            ChallengeOutcome::Proof(proof) => connection.send(&Message::Answer { proof }),
            ChallengeOutcome::Refused(Refusal::Slow) => return Err(reset()),
            ChallengeOutcome::Refused(reason) => {
                if !matches!(reason, Refusal::Job { .. }) {
                    self.refusal = Some(reason);
                }
                let root = place.root.clone();
                return Err(AttemptError::NotRankZero(Error::Refused { root, reason }));
            }
            ChallengeOutcome::Foreign => return Err(AttemptError::NotRankZero(impostor())),
            ChallengeOutcome::Impostor => {
                connection.send(&Message::Refusal(Refusal::Token));
                connection.close(deadline);
                return Err(AttemptError::NotRankZero(impostor()));
            }
        }
        match MemberConnection::new(place, self.limit, poller, connection).wait_for_welcome() {
            Err(error) if is_retryable(&error) => Err(reset()),
            outcome => Ok(outcome?),
        }
    }
}

/// Connects before the deadline.
pub(crate) fn connect(address: SocketAddr, deadline: Instant) -> io::Result<TcpStream> {
    let left = deadline.saturating_duration_since(Instant::now());
    let stream = TcpStream::connect_timeout(&address, left.max(SHORTEST_LIMIT))?;
    // If nothing listens at a local port, the system may choose that port as the socket's own port.
    // Then the socket is connected to itself.
    if stream.local_addr()? == stream.peer_addr()? {
        return Err(io::ErrorKind::ConnectionRefused.into());
    }
    Ok(stream)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;
    use crate::message::{NONCE_BYTES, PROOF_BYTES};
    use crate::token::Token as Secret;
    use crate::{Job, Launcher, Rendezvous};

    const LIMIT: Duration = Duration::from_secs(30);

    fn place(rank: u32, port: u16, job: Job) -> Place {
        let (rank, root) = (Rank(rank), Root::loopback(port));
        let token = Secret::new("a secret of the test").ok();
        Place { rank, size: 2, root, token, job, launcher: Launcher::Foldwire }
    }

    fn free_port() -> u16 {
        TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
    }

    fn local(port: u16) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], port))
    }

    /// Answers every connection to these addresses with one message, until the process ends.
    fn answer_all(addresses: impl Iterator<Item = SocketAddr>, message: &Message<'_>) {
        let mut bytes = Vec::new();
        message.emit(&mut bytes);
        for address in addresses {
            let (listener, bytes) = (TcpListener::bind(address).unwrap(), bytes.clone());
            thread::spawn(move || {
                for stream in listener.incoming() {
                    let _ = io::Write::write_all(&mut stream.unwrap(), &bytes);
                }
            });
        }
    }

    fn join(place: Place) -> thread::JoinHandle<Result<crate::Session, Error>> {
        thread::spawn(|| Rendezvous::new(place).limit(LIMIT).join())
    }

    /// Rank 1 starts first, and finds strangers at the spare ports.
    #[test]
    fn strangers_at_spare_ports_keep_no_rank_out() {
        for (name, message) in [
            ("refusal", Message::Refusal(Refusal::Token)),
            ("size", Message::Refusal(Refusal::Size { theirs: 2, ours: 3 })),
            ("challenge", Message::Challenge { nonce: [1; NONCE_BYTES], proof: [2; PROOF_BYTES] }),
        ] {
            let (job, port) = (Job::named(&[name, "of a stranger"]), free_port());
            answer_all(job.spare_ports(port).map(local), &message);
            let rank_1 = join(place(1, port, job));
            thread::sleep(Duration::from_millis(100));
            let rank_0 = join(place(0, port, job));
            let sessions = [rank_1, rank_0].map(|rank| rank.join().unwrap());
            assert!(sessions.iter().all(Result::is_ok), "{name}: {sessions:?}");
        }
    }

    /// A stranger has the port at one of the addresses of the root's name.
    #[test]
    fn a_stranger_at_one_of_several_addresses_keeps_no_rank_out() {
        for (name, message) in [
            ("job", Message::Refusal(Refusal::Job { theirs: 1, ours: 2 })),
            ("challenge", Message::Challenge { nonce: [1; NONCE_BYTES], proof: [2; PROOF_BYTES] }),
        ] {
            let (job, port) = (Job::named(&[name, "at another address"]), free_port());
            let [ours, theirs] =
                [[127, 0, 0, 1], [127, 0, 0, 2]].map(|ip| SocketAddr::from((ip, port)));
            answer_all([theirs].into_iter(), &message);
            let place_1 = place(1, port, job);
            let rank_1 = thread::spawn(move || {
                let addresses = || Ok(vec![ours, theirs, ours]);
                MemberConnection::join_at(addresses, &place_1, Instant::now() + LIMIT, LIMIT)
            });
            thread::sleep(Duration::from_millis(100));
            let rank_0 = join(place(0, port, job));
            let (rank_0, rank_1) = (rank_0.join().unwrap(), rank_1.join().unwrap());
            assert!(rank_0.is_ok() && rank_1.is_ok(), "{name}: {rank_0:?}, {rank_1:?}");
        }
        // No rank waits if strangers have all of them, or rank 0 refuses.
        let start = Instant::now();
        for message in [
            Message::Refusal(Refusal::Job { theirs: 1, ours: 2 }),
            Message::Refusal(Refusal::Token),
        ] {
            let (job, port) = (Job::named(&["strangers"]), free_port());
            let [one, two] =
                [[127, 0, 0, 1], [127, 0, 0, 2]].map(|ip| SocketAddr::from((ip, port)));
            let is_refusal = matches!(message, Message::Refusal(Refusal::Token));
            answer_all([one, two].into_iter().skip(usize::from(is_refusal)), &message);
            let deadline = Instant::now() + LIMIT;
            let addresses = || Ok(vec![one, two]);
            let joined =
                MemberConnection::join_at(addresses, &place(1, port, job), deadline, LIMIT);
            assert!(matches!(joined, Err(Error::Refused { .. })), "{joined:?}");
        }
        assert!(start.elapsed() < LIMIT / 2);
    }

    /// A stranger has the derived port, so rank 0 moves to a spare one.
    #[test]
    fn a_stranger_at_the_derived_port_keeps_no_rank_out() {
        let job = Job::named(&["a stranger at the root"]).choosing_port();
        answer_all([local(job.port())].into_iter(), &Message::Refusal(Refusal::Token));
        let rank_1 = join(place(1, job.port(), job));
        thread::sleep(Duration::from_millis(100));
        let rank_0 = join(place(0, job.port(), job));
        let sessions = [rank_1, rank_0].map(|rank| rank.join().unwrap());
        assert!(sessions.iter().all(Result::is_ok), "{sessions:?}");
    }

    /// Rank 0 gives up after half a second; a rank that it refused learns the reason at its limit.
    #[test]
    fn at_a_derived_port_a_wrong_token_is_found_on_both_sides() {
        let job = Job::named(&["a wrong token"]).choosing_port();
        let (token, short) = (Secret::new("another secret of it").ok(), Duration::from_secs(2));
        let rank_0 = join(place(0, job.port(), job));
        let rank_1 = Rendezvous::new(Place { token, ..place(1, job.port(), job) });
        let refused = rank_1.limit(short).join();
        assert!(
            matches!(refused, Err(Error::Refused { reason: Refusal::Token, .. })),
            "{refused:?}"
        );
        assert!(rank_0.is_finished(), "rank 0 waits on");
        let unfit = rank_0.join().unwrap();
        assert!(matches!(unfit, Err(Error::Unfit { reason: Refusal::Token, .. })), "{unfit:?}");
    }
}
