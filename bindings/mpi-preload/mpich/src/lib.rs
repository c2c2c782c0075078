//! Exports those C functions of MPICH that Foldwire intercepts. MPICH's Fortran functions call
//! them.
#![allow(unsafe_code, reason = "exports MPI's functions; the macro has the SAFETY arguments")]
#![allow(missing_docs, reason = "MPI's standard describes them")]

foldwire_preload::entries!(foldwire_preload::Mpich);
