//! A store in a folder that all processes see: each value is a file.
//!
//! A value is written to a file of another name and renamed, so readers see a whole value or none.
//! Over NFS a new file may become visible some seconds late.

use std::fs::{self, File};
use std::io::{ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use foldwire::store::{MAX_VALUE_BYTES, Store, StoreError, check_entry, check_key};

/// First and longest pause between two looks at a file.
const PAUSES: [Duration; 2] = [Duration::from_millis(1), Duration::from_millis(20)];
/// Number of files that this process has written, so that each has its own temporary name.
static N_WRITTEN: AtomicU64 = AtomicU64::new(0);

/// A store in a folder.
///
/// Use a new folder, or another job name, for each job: values stay when a job ends.
#[derive(Clone, Debug)]
pub struct FileStore {
    folder: PathBuf,
}

impl FileStore {
    /// Uses a folder, and creates it if it does not exist.
    ///
    /// # Errors
    /// If the folder cannot be created.
    pub fn new(folder: impl Into<PathBuf>) -> std::io::Result<Self> {
        let folder = folder.into();
        fs::create_dir_all(&folder)?;
        Ok(Self { folder })
    }

    /// The folder.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Path of a key's file. A slash becomes `+`, which no key has; a leading dot would hide it.
    fn path(&self, key: &str) -> PathBuf {
        self.folder.join(format!("k{}", key.replace('/', "+")))
    }

    fn read(&self, key: &str) -> Result<Option<Vec<u8>>, StoreError> {
        let mut options = File::options();
        options.read(true);
        // Opening must not block, whatever kind of file this is.
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::custom_flags(&mut options, nix::libc::O_NONBLOCK);
        let file = match options.open(self.path(key)) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(_) => return Err(StoreError::Failed),
        };
        if !file.metadata().map_err(|_| StoreError::Failed)?.is_file() {
            return Err(StoreError::Damaged);
        }
        let mut value = Vec::new();
        let limit = MAX_VALUE_BYTES as u64 + 1;
        file.take(limit).read_to_end(&mut value).map_err(|_| StoreError::Failed)?;
        if value.len() > MAX_VALUE_BYTES {
            return Err(StoreError::TooLong { n_bytes: value.len() });
        }
        Ok(Some(value))
    }
}

impl Store for FileStore {
    fn set(&mut self, key: &str, value: &[u8]) -> Result<(), StoreError> {
        check_entry(key, value)?;
        let nth = N_WRITTEN.fetch_add(1, Ordering::Relaxed);
        // Process ids repeat between machines, but random numbers hardly do.
        let unique = crate::token::nonce().map_err(|_| StoreError::Failed)?;
        let unique: String = unique[..8].iter().map(|byte| format!("{byte:02x}")).collect();
        let temporary = self.folder.join(format!("t{}-{nth}-{unique}", process::id()));
        let written = File::create_new(&temporary)
            .and_then(|mut file| file.write_all(value))
            .and_then(|()| fs::rename(&temporary, self.path(key)));
        if written.is_err() {
            let _ = fs::remove_file(&temporary);
        }
        written.map_err(|_| StoreError::Failed)
    }

    fn get(&mut self, key: &str) -> Result<Option<Vec<u8>>, StoreError> {
        check_key(key)?;
        self.read(key)
    }

    fn wait(&mut self, key: &str, limit: Duration) -> Result<Option<Vec<u8>>, StoreError> {
        check_key(key)?;
        let (start, mut pause) = (Instant::now(), PAUSES[0]);
        loop {
            let value = self.read(key)?;
            let left = limit.saturating_sub(start.elapsed());
            if value.is_some() || left.is_zero() {
                return Ok(value);
            }
            thread::sleep(pause.min(left));
            pause = (2 * pause).min(PAUSES[1]);
        }
    }
}
