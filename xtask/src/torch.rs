//! `cargo xtask torch`: runs programs of others over the group for torch, in a fresh environment
//! with torch, Lightning and accelerate from PyPI. `cargo xtask deep` leaves it out: it takes 6 GB
//! and many minutes, and newer packages may change what it finds.
//!
//! The programs are in `bindings/python/tests/conformance`, and say what they check. Training on
//! the emulated cluster is `bindings/python/examples/elastic.py`, one process for each node.

use crate::{machine, packages};
use anyhow::Context;
use foldwire_steps::Steps;
use std::path::PathBuf;
use std::process::Command;

/// Folder of the environment, below the workspace's root.
const FOLDER: &str = "target/torch";
/// Packages from PyPI. torch's tests import numpy and expecttest.
const PACKAGES: &str = "torch lightning accelerate numpy expecttest";
/// Folder of the package for Python.
const PACKAGE: &str = "bindings/python";

const EXAMPLES: &str = "\
Examples:
  cargo xtask torch                        all parts
  cargo xtask torch lightning accelerate   the trainers alone
It installs torch, which PyPI has for NVIDIA's GPUs only, and so takes some 6 GB below target/.";

/// Options of `cargo xtask torch`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Parts to run [default: all]
    #[arg(value_enum, value_name = "PART")]
    parts: Vec<Part>,
}

/// A program of others, or with others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    /// torch's own test of a backend, unmodified
    Backend,
    /// A trainer of Lightning
    Lightning,
    /// A training loop with accelerate
    Accelerate,
    /// Training on the emulated cluster while a rank is killed and one joins (Linux, root)
    Elastic,
}

/// All parts, the short ones first.
const ALL: [Part; 4] = [Part::Lightning, Part::Accelerate, Part::Elastic, Part::Backend];

pub(crate) fn run(steps: &mut Steps, args: &Args) -> anyhow::Result<()> {
    let parts = if args.parts.is_empty() { &ALL[..] } else { &args.parts };
    install_others(steps)?;
    install_package(steps)?;
    parts.iter().try_for_each(|&part| run_part(steps, part))
}

/// Makes the environment with torch and what the programs need.
fn install_others(steps: &mut Steps) -> anyhow::Result<()> {
    packages::install_venv(steps)?;
    let mut venv = Command::new("python3");
    venv.args(["-m", "venv"]).arg(steps.root().join(FOLDER));
    steps.run("folder of torch", &mut venv)?;
    let mut others = pip(steps);
    steps.run("torch and others", others.args(PACKAGES.split(' '))).map(drop)
}

/// Builds and installs the package for Python. A newer build of the same version replaces the one
/// that is installed.
fn install_package(steps: &mut Steps) -> anyhow::Result<()> {
    let mut build = pip(steps);
    build.args(["--force-reinstall", "--no-deps"]).arg(steps.root().join(PACKAGE));
    steps.run("package for Python", build.current_dir(steps.root())).map(drop)
}

/// Returns the command that installs packages in the environment.
fn pip(steps: &Steps) -> Command {
    let mut pip = Command::new(steps.root().join(FOLDER).join("bin/pip"));
    pip.args("install --quiet --disable-pip-version-check --retries 1".split(' '));
    pip
}

impl Part {
    const fn name(self) -> &'static str {
        match self {
            Self::Backend => "torch's test of a backend",
            Self::Lightning => "Lightning",
            Self::Accelerate => "accelerate",
            Self::Elastic => "elastic training on the cluster",
        }
    }
}

fn run_part(steps: &mut Steps, part: Part) -> anyhow::Result<()> {
    let tests = PathBuf::from(PACKAGE).join("tests/conformance");
    let mut python = Command::new(steps.root().join(FOLDER).join("bin/python"));
    python.current_dir(steps.root());
    match part {
        Part::Backend => python.arg(tests.join("backend.py")),
        Part::Lightning => python.arg(tests.join("frameworks.py")).arg("lightning"),
        Part::Accelerate => python.arg(tests.join("frameworks.py")).arg("accelerate"),
        Part::Elastic => return run_elastic(steps),
    };
    steps.run(part.name(), &mut python).map(drop)
}

/// Makes a cluster with a name of its own, trains on it, and removes it.
fn run_elastic(steps: &mut Steps) -> anyhow::Result<()> {
    if !machine::available().namespaces {
        steps.skip(Part::Elastic.name(), "no network namespaces: they need Linux and root");
        return Ok(());
    }
    let root = steps.root().to_owned();
    // The commands of this program.
    let own = std::env::current_exe().context("cannot find this program")?;
    let cluster = |words: &str| {
        let mut command = Command::new(&own);
        command.args(["cluster", "--name", "foldwire-torch"]).current_dir(&root);
        command.args(words.split(' '));
        command
    };
    steps.run("cluster for torch", &mut cluster("up -n 4 --rate 1gbit"))?;
    let python = root.join(FOLDER).join("bin/python");
    let program = root.join(PACKAGE).join("examples/elastic.py");
    let mut training = cluster("run --no-prefix --");
    let trained = steps.run(Part::Elastic.name(), training.arg(python).arg(program));
    steps.run("end of the cluster for torch", &mut cluster("down"))?;
    trained.map(drop)
}
