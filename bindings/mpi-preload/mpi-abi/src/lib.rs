//! The functions of the standard binary interface of MPI 5 that go through Foldwire, by their names
//! in C; it has no others.
#![allow(unsafe_code, reason = "exports MPI's names; the macro argues")]
#![allow(missing_docs, reason = "MPI's standard describes them")]

foldwire_preload::entries!(foldwire_preload::Standard);
