//! Example programs. Each file beside this one is a program of its own: `cargo run --release -p
//! foldwire-examples --example sum`.
//!
//! This library has no code. It compiles the Rust code in the project's documentation, so that it
//! stays correct.

#[cfg(test)]
mod readme;

/// Documentation pages. Each block of Rust is compiled and run.
#[cfg(doctest)]
mod pages {
    #[doc = include_str!("../README.md")]
    struct Project;

    #[doc = include_str!("../core/README.md")]
    struct Core;

    #[doc = include_str!("../conformance/README.md")]
    struct Conformance;

    #[doc = include_str!("../backends/sim/README.md")]
    struct Sim;

    #[doc = include_str!("../backends/threads/README.md")]
    struct Threads;
}
