//! What the arguments of a function in the table are, by their kinds: their types in C and Fortran,
//! and where they go in a call.

/// The type of an argument in C, where counts are `$count`.
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
    // `MPI_Aint` beside large counts, which is as long.
    ($abi:ty, $count:ty, send_displs) => { *const $count };
    ($abi:ty, $count:ty, recv_displs) => { *const $count };
    ($abi:ty, $count:ty, root) => { ::core::ffi::c_int };
    ($abi:ty, $count:ty, request) => { *mut <$abi as $crate::ffi::abi::Abi>::Handle };
    ($abi:ty, $count:ty, $handle:ident) => { <$abi as $crate::ffi::abi::Abi>::Handle };
}

/// Puts an argument into a call.
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
    // Read once the communicator is known, whose size says how many there are.
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

/// Puts an argument into a call's [`CallSize`](crate::filter::CallSize). The second name of a kind
/// says how arguments of its value are read: as C's, or as Fortran's.
#[doc(hidden)]
#[macro_export]
macro_rules! set_size_argument {
    ($abi:ty, $size:ident, count, $value:expr) => {
        $size.values($value)
    };
    ($abi:ty, $size:ident, send_count, $value:expr) => {
        $size.shares(&INTERCEPTOR.filters, $value)
    };
    ($abi:ty, $size:ident, recv_count, $value:expr) => {
        $size.shares(&INTERCEPTOR.filters, $value)
    };
    ($abi:ty, $size:ident, send_counts, $value:expr) => {
        $size.counts($crate::ffi::counts::CountArray::of($value))
    };
    ($abi:ty, $size:ident, recv_counts, $value:expr) => {
        $size.counts($crate::ffi::counts::CountArray::of($value))
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
    ($abi:ty, $size:ident, comm, $value:expr) => {
        $size.comm(|| <$abi as $crate::ffi::abi::Abi>::erase($value))
    };
    ($abi:ty, $size:ident, $arg:ident, $value:expr) => {};
}

/// An argument as a call with `int` has it that was made of one with large counts.
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

/// The type of an argument in Fortran, which passes addresses.
#[doc(hidden)]
#[macro_export]
macro_rules! fortran_type {
    (send) => { *mut ::core::ffi::c_void };
    (recv) => { *mut ::core::ffi::c_void };
    ($integers:ident) => { *mut ::core::ffi::c_int };
}

/// An argument of Fortran's as C's.
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
