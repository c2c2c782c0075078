//! Interface to a key-value store, through which processes find each other.
//!
//! A [`Store`] is what a launcher, a framework or a shared folder already offers: three calls. The
//! crate `foldwire-bootstrap` has stores in memory, in a folder and over TCP; a closure is one,
//! too. Nothing here runs in the background: a store works only during a call.
//!
//! Values come from other processes, so every reader checks what it gets.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

/// Most bytes of a value. It is enough for the addresses of 4096 ranks.
pub const MAX_VALUE_BYTES: usize = 4 << 20;
/// Most bytes of a key.
pub const MAX_KEY_BYTES: usize = 200;

/// A store of values by key, which all processes of a job share.
///
/// A key is not empty, has at most [`MAX_KEY_BYTES`], and consists of ASCII letters, digits and
/// `.`, `-`, `_`, `/`. A value has at most [`MAX_VALUE_BYTES`].
///
/// A value that was set is visible to every process that reads the key afterwards. Setting a key
/// again replaces its value, as a whole.
///
/// # Examples
/// A closure over a map:
/// ```
/// use foldwire::store::{Store, StoreRequest};
/// use std::collections::BTreeMap;
///
/// let mut map = BTreeMap::new();
/// let mut store = |request: StoreRequest<'_>| match request {
///     StoreRequest::Set { key, value } => Ok(map.insert(key.to_owned(), value.to_vec())),
///     StoreRequest::Get { key } | StoreRequest::Wait { key, .. } => Ok(map.get(key).cloned()),
/// };
/// store.set("name", b"value")?;
/// assert_eq!(store.get("name")?.as_deref(), Some(&b"value"[..]));
/// # Ok::<(), foldwire::store::StoreError>(())
/// ```
pub trait Store {
    /// Sets the value of a key.
    ///
    /// # Errors
    /// If the store cannot be reached, or refuses the key or the value.
    fn set(&mut self, key: &str, value: &[u8]) -> Result<(), StoreError>;

    /// Returns the value of a key; `None` if it was not set.
    ///
    /// # Errors
    /// If the store cannot be reached, or refuses the key.
    fn get(&mut self, key: &str) -> Result<Option<Vec<u8>>, StoreError>;

    /// Waits until a key is set, and returns its value. Returns `None` if it was not set within
    /// `limit`. It may return `None` earlier; the caller then asks again.
    ///
    /// # Errors
    /// If the store cannot be reached, or refuses the key.
    fn wait(&mut self, key: &str, limit: Duration) -> Result<Option<Vec<u8>>, StoreError>;

    /// Serves other processes if this one hosts the store. It never waits, and is called regularly
    /// by whoever may keep others waiting.
    fn progress(&mut self) {}

    /// Returns whether this process hosts the store, so that others need its
    /// [`progress`](Self::progress).
    fn is_hosted_here(&self) -> bool {
        false
    }
}

/// A call of a store, for a closure that implements [`Store`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreRequest<'a> {
    /// Set the value; the result is ignored.
    Set {
        /// The key.
        key: &'a str,
        /// Its value.
        value: &'a [u8],
    },
    /// Return the value, or `None`.
    Get {
        /// The key.
        key: &'a str,
    },
    /// Wait for the value; return `None` if it was not set within the limit.
    Wait {
        /// The key.
        key: &'a str,
        /// Longest wait.
        limit: Duration,
    },
}

impl<F> Store for F
where
    F: FnMut(StoreRequest<'_>) -> Result<Option<Vec<u8>>, StoreError>,
{
    fn set(&mut self, key: &str, value: &[u8]) -> Result<(), StoreError> {
        check_entry(key, value)?;
        self(StoreRequest::Set { key, value }).map(|_| ())
    }

    fn get(&mut self, key: &str) -> Result<Option<Vec<u8>>, StoreError> {
        check_key(key)?;
        checked(self(StoreRequest::Get { key })?)
    }

    fn wait(&mut self, key: &str, limit: Duration) -> Result<Option<Vec<u8>>, StoreError> {
        check_key(key)?;
        checked(self(StoreRequest::Wait { key, limit })?)
    }
}

/// Failure of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The store's own error; the program that provides the store knows more.
    #[error("the store failed; look at its own messages")]
    Failed,
    /// The store cannot be reached.
    #[error("the store cannot be reached; does the process that hosts it still run?")]
    Unreachable,
    /// Another program answers in place of the store, or this process has another token.
    #[error("what answers in place of the store does not know this process's token")]
    Untrusted,
    /// A key is empty, too long, or has other characters than letters, digits and `.-_/`.
    #[error(
        "a key of the store has 1 to {MAX_KEY_BYTES} letters, digits and . - _ /; choose another \
        job name"
    )]
    Key,
    /// A value is too long.
    #[error("a value has {n_bytes} bytes; a store takes at most {MAX_VALUE_BYTES}")]
    TooLong {
        /// Bytes of the value.
        n_bytes: usize,
    },
    /// The store holds as much as it can.
    #[error("the store is full; use one store for each job")]
    Full,
    /// A value is not what a rank of this version writes.
    #[error("a value in the store is not from a rank of this version; use another job name")]
    Damaged,
}

/// Checks a key.
///
/// # Errors
/// [`StoreError::Key`].
pub fn check_key(key: &str) -> Result<(), StoreError> {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-/".contains(&byte);
    let is_sound = (1..=MAX_KEY_BYTES).contains(&key.len()) && key.bytes().all(is_allowed);
    if is_sound { Ok(()) } else { Err(StoreError::Key) }
}

/// Checks a key and a value.
///
/// # Errors
/// [`StoreError::Key`], [`StoreError::TooLong`].
pub fn check_entry(key: &str, value: &[u8]) -> Result<(), StoreError> {
    check_key(key)?;
    let n_bytes = value.len();
    if n_bytes <= MAX_VALUE_BYTES { Ok(()) } else { Err(StoreError::TooLong { n_bytes }) }
}

/// Checks the length of a value that another process has set.
fn checked(value: Option<Vec<u8>>) -> Result<Option<Vec<u8>>, StoreError> {
    match value {
        Some(value) if value.len() > MAX_VALUE_BYTES => {
            Err(StoreError::TooLong { n_bytes: value.len() })
        }
        value => Ok(value),
    }
}

/// The keys of one job in a store that others use, too: each begins with the job's name.
#[derive(Debug)]
pub struct Namespace<S> {
    store: S,
    prefix: String,
}

impl<S: Store> Namespace<S> {
    /// Uses the keys that begin with `prefix` and a slash.
    ///
    /// # Errors
    /// [`StoreError::Key`] if the prefix is no key, or has more than half of its bytes.
    pub fn new(store: S, prefix: &str) -> Result<Self, StoreError> {
        check_key(prefix)?;
        if prefix.len() > MAX_KEY_BYTES / 2 {
            return Err(StoreError::Key);
        }
        Ok(Self { store, prefix: prefix.into() })
    }

    fn key(&self, key: &str) -> String {
        format!("{}/{key}", self.prefix)
    }
}

impl<S: Store> Store for Namespace<S> {
    fn set(&mut self, key: &str, value: &[u8]) -> Result<(), StoreError> {
        let key = self.key(key);
        check_entry(&key, value)?;
        self.store.set(&key, value)
    }

    fn get(&mut self, key: &str) -> Result<Option<Vec<u8>>, StoreError> {
        let key = self.key(key);
        check_key(&key)?;
        checked(self.store.get(&key)?)
    }

    fn wait(&mut self, key: &str, limit: Duration) -> Result<Option<Vec<u8>>, StoreError> {
        let key = self.key(key);
        check_key(&key)?;
        checked(self.store.wait(&key, limit)?)
    }

    fn progress(&mut self) {
        self.store.progress();
    }

    fn is_hosted_here(&self) -> bool {
        self.store.is_hosted_here()
    }
}

/// A borrowed store.
impl Store for &mut dyn Store {
    fn set(&mut self, key: &str, value: &[u8]) -> Result<(), StoreError> {
        (**self).set(key, value)
    }

    fn get(&mut self, key: &str) -> Result<Option<Vec<u8>>, StoreError> {
        (**self).get(key)
    }

    fn wait(&mut self, key: &str, limit: Duration) -> Result<Option<Vec<u8>>, StoreError> {
        (**self).wait(key, limit)
    }

    fn progress(&mut self) {
        (**self).progress();
    }

    fn is_hosted_here(&self) -> bool {
        (**self).is_hosted_here()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec;

    #[test]
    fn keys_are_names_and_values_have_a_limit() {
        for key in ["a", "job-1/0/x_2.y", &"k".repeat(MAX_KEY_BYTES)] {
            assert_eq!(check_key(key), Ok(()), "{key}");
        }
        for key in ["", "a b", "ä", "a\0", "a\n", "a:b", &"k".repeat(MAX_KEY_BYTES + 1)] {
            assert_eq!(check_key(key), Err(StoreError::Key), "{key}");
        }
        let n_bytes = MAX_VALUE_BYTES + 1;
        let long = vec![0; n_bytes];
        assert_eq!(check_entry("a", &long[1..]), Ok(()));
        assert_eq!(check_entry("a", &long), Err(StoreError::TooLong { n_bytes }));
        let mut returns_it = |_: StoreRequest<'_>| Ok(Some(long.clone()));
        assert_eq!(returns_it.get("a"), Err(StoreError::TooLong { n_bytes }));
        assert_eq!(returns_it.wait("a", Duration::ZERO), Err(StoreError::TooLong { n_bytes }));
        assert_eq!(returns_it.set("", b""), Err(StoreError::Key));
    }

    #[test]
    fn a_namespace_is_a_prefix() {
        let mut seen = Vec::new();
        let mut store = |request: StoreRequest<'_>| {
            seen.push(format!("{request:?}"));
            Ok(None)
        };
        let mut named = Namespace::new(&mut store as &mut dyn Store, "job").expect("a key");
        assert_eq!(named.get("a"), Ok(None));
        assert_eq!(named.get(&"k".repeat(MAX_KEY_BYTES - 3)), Err(StoreError::Key));
        assert_eq!(seen, ["Get { key: \"job/a\" }"]);
        let long = "k".repeat(MAX_KEY_BYTES);
        for prefix in ["", "a b", &long] {
            let none = |_: StoreRequest<'_>| Ok(None);
            assert!(Namespace::new(none, prefix).is_err(), "{prefix}");
        }
    }
}
