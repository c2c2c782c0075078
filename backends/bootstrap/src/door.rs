//! Rank 0 at the door: who knocks, who is let in, and who is not.
//!
//! Nobody is waited for alone. Every connection has its own state and its own deadline, all are served by one loop, and
//! what a stranger does costs at most some 16 KiB for [`HANDSHAKE_LIMIT`]. When too many knock at once, the one who has
//! waited longest must knock again.

use std::collections::VecDeque;
use std::io;
use std::net::TcpListener;
use std::time::{Duration, Instant};

use foldwire::Rank;
use mio::event::Event;
use mio::{Interest, Token};

use crate::error::{Error, RankList};
use crate::hub::Hub;
use crate::link::{Fill, Link};
use crate::message::{MAX_HANDSHAKE_BYTES, Message, Refusal};
use crate::place::Place;
use crate::protocol::{self, Admission};
use crate::rendezvous::HANDSHAKE_LIMIT;
use crate::seats::Seats;
use crate::token::{self, NoRandomNumbers};
use crate::watch::Watch;

/// Most connections that are neither let in nor turned away, on top of the ranks that are expected.
const MAX_STRANGERS: usize = 64;
/// Longest wait without a look at the listener: the system may have refused a connection for want of files.
const TICK: Duration = Duration::from_millis(100);

const LISTENER: Token = Token(usize::MAX);

/// Rank 0 while ranks are missing.
pub(crate) struct Door<'a> {
    place: &'a Place,
    listener: mio::net::TcpListener,
    watch: Watch,
    /// Who is in.
    seats: Seats,
    /// Who has knocked, in the order of deadlines.
    strangers: VecDeque<Stranger>,
    n_knocks: usize,
    turned_away: Option<(usize, Refusal)>,
}

struct Stranger {
    token: Token,
    link: Link,
    deadline: Instant,
    admission: Admission,
}

/// What hearing a stranger leads to.
enum Verdict {
    Wait,
    Admit(Rank),
    TurnAway(Refusal),
    /// It has gone.
    Forget,
}

impl<'a> Door<'a> {
    /// Listens at the place's root, or through `listener`.
    pub(crate) fn open(place: &'a Place, listener: Option<TcpListener>) -> Result<Self, Error> {
        let listener = match listener {
            Some(listener) => listener,
            None => {
                let resolve = |source| Error::Resolve { root: place.root.clone(), source };
                let addresses = place.root.listening().map_err(resolve)?;
                let listen = |source| Error::Listen { root: place.root.clone(), source };
                TcpListener::bind(&*addresses).map_err(listen)?
            }
        };
        listener.set_nonblocking(true).map_err(Error::System)?;
        let mut listener = mio::net::TcpListener::from_std(listener);
        let watch = Watch::new()?;
        watch
            .registry()
            .register(&mut listener, LISTENER, Interest::READABLE)
            .map_err(Error::System)?;
        Ok(Self {
            place,
            listener,
            watch,
            seats: Seats::new(place.size),
            strangers: VecDeque::new(),
            n_knocks: 0,
            turned_away: None,
        })
    }

    /// Lets ranks in until all are there.
    pub(crate) fn admit_all(mut self, deadline: Instant, limit: Duration) -> Result<Hub, Error> {
        while self.seats.absent().next().is_some() {
            let now = Instant::now();
            if now >= deadline {
                let missing = RankList::of(self.seats.absent());
                self.seats.tell_all(&missing.to_message());
                let (size, turned_away) = (self.place.size, self.turned_away);
                return Err(Error::Missing { missing, size, limit, turned_away });
            }
            self.expire(now);
            let next =
                self.strangers.front().map_or(deadline, |first| first.deadline.min(deadline));
            let timeout = next.saturating_duration_since(now).min(TICK);
            let ready: Vec<_> = self.watch.wait(timeout)?.map(Event::token).collect();
            self.accept()?;
            for token in ready {
                self.seats.hear(token.0);
                self.serve(token)?;
            }
            self.seats.check()?;
        }
        Ok(Hub::welcome(self.watch, self.seats))
    }

    /// Takes all who wait at the listener.
    fn accept(&mut self) -> Result<(), Error> {
        loop {
            match self.listener.accept() {
                Ok((stream, _)) => self.knock(stream)?,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error)
                    if matches!(
                        error.kind(),
                        io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted
                    ) => {}
                // No files or no memory, by a crowd of strangers: the next tick tries again.
                Err(_) => return Ok(()),
            }
        }
    }

    fn knock(&mut self, stream: mio::net::TcpStream) -> Result<(), Error> {
        if self.strangers.len() >= MAX_STRANGERS + self.seats.absent().count() {
            self.strangers.pop_front();
        }
        let token = Token(self.place.size + self.n_knocks);
        self.n_knocks += 1;
        // A connection that has ended already cannot be set up.
        let Ok(mut link) = Link::of(stream) else { return Ok(()) };
        link.watch(self.watch.registry(), token).map_err(Error::System)?;
        let deadline = Instant::now() + HANDSHAKE_LIMIT;
        let admission = Admission::default();
        self.strangers.push_back(Stranger { token, link, deadline, admission });
        Ok(())
    }

    /// Turns away who has taken too long.
    fn expire(&mut self, now: Instant) {
        while let Some(first) = self.strangers.pop_front_if(|first| first.deadline <= now) {
            self.turn_away(first, Refusal::Slow);
        }
    }

    /// Hears a stranger, if it is one that `token` stands for.
    fn serve(&mut self, token: Token) -> Result<(), Error> {
        let at = self.strangers.iter().position(|stranger| stranger.token == token);
        let Some(at) = at else { return Ok(()) };
        let verdict = self.strangers[at].hear(self.place, &self.seats)?;
        if matches!(verdict, Verdict::Wait) {
            return Ok(());
        }
        let Some(mut stranger) = self.strangers.remove(at) else { return Ok(()) };
        match verdict {
            Verdict::Admit(rank) => {
                let token = Token(rank.index());
                stranger.link.watch(self.watch.registry(), token).map_err(Error::System)?;
                self.seats.take(rank, stranger.link);
            }
            Verdict::TurnAway(reason) => self.turn_away(stranger, reason),
            Verdict::Wait | Verdict::Forget => {}
        }
        Ok(())
    }

    fn turn_away(&mut self, mut stranger: Stranger, reason: Refusal) {
        let n_before = self.turned_away.map_or(0, |(n, _)| n);
        self.turned_away = Some((n_before + 1, reason));
        stranger.link.send(&Message::Refusal(reason));
        stranger.link.close(Instant::now());
    }
}

impl Stranger {
    fn hear(&mut self, place: &Place, seats: &Seats) -> Result<Verdict, NoRandomNumbers> {
        self.link.flush();
        loop {
            let fill = self.link.fill();
            loop {
                match self.take_message(place, seats)? {
                    None => break,
                    Some(Verdict::Wait) => {}
                    Some(verdict) => return Ok(verdict),
                }
            }
            match fill {
                Fill::Some => {}
                Fill::Blocked => return Ok(Verdict::Wait),
                Fill::Ended => return Ok(Verdict::Forget),
            }
        }
    }

    /// `None`: no whole message is there.
    fn take_message(
        &mut self,
        place: &Place,
        seats: &Seats,
    ) -> Result<Option<Verdict>, NoRandomNumbers> {
        let Some(heard) = self.link.next_within(MAX_HANDSHAKE_BYTES).transpose() else {
            return Ok(None);
        };
        let is_taken = |rank| seats.is_taken(rank);
        Ok(Some(match self.admission.hear(heard, place, token::nonce, is_taken)? {
            protocol::Verdict::Challenge { nonce, proof } => {
                self.link.send(&Message::Challenge { nonce, proof });
                Verdict::Wait
            }
            protocol::Verdict::Admit(rank) => Verdict::Admit(rank),
            protocol::Verdict::TurnAway(reason) => Verdict::TurnAway(reason),
        }))
    }
}
