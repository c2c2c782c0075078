//! Foldwire over [libfabric](https://ofiwg.github.io/libfabric/): TCP, shared memory, and networks
//! with hardware of their own (Slingshot, Omni-Path, InfiniBand, EFA) by one interface.
//!
//! [`join`] takes [`Settings`] and an [`Exchange`] by which the ranks tell each
//! other their addresses, and gives a transport for a `Communicator`.
//!
//! ```no_run
//! # fn example(exchange: impl foldwire_bootstrap::Exchange + 'static) -> Result<(), Box<dyn std::error::Error>> {
//! use foldwire::{Bound, Communicator, Op, Plan};
//!
//! let settings = foldwire_libfabric::Settings::from_env()?;
//! let mut comm = Communicator::new(foldwire_libfabric::join(&settings, exchange)?)?;
//! let mut data = vec![1.0f32; 1000];
//! comm.all_reduce(&mut data, Op::Sum, &Plan::foldwire(Bound::Relative(1e-4)))?;
//! # Ok(())
//! # }
//! ```
//!
//! *What it does.* One reliable endpoint (`FI_EP_RDM`) carries tagged messages; the sender's rank
//! is in the tag. The network moves when it is polled, by one thread. Frames lie in slabs of memory
//! that are registered once, if the provider asks for it. `FI_EAGAIN` is back-pressure: the frame
//! waits.
//!
//! *Which provider.* `tcp`, `shm` and `sockets` are tested. Others are taken if they say that they
//! can do what is needed; [`providers`] tells for each what is missing. Without a name the first in
//! this list that all ranks have: `cxi`, `psm3`, `psm2`, `opx`, `efa`, `verbs`, `shm` (if all ranks
//! are on one host, each in a process of its own), `tcp`. Providers on IP listen on the loopback
//! interface unless an interface or address is named.
//!
//! *`tcp`* is `tcp;ofi_rxm` up to libfabric 1.17, and a provider of its own from 1.18. 1.17 has a
//! forerunner of the latter, `net`, about as fast, which is refused because it loses messages that
//! come before their receive.
//!
//! *Who is lost* is told by the exchange that [`join`] keeps. Of providers, `shm` never says that a
//! peer has ended, and `tcp` only to a rank that sends just when the connection breaks: to one that
//! sends later it is busy for ever, and a receive waits for ever (libfabric 1.17).
//!
//! *Threads.* An endpoint and its frames stay on the thread that made them.

mod acks;
mod any_source;
mod check;
mod error;
mod fabric;
mod ffi;
mod host;
mod join;
mod settings;
mod tags;

pub use check::{Missing, Provider, ProviderOffer, providers};
pub use error::{Error, JoinError};
pub use fabric::Fabric;
pub use ffi::{Errno, MessageBuffer, Version};
pub use foldwire_messaging::Options;
pub use settings::{Settings, SettingsError};

use foldwire_bootstrap::Exchange;

/// A variable that libfabric reads when it is first used, and a value that suits frames: whoever
/// starts the ranks does well to set it, for all of them alike, unless it is set. `tcp;ofi_rxm`
/// sends a longer message than this in pieces or after a round trip; with its own 16 KiB an
/// all-reduce of 64 MiB over four nodes at 10 Gbit/s takes 1.8 times as long. `foldwire launch`
/// sets it.
pub const RECOMMENDED_ENVIRONMENT: (&str, &str) = ("FI_OFI_RXM_BUFFER_SIZE", "131072");

/// The transport over libfabric.
pub type Endpoint = foldwire_messaging::Endpoint<Fabric>;

foldwire::compile_calls!(Endpoint);

/// Why an [`Endpoint`] failed.
pub type EndpointError = foldwire_messaging::Error<Error>;

/// A transport between the ranks of `exchange`. All ranks call it together. The endpoint keeps the
/// exchange, and asks it now and then who is lost.
///
/// # Errors
/// When the exchange fails, no provider can be used by all, or settings differ.
pub fn join<X: Exchange + 'static>(
    settings: &Settings,
    exchange: X,
) -> Result<Endpoint, JoinError> {
    Ok(Endpoint::new(Fabric::join(settings, exchange)?, settings.options)?)
}

/// As [`join`], with an exchange that is needed only during the call. Who is lost is learned only
/// from the network, which often does not tell; a call then ends by its time limit.
///
/// # Errors
/// As [`join`].
pub fn join_without_watch<X: Exchange>(
    settings: &Settings,
    exchange: X,
) -> Result<Endpoint, JoinError> {
    let fabric = join::join(settings, exchange, |_| Box::new(|| None))?;
    Ok(Endpoint::new(fabric, settings.options)?)
}
