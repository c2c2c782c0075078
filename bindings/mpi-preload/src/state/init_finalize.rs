//! Work in `MPI_Init` and `MPI_Finalize`.

use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use foldwire::op::OpCode;

use super::{PreloadState, ProcessInfo};
use crate::comm_state::{CommState, locked};
use crate::decide::{COLLECTIVES, CollectiveRow, PassReason, smallest_taken};
use crate::ffi::library::MpiErrorCode;
use crate::ffi::message_calls::MessageLayer;
use crate::ffi::{fork, original};
use crate::filter::ALL;
use crate::guard::guarded;
use crate::init_barrier;
use crate::message_consent;
use crate::report::CallTally;
use crate::settings::{self, ReportFormat, Settings};

impl PreloadState {
    /// Starts Foldwire. Runs after `MPI_Init`. An invalid environment variable aborts the job.
    pub(crate) fn begin(&'static self) {
        let info = guarded(|| -> Result<ProcessInfo, String> {
            let settings = Settings::read(|name| std::env::var(name).ok())?;
            let failed =
                |code| format!("Foldwire's first MPI calls failed: {}", self.mpi.words(code));
            self.mpi.make_keys().map_err(failed)?;
            let world = self.mpi.handles().comm_world;
            let (rank, size) = self.mpi.rank_and_size(world).map_err(failed)?;
            if rank == 0 {
                settings::warn_of_unknown();
            }
            let agree =
                init_barrier::wait_for_all_ranks(self.mpi, (rank, size), settings.fingerprint());
            let pass_all = match agree.map_err(failed)? {
                false => Some(PassReason::Disagreement),
                true => (size == 1).then_some(PassReason::Communicator),
            };
            Ok(ProcessInfo { settings, rank, size, pass_all })
        });
        match info {
            Ok(Ok(info)) => {
                if self.info.set(info).is_ok() {
                    fork::watch();
                    self.is_active.store(true, Ordering::Release);
                    self.set_up_world();
                    self.set_filters();
                    self.set_up_messages();
                }
            }
            Ok(Err(error)) => self.abort(&error),
            Err(_) => self.abort("a panic in MPI_Init"),
        }
    }

    /// Creates the Foldwire communicator for `MPI_COMM_WORLD` if non-blocking calls may be taken.
    /// All of its ranks are in `MPI_Init`, so this cannot wait for a late rank.
    fn set_up_world(&'static self) {
        let Some(info) = self.info.get().filter(|_| self.progress.is_some()) else { return };
        let (mpi, world) = (self.mpi, self.mpi.handles().comm_world);
        // An error here will occur again at the first call, which reports it.
        let _ = guarded(|| -> Result<(), MpiErrorCode> {
            let takes =
                |row: &CollectiveRow| smallest_taken(row.collective, &info.settings).is_ok();
            if info.pass_all.is_none() && COLLECTIVES.iter().any(takes) {
                let shared = self.comm_states.of(mpi, world)?;
                locked(&shared).set_up(mpi, world, &info.settings.rules)?;
            }
            Ok(())
        });
    }

    /// Agrees with all ranks about messages.
    fn set_up_messages(&'static self) {
        let Some(info) = self.info.get().filter(|info| info.pass_all.is_none()) else { return };
        let place = (info.rank, info.size);
        let agreed = guarded(|| {
            message_consent::agree(self.mpi, &info.settings, place, (self.has_fortran)())
        });
        match agreed {
            Ok(Ok(messages)) => {
                if let Some(messages) = messages {
                    let _ = self.messages.set(MessageLayer(messages));
                }
            }
            // Other ranks may have agreed.
            Ok(Err(code)) => self.abort(&format!("about messages: {}", self.mpi.words(code))),
            Err(_) => self.abort("a panic in MPI_Init"),
        }
    }

    /// Registers the progress callback at the first non-blocking call. The library calls it each
    /// time that it polls for messages, so registering it earlier would slow down other programs.
    pub(super) fn begin_progress(&'static self) {
        let Some(progress) = &self.progress else { return };
        self.progress_started.call_once(|| {
            if let Err(code) = progress.begin(self) {
                // The callback may be registered on other ranks. Then the ranks would make
                // different decisions.
                self.abort(&format!("MPI refuses the progress callback: {}", self.mpi.words(code)));
            }
        });
    }

    /// Sets the thresholds of the filters, by the smallest calls that may be taken.
    fn set_filters(&self) {
        let Some(info) = self.info.get() else { return };
        self.filters.set_ranks(info.size, self.mpi.is_threaded());
        // A program may pass this handle as an insignificant datatype argument.
        self.filters.keep_type(self.mpi.handles().datatype_null.number(), 0);
        let filters = COLLECTIVES.iter().flat_map(|row| [(row, false), (row, true)]);
        for (CollectiveRow { collective, .. }, is_nonblocking) in filters {
            let lacks_progress = is_nonblocking && self.progress.is_none();
            let threshold = match (smallest_taken(*collective, &info.settings), info.pass_all) {
                // Inspect every call, to log a line for it.
                _ if info.settings.debug => (0, PassReason::Short),
                (Err(PassReason::Off), _) => continue,
                (_, Some(reason)) | (Err(reason), None) => (ALL, reason),
                (Ok(_), None) if lacks_progress => (ALL, PassReason::NoProgress),
                (Ok(smallest_taken), None) => (smallest_taken as u64, PassReason::Short),
            };
            self.filters.set_threshold(*collective, is_nonblocking, threshold);
        }
    }

    fn abort(&self, reason: &str) -> ! {
        eprintln!("foldwire: error: {reason}");
        // A launcher may exit before it forwards the message above.
        thread::sleep(Duration::from_secs(1));
        self.mpi.abort()
    }

    /// Completes all calls, prints the report and frees the communicators. Runs before
    /// `MPI_Finalize`.
    pub(crate) fn end(&self) {
        let Some(info) = self.info() else { return };
        self.is_active.store(false, Ordering::Release);
        self.filters.pass_all_uncounted();
        // An error here does not affect any call of the program.
        let _ = guarded(|| {
            for shared in self.comm_states.all() {
                if let CommState::Ready(ready) = &mut *locked(&shared) {
                    self.drain(ready);
                }
            }
            let mut tally = locked(&self.tally).clone();
            if let Some(MessageLayer(messages)) = self.messages() {
                messages.end();
                tally.messages = messages.tally();
            }
            self.filters.passed().for_each(|(reason, n)| tally.pass_many(reason, n));
            let (mut sums, mut largest) = (tally.sums(), tally.largest());
            let world = self.mpi.handles().comm_world;
            let added = self.mpi.all_reduce(world, &mut sums, OpCode::Sum);
            let found = self.mpi.all_reduce(world, &mut largest, OpCode::Max);
            let all = CallTally::of_all(&sums, largest);
            if info.rank == 0 && added.and(found).is_ok() {
                self.print_report(info, &all);
            }
            while let Some(shared) = self.comm_states.take_first() {
                self.close_comm(&shared);
            }
        });
        if let Some(progress) = &self.progress {
            progress.end();
        }
    }

    fn print_report(&self, info: &ProcessInfo, all: &CallTally) {
        let ProcessInfo { settings, size, .. } = info;
        let off =
            |row: &CollectiveRow| smallest_taken(row.collective, settings) == Err(PassReason::Off);
        if settings.report_format == ReportFormat::Line
            && !settings.debug
            && COLLECTIVES.iter().all(off)
            && self.messages().is_none()
        {
            eprintln!("foldwire: off: calls of {size} ranks went to the MPI library, uncounted");
            return;
        }
        if let Some(words) = all.render(*size, settings.report_format) {
            eprintln!("{words}");
        }
        if all.n_calls() == 0
            && self.messages().is_none()
            && let Some(file) = original::in_front(c"MPI_Allreduce")
        {
            eprintln!(
                "foldwire: warning: no call reached this library; {}",
                original::advice(&file)
            );
        }
    }
}
