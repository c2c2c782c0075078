//! The header's functions, with addresses for pointers.
#![allow(unsafe_code, reason = "functions of the C interface")]
#![allow(non_camel_case_types, reason = "names of a C header")]

use std::ffi::{CStr, CString, c_void};
use std::ptr;

use foldwire_c::ffi::collectives::*;
use foldwire_c::ffi::communicators::*;
use foldwire_c::ffi::device::fwCommSetMemory;
use foldwire_c::ffi::operations::{fwRedOpCreate, fwRedOpDestroy};
use foldwire_c::ffi::requests::*;
use foldwire_c::ffi::types::*;

/// A communicator of one rank. Any thread may use it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Comm(usize);

impl Comm {
    /// Makes the communicators of ranks that are threads.
    pub(crate) fn all(n_ranks: usize) -> Vec<Self> {
        let mut comms = vec![ptr::null_mut(); n_ranks];
        let n = i32::try_from(n_ranks).unwrap();
        // SAFETY: The array has a place for each rank.
        ok(unsafe { fwCommInitAll(comms.as_mut_ptr(), n, ptr::null()) });
        comms.into_iter().map(|comm| Self(comm as usize)).collect()
    }

    fn get(self) -> fwComm_t {
        ptr::without_provenance_mut(self.0)
    }

    /// Names a device and a stream for later calls; `None`: the host.
    pub(crate) fn set_memory(self, memory: Option<(usize, u64)>) -> fwResult {
        let memory = memory.map(|(device, stream)| fwMemory {
            size: size_of::<fwMemory>(),
            kind: FW_MEMORY_DEVICE,
            device: i32::try_from(device).unwrap(),
            stream: ptr::without_provenance_mut(stream as usize),
        });
        let memory = memory.as_ref().map_or(ptr::null(), ptr::from_ref);
        // SAFETY: The struct exists during the call.
        unsafe { fwCommSetMemory(self.get(), memory) }
    }

    pub(crate) fn destroy(self) {
        ok(fwCommDestroy(self.get()));
    }
}

/// Arguments of a collective.
#[derive(Clone, Debug)]
pub(crate) struct Args {
    pub(crate) comm: Comm,
    pub(crate) send: u64,
    pub(crate) recv: u64,
    pub(crate) count: usize,
    pub(crate) dtype: fwDataType,
    pub(crate) op: fwRedOp,
    pub(crate) root: i32,
    /// Text of a plan.
    pub(crate) plan: String,
}

/// Makes a blocking call. `None`: within a group, where it starts when the group ends.
///
/// The caller has arrays at these addresses. On a device, nothing here reads them.
pub(crate) fn call(name: &str, args: &Args) -> fwResult {
    let Args { comm, send, recv, count, dtype, op, root, .. } = *args;
    let (send, recv) = (send as *const c_void, recv as *mut c_void);
    let text = CString::new(&*args.plan).unwrap();
    let (comm, request) = (comm.get(), ptr::null_mut());
    // SAFETY: The plan is plain data, and the callers' arrays have the lengths that calls need.
    unsafe {
        let mut plan: fwPlan = std::mem::zeroed();
        plan.size = size_of::<fwPlan>();
        ok(foldwire_c::ffi::codec::fwPlanParse(text.as_ptr(), &raw mut plan));
        let plan = &raw const plan;
        match name {
            "all_reduce" => fwAllReduce(send, recv, count, dtype, op, plan, comm, request),
            "reduce" => fwReduce(send, recv, count, dtype, op, root, plan, comm, request),
            "broadcast" => fwBroadcast(send, recv, count, dtype, root, plan, comm, request),
            "reduce_scatter" => fwReduceScatter(send, recv, count, dtype, op, plan, comm, request),
            "all_gather" => fwAllGather(send, recv, count, dtype, plan, comm, request),
            "gather" => fwGather(send, recv, count, dtype, root, plan, comm, request),
            "scatter" => fwScatter(send, recv, count, dtype, root, plan, comm, request),
            "all_to_all" => fwAllToAll(send, recv, count, dtype, plan, comm, request),
            "scan" => fwScan(send, recv, count, dtype, op, plan, comm, request),
            "exclusive_scan" => fwExclusiveScan(send, recv, count, dtype, op, plan, comm, request),
            "send" => fwSend(send, count, dtype, root, 0, plan, comm, request),
            other => panic!("no collective {other}"),
        }
    }
}

/// Makes calls as one group.
pub(crate) fn in_group(calls: impl FnOnce()) -> fwResult {
    ok(fwGroupStart());
    calls();
    fwGroupEnd()
}

/// Makes an all-reduce with a request, and waits for it.
pub(crate) fn requested(args: &Args) -> fwResult {
    let (send, recv) = (args.send as *const c_void, args.recv as *mut c_void);
    let (n, dtype, op, comm) = (args.count, args.dtype, args.op, args.comm.get());
    let mut request = ptr::null_mut();
    // SAFETY: As in `call`; the request exists until it is waited for.
    unsafe {
        ok(fwAllReduce(send, recv, n, dtype, op, ptr::null(), comm, &raw mut request));
        fwWait(&raw mut request)
    }
}

/// An operation that a caller defines, for `then`.
pub(crate) fn with_operation<R>(then: impl FnOnce(fwRedOp) -> R) -> R {
    unsafe extern "C" fn never(_: *const c_void, _: *mut c_void, _: usize, _: *mut c_void) {
        panic!("nothing on a device can call it");
    }
    let mut op = 0;
    // SAFETY: The pointers are those of a number and of a function.
    ok(unsafe { fwRedOpCreate(&raw mut op, Some(never), ptr::null_mut()) });
    let result = then(op);
    ok(fwRedOpDestroy(op));
    result
}

/// This thread's last error message.
pub(crate) fn last_error() -> String {
    // SAFETY: The function returns a string that ends with 0.
    unsafe { CStr::from_ptr(fwGetLastError()) }.to_string_lossy().into_owned()
}

#[track_caller]
pub(crate) fn ok(result: fwResult) {
    assert_eq!(result, FW_SUCCESS, "{}", last_error());
}
