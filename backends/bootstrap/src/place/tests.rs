//! Environments as launchers make them, and as users break them.

use super::*;

/// `NAME=value` words.
fn detect(env: &str) -> Result<Place, PlaceError> {
    let set: Vec<_> = env.split_whitespace().map(|word| word.split_once('=').unwrap()).collect();
    Place::detect(|name| {
        set.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into())
    })
}

fn found(env: &str) -> (Launcher, u32, usize, String) {
    let place = detect(env).unwrap();
    (place.launcher, place.rank.0, place.size, place.root.to_string())
}

fn message(env: &str) -> String {
    detect(env).unwrap_err().to_string()
}

const OPEN_MPI: &str = "OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_SIZE=2 PMIX_RANK=1 PMIX_NAMESPACE=1438646273 ";
const MPICH: &str = "PMI_RANK=1 PMI_SIZE=3 MPI_LOCALNRANKS=3 MPI_LOCALRANKID=1 ";
const SLURM: &str = "SLURM_PROCID=5 SLURM_STEP_NUM_TASKS=8 SLURM_NTASKS=16 SLURM_STEP_NUM_NODES=2 SLURM_NNODES=4 \
     SLURM_JOB_ID=1234 SLURM_STEP_ID=0 SLURM_STEP_NODELIST=node[07-08] SLURM_JOB_NODELIST=node[06-09] ";

#[test]
fn nothing_set_is_a_single_process() {
    assert_eq!(detect(""), Ok(Place::alone()));
    assert_eq!(detect("FOLDWIRE_RANK= FOLDWIRE_SIZE="), Ok(Place::alone()));
}

#[test]
fn foldwires_own_variables_come_first() {
    let own =
        "FOLDWIRE_RANK=3 FOLDWIRE_SIZE=4 FOLDWIRE_ROOT=[::1]:77 FOLDWIRE_TOKEN=0123456789abcdef ";
    let expected = (Launcher::Foldwire, 3, 4, "[::1]:77".to_owned());
    assert_eq!(found(own), expected);
    assert_eq!(found(&(own.to_owned() + OPEN_MPI + MPICH + SLURM)), expected);
    assert_eq!(detect(own).unwrap().token, Token::new("0123456789abcdef").ok());
}

#[test]
fn the_root_is_loopback_by_default() {
    let (.., root) = found("FOLDWIRE_RANK=0 FOLDWIRE_SIZE=2");
    assert_eq!(root, format!("127.0.0.1:{DEFAULT_PORT}"));
}

#[test]
fn open_mpi_and_mpich_are_understood() {
    let (launcher, rank, size, root) = found(OPEN_MPI);
    assert_eq!((launcher, rank, size), (Launcher::OpenMpi, 1, 2));
    assert!(root.starts_with("127.0.0.1:2"), "{root}");
    assert_ne!(root, found(&OPEN_MPI.replace("1438646273", "1438646274")).3, "another job");
    let (launcher, rank, size, root) = found(MPICH);
    assert_eq!((launcher, rank, size), (Launcher::Hydra, 1, 3));
    assert_eq!(root, format!("127.0.0.1:{DEFAULT_PORT}"));
}

#[test]
fn slurm_gives_the_first_node_of_the_step_and_a_port_of_the_job() {
    let (launcher, rank, size, root) = found(SLURM);
    assert_eq!((launcher, rank, size), (Launcher::Slurm, 5, 8));
    let (host, port) = root.split_once(':').unwrap();
    assert_eq!(host, "node07");
    assert!((20_000..29_000).contains(&port.parse::<u16>().unwrap()), "{port}");
    assert_eq!(root, found(&SLURM.replace("PROCID=5", "PROCID=0")).3, "all ranks agree");
    assert_ne!(root, found(&SLURM.replace("STEP_ID=0", "STEP_ID=1")).3, "another step");
    assert_ne!(root, found(&SLURM.replace("JOB_ID=1234", "JOB_ID=1235")).3, "another job");
    let no_step_list = SLURM.replace("SLURM_STEP_NODELIST", "OTHER");
    assert!(found(&no_step_list).3.starts_with("node06:"));
}

#[test]
fn slurm_on_one_node_is_loopback() {
    let (.., root) = found(&SLURM.replace("STEP_NUM_NODES=2", "STEP_NUM_NODES=1"));
    assert!(root.starts_with("127.0.0.1:2"), "{root}");
}

/// A batch script has a SLURM_PROCID, and SLURM_NTASKS is the job's.
#[test]
fn a_batch_script_is_no_rank() {
    let script = SLURM.replace("SLURM_STEP_", "OTHER_");
    assert_eq!(detect(&script), Ok(Place::alone()));
}

#[test]
fn mpirun_inside_slurm_counts_before_slurm() {
    let inside = SLURM.to_owned() + &OPEN_MPI.replace("LOCAL_SIZE=2", "LOCAL_SIZE=1");
    let (launcher, rank, size, root) = found(&inside);
    assert_eq!((launcher, rank, size), (Launcher::OpenMpi, 1, 2));
    assert!(root.starts_with("node07:"), "{root}");
}

/// `srun --mpi=pmi2` sets both; Slurm says more.
#[test]
fn slurms_own_pmi_is_slurm() {
    let pmi = "PMI_RANK=5 PMI_SIZE=8 ";
    assert_eq!(found(&(SLURM.to_owned() + pmi)), found(SLURM));
    let hydra = "PMI_RANK=3 PMI_SIZE=16 MPI_LOCALNRANKS=8 ";
    let (launcher, rank, size, root) = found(&(SLURM.to_owned() + hydra));
    assert_eq!((launcher, rank, size), (Launcher::Hydra, 3, 16));
    assert_eq!(root, format!("node07:{DEFAULT_PORT}"));
    assert_eq!(detect(pmi), Err(PlaceError::RootUnknown { launcher: Launcher::Pmi }));
    let (launcher, .., root) = found("PMI_RANK=5 PMI_SIZE=8 PMI_LOCAL_SIZE=8");
    assert_eq!((launcher, root), (Launcher::Pmi, format!("127.0.0.1:{DEFAULT_PORT}")));
}

/// It is started once per node by others, whose ranks are no ranks of its job.
#[test]
fn torchrun_counts_before_who_started_it() {
    let torchrun = "TORCHELASTIC_RUN_ID=none TORCHELASTIC_RESTART_COUNT=0 RANK=3 WORLD_SIZE=4 \
         LOCAL_WORLD_SIZE=2 MASTER_ADDR=node1 MASTER_PORT=29500 ";
    let (launcher, rank, size, root) = found(&(SLURM.to_owned() + OPEN_MPI + torchrun));
    assert_eq!((launcher, rank, size), (Launcher::Torchrun, 3, 4));
    let port = |root: &str| root.strip_prefix("node1:").and_then(|port| port.parse::<u16>().ok());
    assert!(port(&root).is_some_and(|port| (20_000..29_000).contains(&port)), "{root}");
    assert_ne!(root, found(&torchrun.replace("COUNT=0", "COUNT=1")).3, "the job starts anew");
    let here = torchrun.replace("LOCAL_WORLD_SIZE=2", "LOCAL_WORLD_SIZE=4");
    assert!(found(&here).3.starts_with("127.0.0.1:2"));
    // Its variables alone are anybody's.
    let by_hand = torchrun.replace("TORCHELASTIC", "OTHER");
    assert_eq!(found(&(OPEN_MPI.to_owned() + &by_hand)).0, Launcher::OpenMpi);
    let (launcher, rank, .., root) = found(&by_hand);
    assert_eq!((launcher, rank), (Launcher::Torchrun, 3));
    assert!(port(&root).is_some(), "{root}");
    assert_eq!(detect("RANK=3 WORLD_SIZE=4"), Ok(Place::alone()));
}

#[test]
fn pmix_alone_needs_a_size_and_a_root() {
    let pmix = "PMIX_RANK=2 PMIX_NAMESPACE=prterun-node1-77@1 ";
    assert_eq!(
        detect(pmix),
        Err(PlaceError::Missing { variable: "FOLDWIRE_SIZE", although: "PMIX_RANK" })
    );
    let sized = pmix.to_owned() + "FOLDWIRE_SIZE=4 ";
    assert_eq!(detect(&sized), Err(PlaceError::RootUnknown { launcher: Launcher::Pmix }));
    let rooted = sized + "FOLDWIRE_ROOT=node1:80";
    assert_eq!(found(&rooted), (Launcher::Pmix, 2, 4, "node1:80".to_owned()));
}

#[test]
fn several_machines_without_a_root_are_an_error_that_says_how() {
    let text = message(&OPEN_MPI.replace("LOCAL_SIZE=2", "LOCAL_SIZE=1"));
    assert!(
        text.contains("FOLDWIRE_ROOT=HOST:PORT") && text.contains("-x FOLDWIRE_ROOT"),
        "{text}"
    );
    let text = message(&MPICH.replace("MPI_LOCALNRANKS=3", "MPI_LOCALNRANKS=2"));
    assert!(text.contains("FOLDWIRE_ROOT=HOST:PORT") && text.contains("-genv"), "{text}");
    let (.., root) = found("OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=1");
    assert!(root.starts_with("127.0.0.1:"), "one rank needs no root: {root}");
}

#[test]
fn errors_name_the_variable_and_what_it_holds() {
    for (env, parts) in [
        ("FOLDWIRE_RANK=two FOLDWIRE_SIZE=4", ["FOLDWIRE_RANK", "`two`"]),
        ("FOLDWIRE_RANK=-1 FOLDWIRE_SIZE=4", ["FOLDWIRE_RANK", "`-1`"]),
        ("FOLDWIRE_RANK=4 FOLDWIRE_SIZE=4", ["FOLDWIRE_RANK holds 4", "FOLDWIRE_SIZE holds 4"]),
        ("FOLDWIRE_RANK=0 FOLDWIRE_SIZE=0", ["FOLDWIRE_SIZE holds 0", "1 to 65536"]),
        ("FOLDWIRE_RANK=0 FOLDWIRE_SIZE=65537", ["FOLDWIRE_SIZE holds 65537", "1 to 65536"]),
        ("FOLDWIRE_RANK=0", ["FOLDWIRE_RANK is set", "FOLDWIRE_SIZE is not"]),
        ("FOLDWIRE_SIZE=2", ["FOLDWIRE_SIZE is set", "FOLDWIRE_RANK is not"]),
        ("FOLDWIRE_RANK=0 FOLDWIRE_SIZE=2 FOLDWIRE_ROOT=here", ["FOLDWIRE_ROOT", "`here`"]),
        ("FOLDWIRE_RANK=0 FOLDWIRE_SIZE=2 FOLDWIRE_TOKEN=short", ["FOLDWIRE_TOKEN", "has 5"]),
        ("PMI_RANK=7 PMI_SIZE=2", ["PMI_RANK holds 7", "PMI_SIZE holds 2"]),
        ("OMPI_COMM_WORLD_RANK=0", ["OMPI_COMM_WORLD_RANK is set", "OMPI_COMM_WORLD_SIZE is not"]),
    ] {
        let text = message(env);
        assert!(parts.iter().all(|part| text.contains(part)), "{env}: {text}");
    }
    let text = message(&SLURM.replace("node[07-08]", "node["));
    assert!(text.contains("SLURM_STEP_NODELIST holds `node[`"), "{text}");
    let text = message("FOLDWIRE_RANK=0 FOLDWIRE_SIZE=2 FOLDWIRE_TOKEN=short");
    assert!(!text.contains("short`"), "a token is not shown: {text}");
}

#[cfg(unix)]
#[test]
fn other_encodings_are_an_error() {
    use std::os::unix::ffi::OsStringExt;

    let place = Place::detect(|name| {
        (name == "FOLDWIRE_RANK").then(|| OsString::from_vec(vec![0x31, 0xff]))
    });
    assert_eq!(place, Err(PlaceError::NotText { variable: "FOLDWIRE_RANK" }));
}
