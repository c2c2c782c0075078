//! `foldwire launch`: starts the ranks of a program on this machine, and ends them together.
//!
//! One thread decides. It alone starts, reaps and signals ranks, so that no process number is used
//! after it has been given to somebody else. It sleeps until something happens: the end of a rank
//! or of its output, a signal to this process, or the next deadline. Three threads per rank wait
//! for its end and forward its output.

mod forward;
mod keeper;
mod ranks;

use std::os::unix::process::ExitStatusExt;
use std::process::{ExitCode, ExitStatus};
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::{Duration, Instant};

use anyhow::Context;
use foldwire_arguments::LaunchArgs;
use foldwire_bootstrap::Token;
use foldwire_fields::usage::UsageError;
use foldwire_workbench::streams::{self, OutputError};
use nix::sys::signal::Signal;

use ranks::{Ranks, ReservedRoot};

/// The exit code after Ctrl-C, as that of a program without a handler. SIGTERM and SIGHUP are not
/// told from it.
const INTERRUPTED: u8 = 130;
/// The exit code after a time limit, as that of timeout(1).
const TIMED_OUT: u8 = 124;
/// How long to wait for output after the last rank: a process that a rank has left behind may hold
/// it open.
const LAST_OUTPUT: Duration = Duration::from_secs(1);

/// What the launcher hears of.
enum Event {
    /// A rank has ended.
    EndOfRank(usize),
    /// Ctrl-C, SIGTERM or SIGHUP.
    Interrupted,
    /// A rank's output or error output has ended.
    EndOfOutput,
    /// This process's output cannot be written.
    Unwritable(OutputError),
}

/// Why the ranks are to end.
#[derive(Debug)]
enum Why {
    Failed { rank: usize, status: ExitStatus },
    Interrupted,
    Timeout(Duration),
    Unwritable(OutputError),
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

/// Runs the subcommand. The ranks' output goes to stdout and stderr; what the launcher has to say
/// goes to stderr.
///
/// # Errors
///
/// When a rank cannot be started, or the output cannot be written; all that were started are ended.
pub(crate) fn run(args: &LaunchArgs) -> anyhow::Result<ExitCode> {
    if let Some(rank) = args.env.iter().filter_map(|arg| arg.rank).find(|&rank| rank >= args.ranks)
    {
        let last = args.ranks - 1;
        return Err(UsageError::new(format!(
            "--env is for rank {rank}, but ranks are 0 to {last}"
        ))
        .into());
    }
    let (sender, events) = mpsc::channel();
    listen_to_signals(sender.clone())?;
    let root = ReservedRoot::new().context("no port of this machine is free")?;
    let token = Token::random()?;
    let ranks = Ranks::start(args, &root, &token, &sender)?;
    let why = supervise(args, ranks, &events);
    Ok(conclude(why, args.ranks)?)
}

/// Turns signals into events, whatever handlers libraries have installed: some that come with
/// networks end the process.
fn listen_to_signals(sender: Sender<Event>) -> anyhow::Result<()> {
    // If nobody receives events, the program is at its end.
    ctrlc::set_handler(move || drop(sender.send(Event::Interrupted)))
        .context("cannot listen to signals")
}

/// Waits until all ranks have ended and their output is forwarded; why they had to, if not by
/// themselves.
fn supervise(args: &LaunchArgs, mut ranks: Ranks, events: &Receiver<Event>) -> Option<Why> {
    let in_grace = || Instant::now() + args.grace;
    let deadline = args.timeout.map(|timeout| Instant::now() + timeout);
    let mut stage = Stage::Running { until: deadline };
    let mut why = None;
    let mut n_outputs = 2 * args.ranks;
    while ranks.n_running() > 0 {
        let next = match wait(events, stage.until()) {
            Some(Event::EndOfRank(rank)) => {
                if let Some(status) = ranks.reap(rank).filter(|status| !status.success())
                    && why.is_none()
                {
                    why = Some(Why::Failed { rank, status });
                    let grace = in_grace();
                    let until = deadline.map_or(grace, |deadline| deadline.min(grace));
                    stage = Stage::Noticing { until };
                }
                continue;
            }
            Some(Event::EndOfOutput) => {
                n_outputs -= 1;
                continue;
            }
            Some(Event::Interrupted) => Some(Why::Interrupted),
            // Each output says so, but nobody has asked for haste.
            Some(Event::Unwritable(_)) if matches!(stage, Stage::Asked { .. } | Stage::Killed) => {
                continue;
            }
            Some(Event::Unwritable(error)) => Some(Why::Unwritable(error)),
            None => args.timeout.map(Why::Timeout),
        };
        why = why.or(next);
        stage = match stage {
            Stage::Running { .. } | Stage::Noticing { .. } => {
                ranks.signal(Signal::SIGTERM);
                Stage::Asked { until: in_grace() }
            }
            // Time is up, or somebody asks twice and does not want to wait.
            Stage::Asked { .. } | Stage::Killed => {
                ranks.signal(Signal::SIGKILL);
                Stage::Killed
            }
        };
    }
    let until = Some(Instant::now() + LAST_OUTPUT);
    while n_outputs > 0 {
        match wait(events, until) {
            Some(Event::EndOfOutput) => n_outputs -= 1,
            Some(Event::Unwritable(error)) => why = why.or(Some(Why::Unwritable(error))),
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
        // The handler of signals can send as long as this one waits.
        None => events.recv().ok(),
        Some(until) => events.recv_timeout(until.saturating_duration_since(Instant::now())).ok(),
    }
}

/// Says why the ranks ended, and picks the exit code.
fn conclude(why: Option<Why>, n_ranks: usize) -> Result<ExitCode, OutputError> {
    let Some(why) = why else { return Ok(ExitCode::SUCCESS) };
    let (fault, code) = match why {
        Why::Failed { rank, status } => {
            let code = status.code().map(|code| code as u8);
            let code = code.unwrap_or_else(|| of_signal(status.signal().unwrap_or_default()));
            let others = if n_ranks > 1 { "; the others were ended" } else { "" };
            (format!("rank {rank} {}{others}", how(status)), code)
        }
        Why::Interrupted => ("interrupted; all ranks were ended".to_owned(), INTERRUPTED),
        Why::Timeout(timeout) => {
            (format!("the ranks did not end within {} s", timeout.as_secs_f64()), TIMED_OUT)
        }
        Why::Unwritable(error) => return Err(error),
    };
    streams::remark(format_args!("error: {fault}"));
    Ok(ExitCode::from(code))
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
    match Signal::try_from(signal) {
        Ok(name) => format!("signal {signal} ({name})"),
        Err(_) => format!("signal {signal}"),
    }
}
