//! Options of `foldwire preload`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;

const EXAMPLES: &str = "\
Examples:
  foldwire preload -- mpirun -n 4 ./program --its options
      Long collectives go through Foldwire, exactly; a line at the end says what became of them.
  foldwire preload --bound rel:1e-3 -- mpirun -n 4 ./program
      Each operand within 1/1000 of the range of all ranks' values.
  foldwire preload --print -- mpirun -n 4 python3 script.py
      Only shows what would be run.

The library is picked by what the program needs (libmpi.so.40: Open MPI; libmpich.so.12 or
libmpi.so.12: MPICH; libmpi_abi.so: the standard ABI of MPI 5); where that cannot be seen, as of
scripts, by who the launcher is. It lies beside this command, or one names it by --library. They are
made by cargo build --release -p foldwire-preload-openmpi -p foldwire-preload-mpich
-p foldwire-preload-mpi-abi

All variables FOLDWIRE_… are given to all ranks; bindings/mpi-preload/README.md says what they do.";

/// Options of `foldwire preload`.
#[derive(Debug, Clone, Args)]
#[command(after_help = EXAMPLES)]
pub struct PreloadArgs {
    /// How values may travel: off, raw (as they are), lossless, or a bound on each operand
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
