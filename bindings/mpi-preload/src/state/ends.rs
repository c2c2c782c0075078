//! How a process begins and ends: what is done in `MPI_Init` and in `MPI_Finalize`.

use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use foldwire::op::OpCode;

use super::{Begun, State};
use crate::decide::{COLLECTIVES, Row, Why, fewest};
use crate::ffi::library::Code;
use crate::ffi::{fork, next};
use crate::gates::ALL;
use crate::greet;
use crate::guard::guarded;
use crate::report::Tally;
use crate::settings::{self, Settings, Summary};
use crate::shadow::{Standing, locked};

impl State {
    /// `MPI_Init` has returned. A variable that means nothing ends the job.
    pub(crate) fn begin(&'static self) {
        let begun = guarded(|| -> Result<Begun, String> {
            let settings = Settings::read(|name| std::env::var(name).ok())?;
            let failed = |code| format!("MPI fails at its first calls: {}", self.mpi.words(code));
            self.mpi.make_keys().map_err(failed)?;
            let world = self.mpi.own().comm_world;
            let (rank, size) = self.mpi.rank_and_size(world).map_err(failed)?;
            if rank == 0 {
                settings::warn_of_unknown();
            }
            let met = greet::meet(self.mpi, (rank, size), settings.fingerprint());
            let closed = match met.map_err(failed)? {
                false => Some(Why::Disagreement),
                true => (size == 1).then_some(Why::Communicator),
            };
            Ok(Begun { settings, rank, size, closed })
        });
        match begun {
            Ok(Ok(begun)) => {
                if self.begun.set(begun).is_ok() {
                    fork::watch();
                    self.is_up.store(true, Ordering::Release);
                    self.bring_world_up();
                    self.open_gates();
                }
            }
            Ok(Err(error)) => self.give_up(&error),
            Err(_) => self.give_up("a panic in MPI_Init"),
        }
    }

    /// Brings ours up for `MPI_COMM_WORLD`, if calls that are not waited for may be taken: its
    /// ranks are all here.
    fn bring_world_up(&'static self) {
        let Some(begun) = self.begun.get().filter(|_| self.progress.is_some()) else { return };
        let (mpi, world) = (self.mpi, self.mpi.own().comm_world);
        // What fails here fails at the first call, too.
        let _ = guarded(|| -> Result<(), Code> {
            let takes = |row: &Row| fewest(row.collective, &begun.settings).is_ok();
            if begun.closed.is_none() && COLLECTIVES.iter().any(takes) {
                let shadow = self.shadows.of(mpi, world)?;
                locked(&shadow).bring_up(mpi, world, &begun.settings.rules)?;
            }
            Ok(())
        });
    }

    /// Sees that calls move along that are not waited for. Not before there is one: the library
    /// calls back each time that it looks for messages.
    pub(super) fn begin_progress(&'static self) {
        let Some(progress) = &self.progress else { return };
        self.is_moving.call_once(|| {
            if let Err(code) = progress.begin(self) {
                // Other ranks may have what this one lacks.
                self.give_up(&format!("MPI calls nobody back: {}", self.mpi.words(code)));
            }
        });
    }

    /// From now on calls are looked at, as far as they may be taken.
    fn open_gates(&self) {
        let Some(begun) = self.begun.get() else { return };
        self.gates.begin(begun.size, self.mpi.is_threaded());
        // It stands in place of types that nobody looks at.
        self.gates.keep_type(self.mpi.own().datatype_null.number(), 0);
        let gates = COLLECTIVES.iter().flat_map(|row| [(row, false), (row, true)]);
        for (Row { collective, .. }, is_ahead) in gates {
            let lacks_progress = is_ahead && self.progress.is_none();
            let opened = match (fewest(*collective, &begun.settings), begun.closed) {
                // Each call has its line.
                _ if begun.settings.debug => (0, Why::Short),
                (Err(Why::Off), _) => continue,
                (_, Some(why)) | (Err(why), None) => (ALL, why),
                (Ok(_), None) if lacks_progress => (ALL, Why::NoProgress),
                (Ok(fewest), None) => (fewest as u64, Why::Short),
            };
            self.gates.open(*collective, is_ahead, opened);
        }
    }

    fn give_up(&self, why: &str) -> ! {
        eprintln!("foldwire: error: {why}");
        // Launchers may end before they have handed on what was said just before.
        thread::sleep(Duration::from_secs(1));
        self.mpi.abort()
    }

    /// `MPI_Finalize` is about to be called.
    pub(crate) fn end(&self) {
        let Some(begun) = self.begun() else { return };
        self.is_up.store(false, Ordering::Release);
        self.gates.shut();
        // What fails here fails no call of the program's.
        let _ = guarded(|| {
            for shadow in self.shadows.all() {
                if let Standing::Up(up) = &mut *locked(&shadow) {
                    self.drain(up);
                }
            }
            let mut tally = locked(&self.tally).clone();
            self.gates.passed().for_each(|(why, n)| tally.pass_many(why, n));
            let (mut sums, mut largest) = (tally.sums(), tally.largest());
            let world = self.mpi.own().comm_world;
            let added = self.mpi.all_reduce(world, &mut sums, OpCode::Sum);
            let found = self.mpi.all_reduce(world, &mut largest, OpCode::Max);
            let all = Tally::of_all(&sums, largest);
            if begun.rank == 0 && added.and(found).is_ok() {
                self.say_at_end(begun, &all);
            }
            while let Some(shadow) = self.shadows.take_first() {
                self.put_down(&shadow);
            }
        });
        if let Some(progress) = &self.progress {
            progress.end();
        }
    }

    fn say_at_end(&self, begun: &Begun, all: &Tally) {
        let Begun { settings, size, .. } = begun;
        let off = |row: &Row| fewest(row.collective, settings) == Err(Why::Off);
        if settings.summary == Summary::Line && !settings.debug && COLLECTIVES.iter().all(off) {
            eprintln!("foldwire: off: calls of {size} ranks went to the MPI library, uncounted");
            return;
        }
        if let Some(words) = all.say(*size, settings.summary) {
            eprintln!("{words}");
        }
        if all.n_calls() == 0
            && let Some(file) = next::in_front(c"MPI_Allreduce")
        {
            eprintln!("foldwire: warning: no call reached this library; {}", next::advice(&file));
        }
    }
}
