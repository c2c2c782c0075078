//! `cargo xtask fuzz`: cargo-fuzz over the targets of `fuzz/`.

use crate::steps::Steps;
use anyhow::{Context, bail, ensure};
use std::process::{Command, Stdio};

const TARGETS: [&str; 3] = ["decode", "roundtrip", "frame"];

const EXAMPLES: &str = "\
Examples:
  cargo xtask fuzz
  cargo xtask fuzz roundtrip --seconds 3600
A finding is left in fuzz/artifacts/<target>/, with the command that repeats it.";

/// Options of `cargo xtask fuzz`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The target [default: all, one after the other]
    #[arg(value_parser = TARGETS)]
    target: Option<String>,
    /// Seconds for each target
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..))]
    seconds: u32,
}

pub(crate) fn run(steps: &mut Steps, args: &Args) -> anyhow::Result<()> {
    require(
        &mut steps.cargo("+nightly --version"),
        "fuzzing needs a nightly toolchain; install one with\n  rustup toolchain install nightly",
    )?;
    // libFuzzer is compiled from its C++ source.
    require(
        Command::new(std::env::var_os("CXX").unwrap_or_else(|| "c++".into())).arg("--version"),
        "fuzzing needs a C++ compiler; install one (Debian: `apt install g++`) or set CXX",
    )?;
    if !succeeds(&mut steps.cargo("fuzz --version"))? {
        eprintln!("cargo-fuzz is missing; installing it with `cargo install cargo-fuzz --locked`");
        steps.run("install cargo-fuzz", &mut steps.cargo("install cargo-fuzz --locked"))?;
    }
    if !steps.root().join("fuzz/corpus").exists() {
        let words = "+nightly run --release --manifest-path fuzz/Cargo.toml --example seeds";
        steps.run("first corpus", &mut steps.cargo(words))?;
    }
    for target in TARGETS {
        if args.target.as_deref().is_none_or(|wanted| wanted == target) {
            // Two chunks of f64 in the worst case; longer inputs find nothing new and take longer.
            let words = format!(
                "+nightly fuzz run {target} -- -max_total_time={} -max_len=70000 -len_control=0",
                args.seconds
            );
            steps.run(&format!("fuzz {target}"), &mut steps.cargo(&words))?;
        }
    }
    Ok(())
}

fn succeeds(command: &mut Command) -> anyhow::Result<bool> {
    let command = command.stdout(Stdio::null()).stderr(Stdio::null());
    match command.status() {
        Ok(status) => Ok(status.success()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
        Err(error) => bail!("cannot run {}: {error}", command.get_program().display()),
    }
}

fn require(command: &mut Command, otherwise: &'static str) -> anyhow::Result<()> {
    ensure!(succeeds(command).context(otherwise)?, otherwise);
    Ok(())
}
