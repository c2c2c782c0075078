//! Joining a group: settings, and the choice between the roles of rank 0 and of the other ranks.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use foldwire::Rank;

use crate::acceptor::Acceptor;
use crate::error::Error;
use crate::member::MemberConnection;
use crate::place::Place;
use crate::pmi::meet::take_listener;
use crate::root::Root;
use crate::session::{Session, SessionRole};

/// Default time limit.
pub const DEFAULT_LIMIT: Duration = Duration::from_secs(60);

/// Longest time limit: a year. A longer limit, such as [`Duration::MAX`], counts as a year: the
/// clock of some systems could not hold its end.
pub const LONGEST_LIMIT: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// Shortest time limit of a system call. Zero means no limit, and the system may round a shorter
/// time to zero.
pub(crate) const SHORTEST_LIMIT: Duration = Duration::from_millis(1);

/// Returns the end of a time limit that starts now. A limit beyond [`LONGEST_LIMIT`] counts as
/// that.
#[must_use]
pub fn deadline_after(limit: Duration) -> Instant {
    Instant::now() + limit.min(LONGEST_LIMIT)
}

/// Time limit of a handshake, by which a connection proves that a rank opened it. Also the
/// additional time for which ranks wait for rank 0.
pub(crate) const HANDSHAKE_LIMIT: Duration = Duration::from_secs(5);

/// Settings with which a rank joins its group.
///
/// # Examples
/// ```
/// use foldwire_bootstrap::{Exchange, Place, Rendezvous};
///
/// let mut session = Rendezvous::new(Place::alone()).join()?;
/// assert_eq!(session.all_gather(b"my address")?, [b"my address"]);
/// # Ok::<(), foldwire_bootstrap::Error>(())
/// ```
#[derive(Debug)]
pub struct Rendezvous {
    place: Place,
    limit: Duration,
    listener: Option<TcpListener>,
}

impl Rendezvous {
    /// Prepares to join as the rank that `place` describes.
    #[must_use]
    pub fn new(place: Place) -> Self {
        Self { place, limit: DEFAULT_LIMIT, listener: None }
    }

    /// Prepares to join as the rank that the environment describes ([`Place::from_env`]).
    ///
    /// # Errors
    /// If the environment is incomplete or inconsistent.
    pub fn from_env() -> Result<Self, Error> {
        Self::from_env_within(DEFAULT_LIMIT)
    }

    /// Like [`from_env`](Self::from_env), with a time limit for the launcher's PMI server and for
    /// joining; more than a year counts as a year.
    ///
    /// # Errors
    /// As [`from_env`](Self::from_env).
    pub fn from_env_within(limit: Duration) -> Result<Self, Error> {
        Ok(Self::new(Place::from_env_within(limit)?).limit(limit))
    }

    /// Sets the longest wait for other ranks, while joining and in each all-gather. The default is
    /// a minute; more than a year counts as a year.
    ///
    /// Ranks that wait for rank 0 wait five seconds longer, to receive its list of missing ranks.
    #[must_use]
    pub fn limit(mut self, limit: Duration) -> Self {
        self.limit = limit.min(LONGEST_LIMIT);
        self
    }

    /// Gives rank 0 a socket that already listens; without a token, at the loopback interface.
    /// Without it, rank 0 listens at [`Place::root`]. Other ranks ignore it.
    #[must_use]
    pub fn listener(mut self, listener: TcpListener) -> Self {
        self.listener = Some(listener);
        self
    }

    /// Joins, and waits until all ranks have joined. A single rank opens no socket.
    ///
    /// # Errors
    /// If ranks are missing at the time limit, or this rank or another cannot take part.
    pub fn join(self) -> Result<Session, Error> {
        let Self { place, limit, listener } = self;
        // Without the secret token, any program that reaches rank 0 over a network could join.
        if place.size > 1 && place.token.is_none() && !place.root.is_loopback() {
            return Err(Error::NoToken { root: place.root });
        }
        // The root may name the loopback interface although the socket listens everywhere.
        if let Some(listener) = listener.as_ref().filter(|_| place.rank == Rank(0))
            && place.size > 1
            && place.token.is_none()
        {
            let address = listener.local_addr().map_err(Error::System)?;
            if !address.ip().to_canonical().is_loopback() {
                let root = Root::new(address.ip().to_string(), address.port());
                return Err(Error::NoToken { root });
            }
        }
        // Rank 0 has told the launcher's PMI server where it listens already.
        let listener = listener.or_else(|| take_listener(&place.root));
        let deadline = deadline_after(limit);
        let role = match (place.size, place.rank) {
            (0 | 1, _) => SessionRole::Alone,
            (_, Rank(0)) => SessionRole::Root(
                Acceptor::bind(&place, listener, limit)?.admit_all(deadline, limit)?,
            ),
            _ => SessionRole::Member(Box::new(MemberConnection::join(&place, deadline, limit)?)),
        };
        Ok(Session::new(place, limit, role))
    }
}
