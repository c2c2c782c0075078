//! Environments that launchers set, and invalid ones.

use super::*;

mod recorded;

/// Detects from `NAME=value` words.
fn detect(env: &str) -> Result<Place, PlaceError> {
    detect_below(env, None)
}

/// Detects with `proxy` as the process of MPICH's launcher.
fn detect_below(env: &str, proxy: Option<&str>) -> Result<Place, PlaceError> {
    let set: Vec<_> = env.split_whitespace().map(|word| word.split_once('=').unwrap()).collect();
    let lookup =
        |name: &str| set.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into());
    let ancestor = |name: &str| {
        assert_eq!(name, "hydra_pmi_proxy");
        proxy.map(str::to_owned)
    };
    Place::detect_with(lookup, ancestor, None)
}

fn found(env: &str) -> (Launcher, u32, usize, String) {
    let place = detect(env).unwrap();
    (place.launcher, place.rank.0, place.size, place.root.to_string())
}

fn job(env: &str) -> Job {
    detect(env).unwrap().job
}

fn message(env: &str) -> String {
    detect(env).unwrap_err().to_string()
}

const OPEN_MPI: &str = "OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_SIZE=2 \
    PMIX_RANK=1 PMIX_NAMESPACE=1438646273 ";
const MPICH: &str = "PMI_RANK=1 PMI_SIZE=3 MPI_LOCALNRANKS=3 MPI_LOCALRANKID=1 ";
const SLURM: &str = "SLURM_PROCID=5 SLURM_STEP_NUM_TASKS=8 SLURM_NTASKS=16 \
     SLURM_STEP_NUM_NODES=2 SLURM_NNODES=4 SLURM_JOB_ID=1234 SLURM_STEP_ID=0 \
     SLURM_STEP_NODELIST=node[07-08] SLURM_JOB_NODELIST=node[06-09] ";

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
    let (.., root) = found("FOLDWIRE_RANK=0 FOLDWIRE_SIZE=2 FOLDWIRE_JOB=a");
    assert!(root.starts_with("127.0.0.1:2"), "{root}");
}

#[test]
fn open_mpi_and_mpich_are_understood() {
    let (launcher, rank, size, root) = found(OPEN_MPI);
    assert_eq!((launcher, rank, size), (Launcher::OpenMpi, 1, 2));
    assert!(root.starts_with("127.0.0.1:2"), "{root}");
    assert_ne!(root, found(&OPEN_MPI.replace("1438646273", "1438646274")).3, "another job");
    let place = detect_below(MPICH, Some("77 1234")).unwrap();
    assert_eq!((place.launcher, place.rank, place.size), (Launcher::Hydra, Rank(1), 3));
    assert!(place.root.to_string().starts_with("127.0.0.1:2"), "{place:?}");
}

/// Variables that each launcher sets for one rank, a part of that text, and the text that replaces
/// the part in another job.
const JOBS: [(&str, &str, &str); 9] = [
    ("FOLDWIRE_RANK=1 FOLDWIRE_SIZE=2 FOLDWIRE_JOB=a", "JOB=a", "JOB=b"),
    (
        "RANK=1 WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 TORCHELASTIC_RUN_ID=none MASTER_PORT=29500",
        "=29500",
        "=29501",
    ),
    (
        "RANK=1 WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 TORCHELASTIC_RUN_ID=a MASTER_PORT=29500",
        "RUN_ID=a",
        "RUN_ID=b",
    ),
    (OPEN_MPI, "1438646273", "1438646274"),
    (
        "OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_SIZE=2 \
         OMPI_MCA_ess_base_jobid=7",
        "jobid=7",
        "jobid=8",
    ),
    (SLURM, "STEP_ID=0", "STEP_ID=1"),
    (SLURM, "JOB_ID=1234", "JOB_ID=1235"),
    ("PMI_RANK=1 PMI_SIZE=2 PMI_LOCAL_SIZE=2 PMI_JOBID=a", "JOBID=a", "JOBID=b"),
    (
        "RANK=1 WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 MASTER_ADDR=node1 MASTER_PORT=29500",
        "=29500",
        "=29501",
    ),
];

#[test]
fn each_launchers_jobs_are_told_apart() {
    for (env, this, other) in JOBS {
        assert!(env.contains(this), "{env}");
        assert_ne!(job(env), job(&env.replace(this, other)), "{env}");
        let other_rank = [("RANK=1", "RANK=0"), ("PROCID=5", "PROCID=4")];
        let other_rank = other_rank.iter().fold(env.to_owned(), |env, (a, b)| env.replace(a, b));
        assert_ne!(detect(env), detect(&other_rank), "{env}");
        assert_eq!(job(env), job(&other_rank), "all ranks of a job agree: {env}");
        let named = |name| job(&format!("{env} FOLDWIRE_JOB={name}"));
        assert!(env.contains("FOLDWIRE_JOB") || named("x") != named("y"), "{env}");
    }
    let hydra = |proxy| detect_below(MPICH, Some(proxy)).unwrap().job;
    assert_ne!(hydra("77 1234"), hydra("77 1235"));
}

/// Ranks that joined another job's group would get wrong sums.
#[test]
fn who_does_not_name_a_job_is_refused_unless_an_address_was_given() {
    for (env, launcher) in [
        ("FOLDWIRE_RANK=0 FOLDWIRE_SIZE=2", Launcher::Foldwire),
        ("FOLDWIRE_RANK=0 FOLDWIRE_SIZE=2 FOLDWIRE_TOKEN=0123456789abcdef", Launcher::Foldwire),
        (MPICH, Launcher::Hydra),
        ("PMI_RANK=0 PMI_SIZE=2 PMI_LOCAL_SIZE=2", Launcher::Pmi),
        (
            "OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_SIZE=2",
            Launcher::OpenMpi,
        ),
        ("RANK=0 WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 MASTER_ADDR=a", Launcher::Torchrun),
        ("SLURM_PROCID=0 SLURM_STEP_ID=0 SLURM_NTASKS=2 SLURM_NNODES=1", Launcher::Slurm),
    ] {
        assert_eq!(detect(env), Err(PlaceError::JobUnknown { launcher }), "{env}");
        let text = message(env);
        assert!(text.contains("set FOLDWIRE_JOB to") && text.contains("FOLDWIRE_ROOT="), "{text}");
        assert_ne!(job(&format!("{env} FOLDWIRE_JOB=a")), job(&format!("{env} FOLDWIRE_JOB=b")));
        let rooted = detect(&format!("{env} FOLDWIRE_ROOT=127.0.0.1:77")).unwrap();
        assert_eq!(rooted.job, Job::at_given_root());
    }
    assert!(message(MPICH).contains("-genv FOLDWIRE_JOB"));
    // A single process needs no job.
    assert_eq!(found("PMI_RANK=0 PMI_SIZE=1 PMI_LOCAL_SIZE=1").2, 1);
}

/// Shells and scripts use variables of these names for other purposes.
#[test]
fn variables_count_only_as_a_set() {
    for env in [
        "RANK=captain",
        "RANK=captain WORLD_SIZE=large",
        "RANK=captain MASTER_ADDR=somewhere",
        "RANK=3 MASTER_ADDR=somewhere TORCHELASTIC_RUN_ID=none",
        "SLURM_PROCID=x",
        "SLURM_PROCID=x SLURM_STEP_ID=y",
        "SLURM_PROCID=0 SLURM_NTASKS=z",
        "PMI_RANK=none",
        "PMI_RANK=0",
        "PMI_RANK=none MPI_LOCALNRANKS=2",
        "PMI_SIZE=x WORLD_SIZE=x SLURM_NTASKS=x OMPI_COMM_WORLD_SIZE=x",
    ] {
        assert_eq!(detect(env), Ok(Place::alone()), "{env}");
    }
    let set = "PMI_RANK=x RANK=y FOLDWIRE_RANK=0 FOLDWIRE_SIZE=2 FOLDWIRE_JOB=a";
    assert_eq!(found(set).0, Launcher::Foldwire);
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

/// A batch script has a SLURM_PROCID, and the job's SLURM_NTASKS.
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
    assert!(root.starts_with("node06:"), "{root}");
}

/// `srun --mpi=pmi2` sets PMI's and Slurm's variables. Slurm's also name the nodes.
#[test]
fn slurms_own_pmi_is_slurm() {
    let pmi = "PMI_RANK=5 PMI_SIZE=8 ";
    assert_eq!(found(&(SLURM.to_owned() + pmi)), found(SLURM));
    let hydra = "PMI_RANK=3 PMI_SIZE=16 MPI_LOCALNRANKS=8 ";
    let below = SLURM.to_owned() + hydra + "FOLDWIRE_JOB=a ";
    let (launcher, rank, size, root) = found(&below);
    assert_eq!((launcher, rank, size), (Launcher::Hydra, 3, 16));
    assert!(root.starts_with("node07:2"), "{root}");
    // Each node has its own process of the launcher, so it does not identify the job.
    let of = |proxy| detect_below(&below, Some(proxy)).unwrap().job;
    assert_eq!(of("77 1234"), of("78 1234"));
    assert_eq!(detect(pmi), Err(PlaceError::RootUnknown { launcher: Launcher::Pmi }));
    let (launcher, .., root) = found("PMI_RANK=5 PMI_SIZE=8 PMI_LOCAL_SIZE=8 PALS_APID=7");
    assert_eq!(launcher, Launcher::Pmi);
    assert!(root.starts_with("127.0.0.1:2"), "{root}");
}

/// Another launcher starts torchrun once on each node. The ranks that this launcher counts are not
/// the ranks of torchrun's job.
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
    let by_hand = torchrun.replace("TORCHELASTIC", "OTHER");
    let (launcher, rank, .., root) = found(&by_hand);
    assert_eq!((launcher, rank), (Launcher::Torchrun, 3));
    assert!(port(&root).is_some(), "{root}");
    assert_eq!(detect("RANK=3 WORLD_SIZE=4"), Ok(Place::alone()));
}

/// A script sets PyTorch's variables below another launcher, or the other launcher's are left over.
#[test]
fn contradicting_launchers_are_a_clear_choice_or_an_error_that_names_both() {
    let torch = "RANK=3 WORLD_SIZE=4 MASTER_ADDR=node1 MASTER_PORT=29500 ";
    // One task, such as `srun --pty bash`, started no group.
    let one = "SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=1 SLURM_STEP_ID=0 SLURM_JOB_ID=7 ";
    let (launcher, rank, size, _) = found(&(one.to_owned() + torch));
    assert_eq!((launcher, rank, size), (Launcher::Torchrun, 3, 4));
    let lonely = torch.replace("RANK=3 WORLD_SIZE=4", "RANK=0 WORLD_SIZE=1");
    assert_eq!(found(&(SLURM.to_owned() + &lonely)).0, Launcher::Slurm);
    for (env, rank) in [(SLURM, "SLURM_PROCID holds 5"), (OPEN_MPI, "WORLD_RANK holds 1")] {
        let text = message(&(env.to_owned() + torch));
        let parts = [rank, "WORLD_SIZE holds 4", "RANK holds 3", "FOLDWIRE_RANK"];
        assert!(parts.iter().all(|part| text.contains(part)), "{text}");
    }
    let agreed = found(&(OPEN_MPI.to_owned() + "RANK=1 WORLD_SIZE=2 MASTER_ADDR=a MASTER_PORT=1"));
    assert_eq!(agreed.0, Launcher::OpenMpi, "the same counts are no conflict");
    let text = message(&(SLURM.to_owned() + "PMI_RANK=1 PMI_SIZE=2"));
    assert!(text.contains("SLURM_PROCID holds 5") && text.contains("PMI_RANK holds 1"), "{text}");
    assert_eq!(found(&(SLURM.to_owned() + "PMI_RANK=5 PMI_SIZE=8")).0, Launcher::Slurm);
    // PRRTE's ranks inherit the Slurm task of its daemon.
    let text = message(&(SLURM.to_owned() + "PMIX_RANK=1 PMIX_NAMESPACE=prterun-1@1"));
    let parts = ["PMIX_RANK", "SLURM_PROCID", "FOLDWIRE_SIZE"];
    assert!(parts.iter().all(|part| text.contains(part)), "{text}");
    assert_eq!(found(&(SLURM.to_owned() + "PMIX_RANK=5")).0, Launcher::Slurm);
    // A rank without a size does not hide variables that are complete.
    assert_eq!(found(&("PMIX_RANK=1 ".to_owned() + torch)).0, Launcher::Torchrun);
    // Ranks of Flux below a task of Slurm.
    let flux = "FLUX_TASK_RANK=1 FLUX_JOB_SIZE=2 FLUX_JOB_NNODES=1 FLUX_JOB_ID=f1 ";
    let (launcher, rank, size, _) = found(&(SLURM.to_owned() + flux));
    assert_eq!((launcher, rank, size), (Launcher::Flux, 1, 2));
    // Their job may have a part of the nodes of Slurm's step.
    let flux = flux.replace("NNODES=1", "NNODES=2");
    let unknown = Err(PlaceError::RootUnknown { launcher: Launcher::Flux });
    assert_eq!(detect(&(SLURM.to_owned() + &flux)), unknown);
}

/// Detects with a PMI server that answers with a root. Returns what it was asked, too.
fn detect_asking(env: &str) -> (Result<Place, PlaceError>, Vec<PmiRequest>) {
    let set: Vec<_> = env.split_whitespace().map(|word| word.split_once('=').unwrap()).collect();
    let lookup =
        |name: &str| set.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into());
    let asked = std::cell::RefCell::new(Vec::new());
    let ask = |request: &PmiRequest| {
        asked.borrow_mut().push(request.clone());
        let (rank, size) = request.place.unwrap_or((6, 7));
        let secret = Token::new("0123456789abcdef").unwrap();
        Ok(Meeting { rank, size, root: Root::new("10.0.0.7", 77), name: "n".into(), secret })
    };
    let place = Place::detect_with(lookup, |_| None, Some(&ask));
    (place, asked.into_inner())
}

#[test]
fn a_pmi_server_is_asked_only_for_what_the_environment_lacks() {
    let slurm_with = SLURM.to_owned() + "PMI_FD=9 ";
    for (env, n_asked) in [
        ("PMI_RANK=1 PMI_SIZE=3 MPI_LOCALNRANKS=2 PMI_FD=9".to_owned(), 1),
        ("PMI_RANK=1 PMI_SIZE=3 PMI_PORT=h:1 PMI_ID=4".to_owned(), 1),
        ("PMI_PORT=h:1 PMI_ID=4".to_owned(), 1),
        (slurm_with.clone(), 1),
        (slurm_with.clone() + "FOLDWIRE_TOKEN=0123456789abcdef", 0),
        (slurm_with + "FOLDWIRE_ROOT=a:1", 0),
        ("PMI_RANK=1 PMI_SIZE=3 PMI_FD=9 FOLDWIRE_ROOT=a:1".to_owned(), 0),
        ("PMI_RANK=0 PMI_SIZE=1 PMI_FD=9".to_owned(), 0),
        ("PMI_RANK=1 PMI_SIZE=3 PMI_LOCAL_SIZE=3 PMI_JOBID=a PMI_FD=9".to_owned(), 0),
        (OPEN_MPI.to_owned() + "PMI_FD=9", 0),
    ] {
        let (place, asked) = detect_asking(&env);
        assert_eq!(asked.len(), n_asked, "{env}");
        let place = place.unwrap();
        assert_eq!(place.root.to_string() == "10.0.0.7:77", n_asked > 0, "{env}");
        assert!(n_asked == 0 || place.token.is_some(), "{env}");
    }
    let (place, asked) = detect_asking("PMI_PORT=h:1 PMI_ID=4 MPI_LOCALNRANKS=2");
    let place = place.unwrap();
    assert_eq!((place.rank, place.size, place.launcher), (Rank(6), 7, Launcher::Pmi));
    let server = PmiServer::Port { address: "h:1".into(), id: 4 };
    assert_eq!((&asked[0].server, asked[0].local_ranks), (&server, Some(2)));
    assert_eq!(detect("PMI_PORT=h:1 PMI_ID=4"), Err(PlaceError::OnlyServer));
    let wrong = detect_asking("PMI_RANK=1 PMI_SIZE=3 PMI_FD=x").0.unwrap_err().to_string();
    assert!(wrong.contains("PMI_FD holds `x`"), "{wrong}");
    for address in ["here", "0.0.0.0", "::"] {
        let wrong = format!("PMI_RANK=1 PMI_SIZE=3 PMI_FD=3 FOLDWIRE_ADDRESS={address}");
        let wrong = detect_asking(&wrong).0.unwrap_err().to_string();
        assert!(wrong.contains(&format!("`{address}`")), "{wrong}");
    }
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
