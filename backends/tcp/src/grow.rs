//! Groups over TCP that take in newcomers: the [`Connector`] of this backend, and both sides of a
//! grow in one call each.
//!
//! A process listens before it offers itself, and its offer is the same as in a join: address,
//! settings, nonce, and a proof of all that by the token. The nonce begins with the process's
//! number, so the offer is of no use under another one. The leader proves its plan likewise. The
//! new group's secret comes from the plan, and both ends of each connection prove that they know
//! it. So members that hold different plans do not connect. A process without the token gets no
//! connection and can make no plan, whatever it writes to the store.
//!
//! A member that has ended costs little time: the system refuses connections to its address. The
//! members that wait for its connections try that, too.

use std::net::{TcpListener, TcpStream};
use std::task::Poll;
use std::thread;
use std::time::{Duration, Instant};

use foldwire::grow::{self, Admission, Connector, GrowError, Grown, Roster, block_on};
use foldwire::store::Store;
use foldwire::{Communicator, Config, Rank, Transport};
use foldwire_bootstrap::deadline_after;

use crate::join::{Connecting, ConnectionSetup, PAUSE, TcpOffer, agree, listen};
use crate::secret::{PLAN, SessionSecret, accepts_token_proof, nonce, token_proof};
use crate::settings::Settings;
use crate::{Endpoint, JoinError};

/// A communicator of the new group, and its plan.
pub type GrownGroup = Grown<Communicator<Endpoint>>;

/// Time after which a member that has not connected is tested for being there.
const TEST_AFTER: Duration = Duration::from_millis(100);
/// Interval between two tests.
const TEST_INTERVAL: Duration = Duration::from_millis(50);
/// Longest time that a test may take. On one machine, a refusal takes microseconds.
const TEST_LIMIT: Duration = Duration::from_millis(20);
/// Number of refused tests after which a member counts as ended.
const N_REFUSALS: u32 = 3;

/// Bytes of a process's number, with which the nonce of its offer begins.
const UNIQUE_BYTES: usize = 16;

/// Makes endpoints over TCP for [`grow::admit`] and [`grow::rejoin`].
#[derive(Debug)]
pub struct TcpConnector {
    settings: Settings,
    start: Instant,
    /// The offer of this process, and the socket at which it listens.
    offered: Option<(TcpListener, TcpOffer)>,
    attempt: Option<Attempt>,
}

/// Connections to the members of a plan, while they are made.
struct Attempt {
    connecting: Connecting,
    until: Instant,
    next_test: Instant,
    /// By member, the number of tests that were refused in a row.
    n_refusals: Vec<u32>,
}

impl std::fmt::Debug for Attempt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Attempt").finish_non_exhaustive()
    }
}

impl TcpConnector {
    /// Makes connections with these settings, which all members share.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        Self { settings, start: Instant::now(), offered: None, attempt: None }
    }

    fn begin(
        &mut self,
        rank: usize,
        offers: &[&[u8]],
        plan: &[u8],
        limit: Duration,
    ) -> Result<Attempt, JoinError> {
        let (listener, mine) = self.offered.take().ok_or(JoinError::NotOffered)?;
        let all: Vec<Vec<u8>> = offers.iter().map(|offer| offer.to_vec()).collect();
        let offers = agree(&mine, self.settings.token.as_ref(), &all)?;
        let rank = Rank::new(rank);
        if offers.get(rank.index()) != Some(&mine) {
            return Err(JoinError::NotOffered);
        }
        let secret = SessionSecret::new(self.settings.token.as_ref(), plan);
        let is_near =
            offers.iter().map(|offer| !mine.node.is_empty() && offer.node == mine.node).collect();
        let n_refusals = vec![0; offers.len()];
        let (shared, memory) = (mine.shared, None);
        let setup = ConnectionSetup { rank, offers, is_near, secret, shared, memory };
        Ok(Attempt {
            connecting: Connecting::new(setup, listener, limit),
            until: deadline_after(limit),
            next_test: Instant::now() + TEST_AFTER,
            n_refusals,
        })
    }
}

impl Attempt {
    /// Advances. Returns whether every member is connected or counts as lost.
    fn advance(&mut self) -> Result<bool, JoinError> {
        if self.connecting.step()? || Instant::now() >= self.until {
            return Ok(true);
        }
        if Instant::now() < self.next_test {
            return Ok(false);
        }
        let missing: Vec<Rank> = self.connecting.missing().collect();
        for &peer in &missing {
            let is_refused = self.connecting.is_refused(peer) || {
                let tested = TcpStream::connect_timeout(&self.connecting.address(peer), TEST_LIMIT);
                tested.is_err_and(|it| it.kind() == std::io::ErrorKind::ConnectionRefused)
            };
            let n_refusals = &mut self.n_refusals[peer.index()];
            *n_refusals = if is_refused { *n_refusals + 1 } else { 0 };
        }
        self.next_test = Instant::now() + TEST_INTERVAL;
        Ok(missing.iter().all(|peer| self.n_refusals[peer.index()] >= N_REFUSALS))
    }
}

impl Connector for TcpConnector {
    type Transport = Endpoint;
    type Error = JoinError;

    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    fn idle(&mut self, budget: Duration) {
        thread::sleep(budget);
    }

    fn unique(&mut self) -> Result<u128, JoinError> {
        let nonce = nonce().map_err(JoinError::NoRandomNumbers)?;
        Ok(nonce.first_chunk().copied().map_or(0, u128::from_le_bytes))
    }

    fn offer(&mut self, unique: u128) -> Result<Vec<u8>, JoinError> {
        // There will be other members, so an address that is not loopback needs a token.
        let (listener, mut offer) = listen(&self.settings, 2, Vec::new())?;
        // The proof covers the nonce.
        offer.nonce[..UNIQUE_BYTES].copy_from_slice(&unique.to_le_bytes());
        let offer = offer.proven(self.settings.token.as_ref());
        let bytes = offer.encode();
        self.offered = Some((listener, offer));
        Ok(bytes)
    }

    fn accepts(&self, unique: u128, offer: &[u8]) -> bool {
        let mine = self.offered.as_ref().map(|(_, mine)| mine.shared);
        TcpOffer::decode(offer).is_some_and(|theirs| {
            let fits = mine.is_none_or(|mine| mine == theirs.shared);
            let is_of_number = theirs.nonce.starts_with(&unique.to_le_bytes());
            fits && is_of_number && theirs.is_proven(self.settings.token.as_ref())
        })
    }

    fn prove(&self, plan: &[u8]) -> Vec<u8> {
        token_proof(self.settings.token.as_ref(), PLAN, plan).to_vec()
    }

    fn is_proven(&self, plan: &[u8], proof: &[u8]) -> bool {
        accepts_token_proof(self.settings.token.as_ref(), PLAN, plan, proof)
    }

    fn poll_connect(
        &mut self,
        rank: usize,
        offers: &[&[u8]],
        plan: &[u8],
        limit: Duration,
    ) -> Poll<Result<Endpoint, JoinError>> {
        let mut attempt = match self.attempt.take() {
            Some(attempt) => attempt,
            None => self.begin(rank, offers, plan, limit)?,
        };
        if !attempt.advance()? {
            self.attempt = Some(attempt);
            thread::sleep(PAUSE);
            return Poll::Pending;
        }
        let tcp = attempt.connecting.into_tcp(&self.settings)?;
        Poll::Ready(Ok(Endpoint::new(tcp, self.settings.effective_options())?))
    }
}

/// Survivors' side: replaces a communicator by one of the ranks that call this, and of newcomers
/// that wait in the store. Keeps its configuration.
///
/// All ranks of `comm` call it at the same place of their program, after a failure or without one.
/// `comm` may be over any transport; the new group is over TCP.
///
/// # Errors
/// See [`grow::admit`] and [`grow::vote`]. The communicator is then gone.
///
/// # Examples
/// ```no_run
/// use foldwire::grow::Admission;
/// use foldwire::{Communicator, store::Store};
/// use foldwire_tcp::{Endpoint, Settings, admit};
/// use std::time::Duration;
///
/// /// Waits until the group has four ranks again, and tells the newcomers the step.
/// fn heal(
///     comm: Communicator<Endpoint>,
///     store: &mut dyn Store,
///     step: u64,
/// ) -> Result<Communicator<Endpoint>, Box<dyn std::error::Error>> {
///     let wanted = Admission {
///         size: 4,
///         limit: Duration::from_secs(60),
///         patience: Duration::from_secs(5),
///         generation: 0,
///         facts: &step.to_le_bytes(),
///     };
///     Ok(admit(comm, store, &Settings::from_env()?, &wanted)?.group)
/// }
/// ```
pub fn admit<P: Transport>(
    comm: Communicator<P>,
    store: &mut dyn Store,
    settings: &Settings,
    wanted: &Admission<'_>,
) -> Result<GrownGroup, GrowError<JoinError>> {
    let mut connector = TcpConnector::new(settings.clone());
    let config = *comm.config();
    let grown = block_on(grow::admit(comm, store, &mut connector, wanted))?;
    finish(grown, config, store)
}

/// Newcomer's side: waits until a group admits this process. `config` has the time limits, threads
/// and rules of the new communicator; other settings are the group's.
///
/// # Errors
/// See [`grow::rejoin`] and [`grow::vote`]. If a group forms without this process after all, it
/// waits for another one until `limit`.
pub fn rejoin(
    store: &mut dyn Store,
    settings: &Settings,
    config: Config,
    limit: Duration,
) -> Result<GrownGroup, GrowError<JoinError>> {
    let mut connector = TcpConnector::new(settings.clone());
    let start = Instant::now();
    loop {
        let left = limit.saturating_sub(start.elapsed());
        let grown = block_on(grow::rejoin(store, &mut connector, left))?;
        let config = grown.roster.tuning.configure(config);
        match finish(grown, config, store) {
            Err(GrowError::Group(error)) if !error.is_usage() && start.elapsed() < limit => {}
            finished => return finished,
        }
    }
}

fn finish(
    grown: Grown<Endpoint>,
    config: Config,
    store: &mut dyn Store,
) -> Result<GrownGroup, GrowError<JoinError>> {
    let Grown { group, roster } = grown;
    let comm = Communicator::with_config(group, config)?;
    let group = block_on(grow::vote(comm, &roster, store))?;
    let roster = Roster { rank: group.rank().index(), ..roster };
    Ok(Grown { group, roster })
}
