//! Starts the ranks of a program on this machine, and ends them together. Two commands `foldwire`
//! have `launch`: that of the benchmark suite, and that of the Python package. For Unix.
//!
//! A single thread starts, reaps and signals ranks. So it never uses a process number that the
//! system has already reused. It sleeps until an event: the end of a rank or of its output, a
//! signal to this process, or the next deadline. Three more threads per rank wait for its end and
//! forward its output. After SIGTERM it reaps no rank before it has killed what the rank has
//! started.
#![cfg(unix)]

mod ffi;
mod forward;
mod process_groups;
mod process_guard;
mod processes;

use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::{Duration, Instant};

use foldwire_bootstrap::Token;
use nix::errno::Errno;
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

/// The system does not start a rank, or a thread that watches it.
const NO_RANK: &str = "cannot start a rank; perhaps a limit of processes, files or memory is too \
                       low (ulimit -u, -n, -v)";

/// Time between looks at processes that ended ranks have started.
const GROUP_POLL: Duration = Duration::from_millis(20);

/// Ranks to start.
#[derive(Clone, Debug)]
pub struct Launch {
    /// The program and its arguments.
    pub program: Vec<OsString>,
    /// Number of ranks.
    pub n_ranks: usize,
    /// Variables of the environment.
    pub variables: Vec<Variable>,
    /// True if each line of output begins with its rank. A single rank has no such prefix.
    pub has_prefix: bool,
    /// Time after which all ranks are ended.
    pub timeout: Option<Duration>,
    /// Time that the other ranks have after a failure, and again after SIGTERM.
    pub grace: Duration,
}

/// A variable of the environment, for one rank or all.
#[derive(Clone, Debug)]
pub struct Variable {
    /// The rank. `None` for all.
    pub rank: Option<usize>,
    /// Name of the variable.
    pub name: String,
    /// Value of the variable.
    pub value: String,
}

/// Reason why a launch did not run to its end.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LaunchError {
    /// A variable is for a rank that does not exist.
    #[error("--env is for rank {rank}, but ranks are 0 to {last}")]
    Rank {
        /// The rank.
        rank: usize,
        /// The last rank.
        last: usize,
    },
    /// The program cannot be started.
    #[error(
        "cannot start `{program}` ({error}); give a program in PATH, or a path such as ./program"
    )]
    Program {
        /// The program.
        program: String,
        /// The system's error.
        error: io::Error,
    },
    /// The ranks' output cannot be written.
    #[error("the output cannot be written: {0}")]
    Output(io::Error),
    /// The system lacks what a launch needs.
    #[error("{what}: {error}")]
    System {
        /// The step that failed.
        what: &'static str,
        /// The system's words.
        error: String,
    },
}

impl LaunchError {
    /// Returns whether the caller asked for something that cannot be.
    #[must_use]
    pub const fn is_usage(&self) -> bool {
        matches!(self, Self::Rank { .. } | Self::Program { .. })
    }

    /// The error of a program that the system does not start.
    fn of_start(program: &OsStr, error: io::Error) -> Self {
        let limits = [Errno::EAGAIN, Errno::ENOMEM, Errno::EMFILE, Errno::ENFILE];
        let code = error.raw_os_error();
        if limits.iter().any(|&limit| code == Some(limit as i32)) {
            return Self::system(NO_RANK)(error);
        }
        Self::Program { program: program.display().to_string(), error }
    }

    fn system<E: ToString>(what: &'static str) -> impl FnOnce(E) -> Self {
        move |error| Self::System { what, error: error.to_string() }
    }
}

/// Events that the launcher waits for.
enum LaunchEvent {
    /// A rank has ended.
    RankEnded(usize),
    /// Ctrl-C, SIGTERM or SIGHUP arrived.
    Interrupted,
    /// A rank's stdout or stderr has ended.
    OutputEnded,
    /// This process's output cannot be written.
    Unwritable(io::Error),
}

/// Reason to end the ranks.
#[derive(Debug)]
enum EndReason {
    Failed { rank: usize, status: ExitStatus },
    Interrupted,
    Timeout(Duration),
    Unwritable(io::Error),
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

/// Starts ranks, and waits for their end. Their output goes to stdout and stderr, and the
/// launcher's own messages to stderr. Returns the exit code. A process calls this once: it replaces
/// the handlers of SIGINT, SIGTERM and SIGHUP for good. The process and its
/// ranks go on to ignore signals that it ignores at the start, as under nohup. (If a network
/// library has installed a handler of its own before, the process no longer ignores that signal.)
///
/// # Errors
///
/// If a rank cannot be started, or the output cannot be written. All started ranks are ended first.
pub fn run(launch: &Launch) -> Result<u8, LaunchError> {
    let last = launch.n_ranks.saturating_sub(1);
    let mut ranks = launch.variables.iter().filter_map(|variable| variable.rank);
    if let Some(rank) = ranks.find(|&rank| rank > last) {
        return Err(LaunchError::Rank { rank, last });
    }
    let (sender, events) = mpsc::channel();
    listen_to_signals(sender.clone())?;
    let root =
        ReservedRoot::new().map_err(LaunchError::system("no port of this machine is free"))?;
    let counts = Arc::default();
    let ranks = RankProcesses::start(launch, &root, &counts, &sender)?;
    let reason = supervise(launch, ranks, &counts, &events);
    conclude(reason, launch.n_ranks)
}

/// Returns a new secret.
fn secret() -> Result<Token, LaunchError> {
    Token::random().map_err(LaunchError::system("no random numbers"))
}

/// Turns signals into events, except those that this process ignores. This replaces handlers that
/// libraries have installed, because some network libraries end the process.
fn listen_to_signals(sender: Sender<LaunchEvent>) -> Result<(), LaunchError> {
    let mut ignored = vec![Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP];
    ignored.retain(|&signal| ffi::is_ignored(signal));
    // Sending fails only without a receiver, when the program is about to end.
    ctrlc::set_handler(move || drop(sender.send(LaunchEvent::Interrupted)))
        .map_err(LaunchError::system("cannot listen to signals"))?;
    let restored = ignored.into_iter().try_for_each(ffi::ignore);
    restored.map_err(LaunchError::system("cannot ignore signals"))
}

/// Waits until all ranks have ended and their output is forwarded. Returns the reason if they were
/// ended.
fn supervise(
    launch: &Launch,
    mut ranks: RankProcesses,
    counts: &ForwardCounts,
    events: &Receiver<LaunchEvent>,
) -> Option<EndReason> {
    let in_grace = || Instant::now() + launch.grace;
    let deadline = launch.timeout.map(|timeout| Instant::now() + timeout);
    let mut phase = LaunchPhase::Running { until: deadline };
    let mut reason = None;
    let mut n_outputs = 2 * launch.n_ranks;
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
            None => launch.timeout.map(EndReason::Timeout),
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
fn conclude(reason: Option<EndReason>, n_ranks: usize) -> Result<u8, LaunchError> {
    let Some(reason) = reason else { return Ok(0) };
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
        EndReason::Unwritable(error) => return Err(LaunchError::Output(error)),
    };
    // If stderr cannot be written, nothing is left to say it on.
    let _ = io::stderr().write_all(format!("error: {fault}\n").as_bytes());
    Ok(code)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_program_that_cannot_be_run_is_an_error_of_usage() {
        for (errno, is_usage) in [
            (Errno::ENOENT, true),
            (Errno::EACCES, true),
            (Errno::ENOEXEC, true),
            (Errno::ETXTBSY, true),
            (Errno::ENAMETOOLONG, true),
            (Errno::ELOOP, true),
            (Errno::E2BIG, true),
            (Errno::EAGAIN, false),
            (Errno::EMFILE, false),
            (Errno::ENOMEM, false),
            (Errno::ENFILE, false),
        ] {
            let error = io::Error::from_raw_os_error(errno as i32);
            let error = LaunchError::of_start(OsStr::new("program"), error);
            assert_eq!(error.is_usage(), is_usage, "{error}");
        }
    }
}
