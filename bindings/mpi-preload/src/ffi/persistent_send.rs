//! A persistent send of the program, whose compressed messages differ in length.
//!
//! The MPI library's persistent request has one length for all messages. So each compressed message
//! travels by a request of its own, which stands in for the program's while it is active. The
//! program's request is started only for messages that are passed on.

use std::ffi::c_int;

use super::abi::MpiHandle;
use super::library::{MpiApi, MpiErrorCode};
use super::memory::KeptType;
use crate::compressed_message::CompressedMessage;
use crate::messages::SendArgs;

/// Persistent send of the program.
pub(crate) struct PersistentSend {
    args: SendArgs,
    tag: c_int,
    /// Request of the compressed message that is on its way, and the message.
    active: Option<(MpiHandle, CompressedMessage)>,
    _kept: KeptType,
}

// SAFETY: MPI allows any thread to start the request, which reads the buffer.
unsafe impl Send for PersistentSend {}

impl PersistentSend {
    /// Keeps the datatype, which the program may free before it starts the request.
    pub(crate) fn new(
        mpi: &'static dyn MpiApi,
        mut args: SendArgs,
        tag: c_int,
    ) -> Result<Self, MpiErrorCode> {
        let kept = KeptType::of(mpi, args.buffer.datatype)?;
        args.buffer.datatype = kept.datatype;
        Ok(Self { args, tag, active: None, _kept: kept })
    }

    pub(crate) const fn args(&self) -> &SendArgs {
        &self.args
    }

    /// Passes on all messages from now on: the program frees the communicator.
    pub(crate) fn pass_on(&mut self, mpi: &dyn MpiApi) {
        self.args.comm = mpi.handles().comm_null;
    }

    /// Sends a compressed message instead of the program's.
    pub(crate) fn start(
        &mut self,
        mpi: &dyn MpiApi,
        message: CompressedMessage,
    ) -> Result<(), MpiErrorCode> {
        let bytes = message.bytes.as_ref();
        let (start, n_bytes) = (bytes.as_ptr(), bytes.len() as c_int);
        let to = (self.args.to as usize, self.tag);
        // SAFETY: this value holds the message, in the same memory, until its request is complete.
        let request = unsafe { mpi.start_send(start, n_bytes, to, self.args.comm, false)? };
        self.active = Some((request, message));
        Ok(())
    }

    /// Request of the compressed message that is on its way.
    pub(crate) fn active(&self) -> Option<MpiHandle> {
        self.active.as_ref().map(|(request, _)| *request)
    }

    /// Ends the use of the compressed message: its request is complete, or another row holds it.
    pub(crate) const fn take_active(&mut self) -> Option<(MpiHandle, CompressedMessage)> {
        self.active.take()
    }
}
