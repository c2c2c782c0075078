//! A store in the memory of this process.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use foldwire::store::{Store, StoreError, check_entry, check_key};

/// A store in memory. Its clones share the values.
///
/// # Examples
/// ```
/// use foldwire::store::Store;
/// use foldwire_bootstrap::MemoryStore;
///
/// let mut store = MemoryStore::default();
/// store.clone().set("key", b"value")?;
/// assert_eq!(store.get("key")?.as_deref(), Some(&b"value"[..]));
/// # Ok::<(), foldwire::store::StoreError>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct MemoryStore(Arc<SharedValues>);

#[derive(Debug, Default)]
struct SharedValues {
    values: Mutex<BTreeMap<String, Vec<u8>>>,
    changed: Condvar,
}

impl MemoryStore {
    fn values(&self) -> MutexGuard<'_, BTreeMap<String, Vec<u8>>> {
        self.0.values.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Store for MemoryStore {
    fn set(&mut self, key: &str, value: &[u8]) -> Result<(), StoreError> {
        check_entry(key, value)?;
        self.values().insert(key.to_owned(), value.to_vec());
        self.0.changed.notify_all();
        Ok(())
    }

    fn get(&mut self, key: &str) -> Result<Option<Vec<u8>>, StoreError> {
        check_key(key)?;
        Ok(self.values().get(key).cloned())
    }

    fn wait(&mut self, key: &str, limit: Duration) -> Result<Option<Vec<u8>>, StoreError> {
        check_key(key)?;
        let start = Instant::now();
        let mut values = self.values();
        loop {
            if let Some(value) = values.get(key) {
                return Ok(Some(value.clone()));
            }
            let left = limit.saturating_sub(start.elapsed());
            if left.is_zero() {
                return Ok(None);
            }
            let waited = self.0.changed.wait_timeout(values, left);
            values = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}
