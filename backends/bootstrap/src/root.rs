//! Address of rank 0: `HOST:PORT`, with brackets around an IPv6 address.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::str::FromStr;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

/// Port of rank 0 if no setting names one.
pub const DEFAULT_PORT: u16 = 29_753;

/// Pause between two attempts to resolve a name.
const PAUSE: Duration = Duration::from_millis(100);
/// Least wait for the first answer: a name in /etc/hosts is found even with a tiny time limit.
const FIRST_ANSWER: Duration = Duration::from_millis(100);

/// Address of rank 0, by host name or IP address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Root {
    host: String,
    port: u16,
}

/// A text that is not a valid address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "write HOST:PORT, such as node1:29753, 10.0.0.1:29753 or [fe80::1]:29753, with a port above 0"
)]
pub struct RootParseError;

impl Root {
    /// A port on the loopback interface, for ranks on one machine.
    #[must_use]
    pub fn loopback(port: u16) -> Self {
        Self { host: "127.0.0.1".to_owned(), port }
    }

    /// A port of a machine, by host name or IP address.
    #[must_use]
    pub fn new(host: impl Into<String>, port: u16) -> Self {
        Self { host: host.into(), port }
    }

    /// Returns whether only processes of this machine can reach the address.
    ///
    /// The decision depends only on the text (`localhost`, 127.…, `::1`). Name resolution could
    /// give different results on different ranks.
    #[must_use]
    pub fn is_loopback(&self) -> bool {
        match self.host.parse::<IpAddr>() {
            Ok(ip) => ip.to_canonical().is_loopback(),
            Err(_) => self.host.eq_ignore_ascii_case("localhost"),
        }
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Resolves the host to one or more addresses. A name that is not known yet is tried again
    /// until the deadline: names of containers and of nodes may come later than their processes.
    ///
    /// # Errors
    /// The error of the last attempt.
    pub fn resolve_by(&self, deadline: Instant) -> io::Result<Vec<SocketAddr>> {
        if let Ok(ip) = self.host.parse() {
            return Ok(vec![SocketAddr::new(ip, self.port)]);
        }
        let mut last = io::ErrorKind::TimedOut.into();
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match resolve_within((self.host.clone(), self.port), left) {
                Some(Ok(addresses)) => return Ok(addresses),
                Some(Err(error)) => last = error,
                None => return Err(last),
            }
            if Instant::now() + PAUSE >= deadline {
                return Err(last);
            }
            thread::sleep(PAUSE);
        }
    }

    /// Addresses to which rank 0 binds: normally the addresses of its host name. On Debian,
    /// /etc/hosts resolves the machine's own name to a loopback address only. Rank 0 then binds to
    /// all addresses of the machine.
    pub(crate) fn listening(&self, deadline: Instant) -> io::Result<Vec<SocketAddr>> {
        let mut addresses = self.resolve_by(deadline)?;
        if !self.is_loopback() && addresses.iter().all(|address| address.ip().is_loopback()) {
            for address in &mut addresses {
                address.set_ip(match address {
                    SocketAddr::V4(_) => IpAddr::from([0; 4]),
                    SocketAddr::V6(_) => IpAddr::from([0; 16]),
                });
            }
        }
        Ok(addresses)
    }
}

/// Resolves a name once, to one or more addresses. Returns `None` if no answer came within `limit`.
///
/// A thread asks, because a name server may be silent for longer than this rank wants to wait.
pub(crate) fn resolve_within(
    name: impl ToSocketAddrs + Send + 'static,
    limit: Duration,
) -> Option<io::Result<Vec<SocketAddr>>> {
    let (sender, receiver) = mpsc::sync_channel(1);
    let asking = thread::Builder::new().name("foldwire-resolve".into()).spawn(move || {
        let _ = sender.send(name.to_socket_addrs().map(Vec::from_iter));
    });
    match asking {
        Err(error) => Some(Err(error)),
        Ok(_) => match receiver.recv_timeout(limit.max(FIRST_ANSWER)).ok()? {
            Ok(addresses) if addresses.is_empty() => Some(Err(io::ErrorKind::NotFound.into())),
            found => Some(found),
        },
    }
}

impl FromStr for Root {
    type Err = RootParseError;

    fn from_str(text: &str) -> Result<Self, RootParseError> {
        let (host, port) = text.rsplit_once(':').ok_or(RootParseError)?;
        let port = port.parse().ok().filter(|&port| port > 0).ok_or(RootParseError)?;
        let host = match host.strip_prefix('[') {
            Some(rest) => rest.strip_suffix(']').filter(|inner| inner.contains(':')),
            // Without brackets the end of an IPv6 address is ambiguous.
            None => Some(host).filter(|host| !host.contains(':')),
        };
        match host {
            Some(host) if !host.is_empty() && !host.contains(['[', ']', ' ', '/']) => {
                Ok(Self::new(host, port))
            }
            _ => Err(RootParseError),
        }
    }
}

impl fmt::Display for Root {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port } = self;
        if host.contains(':') { write!(f, "[{host}]:{port}") } else { write!(f, "{host}:{port}") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_printed_as_it_is_read() {
        for text in ["node1:80", "127.0.0.1:1", "[::1]:65535", "[fe80::1%eth0]:29753"] {
            assert_eq!(text.parse::<Root>().map(|root| root.to_string()), Ok(text.to_owned()));
        }
    }

    /// A name whose name server does not answer.
    struct Unanswered;

    impl ToSocketAddrs for Unanswered {
        type Iter = std::vec::IntoIter<SocketAddr>;

        fn to_socket_addrs(&self) -> io::Result<Self::Iter> {
            thread::sleep(Duration::from_secs(20));
            Ok(Vec::new().into_iter())
        }
    }

    #[test]
    fn a_silent_name_server_does_not_hold_a_rank_beyond_its_limit() {
        let start = Instant::now();
        assert!(resolve_within(Unanswered, Duration::from_millis(20)).is_none());
        assert!(start.elapsed() < Duration::from_secs(10));
        let found = resolve_within(("127.0.0.1".to_owned(), 9), Duration::from_secs(10));
        assert_eq!(found.unwrap().unwrap(), [SocketAddr::from(([127, 0, 0, 1], 9))]);
    }

    #[test]
    fn other_texts_are_refused() {
        for text in
            ["", "node1", ":80", "node1:", "node1:0", "node1:65536", "::1:80", "[::1]", "[]:80"]
        {
            assert_eq!(text.parse::<Root>(), Err(RootParseError), "{text}");
        }
        for text in ["[node1]:80", "http://node1:80", "[::1:80", "::1]:80", "a b:80", "node1:+80 "]
        {
            assert_eq!(text.parse::<Root>(), Err(RootParseError), "{text}");
        }
    }

    #[test]
    fn loopback_is_recognized_by_the_text() {
        for (host, is_loopback) in [
            ("127.0.0.1", true),
            ("127.9.9.9", true),
            ("::1", true),
            ("::ffff:127.0.0.1", true),
            ("LocalHost", true),
            ("0.0.0.0", false),
            ("::", false),
            ("10.0.0.1", false),
            ("node1", false),
            ("localhost.example", false),
        ] {
            assert_eq!(Root::new(host, 1).is_loopback(), is_loopback, "{host}");
        }
    }

    #[test]
    fn a_loopback_root_binds_to_loopback_only() {
        let root = Root::loopback(9);
        assert_eq!(
            root.listening(Instant::now()).unwrap(),
            [SocketAddr::from(([127, 0, 0, 1], 9))]
        );
    }
}
