//! Exports those C functions of MPI 5's standard ABI that Foldwire intercepts. The ABI has no
//! Fortran functions.
#![allow(unsafe_code, reason = "exports MPI's functions; the macro has the SAFETY arguments")]
#![allow(missing_docs, reason = "MPI's standard describes them")]

foldwire_preload::entries!(foldwire_preload::Standard);
