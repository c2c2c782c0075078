//! Threads backend.
