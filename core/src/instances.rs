//! Precompiled calls over a transport: a backend compiles them once, so that crates that use it do
//! not compile them again.
//!
//! The compiler reuses an instance of a generic function from a dependency if the function is
//! never inlined.

use crate::collective::Driver;
#[cfg(feature = "alloc")]
use crate::shared_transport::Port;
use crate::transport::Transport;
use core::fmt;

/// References to all calls over a transport, which make the compiler instantiate them.
///
/// [`compile_calls!`](crate::compile_calls) stores them in a static.
pub struct CompiledCalls<X: Transport + 'static> {
    _own: Driver<X>,
    #[cfg(feature = "alloc")]
    _shared: Driver<Port<'static, X>>,
}

impl<X: Transport> CompiledCalls<X> {
    /// All calls.
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

/// Compiles calls over this type of transport in the current crate, so that crates that depend on
/// it compile faster.
///
/// A backend uses the macro once, at its root. It is optional.
#[macro_export]
macro_rules! compile_calls {
    ($transport:ty) => {
        #[doc(hidden)]
        pub static CALLS: $crate::instances::CompiledCalls<$transport> =
            $crate::instances::CompiledCalls::ALL;
    };
}
