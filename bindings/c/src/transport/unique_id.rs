//! Unique ids: where ranks meet, and the secret by which they know each other.
//!
//! | bytes | what |
//! |---|---|
//! | 0 | `F` |
//! | 1 | version of this layout |
//! | 2, 3 | 4 or 6, the version of IP; 0 |
//! | 4, 5 | the port, the lower byte first |
//! | 6…21 | the address, in IPv6's form |
//! | 22…53 | the secret, 32 hexadecimal digits |
//! | 54…127 | 0 |
//!
//! Who makes one listens from then on, so that ranks may come in any order. The socket waits in a
//! table for rank 0, which has to be of this process, or of one that was forked off it.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener};
use std::sync::{Mutex, MutexGuard, PoisonError};

use foldwire_bootstrap::Token as Secret;
use foldwire_tcp::Settings;

use super::join_error;
use crate::errors::ApiError;
use crate::ffi::types::{FW_TRANSPORT_ERROR, FW_UNIQUE_ID_BYTES};

/// What ranks have in common.
pub(crate) type UniqueIdBytes = [u8; FW_UNIQUE_ID_BYTES];

const MAGIC: u8 = b'F';
const VERSION: u8 = 2;
const ADDRESS: usize = 6;
const SECRET: usize = ADDRESS + 16;
const END: usize = SECRET + 32;

/// By secret, the sockets that wait for rank 0.
static LISTENERS: Mutex<BTreeMap<String, TcpListener>> = Mutex::new(BTreeMap::new());

pub(crate) fn listeners() -> MutexGuard<'static, BTreeMap<String, TcpListener>> {
    LISTENERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a token says.
#[derive(Clone, Debug)]
pub(crate) struct UniqueId {
    pub(super) address: SocketAddr,
    pub(super) secret: Secret,
}

/// A token that nobody has come with, and a socket that waits for those who do.
pub(crate) fn new_unique_id() -> Result<UniqueIdBytes, ApiError> {
    let settings = Settings::from_env().map_err(|error| ApiError::argument(error.to_string()))?;
    let ip = settings.listening().ok_or_else(|| {
        let name = settings.interface.unwrap_or_default();
        ApiError::argument(format!("FOLDWIRE_IFACE: no interface {name} with an address is here"))
    })?;
    if ip.is_unspecified() {
        let message = format!("nobody can connect to {ip}; set FOLDWIRE_ADDRESS to one address");
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
    /// What a token says that came from anywhere.
    pub(super) fn read(bytes: &UniqueIdBytes) -> Result<Self, ApiError> {
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

    /// Whether the socket still waits.
    pub(super) fn has_listener(&self) -> bool {
        listeners().contains_key(self.secret.reveal())
    }

    /// The socket that waits, once.
    pub(super) fn take_listener(&self) -> Option<TcpListener> {
        listeners().remove(self.secret.reveal())
    }
}

fn unknown() -> ApiError {
    ApiError::argument(
        "this unique id was not made by fwGetUniqueId of this version; carry all its 128 bytes",
    )
}
