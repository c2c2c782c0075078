//! The processes of a launch: their start and their end.

use std::io::{self, IsTerminal};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStderr, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::thread;

use foldwire_bootstrap::{Root, Token};
use nix::errno::Errno;
use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::{Id, WaitPidFlag, waitid};
use nix::unistd::Pid;
use socket2::{Domain, Socket, Type};

use super::forward::{ForwardCounts, forward};
use super::process_groups;
use super::process_guard::ProcessGuard;
use super::{Launch, LaunchError, LaunchEvent, NO_RANK, secret};

/// The variable of `foldwire_libfabric::RECOMMENDED_ENVIRONMENT`. It is copied here, because the
/// launcher is also built without libfabric.
const RXM_BUFFER: (&str, &str) = ("FI_OFI_RXM_BUFFER_SIZE", "131072");

/// A port of this machine for rank 0.
pub(super) struct ReservedRoot {
    root: Root,
    /// Reserves the port on Linux. With SO_REUSEADDR, rank 0 can still listen at it. On other
    /// systems rank 0 could not, so the socket is closed and the port is not reserved.
    _socket: Option<Socket>,
}

impl ReservedRoot {
    pub(super) fn new() -> io::Result<Self> {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        socket.set_reuse_address(true)?;
        socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into())?;
        let port = socket.local_addr()?.as_socket_ipv4().map_or(0, |address| address.port());
        let root = Root::loopback(port);
        Ok(Self { root, _socket: cfg!(target_os = "linux").then_some(socket) })
    }
}

/// The processes of the ranks.
///
/// Each is the leader of its own process group, so that signals also reach the processes that it
/// has started. A group is signalled only before its leader has been reaped, so its number cannot
/// belong to another one. If this process is killed, the guard ends the ranks.
pub(super) struct RankProcesses {
    /// A process per rank. `None` after it has been reaped.
    unreaped: Vec<Option<Child>>,
    /// Ranks that have ended and are kept, so that signals still reach their groups.
    n_ended: usize,
    guard: ProcessGuard,
}

impl RankProcesses {
    /// Starts all ranks and forwards their output.
    pub(super) fn start(
        launch: &Launch,
        root: &ReservedRoot,
        counts: &Arc<ForwardCounts>,
        events: &Sender<LaunchEvent>,
    ) -> Result<Self, LaunchError> {
        let guard = ProcessGuard::start()
            .map_err(LaunchError::system("cannot start sh, which ends ranks"))?;
        let mut ranks = Self { unreaped: Vec::new(), n_ended: 0, guard };
        let (token, job) = (secret()?, secret()?);
        for rank in 0..launch.n_ranks {
            let spawned = command(launch, rank, root, &token, &job).spawn();
            let mut child =
                spawned.map_err(|error| LaunchError::of_start(&launch.program[0], error))?;
            let (pid, stdout, stderr) = (pid(&child), child.stdout.take(), child.stderr.take());
            // Before anything else can fail, so that the rank is ended then.
            ranks.unreaped.push(Some(child));
            ranks.update_guard();
            watch(rank, pid, stdout, stderr, prefix(launch, rank), counts, events)
                .map_err(LaunchError::system(NO_RANK))?;
        }
        Ok(ranks)
    }

    /// Reaps a rank after [`LaunchEvent::RankEnded`], and returns its exit status.
    pub(super) fn reap(&mut self, rank: usize) -> Option<ExitStatus> {
        let mut child = self.unreaped[rank].take()?;
        // Update the guard first, before another process can get this number.
        self.update_guard();
        // The rank has ended, and no other thread reaps it, so this neither blocks nor fails.
        child.wait().ok()
    }

    fn update_guard(&mut self) {
        self.guard.set_groups(self.unreaped.iter().flatten().map(pid));
    }

    /// Counts a rank as ended after [`LaunchEvent::RankEnded`], but does not reap it.
    pub(super) fn keep_ended(&mut self) {
        self.n_ended += 1;
    }

    pub(super) fn n_running(&self) -> usize {
        self.unreaped.iter().flatten().count() - self.n_ended
    }

    /// Returns whether a process of the ranks' groups runs: a rank, or what it has started. This
    /// reads all of `/proc`.
    pub(super) fn have_running_groups(&self) -> bool {
        let groups: Vec<Pid> = self.unreaped.iter().flatten().map(pid).collect();
        process_groups::have_processes(&groups)
    }

    /// Sends a signal to the process groups of all ranks that have not been reaped.
    pub(super) fn signal(&self, signal: Signal) {
        for child in self.unreaped.iter().flatten() {
            // This fails if all processes of the group have ended.
            let _ = killpg(pid(child), signal);
        }
    }
}

impl Drop for RankProcesses {
    /// Kills and reaps all ranks, if another one could not be started, and all that kept ones have
    /// started.
    fn drop(&mut self) {
        self.signal(Signal::SIGKILL);
        // Update the guard first, before other processes can get these numbers.
        self.guard.set_groups([].into_iter());
        for child in self.unreaped.iter_mut().flatten() {
            let _ = child.wait();
        }
    }
}

fn pid(child: &Child) -> Pid {
    Pid::from_raw(child.id().cast_signed())
}

/// Starts the threads that forward a rank's output and wait for its end.
fn watch(
    rank: usize,
    pid: Pid,
    stdout: Option<ChildStdout>,
    stderr: Option<ChildStderr>,
    prefix: String,
    counts: &Arc<ForwardCounts>,
    events: &Sender<LaunchEvent>,
) -> io::Result<()> {
    // Both exist, because the command requests pipes.
    if let Some(stdout) = stdout {
        forward(stdout, io::stdout(), prefix.clone(), counts.clone(), events.clone())?;
    }
    if let Some(stderr) = stderr {
        forward(stderr, io::stderr(), prefix, counts.clone(), events.clone())?;
    }
    report_end(rank, pid, events.clone())
}

/// Waits for the end of a rank in a separate thread, without reaping it.
fn report_end(rank: usize, pid: Pid, events: Sender<LaunchEvent>) -> io::Result<()> {
    let waits = move || {
        let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT;
        while waitid(Id::Pid(pid), flags) == Err(Errno::EINTR) {}
        // Sending fails only without a receiver, when the program is about to end.
        let _ = events.send(LaunchEvent::RankEnded(rank));
    };
    thread::Builder::new().spawn(waits).map(drop)
}

fn command(
    launch: &Launch,
    rank: usize,
    root: &ReservedRoot,
    token: &Token,
    job: &Token,
) -> Command {
    let mut command = Command::new(&launch.program[0]);
    command
        .args(&launch.program[1..])
        .env("FOLDWIRE_RANK", rank.to_string())
        .env("FOLDWIRE_SIZE", launch.n_ranks.to_string())
        .env("FOLDWIRE_ROOT", root.root.to_string())
        .env("FOLDWIRE_JOB", job.reveal())
        .env("FOLDWIRE_TOKEN", token.reveal())
        .env(RXM_BUFFER.0, std::env::var_os(RXM_BUFFER.0).unwrap_or_else(|| RXM_BUFFER.1.into()))
        .stdin(if rank == 0 && !io::stdin().is_terminal() {
            Stdio::inherit()
        } else {
            Stdio::null()
        })
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0);
    for variable in launch.variables.iter().filter(|it| it.rank.is_none_or(|only| only == rank)) {
        command.env(&variable.name, &variable.value);
    }
    command
}

/// Prefix of a rank's lines, `[2] `, with the same width for all ranks. Empty with a single rank.
fn prefix(launch: &Launch, rank: usize) -> String {
    if !launch.has_prefix || launch.n_ranks == 1 {
        return String::new();
    }
    let width = (launch.n_ranks - 1).to_string().len();
    format!("[{rank:width$}] ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn launch(n_ranks: usize, has_prefix: bool) -> Launch {
        let (program, grace) = (vec!["true".into()], std::time::Duration::ZERO);
        Launch { program, n_ranks, variables: Vec::new(), has_prefix, timeout: None, grace }
    }

    #[test]
    fn prefixes_are_as_wide_for_every_rank() {
        assert_eq!(prefix(&launch(10, true), 3), "[3] ");
        assert_eq!(prefix(&launch(11, true), 3), "[ 3] ");
        assert_eq!(prefix(&launch(11, true), 10), "[10] ");
        assert_eq!(prefix(&launch(1, true), 0), "");
        assert_eq!(prefix(&launch(4, false), 0), "");
    }

    #[test]
    fn rank_0_can_listen_at_a_port_that_is_reserved_and_others_get_another() {
        let root = ReservedRoot::new().unwrap();
        let other = ReservedRoot::new().unwrap();
        let _listener = std::net::TcpListener::bind(root.root.to_string()).unwrap();
        assert_ne!(root.root, other.root);
    }
}
