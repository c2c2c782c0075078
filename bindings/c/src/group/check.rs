//! The check of a group, before its first call begins.

use super::{Inside, Line, What};
use crate::border::Fault;
use crate::ffi::call::check;
use crate::ffi::messages::{self, Message, check_apart};

/// Checks that all calls can be made.
///
/// # Errors
/// The first fault; nothing was sent.
pub(super) fn all(lines: &[Line], insides: &mut [Inside<'_>]) -> Result<(), Fault> {
    let calls = || lines.iter().flat_map(|(_, _, calls)| calls);
    let has = |is: fn(&What) -> bool| calls().any(is);
    let has_messages = has(|what| !matches!(what, What::Collective(..)));
    if has_messages && (lines.len() > 1 || has(|what| matches!(what, What::Collective(..)))) {
        let message = "a group with messages has nothing but messages, of one communicator";
        return Err(Fault::usage(message));
    }
    let mut ranges = Vec::new();
    for what in calls() {
        match what {
            What::Collective(call, _) => ranges.extend(call.ranges()),
            What::Messages(messages) => ranges.extend(messages.iter().map(Message::range)),
            What::Message(message, _) => ranges.push(message.range()),
        }
    }
    check_apart(ranges.into_iter())?;
    for (family, comm, calls) in lines {
        let comm = &insides[*family].member(*comm)?.comm;
        let (mut together, mut n_with_request) = (Vec::new(), [0, 0]);
        let mut sends_itself = false;
        for what in calls {
            match what {
                What::Collective(call, _) => call.check(comm)?,
                What::Messages(messages) => together.extend_from_slice(messages),
                What::Message(message, _) => {
                    check(comm, |comm| messages::start(comm, message))?;
                    n_with_request[usize::from(message.is_sent())] += 1;
                    sends_itself |= message.is_to(comm.rank());
                }
            }
        }
        // Messages to itself may match those with requests, which begin first.
        if !sends_itself {
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
