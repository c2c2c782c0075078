//! What needs an MPI library or libfabric: which members of the workspace and which features can be
//! built here, and the steps for a second MPI library.
//!
//! A program is bound to one MPI library when it is built. The workspace is built with the first
//! that is here; another one has [another target folder](SECOND_TARGET), and builds only what knows
//! MPI.

use crate::machine::{Available, MPICH, Mpi, OPEN_MPI};
use crate::steps::Steps;
use std::process::Command;

/// A part that a machine may lack: members of the workspace that need it, and features of others.
struct Part {
    members: &'static [&'static str],
    features: &'static str,
}

const MPI: Part = Part {
    members: &["foldwire-mpi", "foldwire-mpi-native"],
    features: "foldwire-bench/mpi,foldwire-tests/mpi",
};

const LIBFABRIC: Part = Part {
    members: &["foldwire-libfabric", "foldwire-libfabric-sys"],
    features: "foldwire-bench/libfabric,foldwire-tests/libfabric",
};

/// Features that need nothing of the system.
const EVERYWHERE: &str = "foldwire/alloc,foldwire/std,foldwire/rayon,foldwire-tests/programs,\
    foldwire-tests/tcp,foldwire-bench/tcp,foldwire-tcp/noise";

/// Where an MPI library that is not the first has its builds.
const SECOND_TARGET: &str = "target/second-mpi";

/// The variable that says for how many ranks the suites over MPI, libfabric and TCP are run; all of
/// the suite's sizes unless set.
const SUITE_SIZES: &str = "FOLDWIRE_SUITE_SIZES";

/// How the names of these suites begin.
pub(crate) const SUITES: &str = "up_to_five_ranks";

const MISSING: &str = "not installed (`cargo xtask packages` says what is needed)";

/// An MPI library.
struct Library {
    name: &'static str,
    mpi: &'static Mpi,
}

/// The MPI libraries that are here; the workspace is built with the first.
fn libraries(here: Available) -> impl Iterator<Item = Library> {
    let open_mpi = Library { name: "Open MPI", mpi: &OPEN_MPI };
    let mpich = Library { name: "MPICH", mpi: &MPICH };
    let all = [(open_mpi, here.openmpi), (mpich, here.mpich)];
    all.into_iter().filter_map(|(library, is_here)| is_here.then_some(library))
}

fn has_any(here: Available) -> bool {
    here.libfabric || libraries(here).next().is_some()
}

/// The same machine as if it had none of them: with nearly the same features, what does not know
/// them is not built again.
fn without_fabrics(here: Available) -> Available {
    Available { openmpi: false, mpich: false, libfabric: false, ..here }
}

impl Library {
    /// Has a command build and run with this library.
    fn choose(&self, command: &mut Command) {
        command.env("MPICC", self.mpi.mpicc().unwrap_or("mpicc"));
        command.env("FOLDWIRE_MPIRUN", self.mpi.mpirun().unwrap_or("mpirun"));
    }
}

/// cargo with these words on all members of the workspace, with all features, that can be built
/// here.
pub(crate) fn cargo_on_workspace(steps: &Steps, here: Available, words: &str) -> Command {
    let mut command = steps.cargo(words);
    command.arg("--workspace");
    let mut features = EVERYWHERE.to_owned();
    let library = libraries(here).next();
    for (part, is_here) in [(MPI, library.is_some()), (LIBFABRIC, here.libfabric)] {
        if is_here {
            features = format!("{features},{}", part.features);
        } else {
            part.members.iter().for_each(|member| _ = command.args(["--exclude", member]));
        }
    }
    if let Some(library) = library {
        library.choose(&mut command);
    }
    command.args(["--features", &features]);
    command
}

/// Says what the workspace is built without here.
pub(crate) fn skip_what_is_missing(steps: &mut Steps, here: Available) {
    for (name, is_here) in
        [("Open MPI", here.openmpi), ("MPICH", here.mpich), ("libfabric", here.libfabric)]
    {
        if !is_here {
            steps.skip(name, MISSING);
        }
    }
}

/// Runs the suites over MPI, libfabric and TCP, each for these numbers of ranks.
pub(crate) fn run_suites(
    steps: &mut Steps,
    here: Available,
    sizes: &str,
    name: &str,
) -> anyhow::Result<()> {
    let is_mpi_here = libraries(here).next().is_some();
    let suites = [("mpi", is_mpi_here), ("libfabric", here.libfabric), ("tcp", true)];
    let suites = suites.into_iter().filter(|(_, is_here)| *is_here);
    let suites: Vec<_> = suites.map(|(name, _)| format!("--test {name}")).collect();
    let words = format!("test {}", suites.join(" "));
    let mut tests = cargo_on_workspace(steps, here, &words);
    steps.run(name, tests.env(SUITE_SIZES, sizes).args(["--", SUITES]))?;
    Ok(())
}

/// Runs the tests of what the workspace's own did not have: the programs without fabrics, suites of
/// many processes, the other MPI libraries.
pub(crate) fn test_others(steps: &mut Steps, here: Available) -> anyhow::Result<()> {
    if has_any(here) {
        let words = "test --test info";
        let mut tests = cargo_on_workspace(steps, without_fabrics(here), words);
        steps.run("command without fabrics", &mut tests)?;
    }
    run_suites(steps, here, "5", "suites of five processes")?;
    for library in libraries(here).skip(1) {
        begin_second_target(steps)?;
        let words = format!("test --test alone --test mpi --target-dir {SECOND_TARGET}");
        let mut command = cargo_on_workspace(steps, here, &words);
        library.choose(&mut command);
        steps.run(library.name, &mut command)?;
    }
    Ok(())
}

/// Fills a target folder that is not there yet with what the tests of the workspace have built, but
/// for what knows MPI: the crate `mpi-sys` does not see by itself that there is another library.
fn begin_second_target(steps: &mut Steps) -> anyhow::Result<()> {
    let [first, second] = ["target/debug", SECOND_TARGET].map(|folder| steps.root().join(folder));
    if second.exists() || !first.exists() {
        return Ok(());
    }
    std::fs::create_dir(&second)?;
    let mut copy = Command::new("cp");
    steps.run("what both libraries share", copy.arg("-a").args([first, second]))?;
    let words = format!("clean --quiet --target-dir {SECOND_TARGET} -p mpi-sys");
    steps.run("what they do not", &mut steps.cargo(&words))?;
    Ok(())
}

/// Lints what looks otherwise without fabrics.
pub(crate) fn lint(steps: &mut Steps, here: Available) -> anyhow::Result<()> {
    if has_any(here) {
        let mut lints = cargo_on_workspace(steps, without_fabrics(here), "clippy --all-targets");
        steps.run("lints without fabrics", lints.args(["--", "-D", "warnings"]))?;
    }
    Ok(())
}
