//! A communicator that fails before the calls of a scenario, and leaves its channels to theirs.

use super::Comm;
use foldwire::{Call, Error, Op, Plan};

/// Makes a communicator for so many calls, and gives one up, on each rank at another moment.
pub(super) async fn spend(first: &Comm<'_>, n_calls: usize) -> Result<(), Error> {
    let Some(spent) = first.start_split(Some(0), 0, n_calls)?.await? else { return Ok(()) };
    let mut call = spent.start(Call::all_reduce(vec![1.0_f32; 700], Op::Sum), &Plan::raw())?;
    for _ in 0..first.rank().index() * 5 % 12 {
        let _ = call.poll();
    }
    drop(call);
    Ok(())
}
