//! Macros with an arm for each kind of function argument. They give its type in C and Fortran, and
//! store it in a call.

/// Type of a C argument. Counts have type `$count`.
#[doc(hidden)]
#[macro_export]
macro_rules! c_type {
    ($abi:ty, $count:ty, send) => { *const ::core::ffi::c_void };
    ($abi:ty, $count:ty, recv) => { *mut ::core::ffi::c_void };
    ($abi:ty, $count:ty, count) => { $count };
    ($abi:ty, $count:ty, send_count) => { $count };
    ($abi:ty, $count:ty, recv_count) => { $count };
    ($abi:ty, $count:ty, send_counts) => { *const $count };
    ($abi:ty, $count:ty, recv_counts) => { *const $count };
    // Functions with large counts have `MPI_Aint` here, which has the same size.
    ($abi:ty, $count:ty, send_displs) => { *const $count };
    ($abi:ty, $count:ty, recv_displs) => { *const $count };
    ($abi:ty, $count:ty, root) => { ::core::ffi::c_int };
    ($abi:ty, $count:ty, request) => { *mut <$abi as $crate::ffi::abi::Abi>::Handle };
    ($abi:ty, $count:ty, $handle:ident) => { <$abi as $crate::ffi::abi::Abi>::Handle };
}

/// Stores an argument in a call.
#[doc(hidden)]
#[macro_export]
macro_rules! set_argument {
    ($abi:ty, $call:ident, send, $value:expr) => {
        $call.send.start = $value.cast_mut()
    };
    ($abi:ty, $call:ident, recv, $value:expr) => {
        $call.recv.start = $value
    };
    ($abi:ty, $call:ident, send_count, $value:expr) => {
        $call.send.count = $value.into()
    };
    ($abi:ty, $call:ident, recv_count, $value:expr) => {
        $call.recv.count = $value.into()
    };
    ($abi:ty, $call:ident, count, $value:expr) => {
        ($call.send.count, $call.recv.count) = ($value.into(), $value.into())
    };
    // Read later: the length of the array depends on the communicator.
    ($abi:ty, $call:ident, send_counts, $value:expr) => {
        $call.send.counts = Some($crate::ffi::counts::CountArray::of($value))
    };
    ($abi:ty, $call:ident, recv_counts, $value:expr) => {
        $call.recv.counts = Some($crate::ffi::counts::CountArray::of($value))
    };
    ($abi:ty, $call:ident, send_displs, $value:expr) => {
        $call.send.displs = Some($crate::ffi::counts::CountArray::of($value))
    };
    ($abi:ty, $call:ident, recv_displs, $value:expr) => {
        $call.recv.displs = Some($crate::ffi::counts::CountArray::of($value))
    };
    ($abi:ty, $call:ident, send_type, $value:expr) => {
        $call.send.datatype = <$abi as $crate::ffi::abi::Abi>::erase($value)
    };
    ($abi:ty, $call:ident, recv_type, $value:expr) => {
        $call.recv.datatype = <$abi as $crate::ffi::abi::Abi>::erase($value)
    };
    ($abi:ty, $call:ident, datatype, $value:expr) => {
        $call.send.datatype = <$abi as $crate::ffi::abi::Abi>::erase($value);
        $call.recv.datatype = <$abi as $crate::ffi::abi::Abi>::erase($value)
    };
    ($abi:ty, $call:ident, op, $value:expr) => {
        $call.op = <$abi as $crate::ffi::abi::Abi>::erase($value)
    };
    ($abi:ty, $call:ident, comm, $value:expr) => {
        $call.comm = <$abi as $crate::ffi::abi::Abi>::erase($value)
    };
    ($abi:ty, $call:ident, request, $value:expr) => {
        $call.request = Some($value.into())
    };
    ($abi:ty, $call:ident, root, $value:expr) => {
        $call.root = $value
    };
}

/// Stores an argument in a [`CallSize`](crate::filter::CallSize). Ignores arguments that do not
/// affect the size.
#[doc(hidden)]
#[macro_export]
macro_rules! set_size_argument {
    ($abi:ty, $size:ident, count, $value:expr) => {
        $size.values(&INTERCEPTOR.filters, $value)
    };
    ($abi:ty, $size:ident, send_count, $value:expr) => {
        $size.shares(&INTERCEPTOR.filters, $value)
    };
    ($abi:ty, $size:ident, recv_count, $value:expr) => {
        $size.shares(&INTERCEPTOR.filters, $value)
    };
    ($abi:ty, $size:ident, send_counts, $value:expr) => {
        $size.counts()
    };
    ($abi:ty, $size:ident, recv_counts, $value:expr) => {
        $size.counts()
    };
    ($abi:ty, $size:ident, datatype, $value:expr) => {
        $size.datatype(<$abi as $crate::ffi::abi::Abi>::erase($value))
    };
    ($abi:ty, $size:ident, send_type, $value:expr) => {
        $size.datatype(<$abi as $crate::ffi::abi::Abi>::erase($value))
    };
    ($abi:ty, $size:ident, recv_type, $value:expr) => {
        $size.datatype(<$abi as $crate::ffi::abi::Abi>::erase($value))
    };
    ($abi:ty, $size:ident, $arg:ident, $value:expr) => {};
}

/// Argument of a function with `int` counts, from a call that was converted from large counts.
#[doc(hidden)]
#[macro_export]
macro_rules! narrowed {
    ($call:expr, count, $value:expr) => {
        $call.recv.count as ::core::ffi::c_int
    };
    ($call:expr, send_count, $value:expr) => {
        $call.send.count as ::core::ffi::c_int
    };
    ($call:expr, recv_count, $value:expr) => {
        $call.recv.count as ::core::ffi::c_int
    };
    ($call:expr, send_counts, $value:expr) => {
        $crate::ffi::counts::start($call.send.counts)
    };
    ($call:expr, recv_counts, $value:expr) => {
        $crate::ffi::counts::start($call.recv.counts)
    };
    ($call:expr, send_displs, $value:expr) => {
        $crate::ffi::counts::start($call.send.displs)
    };
    ($call:expr, recv_displs, $value:expr) => {
        $crate::ffi::counts::start($call.recv.displs)
    };
    ($call:expr, $arg:ident, $value:expr) => {
        $value
    };
}

/// Type of a Fortran argument. Fortran passes addresses.
#[doc(hidden)]
#[macro_export]
macro_rules! fortran_type {
    (send) => { *mut ::core::ffi::c_void };
    (recv) => { *mut ::core::ffi::c_void };
    ($integers:ident) => { *mut ::core::ffi::c_int };
}

/// Converts a Fortran argument to the C argument.
#[doc(hidden)]
#[macro_export]
macro_rules! from_fortran {
    ($abi:ty, send, $value:expr) => {
        $crate::ffi::fortran::buffer::<$abi>($value).cast_const()
    };
    ($abi:ty, recv, $value:expr) => {
        $crate::ffi::fortran::buffer::<$abi>($value)
    };
    ($abi:ty, count, $value:expr) => {
        *$value
    };
    ($abi:ty, send_count, $value:expr) => {
        *$value
    };
    ($abi:ty, recv_count, $value:expr) => {
        *$value
    };
    ($abi:ty, root, $value:expr) => {
        *$value
    };
    ($abi:ty, request, $value:expr) => {
        $crate::ffi::interceptor::RequestPointer::Fortran($value)
    };
    ($abi:ty, comm, $value:expr) => {
        $crate::ffi::fortran::COMM.from_integer::<$abi>(*$value)
    };
    ($abi:ty, op, $value:expr) => {
        $crate::ffi::fortran::OP.from_integer::<$abi>(*$value)
    };
    ($abi:ty, datatype, $value:expr) => {
        $crate::ffi::fortran::TYPE.from_integer::<$abi>(*$value)
    };
    ($abi:ty, send_type, $value:expr) => {
        $crate::ffi::fortran::TYPE.from_integer::<$abi>(*$value)
    };
    ($abi:ty, recv_type, $value:expr) => {
        $crate::ffi::fortran::TYPE.from_integer::<$abi>(*$value)
    };
    ($abi:ty, $array:ident, $value:expr) => {
        $value
    };
}
