//! The functions of Open MPI that go through Foldwire, by their names in C and Fortran.
#![allow(unsafe_code, reason = "exports MPI's names; the macro argues")]
#![allow(missing_docs, reason = "MPI's standard describes them")]

foldwire_preload::entries!(foldwire_preload::OpenMpi);
foldwire_preload::fortran_entries!(foldwire_preload::OpenMpi);
