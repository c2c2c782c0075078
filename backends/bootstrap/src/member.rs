//! A rank other than 0: it knocks until all are in, and then listens to rank 0.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::process;
use std::thread;
use std::time::{Duration, Instant};

use foldwire::Rank;
use mio::Token;

use crate::error::Error;
use crate::link::{Fill, Link};
use crate::message::{MAX_HANDSHAKE_BYTES, Message, Refusal};
use crate::place::Place;
use crate::protocol::{Answer, Broken, Knock, Membership};
use crate::rendezvous::HANDSHAKE_LIMIT;
use crate::root::Root;
use crate::seats::GOODBYE_LIMIT;
use crate::token;
use crate::watch::Watch;

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
pub(crate) struct Member {
    home: u32,
    root: Root,
    size: usize,
    limit: Duration,
    watch: Watch,
    link: Link,
    membership: Membership,
}

impl Member {
    /// Connects to the place's root, however often it takes, and waits until all ranks are there.
    pub(crate) fn join(place: &Place, deadline: Instant, limit: Duration) -> Result<Self, Error> {
        let root = || place.root.clone();
        let addresses =
            place.root.resolve().map_err(|source| Error::Resolve { root: root(), source })?;
        let spare = place.spare_addresses(&addresses).collect();
        let search = Search { place, limit, deadline, spare };
        let mut pause = FIRST_PAUSE;
        loop {
            let mut why_not = No::Yet(io::ErrorKind::TimedOut.into());
            for &address in &addresses {
                match search.try_root(address) {
                    Ok(member) => return Ok(member),
                    Err(No::Ever(error)) => return Err(error),
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
                No::Here(error) if is_late || !place.job.chooses_port() => return Err(error),
                No::Yet(source) if is_late => {
                    return Err(Error::Unreachable { root: root(), limit, source });
                }
                _ => {}
            }
            thread::sleep(pause);
            pause = (pause * 2).min(LAST_PAUSE);
        }
    }

    fn new(place: &Place, limit: Duration, watch: Watch, link: Link) -> Self {
        Self {
            home: process::id(),
            root: place.root.clone(),
            size: place.size,
            limit,
            watch,
            link,
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
        self.listen();
        self.check()?;
        self.link.send(&Message::Give(mine));
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
        self.listen();
        self.membership.take_news()
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
            self.membership.break_up(Broken::Silent);
            return self.check();
        }
        drop(self.watch.wait(left)?);
        self.listen();
        Ok(())
    }

    /// An error if the group is no longer whole.
    fn check(&self) -> Result<(), Error> {
        let (root, size, limit) = (self.root.clone(), self.size, self.limit);
        Err(match self.membership.broken() {
            None => return Ok(()),
            Some(Broken::Refused(reason)) => Error::Refused { root, reason: *reason },
            Some(Broken::Missing(missing)) => {
                Error::Missing { missing: missing.clone(), size, limit, turned_away: None }
            }
            Some(&Broken::Unfit(rank, reason)) => Error::Unfit { rank, size, reason },
            Some(Broken::Silent) => Error::Silent { root, limit },
            Some(Broken::Lost(rank)) => Error::Lost { rank: *rank },
            Some(Broken::Left(rank)) => Error::Left { rank: *rank },
            Some(Broken::Protocol) => Error::Protocol { rank: Rank(0) },
        })
    }

    /// Sends what waits for rank 0, and heeds what it has said.
    fn listen(&mut self) {
        self.link.flush();
        while !self.membership.is_over() {
            let fill = self.link.fill();
            while let Some(heard) = self.link.next().transpose() {
                self.membership.hear(heard);
                if self.membership.is_over() {
                    return;
                }
            }
            match fill {
                Fill::Some => {}
                Fill::Blocked => return,
                Fill::Ended => self.membership.end(Broken::Lost(Rank(0))),
            }
        }
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        let is_own = process::id() == self.home;
        if is_own && !self.membership.is_over() && !thread::panicking() {
            self.link.send(&Message::Goodbye);
            self.link.close(Instant::now() + GOODBYE_LIMIT);
        }
    }
}

/// Whether rank 0 may never have heard this rank's answer, and did not let it in: in a crowd at its
/// door it closes connections, and those that take long. If it has ended instead, nobody listens
/// any more.
fn is_put_off(error: &Error) -> bool {
    matches!(error, Error::Lost { rank: Rank(0) } | Error::Refused { reason: Refusal::Slow, .. })
}

/// Why whoever listens has not let a rank in.
enum No {
    /// It went away, said nothing in time, or was too busy to listen.
    Yet(io::Error),
    /// It is no rank 0 of this job.
    Here(Error),
    /// It is, and does not want this rank.
    Ever(Error),
}

impl<E: Into<Error>> From<E> for No {
    fn from(error: E) -> Self {
        Self::Ever(error.into())
    }
}

/// A rank that looks for rank 0.
struct Search<'a> {
    place: &'a Place,
    limit: Duration,
    deadline: Instant,
    /// Where rank 0 is, or says why it is not at its root, if another program listens there.
    spare: Vec<SocketAddr>,
}

impl Search<'_> {
    fn try_root(&self, address: SocketAddr) -> Result<Member, No> {
        let attempt = self.deadline.min(Instant::now() + HANDSHAKE_LIMIT);
        self.knock(connect(address, attempt).map_err(No::Yet)?, attempt, true)
    }

    /// Nobody needs to be there, and whoever is may be anybody.
    fn try_spare(&self, address: SocketAddr) -> Result<Option<Member>, Error> {
        let attempt = self.deadline.min(Instant::now() + SPARE_LIMIT);
        let Ok(stream) = connect(address, attempt) else { return Ok(None) };
        match self.knock(stream, attempt, false) {
            Ok(member) => Ok(Some(member)),
            Err(No::Ever(error)) => Err(error),
            Err(No::Yet(_) | No::Here(_)) => Ok(None),
        }
    }

    /// Shows whoever listens that this process belongs to the group, and waits until all are in.
    /// While it says nothing, which no rank 0 may be, this rank looks `elsewhere` too.
    fn knock(&self, stream: TcpStream, deadline: Instant, elsewhere: bool) -> Result<Member, No> {
        let place = self.place;
        let reset = || No::Yet(io::ErrorKind::ConnectionReset.into());
        let mut watch = Watch::new()?;
        let mut link = Link::new(stream).map_err(No::Yet)?;
        link.watch(watch.registry(), Token(0)).map_err(Error::System)?;
        let knock = Knock::new(place, token::nonce().map_err(Error::from)?);
        let impostor = || Error::Impostor { root: place.root.clone(), size: place.size };
        link.send(&knock.hello());
        let answer = loop {
            let fill = link.fill();
            if let Some(heard) = link.next_within(MAX_HANDSHAKE_BYTES).transpose() {
                break knock.hear(heard);
            }
            match fill {
                Fill::Some => {}
                Fill::Ended => return Err(reset()),
                Fill::Blocked => {
                    let left = deadline.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return Err(No::Yet(io::ErrorKind::TimedOut.into()));
                    }
                    let is_silent = watch.wait(left.min(SILENCE))?.next().is_none();
                    if is_silent && elsewhere {
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
            Answer::Proof(proof) => link.send(&Message::Answer { proof }),
            Answer::Refused(Refusal::Slow) => return Err(reset()),
            Answer::Refused(reason) => {
                let error = Error::Refused { root: place.root.clone(), reason };
                let is_here = matches!(reason, Refusal::Job { .. });
                return Err(if is_here { No::Here(error) } else { No::Ever(error) });
            }
            Answer::Foreign => return Err(No::Here(impostor())),
            Answer::Impostor => {
                link.send(&Message::Refusal(Refusal::Token));
                link.close(deadline);
                return Err(No::Ever(impostor()));
            }
        }
        match Member::new(place, self.limit, watch, link).wait_for_welcome() {
            Err(error) if is_put_off(&error) => Err(reset()),
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
