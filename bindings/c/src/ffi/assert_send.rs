//! Sending an endpoint's state between threads.

use crate::endpoint::EndpointState;
use crate::transport::AnyTransport;

/// Makes an endpoint's state `Send`. The state is not `Send` by itself, because its parts count
/// references without atomics.
pub(crate) struct AssertSend<V>(V);

// SAFETY: the parts of a state share one transport, and count references to it without atomics. All
// these references are inside the state:
// - communicators are stored in the state when they are created;
// - `EndpointState` lends them only while it is borrowed itself;
// - code that takes communicators or calls out for a moment (split, shrink, groups) holds the
//   state.
// So only one thread at a time changes the counts. `SharedEndpoint` keeps the state in a mutex, so
// each thread sees the changes of the previous one. Nothing in the state is bound to a thread:
// endpoints and workspaces of devices are `Send`, codecs are plain data, and any thread may use the
// callers' arrays until their calls have finished, as foldwire.h requires.
unsafe impl Send for AssertSend<EndpointState> {}

/// The compiler can check one part of this argument: transports and workspaces are `Send`.
const fn is_send<V: Send>() {}
const _: () = is_send::<AnyTransport>();
#[cfg(feature = "cuda")]
const _: () = is_send::<foldwire_cuda::pool::LentWorkspace>();

impl<V> AssertSend<V> {
    pub(crate) const fn new(value: V) -> Self {
        Self(value)
    }

    pub(crate) const fn as_ref(&self) -> &V {
        &self.0
    }

    pub(crate) const fn as_mut(&mut self) -> &mut V {
        &mut self.0
    }
}
