//! Settings of the backend.

use std::env;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use foldwire_bootstrap::{Exchange, Token, TokenTooShort, address_of};
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
    /// Address of this host to listen on, to which other ranks connect (so not `0.0.0.0`). The
    /// default is loopback; any other address needs a [`token`](Self::token).
    pub address: Option<IpAddr>,
    /// Network interface to listen on if no address is set. Its first address is used, IPv4 before
    /// IPv6.
    pub interface: Option<String>,
    /// Data connections of each pair of ranks, 1…[`MAX_STREAMS`]; the default is 1.
    ///
    /// Several help if one connection does not fill the link: on long, fast links, or if the rate
    /// of each connection is limited. The credit of a link is then at least one frame for each
    /// connection ([`Options::link_depth`] if that is more), so that one message can use all.
    pub streams: usize,
    /// Secret that both ends of each connection must know: the bootstrap's token.
    pub token: Option<Token>,
    /// True to encrypt and authenticate all data; needs feature `noise`.
    pub encrypt: bool,
    /// False to pass all messages through sockets, also between ranks of one node. The default is
    /// true: long messages then stay in memory that the node's ranks share, on Linux and without
    /// encryption. Groups that [`admit`](crate::admit) makes share none.
    pub share_memory: bool,
    /// Time limit of [`join`](crate::join) for all connections; the default is 10 s. More than a
    /// year counts as a year.
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
            share_memory: true,
            limit: Duration::from_secs(10),
            options: Options::default(),
        }
    }
}

/// An environment variable has an invalid value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SettingsError {
    /// `FOLDWIRE_ADDRESS` is not an IP address.
    #[error("FOLDWIRE_ADDRESS is not an IP address; set it to one of this host, such as 10.0.0.1")]
    Address,
    /// `FOLDWIRE_STREAMS` is not a valid number.
    #[error("FOLDWIRE_STREAMS is not a number from 1 to {MAX_STREAMS}")]
    Streams,
    /// `FOLDWIRE_ENCRYPT` is neither 0 nor 1.
    #[error("FOLDWIRE_ENCRYPT is neither 0 nor 1")]
    Encrypt,
    /// `FOLDWIRE_SHARE_MEMORY` is neither 0 nor 1.
    #[error("FOLDWIRE_SHARE_MEMORY is neither 0 nor 1")]
    ShareMemory,
    /// `FOLDWIRE_TOKEN` is too short.
    #[error("FOLDWIRE_TOKEN cannot be used: {0}")]
    Token(TokenTooShort),
    /// A variable is not valid text.
    #[error("{name} is not valid text")]
    NotText {
        /// Name of the variable.
        name: &'static str,
    },
}

impl Settings {
    /// Reads `FOLDWIRE_ADDRESS`, `FOLDWIRE_IFACE`, `FOLDWIRE_STREAMS`, `FOLDWIRE_ENCRYPT` and
    /// `FOLDWIRE_SHARE_MEMORY` (0 or 1), and `FOLDWIRE_TOKEN`. Variables that are unset or empty
    /// give the defaults.
    ///
    /// # Errors
    /// If one of them has an invalid value.
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
            encrypt: flag("FOLDWIRE_ENCRYPT", SettingsError::Encrypt)?.unwrap_or(false),
            share_memory: flag("FOLDWIRE_SHARE_MEMORY", SettingsError::ShareMemory)?
                .unwrap_or(true),
            token: token.map_err(SettingsError::Token)?,
            ..Self::default()
        })
    }

    /// Takes what is not set from the ranks' exchange: its secret, and with a secret the address
    /// through which this host reached another rank.
    pub(crate) fn completed_by<X: Exchange>(mut self, exchange: &X) -> Self {
        self.token = self.token.or_else(|| exchange.token().cloned());
        if self.address.is_none() && self.interface.is_none() && self.token.is_some() {
            self.address = exchange.local_address();
        }
        self
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

    /// Makes `n` data connections between each pair of ranks.
    #[must_use]
    pub const fn streams(mut self, n: usize) -> Self {
        self.streams = n;
        self
    }

    /// Sets the secret that both ends of each connection must know.
    #[must_use]
    pub fn token(mut self, token: Token) -> Self {
        self.token = Some(token);
        self
    }

    /// Sets whether all data is encrypted.
    #[must_use]
    pub const fn encrypt(mut self, encrypt: bool) -> Self {
        self.encrypt = encrypt;
        self
    }

    /// Sets whether long messages between ranks of a node stay in shared memory.
    #[must_use]
    pub const fn share_memory(mut self, share_memory: bool) -> Self {
        self.share_memory = share_memory;
        self
    }

    /// Sets frame size and credit.
    #[must_use]
    pub const fn options(mut self, options: Options) -> Self {
        self.options = options;
        self
    }

    /// The options, with a credit of at least one frame for each connection.
    pub(crate) fn effective_options(&self) -> Options {
        let mut options = self.options;
        options.link_depth = options.link_depth.max(self.streams);
        options
    }

    /// Returns whether this rank shares memory with the others of its node: it is allowed to, on a
    /// system that can, and connections are not encrypted.
    #[must_use]
    pub const fn shares_memory(&self) -> bool {
        self.share_memory && !self.encrypt && cfg!(target_os = "linux")
    }

    /// Address to listen on: loopback unless an address or interface is set. `None` if the
    /// interface does not exist or has no address.
    #[must_use]
    pub fn listening(&self) -> Option<IpAddr> {
        match (self.address, &self.interface) {
            (Some(address), _) => Some(address),
            (None, None) => Some(IpAddr::V4(Ipv4Addr::LOCALHOST)),
            (None, Some(name)) => address_of(name),
        }
    }
}

/// Reads 0 or 1. Anything else is the error.
fn flag(name: &'static str, error: SettingsError) -> Result<Option<bool>, SettingsError> {
    match variable(name)?.as_deref() {
        None => Ok(None),
        Some("0") => Ok(Some(false)),
        Some("1") => Ok(Some(true)),
        Some(_) => Err(error),
    }
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

    /// Ranks that reached each other at an address, with or without a secret.
    struct Met(Option<Token>);

    impl Exchange for Met {
        type Error = std::fmt::Error;

        fn rank(&self) -> foldwire::Rank {
            foldwire::Rank(0)
        }

        fn size(&self) -> usize {
            2
        }

        fn all_gather(&mut self, mine: &[u8]) -> Result<Vec<Vec<u8>>, Self::Error> {
            Ok(vec![mine.to_vec(); 2])
        }

        fn token(&self) -> Option<&Token> {
            self.0.as_ref()
        }

        fn local_address(&self) -> Option<IpAddr> {
            Some([10, 0, 0, 9].into())
        }
    }

    #[test]
    fn what_is_not_set_comes_from_the_exchange_but_no_address_without_a_secret() {
        let secret = Token::new("0123456789abcdef").ok();
        let met = |secret: &Option<Token>, settings: Settings| {
            settings.completed_by(&Met(secret.clone()))
        };
        let taken = met(&secret, Settings::default());
        assert_eq!((taken.address, &taken.token), (Some([10, 0, 0, 9].into()), &secret));
        assert_eq!(met(&None, Settings::default()).address, None);
        let own = Token::new("fedcba9876543210").unwrap();
        let chosen = Settings::default().address([10, 0, 0, 1].into()).token(own.clone());
        let kept = met(&secret, chosen);
        assert_eq!((kept.address, kept.token), (Some([10, 0, 0, 1].into()), Some(own)));
        assert_eq!(met(&secret, Settings::default().interface("lo")).address, None);
    }

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
