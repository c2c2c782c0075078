//! Project tasks: `cargo xtask <command>`.
//!
//! A task is a list of [`Steps`]: commands that are shown and timed, and that stop the task when
//! they fail. Each file next to this one holds one command. xtask depends only on crates in its own
//! folder, so that it runs even if the rest of the workspace does not build.

mod bare_metal;
mod bench;
mod ci;
mod current_mpi;
mod deep;
mod devices;
mod fabrics;
mod fuzz;
mod instructions;
mod loom;
mod machine;
mod nightly;
mod packages;
mod programs;
#[cfg(test)]
mod published;
mod sanitize;
mod stress;
mod test;
mod torch;
mod width;

use clap::{Parser, Subcommand};
use foldwire_steps::Steps;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const EXAMPLES: &str = "\
Examples:
  cargo xtask test                       what a change must pass, in minutes
  cargo xtask deep                       what takes longer and finds more
  cargo xtask ci                         both, after formatting and lints
  cargo xtask fuzz                       every fuzz target for a minute each
  cargo xtask fuzz decode --time 10m     one target for ten minutes
  cargo xtask soak --seeds 1e6           a million simulated runs in which things go wrong
  cargo xtask patterns --case fz-light   all patterns of f32 through a codec, bound by bound
  cargo xtask bench                      measurements as JSON in out/bench/
  cargo xtask packages                   Debian packages for MPI, libfabric and the cluster
  cargo xtask packages --current-mpi     newer MPI libraries to compare with, below target/
  cargo xtask torch                      torch's own tests, Lightning and accelerate
  cargo xtask cluster up -n 4            four nodes with links of 1 Gbit/s
  cargo xtask cluster run -- PROGRAM     one rank of a program in each node";

/// Tasks of the Foldwire project.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", version, after_help = EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run what a change must pass, in minutes: all short tests
    Test,
    /// Run what takes longer and finds more: long tests, TCP, C, Python, soak, loom, five
    /// processes, fuzzing, sanitizers, a second MPI library
    Deep(deep::Args),
    /// Check formatting and lints, then run `test` and `deep`
    Ci,
    /// Check formatting, lints and documentation
    Lint,
    /// Build and run core in a program without std and allocator, and check its imports
    BareMetal,
    /// Model-check the lock-free parts of the threads backend and of the ring between ranks of a
    /// node
    Loom(loom::Args),
    /// Fuzz the formats (needs a nightly toolchain and a C++ compiler)
    Fuzz(fuzz::Args),
    /// Run the tests of kernels and rings under AddressSanitizer (needs a nightly toolchain)
    Sanitize,
    /// Run the tests of kernels under valgrind
    Valgrind,
    /// Run groups of threads with random calls, exits and panics, and check them against the oracle
    Stress(stress::Args),
    /// Simulate runs in which ranks, links and frames fail, and check every rank
    Soak(programs::Args),
    /// Put every bit pattern of f32 through codecs and bounds, at all kernel levels
    Patterns(programs::Args),
    /// Count the instructions of short calls (needs valgrind)
    Instructions,
    /// Measure codec and main job, with JSON output in out/bench/
    Bench(bench::Args),
    /// Install the Debian packages that MPI, libfabric and the emulated cluster need, or name them
    Packages(packages::Args),
    /// Install torch, Lightning and accelerate below target/, and run them over Foldwire's group
    Torch(torch::Args),
    /// Emulate a cluster of nodes with links of a known rate, and run programs on it (Linux, root)
    #[cfg(target_os = "linux")]
    Cluster(foldwire_cluster::ClusterOptions),
}

fn main() -> ExitCode {
    let mut steps = Steps::new(workspace());
    let result = match Cli::parse().command {
        Command::Test => test::run(&mut steps),
        Command::Deep(args) => deep::run(&mut steps, &args),
        Command::Ci => ci::run(&mut steps),
        Command::Lint => ci::lint(&mut steps),
        Command::BareMetal => bare_metal::run(&mut steps),
        Command::Loom(args) => loom::run(&mut steps, &args),
        Command::Fuzz(args) => fuzz::run(&mut steps, &args),
        Command::Sanitize => sanitize::address(&mut steps),
        Command::Valgrind => sanitize::valgrind(&mut steps),
        Command::Stress(args) => stress::run(&mut steps, &args),
        Command::Soak(args) => programs::soak(&mut steps, &args.words),
        Command::Patterns(args) => programs::patterns(&mut steps, &args.words),
        Command::Instructions => instructions::run(&mut steps),
        Command::Bench(args) => bench::run(&mut steps, &args),
        Command::Packages(args) => packages::run(&mut steps, &args),
        Command::Torch(args) => torch::run(&mut steps, &args),
        #[cfg(target_os = "linux")]
        Command::Cluster(options) => foldwire_cluster::run(&mut steps, &options),
    };
    steps.finish(result)
}

/// Returns the workspace's root.
fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().map_or_else(PathBuf::new, Path::to_path_buf)
}
