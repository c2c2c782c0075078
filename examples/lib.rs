//! Example programs. Most files beside this one are programs of their own: `cargo run --release -p
//! foldwire-examples --example sum`.
//!
//! This library has only tests. They compile the Rust code in the project's documentation, so that
//! the code stays correct. `readme` has the snippets that need context.

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
