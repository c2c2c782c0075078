//! Collectives of shares that differ, which the library begins for us: those of the program's that
//! are not waited for, once the ranks have found that they are not taken.

use std::ffi::{c_int, c_void};
use std::ptr;

use foldwire::schedule::Collective;

use super::{Code, Library};
use crate::call::{Call, Passed};
use crate::ffi::abi::{Abi, Handle};
use crate::ffi::door::{Counting, Counts};

pub(super) type Gather<A, N> = unsafe extern "C" fn(
    *const c_void,
    N,
    <A as Abi>::Handle,
    *mut c_void,
    *const N,
    *const N,
    <A as Abi>::Handle,
    c_int,
    <A as Abi>::Handle,
    *mut <A as Abi>::Handle,
) -> c_int;
pub(super) type Scatter<A, N> = unsafe extern "C" fn(
    *const c_void,
    *const N,
    *const N,
    <A as Abi>::Handle,
    *mut c_void,
    N,
    <A as Abi>::Handle,
    c_int,
    <A as Abi>::Handle,
    *mut <A as Abi>::Handle,
) -> c_int;
pub(super) type AllToAll<A, N> = unsafe extern "C" fn(
    *const c_void,
    *const N,
    *const N,
    <A as Abi>::Handle,
    *mut c_void,
    *const N,
    *const N,
    <A as Abi>::Handle,
    <A as Abi>::Handle,
    *mut <A as Abi>::Handle,
) -> c_int;

/// The library's functions with counts of this type.
struct Begin<A: Abi, N> {
    gather: Gather<A, N>,
    scatter: Scatter<A, N>,
    all_to_all: AllToAll<A, N>,
}

impl<A: Abi> Library<A> {
    /// Whether it has functions with large counts.
    pub(crate) const fn has_large_counts(&self) -> bool {
        self.functions.gather_shares_c.is_some()
    }

    pub(super) fn begin_shares(&self, call: &Call) -> Result<Handle, Code> {
        let functions = &self.functions;
        let is_large = |side: &Passed| matches!(side.counts, Some(Counts::Large(_)));
        if !is_large(&call.send) && !is_large(&call.recv) {
            let begin: Begin<A, c_int> = Begin {
                gather: functions.gather_shares,
                scatter: functions.scatter_shares,
                all_to_all: functions.all_to_all_shares,
            };
            return self.begin_with(&begin, call);
        }
        match (functions.gather_shares_c, functions.scatter_shares_c, functions.all_to_all_shares_c)
        {
            (Some(gather), Some(scatter), Some(all_to_all)) => {
                self.begin_with(&Begin::<A, i64> { gather, scatter, all_to_all }, call)
            }
            _ => Err(A::ERRORS[4]),
        }
    }

    fn begin_with<N: Counting>(&self, begin: &Begin<A, N>, call: &Call) -> Result<Handle, Code> {
        let Call { send, recv, root, .. } = call;
        let count = |side: &Passed| N::try_from(side.count).map_err(|_| A::ERRORS[4]);
        let array = |counts: Option<Counts>| counts.map_or(ptr::null(), N::start);
        let [send_type, recv_type, comm] =
            [send.datatype, recv.datatype, call.comm].map(A::restore);
        let (send_counts, send_places) = (array(send.counts), array(send.places));
        let (recv_counts, recv_places) = (array(recv.counts), array(recv.places));
        let (from, to) = (send.start.cast_const(), recv.start);
        let (n_send, n_recv) = (count(send)?, count(recv)?);
        // SAFETY: what the program passed to the function of this name, which leaves it alone until
        // its request is complete; datatypes and communicator are ours, or the program's of which
        // MPI looks at nothing.
        self.made(|made| unsafe {
            match call.collective {
                Collective::Gather => (begin.gather)(
                    from,
                    n_send,
                    send_type,
                    to,
                    recv_counts,
                    recv_places,
                    recv_type,
                    *root,
                    comm,
                    made,
                ),
                Collective::Scatter => (begin.scatter)(
                    from,
                    send_counts,
                    send_places,
                    send_type,
                    to,
                    n_recv,
                    recv_type,
                    *root,
                    comm,
                    made,
                ),
                _ => (begin.all_to_all)(
                    from,
                    send_counts,
                    send_places,
                    send_type,
                    to,
                    recv_counts,
                    recv_places,
                    recv_type,
                    comm,
                    made,
                ),
            }
        })
    }
}
