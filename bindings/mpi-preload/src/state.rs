//! A process between `MPI_Init` and `MPI_Finalize`: what a collective goes through.

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock};
use std::thread;
use std::time::Duration;

use foldwire::Report;
use foldwire::op::OpCode;

use crate::agree::{Agreed, View};
use crate::asked;
use crate::background::Background;
use crate::call::{Call, Checked, KeptTypes};
use crate::decide::{COLLECTIVES, Ranks, Route, Why, decide, never};
use crate::ffi::abi::Handle;
use crate::ffi::library::{Code, Mpi};
use crate::ffi::progress::Progress;
use crate::ffi::promise::Promise;
use crate::greet;
use crate::guard::guarded;
use crate::line::{Note, Outcome};
use crate::report::Tally;
use crate::settings::{Settings, Way};
use crate::shadow::{Shadow, Shadows, Standing, Up, locked};
use crate::taken::{End, Failure, Ready, carry_out, prepare};

/// Of a process. Everything but the MPI library's functions.
pub(crate) struct State {
    mpi: &'static dyn Mpi,
    /// How calls that are not waited for move along.
    progress: Option<Progress>,
    /// Between `MPI_Init` and `MPI_Finalize`; collectives of sessions are passed on.
    is_up: AtomicBool,
    begun: OnceLock<Begun>,
    shadows: Shadows,
    background: Background,
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

/// What became of a call: the report, or of one that is not waited for, the request.
enum Fate<D> {
    Done(D),
    Passed(Why),
    Failed(Failure),
}

impl State {
    pub(crate) fn new(mpi: &'static dyn Mpi, progress: Option<Progress>) -> Self {
        Self {
            mpi,
            progress,
            is_up: AtomicBool::new(false),
            begun: OnceLock::new(),
            shadows: Shadows::default(),
            background: Background::default(),
            tally: Mutex::default(),
        }
    }

    /// `MPI_Init` has returned. A variable that means nothing ends the job.
    pub(crate) fn begin(&'static self) {
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
                    self.begin_progress();
                }
            }
            Ok(Err(error)) => self.give_up(&error),
            Err(_) => self.give_up("a panic in MPI_Init"),
        }
    }

    /// From now on calls that are not waited for may be taken, of the world's ranks at once: they
    /// are all here.
    fn begin_progress(&'static self) {
        let (Some(progress), Some(begun)) = (&self.progress, self.begun.get()) else { return };
        let (mpi, world) = (self.mpi, self.mpi.own().comm_world);
        // What fails here fails at the first call, too.
        let _ = guarded(|| -> Result<(), Code> {
            let shadow = self.shadows.of(mpi, world, begun.keys[0])?;
            let mut standing = locked(&shadow);
            standing.agree(mpi, world, begun.fingerprint)?;
            if begun.settings.takes_any() {
                standing.bring_up(mpi, world)?;
            }
            Ok(())
        });
        // Other ranks may have what this one lacks.
        if let Err(code) = progress.begin(self) {
            self.give_up(&format!("MPI calls nobody back: {}", mpi.words(code)));
        }
    }

    fn give_up(&self, why: &str) -> ! {
        eprintln!("foldwire: error: {why}");
        // Launchers may end before they have handed on what was said just before.
        thread::sleep(Duration::from_secs(1));
        self.mpi.abort()
    }

    fn begun(&self) -> Option<&Begun> {
        self.begun.get().filter(|_| self.is_up.load(Ordering::Acquire))
    }

    /// A collective: what it returns, or `None` if the library is to carry it out.
    pub(crate) fn collective(&self, call: &Call) -> Option<Code> {
        let begun = self.begun()?;
        let fate = guarded(|| self.route(begun, call));
        self.returned(begun, call, fate.ok()).map(|returned| returned.err().unwrap_or(0))
    }

    /// The same of one that is not waited for: its request, or what it returns instead.
    pub(crate) fn begin_collective(&'static self, call: &Call) -> Option<Result<Handle, Code>> {
        let begun = self.begun()?;
        let fate = guarded(|| self.route_ahead(begun, call));
        self.returned(begun, call, fate.ok())
    }

    fn returned<D>(
        &self,
        begun: &Begun,
        call: &Call,
        fate: Option<Fate<D>>,
    ) -> Option<Result<D, Code>> {
        match fate {
            Some(Fate::Passed(why)) => {
                self.pass(begun, call, why);
                None
            }
            Some(Fate::Done(done)) => Some(Ok(done)),
            Some(Fate::Failed(failure)) => {
                self.say(begun, call, &format!("error: {failure}"));
                Some(Err(self.fail(call)))
            }
            None => {
                self.say(begun, call, "error: a panic, please report it");
                Some(Err(self.fail(call)))
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
        let ahead = if call.request.is_some() { "non-blocking " } else { "" };
        let [sent, received] = call.counts(self.mpi);
        let rank = begun.rank;
        // At once, or lines of several ranks would be mixed.
        let line = format!("foldwire: rank {rank}: {ahead}{name} ({sent}, {received}): {what}\n");
        eprint!("{line}");
    }

    /// A call that is waited for. The lock is never held while the library's collectives wait: what
    /// is under way on the communicator must move along meanwhile, or other ranks would never come.
    fn route(&self, begun: &Begun, call: &Call) -> Fate<()> {
        let Begun { settings, keys: [comm_key, type_key], .. } = begun;
        let mpi = self.mpi;
        let Some(shadow) = self.shadow(call, *comm_key) else {
            return Fate::Passed(Why::Argument);
        };
        let mut standing = locked(&shadow);
        // Nothing is under way yet where this waits.
        if standing.agree(mpi, call.comm, begun.fingerprint).is_err() {
            return Fate::Passed(Why::Argument);
        }
        // Whatever becomes of this call, others have waited for it.
        if matches!(&*standing, Standing::Low(low) if low.is_wanted)
            && let Err(code) = standing.bring_up(mpi, call.comm)
        {
            return Fate::Failed(Failure::Mpi(code));
        }
        let place = match standing.place() {
            Ok(place) => place,
            Err(why) => return Fate::Passed(why),
        };
        let checked = if call.is_known_in_part() {
            drop(standing);
            let checked = self.agreed(settings, call, place, *type_key);
            standing = locked(&shadow);
            checked
        } else {
            call.checked(mpi, place, *type_key)
        };
        let checked = match checked {
            Ok(checked) => checked,
            Err(why) => return Fate::Passed(why),
        };
        if let Standing::Low(_) = &*standing {
            if let Some(why) = passed_anyway(call, &checked, settings) {
                return Fate::Passed(why);
            }
            if let Err(code) = standing.bring_up(mpi, call.comm) {
                return Fate::Failed(Failure::Mpi(code));
            }
        }
        let up = match &mut *standing {
            Standing::Up(up) => up,
            Standing::Outside(why) => return Fate::Passed(*why),
            Standing::Low { .. } => return Fate::Passed(Why::Disagreement),
        };
        let ready = match self.take(begun, call, &checked, up.ranks) {
            Fate::Done(ready) => ready,
            Fate::Passed(why) => return Fate::Passed(why),
            Fate::Failed(failure) => return Fate::Failed(failure),
        };
        self.drain(up);
        match carry_out(ready, &up.comm, mpi) {
            Ok(End::Taken(way, report)) => {
                self.count(begun, call, way, &report);
                Fate::Done(())
            }
            Ok(End::Passed(why)) => Fate::Passed(why),
            Err(failure) => Fate::Failed(failure),
        }
    }

    /// A call that is not waited for, so that nothing in it may wait for other ranks.
    fn route_ahead(&'static self, begun: &Begun, call: &Call) -> Fate<Handle> {
        let Begun { settings, keys: [comm_key, type_key], .. } = begun;
        if self.progress.is_none() {
            return Fate::Passed(Why::NoProgress);
        }
        let Some(shadow) = self.shadow(call, *comm_key) else {
            return Fate::Passed(Why::Argument);
        };
        let mut standing = locked(&shadow);
        let place = match standing.place() {
            Ok(place) => place,
            Err(why) => return Fate::Passed(why),
        };
        // `None`: the ranks are to tell each other.
        let checked = match call.is_known_in_part() {
            true => never(call.collective, settings).map_or(Ok(None), Err),
            false => call.checked(self.mpi, place, *type_key).map(Some),
        };
        let checked = match checked {
            Ok(checked) => checked,
            Err(why) => return Fate::Passed(why),
        };
        let up = match &mut *standing {
            Standing::Up(up) => up,
            Standing::Outside(why) => return Fate::Passed(*why),
            Standing::Low(low) => {
                let why = checked.and_then(|checked| passed_anyway(call, &checked, settings));
                low.is_wanted |= why.is_none();
                return Fate::Passed(why.unwrap_or(Why::NotReady));
            }
        };
        let ready = match checked {
            None => Fate::Done(self.ask(call, place, up, *type_key)),
            Some(checked) => self.take(begun, call, &checked, up.ranks),
        };
        let ready = match ready {
            Fate::Done(ready) => ready,
            Fate::Passed(why) => return Fate::Passed(why),
            Fate::Failed(failure) => return Fate::Failed(failure),
        };
        let promise = match Promise::new(self.mpi) {
            Ok(promise) => promise,
            Err(code) => return Fate::Failed(Failure::Mpi(code)),
        };
        let request = promise.request();
        up.line.push(Note { call: *call, promise }, ready);
        self.step(up);
        if !up.line.is_empty() {
            self.background.add(&shadow);
        }
        Fate::Done(request)
    }

    fn shadow(&self, call: &Call, key: c_int) -> Option<Shadow> {
        if call.comm == self.mpi.own().comm_null {
            return None;
        }
        self.shadows.of(self.mpi, call.comm, key).ok()
    }

    /// Decides about a call, and makes it ready if it is taken.
    fn take(&self, begun: &Begun, call: &Call, checked: &Checked, ranks: Ranks) -> Fate<Ready> {
        let Begun { settings, keys: [_, type_key], .. } = begun;
        let ask = checked.ask(call.collective, ranks);
        let way = match decide(&ask, settings) {
            Route::Take(way) => way,
            Route::Pass(why) => return Fate::Passed(why),
        };
        let Some(base) = ask.base else { return Fate::Passed(Why::Type) };
        match prepare(self.mpi, *type_key, call, checked, base, (way, settings)) {
            Ok(ready) => Fate::Done(ready),
            Err(failure) => Fate::Failed(failure),
        }
    }

    /// A call has been carried out.
    fn count(&self, begun: &Begun, call: &Call, way: Way, report: &Report) {
        let at = COLLECTIVES.iter().position(|row| row.collective == call.collective);
        locked(&self.tally).take(at.unwrap_or(0), report);
        if begun.settings.debug {
            self.say(begun, call, &format!("taken ({}): {report}", said(way)));
        }
    }

    /// A call is the MPI library's.
    fn pass(&self, begun: &Begun, call: &Call, why: Why) {
        locked(&self.tally).pass(why);
        if begun.settings.debug {
            self.say(begun, call, &format!("passed on ({})", why.name()));
        }
    }

    /// A call that was not waited for is over.
    fn settle(&self, note: Note, outcome: Outcome) {
        let (Note { call, promise }, Some(begun)) = (note, self.begun.get()) else { return };
        match outcome {
            Ok(end) => {
                match end {
                    End::Taken(way, report) => self.count(begun, &call, way, &report),
                    End::Passed(why) => self.pass(begun, &call, why),
                }
                promise.keep();
            }
            Err(failure) => {
                self.say(begun, &call, &format!("error: {failure}"));
                locked(&self.tally).fail();
            }
        }
    }

    /// Moves calls along that are not waited for. Whether one moved.
    pub(crate) fn advance(&self) -> bool {
        self.background.advance(|up| self.step(up))
    }

    fn step(&self, up: &mut Up) -> bool {
        let Up { line, comm, .. } = up;
        let moved = guarded(|| line.advance(comm, self.mpi, |note, end| self.settle(note, end)));
        moved.unwrap_or_else(|_| {
            // All of them fail, on all ranks.
            let n_failed = line.clear();
            (0..n_failed).for_each(|_| locked(&self.tally).fail());
            true
        })
    }

    fn drain(&self, up: &mut Up) {
        let Up { line, comm, .. } = up;
        line.drain(comm, self.mpi, |note, outcome| self.settle(note, outcome));
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

    /// The same of one that is not waited for.
    fn ask(&'static self, call: &Call, place: (usize, usize), up: &Up, key: c_int) -> Ready {
        let mpi = self.mpi;
        let kept = call.kept(mpi, place);
        let view = kept.as_ref().map_err(|&why| why);
        let view = view.and_then(|(call, _)| call.view(mpi, place, key));
        let numbers = View::numbers(view.as_ref().map_err(|&why| why), call.n_told(place.1));
        let (call, types) = kept.unwrap_or((*call, KeptTypes::default()));
        let (raw, ranks) = (up.raw, up.ranks);
        asked::ask(
            numbers,
            Box::new(move |largest| {
                let begun = self.begun.get().ok_or(foldwire::Error::Internal)?;
                let checked =
                    Agreed::of(largest).and_then(|agreed| call.agreed(mpi, place, agreed));
                let fate = match checked {
                    Ok(checked) => self.take(begun, &call, &checked, ranks),
                    Err(why) => Fate::Passed(why),
                };
                match fate {
                    Fate::Done(ready) => Ok(ready),
                    Fate::Passed(why) => Ok(asked::pass(mpi, (call, types), raw, why)),
                    Fate::Failed(failure) => Err(failure),
                }
            }),
        )
    }

    /// A communicator is about to be freed.
    pub(crate) fn forget(&self, comm: Handle) {
        if let Some(begun) = self.begun()
            && comm != self.mpi.own().comm_null
        {
            // A panic leaves no more than a communicator that is not freed.
            let _ = guarded(|| {
                if let Some(shadow) = self.shadows.take(self.mpi, comm, begun.keys[0]) {
                    self.put_down(&shadow);
                }
            });
        }
    }

    /// Ends what is kept of a communicator, once its calls are done.
    fn put_down(&self, shadow: &Shadow) {
        let mut standing = locked(shadow);
        if let Standing::Up(up) = &mut *standing {
            self.drain(up);
        }
        // It ends here and now, whoever else still has it.
        *standing = Standing::Outside(Why::Communicator);
        drop(standing);
        self.background.remove(shadow);
    }

    /// `MPI_Finalize` is about to be called.
    pub(crate) fn end(&self) {
        let Some(begun) = self.begun() else { return };
        self.is_up.store(false, Ordering::Release);
        // What fails here fails no call of the program's.
        let _ = guarded(|| {
            for shadow in self.shadows.all() {
                if let Standing::Up(up) = &mut *locked(&shadow) {
                    self.drain(up);
                }
            }
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
            while let Some(shadow) = self.shadows.take_first() {
                self.put_down(&shadow);
            }
        });
        if let Some(progress) = &self.progress {
            progress.end();
        }
    }
}

/// Why a call is passed on wherever the ranks are, which is not known before ours is made.
fn passed_anyway(call: &Call, checked: &Checked, settings: &Settings) -> Option<Why> {
    let route = |ranks| decide(&checked.ask(call.collective, ranks), settings);
    match Ranks::ALL.map(route) {
        [Route::Pass(why), Route::Pass(_), Route::Pass(_)] => Some(why),
        _ => None,
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
