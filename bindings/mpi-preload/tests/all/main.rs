//! Tests of the pure modules. One program, so that it is linked once. The packages of the libraries
//! (`open-mpi/`, `mpich/`, `mpi-abi/`) test programs under mpirun, since Cargo builds the libraries
//! for them.

mod agree;
mod compressed_message;
mod decide;
mod filter;
mod guard;
mod obstacle;
mod report;
mod rules;
mod settings;
mod signature;
mod variables;
