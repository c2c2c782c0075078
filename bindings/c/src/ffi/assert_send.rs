//! What the threads of a program may pass to each other, one at a time.

use crate::endpoint::EndpointState;
use crate::transport::AnyTransport;

/// A value that counts references to its parts without atomics, and so is not `Send` by itself.
pub(crate) struct AssertSend<V>(V);

// SAFETY: what a state has in common with others are counted references to one node. All of them
// are in the state: communicators are put there when they are made, `EndpointState` lends them no longer
// than it is lent itself, and those that are taken out for a moment (split, shrink, calls of a
// group) are taken by who has the state. So counts are changed by one thread at a time, and as
// `SharedEndpoint` keeps the state in a mutex, each sees what the one before it wrote. Nothing in there is
// bound to a thread: endpoints are `Send`, codecs are plain data, and arrays that callers lent may
// be used by any thread until their call is over, as foldwire.h says.
unsafe impl Send for AssertSend<EndpointState> {}

/// The part of that which the compiler can see.
const fn is_send<V: Send>() {}
const _: () = is_send::<AnyTransport>();

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
