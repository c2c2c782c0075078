//! Operations that the caller defines as functions.
//!
//! Such an operation is a number above the constants of the header. A call copies the function and
//! its context, so the operation may be destroyed while the call is running.

use std::ffi::c_void;
use std::rc::Rc;
use std::sync::{Mutex, MutexGuard, PoisonError};

use foldwire::op::OpCode;
use foldwire::{DType, Element, Op};

use super::memory::out_value;
use super::types::*;
use crate::errors::{ApiError, catch_errors};

/// Number of the first operation that a caller defines.
const FIRST: fwRedOp = 1 << 16;

/// Reduction function: sets inout[i] to the combination of input[i] and inout[i], for i from 0 to
/// count - 1. count is at least 1. context is the pointer that was passed to fwRedOpCreate.
pub type fwReduceFunction = Option<
    unsafe extern "C" fn(
        input: *const c_void,
        inout: *mut c_void,
        count: usize,
        context: *mut c_void,
    ),
>;

/// The caller's reduction function and its context.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReduceCallback {
    function: unsafe extern "C" fn(*const c_void, *mut c_void, usize, *mut c_void),
    context: *mut c_void,
}

// SAFETY: foldwire.h requires that any thread may call the function with its context, also several
// threads at once.
unsafe impl Send for ReduceCallback {}
// SAFETY: as above.
unsafe impl Sync for ReduceCallback {}

/// Function that combines the values of two arrays in the first one.
pub(crate) type CombineFn<T> = dyn Fn(&mut [T], &[T]) + Sync;

impl ReduceCallback {
    /// Returns the function for values of one type.
    pub(crate) fn of_type<T: Element>(self) -> Rc<CombineFn<T>> {
        Rc::new(move |inout: &mut [T], input: &[T]| {
            // Capture the whole struct: its single fields are not `Sync`.
            let Self { function, context } = { self };
            let n = inout.len().min(input.len());
            let (from, to) = (input.as_ptr(), inout.as_mut_ptr());
            // SAFETY: foldwire.h requires that the function reads n values at `from` and writes n
            // at `to`. Every bit pattern is a valid value of a numeric type.
            unsafe { function(from.cast(), to.cast(), n, context) };
        })
    }
}

/// Returns the operation on bits with this number.
const fn bit_operation(code: fwRedOp) -> Option<OpCode> {
    Some(match code {
        FW_BAND => OpCode::BitAnd,
        FW_BOR => OpCode::BitOr,
        FW_BXOR => OpCode::BitXor,
        FW_LAND => OpCode::LogicalAnd,
        FW_LOR => OpCode::LogicalOr,
        FW_LXOR => OpCode::LogicalXor,
        _ => return None,
    })
}

/// Operation of a reduction.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ReduceOperation {
    Known(OpCode),
    User(ReduceCallback),
}

impl ReduceOperation {
    /// Looks up the operation with this number.
    pub(crate) fn of(code: fwRedOp) -> Result<Self, ApiError> {
        let known = u8::try_from(code).ok().and_then(OpCode::from_code);
        let known =
            known.filter(|&op| op != OpCode::None && op != OpCode::User && !op.is_on_bits());
        if let Some(op) = known.or_else(|| bit_operation(code)) {
            return Ok(Self::Known(op));
        }
        let table = table();
        let callers = table.known.iter().find(|(number, _)| *number == code);
        let none =
            || ApiError::argument(format!("operation {code} does not exist, or was destroyed"));
        Ok(Self::User(callers.ok_or_else(none)?.1))
    }

    /// The operation's code for core.
    pub(crate) const fn code(self) -> OpCode {
        match self {
            Self::Known(code) => code,
            Self::User(_) => OpCode::User,
        }
    }

    /// Returns the function, if core does not have the operation.
    pub(crate) fn function<T: Element>(self) -> Option<Rc<CombineFn<T>>> {
        match self {
            Self::Known(_) => None,
            Self::User(callback) => Some(callback.of_type()),
        }
    }

    /// Fails if the operation cannot combine values of this type.
    pub(crate) fn check(self, dtype: DType) -> Result<(), ApiError> {
        if self.code().is_on_bits() && dtype.is_float() {
            let message = "bitwise and logical operations are for integers, not for floats";
            return Err(ApiError::new(FW_UNSUPPORTED, message));
        }
        Ok(())
    }

    /// Fails if the operation cannot combine complex numbers by their parts.
    pub(crate) fn check_complex(self) -> Result<(), ApiError> {
        match self {
            Self::Known(OpCode::None | OpCode::Sum | OpCode::Avg) => Ok(()),
            _ => {
                let message = "complex numbers are summed and averaged; they have no order, and \
                               other operations get single parts";
                Err(ApiError::new(FW_UNSUPPORTED, message))
            }
        }
    }
}

/// Returns core's operation with this code, for one type of values.
pub(crate) fn operation<T: Element>(code: OpCode) -> Result<Op<'static, T>, ApiError> {
    // Core ignores the operation of calls that do not reduce.
    let known = if code == OpCode::None { Some(Op::Sum) } else { Op::of(code) };
    let none = || format!("the operation {} is not supported here", code.name());
    known.ok_or_else(|| ApiError::new(FW_UNSUPPORTED, none()))
}

/// Operations that callers have created in this process.
pub(crate) struct OperationTable {
    next: fwRedOp,
    known: Vec<(fwRedOp, ReduceCallback)>,
}

static TABLE: Mutex<OperationTable> = Mutex::new(OperationTable { next: FIRST, known: Vec::new() });

/// Locks the table. A poisoned lock is ignored: no panic can leave the table inconsistent.
pub(crate) fn table() -> MutexGuard<'static, OperationTable> {
    TABLE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Creates an operation from a function. It can be used with every type of values that the function
/// can combine. All ranks of a call pass operations that compute the same. The function must be
/// commutative: combining two values in either order gives the same bits. It must be associative
/// apart from rounding.
///
/// Calls with such an operation are exact: a plan with an error bound returns FW_UNSUPPORTED. Any
/// thread that is in a function of this library, or computes for it, may call the function, also
/// several threads at once. The function must return normally. Within it, calls on the communicator
/// that is being computed for return FW_IN_USE. Function and context must stay valid until the last
/// call with the operation has finished.
///
/// Errors: FW_INVALID_ARGUMENT if op or function is NULL; FW_NO_ROOM if no more operations can be
/// created in this process.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fwRedOpCreate(
    op: *mut fwRedOp,
    function: fwReduceFunction,
    context: *mut c_void,
) -> fwResult {
    catch_errors(|| {
        // SAFETY: guaranteed by the caller.
        let op = unsafe { out_value(op, "operation") }?;
        let function = function.ok_or_else(|| ApiError::argument("the function is NULL"))?;
        let mut table = table();
        let number = table.next;
        let full =
            || ApiError::new(FW_NO_ROOM, "no more operations can be created in this process");
        table.next = number.checked_add(1).ok_or_else(full)?;
        table.known.push((number, ReduceCallback { function, context }));
        *op = number;
        Ok(())
    })
}

/// Destroys an operation that fwRedOpCreate created. Calls in progress that use it continue.
#[unsafe(no_mangle)]
pub extern "C" fn fwRedOpDestroy(op: fwRedOp) -> fwResult {
    catch_errors(|| {
        let mut table = table();
        let at = table.known.iter().position(|(number, _)| *number == op);
        let none = || {
            ApiError::argument(format!(
                "fwRedOpCreate did not create operation {op}, or it was destroyed"
            ))
        };
        table.known.swap_remove(at.ok_or_else(none)?);
        Ok(())
    })
}
