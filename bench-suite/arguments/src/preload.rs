//! Options of `foldwire preload`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;

const EXAMPLES: &str = "\
Examples:
  foldwire preload -- mpirun -n 4 ./program --its options
      Long collectives go through Foldwire without loss. A line at the end summarises them.
  foldwire preload --bound rel:1e-3 -- mpirun -n 4 ./program
      Each operand is within 1/1000 of the range of all ranks' values.
  foldwire preload --print -- mpirun -n 4 python3 script.py
      Prints the command, and does not run it.

The program's own libraries determine the library to preload (libmpi.so.40: Open MPI; libmpich.so.12
or libmpi.so.12: MPICH; libmpi_abi.so: the standard ABI of MPI 5). For scripts, the launcher's
version determines it. The library must be beside this command, or named with --library. To build
all three:
  cargo build --release -p foldwire-preload-openmpi -p foldwire-preload-mpich \\
    -p foldwire-preload-mpi-abi

All ranks receive all FOLDWIRE_… variables. bindings/mpi-preload/README.md describes them. Other
libraries to preload belong in LD_PRELOAD before this command. Foldwire's is loaded first:
  LD_PRELOAD=tool.so foldwire preload -- mpirun -n 4 ./program";

/// Options of `foldwire preload`.
#[derive(Debug, Clone, Args)]
#[command(after_help = EXAMPLES)]
pub struct PreloadArgs {
    /// How to send values: off (not through Foldwire), raw (uncompressed), lossless, or with a
    /// bound on each operand
    #[arg(long, value_name = "off|raw|lossless|rel:X|abs:X|psnr:X")]
    pub bound: Option<String>,

    /// The library to preload
    #[arg(long, value_name = "FILE")]
    pub library: Option<PathBuf>,

    /// Print the command instead of running it
    #[arg(long)]
    pub print: bool,

    /// The launcher with its options, the program and its arguments
    #[arg(
        value_name = "COMMAND",
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    pub command: Vec<OsString>,
}
