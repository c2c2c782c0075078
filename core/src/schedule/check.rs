//! The schedule checker: runs the programs of all ranks on symbolic values and proves that they
//! are correct.
//!
//! Calls do not use it. Tests check every schedule with it, and so should authors of new schedules.
//! For one [`ProgramSpec`] it proves:
//!
//! 1. Every step is well-formed. Sends and receives match in order, in part, and in the length of
//!    the run. Each run fits a message.
//! 2. There is no deadlock, even if a link holds only one frame, and no frame is left in a link.
//! 3. Every step that uses its rank's holding (see [`Step`](crate::schedule::Step)) finds the
//!    step's parts there, at the places that the step names. No holding is left at the end. All
//!    parts of a message combine the same number of ranks' values. So do all parts of a holding
//!    except the first.
//! 4. No reduction counts a contribution twice. Every output combines exactly the contributions in
//!    the table at [`Collective`](crate::schedule::Collective). Each output is stored once, and
//!    nothing else is stored.
//! 5. A rank does not read a local part after it stored output over that part, so input and output
//!    may be the same memory. An all-to-all stores a part over the part that goes the other way.
//! 6. *Same bits*: ranks that store the same part store the same bits.
//!
//! **Links.** A link has one writer and one reader, and both block instead of polling. Such a
//! network behaves the same whatever the relative speed of its ranks (G. Kahn, "The semantics of a
//! simple language for parallel programming", IFIP 1974). A bounded link is a pair of links in his
//! model: frames one way and credits the other. So one execution represents all executions. More
//! space in a link never makes a rank wait, so links of one frame represent all links.
//!
//! **Bits.** A symbolic value records its contributors, the tree of combinations that made it, and
//! whether it crossed the wire, which may be lossy. Two ranks store the same bits under two
//! conditions. The trees of their values are equal up to swapped operands. Either both values are
//! as a receiver decodes them, or neither is. The tree does not record which operand of a
//! combination was encoded. If a codec's result depends on that, recursive doubling does not give
//! the same bits, and the checker does not notice. A tree is represented by a 64-bit fingerprint.
//!
//! Cost: O(messages · n/64) time, where n is the number of ranks; O(n · parts) bits of memory.

mod bit_set;
mod fault;
mod group;
mod run;
#[cfg(test)]
mod tests;
mod value;

pub use self::fault::Fault;
use self::group::CheckedGroup;
use super::{Part, ProgramSpec, Schedule};
use crate::transport::Rank;
use alloc::vec::Vec;

/// Totals of a checked schedule over all ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Summary {
    /// Steps of all ranks.
    pub n_steps: usize,
    /// Number of steps of the rank with the most steps.
    pub max_steps: usize,
    /// Number of frames that all ranks send, if each run fits one frame.
    pub n_messages: usize,
    /// Number of frames that the root sends.
    pub n_root_messages: usize,
    /// Length of the critical path in messages: the factor of α in the cost formulas. A message
    /// takes one unit of time, a rank can send one message and receive another at the same time,
    /// links always have space, and all other work is free.
    pub critical_path: usize,
}

/// A message of a checked schedule. Times are as in [`Summary::critical_path`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Message {
    /// The sender.
    pub from: Rank,
    /// The receiver.
    pub to: Rank,
    /// The part that the message carries, or the first part of a run.
    pub part: Part,
    /// Number of parts in the message.
    pub n_parts: usize,
    /// Time at which the message leaves the sender.
    pub departure: usize,
    /// Time at which the message reaches the receiver.
    pub arrival: usize,
}

/// Proves `schedule` correct for `call`, and lists its messages in the order of their arrival.
///
/// # Errors
/// The first [`Fault`] found.
pub fn messages(
    schedule: &dyn Schedule,
    call: ProgramSpec,
) -> Result<(Summary, Vec<Message>), Fault> {
    let mut group = CheckedGroup::new(schedule, call)?;
    group.messages = Some(Vec::new());
    group.run()?;
    let mut messages = group.messages.take().unwrap_or_default();
    messages.sort_by_key(|message| (message.arrival, message.from, message.to));
    Ok((group.conclude()?, messages))
}

/// Proves `schedule` correct for `call`.
///
/// # Errors
/// The first [`Fault`] found.
///
/// # Examples
/// ```
/// use foldwire::schedule::{ProgramSpec, Collective, Ring, check::check};
/// use foldwire::transport::Rank;
///
/// let call = ProgramSpec::new(Collective::AllReduce, 5, Rank(0));
/// assert_eq!(check(&Ring, call)?.critical_path, 2 * (5 - 1));
/// # Ok::<(), foldwire::schedule::check::Fault>(())
/// ```
pub fn check(schedule: &dyn Schedule, call: ProgramSpec) -> Result<Summary, Fault> {
    let mut group = CheckedGroup::new(schedule, call)?;
    group.run()?;
    group.conclude()
}
