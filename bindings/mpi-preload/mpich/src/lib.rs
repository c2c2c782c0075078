//! Exports the functions of MPICH that Foldwire intercepts, in C. MPICH's Fortran functions call
//! the C functions.
#![allow(unsafe_code, reason = "exports MPI's functions; the macro has the SAFETY arguments")]
#![allow(missing_docs, reason = "MPI's standard describes them")]

foldwire_preload::entries!(foldwire_preload::Mpich);
