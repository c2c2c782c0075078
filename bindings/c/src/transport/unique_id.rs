//! Unique ids: the address of rank 0, and a secret that authenticates the ranks.
//!
//! | bytes | contents |
//! |---|---|
//! | 0 | `F` |
//! | 1 | version of this layout |
//! | 2 | version of IP: 4 or 6 |
//! | 3 | 0 |
//! | 4, 5 | port, little-endian |
//! | 6…21 | address as IPv6, or as IPv4 mapped to IPv6 |
//! | 22…53 | secret, 32 hexadecimal digits |
//! | 54…127 | 0 |
//!
//! The creating process listens from the start, so that ranks may come in any order. A table keeps
//! the socket for rank 0, which must be in this process or a fork of it.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener};
use std::sync::{Mutex, MutexGuard, PoisonError};

use foldwire_bootstrap::Token as Secret;
use foldwire_tcp::Settings;

use super::join_error;
use crate::errors::ApiError;
use crate::ffi::types::{FW_TRANSPORT_ERROR, FW_UNIQUE_ID_BYTES};

/// Bytes of a unique id.
pub(crate) type UniqueIdBytes = [u8; FW_UNIQUE_ID_BYTES];

const MAGIC: u8 = b'F';
const VERSION: u8 = 2;
/// Offset of the address.
const ADDRESS: usize = 6;
/// Offset of the secret.
const SECRET: usize = ADDRESS + 16;
/// Offset of the padding.
const END: usize = SECRET + 32;

/// Listening sockets that wait for rank 0, by secret.
static LISTENERS: Mutex<BTreeMap<String, TcpListener>> = Mutex::new(BTreeMap::new());

/// Locks the table of listening sockets.
pub(crate) fn listeners() -> MutexGuard<'static, BTreeMap<String, TcpListener>> {
    LISTENERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Contents of a unique id.
#[derive(Clone, Debug)]
pub(crate) struct UniqueId {
    pub(super) address: SocketAddr,
    pub(super) secret: Secret,
}

/// Creates a unique id, and a listening socket for it.
///
/// # Errors
/// If the environment names no usable interface or address, or this host cannot listen there.
pub fn new_unique_id() -> Result<UniqueIdBytes, ApiError> {
    let settings = Settings::from_env().map_err(|error| ApiError::argument(error.to_string()))?;
    let ip = settings.listening().ok_or_else(|| {
        let name = settings.interface.unwrap_or_default();
        ApiError::argument(format!(
            "FOLDWIRE_IFACE: this host has no interface {name} with an address"
        ))
    })?;
    if ip.to_canonical().is_unspecified() {
        let message = format!(
            "other ranks cannot connect to {ip}; set FOLDWIRE_ADDRESS to one address of this host"
        );
        return Err(ApiError::argument(message));
    }
    let refused = |error| {
        let message = format!("cannot listen at {ip} ({error}); is it an address of this host?");
        ApiError::new(FW_TRANSPORT_ERROR, message)
    };
    let listener = TcpListener::bind((ip, 0)).map_err(refused)?;
    let port = listener.local_addr().map_err(refused)?.port();
    let secret = Secret::random().map_err(|error| join_error::from_bootstrap(error.into()))?;
    let mut bytes = [0; FW_UNIQUE_ID_BYTES];
    let (version, octets) = match ip {
        IpAddr::V4(ip) => (4, ip.to_ipv6_mapped().octets()),
        IpAddr::V6(ip) => (6, ip.octets()),
    };
    bytes[..3].copy_from_slice(&[MAGIC, VERSION, version]);
    bytes[4..ADDRESS].copy_from_slice(&port.to_le_bytes());
    bytes[ADDRESS..SECRET].copy_from_slice(&octets);
    bytes[SECRET..END].copy_from_slice(secret.reveal().as_bytes());
    listeners().insert(secret.reveal().to_owned(), listener);
    Ok(bytes)
}

impl UniqueId {
    /// Parses a unique id from an untrusted source.
    ///
    /// # Errors
    /// If this version did not make the bytes.
    pub(super) fn read(bytes: &UniqueIdBytes) -> Result<Self, ApiError> {
        if bytes.iter().all(|&byte| byte == 0) {
            return Err(ApiError::argument(
                "this unique id is empty: fwGetUniqueId failed on rank 0 (see the error there), or \
                 this rank did not receive the id",
            ));
        }
        let [magic, version, ip_version, 0, low, high, rest @ ..] = bytes else {
            return Err(unknown());
        };
        let (octets, rest) = rest.split_first_chunk::<16>().ok_or_else(unknown)?;
        let (secret, rest) = rest.split_at(END - SECRET);
        let v6 = Ipv6Addr::from(*octets);
        let ip = match ip_version {
            4 => v6.to_ipv4_mapped().map(IpAddr::V4),
            6 => Some(IpAddr::V6(v6)),
            _ => None,
        };
        let address = SocketAddr::new(ip.ok_or_else(unknown)?, u16::from_le_bytes([*low, *high]));
        let is_known = [*magic, *version] == [MAGIC, VERSION]
            && address.port() != 0
            && secret.iter().all(u8::is_ascii_hexdigit)
            && rest.iter().all(|&byte| byte == 0);
        let text = str::from_utf8(secret).ok().filter(|_| is_known).ok_or_else(unknown)?;
        Ok(Self { address, secret: Secret::new(text).map_err(|_| unknown())? })
    }

    /// Returns whether the listening socket still waits for rank 0.
    pub(super) fn has_listener(&self) -> bool {
        listeners().contains_key(self.secret.reveal())
    }

    /// Takes the listening socket, if it still waits for rank 0.
    pub(super) fn take_listener(&self) -> Option<TcpListener> {
        listeners().remove(self.secret.reveal())
    }
}

/// The error for bytes that are not a unique id.
fn unknown() -> ApiError {
    ApiError::argument(
        "this unique id was not made by fwGetUniqueId of this version; check that all its \
         128 bytes are passed unchanged",
    )
}
