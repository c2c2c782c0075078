//! The check of a group before its first call starts.

use super::{CommBatch, EndpointGuard, SubmittedCall};
use crate::errors::ApiError;
use crate::ffi::call::check;
use crate::ffi::messages::{self, CheckedMessage, check_apart};

/// Checks that all calls of a group can be made, without sending anything.
///
/// # Errors
/// The error of the first invalid call.
pub(super) fn all(batches: &[CommBatch], guards: &mut [EndpointGuard<'_>]) -> Result<(), ApiError> {
    let calls = || batches.iter().flat_map(|(_, _, calls)| calls);
    let has = |is: fn(&SubmittedCall) -> bool| calls().any(is);
    let has_messages = has(|call| !matches!(call, SubmittedCall::Collective(..)));
    if has_messages
        && (batches.len() > 1 || has(|call| matches!(call, SubmittedCall::Collective(..))))
    {
        let message = "a group with messages can have only messages, on one communicator";
        return Err(ApiError::usage(message));
    }
    let mut ranges = Vec::new();
    for call in calls() {
        match call {
            SubmittedCall::Collective(call, _) => ranges.extend(call.ranges()),
            SubmittedCall::Messages(messages) => {
                ranges.extend(messages.iter().map(CheckedMessage::range));
            }
            SubmittedCall::Message(message, _) => ranges.push(message.range()),
        }
    }
    check_apart(ranges.into_iter())?;
    for (endpoint, comm, calls) in batches {
        let entry = guards[*endpoint].entry(*comm)?;
        let (comm, memory) = (&entry.comm, entry.memory);
        let (mut together, mut n_with_request) = (Vec::new(), [0, 0]);
        let mut sends_itself = false;
        for call in calls {
            match call {
                SubmittedCall::Collective(call, _) => call.check(comm, memory)?,
                SubmittedCall::Messages(messages) => {
                    memory.refuse_messages()?;
                    together.extend_from_slice(messages);
                }
                SubmittedCall::Message(message, _) => {
                    memory.refuse_messages()?;
                    check(comm, |comm| messages::start(comm, message))?;
                    n_with_request[usize::from(message.is_sent())] += 1;
                    sends_itself |= message.is_to(comm.rank());
                }
            }
        }
        // A message to this rank itself that has a request may match one of those in `together`.
        // Then these cannot be checked as an exchange, only each by itself.
        if sends_itself {
            for message in &together {
                check(comm, |comm| messages::start(comm, message))?;
            }
        } else {
            check(comm, |comm| messages::exchange(comm, &together))?;
        }
        if n_with_request != [0, 0] {
            let [n_recvs, n_sends] = n_with_request;
            let n_together = |is_sent| together.iter().filter(|m| m.is_sent() == is_sent).count();
            comm.check_room(n_sends + n_together(true), n_recvs + n_together(false))?;
        }
    }
    Ok(())
}
