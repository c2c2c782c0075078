//! Unmodified programs of MPICH.

#[path = "../../tests/programs/mod.rs"]
mod programs;

use programs::Library;

const LIBRARY: Library = Library {
    name: "MPICH",
    compilers: &["mpicc.mpich", "mpicc"],
    fortran: &["mpifort.mpich", "mpifort"],
    launchers: &["mpirun.mpich", "mpirun"],
    says: "HYDRA",
    file: "libfoldwire_preload_mpich.so",
    is_mpich: true,
};

#[test]
fn calls_of_all_kinds_are_right() {
    programs::calls(&LIBRARY);
}

#[test]
fn programs_that_find_large_counts_may_use_them() {
    programs::large_counts(&LIBRARY);
}

#[test]
fn fortran_programs_are_taken_too() {
    programs::fortran(&LIBRARY);
}

#[test]
fn variables_that_mean_nothing_end_the_job_and_those_that_differ_pass_all_on() {
    programs::variables(&LIBRARY);
}

#[test]
fn constants_are_those_of_the_header() {
    programs::constants(&LIBRARY);
}
