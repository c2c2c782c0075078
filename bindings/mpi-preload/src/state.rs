//! A process between `MPI_Init` and `MPI_Finalize`: what a collective goes through.

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock};
use std::thread;
use std::time::Duration;

use foldwire::op::OpCode;

use crate::agree::{Agreed, View};
use crate::call::{Call, Checked};
use crate::decide::{COLLECTIVES, Route, Why, decide, never};
use crate::ffi::abi::Handle;
use crate::ffi::library::{Code, Mpi};
use crate::greet;
use crate::guard::guarded;
use crate::report::Tally;
use crate::settings::{Settings, Way};
use crate::shadow::{Shadows, Standing, locked};
use crate::taken::{self, Failure};

/// Of a process. Everything but the MPI library's functions.
pub(crate) struct State {
    mpi: &'static dyn Mpi,
    /// Between `MPI_Init` and `MPI_Finalize`; collectives of sessions are passed on.
    is_up: AtomicBool,
    begun: OnceLock<Begun>,
    shadows: Shadows,
    tally: Mutex<Tally>,
}

struct Begun {
    settings: Settings,
    fingerprint: u64,
    /// Keys of attributes of communicators and datatypes.
    keys: [c_int; 2],
    rank: usize,
    size: usize,
}

/// What became of a call.
enum Fate {
    Done,
    Passed(Why),
    Failed(Failure),
}

impl State {
    pub(crate) fn new(mpi: &'static dyn Mpi) -> Self {
        Self {
            mpi,
            is_up: AtomicBool::new(false),
            begun: OnceLock::new(),
            shadows: Shadows::default(),
            tally: Mutex::default(),
        }
    }

    /// `MPI_Init` has returned. A variable that means nothing ends the job.
    pub(crate) fn begin(&self) {
        let begun = guarded(|| -> Result<Begun, String> {
            let settings = Settings::read(|name| std::env::var(name).ok())?;
            let failed = |code| format!("MPI has no keys for attributes: {}", self.mpi.words(code));
            let keys = self.mpi.new_keys().map_err(failed)?;
            let world = self.mpi.own().comm_world;
            let (rank, size) = self.mpi.rank_and_size(world).map_err(failed)?;
            let fingerprint = settings.fingerprint();
            // Where it fails, each communicator's ranks find out for themselves.
            let _ = greet::meet(self.mpi, (rank, size), fingerprint);
            Ok(Begun { settings, fingerprint, keys, rank, size })
        });
        match begun {
            Ok(Ok(begun)) => {
                if self.begun.set(begun).is_ok() {
                    self.is_up.store(true, Ordering::Release);
                }
            }
            Ok(Err(error)) => self.give_up(&error),
            Err(_) => self.give_up("a panic in MPI_Init"),
        }
    }

    fn give_up(&self, why: &str) -> ! {
        eprintln!("foldwire: error: {why}");
        // MPICH's launcher may end before it has handed on what was said just before.
        thread::sleep(Duration::from_millis(200));
        self.mpi.abort()
    }

    fn begun(&self) -> Option<&Begun> {
        self.begun.get().filter(|_| self.is_up.load(Ordering::Acquire))
    }

    /// A collective: what it returns, or `None` if the library is to carry it out.
    pub(crate) fn collective(&self, call: &Call) -> Option<Code> {
        let begun = self.begun()?;
        match guarded(|| self.route(begun, call)) {
            Ok(Fate::Passed(why)) => {
                locked(&self.tally).pass(why);
                if begun.settings.debug {
                    self.say(begun, call, &format!("passed on ({})", why.name()));
                }
                None
            }
            Ok(Fate::Done) => Some(0),
            Ok(Fate::Failed(failure)) => {
                self.say(begun, call, &format!("error: {failure}"));
                Some(self.fail(call))
            }
            Err(_) => {
                self.say(begun, call, "error: a panic, please report it");
                Some(self.fail(call))
            }
        }
    }

    fn fail(&self, call: &Call) -> Code {
        locked(&self.tally).fail();
        self.mpi.raise(call.comm)
    }

    fn say(&self, begun: &Begun, call: &Call, what: &str) {
        let name = COLLECTIVES.iter().find(|row| row.collective == call.collective);
        let name = name.map_or("a collective", |row| row.name);
        let [sent, received] = call.counts(self.mpi);
        let rank = begun.rank;
        // At once, or lines of several ranks would be mixed.
        let line = format!("foldwire: rank {rank}: {name} ({sent}, {received}): {what}\n");
        eprint!("{line}");
    }

    fn route(&self, begun: &Begun, call: &Call) -> Fate {
        let Begun { settings, keys: [comm_key, type_key], .. } = begun;
        let mpi = self.mpi;
        if call.comm == mpi.own().comm_null {
            return Fate::Passed(Why::Argument);
        }
        let Ok(shadow) = self.shadows.of(mpi, call.comm, *comm_key, begun.fingerprint) else {
            return Fate::Passed(Why::Argument);
        };
        let mut standing = locked(&shadow);
        let place = match &*standing {
            Standing::Outside(why) => return Fate::Passed(*why),
            Standing::Agreed { rank, size } => (*rank, *size),
            Standing::Up(up) => (up.comm.rank().index(), up.comm.size()),
        };
        let checked = if call.is_known_in_part() {
            self.agreed(settings, call, place, *type_key)
        } else {
            call.checked(mpi, place, *type_key)
        };
        let checked = match checked {
            Ok(checked) => checked,
            Err(why) => return Fate::Passed(why),
        };
        let ask = |is_near| checked.ask(call.collective, is_near);
        // Where the ranks are is not known before ours is made.
        if let Standing::Agreed { .. } = &*standing {
            let [near, far] = [true, false].map(|is_near| decide(&ask(is_near), settings));
            if let (Route::Pass(why), Route::Pass(_)) = (near, far) {
                return Fate::Passed(why);
            }
            if let Err(code) = standing.bring_up(mpi, call.comm) {
                return Fate::Failed(Failure::Mpi(code));
            }
        }
        let up = match &mut *standing {
            Standing::Up(up) => up,
            Standing::Outside(why) => return Fate::Passed(*why),
            Standing::Agreed { .. } => return Fate::Passed(Why::Disagreement),
        };
        let ask = ask(up.is_near);
        let way = match decide(&ask, settings) {
            Route::Take(way) => way,
            Route::Pass(why) => return Fate::Passed(why),
        };
        let Some(base) = ask.base else { return Fate::Passed(Why::Type) };
        let plan = way.plan(settings.spacing);
        match taken::run(&mut up.comm, mpi, *type_key, call, &checked, base, &plan) {
            Ok(report) => {
                let at = COLLECTIVES.iter().position(|row| row.collective == call.collective);
                locked(&self.tally).take(at.unwrap_or(0), &report);
                if settings.debug {
                    self.say(begun, call, &format!("taken ({}): {report}", said(way)));
                }
                Fate::Done
            }
            Err(failure) => Fate::Failed(failure),
        }
    }

    /// A call of which the ranks tell each other what they know, unless none of its kind is taken.
    fn agreed(
        &self,
        settings: &Settings,
        call: &Call,
        place: (usize, usize),
        key: c_int,
    ) -> Result<Checked, Why> {
        if let Some(why) = never(call.collective, settings) {
            return Err(why);
        }
        let view = call.view(self.mpi, place, key);
        let mut numbers = View::numbers(view.as_ref().map_err(|&why| why), call.n_told(place.1));
        let told = self.mpi.all_reduce(call.comm, &mut numbers, OpCode::Max);
        told.map_err(|_| Why::Argument)?;
        call.agreed(self.mpi, place, Agreed::of(&numbers)?)
    }

    /// A communicator is about to be freed.
    pub(crate) fn forget(&self, comm: Handle) {
        if let Some(begun) = self.begun()
            && comm != self.mpi.own().comm_null
        {
            // A panic leaves no more than a communicator that is not freed.
            let _ = guarded(|| self.shadows.end(self.mpi, comm, begun.keys[0]));
        }
    }

    /// `MPI_Finalize` is about to be called.
    pub(crate) fn end(&self) {
        let Some(begun) = self.begun() else { return };
        self.is_up.store(false, Ordering::Release);
        // What fails here fails no call of the program's.
        let _ = guarded(|| {
            let tally = locked(&self.tally).clone();
            let (mut sums, mut largest) = (tally.sums(), [tally.largest()]);
            let world = self.mpi.own().comm_world;
            let added = self.mpi.all_reduce(world, &mut sums, OpCode::Sum);
            let found = self.mpi.all_reduce(world, &mut largest, OpCode::Max);
            let all = Tally::of_all(&sums, largest[0]);
            if begun.rank == 0
                && added.and(found).is_ok()
                && let Some(words) = all.say(begun.size, begun.settings.summary)
            {
                eprintln!("{words}");
            }
            self.shadows.end_all();
        });
    }
}

fn said(way: Way) -> String {
    match way {
        Way::Off => "off".into(),
        Way::Raw => "raw".into(),
        Way::Lossless => "lossless".into(),
        Way::Lossy(bound) => bound.to_string(),
    }
}
