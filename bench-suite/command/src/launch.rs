//! `foldwire launch`: starts the ranks of a program on this machine, and ends them together.
//!
//! A single thread starts, reaps and signals ranks. So it never uses a process number that the
//! system has already reused. It sleeps until an event: the end of a rank or of its output, a
//! signal to this process, or the next deadline. Three more threads per rank wait for its end and
//! forward its output. After SIGTERM it reaps no rank before it has killed what the rank has
//! started.

mod forward;
mod process_groups;
mod process_guard;
mod processes;

use std::os::unix::process::ExitStatusExt;
use std::process::{ExitCode, ExitStatus};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use foldwire_arguments::LaunchArgs;
use foldwire_bootstrap::Token;
use foldwire_fields::usage::usage;
use foldwire_workbench::streams::{self, OutputError};
use nix::sys::signal::Signal;

use forward::ForwardCounts;
use processes::{RankProcesses, ReservedRoot};

/// Exit code after Ctrl-C, as for a program without a handler. SIGTERM and SIGHUP cannot be
/// distinguished and give the same code.
const INTERRUPTED: u8 = 130;
/// Exit code after a timeout, as in timeout(1).
const TIMED_OUT: u8 = 124;
/// Time to wait for output after the last rank has ended. A process that a rank has left behind may
/// hold its output open.
const LAST_OUTPUT: Duration = Duration::from_secs(1);
/// After that time, all output is complete once nothing has been read or written for this time.
const IDLE_OUTPUT: Duration = Duration::from_millis(50);

/// Time between looks at processes that ended ranks have started.
const GROUP_POLL: Duration = Duration::from_millis(20);

/// Events that the launcher waits for.
enum LaunchEvent {
    /// A rank has ended.
    RankEnded(usize),
    /// Ctrl-C, SIGTERM or SIGHUP arrived.
    Interrupted,
    /// A rank's stdout or stderr has ended.
    OutputEnded,
    /// This process's output cannot be written.
    Unwritable(OutputError),
}

/// Reason to end the ranks.
#[derive(Debug)]
enum EndReason {
    Failed { rank: usize, status: ExitStatus },
    Interrupted,
    Timeout(Duration),
    Unwritable(OutputError),
}

/// Progress of the end of all ranks.
#[derive(Debug, Clone, Copy)]
enum LaunchPhase {
    /// All ranks run. Only the timeout may end them.
    Running { until: Option<Instant> },
    /// A rank has failed. The others have time to notice and end by themselves.
    Grace { until: Instant },
    /// All ranks have received SIGTERM, and so has what they have started.
    Terminating { until: Instant },
    /// All ranks have received SIGKILL.
    Killed,
}

/// Runs the subcommand. The ranks' output goes to stdout and stderr, and the launcher's own
/// messages to stderr.
///
/// # Errors
///
/// If a rank cannot be started, or the output cannot be written. All started ranks are ended first.
pub(crate) fn run(args: &LaunchArgs) -> anyhow::Result<ExitCode> {
    if let Some(rank) = args.env.iter().filter_map(|arg| arg.rank).find(|&rank| rank >= args.ranks)
    {
        let last = args.ranks - 1;
        bail!(usage!("--env is for rank {rank}, but ranks are 0 to {last}"));
    }
    let (sender, events) = mpsc::channel();
    listen_to_signals(sender.clone())?;
    let root = ReservedRoot::new().context("no port of this machine is free")?;
    let token = Token::random()?;
    let counts = Arc::default();
    let ranks = RankProcesses::start(args, &root, &token, &counts, &sender)?;
    let reason = supervise(args, ranks, &counts, &events);
    Ok(conclude(reason, args.ranks)?)
}

/// Turns signals into events. This replaces handlers that libraries have installed, because some
/// network libraries end the process.
fn listen_to_signals(sender: Sender<LaunchEvent>) -> anyhow::Result<()> {
    // Sending fails only without a receiver, when the program is about to end.
    ctrlc::set_handler(move || drop(sender.send(LaunchEvent::Interrupted)))
        .context("cannot listen to signals")
}

/// Waits until all ranks have ended and their output is forwarded. Returns the reason if they were
/// ended.
fn supervise(
    args: &LaunchArgs,
    mut ranks: RankProcesses,
    counts: &ForwardCounts,
    events: &Receiver<LaunchEvent>,
) -> Option<EndReason> {
    let in_grace = || Instant::now() + args.grace;
    let deadline = args.timeout.map(|timeout| Instant::now() + timeout);
    let mut phase = LaunchPhase::Running { until: deadline };
    let mut reason = None;
    let mut n_outputs = 2 * args.ranks;
    loop {
        let until = match phase {
            _ if ranks.n_running() > 0 => phase.until(),
            LaunchPhase::Terminating { until } if ranks.have_running_groups() => {
                Some(until.min(Instant::now() + GROUP_POLL))
            }
            _ => break,
        };
        let next = match wait(events, until) {
            Some(LaunchEvent::RankEnded(_))
                if matches!(phase, LaunchPhase::Terminating { .. } | LaunchPhase::Killed) =>
            {
                ranks.keep_ended();
                continue;
            }
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
            // The thread of each rank's output reports this. Only the first report counts.
            Some(LaunchEvent::Unwritable(_))
                if matches!(phase, LaunchPhase::Terminating { .. } | LaunchPhase::Killed) =>
            {
                continue;
            }
            Some(LaunchEvent::Unwritable(error)) => Some(EndReason::Unwritable(error)),
            None if phase.until().is_some_and(|until| Instant::now() < until) => continue,
            None => args.timeout.map(EndReason::Timeout),
        };
        reason = reason.or(next);
        phase = match phase {
            LaunchPhase::Running { .. } | LaunchPhase::Grace { .. } => {
                ranks.signal(Signal::SIGTERM);
                LaunchPhase::Terminating { until: in_grace() }
            }
            // The grace period is over, or the user has sent a second signal.
            LaunchPhase::Terminating { .. } | LaunchPhase::Killed => {
                ranks.signal(Signal::SIGKILL);
                LaunchPhase::Killed
            }
        };
    }
    drop(ranks);
    counts.set_ranks_ended();
    wait_for_output(n_outputs, reason, counts, events)
}

/// Waits until the output of ended ranks is forwarded, however slowly it is read, unless a signal
/// asks for the end. Returns the reason why the ranks or their output were ended.
fn wait_for_output(
    mut n_outputs: usize,
    mut reason: Option<EndReason>,
    counts: &ForwardCounts,
    events: &Receiver<LaunchEvent>,
) -> Option<EndReason> {
    let (mut until, mut n_pieces_before) = (Instant::now() + LAST_OUTPUT, None);
    while n_outputs > 0 {
        match wait(events, Some(until)) {
            Some(LaunchEvent::OutputEnded) => n_outputs -= 1,
            Some(LaunchEvent::Unwritable(error)) => {
                reason = reason.or(Some(EndReason::Unwritable(error)));
            }
            Some(LaunchEvent::Interrupted) => return reason.or(Some(EndReason::Interrupted)),
            Some(LaunchEvent::RankEnded(_)) => {}
            None => {
                let n_pieces = counts.n_pieces_if_idle();
                let is_idle = n_pieces.is_some() && n_pieces == n_pieces_before;
                if is_idle || matches!(reason, Some(EndReason::Interrupted)) {
                    break;
                }
                n_pieces_before = n_pieces;
                until = Instant::now() + IDLE_OUTPUT;
            }
        }
    }
    reason
}

impl LaunchPhase {
    /// Time at which the next phase begins.
    fn until(self) -> Option<Instant> {
        match self {
            Self::Running { until } => until,
            Self::Grace { until } | Self::Terminating { until } => Some(until),
            Self::Killed => None,
        }
    }
}

/// Returns the next event, or `None` if there is none before `until`.
fn wait(events: &Receiver<LaunchEvent>, until: Option<Instant>) -> Option<LaunchEvent> {
    match until {
        // The signal handler keeps a sender, so this can only wait, not fail.
        None => events.recv().ok(),
        Some(until) => events.recv_timeout(until.saturating_duration_since(Instant::now())).ok(),
    }
}

/// Prints the reason why the ranks were ended, and returns the exit code.
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

/// Exit code that shells use for a program ended by a signal.
fn signal_exit_code(signal: i32) -> u8 {
    128 | signal as u8
}

/// Description of a rank's end, as `ended with exit code 3`.
fn status_text(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("ended with exit code {code}"),
        (None, Some(signal)) => format!("was ended by {}", signal_name(signal)),
        (None, None) => status.to_string(),
    }
}

/// Number and name of a signal, as `signal 9 (SIGKILL)`.
fn signal_name(signal: i32) -> String {
    match Signal::try_from(signal) {
        Ok(name) => format!("signal {signal} ({name})"),
        Err(_) => format!("signal {signal}"),
    }
}
