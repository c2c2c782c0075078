//! Communicators: made, asked, split, shrunk, destroyed.

use std::ptr;
use std::time::Duration;

use foldwire::Config;
use foldwire::transport::MAX_LANES;

use super::memory::{CommOut, out_value, out_values, read, write};
use super::types::*;
use crate::endpoint::SharedEndpoint;
use crate::errors::{ApiError, catch_errors};
use crate::group::{PendingJoin, catch_call_errors};
use crate::plan::c_name;
use crate::{group, handle_table, transport};

/// Calls at once, unless a configuration says how many.
const N_CALLS: u32 = 8;
/// Most calls at once.
const MAX_CALLS: u32 = 256;
/// Seconds beyond which a limit of time is none.
const FOREVER: f64 = 1e9;

/// The configuration that says nothing.
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

/// # Safety
/// As [`read`], but that null is the default.
unsafe fn config_of(config: *const fwConfig) -> Result<fwConfig, ApiError> {
    if config.is_null() {
        return Ok(DEFAULT);
    }
    // SAFETY: by the caller's promise.
    let config = unsafe { read(config, DEFAULT, "fwConfig") }?;
    if config.reserved != 0 {
        return Err(ApiError::argument("fwConfig.reserved is not 0"));
    }
    Ok(config)
}

fn seconds(value: f64, what: &str) -> Result<Duration, ApiError> {
    if value >= FOREVER {
        return Ok(Config::NEVER);
    }
    let wrong = |_| ApiError::argument(format!("{value} is no number of seconds for the {what}"));
    Duration::try_from_secs_f64(value).map_err(wrong)
}

fn calls(config: &fwConfig, default: u32) -> Result<usize, ApiError> {
    let calls = if config.calls == 0 { default } else { config.calls };
    if calls > MAX_CALLS {
        return Err(ApiError::argument(format!("{calls} calls at once; {MAX_CALLS} is the most")));
    }
    Ok(calls as usize)
}

/// Core's configuration, and how many calls there may be at once.
fn to_core(config: &fwConfig) -> Result<(Config, usize), ApiError> {
    let mut made = Config::default();
    if config.lanes as usize > MAX_LANES {
        return Err(ApiError::argument(format!("{} lanes; {MAX_LANES} is the most", config.lanes)));
    }
    if config.lanes > 0 {
        made.lanes = config.lanes as usize;
    }
    if config.timeout != 0.0 {
        made.timeout = seconds(config.timeout, "timeout")?;
    }
    if config.deadline != 0.0 {
        made.deadline = Some(seconds(config.deadline, "deadline")?);
    }
    if config.link_rate != 0.0 {
        if !(config.link_rate > 0.0 && config.link_rate.is_finite()) {
            return Err(ApiError::argument(format!("{} is no rate of a link", config.link_rate)));
        }
        made.link_rate = Some(config.link_rate);
    }
    made.checksum = match config.checksum {
        FW_CHECKSUM_AS_NEEDED => None,
        FW_CHECKSUM_ALWAYS => Some(true),
        FW_CHECKSUM_NEVER => Some(false),
        other => return Err(ApiError::argument(format!("{other} says nothing of checksums"))),
    };
    Ok((made, calls(config, N_CALLS)?))
}

/// A number of ranks, or of a rank, as C has them.
fn index(number: i32, what: &str) -> Result<usize, ApiError> {
    usize::try_from(number).map_err(|_| ApiError::argument(format!("{number} is no {what}")))
}

fn comm_of(handle: usize) -> fwComm_t {
    ptr::without_provenance_mut(handle)
}

/// The version of this library, as 10000 · major + 100 · minor + patch.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fwGetVersion(version: *mut i32) -> fwResult {
    catch_errors(|| {
        let number = FW_VERSION_MAJOR * 10_000 + FW_VERSION_MINOR * 100 + FW_VERSION_PATCH;
        // SAFETY: the caller's promise.
        *unsafe { out_value(version, "version") }? = number as i32;
        Ok(())
    })
}

/// What a result means. The text is there for ever.
#[unsafe(no_mangle)]
pub extern "C" fn fwGetErrorString(result: fwResult) -> *const std::ffi::c_char {
    crate::errors::words(result).as_ptr()
}

/// What this thread's last failure was, in numbers and with what to change; empty if none. The text
/// is there until the thread's next failure.
#[unsafe(no_mangle)]
pub extern "C" fn fwGetLastError() -> *const std::ffi::c_char {
    crate::errors::last_error()
}

/// Makes all ranks of a group of threads: comms has room for n_ranks handles, of rank 0, 1, … Each
/// is for one thread, or one thread plays several by groups. config may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fwCommInitAll(
    comms: *mut fwComm_t,
    n_ranks: i32,
    config: *const fwConfig,
) -> fwResult {
    catch_errors(|| {
        let n_ranks = index(n_ranks, "number of ranks")?;
        // SAFETY: the caller's promise.
        let (comms, config) = unsafe { (out_values(comms, n_ranks)?, config_of(config)?) };
        let (config, n_calls) = to_core(&config)?;
        let mut made = Vec::new();
        for transport in transport::threads(n_ranks)? {
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

/// Makes what ranks need to find each other. One process calls it, that of rank 0, and the program
/// carries its 128 bytes to the others as it likes: a file, a pipe, MPI. They are a secret: who has
/// them can join. It is for one communicator, and holds a socket until rank 0 has come.
///
/// The socket is one of this host alone unless the environment names the network to use:
/// FOLDWIRE_IFACE, as eth0, or FOLDWIRE_ADDRESS, on all ranks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fwGetUniqueId(id: *mut fwUniqueId) -> fwResult {
    catch_call_errors(|| {
        // SAFETY: the caller's promise.
        let id = unsafe { out_value(id, "unique id") }?;
        id.internal = transport::new_unique_id()?;
        Ok(())
    })
}

/// Makes one rank of those that give the same id and n_ranks, and waits for the others, each in a
/// thread or process of its own; no longer than config's timeout and deadline, a few seconds aside.
/// In a group it is made when the group ends, so that one thread can make several; such a group has
/// nothing else. Ranks that are threads of one process pass values in memory, all others by TCP.
/// config may be NULL.
///
/// FW_MISMATCH: another n_ranks than rank 0's, or other FOLDWIRE_STREAMS or FOLDWIRE_ENCRYPT.
/// FW_TIMEOUT: not all came. FW_PEER_LOST: nobody waits for those of this id, or no longer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fwCommInitRank(
    comm: *mut fwComm_t,
    n_ranks: i32,
    id: fwUniqueId,
    rank: i32,
    config: *const fwConfig,
) -> fwResult {
    catch_call_errors(|| {
        // SAFETY: the caller's promise.
        let place = unsafe { CommOut::new(comm, "communicator") }?;
        // SAFETY: the caller's promise.
        let (config, n_calls) = to_core(&unsafe { config_of(config) }?)?;
        let (n_ranks, rank) = (index(n_ranks, "number of ranks")?, index(rank, "rank")?);
        group::join(PendingJoin { unique_id: id.internal, n_ranks, rank, config, n_calls, place })
    })
}

/// Makes the communicator of all processes that were started with this one, and waits for them as
/// fwCommInitRank does. Who they are and where rank 0 is the environment says: of foldwire launch,
/// of MPI's launchers, of Slurm, of torchrun, or FOLDWIRE_RANK, FOLDWIRE_SIZE and FOLDWIRE_ROOT. A
/// process that was started alone is the only rank. A process makes one at a time. config may be
/// NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fwCommInitEnv(comm: *mut fwComm_t, config: *const fwConfig) -> fwResult {
    catch_errors(|| {
        // SAFETY: the caller's promise.
        let mut place = unsafe { CommOut::new(comm, "communicator") }?;
        group::refuse("fwCommInitEnv")?;
        // SAFETY: the caller's promise.
        let (config, n_calls) = to_core(&unsafe { config_of(config) }?)?;
        let transport = transport::join_env(group::limit_of(&config))?;
        place.put(SharedEndpoint::create(transport, config, n_calls)?);
        Ok(())
    })
}

/// The number of ranks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fwCommCount(comm: fwComm_t, count: *mut i32) -> fwResult {
    catch_errors(|| {
        // SAFETY: the caller's promise.
        *unsafe { out_value(count, "count") }? = handle_table::comm(comm.addr())?.2 as i32;
        Ok(())
    })
}

/// This rank.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fwCommUserRank(comm: fwComm_t, rank: *mut i32) -> fwResult {
    catch_errors(|| {
        // SAFETY: the caller's promise.
        *unsafe { out_value(rank, "rank") }? = handle_table::comm(comm.addr())?.1 as i32;
        Ok(())
    })
}

/// Fills in what the last call of this communicator that went well did on this rank; a group's
/// calls together. Begin with FW_REPORT_INIT.
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
        };
        // SAFETY: the caller's promise.
        unsafe { write(report, value, "fwReport") }
    })
}

/// Makes a communicator of the ranks that give the same color, 0 or more, in the order of their
/// keys, and of their old ranks where those are the same. A rank that gives FW_SPLIT_NOCOLOR gets
/// NULL. All ranks call it together. Only config's calls count, which are the same on all ranks of
/// a color; NULL: as many as before.
///
/// A communicator and all that are split from it have room for 256 calls at once. Each takes as
/// many as its configuration says, and one more for its messages: so there may be 28 of 8 calls.
/// fwCommDestroy gives a communicator's room back, so there is no end to splits. FW_NO_ROOM: too
/// little is left. FW_MISMATCH: ranks of a color differ in calls. After these two errors comm is as
/// it was.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fwCommSplit(
    comm: fwComm_t,
    color: i32,
    key: i32,
    new_comm: *mut fwComm_t,
    config: *const fwConfig,
) -> fwResult {
    catch_errors(|| {
        // SAFETY: the caller's promise.
        let (new_comm, config) =
            unsafe { (out_value(new_comm, "communicator")?, config_of(config)?) };
        *new_comm = ptr::null_mut();
        group::refuse("fwCommSplit")?;
        let color = match color {
            FW_SPLIT_NOCOLOR => None,
            color => Some(u32::try_from(color).map_err(|_| {
                ApiError::argument(format!("{color} is no color: 0 or more, or FW_SPLIT_NOCOLOR"))
            })?),
        };
        let (endpoint, ..) = handle_table::comm(comm.addr())?;
        let mut guard = endpoint.enter()?;
        let entry = guard.entry(comm.addr())?;
        let n_calls = calls(&config, entry.comm.n_calls() as u32)?;
        match entry.comm.split(color, key, n_calls) {
            Ok(Some(made)) => *new_comm = comm_of(guard.add_comm(&endpoint, made)?),
            Ok(None) => {}
            Err(error) => return guard.record(comm.addr(), Err(error.into())),
        }
        Ok(())
    })
}

/// Makes a communicator of the ranks that call this, after a failure or without one; who does not
/// answer for patience seconds is left out. comm is destroyed, whatever comes of it, and its
/// requests end with FW_POISONED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fwCommShrink(
    comm: fwComm_t,
    patience: f64,
    new_comm: *mut fwComm_t,
) -> fwResult {
    catch_errors(|| {
        // SAFETY: the caller's promise.
        let new_comm = unsafe { out_value(new_comm, "communicator") }?;
        *new_comm = ptr::null_mut();
        group::refuse("fwCommShrink")?;
        let patience = seconds(patience, "patience")?;
        let (endpoint, ..) = handle_table::comm(comm.addr())?;
        let mut guard = endpoint.enter()?;
        let n_calls = guard.entry(comm.addr())?.comm.n_calls();
        handle_table::remove(comm.addr());
        if let Some(entry) = guard.comms.remove(&comm.addr()) {
            let survivors = entry.comm.shrink(patience, n_calls)?;
            *new_comm = comm_of(guard.add_comm(&endpoint, survivors)?);
        }
        Ok(())
    })
}

/// Destroys this rank's communicator; others notice when they need it. FW_IN_USE if one of its
/// requests was not waited for, or another thread is inside: wait for them, or abort it. What was
/// split from it lives on. With the last of them ends the connection to other processes, once what
/// was sent has arrived, or after the timeout, or a minute.
#[unsafe(no_mangle)]
pub extern "C" fn fwCommDestroy(comm: fwComm_t) -> fwResult {
    catch_errors(|| destroy(comm.addr()))
}

fn destroy(comm: usize) -> Result<(), ApiError> {
    group::refuse("fwCommDestroy")?;
    let (endpoint, ..) = handle_table::comm(comm)?;
    match endpoint.enter() {
        Ok(mut guard) => {
            let under_way = guard.requests_of(comm);
            if !under_way.is_empty() {
                let message = format!(
                    "{} requests are under way: wait for them, or use fwCommAbort",
                    under_way.len()
                );
                return Err(ApiError::new(FW_IN_USE, message));
            }
            guard.remove_comm(comm);
        }
        Err(fault) if fault.code != FW_INTERNAL_ERROR => return Err(fault),
        // A panic was here. What it left goes with the family's last handle.
        Err(_) => {}
    }
    handle_table::remove(comm);
    Ok(())
}

/// Destroys a communicator at once, from any thread, also while another one is inside a call: that
/// ends with FW_ABORTED, within a tenth of a second, or as soon as it has computed what it is at.
/// So do its requests. Its other ranks hear of it: this call or their next one fails with
/// FW_ABORTED. Communicators that were split from it, or that it was split from, go on. Abort waits
/// for nothing, so messages that ranks have not taken yet may be lost.
#[unsafe(no_mangle)]
pub extern "C" fn fwCommAbort(comm: fwComm_t) -> fwResult {
    catch_errors(|| {
        group::refuse("fwCommAbort")?;
        let (endpoint, signals) = handle_table::signals(comm.addr())?;
        signals.stop();
        // Two threads may abort it; one is late.
        if handle_table::take(comm.addr()) {
            endpoint.drop_aborted(comm.addr());
        }
        Ok(())
    })
}

/// Says what has become of a communicator, from any thread, also while another one is inside a
/// call: async_error becomes FW_SUCCESS while calls can be made on it, else why not, as
/// FW_PEER_LOST, FW_TIMEOUT or FW_ABORTED. It says what calls have found, and advances those under
/// way unless another thread is inside; no thread of this library's looks on its own. The result of
/// this function is that of the question: FW_INVALID_HANDLE after fwCommAbort.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fwCommGetAsyncError(
    comm: fwComm_t,
    async_error: *mut fwResult,
) -> fwResult {
    catch_errors(|| {
        // SAFETY: the caller's promise.
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
