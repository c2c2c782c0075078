//! Rank 0 while ranks are missing: it accepts connections, runs their handshakes, and admits or
//! refuses them.
//!
//! One loop serves all connections, each with its own state and deadline. A connection that never
//! proves to be a rank holds at most some 16 KiB of memory, for at most [`HANDSHAKE_LIMIT`]. If
//! there are too many connections, rank 0 closes the oldest one whose process has not proven to
//! know the token, or else the oldest of all. That process must connect again.
//!
//! Before rank 0 closes a connection that has passed its deadline, it reads the connection once
//! more: perhaps the message arrived in time, and rank 0 itself was late.
//!
//! A refused rank ends, and the other ranks wait for it. So the group fails if all missing ranks of
//! this job were refused, and no rank was admitted or refused for a new reason for [`RETRY_LIMIT`].
//! All ranks learn the reason.
//!
//! If the root's port was derived from the job and another program uses it, rank 0 listens at one
//! of the job's spare ports. If rank 0 cannot listen at its root for any other reason, it reports
//! the reason at a spare port. Ranks that do not find rank 0 at its root try these ports too.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::time::{Duration, Instant};

use foldwire::Rank;
use mio::event::Event;
use mio::{Interest, Token};

use crate::connection::{Connection, ReadStatus};
use crate::coordinator::Coordinator;
use crate::error::{Error, RankList};
use crate::message::{MAX_HANDSHAKE_BYTES, Message, Refusal};
use crate::place::Place;
use crate::poller::Poller;
use crate::protocol::{Admission, AdmissionVerdict};
use crate::rank_connections::RankConnections;
use crate::rendezvous::{HANDSHAKE_LIMIT, deadline_after};
use crate::token::{self, NoRandomNumbers};

/// Maximum number of connections that are neither admitted nor refused, in addition to one for each
/// missing rank.
const MAX_UNPROVEN: usize = 64;
/// Maximum number of connections to accept before the existing ones are served again.
const ACCEPTS_PER_PASS: usize = 32;
/// Longest wait before the next attempt to accept. If the limit of open files makes an attempt
/// fail, the system does not report the waiting connection again.
const TICK: Duration = Duration::from_millis(100);

/// Time that rank 0 waits after a refusal before the group fails. The refused rank may retry, or
/// the real rank may connect if another process claimed its number.
const RETRY_LIMIT: Duration = Duration::from_millis(500);
/// Longest time for which rank 0 reports to the other ranks that it cannot listen.
const REFUSE_ALL_LIMIT: Duration = Duration::from_secs(1);

const LISTENER: Token = Token(usize::MAX);

/// Rank 0 while ranks are missing.
pub(crate) struct Acceptor<'a> {
    place: &'a Place,
    listener: mio::net::TcpListener,
    poller: Poller,
    /// Admitted ranks.
    ranks: RankConnections,
    /// Connections whose handshake is in progress, in the order of deadlines.
    pending: VecDeque<PendingConnection>,
    n_accepted: usize,
    /// True if more connections may wait at the listener.
    is_backlogged: bool,
    /// Error of the last attempt to accept connections.
    accept_fault: Option<io::Error>,
    /// Number of refused connections, and the reason of the last refusal.
    turned_away: Option<(usize, Refusal)>,
    /// Ranks that were refused for good and have not joined since, with the reason. A connection
    /// counts as the rank that it claimed to be.
    unfit: BTreeMap<Rank, Refusal>,
    /// When the last rank was admitted, or refused for a new reason.
    changed_at: Instant,
    /// Reason to refuse ranks that would otherwise be admitted.
    refuse_all: Option<Refusal>,
}

/// A connection that has not yet proven to be a rank's.
struct PendingConnection {
    token: Token,
    connection: Connection,
    deadline: Instant,
    admission: Admission,
}

/// Next step for a pending connection.
enum PendingOutcome {
    Wait,
    Admit(Rank),
    TurnAway(Refusal),
    /// The connection has ended.
    Forget,
}

impl<'a> Acceptor<'a> {
    /// Listens through `listener`, or else at the root of `place`. If the root's port was derived
    /// from the job and is in use, listens at a spare port. In any other case in which rank 0
    /// cannot listen, reports so to the other ranks for at most `limit`.
    pub(crate) fn bind(
        place: &'a Place,
        listener: Option<TcpListener>,
        limit: Duration,
    ) -> Result<Self, Error> {
        if let Some(listener) = listener {
            return Self::with_listener(place, listener);
        }
        let resolve = |source| Error::Resolve { root: place.root.clone(), limit, source };
        let addresses = place.root.listening(deadline_after(limit)).map_err(resolve)?;
        let source = match TcpListener::bind(&*addresses) {
            Ok(listener) => return Self::with_listener(place, listener),
            Err(source) => source,
        };
        let spare: Vec<SocketAddr> = place.spare_addresses(&addresses).collect();
        if let Ok(listener) = TcpListener::bind(&*spare) {
            let mut acceptor = Self::with_listener(place, listener)?;
            if place.job.chooses_port() && source.kind() == io::ErrorKind::AddrInUse {
                return Ok(acceptor);
            }
            acceptor.refuse_all_ranks(&source, limit.min(REFUSE_ALL_LIMIT));
        }
        Err(Error::Listen { root: place.root.clone(), source })
    }

    /// Refuses all ranks because rank 0 cannot listen, until every rank was refused or `limit` is
    /// over.
    fn refuse_all_ranks(&mut self, source: &io::Error, limit: Duration) {
        let os_error = source.raw_os_error().unwrap_or_default();
        self.refuse_all = Some(Refusal::CannotListen { os_error });
        let deadline = deadline_after(limit);
        while self.unfit.len() < self.place.size - 1 {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() || self.poll_once(left.min(TICK)).is_err() {
                return;
            }
        }
    }

    fn with_listener(place: &'a Place, listener: TcpListener) -> Result<Self, Error> {
        listener.set_nonblocking(true).map_err(Error::System)?;
        let mut listener = mio::net::TcpListener::from_std(listener);
        let poller = Poller::new()?;
        poller
            .registry()
            .register(&mut listener, LISTENER, Interest::READABLE)
            .map_err(Error::System)?;
        Ok(Self {
            place,
            listener,
            poller,
            ranks: RankConnections::new(place.size),
            pending: VecDeque::new(),
            n_accepted: 0,
            is_backlogged: false,
            accept_fault: None,
            turned_away: None,
            unfit: BTreeMap::new(),
            changed_at: Instant::now(),
            refuse_all: None,
        })
    }

    /// Admits ranks until the group is complete.
    pub(crate) fn admit_all(
        mut self,
        deadline: Instant,
        limit: Duration,
    ) -> Result<Coordinator, Error> {
        while self.ranks.absent().next().is_some() {
            let now = Instant::now();
            if now >= deadline {
                let missing = RankList::of(self.ranks.absent());
                self.ranks.send_to_all(&missing.to_message());
                if let Some(fault) = self.accept_fault {
                    return Err(Error::System(fault));
                }
                let (size, turned_away) = (self.place.size, self.turned_away);
                return Err(Error::Missing { missing, size, limit, turned_away });
            }
            if let Some((rank, reason)) = self.hopeless_rank(now) {
                self.ranks.send_to_all(&Message::Unfit { rank, reason });
                return Err(Error::Unfit { rank, size: self.place.size, reason });
            }
            let next = self.pending.front().map_or(deadline, |first| first.deadline.min(deadline));
            self.poll_once(next.saturating_duration_since(now).min(TICK))?;
            self.ranks.check()?;
        }
        Ok(Coordinator::welcome(self.poller, self.ranks))
    }

    /// Returns the first refused rank that is missing if all missing ranks were refused and
    /// [`RETRY_LIMIT`] is over.
    ///
    /// Ranks may be refused because they expect a smaller group. Then ranks beyond that size do not
    /// exist, and count as refused too. Such a refusal needs a proven hello.
    fn hopeless_rank(&self, now: Instant) -> Option<(Rank, Refusal)> {
        let sizes = self.unfit.values().map(|reason| match reason {
            Refusal::Size { theirs, .. } => *theirs,
            _ => u32::MAX,
        });
        let size = sizes.min()?;
        let is_lost = |rank: Rank| rank.0 >= size || self.unfit.contains_key(&rank);
        let is_due = now.saturating_duration_since(self.changed_at) >= RETRY_LIMIT;
        if !is_due || !self.ranks.absent().all(is_lost) {
            return None;
        }
        // A process that was refused may have claimed to be a rank that has joined.
        let is_missing = |&(&rank, _): &(&Rank, &Refusal)| !self.ranks.is_admitted(rank);
        let named = self.unfit.iter().find(is_missing).or_else(|| self.unfit.first_key_value());
        named.map(|(&rank, &reason)| (rank, reason))
    }

    /// Waits at most `timeout` for events, and handles them.
    fn poll_once(&mut self, timeout: Duration) -> Result<(), Error> {
        let timeout = if self.is_backlogged { Duration::ZERO } else { timeout };
        let ready: Vec<_> = self.poller.wait(timeout)?.map(Event::token).collect();
        for token in ready {
            self.ranks.receive(token.0);
            self.serve(token)?;
        }
        self.accept()?;
        self.expire()
    }

    /// Accepts some of the waiting connections.
    fn accept(&mut self) -> Result<(), Error> {
        (self.is_backlogged, self.accept_fault) = (false, None);
        for _ in 0..ACCEPTS_PER_PASS {
            match self.listener.accept() {
                Ok((stream, _)) => self.add_pending(stream)?,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error)
                    if matches!(
                        error.kind(),
                        io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted
                    ) => {}
                // No free file or memory, because of too many connections: try again after a tick.
                Err(error) => {
                    self.accept_fault = Some(error);
                    return Ok(());
                }
            }
        }
        self.is_backlogged = true;
        Ok(())
    }

    fn add_pending(&mut self, stream: mio::net::TcpStream) -> Result<(), Error> {
        if self.pending.len() >= MAX_UNPROVEN + self.ranks.absent().count() {
            let is_unknown = |connection: &PendingConnection| !connection.admission.is_challenged();
            self.pending.remove(self.pending.iter().position(is_unknown).unwrap_or(0));
        }
        let token = Token(self.place.size + self.n_accepted);
        self.n_accepted += 1;
        // Fails if the connection has already ended.
        let Ok(mut connection) = Connection::from_nonblocking(stream) else { return Ok(()) };
        connection.register(self.poller.registry(), token).map_err(Error::System)?;
        let deadline = Instant::now() + HANDSHAKE_LIMIT;
        let admission = Admission::default();
        self.pending.push_back(PendingConnection { token, connection, deadline, admission });
        // The first message has often arrived already.
        self.serve(token)
    }

    /// Reads once more from connections that have passed their deadline, and refuses those that are
    /// still pending.
    fn expire(&mut self) -> Result<(), Error> {
        let now = Instant::now();
        while let Some(first) = self.pending.front().filter(|first| first.deadline <= now) {
            let token = first.token;
            self.serve(token)?;
            if let Some(first) = self.pending.pop_front_if(|first| first.token == token) {
                self.turn_away(first, Refusal::Slow);
            }
        }
        Ok(())
    }

    /// Serves the pending connection with this token, if there is one.
    fn serve(&mut self, token: Token) -> Result<(), Error> {
        let index = self.pending.iter().position(|connection| connection.token == token);
        let Some(index) = index else { return Ok(()) };
        let outcome = self.pending[index].receive(self.place, &self.ranks)?;
        if matches!(outcome, PendingOutcome::Wait) {
            return Ok(());
        }
        let Some(mut newcomer) = self.pending.remove(index) else { return Ok(()) };
        match outcome {
            PendingOutcome::Admit(_) if let Some(reason) = self.refuse_all => {
                self.turn_away(newcomer, reason);
            }
            PendingOutcome::Admit(rank) => {
                self.unfit.remove(&rank);
                self.changed_at = Instant::now();
                let token = Token(rank.index());
                newcomer
                    .connection
                    .register(self.poller.registry(), token)
                    .map_err(Error::System)?;
                self.ranks.admit(rank, newcomer.connection);
            }
            PendingOutcome::TurnAway(reason) => self.turn_away(newcomer, reason),
            PendingOutcome::Wait | PendingOutcome::Forget => {}
        }
        Ok(())
    }

    fn turn_away(&mut self, mut newcomer: PendingConnection, reason: Refusal) {
        let n_before = self.turned_away.map_or(0, |(n, _)| n);
        self.turned_away = Some((n_before + 1, reason));
        let is_final = !matches!(reason, Refusal::Slow | Refusal::Duplicate { .. });
        if let Some(rank) = newcomer.admission.claim().filter(|_| is_final) {
            // A rank that searches on comes again.
            if self.unfit.insert(rank, reason) != Some(reason) {
                self.changed_at = Instant::now();
            }
        }
        newcomer.connection.send(&Message::Refusal(reason));
        newcomer.connection.close(Instant::now());
    }
}

impl PendingConnection {
    fn receive(
        &mut self,
        place: &Place,
        ranks: &RankConnections,
    ) -> Result<PendingOutcome, NoRandomNumbers> {
        self.connection.flush();
        loop {
            let status = self.connection.read();
            loop {
                match self.take_message(place, ranks)? {
                    None => break,
                    Some(PendingOutcome::Wait) => {}
                    Some(outcome) => return Ok(outcome),
                }
            }
            match status {
                ReadStatus::Data => {}
                ReadStatus::Blocked => return Ok(PendingOutcome::Wait),
                ReadStatus::Closed => return Ok(PendingOutcome::Forget),
            }
        }
    }

    /// Processes one message. `None` if no complete message has arrived.
    fn take_message(
        &mut self,
        place: &Place,
        ranks: &RankConnections,
    ) -> Result<Option<PendingOutcome>, NoRandomNumbers> {
        let Some(received) = self.connection.next_within(MAX_HANDSHAKE_BYTES).transpose() else {
            return Ok(None);
        };
        let is_admitted = |rank| ranks.is_admitted(rank);
        Ok(Some(match self.admission.receive(received, place, token::nonce, is_admitted)? {
            AdmissionVerdict::Challenge { nonce, proof } => {
                self.connection.send(&Message::Challenge { nonce, proof });
                PendingOutcome::Wait
            }
            AdmissionVerdict::Admit(rank) => PendingOutcome::Admit(rank),
            AdmissionVerdict::TurnAway(reason) => PendingOutcome::TurnAway(reason),
        }))
    }
}

#[cfg(test)]
mod tests {
    use std::net::{SocketAddr, TcpStream};
    use std::thread;

    use super::*;
    use crate::message::NONCE_BYTES;
    use crate::protocol::{ChallengeOutcome, JoinRequest};
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

    fn connect(address: SocketAddr) -> Connection {
        Connection::new(TcpStream::connect(address).unwrap()).unwrap()
    }

    /// Polls until `done`, for at most some seconds.
    fn poll_until(acceptor: &mut Acceptor<'_>, done: impl Fn(&Acceptor<'_>) -> bool) -> bool {
        let deadline = Instant::now() + Duration::from_secs(20);
        while !done(acceptor) && Instant::now() < deadline {
            acceptor.poll_once(Duration::from_millis(10)).unwrap();
        }
        done(acceptor)
    }

    fn n_challenged(acceptor: &Acceptor<'_>) -> usize {
        acceptor.pending.iter().filter(|connection| connection.admission.is_challenged()).count()
    }

    /// Connects as a rank that has been challenged; returns its connection and its answer.
    fn challenged(
        acceptor: &mut Acceptor<'_>,
        place: &Place,
        address: SocketAddr,
    ) -> (Connection, Message<'static>) {
        let request = JoinRequest::new(place, [place.rank.0 as u8; NONCE_BYTES]);
        let mut connection = connect(address);
        connection.send(&request.hello());
        let n_before = n_challenged(acceptor);
        assert!(poll_until(acceptor, |acceptor| n_challenged(acceptor) > n_before));
        loop {
            connection.read();
            if let Some(received) = connection.next().transpose() {
                let ChallengeOutcome::Proof(proof) = request.receive(received) else {
                    panic!("no challenge")
                };
                return (connection, Message::Answer { proof });
            }
        }
    }

    #[test]
    fn a_rank_that_answered_in_time_is_admitted_even_if_rank_0_reads_late() {
        let (listener, address) = listener();
        let [own, one, two] = [0, 1, 2].map(|rank| place(rank, address.port()));
        let mut acceptor = Acceptor::with_listener(&own, listener).unwrap();
        let join_requests = [one, two].map(|place| challenged(&mut acceptor, &place, address));
        let connections = join_requests.map(|(mut connection, answer)| {
            connection.send(&answer);
            connection
        });
        thread::sleep(Duration::from_millis(50));
        // As if rank 0 had not polled for a long time.
        for newcomer in &mut acceptor.pending {
            newcomer.deadline = Instant::now();
        }
        acceptor.expire().unwrap();
        assert_eq!((acceptor.ranks.absent().count(), acceptor.turned_away), (0, None));
        drop(connections);
    }

    #[test]
    fn a_crowd_with_valid_hellos_does_not_displace_a_rank_that_has_answered() {
        let (listener, address) = listener();
        let [own, one] = [0, 1].map(|rank| place(rank, address.port()));
        let mut acceptor = Acceptor::with_listener(&own, listener).unwrap();
        let (mut connection, answer) = challenged(&mut acceptor, &one, address);
        // Each connection of the crowd sends a valid hello, and there is one connection too many.
        let crowd: Vec<_> = (0..=MAX_UNPROVEN + 1)
            .map(|_| {
                let mut connection = connect(address);
                connection.send(&JoinRequest::new(&one, [9; NONCE_BYTES]).hello());
                connection
            })
            .collect();
        connection.send(&answer);
        assert!(poll_until(&mut acceptor, |acceptor| acceptor.n_accepted > crowd.len()));
        assert!(acceptor.ranks.is_admitted(Rank(1)));
    }

    /// The test runs itself in a process that may open few files.
    #[cfg(unix)]
    #[test]
    fn without_a_free_file_the_group_fails_for_that_reason() {
        const LIMITED: &str = "FOLDWIRE_TEST_FEW_FILES";
        const NAME: &str = "without_a_free_file_the_group_fails_for_that_reason";
        if std::env::var_os(LIMITED).is_none() {
            let mut limited = std::process::Command::new("sh");
            limited.args(["-c", "ulimit -n 40 && exec \"$0\" \"$@\""]);
            limited.arg(std::env::current_exe().unwrap()).arg(NAME).env(LIMITED, "1");
            let output = limited.output().unwrap();
            let told = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success() && told.contains("1 passed"), "{output:?}");
            return;
        }
        let (listener, address) = listener();
        let own = place(0, address.port());
        let acceptor = Acceptor::with_listener(&own, listener).unwrap();
        let _waits = TcpStream::connect(address).unwrap();
        let files: Vec<_> = std::iter::from_fn(|| std::fs::File::open("/dev/null").ok()).collect();
        let limit = Duration::from_millis(50);
        let error = acceptor.admit_all(Instant::now() + limit, limit).err();
        drop(files);
        assert!(matches!(error, Some(Error::System(_))), "{error:?}");
    }

    #[test]
    fn the_rank_that_cannot_join_is_named_not_one_that_has_joined() {
        let (listener, address) = listener();
        let [own, one, two] = [0, 1, 2].map(|rank| place(rank, address.port()));
        let mut acceptor = Acceptor::with_listener(&own, listener).unwrap();
        let (mut joined, answer) = challenged(&mut acceptor, &one, address);
        joined.send(&answer);
        assert!(poll_until(&mut acceptor, |acceptor| acceptor.ranks.is_admitted(Rank(1))));
        let twin = Place { token: token::Token::new("0123456789abcdef").ok(), ..one };
        let other = Place { size: 4, ..two };
        let refused = [twin, other].map(|place| {
            let mut connection = connect(address);
            connection.send(&JoinRequest::new(&place, [9; NONCE_BYTES]).hello());
            assert!(poll_until(&mut acceptor, |acceptor| {
                acceptor.unfit.contains_key(&place.rank)
            }));
            connection
        });
        let size = Refusal::Size { theirs: 4, ours: 3 };
        assert_eq!(acceptor.hopeless_rank(Instant::now() + RETRY_LIMIT), Some((Rank(2), size)));
        drop(refused);
    }

    #[test]
    fn a_silent_crowd_does_not_displace_a_challenged_rank() {
        let (listener, address) = listener();
        let [own, one] = [0, 1].map(|rank| place(rank, address.port()));
        let mut acceptor = Acceptor::with_listener(&own, listener).unwrap();
        let (mut connection, answer) = challenged(&mut acceptor, &one, address);
        let crowd: Vec<_> = (0..MAX_UNPROVEN + 10).map(|_| connect(address)).collect();
        assert!(poll_until(&mut acceptor, |acceptor| acceptor.n_accepted > crowd.len()));
        assert!(acceptor.pending.len() <= MAX_UNPROVEN + 2);
        connection.send(&answer);
        assert!(poll_until(&mut acceptor, |acceptor| acceptor.ranks.is_admitted(Rank(1))));
    }
}
