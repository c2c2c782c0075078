//! `cargo xtask packages`: the Debian packages that optional parts need.
//!
//! The library, its threads backend and `foldwire stack` need none of them.

use crate::{current_mpi, machine};
use anyhow::bail;
use foldwire_steps::Steps;
use std::process::{Command, Stdio};

/// Parts, and the packages that they need.
const PACKAGES: [(&str, &[&str]); 8] = [
    ("bindings to C (MPI, libfabric)", &["libclang-dev", "pkg-config"]),
    ("Open MPI", &["libopenmpi-dev", "openmpi-bin"]),
    ("MPICH", &["libmpich-dev", "mpich"]),
    ("libfabric", &["libfabric-dev", "libfabric-bin"]),
    ("emulated cluster", &["iproute2", "util-linux"]),
    ("checks of memory", &["valgrind"]),
    ("package for Python", &["python3-numpy"]),
    ("module for Fortran", &["gfortran"]),
];

const EXAMPLES: &str = "\
Examples:
  cargo xtask packages                 install what is missing, or name it
  cargo xtask packages --check         only name it
  cargo xtask packages --current-mpi   also newer MPI libraries, below target/";

/// Options of `cargo xtask packages`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Only list what is missing, and fail if anything is
    #[arg(long)]
    check: bool,
    /// Also install current versions of Open MPI and MPICH from PyPI below target/current-mpi, to
    /// compare with; some tests use them if they are there
    #[arg(long, conflicts_with = "check")]
    current_mpi: bool,
}

pub(crate) fn run(steps: &mut Steps, args: &Args) -> anyhow::Result<()> {
    let missing = if args.check { missing() } else { install(steps)? };
    for (part, can) in machine::available().parts() {
        println!("{part:<17} {}", if can { "can be used" } else { "cannot be used" });
    }
    if !missing.is_empty() {
        bail!("{}", advice(&missing))
    }
    if args.current_mpi { current_mpi::install(steps) } else { Ok(()) }
}

/// Installs the missing packages if that needs no password: as root, with apt-get. Returns the
/// packages that are still missing.
///
/// # Errors
/// If apt-get fails.
pub(crate) fn install(steps: &mut Steps) -> anyhow::Result<Vec<&'static str>> {
    let missing = missing();
    if missing.is_empty() || !is_root() || !runs("apt-get", &["--version"]) {
        return Ok(missing);
    }
    install_these(steps, &missing)?;
    Ok(self::missing())
}

/// Installs these Debian packages.
///
/// # Errors
/// If apt-get fails.
pub(crate) fn install_these(steps: &mut Steps, packages: &[&str]) -> anyhow::Result<()> {
    let apt_get = |words: &[&str]| {
        let mut command = Command::new("apt-get");
        command.env("DEBIAN_FRONTEND", "noninteractive").args(words);
        command
    };
    let words = [&["install", "--yes", "--no-install-recommends"], packages].concat();
    // Package lists may be absent (in container images) or old.
    steps.run("lists of packages", &mut apt_get(&["update"]))?;
    steps.run("packages", &mut apt_get(&words)).map(drop)
}

/// Lets Python make virtual environments.
///
/// # Errors
/// If apt-get fails.
pub(crate) fn install_venv(steps: &mut Steps) -> anyhow::Result<()> {
    if has_venv() { Ok(()) } else { install_these(steps, &["python3-venv"]) }
}

/// Returns whether Python can make virtual environments, which Debian packages separately.
fn has_venv() -> bool {
    let mut python = Command::new("python3");
    python.args(["-c", "import ensurepip, venv"]).stderr(Stdio::null());
    python.status().is_ok_and(|status| status.success())
}

/// Returns a message with the command that installs the packages.
pub(crate) fn advice(missing: &[&str]) -> String {
    format!(
        "some packages are not installed; for the parts that need them, run as root\n  \
         apt-get install {}\n\
         (these are Debian's names; other systems have other names for them)",
        missing.join(" ")
    )
}

/// Returns the packages that are not installed: all if there is no dpkg.
fn missing() -> Vec<&'static str> {
    let all = PACKAGES.iter().flat_map(|(_, packages)| packages.iter().copied());
    let query = Command::new("dpkg-query")
        .args(["--show", "--showformat", "${Package} ${db:Status-Status}\n"])
        .args(all.clone())
        .stdin(Stdio::null())
        .output();
    // dpkg-query fails if it does not know a package, but still prints the other packages.
    let shown = query.map(|output| output.stdout).unwrap_or_default();
    let shown = String::from_utf8_lossy(&shown);
    all.filter(|package| !is_installed(&shown, package)).collect()
}

fn is_installed(shown: &str, package: &str) -> bool {
    shown.lines().any(|line| line.split_once(' ') == Some((package, "installed")))
}

#[cfg(target_os = "linux")]
fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

#[cfg(not(target_os = "linux"))]
fn is_root() -> bool {
    false
}

fn runs(program: &str, args: &[&str]) -> bool {
    let mut command = Command::new(program);
    let command = command.args(args).stdin(Stdio::null()).stdout(Stdio::null());
    command.stderr(Stdio::null()).status().is_ok_and(|status| status.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_installed_packages_count() {
        let shown = "mpich installed\nlibmpich-dev config-files\niproute2 installed\n";
        assert!(is_installed(shown, "mpich") && is_installed(shown, "iproute2"));
        assert!(!is_installed(shown, "libmpich-dev") && !is_installed(shown, "libmpich"));
    }

    #[test]
    fn no_package_is_named_twice() {
        let mut all: Vec<_> = PACKAGES.iter().flat_map(|(_, packages)| packages.iter()).collect();
        all.sort();
        let n = all.len();
        all.dedup();
        assert_eq!(all.len(), n);
    }
}
