//! Parts that need an MPI library or libfabric: selects the workspace members and features that can
//! be built here, and has the steps for a second MPI library. MPI and libfabric are the *fabrics*;
//! TCP is not one of them, because it needs no library.
//!
//! A program is bound to one MPI library when it is built. The workspace is built with the first
//! library on this machine. A second library has [its own target folder](SECOND_TARGET), and builds
//! only the crates that use MPI.

use crate::machine::MachineParts;
use foldwire_steps::Steps;
use foldwire_steps::programs::{MPICH, MpiPrograms, OPEN_MPI};
use std::process::Command;

/// A part that a machine may lack: the workspace members that need it, and features of other
/// members.
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

/// Programs over TCP, devices, the C interface, the Python package, and the preload libraries. They
/// build without MPI.
const BINDINGS: OptionalPart = OptionalPart {
    members: &[
        "foldwire-capi",
        "foldwire-cuda",
        "foldwire-cuda-host",
        "foldwire-preload",
        "foldwire-preload-mpi-abi",
        "foldwire-preload-mpich",
        "foldwire-preload-openmpi",
        "foldwire-python",
    ],
    features: "foldwire-command/tcp,foldwire-tests/tcp,\
               foldwire-command/cuda,foldwire-capi/cuda,foldwire-python/simulated,\
               foldwire-benchmark/simulated,foldwire-stack/simulated",
};

/// Features that every build has.
const BASE_FEATURES: &str = "foldwire/alloc,foldwire/std,foldwire/rayon,\
     foldwire-tests/programs,foldwire-tcp/noise,\
     foldwire-command/applications,foldwire-command/plots";

/// Members of the workspace that a command covers. Members that this machine cannot build are left
/// out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BuildScope {
    All,
    /// The part that must pass in minutes: everything except [`BINDINGS`].
    Fabrics,
    /// Everything except the members that need a fabric.
    Bindings,
}

/// Target folder of the second MPI library.
const SECOND_TARGET: &str = "target/second-mpi";

/// Environment variable with the numbers of ranks for the suites over MPI, libfabric and TCP.
/// Without it, the suites run all their sizes.
const SUITE_SIZES: &str = "FOLDWIRE_SUITE_SIZES";

/// Beginning of the names of these suites' tests.
pub(crate) const SUITES: &str = "up_to_five_ranks";

const MISSING: &str = "not installed (`cargo xtask packages --check` lists what is missing)";

/// An MPI library on this machine.
struct InstalledMpi {
    name: &'static str,
    mpi: &'static MpiPrograms,
}

/// Returns the MPI libraries on this machine. The workspace is built with the first.
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
    /// Makes a command build and run with this library.
    fn choose(&self, command: &mut Command) {
        command.env("MPICC", self.mpi.mpicc().unwrap_or("mpicc"));
        command.env("FOLDWIRE_MPIRUN", self.mpi.mpirun().unwrap_or("mpirun"));
    }
}

/// Returns a cargo command on the members in this scope, with [`BASE_FEATURES`] and the features of
/// the parts in it. Members that the features of parts do not reach have the same features in every
/// scope, so that they are built once.
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

/// Records the libraries that this machine lacks as skipped steps.
pub(crate) fn skip_what_is_missing(steps: &mut Steps, here: MachineParts) {
    for (name, is_here) in
        [("Open MPI", here.openmpi), ("MPICH", here.mpich), ("libfabric", here.libfabric)]
    {
        if !is_here {
            steps.skip(name, MISSING);
        }
    }
}

/// Runs the suites over MPI and libfabric, each with one and three processes.
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

/// Runs the tests that `cargo xtask test` leaves out: programs over TCP and without fabrics, C,
/// Python, the preload libraries, suites of two and five processes, and the second MPI library.
pub(crate) fn test_others(steps: &mut Steps, here: MachineParts) -> anyhow::Result<()> {
    for (name, words) in [
        (
            "preloaded",
            "test --test preload --test preload_openmpi --test preload_mpich \
             --test preload_mpi_abi",
        ),
        (
            "TCP, C, Python",
            "test --test tcp --test c_programs --test c_devices --test python_programs",
        ),
        ("command over TCP", "test --test command -- info:: bench::tcp::"),
    ] {
        if !steps.has_time_for(name) {
            continue;
        }
        let (words, filter) = words.split_once(" -- ").unwrap_or((words, ""));
        let mut tests = cargo_on(steps, here, BuildScope::Bindings, words);
        steps.run_tests(name, tests.arg("--").args(filter.split_terminator(' ')))?;
    }
    // If there is a second MPI library, its suites below run with two and five processes.
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

/// Copies the workspace's build to a new target folder and removes `mpi-sys` there, which does not
/// detect another library by itself. So cargo rebuilds only `mpi-sys` and the crates that use it.
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

/// Lints the code that differs without fabrics.
pub(crate) fn lint(steps: &mut Steps, here: MachineParts) -> anyhow::Result<()> {
    if has_any(here) {
        let mut lints = cargo_on(steps, here, BuildScope::Bindings, "clippy --all-targets");
        steps.run("lints without fabrics", lints.args(["--", "-D", "warnings"]))?;
    }
    Ok(())
}
