//! Functions that use a store of the caller: ranks meet in it, and groups take in newcomers.

use std::ffi::{CStr, CString, c_char, c_void};
use std::thread;
use std::time::{Duration, Instant};

use foldwire::grow::Admission;
use foldwire::store::{MAX_VALUE_BYTES, Store, StoreError, check_entry, check_key};
use foldwire_bootstrap::StorePlace;

use super::communicators::{config_of, index, seconds, to_core};
use super::device::ArrayMemory;
use super::memory::{CommOut, lent_bytes, out_value, out_values, read};
use super::types::*;
use crate::endpoint::SharedEndpoint;
use crate::errors::{ApiError, catch_errors};
use crate::{group, handle_table, transport};

/// Bytes of a buffer that most values fit.
const USUAL_BYTES: usize = 4096;
/// Pause between two looks at a store whose wait is NULL.
const PAUSE: Duration = Duration::from_millis(10);

/// Configuration with the default of every member.
const NO_STORE: fwStore = fwStore {
    size: size_of::<fwStore>(),
    context: std::ptr::null_mut(),
    set: None,
    get: None,
    wait: None,
    job: std::ptr::null(),
};
const NO_ADMISSION: fwAdmission = fwAdmission {
    size: size_of::<fwAdmission>(),
    n_ranks: 0,
    reserved: 0,
    limit: 60.0,
    patience: 5.0,
    facts: std::ptr::null(),
    n_fact_bytes: 0,
};

type SetFunction = unsafe extern "C" fn(*mut c_void, *const c_char, *const c_void, usize) -> i32;
type GetFunction =
    unsafe extern "C" fn(*mut c_void, *const c_char, *mut c_void, usize, *mut usize) -> i32;
type WaitFunction = unsafe extern "C" fn(*mut c_void, *const c_char, f64) -> i32;

/// The caller's store.
struct CallerStore {
    context: *mut c_void,
    set: SetFunction,
    get: GetFunction,
    wait: Option<WaitFunction>,
}

impl CallerStore {
    /// Reads the caller's store, and the name of the job.
    ///
    /// # Safety
    /// As for [`read`]; `job` must be NULL or end with a 0.
    unsafe fn read(store: *const fwStore) -> Result<(Self, String), ApiError> {
        // SAFETY: guaranteed by the caller.
        let store = unsafe { read(store, NO_STORE, "fwStore") }?;
        let fwStore { context, set, get, wait, job, .. } = store;
        let (Some(set), Some(get)) = (set, get) else {
            return Err(ApiError::argument("fwStore.set and fwStore.get must be functions"));
        };
        let job = if job.is_null() {
            "foldwire".to_owned()
        } else {
            // SAFETY: not null; the caller guarantees a string.
            unsafe { CStr::from_ptr(job) }.to_string_lossy().into_owned()
        };
        Ok((Self { context, set, get, wait }, job))
    }
}

/// Copies a key as a C string. Keys have no 0 bytes.
fn c_key(key: &str) -> Result<CString, StoreError> {
    check_key(key)?;
    CString::new(key).map_err(|_| StoreError::Key)
}

impl Store for CallerStore {
    fn set(&mut self, key: &str, value: &[u8]) -> Result<(), StoreError> {
        check_entry(key, value)?;
        let key = c_key(key)?;
        // SAFETY: foldwire.h requires a function that reads a string and as many bytes as it gets.
        let code =
            unsafe { (self.set)(self.context, key.as_ptr(), value.as_ptr().cast(), value.len()) };
        if code == 0 { Ok(()) } else { Err(StoreError::Failed) }
    }

    fn get(&mut self, key: &str) -> Result<Option<Vec<u8>>, StoreError> {
        let key = c_key(key)?;
        let mut value = vec![0_u8; USUAL_BYTES];
        loop {
            let (capacity, mut n_bytes) = (value.len(), 0);
            let start = value.as_mut_ptr().cast();
            // SAFETY: foldwire.h requires a function that writes at most `capacity` bytes.
            let code = unsafe {
                (self.get)(self.context, key.as_ptr(), start, capacity, &raw mut n_bytes)
            };
            match code {
                0 if n_bytes > MAX_VALUE_BYTES => return Err(StoreError::TooLong { n_bytes }),
                // The value was longer than the buffer. It may have changed since.
                0 if n_bytes > capacity => value.resize(n_bytes, 0),
                0 => {
                    value.truncate(n_bytes);
                    return Ok(Some(value));
                }
                1 => return Ok(None),
                _ => return Err(StoreError::Failed),
            }
        }
    }

    fn wait(&mut self, key: &str, limit: Duration) -> Result<Option<Vec<u8>>, StoreError> {
        if let Some(wait) = self.wait {
            let c_key = c_key(key)?;
            // SAFETY: foldwire.h requires a function that reads a string.
            return match unsafe { wait(self.context, c_key.as_ptr(), limit.as_secs_f64()) } {
                0 | 1 => self.get(key),
                _ => Err(StoreError::Failed),
            };
        }
        let start = Instant::now();
        loop {
            let value = self.get(key)?;
            let left = limit.saturating_sub(start.elapsed());
            if value.is_some() || left.is_zero() {
                return Ok(value);
            }
            thread::sleep(PAUSE.min(left));
        }
    }
}

/// Joins the communicator of all n_ranks processes that meet in the caller's store under one job
/// name, and waits for them like fwCommInitRank. Each passes its own rank. The processes need the
/// same FOLDWIRE_TOKEN, unless all are on one host. Not allowed in a group. config may be NULL.
///
/// Errors: FW_TRANSPORT_ERROR if the store fails; FW_TIMEOUT if a rank is missing; FW_MISMATCH if
/// ranks pass different n_ranks; FW_INVALID_ARGUMENT if two processes pass the same rank, or the
/// job's name has other characters than letters, digits and ".-_/".
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fwCommInitStore(
    comm: *mut fwComm_t,
    n_ranks: i32,
    store: *const fwStore,
    rank: i32,
    config: *const fwConfig,
) -> fwResult {
    catch_errors(|| {
        // SAFETY: guaranteed by the caller.
        let mut place = unsafe { CommOut::new(comm, "communicator") }?;
        group::refuse("fwCommInitStore")?;
        // SAFETY: guaranteed by the caller.
        let (config, n_calls) = to_core(&unsafe { config_of(config) }?)?;
        // SAFETY: guaranteed by the caller.
        let (mut store, job) = unsafe { CallerStore::read(store) }?;
        let (size, rank) = (index(n_ranks, "number of ranks")?, index(rank, "rank")?);
        let limit = group::limit_of(&config);
        let at = StorePlace { rank, size, job, epoch: 0, limit };
        let transport = transport::join_store(&mut store, at)?;
        place.put(SharedEndpoint::create(transport, config, n_calls)?);
        Ok(())
    })
}

/// Creates a communicator of the ranks that call this function, and of newcomers (fwCommRejoin)
/// that wait in the store. All ranks of comm call it at the same place of their program, after a
/// failure or without one, with the same admission but for its facts. Ranks that are lost or silent
/// are left out. A rank keeps its number if the new group has it; newcomers take the free ones. The
/// new group communicates over TCP. Not allowed in a group of calls. admission may be NULL.
///
/// Before anything is sent, FW_INVALID_ARGUMENT, FW_INVALID_USAGE and FW_IN_USE leave comm and
/// new_comm as they are. Otherwise comm is destroyed, even if the function fails, and its requests
/// return FW_POISONED. So new_comm may point to the variable that holds comm. FW_EXCLUDED: the
/// other ranks go on without this one, which may call fwCommRejoin.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fwCommAdmit(
    comm: fwComm_t,
    store: *const fwStore,
    admission: *const fwAdmission,
    new_comm: *mut fwComm_t,
) -> fwResult {
    catch_errors(|| {
        group::refuse("fwCommAdmit")?;
        // SAFETY: guaranteed by the caller.
        let (mut store, job) = unsafe { CallerStore::read(store) }?;
        let asked = match admission.is_null() {
            true => NO_ADMISSION,
            // SAFETY: guaranteed by the caller.
            false => unsafe { read(admission, NO_ADMISSION, "fwAdmission") }?,
        };
        if asked.reserved != 0 {
            return Err(ApiError::argument("fwAdmission.reserved must be 0"));
        }
        let wanted = Admission {
            size: index(asked.n_ranks, "number of ranks")?,
            limit: seconds(asked.limit, "limit")?,
            patience: seconds(asked.patience, "patience")?,
            generation: 0,
            // SAFETY: guaranteed by the caller.
            facts: unsafe { lent_bytes(asked.facts, asked.n_fact_bytes) }?,
        };
        let (endpoint, ..) = handle_table::comm(comm.addr())?;
        let mut guard = endpoint.enter()?;
        let memory = guard.entry(comm.addr())?.memory;
        let mut place = None;
        let take = || {
            // The target may be the caller's only handle of comm, so it changes when comm does.
            // SAFETY: guaranteed by the caller.
            place = Some(unsafe { CommOut::new(new_comm, "communicator") }?);
            guard.take_comm(comm.addr()).map(|entry| entry.comm)
        };
        let grown = transport::admit(take, &mut store, &job, &wanted)?;
        if let Some(mut place) = place {
            place.put(SharedEndpoint::of_grown(grown, memory)?);
        }
        Ok(())
    })
}

/// Waits until a group admits this process (fwCommAdmit), for at most limit seconds, and creates
/// the communicator of the new group. The process needs the same store, job name, FOLDWIRE_TOKEN,
/// settings of TCP, and number of calls in config; lanes, checksum and link_rate are the group's.
/// Not allowed in a group of calls. config may be NULL.
///
/// Errors: FW_TIMEOUT if no group has admitted the process; FW_TRANSPORT_ERROR if the store fails.
/// After other errors the group has formed without this process, which may try again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fwCommRejoin(
    comm: *mut fwComm_t,
    store: *const fwStore,
    limit: f64,
    config: *const fwConfig,
) -> fwResult {
    catch_errors(|| {
        // SAFETY: guaranteed by the caller.
        let mut place = unsafe { CommOut::new(comm, "communicator") }?;
        group::refuse("fwCommRejoin")?;
        // SAFETY: guaranteed by the caller.
        let (config, n_calls) = to_core(&unsafe { config_of(config) }?)?;
        // SAFETY: guaranteed by the caller.
        let (mut store, job) = unsafe { CallerStore::read(store) }?;
        let limit = seconds(limit, "limit")?;
        let grown = transport::rejoin(&mut store, &job, limit, config, n_calls)?;
        place.put(SharedEndpoint::of_grown(grown, ArrayMemory::Host)?);
        Ok(())
    })
}

/// Copies the facts that the survivors gave to the newcomers when the group of comm grew
/// (fwAdmission), at most capacity bytes, and sets n_bytes to their whole length. Without a grow
/// there are none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fwCommFacts(
    comm: fwComm_t,
    facts: *mut c_void,
    capacity: usize,
    n_bytes: *mut usize,
) -> fwResult {
    catch_errors(|| {
        // SAFETY: guaranteed by the caller.
        let (into, n_bytes) = unsafe {
            (out_values(facts.cast::<u8>(), capacity)?, out_value(n_bytes, "number of bytes")?)
        };
        let (endpoint, ..) = handle_table::comm(comm.addr())?;
        let mut guard = endpoint.enter()?;
        let known = &guard.entry(comm.addr())?.facts;
        *n_bytes = known.len();
        let n = known.len().min(capacity);
        into[..n].copy_from_slice(&known[..n]);
        Ok(())
    })
}
