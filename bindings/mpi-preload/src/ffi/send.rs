//! `Send` for data that the program's threads use one after the other.

use crate::comm_state::ReadyComm;
use crate::transport::PreloadEndpoint;

// SAFETY: a communicator and its running calls share reference counts that are not atomic (`Rc`).
// All holders of these references are inside `ReadyComm`: calls are stored there when they start,
// and a call that is taken out briefly stays with the thread that has locked the `ReadyComm`. The
// `ReadyComm` is in a mutex, so only one thread at a time changes the counts, and that thread sees
// the writes of the threads before it.
//
// Nothing in a `ReadyComm` is bound to a thread. The endpoint is `Send`, plans and codecs are plain
// data, and MPI allows any thread to use the program's arrays until the request of their call is
// complete.
unsafe impl Send for ReadyComm {}

/// Lets the compiler check one part of this argument: the endpoint is `Send`.
const fn is_send<V: Send>() {}
const _: () = is_send::<PreloadEndpoint>();
