//! Settings that the user chooses.

use std::env;
use std::net::{IpAddr, Ipv4Addr};

use foldwire_messaging::Options;

/// Settings of an endpoint over libfabric. Provider and options must be the same on every rank.
///
/// # Examples
/// ```
/// let settings = foldwire_libfabric::Settings::default().provider("tcp").interface("eth0");
/// assert_eq!(settings.provider.as_deref(), Some("tcp"));
/// ```
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Settings {
    /// Name of libfabric's provider; chosen automatically if `None`.
    pub provider: Option<String>,
    /// Network interface or device, as libfabric names domains: `eth0`, `mlx5_0`, `cxi0`. Any
    /// process that can reach it can send messages in any rank's name, so use a private network.
    pub interface: Option<String>,
    /// Address of this host to send from and listen on. Any process that can reach it can send
    /// messages in any rank's name.
    pub address: Option<IpAddr>,
    /// Frames and credit.
    pub options: Options,
}

/// Error in a setting from the environment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SettingsError {
    /// `FOLDWIRE_ADDRESS` is not an IP address, or it stands for all addresses of a host.
    #[error("FOLDWIRE_ADDRESS is no IP address of one host; use one of this host, like 10.0.0.1")]
    Address,
    /// A variable is not valid Unicode.
    #[error("{name} is not valid text")]
    NotText {
        /// The environment variable.
        name: &'static str,
    },
}

impl Settings {
    /// Reads the settings from `FOLDWIRE_PROVIDER`, `FOLDWIRE_IFACE` and `FOLDWIRE_ADDRESS`.
    /// Variables that are unset or empty, and `FOLDWIRE_PROVIDER=auto`, select the default.
    ///
    /// # Errors
    /// A variable is not text, or the address is invalid.
    pub fn from_env() -> Result<Self, SettingsError> {
        let address = variable("FOLDWIRE_ADDRESS")?;
        Ok(Self {
            provider: variable("FOLDWIRE_PROVIDER")?.filter(|name| name != "auto"),
            interface: variable("FOLDWIRE_IFACE")?,
            address: address.map(|text| address_of_one(&text)).transpose()?,
            ..Self::default()
        })
    }

    /// Selects a provider of libfabric.
    #[must_use]
    pub fn provider(mut self, name: impl Into<String>) -> Self {
        self.provider = Some(name.into());
        self
    }

    /// Selects a network interface or device.
    #[must_use]
    pub fn interface(mut self, name: impl Into<String>) -> Self {
        self.interface = Some(name.into());
        self
    }

    /// Selects the address of this host to send from and listen on.
    #[must_use]
    pub const fn address(mut self, address: IpAddr) -> Self {
        self.address = Some(address);
        self
    }

    /// Sets frames and credit.
    #[must_use]
    pub const fn options(mut self, options: Options) -> Self {
        self.options = options;
        self
    }

    /// Returns the address for a provider that listens on IP addresses. The default is the loopback
    /// address, which no other host can reach.
    pub(crate) fn ip_address(&self) -> Option<IpAddr> {
        match (self.address, &self.interface) {
            (None, None) => Some(IpAddr::V4(Ipv4Addr::LOCALHOST)),
            (address, _) => address,
        }
    }

    /// Returns whether a provider that listens on IP addresses uses the loopback address, so that
    /// only ranks on this host can reach it.
    pub(crate) fn is_on_loopback(&self) -> bool {
        self.ip_address().is_some_and(|address| address.is_loopback())
    }
}

/// Parses an address, to which other ranks must be able to connect.
fn address_of_one(text: &str) -> Result<IpAddr, SettingsError> {
    let address: Option<IpAddr> = text.parse().ok();
    let named = address.filter(|address| !address.to_canonical().is_unspecified());
    named.ok_or(SettingsError::Address)
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
    fn the_address_of_all_interfaces_is_no_address_for_others() {
        assert_eq!(address_of_one("10.0.0.1"), Ok([10, 0, 0, 1].into()));
        for text in ["0.0.0.0", "::", "::ffff:0.0.0.0", "here"] {
            assert_eq!(address_of_one(text), Err(SettingsError::Address), "{text}");
        }
    }
}
