//! Exports those C and Fortran functions of Open MPI that Foldwire intercepts.
#![allow(unsafe_code, reason = "exports MPI's functions; the macro has the SAFETY arguments")]
#![allow(missing_docs, reason = "MPI's standard describes them")]

foldwire_preload::entries!(foldwire_preload::OpenMpi);
foldwire_preload::fortran_entries!(foldwire_preload::OpenMpi);
