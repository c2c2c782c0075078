//! Drives all ranks from one thread, which polls them in turn, always in the same order. Nothing
//! runs concurrently, so this suits deterministic tests, and stepping through a collective in a
//! debugger.

use std::task::Poll;

use foldwire::{Element, Error, Operation, Report, Transport};

/// Polls the operations round robin until each has its result. Returns the results in order.
///
/// An operation that waits for a rank without an operation in the list ends at its communicator's
/// timeout.
///
/// # Examples
/// ```
/// use foldwire::{Bound, Call, Op, Plan};
/// use foldwire_threads::{World, drive};
///
/// let plan = Plan::foldwire(Bound::Absolute(1e-3));
/// let mut comms = World::new(3).communicators();
/// let mut data = vec![vec![1.5f64; 100]; 3];
/// let operations = comms.iter_mut().zip(&mut data);
/// let operations = operations.map(|(comm, x)| comm.start(Call::all_reduce(x, Op::Max), &plan));
/// let operations = operations.map(Result::unwrap);
/// assert!(drive(operations).iter().all(Result::is_ok));
/// ```
pub fn drive<'a, X: Transport + 'a, T: Element>(
    operations: impl IntoIterator<Item = Operation<'a, X, T>>,
) -> Vec<Result<Report, Error>> {
    let mut operations: Vec<_> = operations.into_iter().map(Some).collect();
    let mut results = vec![Err(Error::Finished); operations.len()];
    let mut n_left = operations.len();
    while n_left > 0 {
        for (slot, result) in operations.iter_mut().zip(&mut results) {
            if let Some(operation) = slot
                && let Poll::Ready(ready) = operation.poll()
            {
                *result = ready;
                *slot = None;
                n_left -= 1;
            }
        }
    }
    results
}
