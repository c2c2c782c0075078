//! The message layer: completions of libfabric's as events of messages between ranks.
//!
//! *Who is lost.* Providers tell little of it: `tcp` fails a send that is made just when the
//! connection breaks, and is busy for ever to later ones; `sockets` fails those too; `shm` says
//! nothing; a receive waits for ever. So the way that the ranks found each other is asked every
//! [`LOOK_EVERY`], and what it says counts. Sends under way to a lost rank stay with the provider
//! until the endpoint is closed.

use std::collections::VecDeque;
use std::fmt;
use std::process;
use std::time::{Duration, Instant};

use foldwire::transport::{Distance, Rank, Tag};
use foldwire_bootstrap::Exchange;
use foldwire_messaging::{Event, Net, Patience, Refused, Source, on_wire};

use crate::answers::{ASKS, Answers, PLAIN};
use crate::ffi::{Buffer, Completion, Port};
use crate::notices::Notices;
use crate::{Errno, Error, JoinError, Settings, join, tags};

/// How often to ask who is lost.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// How long to try to send the last answers.
const LAST_ANSWERS: Duration = Duration::from_secs(1);

/// What a request of libfabric's is about.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Request {
    /// A message; whether it asks for an answer.
    Send { to: Rank, tag: Tag, asks: bool },
    /// A receive for a message.
    Receive { from: Rank, tag: Tag },
    /// A receive for a notice.
    Notice { from: Rank },
    /// An answer.
    Answer { to: Rank },
    /// A receive for an answer.
    AwaitAnswer { from: Rank, tag: Tag },
}

/// Tells of ranks that have ended, one at a time.
pub(crate) type Watch = Box<dyn FnMut() -> Option<Rank>>;

/// What [`join`](crate::join) has found out.
pub(crate) struct Parts {
    pub(crate) rank: Rank,
    pub(crate) size: usize,
    pub(crate) provider: String,
    pub(crate) is_in_memory: bool,
    /// Messages travel through sockets of the system's.
    pub(crate) is_on_ip: bool,
    /// Which ranks share this one's host.
    pub(crate) is_near: Vec<bool>,
    pub(crate) link_rate: Option<f64>,
    pub(crate) watch: Watch,
}

/// Messages between ranks over one libfabric endpoint.
pub struct Fabric {
    /// The process that made the endpoint.
    home: u32,
    // Closed first: who watches may tell others that we have ended well.
    port: Port<Request>,
    parts: Parts,
    answers: Answers,
    notices: Notices,
    lost: Vec<bool>,
    events: VecDeque<Event<Buffer>>,
    next_look: Instant,
    patience: Patience,
}

impl Fabric {
    pub(crate) fn new(port: Port<Request>, parts: Parts) -> Self {
        Self {
            home: process::id(),
            port,
            answers: Answers::default(),
            notices: Notices::default(),
            lost: vec![false; parts.size],
            parts,
            events: VecDeque::new(),
            next_look: Instant::now() + LOOK_EVERY,
            patience: Patience::default(),
        }
    }

    /// The message layer alone, without frames and credit: see [`join`](crate::join) for a
    /// transport.
    ///
    /// # Errors
    /// As [`join`](crate::join).
    pub fn join<X: Exchange + 'static>(
        settings: &Settings,
        exchange: X,
    ) -> Result<Self, JoinError> {
        join::join(settings, exchange, |mut exchange| Box::new(move || exchange.poll_lost()))
    }

    /// libfabric's provider with its layers, such as `tcp;ofi_rxm`.
    #[must_use]
    pub fn provider(&self) -> &str {
        &self.parts.provider
    }

    fn is_lost(&self, peer: Rank) -> bool {
        self.lost.get(peer.index()) == Some(&true)
    }

    fn lose(&mut self, peer: Rank) {
        if let Some(lost @ false) = self.lost.get_mut(peer.index()) {
            *lost = true;
            self.forget(peer);
            self.events.push_back(Event::Lost { peer });
        }
    }

    fn look_for_lost(&mut self) {
        let now = Instant::now();
        if now < self.next_look {
            return;
        }
        self.next_look = now + LOOK_EVERY;
        while let Some(peer) = (self.parts.watch)() {
            self.lose(peer);
        }
    }

    /// Sends and posts what had no room before.
    fn catch_up(&mut self) -> Result<(), Error> {
        let paid = self.answers.pay(&mut self.port, self.parts.rank);
        let listening = self.notices.listen(&mut self.port);
        let outcomes =
            [paid, listening].map(|tried| tried.or_else(|(peer, errno)| self.fail(peer, errno)));
        outcomes.into_iter().collect()
    }

    /// Queues what a completion means.
    fn take(&mut self, completion: Completion<Request>) -> Result<(), Error> {
        let Completion { request, buffer, outcome } = completion;
        match (request, outcome) {
            (Request::Send { to, tag, asks }, outcome) => {
                let must_wait = asks && outcome.is_ok();
                let done =
                    if must_wait { self.answers.note_sent(to, tag, buffer) } else { Some(buffer) };
                self.events.extend(done.map(|buffer| Event::Released {
                    to,
                    tag,
                    buffer,
                    matched: asks,
                }));
                outcome.map_or_else(|errno| self.fail(to, errno), |_| Ok(()))
            }
            (Request::Receive { from, tag }, Ok(n_arrived)) => {
                self.take_message(from, tag, buffer, n_arrived)
            }
            (Request::Receive { from, .. }, Err(errno)) => {
                self.events.push_back(Event::Returned { buffer });
                if errno == Errno::CANCELED { Ok(()) } else { self.fail(from, errno) }
            }
            (Request::Notice { from }, Ok(n_arrived)) => {
                let (n_bytes, _) = buffer.contents(n_arrived).ok_or(Error::Malformed { from })?;
                self.notices.hear(from, buffer, n_bytes);
                self.deliver_notice();
                self.catch_up()
            }
            (Request::Answer { to }, outcome) => {
                self.answers.note_answered(to, buffer);
                outcome.map_or_else(|errno| self.fail(to, errno), |_| Ok(()))
            }
            (Request::AwaitAnswer { from, tag }, Ok(_)) => {
                let done = self.answers.note_answer(from, tag, buffer);
                self.events.extend(done.map(|buffer| Event::Released {
                    to: from,
                    tag,
                    buffer,
                    matched: true,
                }));
                Ok(())
            }
            (Request::Notice { .. } | Request::AwaitAnswer { .. }, Err(Errno::CANCELED)) => Ok(()),
            (Request::Notice { from } | Request::AwaitAnswer { from, .. }, Err(errno)) => {
                self.fail(from, errno)
            }
        }
    }

    fn take_message(
        &mut self,
        from: Rank,
        tag: Tag,
        buffer: Buffer,
        n_arrived: usize,
    ) -> Result<(), Error> {
        let Some((n_bytes, mark)) = buffer.contents(n_arrived) else {
            self.events.push_back(Event::Returned { buffer });
            return Err(Error::Malformed { from });
        };
        self.events.push_back(Event::Received { from, tag, buffer, n_bytes });
        if mark == ASKS {
            self.answers.owe(from, tag);
            self.catch_up()?;
        }
        Ok(())
    }

    fn deliver_notice(&mut self) {
        if let Some((from, tag, buffer, n_bytes)) = self.notices.deliver() {
            self.events.push_back(Event::Received { from, tag, buffer, n_bytes });
        }
    }

    /// What a failed request says of its peer, or of the layer.
    fn fail(&mut self, peer: Rank, errno: Errno) -> Result<(), Error> {
        if errno == Errno::TRUNCATED {
            Err(Error::Truncated { from: peer })
        } else if errno.is_of_connection() || errno == Errno::CANCELED {
            // Nobody cancels sends: a provider does, when the connection breaks.
            self.lose(peer);
            Ok(())
        } else {
            Err(Error::Message { peer, errno })
        }
    }

    /// What the provider said to a new request.
    fn refused(&mut self, peer: Rank, buffer: Buffer, errno: Errno) -> Refused<Buffer, Error> {
        let error = match errno {
            Errno::AGAIN => return Refused::Busy(buffer),
            Errno::INVALID => Error::Misuse,
            errno if errno.is_of_connection() => {
                self.lose(peer);
                Error::PeerLost { peer }
            }
            errno => Error::Message { peer, errno },
        };
        Refused::Failed(buffer, error)
    }
}

impl Net for Fabric {
    type Buffer = Buffer;
    type Error = Error;

    fn rank(&self) -> Rank {
        self.parts.rank
    }

    fn size(&self) -> usize {
        self.parts.size
    }

    fn allocate(&mut self, n_bytes: usize) -> Result<Buffer, Error> {
        self.port.allocate(n_bytes).map_err(|errno| Error::NoMemory { need: n_bytes, errno })
    }

    fn send(
        &mut self,
        to: Rank,
        tag: Tag,
        buffer: Buffer,
        n_bytes: usize,
        matched: bool,
    ) -> Result<(), Refused<Buffer, Error>> {
        if self.is_lost(to) {
            return Err(Refused::Failed(buffer, Error::PeerLost { peer: to }));
        }
        if matched && let Err(errno) = self.answers.listen(&mut self.port, to, tag) {
            return Err(self.refused(to, buffer, errno));
        }
        let mark = if matched { ASKS } else { PLAIN };
        let packed = tags::message(self.parts.rank, on_wire(tag));
        let request = Request::Send { to, tag, asks: matched };
        match self.port.send(to.index(), packed, buffer, n_bytes, mark, request) {
            Ok(()) => {
                if matched {
                    self.answers.note_question(to, tag);
                }
                self.patience.renew();
                Ok(())
            }
            Err((buffer, errno)) => Err(self.refused(to, buffer, errno)),
        }
    }

    fn recv(
        &mut self,
        from: Source,
        tag: Tag,
        buffer: Buffer,
    ) -> Result<(), Refused<Buffer, Error>> {
        match from {
            Source::Rank(from) => self
                .port
                .recv(tags::message(from, tag), buffer, Request::Receive { from, tag })
                .map_err(|(buffer, errno)| self.refused(from, buffer, errno)),
            Source::Any => {
                let me = self.parts.rank;
                let peers = (0..self.parts.size).map(Rank::new).filter(|&peer| peer != me);
                let asked = self.notices.ask(tag, buffer, peers);
                asked.map_err(|buffer| Refused::Failed(buffer, Error::Misuse))?;
                self.deliver_notice();
                // What fails is told by the next poll, which tries again.
                let _ = self.notices.listen(&mut self.port);
                Ok(())
            }
        }
    }

    fn poll(&mut self) -> Result<Option<Event<Buffer>>, Error> {
        if self.events.is_empty() {
            match self.port.poll().map_err(|errno| Error::Layer { errno })? {
                Some(completion) => self.take(completion)?,
                None => {
                    self.catch_up()?;
                    self.look_for_lost();
                }
            }
        }
        let event = self.events.pop_front();
        if event.is_some() {
            self.patience.renew();
        }
        Ok(event)
    }

    /// Sockets are filled and emptied by the system. To ask them is several calls of it, more than
    /// is gained (docs/algorithms.md, "Looks at the network").
    fn moves_by_itself(&self) -> bool {
        self.parts.is_on_ip
    }

    fn cancel_receives(&mut self) {
        let wanted = self.notices.stop();
        self.events.extend(wanted.map(|buffer| Event::Returned { buffer }));
        self.port
            .cancel(|request| matches!(request, Request::Receive { .. } | Request::Notice { .. }));
    }

    fn forget(&mut self, peer: Rank) {
        for (tag, buffer) in self.answers.forget(peer) {
            self.events.push_back(Event::Released { to: peer, tag, buffer, matched: true });
        }
    }

    fn idle(&mut self, budget: Duration) {
        self.patience.rest(budget);
    }

    fn link_rate(&self) -> Option<f64> {
        self.parts.link_rate
    }

    fn distance(&self, peer: Rank) -> Distance {
        match self.parts.is_near.get(peer.index()) {
            Some(true) if self.parts.is_in_memory => Distance::Node,
            Some(true) => Distance::Loopback,
            _ => Distance::Network,
        }
    }

    fn needs_checksum(&self) -> bool {
        !self.parts.is_in_memory
    }
}

impl Drop for Fabric {
    /// Somebody may wait for an answer to what was received last; not from a process that was
    /// forked off.
    fn drop(&mut self) {
        if process::id() != self.home {
            return;
        }
        let start = Instant::now();
        while self.answers.has_debts() && start.elapsed() < LAST_ANSWERS {
            if let Err((peer, _)) = self.answers.pay(&mut self.port, self.parts.rank) {
                self.answers.forget(peer);
            }
            match self.port.poll() {
                Ok(Some(Completion { request: Request::Answer { to }, buffer, .. })) => {
                    self.answers.note_answered(to, buffer);
                }
                Ok(Some(_)) => {}
                Ok(None) => self.patience.rest(LOOK_EVERY),
                Err(_) => return,
            }
        }
    }
}

impl fmt::Debug for Fabric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fabric")
            .field("rank", &self.parts.rank)
            .field("size", &self.parts.size)
            .field("provider", &self.parts.provider)
            .finish_non_exhaustive()
    }
}
