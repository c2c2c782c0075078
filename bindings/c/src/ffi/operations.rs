//! Operations of the caller's: functions that combine values.
//!
//! An operation is a number beyond those of the header. A call copies what it stands for, so it may
//! be destroyed while calls with it are under way.

use std::ffi::c_void;
use std::rc::Rc;
use std::sync::{Mutex, MutexGuard, PoisonError};

use foldwire::op::OpCode;
use foldwire::{Element, Op};

use super::memory::out_value;
use super::types::*;
use crate::errors::{ApiError, catch_errors};

/// Where numbers of callers' operations begin.
const FIRST: fwRedOp = 1 << 16;

/// Combines count values of input, at least one, with as many of inout, into inout. context is what
/// fwRedOpCreate was given.
pub type fwReduceFunction = Option<
    unsafe extern "C" fn(
        input: *const c_void,
        inout: *mut c_void,
        count: usize,
        context: *mut c_void,
    ),
>;

/// A function of the caller's.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReduceCallback {
    function: unsafe extern "C" fn(*const c_void, *mut c_void, usize, *mut c_void),
    context: *mut c_void,
}

// SAFETY: by foldwire.h any thread may call the function with its context, several at once.
unsafe impl Send for ReduceCallback {}
// SAFETY: the same.
unsafe impl Sync for ReduceCallback {}

/// What is called to combine two values.
pub(crate) type CombineFn<T> = dyn Fn(T, T) -> T + Sync;

impl ReduceCallback {
    /// Of values of a type.
    pub(crate) fn of_type<T: Element>(self) -> Rc<CombineFn<T>> {
        Rc::new(move |input: T, mut inout: T| {
            // The whole of it, as a part would not be `Sync`.
            let Self { function, context } = { self };
            let (from, to) = (&raw const input, &raw mut inout);
            // SAFETY: by foldwire.h the function reads one value there and writes one here; all
            // bits are a value of a numeric type.
            unsafe { function(from.cast(), to.cast(), 1, context) };
            inout
        })
    }
}

/// How a call combines values.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ReduceOperation {
    Known(OpCode),
    User(ReduceCallback),
}

impl ReduceOperation {
    /// The one with this number.
    pub(crate) fn of(code: fwRedOp) -> Result<Self, ApiError> {
        let known = u8::try_from(code).ok().and_then(OpCode::from_code);
        if let Some(op) = known.filter(|op| !matches!(op, OpCode::None | OpCode::User)) {
            return Ok(Self::Known(op));
        }
        let table = table();
        let callers = table.known.iter().find(|(number, _)| *number == code);
        let none = || ApiError::argument(format!("{code} is no operation, or no longer"));
        Ok(Self::User(callers.ok_or_else(none)?.1))
    }

    /// Without the function.
    pub(crate) const fn code(self) -> OpCode {
        match self {
            Self::Known(code) => code,
            Self::User(_) => OpCode::User,
        }
    }
}

/// The operation with this code, for a type.
pub(crate) fn operation<T: Element>(code: OpCode) -> Result<Op<'static, T>, ApiError> {
    Ok(match code {
        // Of calls without one nobody asks.
        OpCode::Sum | OpCode::None => Op::Sum,
        OpCode::Avg => Op::Avg,
        OpCode::Min => Op::Min,
        OpCode::Max => Op::Max,
        OpCode::Prod => Op::Prod,
        other => return Err(ApiError::new(FW_UNSUPPORTED, format!("no {} here", other.name()))),
    })
}

pub(crate) struct OperationTable {
    next: fwRedOp,
    known: Vec<(fwRedOp, ReduceCallback)>,
}

static TABLE: Mutex<OperationTable> = Mutex::new(OperationTable { next: FIRST, known: Vec::new() });

/// Nothing in here panics half way.
pub(crate) fn table() -> MutexGuard<'static, OperationTable> {
    TABLE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes an operation of a function, for calls of any type whose values it knows how to combine.
/// The result must be the same bits in whichever order two values come, and up to rounding in
/// whichever order more do; all ranks of a call give operations that do the same.
///
/// Calls with it are exact: a plan has no bound. The function is called for each value, or several,
/// by any thread that is in a function of this library or computes for it, also by several at once.
/// It returns, and calls no function of this library for the communicator that it computes for,
/// which gets FW_IN_USE. Function and context are there until the last call with it is over.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fwRedOpCreate(
    op: *mut fwRedOp,
    function: fwReduceFunction,
    context: *mut c_void,
) -> fwResult {
    catch_errors(|| {
        // SAFETY: the caller's promise.
        let op = unsafe { out_value(op, "operation") }?;
        let function = function.ok_or_else(|| ApiError::argument("the function is NULL"))?;
        let mut table = table();
        let number = table.next;
        let full = || ApiError::new(FW_NO_ROOM, "no more operations can be made in this process");
        table.next = number.checked_add(1).ok_or_else(full)?;
        table.known.push((number, ReduceCallback { function, context }));
        *op = number;
        Ok(())
    })
}

/// Frees an operation that fwRedOpCreate has made. Calls with it that were made before go on.
#[unsafe(no_mangle)]
pub extern "C" fn fwRedOpDestroy(op: fwRedOp) -> fwResult {
    catch_errors(|| {
        let mut table = table();
        let at = table.known.iter().position(|(number, _)| *number == op);
        let none = || ApiError::argument(format!("{op} is no operation of yours, or no longer"));
        table.known.swap_remove(at.ok_or_else(none)?);
        Ok(())
    })
}
