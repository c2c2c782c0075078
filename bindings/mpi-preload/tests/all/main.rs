//! What is pure of it. One program, so that it is linked once. Programs under mpirun are tested by
//! the packages of the libraries (`open-mpi/`, `mpich/`), which cargo builds for them.

mod agree;
mod decide;
mod filter;
mod guard;
mod report;
mod rules;
mod settings;
mod signature;
mod variables;
