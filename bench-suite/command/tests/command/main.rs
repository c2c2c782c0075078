//! Tests of the subcommands, as one program, so that it is linked once. Each file is for one
//! subcommand or one claim; `cargo test -p foldwire-command --test command bench::` runs one file.

mod accuracy;
mod bench;
#[cfg(feature = "applications")]
mod cg;
mod choose;
#[cfg(feature = "applications")]
mod climate;
mod codec;
mod command_line;
mod common;
mod compress;
mod guidelines;
#[cfg(feature = "applications")]
mod halo;
mod info;
#[cfg(unix)]
mod launch;
mod p2p;
mod papers;
mod schedule;
mod sim;
#[cfg(target_os = "linux")]
mod streams;
#[cfg(feature = "applications")]
mod train;
#[cfg(feature = "applications")]
mod transpose;
