//! How the group comes together: settings, and what happens on either side until all ranks are
//! there.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use foldwire::Rank;

use crate::acceptor::Acceptor;
use crate::error::Error;
use crate::member::MemberConnection;
use crate::place::Place;
use crate::session::{Session, SessionRole};

/// Time limit by default.
pub const DEFAULT_LIMIT: Duration = Duration::from_secs(60);

/// Longest time limit: a year, which every system's clock can count from now.
const LONGEST_LIMIT: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// The time in which a connection must show that it is a rank's.
pub(crate) const HANDSHAKE_LIMIT: Duration = Duration::from_secs(5);

/// A group in the making, as one of its ranks sees it.
///
/// # Examples
/// ```
/// use foldwire_bootstrap::{Exchange, Place, Rendezvous};
///
/// let mut party = Rendezvous::new(Place::alone()).join()?;
/// assert_eq!(party.all_gather(b"my address")?, [b"my address"]);
/// # Ok::<(), foldwire_bootstrap::Error>(())
/// ```
#[derive(Debug)]
pub struct Rendezvous {
    place: Place,
    limit: Duration,
    listener: Option<TcpListener>,
}

impl Rendezvous {
    /// The group that `place` is a place in.
    #[must_use]
    pub fn new(place: Place) -> Self {
        Self { place, limit: DEFAULT_LIMIT, listener: None }
    }

    /// The group of this process's environment.
    ///
    /// # Errors
    /// When the environment says nothing sensible.
    pub fn from_env() -> Result<Self, Error> {
        Ok(Self::new(Place::from_env()?))
    }

    /// The longest wait for others, while joining and in each all-gather (default: a minute). Who
    /// waits for rank 0 waits five seconds longer, to hear from it who is missing. More than a year
    /// counts as a year.
    #[must_use]
    pub fn limit(mut self, limit: Duration) -> Self {
        self.limit = limit.min(LONGEST_LIMIT);
        self
    }

    /// A socket for rank 0 that listens already, instead of one at the place's root. Other ranks
    /// ignore it.
    #[must_use]
    pub fn listener(mut self, listener: TcpListener) -> Self {
        self.listener = Some(listener);
        self
    }

    /// Waits for all ranks. A single rank opens no socket.
    ///
    /// # Errors
    /// [`Error`] says who is missing, or why this rank cannot take part.
    pub fn join(self) -> Result<Session, Error> {
        let Self { place, limit, listener } = self;
        if place.size > 1 && place.token.is_none() && !place.root.is_loopback() {
            return Err(Error::NoToken { root: place.root });
        }
        let (rank, size) = (place.rank, place.size);
        let deadline = Instant::now() + limit;
        let role = match (size, rank) {
            (0 | 1, _) => SessionRole::Alone,
            (_, Rank(0)) => SessionRole::Root(
                Acceptor::bind(&place, listener, limit)?.admit_all(deadline, limit)?,
            ),
            _ => SessionRole::Member(Box::new(MemberConnection::join(&place, deadline, limit)?)),
        };
        Ok(Session::new(rank, size, limit, role))
    }
}
