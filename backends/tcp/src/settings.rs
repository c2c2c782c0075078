//! What the user may choose.

use std::env;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use foldwire_bootstrap::{Token, TokenTooShort};
use foldwire_messaging::Options;

use crate::MAX_STREAMS;

/// Settings of an endpoint over TCP. Streams, encryption, token and options must be the same on
/// every rank.
///
/// # Examples
/// ```
/// let settings = foldwire_tcp::Settings::default().streams(4);
/// assert_eq!(settings.streams, 4);
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Settings {
    /// Address of this host to listen on; loopback unless set. Another than
    /// loopback needs a [`token`](Self::token).
    pub address: Option<IpAddr>,
    /// Network interface whose first address is taken (IPv4 before IPv6) if no address is set.
    pub interface: Option<String>,
    /// Connections of each pair of ranks for what travels, 1…[`MAX_STREAMS`]; 1 unless set.
    /// Several help where one connection does not fill the link: long, fast links, or rates
    /// limited for each connection. A link may then have a frame under way on each of them, if
    /// that is more than [`Options::link_depth`], so that one message fills all.
    pub streams: usize,
    /// The secret that both ends of each connection must show that they know: the bootstrap's.
    pub token: Option<Token>,
    /// Whether what travels is encrypted and authenticated; needs feature `noise`.
    pub encrypt: bool,
    /// How long [`join`](crate::join) waits for the others' connections; 10 s unless set.
    pub limit: Duration,
    /// Frames and credit.
    pub options: Options,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            address: None,
            interface: None,
            streams: 1,
            token: None,
            encrypt: false,
            limit: Duration::from_secs(10),
            options: Options::default(),
        }
    }
}

/// Why the environment has no valid settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SettingsError {
    /// Not an address.
    #[error("FOLDWIRE_ADDRESS is no IP address; use one of this host, such as 10.0.0.1")]
    Address,
    /// Not a number of streams.
    #[error("FOLDWIRE_STREAMS is no number from 1 to {MAX_STREAMS}")]
    Streams,
    /// Neither yes nor no.
    #[error("FOLDWIRE_ENCRYPT is neither 0 nor 1")]
    Encrypt,
    /// Not a token.
    #[error("FOLDWIRE_TOKEN cannot be used: {0}")]
    Token(TokenTooShort),
    /// Not text.
    #[error("{name} is not valid text")]
    NotText {
        /// The environment variable.
        name: &'static str,
    },
}

impl Settings {
    /// The settings in `FOLDWIRE_ADDRESS`, `FOLDWIRE_IFACE`, `FOLDWIRE_STREAMS`, `FOLDWIRE_ENCRYPT`
    /// (0 or 1) and `FOLDWIRE_TOKEN`; defaults for those that are not set or empty.
    ///
    /// # Errors
    /// When one of them holds something else.
    pub fn from_env() -> Result<Self, SettingsError> {
        let address = variable("FOLDWIRE_ADDRESS")?;
        let token = variable("FOLDWIRE_TOKEN")?.map(Token::new).transpose();
        Ok(Self {
            address: address
                .map(|text| text.parse().map_err(|_| SettingsError::Address))
                .transpose()?,
            interface: variable("FOLDWIRE_IFACE")?,
            streams: match variable("FOLDWIRE_STREAMS")?.map(|text| text.parse()) {
                None => 1,
                Some(Ok(n)) if (1..=MAX_STREAMS).contains(&n) => n,
                Some(_) => return Err(SettingsError::Streams),
            },
            encrypt: match variable("FOLDWIRE_ENCRYPT")?.as_deref() {
                None | Some("0") => false,
                Some("1") => true,
                Some(_) => return Err(SettingsError::Encrypt),
            },
            token: token.map_err(SettingsError::Token)?,
            ..Self::default()
        })
    }

    /// Listens on this address of this host.
    #[must_use]
    pub const fn address(mut self, address: IpAddr) -> Self {
        self.address = Some(address);
        self
    }

    /// Listens on this network interface.
    #[must_use]
    pub fn interface(mut self, name: impl Into<String>) -> Self {
        self.interface = Some(name.into());
        self
    }

    /// Makes so many connections between each two ranks.
    #[must_use]
    pub const fn streams(mut self, n: usize) -> Self {
        self.streams = n;
        self
    }

    /// Has both ends of each connection prove that they know this.
    #[must_use]
    pub fn token(mut self, token: Token) -> Self {
        self.token = Some(token);
        self
    }

    /// Encrypts what travels.
    #[must_use]
    pub const fn encrypt(mut self, encrypt: bool) -> Self {
        self.encrypt = encrypt;
        self
    }

    /// Takes these frames and credit.
    #[must_use]
    pub const fn options(mut self, options: Options) -> Self {
        self.options = options;
        self
    }

    /// The options, with credit for a frame on each connection.
    pub(crate) fn effective_options(&self) -> Options {
        let mut options = self.options;
        options.link_depth = options.link_depth.max(self.streams);
        options
    }

    /// Where to listen: nobody from outside can reach it unless the user says where. `None`: the
    /// interface has no address.
    #[must_use]
    pub fn listening(&self) -> Option<IpAddr> {
        match (self.address, &self.interface) {
            (Some(address), _) => Some(address),
            (None, None) => Some(IpAddr::V4(Ipv4Addr::LOCALHOST)),
            (None, Some(name)) => address_of(name),
        }
    }
}

/// The first address of an interface, IPv4 before IPv6; none that is of one link only.
#[cfg(unix)]
fn address_of(interface: &str) -> Option<IpAddr> {
    let all = nix::ifaddrs::getifaddrs().ok()?;
    let mut found: Vec<IpAddr> = all
        .filter(|each| each.interface_name == interface)
        .filter_map(|each| {
            let address = each.address?;
            let v4 = address.as_sockaddr_in().map(|socket| IpAddr::V4(socket.ip()));
            v4.or_else(|| address.as_sockaddr_in6().map(|socket| IpAddr::V6(socket.ip())))
        })
        .filter(|address| !matches!(address, IpAddr::V6(v6) if v6.is_unicast_link_local()))
        .collect();
    found.sort_by_key(IpAddr::is_ipv6);
    found.first().copied()
}

#[cfg(not(unix))]
fn address_of(_: &str) -> Option<IpAddr> {
    None
}

fn variable(name: &'static str) -> Result<Option<String>, SettingsError> {
    match env::var(name) {
        Ok(text) => Ok(Some(text).filter(|text| !text.is_empty())),
        Err(env::VarError::NotPresent) => Ok(None),
        Err(env::VarError::NotUnicode(_)) => Err(SettingsError::NotText { name }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_from_outside_can_connect_unless_the_user_says_where() {
        let usual = Settings::default();
        assert!(usual.listening().is_some_and(|address| address.is_loopback()));
        let address = IpAddr::from([10, 0, 0, 1]);
        assert_eq!(usual.clone().interface("lo").address(address).listening(), Some(address));
        assert_eq!(usual.interface("nowhere0").listening(), None);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn an_interface_has_its_address() {
        let address = Settings::default().interface("lo").listening();
        assert_eq!(address, Some(IpAddr::V4(Ipv4Addr::LOCALHOST)));
    }
}
