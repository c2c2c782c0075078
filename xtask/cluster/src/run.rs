//! `cluster run`: runs a program as one or more ranks in each node of a cluster on this machine. A
//! node is a network namespace with its own address.
//!
//! Without `--mpi`, each rank gets the environment that a launcher sets: `FOLDWIRE_RANK`, `_SIZE`,
//! `_ROOT`, `_TOKEN`, and its own address in `FOLDWIRE_ADDRESS`. Its output is forwarded line by
//! line with the rank in front. When a rank fails, the other ranks have some seconds to end by
//! themselves, and are then killed.
//!
//! The token also marks the processes of the run. At the end of the run, or on Ctrl-C, this command
//! kills every process with the token in its environment. If this command itself is killed, it
//! cannot do so. The kernel then kills the processes that it started: the ranks, or mpirun.

use super::agent::enter;
use super::counters::Counters;
use super::mpi::{self, MpiChoice};
use super::nodes::{ClusterName, NodeProcess, address, processes};
use anyhow::{Context, bail, ensure};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

/// Options of `cargo xtask cluster run`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Number of ranks, in the first nodes [default: as many as fit in all nodes]
    #[arg(short, value_name = "K")]
    n: Option<usize>,
    /// Number of consecutive ranks in a node
    #[arg(long, value_name = "K", default_value_t = 1, conflicts_with = "mpi")]
    per_node: usize,
    /// Start the ranks with this MPI's mpirun, over TCP
    #[arg(long, value_enum)]
    mpi: Option<MpiChoice>,
    /// Folder of that MPI's installation, such as target/current-mpi/openmpi [default: the
    /// system's]
    #[arg(long, value_name = "DIR", requires = "mpi")]
    mpi_home: Option<PathBuf>,
    /// More arguments for mpirun, split at spaces
    #[arg(long, value_name = "ARGS", allow_hyphen_values = true, requires = "mpi")]
    mpirun_args: Vec<String>,
    /// Print the kernel's counters of each node's link for the run: as a table on standard error,
    /// or as one line of JSON on standard output
    #[arg(long, value_name = "FORM", num_args = 0..=1, require_equals = true,
        default_missing_value = "table")]
    node_counters: Option<CounterFormat>,
    /// Forward output without the rank in front
    #[arg(long, conflicts_with = "mpi")]
    no_prefix: bool,
    /// Seconds that the other ranks have to end by themselves after a rank has failed
    #[arg(long, value_name = "SECONDS", default_value_t = 5, conflicts_with = "mpi")]
    grace: u64,
    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    program: Vec<String>,
}

/// Output format of the counters.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum CounterFormat {
    Table,
    Json,
}

/// Environment variable that holds the run's token.
const TOKEN: &str = "FOLDWIRE_TOKEN";
/// Variable that launchers should set, and its value, as in
/// `foldwire_libfabric::RECOMMENDED_ENVIRONMENT`.
const RXM_BUFFER: (&str, &str) = ("FI_OFI_RXM_BUFFER_SIZE", "131072");

pub(super) fn run(cluster: &ClusterName, args: &Args) -> anyhow::Result<()> {
    let (size, per_node) = (cluster.size()?, args.per_node.max(1));
    let most = size * per_node;
    let n_ranks = args.n.unwrap_or(most);
    ensure!(
        (1..=most).contains(&n_ranks),
        "cluster `{cluster}` has {size} nodes, and a node takes {per_node} ranks: use -n 1 to \
         -n {most}, or another --per-node"
    );
    let n_nodes = n_ranks.div_ceil(per_node);
    let read = || -> anyhow::Result<Vec<_>> {
        (0..n_nodes).map(|index| Counters::read(cluster, index)).collect()
    };
    let before = read()?;
    let token = random_token()?;
    end_when_interrupted(cluster, n_nodes, &token)?;
    let result = match args.mpi {
        Some(mpi) => {
            let words = args.mpirun_args.iter().flat_map(|words| words.split_whitespace());
            let mpirun_args = words.collect();
            let variable = (TOKEN, token.as_str());
            let home = args.mpi_home.as_deref();
            let job = mpi::MpirunJob { mpi, home, cluster, n_ranks, mpirun_args, variable };
            mpi::run(&job, &args.program)
        }
        None => {
            let grace = Duration::from_secs(args.grace);
            let has_prefix = !args.no_prefix;
            let ranks =
                RankLauncher { cluster, n_ranks, per_node, token: &token, grace, has_prefix };
            ranks.run(&args.program)
        }
    };
    end_processes(cluster, n_nodes, &token)?;
    if let Some(form) = args.node_counters {
        let after = read()?;
        let counters: Vec<_> =
            after.iter().zip(&before).map(|(after, before)| after.since(*before)).collect();
        match form {
            CounterFormat::Table => eprint!("{}", Counters::table(&counters)),
            CounterFormat::Json => println!("{}", serde_json::to_string(&counters)?),
        }
    }
    result
}

/// Runs ranks that get their rank and size from the environment.
pub(super) struct RankLauncher<'a> {
    pub(super) cluster: &'a ClusterName,
    pub(super) n_ranks: usize,
    /// Number of ranks in a node.
    pub(super) per_node: usize,
    pub(super) token: &'a str,
    pub(super) grace: Duration,
    pub(super) has_prefix: bool,
}

impl RankLauncher<'_> {
    /// Runs a program (and its arguments) once for each rank, in the first nodes.
    ///
    /// # Errors
    /// The first failure of a rank that was detected, or the error that kept a rank from starting.
    pub(super) fn run(&self, program: &[String]) -> anyhow::Result<()> {
        // Below the ports that the kernel gives to clients, so the port is probably free.
        let port = 20000 + u16::from_str_radix(&self.token[..4], 16)? % 12000;
        let root = format!("{}:{port}", address(0));
        let mut children = Vec::new();
        for rank in 0..self.n_ranks {
            match self.start(rank, &root, program) {
                Ok(child) => children.push(child),
                Err(error) => {
                    kill(&mut children);
                    return Err(error.context(format!("cannot start rank {rank}")));
                }
            }
        }
        let forwarders: Vec<_> = children
            .iter_mut()
            .enumerate()
            .flat_map(|(rank, child)| {
                let prefix = if self.has_prefix { format!("[{rank}] ") } else { String::new() };
                let (out, err) = (child.stdout.take(), child.stderr.take());
                let out = out.map(|from| forward(from, io::stdout(), prefix.clone()));
                let err = err.map(|from| forward(from, io::stderr(), prefix));
                [out, err].into_iter().flatten()
            })
            .collect();
        let result = wait(&mut children, self.grace);
        // A process that a rank left behind would keep the output open.
        end_processes(self.cluster, self.n_ranks.div_ceil(self.per_node), self.token)?;
        for forwarder in forwarders {
            // The thread does not panic. It stops when the output is closed.
            let _ = forwarder.join();
        }
        result
    }

    fn start(&self, rank: usize, root: &str, program: &[String]) -> anyhow::Result<Child> {
        let node = rank / self.per_node;
        tied_to_this_process(&enter(self.cluster, node))
            .args(program)
            .env("FOLDWIRE_RANK", rank.to_string())
            .env("FOLDWIRE_SIZE", self.n_ranks.to_string())
            .env("FOLDWIRE_ROOT", root)
            .env("FOLDWIRE_ADDRESS", address(node).to_string())
            .env(
                RXM_BUFFER.0,
                std::env::var_os(RXM_BUFFER.0).unwrap_or_else(|| RXM_BUFFER.1.into()),
            )
            .env(TOKEN, self.token)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .context("cannot run setpriv; it comes with util-linux")
    }
}

/// Returns the command in a form that is killed when this process ends.
pub(super) fn tied_to_this_process(command: &Command) -> Command {
    let mut tied = Command::new("setpriv");
    tied.args(["--pdeathsig", "KILL", "--"]).arg(command.get_program()).args(command.get_args());
    tied
}

/// Waits for all ranks. `grace` after a rank has failed, kills the ranks that still run.
fn wait(children: &mut [Child], grace: Duration) -> anyhow::Result<()> {
    let mut failed: Option<(Instant, usize, ExitStatus)> = None;
    loop {
        let mut n_running = 0;
        for (rank, child) in children.iter_mut().enumerate() {
            match child.try_wait()? {
                None => n_running += 1,
                Some(status) if !status.success() && failed.is_none() => {
                    failed = Some((Instant::now(), rank, status));
                }
                Some(_) => {}
            }
        }
        if let Some((since, rank, status)) = failed
            && (n_running == 0 || since.elapsed() >= grace)
        {
            kill(children);
            if n_running > 0 {
                bail!(
                    "rank {rank} failed ({status}); {n_running} others did not end and were killed"
                );
            }
            bail!("rank {rank} failed ({status})");
        }
        if n_running == 0 {
            return Ok(());
        }
        sleep(Duration::from_millis(10));
    }
}

fn kill(children: &mut [Child]) {
    for child in children {
        // Both calls fail only for a child that has already ended.
        let _ = child.kill();
        let _ = child.wait();
    }
}

/// Kills the remaining processes of a run in the first nodes.
fn end_processes(cluster: &ClusterName, n_nodes: usize, token: &str) -> anyhow::Result<()> {
    for index in 0..n_nodes {
        let left = processes(&cluster.node(index))?;
        left.iter()
            .filter(|process| process.has_variable(TOKEN, token))
            .for_each(NodeProcess::kill);
    }
    Ok(())
}

/// Kills the processes of the run when this command receives a signal to end. The thread that waits
/// for them then reports that they failed.
fn end_when_interrupted(cluster: &ClusterName, n_nodes: usize, token: &str) -> anyhow::Result<()> {
    let mut signals = Signals::new([SIGHUP, SIGINT, SIGTERM]).context("cannot handle signals")?;
    let (cluster, token) = (cluster.clone(), token.to_owned());
    thread::spawn(move || {
        for _ in signals.forever() {
            eprintln!("interrupted: ending the run");
            // If this fails, the run continues, and the next signal tries again.
            if let Err(error) = end_processes(&cluster, n_nodes, &token) {
                eprintln!("cannot end it: {error:#}");
            }
        }
    });
    Ok(())
}

/// Copies lines in a thread, with `prefix` in front of each.
fn forward(
    from: impl Read + Send + 'static,
    mut to: impl Write + Send + 'static,
    prefix: String,
) -> thread::JoinHandle<()> {
    thread::spawn(move || {
        let mut from = BufReader::new(from);
        let mut line = prefix.clone().into_bytes();
        while from.read_until(b'\n', &mut line).is_ok_and(|n| n > 0) {
            if line.last() != Some(&b'\n') {
                line.push(b'\n');
            }
            // One write for each line, so that the lines of ranks do not mix. A closed output does
            // not stop the rank.
            let _ = to.write_all(&line).and_then(|()| to.flush());
            line.truncate(prefix.len());
        }
    })
}

/// Returns 128 random bits in hexadecimal.
pub(super) fn random_token() -> anyhow::Result<String> {
    let mut bytes = [0; 16];
    let read = File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut bytes));
    read.context("cannot read /dev/urandom")?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
