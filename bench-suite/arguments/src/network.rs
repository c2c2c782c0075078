//! Options of commands whose ranks run over any backend.

use clap::{Args, ValueEnum};

use crate::values;

/// The backend, its ranks and its network.
#[derive(Debug, Clone, Default, Args)]
pub struct NetworkArgs {
    /// Backend that carries the messages
    #[arg(long, value_enum, default_value_t = BackendArg::Threads)]
    pub backend: BackendArg,

    /// Number of ranks of the threads backend [default: 4; for messages 2]; with other backends the
    /// launcher sets it (mpirun -n 4 …)
    #[arg(long, value_name = "N", value_parser = values::ranks)]
    pub ranks: Option<usize>,

    /// Provider of the libfabric backend, such as tcp, shm, verbs or cxi [default: the best that
    /// all ranks have]
    #[arg(long, value_name = "NAME")]
    pub provider: Option<String>,

    // The most equals foldwire_tcp::MAX_STREAMS. Builds without the feature tcp lack that crate.
    /// Connections per pair of ranks of the tcp backend, from 1 to 16 [default: FOLDWIRE_STREAMS,
    /// or 1]
    #[arg(long, value_name = "N", value_parser = values::within(
        1..=16_usize, "a whole number of connections from 1 to 16 is needed"))]
    pub streams: Option<usize>,

    /// Encrypt the connections of the tcp backend, as with FOLDWIRE_ENCRYPT=1
    #[arg(long)]
    pub encrypt: bool,
}

/// Values of `--backend`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum BackendArg {
    /// ranks are threads of this process
    #[default]
    Threads,
    /// mpirun starts the ranks; the MPI library's own calls are measured too
    Mpi,
    /// `foldwire launch`, mpirun or Slurm starts the ranks
    Libfabric,
    /// sockets; `foldwire launch`, mpirun or Slurm starts the ranks
    Tcp,
}
