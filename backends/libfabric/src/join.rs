//! Joining: ranks agree on a provider, open an endpoint each, and exchange addresses.
//!
//! Every rank takes part in every exchange, whatever has failed on it, so that no rank waits for
//! ever. A rank that cannot continue sends an empty message.

use std::process;

use foldwire::Rank;
use foldwire_bootstrap::Exchange;

use crate::check::{self, Missing, SHARED_MEMORY};
use crate::fabric::{Fabric, FabricRequest, GroupInfo, LostRankPoll};
use crate::ffi::{Domain, RdmEndpoint};
use crate::settings::Settings;
use crate::{JoinError, host};

/// Message of a rank that has the addresses of all other ranks.
const READY: &[u8] = b"ready";

/// First message of a rank to the others.
#[derive(Clone, Debug, PartialEq, Eq)]
struct RankOffer {
    /// Text that is equal on ranks that can share memory ([`host::identity`]).
    host: String,
    /// Text that is equal on ranks between which no network lies ([`foldwire_bootstrap::node`]).
    node: String,
    process: u32,
    is_on_loopback: bool,
    frame_bytes: usize,
    /// Libfabric's full names of the usable providers, best first. Versions of libfabric that
    /// cannot talk to each other use different names (`tcp;ofi_rxm` and `tcp`).
    providers: Vec<String>,
}

impl RankOffer {
    /// Writes one line for each field, and one for each provider.
    fn encode(&self) -> Vec<u8> {
        let mut lines = vec![
            self.host.clone(),
            self.node.clone(),
            self.process.to_string(),
            self.is_on_loopback.to_string(),
            self.frame_bytes.to_string(),
        ];
        lines.extend_from_slice(&self.providers);
        lines.join("\n").into_bytes()
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let mut lines = std::str::from_utf8(bytes).ok()?.split('\n').map(str::to_owned);
        let host = lines.next()?;
        let node = lines.next()?;
        let process = lines.next()?.parse().ok()?;
        let is_on_loopback = lines.next()?.parse().ok()?;
        let frame_bytes = lines.next()?.parse().ok()?;
        let providers = lines.collect();
        let read = Self { host, node, process, is_on_loopback, frame_bytes, providers };
        // Accept only the canonical form: numbers have several notations.
        (read.encode() == bytes).then_some(read)
    }
}

/// Joins all ranks of `exchange`. `poll_lost` turns the exchange into a poll for lost ranks.
pub(crate) fn join<X: Exchange>(
    settings: &Settings,
    mut exchange: X,
    poll_lost: impl FnOnce(X) -> LostRankPoll,
) -> Result<Fabric, JoinError> {
    let (rank, size) = (exchange.rank(), exchange.size());

    let found = candidates(settings, size);
    let mine = RankOffer {
        host: host::identity(),
        node: foldwire_bootstrap::node(),
        process: process::id(),
        is_on_loopback: settings.is_on_loopback(),
        frame_bytes: settings.options.frame_bytes,
        providers: found.iter().flatten().map(|(_, full)| full.clone()).collect(),
    };
    // A rank's own reason says more than a failed exchange, so it comes first, here and below.
    let all = gather(&mut exchange, &mine.encode());
    let (found, all) = (found?, all?);
    let offers = all.iter().zip(0..).map(|(bytes, rank)| {
        RankOffer::decode(bytes).ok_or(JoinError::Unintelligible { rank: Rank(rank) })
    });
    let offers = offers.collect::<Result<Vec<_>, _>>()?;
    let provider = choose(&mine, &offers)?;
    let name = found
        .iter()
        .find(|(_, full)| *full == provider)
        .map(|(name, _)| name.clone())
        .ok_or(JoinError::NoProvider)?;

    let opened = open(&name, settings, size);
    let my_address = opened.as_ref().map_or(&[][..], |(_, address)| address);
    let addresses = gather(&mut exchange, my_address);
    let ((mut rdm, _), addresses) = (opened?, addresses?);
    if let Some(rank) = first_empty(&addresses) {
        return Err(JoinError::PeerFailed { rank });
    }
    let added = addresses.iter().zip(0..).try_for_each(|(address, rank)| {
        rdm.add_peer(address).map_err(|errno| JoinError::Address { rank: Rank(rank), errno })
    });
    // No rank may send before every rank has all addresses.
    let ready = gather(&mut exchange, if added.is_ok() { READY } else { &[] });
    added?;
    if let Some(rank) = first_empty(&ready?) {
        return Err(JoinError::PeerFailed { rank });
    }

    let group = GroupInfo {
        rank,
        size,
        is_in_memory: check::core_name(&provider) == SHARED_MEMORY,
        is_on_ip: check::is_on_ip(&provider),
        is_near: offers
            .iter()
            .map(|offer| !mine.node.is_empty() && offer.node == mine.node)
            .collect(),
        provider,
        poll_lost: poll_lost(exchange),
    };
    Ok(Fabric::new(rdm, group))
}

/// Returns the first rank that could not continue.
fn first_empty(messages: &[Vec<u8>]) -> Option<Rank> {
    messages.iter().position(Vec::is_empty).map(Rank::new)
}

fn gather<X: Exchange>(exchange: &mut X, mine: &[u8]) -> Result<Vec<Vec<u8>>, JoinError> {
    exchange.all_gather(mine).map_err(|error| JoinError::Exchange(Box::new(error)))
}

/// Returns the usable providers, best first, each by its short and its full name.
fn candidates(settings: &Settings, size: usize) -> Result<Vec<(String, String)>, JoinError> {
    let full = |name: &str| {
        let description = check::find(name, settings, size)?;
        Ok::<_, Missing>((name.to_owned(), description.provider()))
    };
    match &settings.provider {
        Some(name) => match full(name) {
            Ok(found) => Ok(vec![found]),
            Err(missing) => Err(JoinError::Unavailable { provider: name.clone(), missing }),
        },
        None => {
            let found: Vec<_> =
                check::AUTOMATIC.iter().filter_map(|name| full(name).ok()).collect();
            if found.is_empty() { Err(JoinError::NoProvider) } else { Ok(found) }
        }
    }
}

/// Chooses the first provider that all ranks offer and that reaches all of them. Every rank gets
/// the same result.
fn choose(mine: &RankOffer, offers: &[RankOffer]) -> Result<String, JoinError> {
    let first = |matches: &dyn Fn(&RankOffer) -> bool| {
        offers
            .iter()
            .zip(0..)
            .find(|(offer, _)| matches(offer))
            .map(|(offer, rank)| (offer, Rank(rank)))
    };
    if let Some((_, rank)) = first(&|offer| offer.providers.is_empty()) {
        return Err(JoinError::PeerFailed { rank });
    }
    if let Some((other, rank)) = first(&|offer| offer.frame_bytes != mine.frame_bytes) {
        let (there, here) = (other.frame_bytes, mine.frame_bytes);
        return Err(JoinError::FramesDiffer { rank, there, here });
    }
    let elsewhere = first(&|offer| offer.host != mine.host).map(|(_, rank)| rank);
    // Within one process, the `shm` of libfabric 1.17 accesses the memory of another endpoint
    // directly, even after its owner has unmapped it.
    let shares_process = |offer: &RankOffer| {
        let same = |other: &&RankOffer| other.host == offer.host && other.process == offer.process;
        offers.iter().filter(same).count() > 1
    };
    let cannot_share_memory = match (elsewhere, first(&shares_process)) {
        (Some(rank), _) => Some(JoinError::OtherHost { rank }),
        (None, Some((_, rank))) => Some(JoinError::SameProcess { rank }),
        (None, None) => None,
    };
    let is_common =
        |provider: &&String| offers.iter().all(|offer| offer.providers.contains(provider));
    let reaches = |provider: &&String| {
        cannot_share_memory.is_none() || check::core_name(provider) != SHARED_MEMORY
    };
    // All ranks search the list of rank 0, so that different orders do no harm.
    let common: Vec<_> =
        offers.first().map_or(&[][..], |offer| &offer.providers).iter().filter(is_common).collect();
    let on_loopback = first(&|offer| offer.is_on_loopback && elsewhere.is_some());
    match (common.iter().copied().find(reaches), cannot_share_memory) {
        (Some(provider), _) => match on_loopback {
            Some((_, rank)) if check::is_on_ip(provider) => Err(JoinError::OnlyLoopback { rank }),
            _ => Ok(provider.clone()),
        },
        (None, Some(problem)) if !common.is_empty() => Err(problem),
        (None, _) => {
            let lacks = |offer: &RankOffer| {
                !offer.providers.iter().any(|name| mine.providers.contains(name))
            };
            let (other, rank) = first(&lacks).unwrap_or((mine, Rank(0)));
            let (there, here) = (other.providers.join(", "), mine.providers.join(", "));
            Err(JoinError::NothingInCommon { rank, there, here })
        }
    }
}

fn open(
    name: &str,
    settings: &Settings,
    size: usize,
) -> Result<(RdmEndpoint<FabricRequest>, Vec<u8>), JoinError> {
    let description = check::find(name, settings, size)
        .map_err(|missing| JoinError::Unavailable { provider: name.to_owned(), missing })?;
    let provider = description.provider();
    let failed = |errno| JoinError::Open { provider: provider.clone(), errno };
    let rdm = RdmEndpoint::open(Domain::open(description).map_err(failed)?).map_err(failed)?;
    let address = rdm.address().map_err(failed)?;
    Ok((rdm, address))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    /// Makes an offer with its own process id.
    fn offer(host: &str, providers: &[&str]) -> RankOffer {
        static PROCESS: AtomicU32 = AtomicU32::new(0);
        let process = PROCESS.fetch_add(1, Ordering::Relaxed);
        let providers = providers.iter().copied().map(str::to_owned).collect();
        RankOffer {
            host: host.to_owned(),
            node: host.to_owned(),
            process,
            is_on_loopback: false,
            frame_bytes: 4096,
            providers,
        }
    }

    #[test]
    fn an_offer_survives_the_exchange_and_nonsense_does_not() {
        for providers in [&["tcp;ofi_rxm", "shm"][..], &[]] {
            let offer = offer("here", providers);
            assert_eq!(RankOffer::decode(&offer.encode()), Some(offer));
        }
        for nonsense in [
            &b""[..],
            b"here",
            b"here\n1\nmaybe\n1",
            b"here\n1\ntrue\n-1\ntcp",
            b"\xff\n1\ntrue\n1",
        ] {
            assert_eq!(RankOffer::decode(nonsense), None);
        }
        let text = String::from_utf8(offer("here", &["tcp"]).encode()).unwrap();
        for other in ["+4096", "04096"] {
            assert_eq!(
                RankOffer::decode(text.replacen("4096", other, 1).as_bytes()),
                None,
                "{other}"
            );
        }
    }

    #[test]
    fn the_best_provider_that_all_have_is_chosen() {
        let offers = [offer("a", &["cxi", "shm", "tcp"]), offer("a", &["tcp", "shm"])];
        for mine in &offers {
            assert_eq!(choose(mine, &offers).unwrap(), "shm");
        }
    }

    #[test]
    fn shared_memory_is_for_one_host() {
        let offers = [offer("a", &["shm", "tcp"]), offer("b", &["shm", "tcp"])];
        assert_eq!(choose(&offers[0], &offers).unwrap(), "tcp");
        let offers = [offer("a", &["shm"]), offer("b", &["shm"])];
        let error = choose(&offers[0], &offers).unwrap_err();
        assert!(matches!(error, JoinError::OtherHost { rank: Rank(1) }), "{error}");
    }

    #[test]
    fn shared_memory_is_for_one_rank_in_a_process() {
        let mine = offer("a", &["shm", "tcp"]);
        let offers = [mine.clone(), mine.clone()];
        assert_eq!(choose(&mine, &offers).unwrap(), "tcp");
        let mine = offer("a", &["shm"]);
        let offers = [offer("a", &["shm"]), mine.clone(), mine.clone()];
        let error = choose(&mine, &offers).unwrap_err();
        assert!(matches!(error, JoinError::SameProcess { rank: Rank(1) }), "{error}");
    }

    #[test]
    fn loopback_does_not_reach_other_hosts() {
        let far = RankOffer { is_on_loopback: true, ..offer("b", &["tcp;ofi_rxm"]) };
        let offers = [offer("a", &["tcp;ofi_rxm"]), far];
        for mine in &offers {
            let error = choose(mine, &offers).unwrap_err();
            assert!(matches!(error, JoinError::OnlyLoopback { rank: Rank(1) }), "{error}");
        }
    }

    #[test]
    fn differences_are_named() {
        let offers = [offer("a", &["tcp"]), offer("a", &["tcp;ofi_rxm"])];
        let error = choose(&offers[0], &offers).unwrap_err();
        assert!(matches!(error, JoinError::NothingInCommon { rank: Rank(1), .. }), "{error}");

        let offers = [offer("a", &["tcp"]), offer("a", &[])];
        let error = choose(&offers[0], &offers).unwrap_err();
        assert!(matches!(error, JoinError::PeerFailed { rank: Rank(1) }), "{error}");

        let offers = [offer("a", &["tcp"]), RankOffer { frame_bytes: 1, ..offer("a", &["tcp"]) }];
        let error = choose(&offers[0], &offers).unwrap_err();
        assert!(matches!(error, JoinError::FramesDiffer { there: 1, here: 4096, .. }), "{error}");
    }
}
