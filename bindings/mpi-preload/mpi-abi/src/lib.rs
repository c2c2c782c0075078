//! Exports the functions of the standard ABI of MPI 5 that Foldwire intercepts, in C. The ABI has
//! no Fortran functions.
#![allow(unsafe_code, reason = "exports MPI's functions; the macro has the SAFETY arguments")]
#![allow(missing_docs, reason = "MPI's standard describes them")]

foldwire_preload::entries!(foldwire_preload::Standard);
