//! Foldwire over [libfabric](https://ofiwg.github.io/libfabric/): one interface to TCP, shared
//! memory, and networks with their own hardware (Slingshot, Omni-Path, InfiniBand, EFA).
//!
//! [`join`] takes [`Settings`] and an [`Exchange`], by which the ranks exchange their addresses. It
//! returns a transport for a `Communicator`.
//!
//! ```no_run
//! # fn example(
//! #     exchange: impl foldwire_bootstrap::Exchange + 'static,
//! # ) -> Result<(), Box<dyn std::error::Error>> {
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
//! *Design.* One reliable endpoint (`FI_EP_RDM`) carries tagged messages. The tag includes the
//! sender's rank. One thread advances the network by polling it. Frames lie in slabs of memory,
//! which are registered once if the provider requires it. `FI_EAGAIN` is back-pressure: the frame
//! waits.
//!
//! *Choice of a provider.* `tcp`, `shm` and `sockets` are tested. Others are used if they report
//! the necessary capabilities. [`providers`] lists what each one lacks. Without a name, the ranks
//! use the first provider in this list that all of them have: `cxi`, `psm3`, `psm2`, `opx`, `efa`,
//! `verbs`, `shm` (if all ranks are on one host, each in its own process), `tcp`. Providers on IP
//! listen on the loopback interface unless an interface or address is named.
//!
//! *`tcp`* is `tcp;ofi_rxm` up to libfabric 1.17, and a separate provider from 1.18 on. In 1.17,
//! that provider is named `net`, and is about as fast. Foldwire refuses `net`, because it loses
//! messages that arrive before their receive is posted.
//!
//! *Lost ranks* are reported by the exchange that [`join`] keeps. Providers do not suffice: `shm`
//! never reports that a peer has ended. `tcp` reports it only to a rank that sends just when the
//! connection breaks. Later sends are busy for ever, and a receive waits for ever (libfabric 1.17).
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

/// Environment variable that libfabric reads when it is first used, with the recommended value in
/// bytes. `tcp;ofi_rxm` sends messages above that size in pieces or after a round trip. With its
/// default of 16 KiB, an all-reduce of 64 MiB over four nodes at 10 Gbit/s takes 1.8 times as long.
/// Launchers should set the variable for all ranks, unless the user has set it. `foldwire launch`
/// does.
pub const RECOMMENDED_ENVIRONMENT: (&str, &str) = ("FI_OFI_RXM_BUFFER_SIZE", "131072");

/// The transport over libfabric.
pub type Endpoint = foldwire_messaging::Endpoint<Fabric>;

foldwire::compile_calls!(Endpoint);

/// Error of an [`Endpoint`].
pub type EndpointError = foldwire_messaging::Error<Error>;

/// Makes a transport between the ranks of `exchange`. All ranks call it together. The endpoint
/// keeps the exchange, and polls it for lost ranks.
///
/// # Errors
/// The exchange fails, the ranks have no usable provider in common, or their settings differ.
pub fn join<X: Exchange + 'static>(
    settings: &Settings,
    exchange: X,
) -> Result<Endpoint, JoinError> {
    Ok(Endpoint::new(Fabric::join(settings, exchange)?, settings.options)?)
}

/// As [`join`], but uses the exchange only during the call. Lost ranks are then detected only by
/// the network, which often does not report them. A call then ends by its time limit.
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
