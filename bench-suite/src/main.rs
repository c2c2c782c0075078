//! The foldwire command.
fn main() {}
