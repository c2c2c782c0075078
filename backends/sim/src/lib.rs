//! Foldwire on networks that do not exist.

pub mod cost;
