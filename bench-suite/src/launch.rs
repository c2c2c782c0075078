//! `foldwire launch`: starts the ranks of a program on this machine, and ends them together.
//!
//! One thread decides. It alone starts, reaps and signals ranks, so that no process number is used after it has
//! been given to somebody else. It sleeps until something happens: a signal (one of them says that a child has
//! ended), the end of an output, or the next deadline. Two threads per rank forward output.

mod forward;
mod ranks;

use std::os::unix::process::ExitStatusExt;
use std::process::{ExitCode, ExitStatus};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use foldwire_bootstrap::Token;
use rustix::process::Signal;
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGPIPE, SIGTERM};
use signal_hook::iterator::{Handle, Signals};
use signal_hook::low_level::signal_name;

use crate::cli::LaunchArgs;
use crate::usage::UsageError;
use ranks::{Ranks, ReservedRoot};

/// The exit code after a time limit, as that of timeout(1).
const TIMED_OUT: u8 = 124;
/// How long to wait for output after the last rank: a process that a rank has left behind may hold it open.
const LAST_OUTPUT: Duration = Duration::from_secs(1);

/// What the launcher hears of.
enum Event {
    /// A signal to this process.
    Signal(i32),
    /// A rank's output or error output has ended.
    EndOfOutput,
    /// Nobody reads this process's output any more.
    NoReader,
}

/// Why the ranks are to end.
#[derive(Debug, Clone, Copy)]
enum Why {
    Failed { rank: usize, status: ExitStatus },
    Signal(i32),
    Timeout(Duration),
    NoReader,
}

/// How far the end has come.
#[derive(Debug, Clone, Copy)]
enum Stage {
    /// No end in sight, except that of the time limit.
    Running { until: Option<Instant> },
    /// A rank has failed; the others may find out for themselves.
    Noticing { until: Instant },
    /// All have been asked to end.
    Asked { until: Instant },
    /// All have been killed.
    Killed,
}

/// Runs the subcommand. The ranks' output goes to stdout and stderr; what the launcher has to say goes to stderr.
///
/// # Errors
///
/// When a rank cannot be started; all that were are ended.
pub fn run(args: &LaunchArgs) -> anyhow::Result<ExitCode> {
    if let Some(rank) = args.env.iter().filter_map(|arg| arg.rank).find(|&rank| rank >= args.ranks)
    {
        let last = args.ranks - 1;
        return Err(UsageError::new(format!(
            "--env is for rank {rank}, but ranks are 0 to {last}"
        ))
        .into());
    }
    let (sender, events) = mpsc::channel();
    // Before the first rank starts, or its end could be missed.
    let signals = listen_to_signals(sender.clone())?;
    let root = ReservedRoot::new().context("no port of this machine is free")?;
    let token = Token::random()?;
    let ranks = Ranks::start(args, &root, &token, &sender)?;
    let why = supervise(args, ranks, &events);
    signals.close();
    Ok(conclude(why, args.ranks))
}

fn listen_to_signals(sender: Sender<Event>) -> anyhow::Result<Handle> {
    let mut signals =
        Signals::new([SIGCHLD, SIGHUP, SIGINT, SIGTERM]).context("cannot listen to signals")?;
    let handle = signals.handle();
    thread::spawn(move || {
        for signal in signals.forever() {
            if sender.send(Event::Signal(signal)).is_err() {
                break;
            }
        }
    });
    Ok(handle)
}

/// Waits until all ranks have ended and their output is forwarded; why they had to, if not by themselves.
fn supervise(args: &LaunchArgs, mut ranks: Ranks, events: &Receiver<Event>) -> Option<Why> {
    let in_grace = || Instant::now() + args.grace;
    let mut stage = Stage::Running { until: args.timeout.map(|timeout| Instant::now() + timeout) };
    let mut why = None;
    let mut n_outputs = 2 * args.ranks;
    loop {
        if let Some((rank, status)) = ranks.reap()
            && why.is_none()
        {
            why = Some(Why::Failed { rank, status });
            stage = Stage::Noticing { until: in_grace() };
        }
        if ranks.n_running() == 0 {
            break;
        }
        let next = match wait(events, stage.until()) {
            Some(Event::Signal(SIGCHLD)) => continue,
            Some(Event::EndOfOutput) => {
                n_outputs -= 1;
                continue;
            }
            Some(Event::Signal(signal)) => Some(Why::Signal(signal)),
            Some(Event::NoReader) => Some(Why::NoReader),
            None => args.timeout.map(Why::Timeout),
        };
        why = why.or(next);
        stage = match stage {
            Stage::Running { .. } | Stage::Noticing { .. } => {
                ranks.signal(Signal::TERM);
                Stage::Asked { until: in_grace() }
            }
            // Time is up, or somebody asks twice and does not want to wait.
            Stage::Asked { .. } | Stage::Killed => {
                ranks.signal(Signal::KILL);
                Stage::Killed
            }
        };
    }
    let until = Some(Instant::now() + LAST_OUTPUT);
    while n_outputs > 0 {
        match wait(events, until) {
            Some(Event::EndOfOutput) => n_outputs -= 1,
            Some(_) => {}
            None => break,
        }
    }
    why
}

impl Stage {
    /// When the next stage begins.
    fn until(self) -> Option<Instant> {
        match self {
            Self::Running { until } => until,
            Self::Noticing { until } | Self::Asked { until } => Some(until),
            Self::Killed => None,
        }
    }
}

/// The next event; `None` if none comes in time.
fn wait(events: &Receiver<Event>, until: Option<Instant>) -> Option<Event> {
    match until {
        // The thread that listens to signals can send as long as this one waits.
        None => events.recv().ok(),
        Some(until) => events.recv_timeout(until.saturating_duration_since(Instant::now())).ok(),
    }
}

/// Says why the ranks ended, and picks the exit code.
fn conclude(why: Option<Why>, n_ranks: usize) -> ExitCode {
    let Some(why) = why else { return ExitCode::SUCCESS };
    match why {
        Why::Failed { rank, status } => {
            let others = if n_ranks > 1 { "; the others were ended" } else { "" };
            eprintln!("error: rank {rank} {}{others}", how(status));
        }
        Why::Signal(signal) => eprintln!("error: ended by {}", name(signal)),
        Why::Timeout(timeout) => {
            eprintln!("error: the ranks did not end within {} s", timeout.as_secs_f64());
        }
        // As every program in a pipeline ends when nobody reads on.
        Why::NoReader => {}
    }
    ExitCode::from(match why {
        Why::Failed { status, .. } => match (status.code(), status.signal()) {
            (Some(code), _) => code as u8,
            (None, signal) => of_signal(signal.unwrap_or_default()),
        },
        Why::Signal(signal) => of_signal(signal),
        Why::Timeout(_) => TIMED_OUT,
        Why::NoReader => of_signal(SIGPIPE),
    })
}

/// The exit code that shells give to a program ended by a signal.
fn of_signal(signal: i32) -> u8 {
    128 | signal as u8
}

/// How a rank ended, as `ended with exit code 3`.
fn how(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("ended with exit code {code}"),
        (None, Some(signal)) => format!("was ended by {}", name(signal)),
        (None, None) => status.to_string(),
    }
}

/// As `signal 9 (SIGKILL)`.
fn name(signal: i32) -> String {
    match signal_name(signal) {
        Some(name) => format!("signal {signal} ({name})"),
        None => format!("signal {signal}"),
    }
}
