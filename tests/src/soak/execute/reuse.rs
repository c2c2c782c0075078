//! Makes a communicator fail before a scenario's calls, so that they reuse its channels.

use super::Comm;
use foldwire::{Call, Error, Op, Plan};

/// Makes a communicator for `n_calls` calls and drops a call on it, at a different moment on each
/// rank.
pub(super) async fn spend(first: &Comm<'_>, n_calls: usize) -> Result<(), Error> {
    let Some(spent) = first.start_split(Some(0), 0, n_calls)?.await? else { return Ok(()) };
    let mut call = spent.start(Call::all_reduce(vec![1.0_f32; 700], Op::Sum), &Plan::raw())?;
    for _ in 0..first.rank().index() * 5 % 12 {
        let _ = call.poll();
    }
    drop(call);
    Ok(())
}
