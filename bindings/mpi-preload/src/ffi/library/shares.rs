//! Collectives of shares that differ, which the library begins for us: those of the program's that
//! are not waited for, once the ranks have found that they are not taken.

use std::ffi::c_int;

use foldwire::schedule::Collective;

use super::{Code, Library};
use crate::call::{Call, Passed};
use crate::ffi::abi::{Abi, Handle};
use crate::ffi::counts::{Counts, start};

/// Begins a call by the functions whose counts have this type.
macro_rules! begin {
    ($library:ident, $call:ident, $count:ty, $gather:expr, $scatter:expr, $all_to_all:expr) => {{
        let Call { send, recv, root, .. } = $call;
        let count = |side: &Passed| <$count>::try_from(side.count).map_err(|_| A::ERRORS[4]);
        let [send_type, recv_type, comm] =
            [send.datatype, recv.datatype, $call.comm].map(A::restore);
        let (send_counts, send_places) = (start(send.counts), start(send.places));
        let (recv_counts, recv_places) = (start(recv.counts), start(recv.places));
        let (n_send, n_recv) = (count(send)?, count(recv)?);
        let (send, recv) = (send.start.cast_const(), recv.start);
        // SAFETY: what the program passed to the function of this name, which leaves it alone until
        // its request is complete; datatypes and communicator are ours, or the program's of which
        // MPI looks at nothing.
        $library.made(|made| unsafe {
            match $call.collective {
                Collective::Gather => $gather(
                    send,
                    n_send,
                    send_type,
                    recv,
                    recv_counts,
                    recv_places,
                    recv_type,
                    *root,
                    comm,
                    made,
                ),
                Collective::Scatter => $scatter(
                    send,
                    send_counts,
                    send_places,
                    send_type,
                    recv,
                    n_recv,
                    recv_type,
                    *root,
                    comm,
                    made,
                ),
                _ => $all_to_all(
                    send,
                    send_counts,
                    send_places,
                    send_type,
                    recv,
                    recv_counts,
                    recv_places,
                    recv_type,
                    comm,
                    made,
                ),
            }
        })
    }};
}

/// Such collectives.
pub(crate) trait Shares {
    /// Has the library begin a gather, scatter or all-to-all whose shares differ; the request. What
    /// MPI looks at must be there until it is complete.
    fn start_shares(&self, call: &Call) -> Result<Handle, Code>;
}

impl<A: Abi> Library<A> {
    /// Whether it has functions with large counts.
    pub(crate) const fn has_large_counts(&self) -> bool {
        self.functions.gather_shares_c.is_some()
    }
}

impl<A: Abi> Shares for Library<A> {
    fn start_shares(&self, call: &Call) -> Result<Handle, Code> {
        let f = &self.functions;
        let is_large = |side: &Passed| matches!(side.counts, Some(Counts::Large(_)));
        if !is_large(&call.send) && !is_large(&call.recv) {
            let (gather, scatter) = (f.gather_shares, f.scatter_shares);
            return begin!(self, call, c_int, gather, scatter, (f.all_to_all_shares));
        }
        match (f.gather_shares_c, f.scatter_shares_c, f.all_to_all_shares_c) {
            (Some(gather), Some(scatter), Some(all_to_all)) => {
                begin!(self, call, i64, gather, scatter, all_to_all)
            }
            _ => Err(A::ERRORS[4]),
        }
    }
}
