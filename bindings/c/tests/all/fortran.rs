//! Tests of the Fortran modules: they declare everything in the header, and programs can use them.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::package;
use crate::programs::{PREFIX, flags, has, rpath, succeeds};

const WARNINGS: [&str; 5] =
    ["-Wall", "-Wextra", "-Wno-compare-reals", "-Wno-function-elimination", "-Werror"];

/// Compiles a program with these modules, in its own folder.
fn compiled(compiler: &str, modules: &[&str], source: &str) -> PathBuf {
    let (prefix, name) = (&*PREFIX, Path::new(source).file_stem().unwrap());
    // The compiler writes module files to the current folder.
    let folder = prefix.join(format!("fortran-{compiler}-{}", name.display()));
    fs::create_dir_all(&folder).unwrap();
    let program = folder.join(name);
    let mut compile = Command::new(compiler);
    compile.current_dir(&folder).args(["-std=f2018", "-O1", "-g", "-pedantic"]).args(WARNINGS);
    compile.args(modules.iter().map(|module| prefix.join("include").join(module)));
    compile.arg(package().join(source)).arg("-o").arg(&program);
    succeeds(compile.args(flags(false)).arg(rpath()));
    program
}

#[test]
fn the_module_has_what_the_header_has() {
    let [header, module] = ["foldwire.h", "foldwire.f90"]
        .map(|name| fs::read_to_string(package().join("include").join(name)).unwrap());
    let mut n_known = 0;
    for line in header.lines() {
        let function = line.split_once('(').and_then(|(before, _)| {
            let name = before.rsplit([' ', '*']).next()?;
            (line.starts_with("fwResult fw") || line.starts_with("const char *fw")).then_some(name)
        });
        if let Some(name) = function {
            assert!(module.contains(&format!("bind(c, name=\"{name}\")")), "{name}");
            n_known += 1;
        }
        let constant = line.strip_prefix("#define FW_").and_then(|rest| rest.split_once(' '));
        if let Some((name, value)) = constant.filter(|(_, value)| value.parse::<i32>().is_ok()) {
            let said = format!("integer(c_int32_t), parameter :: FW_{name} = {value}\n");
            assert!(module.contains(&said), "{said}");
            n_known += 1;
        }
    }
    assert!(n_known > 90, "{n_known}");
}

#[test]
fn a_program_in_fortran_calls_all_of_it() {
    if !has("gfortran", "the Fortran module") {
        return;
    }
    let program = compiled("gfortran", &["foldwire.f90"], "tests/fortran/calls.f90");
    let said = succeeds(&mut Command::new(program));
    let n_checks = said.trim().strip_suffix(" checks").and_then(|n| n.parse::<u64>().ok());
    assert!(n_checks.is_some_and(|n| n > 60), "{said}");
}

#[test]
fn the_example_in_fortran_runs_as_processes() {
    const SIZE: usize = 3;
    if !has("gfortran", "the example in Fortran") {
        return;
    }
    let program = compiled("gfortran", &["foldwire.f90"], "examples/average.f90");
    let port = TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr()).unwrap();
    let ranks: Vec<Child> = (0..SIZE)
        .map(|rank| {
            let mut command = Command::new(&program);
            command.env("FOLDWIRE_RANK", rank.to_string()).env("FOLDWIRE_SIZE", SIZE.to_string());
            command.env("FOLDWIRE_ROOT", port.to_string()).stdout(Stdio::piped()).spawn().unwrap()
        })
        .collect();
    for (rank, child) in ranks.into_iter().enumerate() {
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(said.starts_with(&format!("rank {rank} of {SIZE}: 1.")), "{said}");
        assert!(output.status.success());
    }
}

#[test]
fn ranks_of_mpi_are_ranks_in_fortran() {
    for library in ["openmpi", "mpich"] {
        let [compiler, launcher] = ["mpif90", "mpirun"].map(|tool| format!("{tool}.{library}"));
        if !has(&compiler, "the Fortran module beside MPI") {
            continue;
        }
        let modules = ["foldwire.f90", "foldwire_mpi.f90"];
        let program = compiled(&compiler, &modules, "tests/fortran/mpi.f90");
        let mut command = Command::new(launcher);
        let root = ["OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"];
        command.envs(root.map(|name| (name, "1"))).env("OMPI_MCA_rmaps_base_oversubscribe", "1");
        command.env("MPIR_CVAR_POLLS_BEFORE_YIELD", "1");
        let said = succeeds(command.args(["-n", "3"]).arg(program));
        assert!(said.contains("ranks agree"), "{compiler}: {said}");
    }
}
