//! Which providers can be used here, and what exactly is missing where one cannot.
//!
//! A provider is first asked for everything that we need. If it says no (`fi_getinfo` gives no
//! reason), it is asked for less and less, and the first thing that it cannot do is what is
//! missing.

use std::fmt;

use crate::ffi::{self, Description, Descriptions, ProviderQuery, Requirements};
use crate::settings::Settings;
use crate::{Errno, Version, tags};

/// The providers that are chosen from, best first: networks with hardware of their own, then shared
/// memory, then TCP.
pub(crate) const AUTOMATIC: [&str; 8] =
    ["cxi", "psm3", "psm2", "opx", "efa", "verbs", SHARED_MEMORY, "tcp"];
/// Providers that can be named but are not chosen.
const OTHERS: [&str; 2] = ["sockets", "udp"];
/// Providers that listen on IP addresses, and so on the loopback interface unless told otherwise.
const ON_IP: [&str; 3] = ["tcp", "sockets", "udp"];
/// The forerunner of the `tcp` of libfabric 1.18. With 1.17 receives that are posted after their
/// message came may never end, even with few messages: the tests of delivery hang.
const LOSES_MESSAGES: &str = "net";

/// The provider for ranks on one host, which has neither interfaces nor addresses to choose from.
pub(crate) const SHARED_MEMORY: &str = "shm";

/// The oldest libfabric whose shared memory passes our tests. With 1.11 they hang; those between
/// are not known.
const SHARED_MEMORY_SINCE: Version = Version { major: 1, minor: 17 };

/// What a provider lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Missing {
    /// This libfabric does not have it.
    NotBuilt,
    /// This libfabric has it, but it found no driver or device when it was loaded.
    NoDriver,
    /// It is there, but offers no network.
    NoDevice,
    /// It has no such interface or address.
    NoInterface,
    /// It has no endpoints that reach all peers reliably (`FI_EP_RDM`).
    NoReliableDatagrams,
    /// Its messages have no tags (`FI_TAGGED`).
    NoTags,
    /// It may match messages in another order than sent (`FI_ORDER_SAS`).
    NoOrder,
    /// It asks for modes that Foldwire does not honour.
    Modes {
        /// The bits, as in `fi_info.mode`.
        bits: u64,
    },
    /// It asks for ways to register memory that Foldwire does not offer.
    MemoryModes {
        /// The bits, as in `fi_domain_attr.mr_mode`.
        bits: i32,
    },
    /// It cannot make progress while it is polled by one thread.
    NoManualProgress,
    /// Its tags are too short for the ranks.
    TagBits {
        /// Bits that ranks and streams need.
        need: u32,
        /// Bits that it matches by.
        have: u32,
    },
    /// It is known not to deliver messages that come before their receive is posted.
    LosesMessages,
    /// In this release of libfabric it is not reliable.
    TooOld {
        /// The release.
        have: Version,
        /// The first that will do.
        need: Version,
    },
    /// libfabric could not tell.
    Query {
        /// Its error.
        errno: Errno,
    },
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::NotBuilt => f.write_str("not built into this libfabric (`fi_info -l` lists what is)"),
            Self::NoDriver => {
                f.write_str("built in, but it found no driver or device (FI_LOG_LEVEL=warn tells more)")
            }
            Self::NoDevice => {
                f.write_str("it finds no device that it may use (FI_LOG_LEVEL=warn tells more)")
            }
            Self::NoInterface => f.write_str(
                "it has no such interface or address (`fi_info -p NAME` lists its domains; see FOLDWIRE_IFACE, \
                 FOLDWIRE_ADDRESS)",
            ),
            Self::NoReliableDatagrams => f.write_str("it has no reliable datagrams (FI_EP_RDM)"),
            Self::NoTags => f.write_str("its messages have no tags (FI_TAGGED)"),
            Self::NoOrder => f.write_str("it does not keep the order of messages (FI_ORDER_SAS)"),
            Self::Modes { bits } => {
                write!(f, "it asks for modes that Foldwire lacks: {}", ffi::names_of(bits, false))
            }
            Self::MemoryModes { bits } => {
                let names = ffi::names_of(u64::from(bits.cast_unsigned()), true);
                write!(f, "it asks for ways to register memory that Foldwire lacks: {names}")
            }
            Self::NoManualProgress => {
                f.write_str("it cannot be driven by polls of one thread (FI_PROGRESS_MANUAL)")
            }
            Self::TagBits { need, have } => {
                write!(f, "its tags have {have} bits, and so many ranks need {need}")
            }
            Self::LosesMessages => {
                f.write_str("it loses messages that come before their receive; use tcp instead")
            }
            Self::TooOld { have, need } => {
                write!(f, "it is reliable from libfabric {need} on, and this is {have}")
            }
            Self::Query { errno } => write!(f, "fi_getinfo: {errno}"),
        }
    }
}

impl std::error::Error for Missing {}

/// A provider and whether it can be used.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Provider {
    /// As it is named in [`Settings::provider`].
    pub name: String,
    /// Its version, where this libfabric has it.
    pub version: Option<Version>,
    /// What would be used, or why it cannot.
    pub offer: Result<ProviderOffer, Missing>,
}

/// What would be used of a provider.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ProviderOffer {
    /// The provider and what is layered upon it, such as `tcp;ofi_rxm`.
    pub provider: String,
    /// The network.
    pub fabric: String,
    /// The interface or device.
    pub domain: String,
}

/// All providers that Foldwire knows or this libfabric has, in the order in which they are tried,
/// those that are not chosen automatically last.
#[must_use]
pub fn providers(settings: &Settings) -> Vec<Provider> {
    let built: Vec<_> = built_in().unwrap_or_default();
    let mut names: Vec<&str> = AUTOMATIC.into_iter().chain(OTHERS).collect();
    for (name, _) in &built {
        // Layers and hooks are nothing to use alone.
        if !name.starts_with("ofi_") && !names.iter().any(|known| is_same(known, name)) {
            names.push(name);
        }
    }
    let report = |name: &str| Provider {
        name: name.to_owned(),
        version: built.iter().find(|(built, _)| is_same(built, name)).map(|&(_, version)| version),
        offer: find(name, settings, 2).map(|description| ProviderOffer {
            provider: description.provider(),
            fabric: description.fabric(),
            domain: description.domain(),
        }),
    };
    names.into_iter().map(report).collect()
}

/// Names and versions of the providers that this libfabric has.
fn built_in() -> Result<Vec<(String, Version)>, Errno> {
    let all = Descriptions::providers()?.all()?;
    Ok(all.iter().map(|description| (description.provider(), description.version())).collect())
}

/// libfabric compares names like this; 1.11 spells `UDP`.
fn is_same(one: &str, other: &str) -> bool {
    one.eq_ignore_ascii_case(other)
}

/// Whether the provider listens on IP addresses.
pub(crate) fn is_on_ip(provider: &str) -> bool {
    ON_IP.contains(&core_name(provider))
}

/// The provider below all layers: `tcp` of `tcp;ofi_rxm`.
pub(crate) fn core_name(provider: &str) -> &str {
    provider.split(';').next().unwrap_or(provider)
}

/// How a provider would be used by a group of `size` ranks.
pub(crate) fn find(name: &str, settings: &Settings, size: usize) -> Result<Description, Missing> {
    if core_name(name) == LOSES_MESSAGES {
        return Err(Missing::LosesMessages);
    }
    let (have, need) = (Version::of_library(), SHARED_MEMORY_SINCE);
    if core_name(name) == SHARED_MEMORY && have < need {
        return Err(Missing::TooOld { have, need });
    }
    let description = match query(name, settings, Requirements::All) {
        Ok(description) => description,
        Err(Errno::NO_DATA) => return Err(explain(name, settings)),
        Err(errno) => return Err(Missing::Query { errno }),
    };
    let (need, have) = (tags::n_bits(size), description.n_tag_bits());
    if need > have { Err(Missing::TagBits { need, have }) } else { Ok(description) }
}

/// Asks one provider; its best answer.
fn query(
    name: &str,
    settings: &Settings,
    requirements: Requirements,
) -> Result<Description, Errno> {
    let is_on_ip = is_on_ip(name);
    let settings = match core_name(name) {
        // It has no interfaces.
        SHARED_MEMORY => &Settings::default(),
        _ => settings,
    };
    let query = ProviderQuery {
        provider: name,
        address: if is_on_ip { settings.ip_address() } else { settings.address },
        only_ipv4: is_on_ip,
        requirements,
    };
    let answers = Descriptions::query(&query)?.all()?;
    // Layers such as ofi_rxm disregard a domain in the question.
    let fits = |answer: &Description| {
        settings.interface.as_ref().is_none_or(|interface| *interface == answer.domain())
    };
    answers.into_iter().find(fits).ok_or(Errno::NO_DATA)
}

/// Why a provider said no to all that we need.
fn explain(name: &str, settings: &Settings) -> Missing {
    let core = core_name(name);
    match built_in() {
        Ok(built) if built.iter().any(|(built, _)| is_same(built, core)) => {}
        Ok(_) if ffi::is_known_by_parameters(core) => return Missing::NoDriver,
        Ok(_) => return Missing::NotBuilt,
        Err(errno) => return Missing::Query { errno },
    }
    let anywhere = Settings { interface: None, address: None, ..settings.clone() };
    if query(name, &anywhere, Requirements::Nothing).is_err() {
        return Missing::NoDevice;
    }
    let mut last = match query(name, settings, Requirements::Nothing) {
        Ok(description) => description,
        Err(_) => return Missing::NoInterface,
    };
    for requirements in [
        Requirements::ReliableDatagrams,
        Requirements::Tags,
        Requirements::Order,
        Requirements::Modes,
        Requirements::MemoryModes,
    ] {
        match query(name, settings, requirements) {
            Ok(description) => last = description,
            Err(Errno::NO_DATA) => return lacking(requirements, &last),
            Err(errno) => return Missing::Query { errno },
        }
    }
    Missing::NoManualProgress
}

/// What it means that a provider, which could do with `last`, cannot do with `requirements`.
fn lacking(requirements: Requirements, last: &Description) -> Missing {
    match requirements {
        Requirements::Nothing => Missing::NoInterface,
        Requirements::ReliableDatagrams => Missing::NoReliableDatagrams,
        Requirements::Tags => Missing::NoTags,
        Requirements::Order => Missing::NoOrder,
        Requirements::Modes => Missing::Modes { bits: last.foreign_modes() },
        Requirements::MemoryModes => Missing::MemoryModes { bits: last.foreign_memory_modes() },
        Requirements::All => Missing::NoManualProgress,
    }
}
