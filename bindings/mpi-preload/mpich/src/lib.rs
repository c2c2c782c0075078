//! Exports the functions of MPICH that Foldwire intercepts, in C. Its Fortran functions call these.
#![allow(unsafe_code, reason = "exports MPI's functions; the macro has the SAFETY arguments")]
#![allow(missing_docs, reason = "MPI's standard describes them")]

foldwire_preload::entries!(foldwire_preload::Mpich);
