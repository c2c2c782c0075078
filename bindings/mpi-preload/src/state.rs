//! A process between `MPI_Init` and `MPI_Finalize`: what a collective goes through.

mod ends;

use std::ffi::c_int;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, Once, OnceLock};

use foldwire::Report;
use foldwire::op::OpCode;

use crate::agree::{Agreed, View};
use crate::asked;
use crate::background::Background;
use crate::call::{Call, Checked, KeptTypes};
use crate::decide::{self, COLLECTIVES, Ranks, Route, Why, decide, fewest};
use crate::ffi::FloatingPoint;
use crate::ffi::abi::Handle;
use crate::ffi::library::{Code, Mpi};
use crate::ffi::progress::Progress;
use crate::ffi::promise::Promise;
use crate::gates::Gates;
use crate::guard::{caught, guarded};
use crate::line::{Note, Outcome};
use crate::report::Tally;
use crate::rules::Names;
use crate::settings::{Settings, Way};
use crate::shadow::{Shadow, Shadows, Standing, Up, locked};
use crate::taken::{End, Failure, Ready, carry_out, prepare};

/// Of a process. Everything but the MPI library's functions.
pub(crate) struct State {
    mpi: &'static dyn Mpi,
    gates: &'static Gates,
    /// How calls that are not waited for move along.
    progress: Option<Progress>,
    /// Whether they do.
    is_moving: Once,
    /// Between `MPI_Init` and `MPI_Finalize`; collectives of sessions are passed on.
    is_up: AtomicBool,
    begun: OnceLock<Begun>,
    shadows: Shadows,
    background: Background,
    tally: Mutex<Tally>,
}

struct Begun {
    settings: Settings,
    /// Keys of attributes of communicators and datatypes.
    keys: [c_int; 2],
    rank: usize,
    size: usize,
    /// Why all calls are passed on.
    closed: Option<Why>,
}

/// What became of a call: the report, or of one that is not waited for, the request.
enum Fate<D> {
    Done(D),
    Passed(Why),
    Failed(Failure),
}

impl State {
    pub(crate) fn new(
        mpi: &'static dyn Mpi,
        gates: &'static Gates,
        progress: Option<Progress>,
    ) -> Self {
        Self {
            mpi,
            gates,
            progress,
            is_moving: Once::new(),
            is_up: AtomicBool::new(false),
            begun: OnceLock::new(),
            shadows: Shadows::default(),
            background: Background::default(),
            tally: Mutex::default(),
        }
    }

    fn begun(&self) -> Option<&Begun> {
        self.begun.get().filter(|_| self.is_up.load(Ordering::Acquire))
    }

    /// A collective: what it returns, or `None` if the library is to carry it out.
    pub(crate) fn collective(&self, call: &Call) -> Option<Code> {
        let begun = self.begun()?;
        let fate = match begun.closed {
            Some(why) => Ok(Fate::Passed(why)),
            None => caught(|| self.route(begun, call)),
        };
        self.returned(begun, call, fate.ok()).map(|returned| returned.err().unwrap_or(0))
    }

    /// The same of one that is not waited for: its request, or what it returns instead.
    pub(crate) fn begin_collective(&'static self, call: &Call) -> Option<Result<Handle, Code>> {
        let begun = self.begun()?;
        let fate = match begun.closed {
            Some(why) => Ok(Fate::Passed(why)),
            None => caught(|| self.route_ahead(begun, call)),
        };
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
                self.say(begun, call, &format_args!("error: {failure}"));
                Some(Err(self.fail(call)))
            }
            None => {
                self.say(begun, call, &"error: a panic, please report it");
                Some(Err(self.fail(call)))
            }
        }
    }

    fn fail(&self, call: &Call) -> Code {
        locked(&self.tally).fail();
        self.mpi.raise(call.comm)
    }

    fn say(&self, begun: &Begun, call: &Call, what: &dyn fmt::Display) {
        // Floats are put into words.
        let _environment = FloatingPoint::default_for_now();
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
        // Whatever becomes of this call, others have waited for it. Nothing is under way yet where
        // this waits.
        if standing.is_wanted()
            && let Err(code) = self.bring_up(&mut standing, call.comm)
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
            if let Err(code) = self.bring_up(&mut standing, call.comm) {
                return Fate::Failed(Failure::Mpi(code));
            }
        }
        let up = match &mut *standing {
            Standing::Up(up) => up,
            Standing::Outside(why) => return Fate::Passed(*why),
            Standing::Low { .. } => return Fate::Passed(Why::Disagreement),
        };
        let ready = match self.take(begun, call, &checked, (up.ranks, up.names)) {
            Fate::Done(ready) => ready,
            Fate::Passed(why) => return Fate::Passed(why),
            Fate::Failed(failure) => return Fate::Failed(failure),
        };
        let _environment = FloatingPoint::default_for_now();
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

    /// Sees that ours is there, as far as it can be.
    fn bring_up(&self, standing: &mut Standing, comm: Handle) -> Result<(), Code> {
        let Some(begun) = self.begun.get() else { return Ok(()) };
        let _environment = FloatingPoint::default_for_now();
        let was_wanted = standing.is_wanted();
        let brought = standing.bring_up(self.mpi, comm, &begun.settings.rules);
        if was_wanted && !standing.is_wanted() {
            self.gates.want(false);
        }
        brought
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
            true => fewest(call.collective, settings).map(|_| None),
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
                if why.is_none() && !low.is_wanted {
                    low.is_wanted = true;
                    self.gates.want(true);
                }
                return Fate::Passed(why.unwrap_or(Why::NotReady));
            }
        };
        let ready = match checked {
            None => Fate::Done(self.ask(call, place, up, *type_key)),
            Some(checked) => self.take(begun, call, &checked, (up.ranks, up.names)),
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
            self.begin_progress();
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
    fn take(
        &self,
        begun: &Begun,
        call: &Call,
        checked: &Checked,
        about: (Ranks, Names),
    ) -> Fate<Ready> {
        let Begun { settings, keys: [_, type_key], .. } = begun;
        let ask = checked.ask(call.collective, about);
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
        locked(&self.tally).take(at.unwrap_or(0), way, report);
        if begun.settings.debug {
            self.say(begun, call, &format_args!("taken ({}): {report}", said(way)));
        }
    }

    /// A call is the MPI library's.
    fn pass(&self, begun: &Begun, call: &Call, why: Why) {
        locked(&self.tally).pass(why);
        if begun.settings.debug {
            self.say(begun, call, &format_args!("passed on ({})", why.name()));
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
                self.say(begun, &call, &format_args!("error: {failure}"));
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
        fewest(call.collective, settings)?;
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
        let (raw, about) = (up.raw, (up.ranks, up.names));
        asked::ask(
            numbers,
            Box::new(move |largest| {
                let begun = self.begun.get().ok_or(foldwire::Error::Internal)?;
                let checked =
                    Agreed::of(largest).and_then(|agreed| call.agreed(mpi, place, agreed));
                let fate = match checked {
                    Ok(checked) => self.take(begun, &call, &checked, about),
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
        if standing.is_wanted() {
            self.gates.want(false);
        }
        // It ends here and now, whoever else still has it.
        *standing = Standing::Outside(Why::Communicator);
        drop(standing);
        self.background.remove(shadow);
    }
}

/// Why a call is passed on wherever the ranks are and whatever the communicator's name is, neither
/// of which is known before ours is made.
fn passed_anyway(call: &Call, checked: &Checked, settings: &Settings) -> Option<Why> {
    let ask = |ranks| checked.ask(call.collective, (ranks, Names::Unknown));
    match Ranks::ALL.map(|ranks| decide::passed_anyway(&ask(ranks), settings)) {
        [Some(why), Some(_), Some(_)] => Some(why),
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
