//! Collectives with different share lengths that the MPI library starts for Foldwire. These are the
//! program's non-blocking calls that the ranks, after an agreement, do not take.

use std::ffi::c_int;

use foldwire::schedule::Collective;

use super::{MpiErrorCode, MpiLibrary};
use crate::call::{BufferArgs, MpiCall};
use crate::ffi::abi::{Abi, MpiHandle};
use crate::ffi::counts::{CountArray, start};

/// Starts a call by the functions whose counts have this type.
macro_rules! begin {
    ($library:ident, $call:ident, $count:ty, $gather:expr, $scatter:expr, $all_to_all:expr) => {{
        let MpiCall { send, recv, root, .. } = $call;
        let count = |side: &BufferArgs| <$count>::try_from(side.count).map_err(|_| A::ERRORS[4]);
        let [send_type, recv_type, comm] =
            [send.datatype, recv.datatype, $call.comm].map(A::restore);
        let (send_counts, send_displs) = (start(send.counts), start(send.displs));
        let (recv_counts, recv_displs) = (start(recv.counts), start(recv.displs));
        let (n_send, n_recv) = (count(send)?, count(recv)?);
        let (send, recv) = (send.start.cast_const(), recv.start);
        // SAFETY: the program passed these arguments to the function of this name, and leaves them
        // alone until its request is complete. Datatypes and communicator are Foldwire's, or are
        // insignificant on this rank.
        $library.made(|made| unsafe {
            match $call.collective {
                Collective::Gather => $gather(
                    send,
                    n_send,
                    send_type,
                    recv,
                    recv_counts,
                    recv_displs,
                    recv_type,
                    *root,
                    comm,
                    made,
                ),
                Collective::Scatter => $scatter(
                    send,
                    send_counts,
                    send_displs,
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
                    send_displs,
                    send_type,
                    recv,
                    recv_counts,
                    recv_displs,
                    recv_type,
                    comm,
                    made,
                ),
            }
        })
    }};
}

/// Collectives with different share lengths.
pub(crate) trait VectorApi {
    /// Starts a gather, scatter or all-to-all with different share lengths, and returns the
    /// request. The significant arguments must stay valid until the request is complete.
    fn start_vector_collective(&self, call: &MpiCall) -> Result<MpiHandle, MpiErrorCode>;
}

impl<A: Abi> MpiLibrary<A> {
    /// Returns whether the library has functions with large counts.
    pub(crate) const fn has_large_counts(&self) -> bool {
        self.functions.gather_shares_c.is_some()
    }
}

impl<A: Abi> VectorApi for MpiLibrary<A> {
    fn start_vector_collective(&self, call: &MpiCall) -> Result<MpiHandle, MpiErrorCode> {
        let f = &self.functions;
        let is_large = |side: &BufferArgs| matches!(side.counts, Some(CountArray::Large(_)));
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
