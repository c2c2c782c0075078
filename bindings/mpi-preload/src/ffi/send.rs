//! What the threads of a program may pass to each other, one at a time.

use crate::comm_state::ReadyComm;
use crate::transport::PreloadEndpoint;

// SAFETY: what it has in common with its calls are counted references to one node. All of them are
// in there: calls are put there when they are begun, and those that are taken out for a moment are
// taken by who has it. It is kept in a mutex, so counts are changed by one thread at a time, and
// each sees what the one before it wrote. Nothing in there is bound to a thread: the endpoint is
// `Send`, plans and codecs are plain data, and the program's arrays may be used by any thread until
// the request of their call is complete, as MPI says.
unsafe impl Send for ReadyComm {}

/// The part of that which the compiler can see.
const fn is_send<V: Send>() {}
const _: () = is_send::<PreloadEndpoint>();
