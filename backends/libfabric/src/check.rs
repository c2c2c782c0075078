//! Checks which providers can be used here, and finds what an unusable one lacks.
//!
//! The first query to a provider names all requirements. If the provider refuses (`fi_getinfo`
//! gives no reason), further queries add the requirements one by one. The first that the provider
//! refuses is missing.

use crate::ffi::{self, Description, Descriptions, ProviderQuery, Requirements};
use crate::settings::Settings;
use crate::{Errno, Version, tags};

/// Providers for automatic choice, best first: networks with their own hardware, then shared
/// memory, then TCP.
pub(crate) const AUTOMATIC: [&str; 8] =
    ["cxi", "psm3", "psm2", "opx", "efa", "verbs", SHARED_MEMORY, "tcp"];
/// Providers that are used only if the user names them.
const OTHERS: [&str; 2] = ["sockets", "udp"];
/// Providers that listen on IP addresses. They use the loopback interface unless the settings name
/// another one.
const ON_IP: [&str; 3] = ["tcp", "sockets", "udp"];
/// Provider that became the `tcp` of libfabric 1.18. In 1.17, receives that are posted after their
/// message arrived may never complete, even with few messages: the delivery tests hang.
const LOSES_MESSAGES: &str = "net";

/// Provider for ranks on one host. It has no interfaces or addresses to choose from.
pub(crate) const SHARED_MEMORY: &str = "shm";

/// Oldest libfabric whose shared memory passes the tests. They hang with 1.11; the versions between
/// are untested.
const SHARED_MEMORY_SINCE: Version = Version { major: 1, minor: 17 };

/// Most ranks between which libfabric's shared memory works (`SMR_MAX_PEERS`).
const SHARED_MEMORY_RANKS: usize = 256;

/// Posted receives for which every provider has space without a request. (`tcp;ofi_rxm` has space
/// for 2048.)
const DEFAULT_RECEIVES: usize = 1024;
/// Receives of a rank besides those for notices (one for each other rank).
const DATA_RECEIVES: usize = 1024;

/// Reason why a provider cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Missing {
    /// The provider is not built into this libfabric.
    #[error("not built into this libfabric (`fi_info -l` lists what is)")]
    NotBuilt,
    /// The provider is built in, but found no driver or device when it was loaded.
    #[error("built in, but it found no driver or device (FI_LOG_LEVEL=warn tells more)")]
    NoDriver,
    /// The provider works, but offers no network.
    #[error("it finds no device that it may use (FI_LOG_LEVEL=warn tells more)")]
    NoDevice,
    /// The provider does not have the named interface or address.
    #[error(
        "it has no such interface or address (`fi_info -p NAME` lists its domains; see \
         FOLDWIRE_IFACE, FOLDWIRE_ADDRESS)"
    )]
    NoInterface,
    /// The provider has no endpoints that reach all peers reliably (`FI_EP_RDM`).
    #[error("it has no reliable datagrams (FI_EP_RDM)")]
    NoReliableDatagrams,
    /// The provider has no tagged messages (`FI_TAGGED`).
    #[error("its messages have no tags (FI_TAGGED)")]
    NoTags,
    /// The provider may match messages in another order than sent (`FI_ORDER_SAS`).
    #[error("it does not keep the order of messages (FI_ORDER_SAS)")]
    NoOrder,
    /// The provider requires modes that Foldwire does not support.
    #[error("it asks for modes that Foldwire lacks: {}", ffi::names_of(*bits, false))]
    Modes {
        /// The bits, as in `fi_info.mode`.
        bits: u64,
    },
    /// The provider requires modes of memory registration that Foldwire does not support.
    #[error(
        "it asks for ways to register memory that Foldwire lacks: {}",
        ffi::names_of(u64::from(bits.cast_unsigned()), true)
    )]
    MemoryModes {
        /// The bits, as in `fi_domain_attr.mr_mode`.
        bits: i32,
    },
    /// The provider cannot make progress by polls of one thread.
    #[error("it cannot be driven by polls of one thread (FI_PROGRESS_MANUAL)")]
    NoManualProgress,
    /// The provider's tags are too short for this number of ranks.
    #[error("its tags have {have} bits, but this number of ranks needs {need}")]
    TagBits {
        /// Bits that ranks and Foldwire's tags need.
        need: u32,
        /// Bits that the provider matches by.
        have: u32,
    },
    /// The provider connects fewer ranks.
    #[error("it connects at most {have} ranks, not {need}; use tcp instead")]
    TooManyRanks {
        /// Number of ranks in the group.
        need: usize,
        /// Most ranks that the provider connects.
        have: usize,
    },
    /// The provider is known to lose messages that arrive before their receive is posted.
    #[error("it loses messages that come before their receive; use tcp instead")]
    LosesMessages,
    /// The provider is not reliable in this release of libfabric.
    #[error("it is reliable from libfabric {need} on, but this is {have}")]
    TooOld {
        /// The release.
        have: Version,
        /// The first reliable release.
        need: Version,
    },
    /// libfabric could not answer the query.
    #[error("fi_getinfo: {errno}")]
    Query {
        /// libfabric's error.
        errno: Errno,
    },
}

/// A provider, and its availability.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Provider {
    /// Name for [`Settings::provider`].
    pub name: String,
    /// Version of the provider, if it is built in.
    pub version: Option<Version>,
    /// The network that would be used, or the reason why the provider cannot be used.
    pub offer: Result<ProviderOffer, Missing>,
}

/// Network that a provider would use.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ProviderOffer {
    /// The provider and its layers, such as `tcp;ofi_rxm`.
    pub provider: String,
    /// Name of the network.
    pub fabric: String,
    /// Name of the interface or device.
    pub domain: String,
}

/// Returns all providers that Foldwire knows or that this libfabric has, in the order of automatic
/// choice. Providers that are not chosen automatically come last.
#[must_use]
pub fn providers(settings: &Settings) -> Vec<Provider> {
    let built: Vec<_> = built_in().unwrap_or_default();
    let mut names: Vec<&str> = AUTOMATIC.into_iter().chain(OTHERS).collect();
    for (name, _) in &built {
        // Layers and hooks cannot be used alone.
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

/// Returns the names and versions of the providers built into this libfabric.
fn built_in() -> Result<Vec<(String, Version)>, Errno> {
    let all = Descriptions::providers()?.all()?;
    Ok(all.iter().map(|description| (description.provider(), description.version())).collect())
}

/// Compares provider names without regard to case, like libfabric. (Version 1.11 spells `UDP`.)
fn is_same(one: &str, other: &str) -> bool {
    one.eq_ignore_ascii_case(other)
}

/// Returns whether the provider listens on IP addresses.
pub(crate) fn is_on_ip(provider: &str) -> bool {
    ON_IP.contains(&core_name(provider))
}

/// Returns the provider below all layers: `tcp` of `tcp;ofi_rxm`.
pub(crate) fn core_name(provider: &str) -> &str {
    provider.split(';').next().unwrap_or(provider)
}

/// Returns the best description of a provider for a group of `size` ranks, or what the provider
/// lacks.
pub(crate) fn find(name: &str, settings: &Settings, size: usize) -> Result<Description, Missing> {
    if core_name(name) == LOSES_MESSAGES {
        return Err(Missing::LosesMessages);
    }
    let (have, need) = (Version::of_library(), SHARED_MEMORY_SINCE);
    if core_name(name) == SHARED_MEMORY && have < need {
        return Err(Missing::TooOld { have, need });
    }
    if core_name(name) == SHARED_MEMORY && size > SHARED_MEMORY_RANKS {
        return Err(Missing::TooManyRanks { need: size, have: SHARED_MEMORY_RANKS });
    }
    let n_receives = if size > DEFAULT_RECEIVES { size + DATA_RECEIVES } else { 0 };
    let sized = query(name, settings, Requirements::All, n_receives);
    let found = match sized {
        // A provider that cannot promise space for so many receives may still have it.
        Err(_) if n_receives > 0 => query(name, settings, Requirements::All, 0),
        sized => sized,
    };
    let description = match found {
        Ok(description) => description,
        Err(Errno::NO_DATA) => return Err(explain(name, settings)),
        Err(errno) => return Err(Missing::Query { errno }),
    };
    let (need, have) = (tags::n_bits(size), description.n_tag_bits());
    if need > have { Err(Missing::TagBits { need, have }) } else { Ok(description) }
}

/// Queries one provider, and returns its best description. It has space for `n_receives` posted
/// receives, or for its default number if that is 0.
fn query(
    name: &str,
    settings: &Settings,
    requirements: Requirements,
    n_receives: usize,
) -> Result<Description, Errno> {
    let is_on_ip = is_on_ip(name);
    let settings = match core_name(name) {
        // Shared memory has no interfaces.
        SHARED_MEMORY => &Settings::default(),
        _ => settings,
    };
    let query = ProviderQuery {
        provider: name,
        address: if is_on_ip { settings.ip_address() } else { settings.address },
        only_ipv4: is_on_ip,
        requirements,
        n_receives,
    };
    let answers = Descriptions::query(&query)?.all()?;
    // Layers such as ofi_rxm ignore a domain in the query.
    let fits = |answer: &Description| {
        settings.interface.as_ref().is_none_or(|interface| *interface == answer.domain())
    };
    answers.into_iter().find(fits).ok_or(Errno::NO_DATA)
}

/// Finds the first requirement that a provider refuses.
fn explain(name: &str, settings: &Settings) -> Missing {
    let core = core_name(name);
    match built_in() {
        Ok(built) if built.iter().any(|(built, _)| is_same(built, core)) => {}
        Ok(_) if ffi::is_known_by_parameters(core) => return Missing::NoDriver,
        Ok(_) => return Missing::NotBuilt,
        Err(errno) => return Missing::Query { errno },
    }
    let anywhere = Settings { interface: None, address: None, ..settings.clone() };
    if query(name, &anywhere, Requirements::Nothing, 0).is_err() {
        return Missing::NoDevice;
    }
    let mut last = match query(name, settings, Requirements::Nothing, 0) {
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
        match query(name, settings, requirements, 0) {
            Ok(description) => last = description,
            Err(Errno::NO_DATA) => return lacking(requirements, &last),
            Err(errno) => return Missing::Query { errno },
        }
    }
    Missing::NoManualProgress
}

/// Returns what a provider lacks. It refused `requirements`; the query before gave `last`.
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Each rank posts a receive for the notices of each other rank, and those for data.
    #[test]
    fn many_ranks_have_space_for_their_receives() {
        for size in [2, 2048, 5000] {
            let Ok(found) = find("tcp", &Settings::default(), size) else { continue };
            let have = found.n_receives();
            assert!(have > size + 100, "{have} receives for {size} ranks");
        }
    }

    #[test]
    fn shared_memory_is_for_few_ranks() {
        let settings = Settings::default();
        let refused = |size| match find(SHARED_MEMORY, &settings, size) {
            Err(Missing::TooManyRanks { need, have }) => Some((need, have)),
            _ => None,
        };
        let is_old = Version::of_library() < SHARED_MEMORY_SINCE;
        assert_eq!(refused(256), None);
        assert_eq!(refused(257), (!is_old).then_some((257, 256)));
    }
}
