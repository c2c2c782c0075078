//! The message layer: completions of libfabric's as events of messages between ranks.
//!
//! *Who is lost.* Providers tell little of it: TCP's fail sends to a rank that has ended, shared memory's say nothing, and
//! a receive waits for ever. So the way that the ranks found each other is asked every [`LOOK_EVERY`], and what it says
//! counts. Sends under way to a lost rank stay with the provider until the endpoint is closed.

use std::collections::VecDeque;
use std::fmt;
use std::time::{Duration, Instant};

use foldwire::transport::{Rank, Tag};
use foldwire_bootstrap::Exchange;
use foldwire_messaging::{Event, Net, Patience, Refused, Source};

use crate::ffi::{Arrival, Buffer, Completion, Port};
use crate::{Errno, Error, JoinError, Settings, join, tags};

/// How often to ask who is lost.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// What a request of libfabric's is about.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Request {
    Send { to: Rank, tag: Tag },
    Receive { from: Source, tag: Tag },
}

/// Tells of ranks that have ended, one at a time.
pub(crate) type Watch = Box<dyn FnMut() -> Option<Rank>>;

/// What [`join`](crate::join) has found out.
pub(crate) struct Parts {
    pub(crate) rank: Rank,
    pub(crate) size: usize,
    pub(crate) provider: String,
    pub(crate) send_flag: u64,
    pub(crate) is_in_memory: bool,
    pub(crate) link_rate: Option<f64>,
    pub(crate) watch: Watch,
}

/// Messages between ranks over one libfabric endpoint.
pub struct Fabric {
    // Closed first: who watches may tell others that we have ended well.
    port: Port<Request>,
    parts: Parts,
    lost: Vec<bool>,
    events: VecDeque<Event<Buffer>>,
    next_look: Instant,
    patience: Patience,
}

impl Fabric {
    pub(crate) fn new(port: Port<Request>, parts: Parts) -> Self {
        Self {
            port,
            lost: vec![false; parts.size],
            parts,
            events: VecDeque::new(),
            next_look: Instant::now() + LOOK_EVERY,
            patience: Patience::default(),
        }
    }

    /// The message layer alone, without frames and credit: see [`join`](crate::join) for a transport.
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

    /// Whether the provider can say that a message was matched, so that senders cannot run far ahead of receivers.
    #[must_use]
    pub const fn can_match(&self) -> bool {
        self.parts.send_flag != 0
    }

    fn lose(&mut self, peer: Rank) {
        if let Some(lost @ false) = self.lost.get_mut(peer.index()) {
            *lost = true;
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

    /// Queues what a completion means.
    fn take(&mut self, completion: Completion<Request>) -> Result<(), Error> {
        let Completion { request, buffer, outcome } = completion;
        match (request, outcome) {
            (Request::Send { to, tag }, outcome) => {
                self.events.push_back(Event::Released { to, tag, buffer });
                outcome.map_or_else(|errno| self.fail(Some(to), errno), |_| Ok(()))
            }
            (Request::Receive { tag, .. }, Ok(arrival)) => {
                match self.read_envelope(arrival, buffer.as_ref().len()) {
                    Ok((from, n_bytes)) => {
                        self.events.push_back(Event::Received { from, tag, buffer, n_bytes });
                        Ok(())
                    }
                    Err(error) => {
                        self.events.push_back(Event::Returned { buffer });
                        Err(error)
                    }
                }
            }
            (Request::Receive { from, .. }, Err(errno)) => {
                self.events.push_back(Event::Returned { buffer });
                match from {
                    _ if errno == Errno::CANCELED => Ok(()),
                    Source::Rank(peer) => self.fail(Some(peer), errno),
                    Source::Any => self.fail(None, errno),
                }
            }
        }
    }

    /// Who sent a message, and how long it is.
    fn read_envelope(&self, arrival: Arrival, n_room: usize) -> Result<(Rank, usize), Error> {
        let size = self.parts.size;
        let from = tags::sender(arrival.tag).filter(|from| from.index() < size);
        let from = from.ok_or(Error::Stranger { tag: arrival.tag, size })?;
        if arrival.n_bytes > n_room {
            Err(Error::Truncated { from })
        } else {
            Ok((from, arrival.n_bytes))
        }
    }

    /// What a failed request says of its peer, or of the layer.
    fn fail(&mut self, peer: Option<Rank>, errno: Errno) -> Result<(), Error> {
        match peer {
            Some(from) if errno == Errno::TRUNCATED => Err(Error::Truncated { from }),
            // Nobody cancels sends: a provider does, when the connection breaks.
            Some(peer) if errno.is_of_connection() || errno == Errno::CANCELED => {
                self.lose(peer);
                Ok(())
            }
            Some(peer) => Err(Error::Message { peer, errno }),
            None => Err(Error::Layer { errno }),
        }
    }

    /// What the provider said to a new request.
    fn refused(
        &mut self,
        peer: Option<Rank>,
        (buffer, errno): (Buffer, Errno),
    ) -> Refused<Buffer, Error> {
        let error = match (errno, peer) {
            (Errno::AGAIN, _) => return Refused::Busy(buffer),
            (Errno::INVALID, _) => Error::Misuse,
            (errno, Some(peer)) if errno.is_of_connection() => {
                self.lose(peer);
                Error::PeerLost { peer }
            }
            (errno, Some(peer)) => Error::Message { peer, errno },
            (errno, None) => Error::Layer { errno },
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
        if self.lost.get(to.index()) == Some(&true) {
            return Err(Refused::Failed(buffer, Error::PeerLost { peer: to }));
        }
        let flags = if matched { self.parts.send_flag } else { 0 };
        let packed = tags::pack(self.parts.rank, tag);
        let request = Request::Send { to, tag };
        self.port
            .send(to.index(), packed, buffer, n_bytes, flags, request)
            .map_err(|refused| self.refused(Some(to), refused))
            .inspect(|()| self.patience.renew())
    }

    fn recv(
        &mut self,
        from: Source,
        tag: Tag,
        buffer: Buffer,
    ) -> Result<(), Refused<Buffer, Error>> {
        let (packed, ignored) = tags::pattern(from, tag);
        let request = Request::Receive { from, tag };
        let peer = match from {
            Source::Rank(rank) => Some(rank),
            Source::Any => None,
        };
        self.port
            .recv(packed, ignored, buffer, request)
            .map_err(|refused| self.refused(peer, refused))
    }

    fn poll(&mut self) -> Result<Option<Event<Buffer>>, Error> {
        if self.events.is_empty() {
            match self.port.poll().map_err(|errno| Error::Layer { errno })? {
                Some(completion) => self.take(completion)?,
                None => self.look_for_lost(),
            }
        }
        let event = self.events.pop_front();
        if event.is_some() {
            self.patience.renew();
        }
        Ok(event)
    }

    fn cancel_receives(&mut self) {
        self.port.cancel(|request| matches!(request, Request::Receive { .. }));
    }

    fn idle(&mut self, budget: Duration) {
        self.patience.rest(budget);
    }

    fn link_rate(&self) -> Option<f64> {
        self.parts.link_rate
    }

    fn needs_checksum(&self) -> bool {
        !self.parts.is_in_memory
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
