//! Calls over a transport, compiled with the backend once and not with each crate that makes some.
//!
//! A compiler takes a generic function that is never inlined from a crate below, if one has it.

use crate::collective::Driver;
#[cfg(feature = "alloc")]
use crate::node::Port;
use crate::transport::Transport;
use core::fmt;

/// Calls over a transport: what [`compile_calls!`](crate::compile_calls) keeps of it.
pub struct CompiledCalls<X: Transport + 'static> {
    _own: Driver<X>,
    #[cfg(feature = "alloc")]
    _shared: Driver<Port<'static, X>>,
}

impl<X: Transport> CompiledCalls<X> {
    /// All of them.
    pub const ALL: Self = Self {
        _own: Driver::NEW,
        #[cfg(feature = "alloc")]
        _shared: Driver::NEW,
    };
}

impl<X: Transport> fmt::Debug for CompiledCalls<X> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("calls")
    }
}

/// Compiles calls over this type of transport in the crate that has it, so that those who make
/// calls need not. A backend has it once, at its root; without it all works as well.
#[macro_export]
macro_rules! compile_calls {
    ($transport:ty) => {
        #[doc(hidden)]
        pub static CALLS: $crate::instances::CompiledCalls<$transport> =
            $crate::instances::CompiledCalls::ALL;
    };
}
