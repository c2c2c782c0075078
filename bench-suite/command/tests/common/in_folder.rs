//! Runs the command in a folder.

use std::path::Path;
use std::process::{Command, Output};

pub(crate) fn foldwire(folder: &Path, args: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_foldwire"))
        .args(args.split_whitespace())
        .current_dir(folder)
        .output()
        .expect("the command starts")
}
