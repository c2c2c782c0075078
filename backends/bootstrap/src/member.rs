//! A rank other than 0: it knocks until all are in, and then listens to rank 0.

use std::io;
use std::net::{SocketAddr, TcpStream};
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

/// A rank's connection to rank 0. Dropping it says goodbye, unless the thread panics: then rank 0
/// is to hear that this rank is lost.
#[derive(Debug)]
pub(crate) struct Member {
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
        let mut pause = FIRST_PAUSE;
        loop {
            let mut why_not = io::Error::from(io::ErrorKind::TimedOut);
            for &address in &addresses {
                let attempt = deadline.min(Instant::now() + HANDSHAKE_LIMIT);
                match connect(address, attempt) {
                    Err(error) => why_not = error,
                    Ok(stream) => match knock(place, stream, attempt)? {
                        None => why_not = io::ErrorKind::ConnectionReset.into(),
                        Some((watch, link)) => {
                            let member = Self::new(place, limit, watch, link);
                            match member.wait_for_welcome() {
                                Err(error) if is_put_off(&error) && Instant::now() < deadline => {
                                    why_not = io::ErrorKind::ConnectionReset.into();
                                }
                                outcome => return outcome,
                            }
                        }
                    },
                }
            }
            if Instant::now() + pause >= deadline {
                return Err(Error::Unreachable { root: root(), limit, source: why_not });
            }
            thread::sleep(pause);
            pause = (pause * 2).min(LAST_PAUSE);
        }
    }

    fn new(place: &Place, limit: Duration, watch: Watch, link: Link) -> Self {
        Self {
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
        if !self.membership.is_over() && !thread::panicking() {
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

/// Shows rank 0 that this process belongs to the group. `None`: whoever listens went away, said
/// nothing in time, or was too busy to listen.
fn knock(
    place: &Place,
    stream: TcpStream,
    deadline: Instant,
) -> Result<Option<(Watch, Link)>, Error> {
    let mut watch = Watch::new()?;
    let Ok(mut link) = Link::new(stream) else { return Ok(None) };
    link.watch(watch.registry(), Token(0)).map_err(Error::System)?;
    let knock = Knock::new(place, token::nonce()?);
    let impostor = || Error::Impostor { root: place.root.clone(), size: place.size };
    link.send(&knock.hello());
    let answer = loop {
        let fill = link.fill();
        if let Some(heard) = link.next_within(MAX_HANDSHAKE_BYTES).transpose() {
            break knock.hear(heard);
        }
        match fill {
            Fill::Some => {}
            Fill::Ended => return Ok(None),
            Fill::Blocked => {
                let left = deadline.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    return Ok(None);
                }
                drop(watch.wait(left)?);
            }
        }
    };
    match answer {
        Answer::Proof(proof) => {
            link.send(&Message::Answer { proof });
            Ok(Some((watch, link)))
        }
        Answer::Refused(Refusal::Slow) => Ok(None),
        Answer::Refused(reason) => Err(Error::Refused { root: place.root.clone(), reason }),
        Answer::Foreign => Err(impostor()),
        Answer::Impostor => {
            link.send(&Message::Refusal(Refusal::Token));
            link.close(deadline);
            Err(impostor())
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
