//! Tests of ranks over sockets, as one program, so that what they share is compiled and linked
//! once. `cargo test -p foldwire-tcp --test sockets grow::` runs one file.

mod common;
mod faults;
#[cfg(unix)]
mod ffi;
#[cfg(unix)]
mod fork;
#[cfg(unix)]
mod grow;
mod joining;
#[cfg(unix)]
mod launchers;
#[cfg(unix)]
mod stopped;
#[cfg(target_os = "linux")]
mod vanish;
