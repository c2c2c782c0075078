//! What needs an MPI library or libfabric: which members of the workspace and which features can be
//! built here, and the steps for a second MPI library.
//!
//! A program is bound to one MPI library when it is built. The workspace is built with the first
//! that is here; another one has [another target folder](SECOND_TARGET), and builds only what knows
//! MPI.

use crate::machine::MachineParts;
use foldwire_steps::Steps;
use foldwire_steps::programs::{MPICH, MpiPrograms, OPEN_MPI};
use std::process::Command;

/// A part that a machine may lack: members of the workspace that need it, and features of others.
struct OptionalPart {
    members: &'static [&'static str],
    features: &'static str,
}

const MPI: OptionalPart = OptionalPart {
    members: &["foldwire-mpi", "foldwire-mpi-native"],
    features: "foldwire-command/mpi,foldwire-tests/mpi",
};

const LIBFABRIC: OptionalPart = OptionalPart {
    members: &["foldwire-libfabric", "foldwire-libfabric-sys"],
    features: "foldwire-command/libfabric,foldwire-tests/libfabric",
};

/// Programs over TCP, the C interface, the package for Python, and libraries to preload, which need
/// no MPI to be built.
const BINDINGS: OptionalPart = OptionalPart {
    members: &[
        "foldwire-capi",
        "foldwire-preload",
        "foldwire-preload-mpi-abi",
        "foldwire-preload-mpich",
        "foldwire-preload-openmpi",
        "foldwire-python",
    ],
    features: "foldwire-command/tcp,foldwire-tests/tcp",
};

/// Features of what is always built.
const BASE_FEATURES: &str = "foldwire/alloc,foldwire/std,foldwire/rayon,foldwire-tests/programs,foldwire-tcp/noise,\
     foldwire-command/applications,foldwire-command/plots";

/// What of the workspace a command is about, as far as it can be built here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BuildScope {
    All,
    /// What must pass in minutes: all but programs over TCP, in C and in Python, and what is
    /// preloaded.
    Fabrics,
    /// The rest of it, and so the workspace without fabrics.
    Bindings,
}

/// Where an MPI library that is not the first has its builds.
const SECOND_TARGET: &str = "target/second-mpi";

/// The variable that says for how many ranks the suites over MPI, libfabric and TCP are run; all of
/// the suite's sizes unless set.
const SUITE_SIZES: &str = "FOLDWIRE_SUITE_SIZES";

/// How the names of these suites begin.
pub(crate) const SUITES: &str = "up_to_five_ranks";

const MISSING: &str = "not installed (`cargo xtask packages` says what is needed)";

/// An MPI library.
struct InstalledMpi {
    name: &'static str,
    mpi: &'static MpiPrograms,
}

/// The MPI libraries that are here; the workspace is built with the first.
fn libraries(here: MachineParts) -> impl Iterator<Item = InstalledMpi> {
    let open_mpi = InstalledMpi { name: "Open MPI", mpi: &OPEN_MPI };
    let mpich = InstalledMpi { name: "MPICH", mpi: &MPICH };
    let all = [(open_mpi, here.openmpi), (mpich, here.mpich)];
    all.into_iter().filter_map(|(library, is_here)| is_here.then_some(library))
}

fn has_any(here: MachineParts) -> bool {
    here.libfabric || libraries(here).next().is_some()
}

impl InstalledMpi {
    /// Has a command build and run with this library.
    fn choose(&self, command: &mut Command) {
        command.env("MPICC", self.mpi.mpicc().unwrap_or("mpicc"));
        command.env("FOLDWIRE_MPIRUN", self.mpi.mpirun().unwrap_or("mpirun"));
    }
}

/// cargo with these words on the members of the workspace that this is about, with all features.
/// What they have in common has the same features in each scope, so that it is built once.
pub(crate) fn cargo_on(
    steps: &Steps,
    here: MachineParts,
    scope: BuildScope,
    words: &str,
) -> Command {
    let mut command = steps.cargo(words);
    command.arg("--workspace");
    let mut features = BASE_FEATURES.to_owned();
    let has_fabrics = scope != BuildScope::Bindings;
    let library = libraries(here).next().filter(|_| has_fabrics);
    let parts = [
        (MPI, library.is_some()),
        (LIBFABRIC, here.libfabric && has_fabrics),
        (BINDINGS, scope != BuildScope::Fabrics),
    ];
    for (part, is_in) in parts {
        if is_in {
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
pub(crate) fn skip_what_is_missing(steps: &mut Steps, here: MachineParts) {
    for (name, is_here) in
        [("Open MPI", here.openmpi), ("MPICH", here.mpich), ("libfabric", here.libfabric)]
    {
        if !is_here {
            steps.skip(name, MISSING);
        }
    }
}

/// Runs the suites over MPI and libfabric, each for one and three processes.
pub(crate) fn run_suites(steps: &mut Steps, here: MachineParts) -> anyhow::Result<()> {
    let suites = [("mpi", libraries(here).next().is_some()), ("libfabric", here.libfabric)];
    run_suites_of(steps, here, suites, "1,3", "suites of processes")
}

fn run_suites_of(
    steps: &mut Steps,
    here: MachineParts,
    suites: [(&str, bool); 2],
    sizes: &str,
    name: &str,
) -> anyhow::Result<()> {
    let suites = suites.into_iter().filter(|(_, is_wanted)| *is_wanted);
    let suites: Vec<_> = suites.map(|(name, _)| format!("--test {name}")).collect();
    if !suites.is_empty() {
        let words = format!("test {}", suites.join(" "));
        let mut tests = cargo_on(steps, here, BuildScope::Fabrics, &words);
        steps.run(name, tests.env(SUITE_SIZES, sizes).args(["--", SUITES]))?;
    }
    Ok(())
}

/// Runs the tests of what the workspace's own did not have: programs over TCP and without fabrics,
/// C, Python, what is preloaded, suites of two and five processes, the other MPI libraries.
pub(crate) fn test_others(steps: &mut Steps, here: MachineParts) -> anyhow::Result<()> {
    for (name, words) in [
        (
            "preloaded",
            "test --test preload --test preload_openmpi --test preload_mpich \
             --test preload_mpi_abi",
        ),
        (
            "TCP, C, Python, no fabrics",
            "test --test info --test tcp --test c_programs --test python_programs",
        ),
        ("bench over TCP", "test --test bench -- tcp::"),
    ] {
        if !steps.has_time_for(name) {
            continue;
        }
        let (words, filter) = words.split_once(" -- ").unwrap_or((words, ""));
        let mut tests = cargo_on(steps, here, BuildScope::Bindings, words);
        steps.run(name, tests.arg("--").args(filter.split_terminator(' ')))?;
    }
    // A second MPI library runs two and five processes as well.
    let is_only_one = libraries(here).count() == 1;
    let suites = [("mpi", is_only_one), ("libfabric", here.libfabric)];
    let name = "suites of two and five";
    if steps.has_time_for(name) {
        run_suites_of(steps, here, suites, "2,5", name)?;
    }
    for library in libraries(here).skip(1) {
        if !steps.has_time_for(library.name) {
            continue;
        }
        begin_second_target(steps)?;
        let words = format!("test --test singleton --test mpi --target-dir {SECOND_TARGET}");
        let mut command = cargo_on(steps, here, BuildScope::Fabrics, &words);
        library.choose(&mut command);
        steps.run(library.name, command.env(SUITE_SIZES, "1,2,5"))?;
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
pub(crate) fn lint(steps: &mut Steps, here: MachineParts) -> anyhow::Result<()> {
    if has_any(here) {
        let mut lints = cargo_on(steps, here, BuildScope::Bindings, "clippy --all-targets");
        steps.run("lints without fabrics", lints.args(["--", "-D", "warnings"]))?;
    }
    Ok(())
}
