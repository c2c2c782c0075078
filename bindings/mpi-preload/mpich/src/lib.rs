//! The functions of MPICH that go through Foldwire, by their names in C.
#![allow(unsafe_code, reason = "exports MPI's names; the macro argues")]
#![allow(missing_docs, reason = "MPI's standard describes them")]

foldwire_preload::entries!(foldwire_preload::Mpich);
