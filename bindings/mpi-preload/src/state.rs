//! A process between `MPI_Init` and `MPI_Finalize`: what a collective goes through.

mod ends;

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, Once, OnceLock};

use foldwire::op::OpCode;

use crate::agree::{Agreed, View};
use crate::asked;
use crate::background::Background;
use crate::call::{Call, Checked, KeptTypes};
use crate::decide::{COLLECTIVES, Ranks, Why, decide, fewest, passed_anyway, place};
use crate::ffi::FloatingPoint;
use crate::ffi::abi::Handle;
use crate::ffi::library::{Code, Mpi};
use crate::ffi::progress::Progress;
use crate::ffi::promise::Promise;
use crate::gates::Gates;
use crate::guard::{caught, guarded};
use crate::line::Note;
use crate::report::Tally;
use crate::rules::Names;
use crate::settings::{Settings, Way};
use crate::shadow::{Shadow, Shadows, Standing, Up, locked};
use crate::taken::{Failure, Instead, Outcome, Ready, Taken, carry_out, prepare};

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
    rank: usize,
    size: usize,
    /// Why all calls are passed on.
    closed: Option<Why>,
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

    /// A collective: what it returns, with the request of one that is not waited for; `None` if the
    /// library is to carry it out.
    pub(crate) fn collective(&'static self, call: &Call) -> Option<Result<Option<Handle>, Code>> {
        let begun = self.begun()?;
        let lacks_progress = call.request.is_some() && self.progress.is_none();
        let carried = match begun.closed.or(lacks_progress.then_some(Why::NoProgress)) {
            Some(why) => Err(Instead::Pass(why)),
            None => caught(|| self.carry(begun, call)).unwrap_or(Err(Failure::Panic.into())),
        };
        let instead = match carried {
            Ok(request) => return Some(Ok(request)),
            Err(instead) => instead,
        };
        let fails = matches!(instead, Instead::Fail(_));
        self.settle(begun, call, Err(instead));
        fails.then(|| Err(self.mpi.raise(call.comm)))
    }

    /// Carries a call out that is taken: now, or later if it is not waited for; its request then.
    fn carry(&'static self, begun: &Begun, call: &Call) -> Result<Option<Handle>, Instead> {
        let shadow = self.shadow(call).ok_or(Why::Argument)?;
        let (mut standing, ready) = self.decide(begun, call, &shadow)?;
        let up = standing.up()?;
        if call.request.is_some() {
            return Ok(Some(self.begin_later(call, ready, up, &shadow)?));
        }
        let _environment = FloatingPoint::default_for_now();
        self.drain(up);
        let taken = carry_out(ready, &up.comm, self.mpi)?;
        self.settle(begun, call, Ok(taken));
        Ok(None)
    }

    /// Decides about a call on a communicator, which ours then stands beside, and makes it ready.
    ///
    /// Nothing in a call that is not waited for may wait for other ranks. In one that is, the lock
    /// is never held while the library's collectives wait: what is under way on the communicator
    /// must move along meanwhile, or other ranks would never come.
    fn decide<'s>(
        &'static self,
        begun: &Begun,
        call: &Call,
        shadow: &'s Shadow,
    ) -> Result<(MutexGuard<'s, Standing>, Ready), Instead> {
        let settings = &begun.settings;
        let is_ahead = call.request.is_some();
        let mut standing = locked(shadow);
        // Whatever becomes of this call, others have waited for it. Nothing is under way yet where
        // this waits.
        if standing.is_wanted() && !is_ahead {
            self.bring_up(&mut standing, call.comm)?;
        }
        let place = standing.place()?;
        if call.is_known_in_part() {
            fewest(call.collective, settings)?;
        }
        let checked = match (call.is_known_in_part(), is_ahead) {
            (false, _) => Some(call.checked(self.mpi, place)?),
            (true, false) => {
                drop(standing);
                let checked = self.agreed(call, place)?;
                standing = locked(shadow);
                Some(checked)
            }
            // The ranks tell each other when it is the call's turn.
            (true, true) => None,
        };
        if let Standing::Low(low) = &mut *standing {
            let ask = |it: &Checked| it.ask(call.collective, (Ranks::Near, Names::Unknown));
            let why = checked.as_ref().and_then(|it| passed_anyway(&ask(it), settings));
            why.map_or(Ok(()), Err)?;
            if is_ahead {
                if !std::mem::replace(&mut low.is_wanted, true) {
                    self.gates.want(true);
                }
                return Err(Why::NotReady.into());
            }
            self.bring_up(&mut standing, call.comm)?;
        }
        let up = standing.up()?;
        let ready = match checked {
            None => self.ask(call, place, up),
            Some(checked) => self.take(begun, call, &checked, (up.ranks, up.names))?,
        };
        Ok((standing, ready))
    }

    /// Puts a call into the line of those that are not waited for; its request.
    fn begin_later(
        &'static self,
        call: &Call,
        ready: Ready,
        up: &mut Up,
        shadow: &Shadow,
    ) -> Result<Handle, Failure> {
        let promise = Promise::new(self.mpi)?;
        let request = promise.request();
        up.line.push(Note { call: *call, promise }, ready);
        self.step(up);
        if !up.line.is_empty() {
            self.begin_progress();
            self.background.add(shadow);
        }
        Ok(request)
    }

    fn say(&self, begun: &Begun, call: &Call, what: &dyn fmt::Display) {
        // Floats are put into words.
        let _environment = FloatingPoint::default_for_now();
        let name = COLLECTIVES[place(call.collective)].name;
        let ahead = if call.request.is_some() { "non-blocking " } else { "" };
        let [sent, received] = call.counts(self.mpi);
        let rank = begun.rank;
        // At once, or lines of several ranks would be mixed.
        let line = format!("foldwire: rank {rank}: {ahead}{name} ({sent}, {received}): {what}\n");
        eprint!("{line}");
    }

    /// Sees that ours is there, as far as it can be.
    fn bring_up(&self, standing: &mut Standing, comm: Handle) -> Result<(), Failure> {
        let Some(begun) = self.begun.get() else { return Ok(()) };
        let _environment = FloatingPoint::default_for_now();
        let was_wanted = standing.is_wanted();
        let brought = standing.bring_up(self.mpi, comm, &begun.settings.rules);
        if was_wanted && !standing.is_wanted() {
            self.gates.want(false);
        }
        Ok(brought?)
    }

    fn shadow(&self, call: &Call) -> Option<Shadow> {
        if call.comm == self.mpi.own().comm_null {
            return None;
        }
        self.shadows.of(self.mpi, call.comm).ok()
    }

    /// Makes a call ready if it is taken.
    fn take(
        &self,
        begun: &Begun,
        call: &Call,
        checked: &Checked,
        about: (Ranks, Names),
    ) -> Result<Ready, Instead> {
        let settings = &begun.settings;
        let ask = checked.ask(call.collective, about);
        let way = decide(&ask, settings)?;
        let base = ask.base.ok_or(Why::Type)?;
        Ok(prepare(self.mpi, call, checked, base, (way, settings))?)
    }

    /// Counts a call that is over, or the library's.
    fn settle(&self, begun: &Begun, call: &Call, outcome: Outcome) {
        let debug = begun.settings.debug;
        match outcome {
            Ok(Taken { way, report }) => {
                locked(&self.tally).take(call.collective, way, &report);
                if debug {
                    self.say(begun, call, &format_args!("taken ({}): {report}", said(way)));
                }
            }
            Err(Instead::Pass(why)) => {
                locked(&self.tally).pass(why);
                if debug {
                    self.say(begun, call, &format_args!("passed on ({})", why.name()));
                }
            }
            Err(Instead::Fail(failure)) => {
                self.say(begun, call, &format_args!("error: {failure}"));
                locked(&self.tally).fail();
            }
        }
    }

    /// A call that was not waited for is over.
    fn settle_later(&self, note: Note, outcome: Outcome) {
        let (Note { call, promise }, Some(begun)) = (note, self.begun.get()) else { return };
        let fails = matches!(outcome, Err(Instead::Fail(_)));
        self.settle(begun, &call, outcome);
        if !fails {
            promise.keep();
        }
    }

    /// Moves calls along that are not waited for. Whether one moved.
    pub(crate) fn advance(&self) -> bool {
        self.background.advance(|up| self.step(up))
    }

    fn step(&self, up: &mut Up) -> bool {
        let Up { line, comm, .. } = up;
        let moved =
            guarded(|| line.advance(comm, self.mpi, |note, end| self.settle_later(note, end)));
        moved.unwrap_or_else(|_| {
            // All of them fail, on all ranks.
            let n_failed = line.clear();
            (0..n_failed).for_each(|_| locked(&self.tally).fail());
            true
        })
    }

    fn drain(&self, up: &mut Up) {
        let Up { line, comm, .. } = up;
        line.drain(comm, self.mpi, |note, end| self.settle_later(note, end));
    }

    /// A call of which the ranks tell each other what they know.
    fn agreed(&self, call: &Call, place: (usize, usize)) -> Result<Checked, Why> {
        let mut numbers = View::numbers(call.view(self.mpi, place), call.n_told(place.1));
        let told = self.mpi.all_reduce(call.comm, &mut numbers, OpCode::Max);
        told.map_err(|_| Why::Argument)?;
        call.agreed(self.mpi, place, Agreed::of(&numbers)?)
    }

    /// The same of one that is not waited for.
    fn ask(&'static self, call: &Call, place: (usize, usize), up: &Up) -> Ready {
        let mpi = self.mpi;
        let kept = call.kept(mpi, place);
        let view = kept.as_ref().map_err(|&why| why);
        let view = view.and_then(|(call, _)| call.view(mpi, place));
        let numbers = View::numbers(view, call.n_told(place.1));
        let (call, types) = kept.unwrap_or((*call, KeptTypes::default()));
        let (raw, about) = (up.raw, (up.ranks, up.names));
        asked::ask(
            numbers,
            Box::new(move |largest| {
                let begun = self.begun.get().ok_or(foldwire::Error::Internal)?;
                let agreed = Agreed::of(largest).and_then(|agreed| call.agreed(mpi, place, agreed));
                let checked = agreed.map_err(Instead::from);
                match checked.and_then(|checked| self.take(begun, &call, &checked, about)) {
                    Err(Instead::Pass(why)) => Ok(asked::pass(mpi, (call, types), raw, why)),
                    decision => decision,
                }
            }),
        )
    }

    /// A communicator is about to be freed.
    pub(crate) fn forget(&self, comm: Handle) {
        if self.begun().is_some() && comm != self.mpi.own().comm_null {
            // A panic leaves no more than a communicator that is not freed.
            let _ = guarded(|| {
                if let Some(shadow) = self.shadows.take(self.mpi, comm) {
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

fn said(way: Way) -> String {
    match way {
        Way::Off => "off".into(),
        Way::Raw => "raw".into(),
        Way::Lossless => "lossless".into(),
        Way::Lossy(bound) => bound.to_string(),
    }
}
