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
        let root = || place.root.clone();
        let mut pause = FIRST_PAUSE;
        loop {
            // In each attempt, because a name may get another address.
            let addresses = place.root.resolve_by(deadline).map_err(|source| Error::Resolve {
                root: root(),
                limit,
                source,
            })?;
            let spare = place.spare_addresses(&addresses).collect();
            let search = RootSearch { place, limit, deadline, spare };
            let mut last_error = AttemptError::Retry(io::ErrorKind::TimedOut.into());
            for &address in &addresses {
                match search.try_root(address) {
                    Ok(member) => return Ok(member),
                    Err(AttemptError::Fatal(error)) => return Err(error),
                    Err(error) => last_error = error,
                }
            }
            for &address in &search.spare {
                if let Some(member) = search.try_spare(address)? {
                    return Ok(member);
                }
            }
            let is_late = Instant::now() + pause >= deadline;
            match last_error {
                // Rank 0 listens at a given address or not at all, so another listener is an error.
                AttemptError::NotRankZero(error) if is_late || !place.job.chooses_port() => {
                    return Err(error);
                }
                AttemptError::Retry(source) if is_late => {
                    return Err(Error::Unreachable { root: root(), limit, source });
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

/// Error of one attempt to join.
enum AttemptError {
    /// The listener closed the connection, or did not answer in time.
    Retry(io::Error),
    /// The listener is not rank 0 of this job.
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
struct RootSearch<'a> {
    place: &'a Place,
    limit: Duration,
    deadline: Instant,
    /// Addresses of rank 0 if another program listens at its root. Rank 0 admits ranks there, or
    /// reports why it cannot listen at the root.
    spare: Vec<SocketAddr>,
}

impl RootSearch<'_> {
    fn try_root(&self, address: SocketAddr) -> Result<MemberConnection, AttemptError> {
        let attempt = self.deadline.min(Instant::now() + HANDSHAKE_LIMIT);
        self.handshake(connect(address, attempt).map_err(AttemptError::Retry)?, attempt, true)
    }

    /// Tries a spare address. Returns `None` if rank 0 does not listen there: there may be another
    /// program, or none.
    fn try_spare(&self, address: SocketAddr) -> Result<Option<MemberConnection>, Error> {
        let attempt = self.deadline.min(Instant::now() + SPARE_LIMIT);
        let Ok(stream) = connect(address, attempt) else { return Ok(None) };
        match self.handshake(stream, attempt, false) {
            Ok(member) => Ok(Some(member)),
            Err(AttemptError::Fatal(error)) => Err(error),
            Err(AttemptError::Retry(_) | AttemptError::NotRankZero(_)) => Ok(None),
        }
    }

    /// Proves to the listener that this process belongs to the group, and waits until all ranks
    /// have joined. A listener that sends nothing may be another program. With `tries_spares`, the
    /// spare addresses are tried while it is silent.
    fn handshake(
        &self,
        stream: TcpStream,
        deadline: Instant,
        tries_spares: bool,
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
                    if is_silent && tries_spares {
                        for &address in &self.spare {
                            if let Some(member) = self.try_spare(address)? {
                                return Ok(member);
                            }
                        }
                    }
                }
            }
        };
        match answer {
            ChallengeOutcome::Proof(proof) => connection.send(&Message::Answer { proof }),
            ChallengeOutcome::Refused(Refusal::Slow) => return Err(reset()),
            ChallengeOutcome::Refused(reason) => {
                let error = Error::Refused { root: place.root.clone(), reason };
                let is_other_job = matches!(reason, Refusal::Job { .. });
                return Err(if is_other_job {
                    AttemptError::NotRankZero(error)
                } else {
                    AttemptError::Fatal(error)
                });
            }
            ChallengeOutcome::Foreign => return Err(AttemptError::NotRankZero(impostor())),
            ChallengeOutcome::Impostor => {
                connection.send(&Message::Refusal(Refusal::Token));
                connection.close(deadline);
                return Err(AttemptError::Fatal(impostor()));
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
