//! Rank 0 at the door: who knocks, who is let in, and who is not.
//!
//! Nobody is waited for alone. Every connection has its own state and its own deadline, all are
//! served by one loop, and what a stranger does costs at most some 16 KiB for [`HANDSHAKE_LIMIT`].
//! When too many knock at once, one of them must knock again: of those who have not shown that they
//! know the token, if there are any, the one who has waited longest.
//!
//! Who has said something is heard before anybody is put off, since it may be this rank that was
//! slow.
//!
//! A rank that is turned away has ended, and keeps the others waiting. So where all that are absent
//! have been turned away, as it says in words of this job, and none comes in its place for
//! [`SECOND_CHANCE`], the group is given up, and all are told why. Likewise where rank 0 cannot
//! listen: it says so at one of the job's spare ports, where ranks look that do not find it.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::{SocketAddr, TcpListener};
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
/// Most connections that are taken before those who are there are heard again.
const KNOCKS_PER_PASS: usize = 32;
/// Longest wait without a look at the listener: the system may have refused a connection for want
/// of files.
const TICK: Duration = Duration::from_millis(100);

/// How long a rank that was turned away may come again, or the true one if that was a stranger.
const SECOND_CHANCE: Duration = Duration::from_millis(500);
/// How long rank 0 tells the others that it cannot listen.
const BAD_NEWS: Duration = Duration::from_secs(1);

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
    /// More may wait at the listener.
    is_crowded: bool,
    turned_away: Option<(usize, Refusal)>,
    /// Ranks that were turned away, as they say, and have not come since.
    unfit: BTreeMap<Rank, Refusal>,
    /// When the last rank came or was turned away.
    news_at: Instant,
    /// Why ranks are turned away that would be let in otherwise.
    bad_news: Option<Refusal>,
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
    /// Listens at the place's root, or through `listener`. If it cannot, it tells the others, for
    /// at most so long.
    pub(crate) fn open(
        place: &'a Place,
        listener: Option<TcpListener>,
        limit: Duration,
    ) -> Result<Self, Error> {
        if let Some(listener) = listener {
            return Self::at(place, listener);
        }
        let resolve = |source| Error::Resolve { root: place.root.clone(), source };
        let addresses = place.root.listening().map_err(resolve)?;
        let source = match TcpListener::bind(&*addresses) {
            Ok(listener) => return Self::at(place, listener),
            Err(source) => source,
        };
        let spare: Vec<SocketAddr> = place.spare_addresses(&addresses).collect();
        if let Ok(listener) = TcpListener::bind(&*spare) {
            let mut door = Self::at(place, listener)?;
            if place.job.chooses_port() && source.kind() == io::ErrorKind::AddrInUse {
                return Ok(door);
            }
            door.tell(&source, limit.min(BAD_NEWS));
        }
        Err(Error::Listen { root: place.root.clone(), source })
    }

    /// Tells all ranks that rank 0 cannot listen; until all know, or for so long.
    fn tell(&mut self, why: &io::Error, limit: Duration) {
        let os_error = why.raw_os_error().unwrap_or_default();
        self.bad_news = Some(Refusal::CannotListen { os_error });
        let deadline = Instant::now() + limit;
        while self.unfit.len() < self.place.size - 1 {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() || self.pass(left.min(TICK)).is_err() {
                return;
            }
        }
    }

    fn at(place: &'a Place, listener: TcpListener) -> Result<Self, Error> {
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
            is_crowded: false,
            turned_away: None,
            unfit: BTreeMap::new(),
            news_at: Instant::now(),
            bad_news: None,
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
            if let Some((rank, reason)) = self.lost_cause(now) {
                self.seats.tell_all(&Message::Unfit { rank, reason });
                return Err(Error::Unfit { rank, size: self.place.size, reason });
            }
            let next =
                self.strangers.front().map_or(deadline, |first| first.deadline.min(deadline));
            self.pass(next.saturating_duration_since(now).min(TICK))?;
            self.seats.check()?;
        }
        Ok(Hub::welcome(self.watch, self.seats))
    }

    /// The first of those that were turned away, if they are all that are missing, and nobody has
    /// come since. Ranks that they do not count themselves will not come.
    fn lost_cause(&self, now: Instant) -> Option<(Rank, Refusal)> {
        let (&rank, &reason) = self.unfit.first_key_value()?;
        let sizes = self.unfit.values().map(|reason| match reason {
            Refusal::Size { theirs, .. } => *theirs,
            _ => u32::MAX,
        });
        let size = sizes.min()?;
        let is_lost = |rank: Rank| rank.0 >= size || self.unfit.contains_key(&rank);
        let is_due = now.saturating_duration_since(self.news_at) >= SECOND_CHANCE;
        (is_due && self.seats.absent().all(is_lost)).then_some((rank, reason))
    }

    /// Waits at most `timeout` for something to happen, and sees to it.
    fn pass(&mut self, timeout: Duration) -> Result<(), Error> {
        let timeout = if self.is_crowded { Duration::ZERO } else { timeout };
        let ready: Vec<_> = self.watch.wait(timeout)?.map(Event::token).collect();
        for token in ready {
            self.seats.hear(token.0);
            self.serve(token)?;
        }
        self.accept()?;
        self.expire()
    }

    /// Takes some of those who wait at the listener.
    fn accept(&mut self) -> Result<(), Error> {
        self.is_crowded = false;
        for _ in 0..KNOCKS_PER_PASS {
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
        self.is_crowded = true;
        Ok(())
    }

    fn knock(&mut self, stream: mio::net::TcpStream) -> Result<(), Error> {
        if self.strangers.len() >= MAX_STRANGERS + self.seats.absent().count() {
            let is_unknown = |stranger: &Stranger| !stranger.admission.is_challenged();
            self.strangers.remove(self.strangers.iter().position(is_unknown).unwrap_or(0));
        }
        let token = Token(self.place.size + self.n_knocks);
        self.n_knocks += 1;
        // A connection that has ended already cannot be set up.
        let Ok(mut link) = Link::of(stream) else { return Ok(()) };
        link.watch(self.watch.registry(), token).map_err(Error::System)?;
        let deadline = Instant::now() + HANDSHAKE_LIMIT;
        let admission = Admission::default();
        self.strangers.push_back(Stranger { token, link, deadline, admission });
        // What it says first is often here already.
        self.serve(token)
    }

    /// Turns away who has taken too long, after a last hearing.
    fn expire(&mut self) -> Result<(), Error> {
        let now = Instant::now();
        while let Some(first) = self.strangers.front().filter(|first| first.deadline <= now) {
            let token = first.token;
            self.serve(token)?;
            if let Some(first) = self.strangers.pop_front_if(|first| first.token == token) {
                self.turn_away(first, Refusal::Slow);
            }
        }
        Ok(())
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
            Verdict::Admit(_) if let Some(reason) = self.bad_news => {
                self.turn_away(stranger, reason);
            }
            Verdict::Admit(rank) => {
                self.unfit.remove(&rank);
                self.news_at = Instant::now();
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
        let is_final = !matches!(reason, Refusal::Slow | Refusal::Duplicate { .. });
        if let Some(rank) = stranger.admission.claim().filter(|_| is_final) {
            self.unfit.insert(rank, reason);
            self.news_at = Instant::now();
        }
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

#[cfg(test)]
mod tests {
    use std::net::{SocketAddr, TcpStream};
    use std::thread;

    use super::*;
    use crate::message::NONCE_BYTES;
    use crate::protocol::{Answer, Knock};
    use crate::{Job, Launcher, Root};

    fn place(rank: u32, port: u16) -> Place {
        let (rank, root) = (Rank(rank), Root::loopback(port));
        Place {
            rank,
            size: 3,
            root,
            token: None,
            job: Job::at_given_root(),
            launcher: Launcher::Foldwire,
        }
    }

    fn listener() -> (TcpListener, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        (listener, address)
    }

    fn connect(address: SocketAddr) -> Link {
        Link::new(TcpStream::connect(address).unwrap()).unwrap()
    }

    /// Passes until `done`, or for some seconds.
    fn pass_until(door: &mut Door<'_>, done: impl Fn(&Door<'_>) -> bool) -> bool {
        let deadline = Instant::now() + Duration::from_secs(4);
        while !done(door) && Instant::now() < deadline {
            door.pass(Duration::from_millis(10)).unwrap();
        }
        done(door)
    }

    fn n_challenged(door: &Door<'_>) -> usize {
        door.strangers.iter().filter(|stranger| stranger.admission.is_challenged()).count()
    }

    /// A rank that has been challenged, and what it is to answer.
    fn challenged(
        door: &mut Door<'_>,
        place: &Place,
        address: SocketAddr,
    ) -> (Link, Message<'static>) {
        let knock = Knock::new(place, [place.rank.0 as u8; NONCE_BYTES]);
        let mut link = connect(address);
        link.send(&knock.hello());
        let n_before = n_challenged(door);
        assert!(pass_until(door, |door| n_challenged(door) > n_before));
        loop {
            link.fill();
            if let Some(heard) = link.next().transpose() {
                let Answer::Proof(proof) = knock.hear(heard) else { panic!("no challenge") };
                return (link, Message::Answer { proof });
            }
        }
    }

    #[test]
    fn who_has_answered_is_let_in_however_late_it_is_heard() {
        let (listener, address) = listener();
        let [own, one, two] = [0, 1, 2].map(|rank| place(rank, address.port()));
        let mut door = Door::at(&own, listener).unwrap();
        let knocks = [one, two].map(|place| challenged(&mut door, &place, address));
        let links = knocks.map(|(mut link, answer)| {
            link.send(&answer);
            link
        });
        thread::sleep(Duration::from_millis(50));
        // As if this rank had been away.
        for stranger in &mut door.strangers {
            stranger.deadline = Instant::now();
        }
        door.expire().unwrap();
        assert_eq!((door.seats.absent().count(), door.turned_away), (0, None));
        drop(links);
    }

    #[test]
    fn who_has_answered_is_let_in_before_a_crowd() {
        let (listener, address) = listener();
        let [own, one] = [0, 1].map(|rank| place(rank, address.port()));
        let mut door = Door::at(&own, listener).unwrap();
        let (mut link, answer) = challenged(&mut door, &one, address);
        // All of them say who they are, and one is too many.
        let crowd: Vec<_> = (0..=MAX_STRANGERS + 1)
            .map(|_| {
                let mut link = connect(address);
                link.send(&Knock::new(&one, [9; NONCE_BYTES]).hello());
                link
            })
            .collect();
        link.send(&answer);
        assert!(pass_until(&mut door, |door| door.n_knocks == 1 + crowd.len()));
        assert!(door.seats.is_taken(Rank(1)));
    }

    #[test]
    fn a_crowd_that_says_nothing_does_not_push_out_who_has_been_challenged() {
        let (listener, address) = listener();
        let [own, one] = [0, 1].map(|rank| place(rank, address.port()));
        let mut door = Door::at(&own, listener).unwrap();
        let (mut link, answer) = challenged(&mut door, &one, address);
        let crowd: Vec<_> = (0..MAX_STRANGERS + 10).map(|_| connect(address)).collect();
        assert!(pass_until(&mut door, |door| door.n_knocks == 1 + crowd.len()));
        assert!(door.strangers.len() <= MAX_STRANGERS + 2);
        link.send(&answer);
        assert!(pass_until(&mut door, |door| door.seats.is_taken(Rank(1))));
    }
}
