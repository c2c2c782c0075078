//! A rank other than 0: it knocks until all are in, and then listens to rank 0.

use std::io;
use std::net::{SocketAddr, TcpStream};
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
use crate::rendezvous::HANDSHAKE_LIMIT;
use crate::root::Root;
use crate::token;

/// Pauses between attempts to connect grow from the first to the last.
const FIRST_PAUSE: Duration = Duration::from_millis(5);
const LAST_PAUSE: Duration = Duration::from_millis(250);
/// How long whoever listens may say nothing before rank 0 is looked for elsewhere.
const SILENCE: Duration = Duration::from_millis(200);
/// The time for an answer from a spare port.
const SPARE_LIMIT: Duration = Duration::from_millis(200);

/// A rank's connection to rank 0. Dropping it says goodbye, unless the thread panics: then rank 0
/// is to hear that this rank is lost. A process that was forked off has nothing to say to it.
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
    /// Connects to the place's root, however often it takes, and waits until all ranks are there.
    pub(crate) fn join(place: &Place, deadline: Instant, limit: Duration) -> Result<Self, Error> {
        let root = || place.root.clone();
        let addresses =
            place.root.resolve().map_err(|source| Error::Resolve { root: root(), source })?;
        let spare = place.spare_addresses(&addresses).collect();
        let search = RootSearch { place, limit, deadline, spare };
        let mut pause = FIRST_PAUSE;
        loop {
            let mut why_not = AttemptError::Retry(io::ErrorKind::TimedOut.into());
            for &address in &addresses {
                match search.try_root(address) {
                    Ok(member) => return Ok(member),
                    Err(AttemptError::Fatal(error)) => return Err(error),
                    Err(no) => why_not = no,
                }
            }
            for &address in &search.spare {
                if let Some(member) = search.try_spare(address)? {
                    return Ok(member);
                }
            }
            let is_late = Instant::now() + pause >= deadline;
            match why_not {
                // An address that was given has rank 0, or nobody is to be there.
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

    /// As [`Exchange::all_gather`](crate::Exchange::all_gather).
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

    /// As [`Exchange::poll_lost`](crate::Exchange::poll_lost).
    pub(crate) fn poll_lost(&mut self) -> Option<Rank> {
        self.process_messages();
        self.membership.take_lost()
    }

    /// Later than that of rank 0, if that began to wait before: its verdict names who is missing.
    fn deadline(&self) -> Instant {
        Instant::now() + self.limit + HANDSHAKE_LIMIT
    }

    /// Waits until rank 0 says something, while all is well.
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

    /// An error if the group is no longer whole.
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

    /// Sends what waits for rank 0, and heeds what it has said.
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

/// Whether rank 0 may never have heard this rank's answer, and did not let it in: in a crowd at its
/// door it closes connections, and those that take long. If it has ended instead, nobody listens
/// any more.
fn is_retryable(error: &Error) -> bool {
    matches!(error, Error::Lost { rank: Rank(0) } | Error::Refused { reason: Refusal::Slow, .. })
}

/// Why whoever listens has not let a rank in.
enum AttemptError {
    /// It went away, said nothing in time, or was too busy to listen.
    Retry(io::Error),
    /// It is no rank 0 of this job.
    NotRankZero(Error),
    /// It is, and does not want this rank.
    Fatal(Error),
}

impl<E: Into<Error>> From<E> for AttemptError {
    fn from(error: E) -> Self {
        Self::Fatal(error.into())
    }
}

/// A rank that looks for rank 0.
struct RootSearch<'a> {
    place: &'a Place,
    limit: Duration,
    deadline: Instant,
    /// Where rank 0 is, or says why it is not at its root, if another program listens there.
    spare: Vec<SocketAddr>,
}

impl RootSearch<'_> {
    fn try_root(&self, address: SocketAddr) -> Result<MemberConnection, AttemptError> {
        let attempt = self.deadline.min(Instant::now() + HANDSHAKE_LIMIT);
        self.handshake(connect(address, attempt).map_err(AttemptError::Retry)?, attempt, true)
    }

    /// Nobody needs to be there, and whoever is may be anybody.
    fn try_spare(&self, address: SocketAddr) -> Result<Option<MemberConnection>, Error> {
        let attempt = self.deadline.min(Instant::now() + SPARE_LIMIT);
        let Ok(stream) = connect(address, attempt) else { return Ok(None) };
        match self.handshake(stream, attempt, false) {
            Ok(member) => Ok(Some(member)),
            Err(AttemptError::Fatal(error)) => Err(error),
            Err(AttemptError::Retry(_) | AttemptError::NotRankZero(_)) => Ok(None),
        }
    }

    /// Shows whoever listens that this process belongs to the group, and waits until all are in.
    /// While it says nothing, which no rank 0 may be, this rank looks `tries_spares` too.
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
                let is_here = matches!(reason, Refusal::Job { .. });
                return Err(if is_here {
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

fn connect(address: SocketAddr, deadline: Instant) -> io::Result<TcpStream> {
    let left = deadline.saturating_duration_since(Instant::now());
    // A limit of zero is refused.
    let stream = TcpStream::connect_timeout(&address, left.max(Duration::from_millis(1)))?;
    // Without a listener, a connection to a port of one's own machine may be given that very port
    // and meet itself.
    if stream.local_addr()? == stream.peer_addr()? {
        return Err(io::ErrorKind::ConnectionRefused.into());
    }
    Ok(stream)
}
