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
        let (mut together, mut with_request) = (Vec::new(), Vec::new());
        for call in calls {
            match call {
                SubmittedCall::Collective(call, _) => call.check(comm, memory)?,
                SubmittedCall::Messages(messages) => {
                    memory.refuse_messages()?;
                    together.extend_from_slice(messages);
                }
                SubmittedCall::Message(message, _) => {
                    let message: &CheckedMessage = message;
                    memory.refuse_messages()?;
                    check(comm, |comm| messages::start(comm, message))?;
                    with_request.push(message);
                }
            }
        }
        // A message to this rank itself that has a request may match one of those in `together`.
        // Then these cannot be checked as an exchange, only each by itself.
        if with_request.iter().any(|message| message.is_with(comm.rank())) {
            for message in &together {
                check(comm, |comm| messages::start(comm, message))?;
            }
        } else {
            check(comm, |comm| messages::exchange(comm, &together))?;
        }
        if !with_request.is_empty() {
            let started = || together.iter().chain(with_request.iter().copied());
            let receivers: Vec<_> = started().filter_map(CheckedMessage::receiver).collect();
            comm.check_room(&receivers, started().count() - receivers.len())?;
        }
    }
    Ok(())
}
