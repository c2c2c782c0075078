//! Functions that create, query, split, shrink, abort and destroy communicators.
//!
//! In a group, an error of fwGetUniqueId or fwCommInitRank invalidates the group
//! (`catch_call_errors`).

use std::ptr;
use std::time::Duration;

use foldwire::Config;

use super::memory::{CommOut, out_value, out_values, read, write};
use super::types::*;
use crate::endpoint::SharedEndpoint;
use crate::errors::{ApiError, catch_errors};
use crate::group::{PendingJoin, catch_call_errors};
use crate::plan::{c_name, lanes_of};
use crate::{group, handle_table, transport};

/// Default number of calls in progress at once.
const N_CALLS: u32 = 8;
/// Largest number of calls in progress at once.
const MAX_CALLS: u32 = 256;
/// Times of this many seconds or more mean "no limit".
const FOREVER: f64 = 1e9;

/// Configuration with the default of every member.
const DEFAULT: fwConfig = fwConfig {
    size: size_of::<fwConfig>(),
    calls: 0,
    lanes: 0,
    timeout: 0.0,
    deadline: 0.0,
    link_rate: 0.0,
    checksum: FW_CHECKSUM_AS_NEEDED,
    reserved: 0,
};

/// Copies the caller's configuration; NULL means the default.
///
/// # Safety
/// As for [`read`], except that null is allowed.
pub(super) unsafe fn config_of(config: *const fwConfig) -> Result<fwConfig, ApiError> {
    if config.is_null() {
        return Ok(DEFAULT);
    }
    // SAFETY: guaranteed by the caller.
    let config = unsafe { read(config, DEFAULT, "fwConfig") }?;
    if config.reserved != 0 {
        return Err(ApiError::argument("fwConfig.reserved must be 0"));
    }
    Ok(config)
}

/// Converts a time in seconds. 1e9 or more is no limit.
///
/// # Errors
/// If the value is negative or NaN.
pub fn seconds(value: f64, what: &str) -> Result<Duration, ApiError> {
    if value >= FOREVER {
        return Ok(Config::NEVER);
    }
    let wrong = |_| ApiError::argument(format!("{value} is not a valid {what} in seconds"));
    Duration::try_from_secs_f64(value).map_err(wrong)
}

/// Returns the configured number of calls, or the default.
fn calls(config: &fwConfig, default: u32) -> Result<usize, ApiError> {
    let calls = if config.calls == 0 { default } else { config.calls };
    if calls > MAX_CALLS {
        return Err(ApiError::argument(format!(
            "{calls} calls at once; at most {MAX_CALLS} are possible"
        )));
    }
    Ok(calls as usize)
}

/// Returns core's configuration, and the largest number of calls in progress at once.
pub(super) fn to_core(config: &fwConfig) -> Result<(Config, usize), ApiError> {
    let mut made = Config::default();
    let lanes = lanes_of(config.lanes)?;
    if lanes > 0 {
        made.lanes = lanes;
    }
    if config.timeout != 0.0 {
        made.timeout = seconds(config.timeout, "timeout")?;
    }
    if config.deadline != 0.0 {
        made.deadline = Some(seconds(config.deadline, "deadline")?);
    }
    if config.link_rate != 0.0 {
        made.link_rate = Some(transport::check_rate(config.link_rate)?);
    }
    made.checksum = match config.checksum {
        FW_CHECKSUM_AS_NEEDED => None,
        FW_CHECKSUM_ALWAYS => Some(true),
        FW_CHECKSUM_NEVER => Some(false),
        other => {
            return Err(ApiError::argument(format!(
                "{other} is not a valid value for fwConfig.checksum"
            )));
        }
    };
    Ok((made, calls(config, N_CALLS)?))
}

/// Converts a rank or number of ranks from C.
pub(super) fn index(number: i32, what: &str) -> Result<usize, ApiError> {
    usize::try_from(number)
        .map_err(|_| ApiError::argument(format!("{number} is not a valid {what}")))
}

/// Converts a handle to its C type.
fn comm_of(handle: usize) -> fwComm_t {
    ptr::without_provenance_mut(handle)
}

/// Sets version to the version of the linked library, as 10000 * major + 100 * minor + patch.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fwGetVersion(version: *mut i32) -> fwResult {
    catch_errors(|| {
        let number = FW_VERSION_MAJOR * 10_000 + FW_VERSION_MINOR * 100 + FW_VERSION_PATCH;
        // SAFETY: guaranteed by the caller.
        *unsafe { out_value(version, "version") }? = number as i32;
        Ok(())
    })
}

/// Returns a description of a result code. The string is static.
#[unsafe(no_mangle)]
pub extern "C" fn fwGetErrorString(result: fwResult) -> *const std::ffi::c_char {
    crate::errors::words(result).as_ptr()
}

/// Returns the message of this thread's last error: what was wrong, with its numbers, and what to
/// change. Empty if this thread has had no error. The string is valid until the thread's next
/// error.
#[unsafe(no_mangle)]
pub extern "C" fn fwGetLastError() -> *const std::ffi::c_char {
    crate::errors::last_error()
}

/// Creates a communicator whose ranks are threads of this process. comms has space for n_ranks
/// handles (1 to 1024) and receives those of rank 0, 1, and so on. Each thread uses one of them, or
/// one thread uses several within groups (fwGroupStart). config may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fwCommInitAll(
    comms: *mut fwComm_t,
    n_ranks: i32,
    config: *const fwConfig,
) -> fwResult {
    catch_errors(|| {
        let n_ranks = index(n_ranks, "number of ranks")?;
        // SAFETY: guaranteed by the caller.
        let (comms, config) = unsafe { (out_values(comms, n_ranks)?, config_of(config)?) };
        let (config, n_calls) = to_core(&config)?;
        let mut made = Vec::new();
        for transport in transport::threads(n_ranks, None)? {
            match SharedEndpoint::create(transport, config, n_calls) {
                Ok(handle) => made.push(handle),
                Err(fault) => {
                    made.into_iter().for_each(handle_table::remove);
                    return Err(fault);
                }
            }
        }
        comms.iter_mut().zip(made).for_each(|(comm, handle)| *comm = comm_of(handle));
        Ok(())
    })
}

/// Creates the unique id of a new communicator. The process of rank 0 calls this function, and the
/// program sends the 128 bytes to the other ranks by any means: a file, a pipe, MPI. The id is a
/// secret, because everyone who has it can join. It is valid for one communicator. A listening
/// socket stays open until rank 0 calls fwCommInitRank.
///
/// The socket listens on the loopback interface, so that only ranks on this host can connect. For
/// ranks on several hosts, set FOLDWIRE_IFACE (for example eth0) or FOLDWIRE_ADDRESS on every rank.
///
/// Errors: FW_INVALID_ARGUMENT if the environment names no usable interface or address;
/// FW_TRANSPORT_ERROR if this host cannot listen there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fwGetUniqueId(id: *mut fwUniqueId) -> fwResult {
    catch_call_errors(|| {
        // SAFETY: guaranteed by the caller.
        let id = unsafe { out_value(id, "unique id") }?;
        transport::warn_of_unknown();
        id.internal = transport::new_unique_id()?;
        Ok(())
    })
}

/// Joins the communicator of all n_ranks ranks that pass the same id, and waits for the other
/// ranks. Each rank calls from its own thread or process. The wait ends after config's timeout or
/// deadline, whichever is shorter, to within a few seconds. In a group, the communicator is created
/// when the group ends, so that one thread can create several ranks; such a group contains no other
/// calls. If all ranks are threads of one process, they exchange values in memory, otherwise over
/// TCP. config may be NULL.
///
/// Errors: FW_MISMATCH if n_ranks, FOLDWIRE_STREAMS or FOLDWIRE_ENCRYPT differs between ranks;
/// FW_TIMEOUT if a rank is missing; FW_PEER_LOST if rank 0 no longer waits for ranks of this id;
/// FW_INVALID_ARGUMENT if two ranks pass the same rank, or if rank 0 is not in the process that
/// called fwGetUniqueId.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fwCommInitRank(
    comm: *mut fwComm_t,
    n_ranks: i32,
    id: fwUniqueId,
    rank: i32,
    config: *const fwConfig,
) -> fwResult {
    catch_call_errors(|| {
        // SAFETY: guaranteed by the caller.
        let place = unsafe { CommOut::new(comm, "communicator") }?;
        // SAFETY: guaranteed by the caller.
        let (config, n_calls) = to_core(&unsafe { config_of(config) }?)?;
        let (n_ranks, rank) = (index(n_ranks, "number of ranks")?, index(rank, "rank")?);
        group::join(PendingJoin { unique_id: id.internal, n_ranks, rank, config, n_calls, place })
    })
}

/// Joins the communicator of all processes that a launcher started together, and waits for them
/// like fwCommInitRank. Rank, number of ranks and the address of rank 0 come from the environment:
/// set by foldwire launch, MPI launchers, Slurm or torchrun, or by the user as FOLDWIRE_RANK,
/// FOLDWIRE_SIZE and FOLDWIRE_ROOT. Without such variables the process is the only rank. A process
/// makes one such call at a time. Not allowed in a group. config may be NULL.
///
/// The first call of a process, or its first fwGetUniqueId, prints a line to stderr for each
/// variable FOLDWIRE_… that nothing reads.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fwCommInitEnv(comm: *mut fwComm_t, config: *const fwConfig) -> fwResult {
    catch_errors(|| {
        // SAFETY: guaranteed by the caller.
        let mut place = unsafe { CommOut::new(comm, "communicator") }?;
        group::refuse("fwCommInitEnv")?;
        transport::warn_of_unknown();
        // SAFETY: guaranteed by the caller.
        let (config, n_calls) = to_core(&unsafe { config_of(config) }?)?;
        let transport = transport::join_env(group::limit_of(&config))?;
        place.put(SharedEndpoint::create(transport, config, n_calls)?);
        Ok(())
    })
}

/// Sets count to the number of ranks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fwCommCount(comm: fwComm_t, count: *mut i32) -> fwResult {
    catch_errors(|| {
        // SAFETY: guaranteed by the caller.
        *unsafe { out_value(count, "count") }? = handle_table::comm(comm.addr())?.2 as i32;
        Ok(())
    })
}

/// Sets rank to this rank: 0 to the number of ranks minus 1.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fwCommUserRank(comm: fwComm_t, rank: *mut i32) -> fwResult {
    catch_errors(|| {
        // SAFETY: guaranteed by the caller.
        *unsafe { out_value(rank, "rank") }? = handle_table::comm(comm.addr())?.1 as i32;
        Ok(())
    })
}

/// Fills report with statistics of this rank's last successful call on the communicator. The calls
/// of a group are added up. Initialize report with FW_REPORT_INIT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fwCommReport(comm: fwComm_t, report: *mut fwReport) -> fwResult {
    catch_errors(|| {
        let (endpoint, ..) = handle_table::comm(comm.addr())?;
        let did = endpoint.enter()?.entry(comm.addr())?.report;
        let value = fwReport {
            size: size_of::<fwReport>(),
            seconds: did.total.as_secs_f64(),
            bound: did.bound,
            worst_case: did.worst_case.unwrap_or(-1.0),
            raw_bytes: did.raw_bytes,
            wire_bytes: did.wire_bytes,
            n_messages: did.n_messages,
            codec: c_name(did.codec.name()),
            schedule: c_name(did.schedule),
            suspected_fill: did.suspected_fill.unwrap_or(f64::NAN),
        };
        // SAFETY: guaranteed by the caller.
        unsafe { write(report, value, "fwReport") }
    })
}

/// Creates one communicator for each color. All ranks of comm call this function together. The
/// ranks of a new communicator are those that pass the same color (0 or more), ordered by key and,
/// for equal keys, by their rank in comm. A rank that passes FW_SPLIT_NOCOLOR receives NULL. The
/// function uses only config->calls, which must be the same on all ranks of a color. A NULL config
/// keeps the value of comm. Not allowed in a group.
///
/// A communicator and all communicators split from it share 256 channels. Each communicator takes
/// one channel for each call that it can have in progress, and one for messages. So 28
/// communicators of 8 calls can exist at once. fwCommDestroy frees the channels.
///
/// Errors: FW_NO_ROOM if too few channels are free; FW_MISMATCH if calls differs between ranks of a
/// color. comm stays usable after both.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fwCommSplit(
    comm: fwComm_t,
    color: i32,
    key: i32,
    new_comm: *mut fwComm_t,
    config: *const fwConfig,
) -> fwResult {
    catch_errors(|| {
        // SAFETY: guaranteed by the caller.
        let (new_comm, config) =
            unsafe { (out_value(new_comm, "communicator")?, config_of(config)?) };
        *new_comm = ptr::null_mut();
        group::refuse("fwCommSplit")?;
        let color = match color {
            FW_SPLIT_NOCOLOR => None,
            color => Some(u32::try_from(color).map_err(|_| {
                ApiError::argument(format!(
                    "{color} is not a color; pass 0 or more, or FW_SPLIT_NOCOLOR"
                ))
            })?),
        };
        let (endpoint, ..) = handle_table::comm(comm.addr())?;
        let mut guard = endpoint.enter()?;
        let entry = guard.entry(comm.addr())?;
        let n_calls = calls(&config, entry.comm.n_calls() as u32)?;
        let memory = entry.memory;
        match entry.comm.split(color, key, n_calls) {
            Ok(Some(made)) => *new_comm = comm_of(guard.add_comm(&endpoint, made, memory)?),
            Ok(None) => {}
            Err(error) => return guard.record(comm.addr(), Err(error.into())),
        }
        Ok(())
    })
}

/// Creates a communicator of the ranks that call this function, after a failure or without one. A
/// rank that does not answer for patience seconds is excluded. Not allowed in a group.
///
/// FW_INVALID_ARGUMENT, FW_INVALID_USAGE and FW_IN_USE leave comm and new_comm as they are.
/// Otherwise comm is destroyed, even if the function fails, and its requests return FW_POISONED. So
/// new_comm may point to the variable that holds comm.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fwCommShrink(
    comm: fwComm_t,
    patience: f64,
    new_comm: *mut fwComm_t,
) -> fwResult {
    catch_errors(|| {
        group::refuse("fwCommShrink")?;
        let patience = seconds(patience, "patience")?;
        let (endpoint, ..) = handle_table::comm(comm.addr())?;
        let mut guard = endpoint.enter()?;
        let n_calls = guard.entry(comm.addr())?.comm.n_calls();
        // The target may be the caller's only handle of comm, so it changes when comm does.
        // SAFETY: guaranteed by the caller.
        let mut place = unsafe { CommOut::new(new_comm, "communicator") }?;
        let entry = guard.take_comm(comm.addr())?;
        let survivors = entry.comm.shrink(patience, n_calls)?;
        place.put(guard.add_comm(&endpoint, survivors, entry.memory)?);
        Ok(())
    })
}

/// Destroys this rank's handle of a communicator. Communicators that were split from it stay valid.
/// When the last of them is destroyed, the connections to other processes close: once all sent data
/// has arrived, but after at most one minute, or the timeout or deadline if that is shorter. Other
/// ranks notice in their next call that needs this rank. Not allowed in a group.
///
/// Errors: FW_IN_USE if a request of the communicator was not waited for, or another thread is in a
/// call. Wait for both, or call fwCommAbort.
#[unsafe(no_mangle)]
pub extern "C" fn fwCommDestroy(comm: fwComm_t) -> fwResult {
    catch_errors(|| destroy(comm.addr()))
}

/// Destroys a communicator.
fn destroy(comm: usize) -> Result<(), ApiError> {
    group::refuse("fwCommDestroy")?;
    let (endpoint, ..) = handle_table::comm(comm)?;
    match endpoint.enter() {
        Ok(mut guard) => {
            let requests = guard.requests_of(comm);
            if !requests.is_empty() {
                let message = format!(
                    "{} requests are in progress: wait for them, or use fwCommAbort",
                    requests.len()
                );
                return Err(ApiError::new(FW_IN_USE, message));
            }
            guard.remove_comm(comm);
        }
        Err(fault) if fault.code != FW_INTERNAL_ERROR => return Err(fault),
        // An earlier panic poisoned the lock. The state is dropped with the endpoint's last handle.
        Err(_) => {}
    }
    handle_table::remove(comm);
    Ok(())
}

/// Destroys a communicator immediately. Any thread may call this function, also while another
/// thread is in a call on the communicator. That call, and all requests, return FW_ABORTED: within
/// 0.1 seconds, or after the current computation. On the other ranks, their current or next call
/// returns FW_ABORTED. Communicators that were split from this one, or that it was split from, stay
/// usable. The function does not wait, so messages that other ranks have not received yet may be
/// lost. Not allowed in a group.
#[unsafe(no_mangle)]
pub extern "C" fn fwCommAbort(comm: fwComm_t) -> fwResult {
    catch_errors(|| {
        group::refuse("fwCommAbort")?;
        let (endpoint, signals) = handle_table::signals(comm.addr())?;
        signals.stop();
        // If two threads abort it at once, only the first frees the handle.
        if handle_table::take(comm.addr()) {
            endpoint.drop_aborted(comm.addr());
        }
        Ok(())
    })
}

/// Sets async_error to the state of a communicator: FW_SUCCESS while it is usable, or the error
/// that ended it, for example FW_PEER_LOST, FW_TIMEOUT or FW_ABORTED. Any thread may call this
/// function, also while another thread is in a call on the communicator.
///
/// Only calls detect errors; the library has no background thread. So this function advances calls
/// in progress, unless another thread is in one. The returned fwResult is the result of the query
/// itself: FW_INVALID_HANDLE after fwCommAbort.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fwCommGetAsyncError(
    comm: fwComm_t,
    async_error: *mut fwResult,
) -> fwResult {
    catch_errors(|| {
        // SAFETY: guaranteed by the caller.
        let async_error = unsafe { out_value(async_error, "result") }?;
        *async_error = FW_SUCCESS;
        let (endpoint, signals) = handle_table::signals(comm.addr())?;
        match endpoint.enter() {
            Ok(guard) => {
                guard.progress();
                guard.publish_failure(comm.addr());
            }
            Err(fault) if fault.code == FW_IN_USE => {}
            Err(fault) => {
                *async_error = fault.code;
                return Ok(());
            }
        }
        *async_error = signals.failure();
        Ok(())
    })
}
