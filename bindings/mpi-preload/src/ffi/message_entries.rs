//! Exported functions for messages, in C. Each one gives its arguments to a function of
//! [`message_calls`](super::message_calls).

/// Calls `$with! { $abi; rows }` with a row for each function: its name, its arguments, and what it
/// evaluates. There `state` is the state of messages, and `next` calls the function that the
/// program would call without Foldwire.
#[doc(hidden)]
#[macro_export]
macro_rules! each_message_function {
    ($with:ident, $abi:ty) => {
        $crate::$with! { $abi;
            MPI_Send (buf: Any, count: Int, of: Handle, to: Int, tag: Int, comm: Handle)
                |state, next| send::<$abi>(state, (buf, count, of), (to, comm), |(b, n, t)| {
                    next(b, n, t, to, tag, comm)
                });
            MPI_Isend (
                buf: Any, count: Int, of: Handle, to: Int, tag: Int, comm: Handle,
                request: HandlePtr
            )
                |state, next| {
                    isend::<$abi>(state, (buf, count, of), (to, comm), request, |(b, n, t)| {
                        next(b, n, t, to, tag, comm, request)
                    })
                };
            MPI_Send_init (
                buf: Any, count: Int, of: Handle, to: Int, tag: Int, comm: Handle,
                request: HandlePtr
            )
                |state, next| send_init::<$abi>(
                    state, (buf, count, of), (to, tag, comm), request,
                    || next(buf, count, of, to, tag, comm, request)
                );
            MPI_Start (request: HandlePtr)
                |state, next| start::<$abi>(state, request, next);
            MPI_Startall (n: Int, requests: HandlePtr)
                |state, next| start_all::<$abi>(
                    state, (n, requests), || next(n, requests),
                    |request| $crate::original!(
                        $abi, "MPI_Start", "PMPI_Start\0", (request => HandlePtr) -> Int
                    )
                );
            MPI_Cancel (request: HandlePtr)
                |state, next| cancel::<$abi>(state, request, || next(request));
            MPI_Recv (
                buf: Any, count: Int, of: Handle, from: Int, tag: Int, comm: Handle,
                status: *mut Int
            )
                |state, next| recv::<$abi>(state, (buf, count, of), comm, status, |status| {
                    next(buf, count, of, from, tag, comm, status)
                });
            MPI_Irecv (
                buf: Any, count: Int, of: Handle, from: Int, tag: Int, comm: Handle,
                request: HandlePtr
            )
                |state, next| irecv::<$abi>(state, (buf, count, of), comm, (request, false), || {
                    next(buf, count, of, from, tag, comm, request)
                });
            MPI_Recv_init (
                buf: Any, count: Int, of: Handle, from: Int, tag: Int, comm: Handle,
                request: HandlePtr
            )
                |state, next| irecv::<$abi>(state, (buf, count, of), comm, (request, true), || {
                    next(buf, count, of, from, tag, comm, request)
                });
            MPI_Sendrecv (
                sent_buf: Any, n_sent: Int, sent_of: Handle, to: Int, send_tag: Int,
                buf: Any, count: Int, of: Handle, from: Int, recv_tag: Int,
                comm: Handle, status: *mut Int
            )
                |state, next| sendrecv::<$abi>(
                    state, [(sent_buf, n_sent, sent_of), (buf, count, of)], (to, comm), status,
                    |(b, n, t), status| next(
                        b, n, t, to, send_tag, buf, count, of, from, recv_tag, comm, status
                    )
                );
            MPI_Sendrecv_replace (
                buf: Any, count: Int, of: Handle, to: Int, send_tag: Int, from: Int, recv_tag: Int,
                comm: Handle, status: *mut Int
            )
                |state, next| replace::<$abi>(
                    state, (buf, count, of), (to, comm), status,
                    |status| next(buf, count, of, to, send_tag, from, recv_tag, comm, status),
                    |(b, n, t), status| $crate::original!($abi, "MPI_Sendrecv", "PMPI_Sendrecv\0", (
                        b => Any, n => Int, t => Handle, to => Int, send_tag => Int,
                        buf => Any, count => Int, of => Handle, from => Int, recv_tag => Int,
                        comm => Handle, status => *mut Int
                    ) -> Int)
                );
            MPI_Wait (request: HandlePtr, status: *mut Int)
                |state, next| wait::<$abi>(state, request, status, |status| next(request, status));
            MPI_Test (request: HandlePtr, flag: *mut Int, status: *mut Int)
                |state, next| test::<$abi>(state, request, flag, status, |status| {
                    next(request, flag, status)
                });
            MPI_Waitall (n: Int, requests: HandlePtr, statuses: *mut Int)
                |state, next| all::<$abi>(state, (n, requests), None, statuses, |statuses| {
                    next(n, requests, statuses)
                });
            MPI_Testall (n: Int, requests: HandlePtr, flag: *mut Int, statuses: *mut Int)
                |state, next| all::<$abi>(state, (n, requests), Some(flag), statuses, |statuses| {
                    next(n, requests, flag, statuses)
                });
            MPI_Waitany (n: Int, requests: HandlePtr, index: *mut Int, status: *mut Int)
                |state, next| any::<$abi>(state, (n, requests), (index, None), status, |status| {
                    next(n, requests, index, status)
                });
            MPI_Testany (
                n: Int, requests: HandlePtr, index: *mut Int, flag: *mut Int, status: *mut Int
            )
                |state, next| {
                    any::<$abi>(state, (n, requests), (index, Some(flag)), status, |status| {
                        next(n, requests, index, flag, status)
                    })
                };
            MPI_Waitsome (
                n: Int, requests: HandlePtr, n_done: *mut Int, indices: *mut Int,
                statuses: *mut Int
            )
                |state, next| {
                    some::<$abi>(state, (n, requests), (n_done, indices), statuses, |all| {
                        next(n, requests, n_done, indices, all)
                    })
                };
            MPI_Testsome (
                n: Int, requests: HandlePtr, n_done: *mut Int, indices: *mut Int,
                statuses: *mut Int
            )
                |state, next| {
                    some::<$abi>(state, (n, requests), (n_done, indices), statuses, |all| {
                        next(n, requests, n_done, indices, all)
                    })
                };
            MPI_Request_free (request: HandlePtr)
                |state, next| free::<$abi>(state, request, || next(request));
            MPI_Request_get_status (request: Handle, flag: *mut Int, status: *mut Int)
                |state, next| get_status::<$abi>(state, request, flag, status, |request, status| {
                    next(request, flag, status)
                });
            MPI_Probe (from: Int, tag: Int, comm: Handle, status: *mut Int)
                |state, next| probe::<$abi>(
                    state, comm, status, |status| next(from, tag, comm, status), || true
                );
            MPI_Iprobe (from: Int, tag: Int, comm: Handle, flag: *mut Int, status: *mut Int)
                |state, next| probe::<$abi>(
                    state, comm, status, |status| next(from, tag, comm, flag, status),
                    || *flag != 0
                );
            MPI_Mprobe (
                from: Int, tag: Int, comm: Handle, message: HandlePtr, status: *mut Int
            )
                |state, next| probe::<$abi>(
                    state, comm, status, |status| next(from, tag, comm, message, status), || true
                );
            MPI_Improbe (
                from: Int, tag: Int, comm: Handle, flag: *mut Int, message: HandlePtr,
                status: *mut Int
            )
                |state, next| probe::<$abi>(
                    state, comm, status, |status| next(from, tag, comm, flag, message, status),
                    || *flag != 0
                );
        }
    };
}

/// Exports all functions for messages for a family of MPI libraries.
#[doc(hidden)]
#[macro_export]
macro_rules! message_entries {
    ($abi:ty;
     $($name:ident ($($arg:ident: $type:ty),*) |$state:ident, $next:ident| $body:expr;)*) => {
        $($crate::exported! {
            $abi; ($($arg: $type),*) -> Int,
            |$next| {
                use $crate::ffi::message_calls::*;
                let $state = INTERCEPTOR.messages();
                // SAFETY: the program passes arguments as MPI requires. MPI has written a flag
                // before it is read.
                let code = unsafe { $body };
                if let Some(state) = $state {
                    state.end_call();
                }
                code
            },
            stringify!($name), $crate::behind!($name)
        })*
    };
}

/// Names of all exported functions for messages.
#[doc(hidden)]
#[macro_export]
macro_rules! message_names {
    ($abi:ty; $($name:ident $args:tt |$state:ident, $next:ident| $body:expr;)*) => {
        [$($crate::ffi::original::c_name(concat!(stringify!($name), "\0"))),*]
    };
}
