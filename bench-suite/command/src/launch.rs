//! `foldwire launch`: starts the ranks of a program on this machine, and ends them together.
//!
//! One thread decides. It alone starts, reaps and signals ranks, so that no process number is used
//! after it has been given to somebody else. It sleeps until something happens: the end of a rank
//! or of its output, a signal to this process, or the next deadline. Three threads per rank wait
//! for its end and forward its output.

mod forward;
mod process_guard;
mod processes;

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

use processes::{RankProcesses, ReservedRoot};

/// The exit code after Ctrl-C, as that of a program without a handler. SIGTERM and SIGHUP are not
/// told from it.
const INTERRUPTED: u8 = 130;
/// The exit code after a time limit, as that of timeout(1).
const TIMED_OUT: u8 = 124;
/// How long to wait for output after the last rank: a process that a rank has left behind may hold
/// it open.
const LAST_OUTPUT: Duration = Duration::from_secs(1);

/// What the launcher hears of.
enum LaunchEvent {
    /// A rank has ended.
    RankEnded(usize),
    /// Ctrl-C, SIGTERM or SIGHUP.
    Interrupted,
    /// A rank's output or error output has ended.
    OutputEnded,
    /// This process's output cannot be written.
    Unwritable(OutputError),
}

/// Why the ranks are to end.
#[derive(Debug)]
enum EndReason {
    Failed { rank: usize, status: ExitStatus },
    Interrupted,
    Timeout(Duration),
    Unwritable(OutputError),
}

/// How far the end has come.
#[derive(Debug, Clone, Copy)]
enum LaunchPhase {
    /// No end in sight, except that of the time limit.
    Running { until: Option<Instant> },
    /// A rank has failed; the others may find out for themselves.
    Grace { until: Instant },
    /// All have been asked to end.
    Terminating { until: Instant },
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
    let ranks = RankProcesses::start(args, &root, &token, &sender)?;
    let reason = supervise(args, ranks, &events);
    Ok(conclude(reason, args.ranks)?)
}

/// Turns signals into events, whatever handlers libraries have installed: some that come with
/// networks end the process.
fn listen_to_signals(sender: Sender<LaunchEvent>) -> anyhow::Result<()> {
    // If nobody receives events, the program is at its end.
    ctrlc::set_handler(move || drop(sender.send(LaunchEvent::Interrupted)))
        .context("cannot listen to signals")
}

/// Waits until all ranks have ended and their output is forwarded; reason they had to, if not by
/// themselves.
fn supervise(
    args: &LaunchArgs,
    mut ranks: RankProcesses,
    events: &Receiver<LaunchEvent>,
) -> Option<EndReason> {
    let in_grace = || Instant::now() + args.grace;
    let deadline = args.timeout.map(|timeout| Instant::now() + timeout);
    let mut phase = LaunchPhase::Running { until: deadline };
    let mut reason = None;
    let mut n_outputs = 2 * args.ranks;
    while ranks.n_running() > 0 {
        let next = match wait(events, phase.until()) {
            Some(LaunchEvent::RankEnded(rank)) => {
                if let Some(status) = ranks.reap(rank).filter(|status| !status.success())
                    && reason.is_none()
                {
                    reason = Some(EndReason::Failed { rank, status });
                    let grace = in_grace();
                    let until = deadline.map_or(grace, |deadline| deadline.min(grace));
                    phase = LaunchPhase::Grace { until };
                }
                continue;
            }
            Some(LaunchEvent::OutputEnded) => {
                n_outputs -= 1;
                continue;
            }
            Some(LaunchEvent::Interrupted) => Some(EndReason::Interrupted),
            // Each output says so, but nobody has asked for haste.
            Some(LaunchEvent::Unwritable(_))
                if matches!(phase, LaunchPhase::Terminating { .. } | LaunchPhase::Killed) =>
            {
                continue;
            }
            Some(LaunchEvent::Unwritable(error)) => Some(EndReason::Unwritable(error)),
            None => args.timeout.map(EndReason::Timeout),
        };
        reason = reason.or(next);
        phase = match phase {
            LaunchPhase::Running { .. } | LaunchPhase::Grace { .. } => {
                ranks.signal(Signal::SIGTERM);
                LaunchPhase::Terminating { until: in_grace() }
            }
            // Time is up, or somebody asks twice and does not want to wait.
            LaunchPhase::Terminating { .. } | LaunchPhase::Killed => {
                ranks.signal(Signal::SIGKILL);
                LaunchPhase::Killed
            }
        };
    }
    let until = Some(Instant::now() + LAST_OUTPUT);
    while n_outputs > 0 {
        match wait(events, until) {
            Some(LaunchEvent::OutputEnded) => n_outputs -= 1,
            Some(LaunchEvent::Unwritable(error)) => {
                reason = reason.or(Some(EndReason::Unwritable(error)))
            }
            Some(_) => {}
            None => break,
        }
    }
    reason
}

impl LaunchPhase {
    /// When the next phase begins.
    fn until(self) -> Option<Instant> {
        match self {
            Self::Running { until } => until,
            Self::Grace { until } | Self::Terminating { until } => Some(until),
            Self::Killed => None,
        }
    }
}

/// The next event; `None` if none comes in time.
fn wait(events: &Receiver<LaunchEvent>, until: Option<Instant>) -> Option<LaunchEvent> {
    match until {
        // The handler of signals can send as long as this one waits.
        None => events.recv().ok(),
        Some(until) => events.recv_timeout(until.saturating_duration_since(Instant::now())).ok(),
    }
}

/// Says reason the ranks ended, and picks the exit code.
fn conclude(reason: Option<EndReason>, n_ranks: usize) -> Result<ExitCode, OutputError> {
    let Some(reason) = reason else { return Ok(ExitCode::SUCCESS) };
    let (fault, code) = match reason {
        EndReason::Failed { rank, status } => {
            let code = status.code().map(|code| code as u8);
            let code =
                code.unwrap_or_else(|| signal_exit_code(status.signal().unwrap_or_default()));
            let others = if n_ranks > 1 { "; the others were ended" } else { "" };
            (format!("rank {rank} {}{others}", status_text(status)), code)
        }
        EndReason::Interrupted => ("interrupted; all ranks were ended".to_owned(), INTERRUPTED),
        EndReason::Timeout(timeout) => {
            (format!("the ranks did not end within {} s", timeout.as_secs_f64()), TIMED_OUT)
        }
        EndReason::Unwritable(error) => return Err(error),
    };
    streams::remark(format_args!("error: {fault}"));
    Ok(ExitCode::from(code))
}

/// The exit code that shells give to a program ended by a signal.
fn signal_exit_code(signal: i32) -> u8 {
    128 | signal as u8
}

/// How a rank ended, as `ended with exit code 3`.
fn status_text(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("ended with exit code {code}"),
        (None, Some(signal)) => format!("was ended by {}", signal_name(signal)),
        (None, None) => status.to_string(),
    }
}

/// As `signal 9 (SIGKILL)`.
fn signal_name(signal: i32) -> String {
    match Signal::try_from(signal) {
        Ok(name) => format!("signal {signal} ({name})"),
        Err(_) => format!("signal {signal}"),
    }
}
