//! Environments that were recorded under real launchers: Slurm 22.05.8 with two nodes, and in its
//! jobs Open MPI 4.1.4, MPICH 4.0.2 and Flux 0.88.0. Variables that nothing reads are left out.
//!
//! Under Slurm, four ranks summed with: `srun` on one node and two; `--mpi=none`, `pmi2`, `pmix`;
//! steps one after another, and two at once (`--overlap`, `--exact`); `-r`, `--multi-prog`; `-m
//! cyclic`, `plane=1`, `arbitrary`; arrays; heterogeneous jobs (`--het-group=0,1`, each part
//! alone); `--export=NONE`; shells of `salloc`, with `use_interactive_step` and without; nodes
//! whose names do not resolve, or are 127.0.1.1. They ended by `scancel`, a time limit, and a
//! killed task, with `-K` and without.

use super::*;

/// Task 3 of 4 of `srun -N2 -n4`.
const SRUN: &str = "SLURM_PROCID=3 SLURM_STEP_NUM_TASKS=4 SLURM_NTASKS=4 SLURM_STEP_NUM_NODES=2 \
    SLURM_NNODES=2 SLURM_JOB_ID=58 SLURM_STEP_ID=0 SLURM_STEP_NODELIST=node[1-2] \
    SLURM_JOB_NODELIST=node[1-2] SLURMD_NODENAME=node2 SLURM_NODEID=1 ";
/// Variables that `--mpi=pmi2` adds.
const PMI2: &str = "PMI_FD=11 PMI_JOBID=58.0 PMI_RANK=3 PMI_SIZE=4 ";

/// Launcher, rank, and host of rank 0, for an environment of one of four ranks.
fn place_of_four(env: &str) -> (Launcher, u32, String) {
    let (launcher, rank, size, root) = found(env);
    assert_eq!(size, 4, "{env}");
    (launcher, rank, root.rsplit_once(':').unwrap().0.to_owned())
}

#[test]
fn tasks_of_srun_agree_on_the_first_node() {
    let expected = (Launcher::Slurm, 3, "node1".to_owned());
    assert_eq!(place_of_four(SRUN), expected);
    assert_eq!(place_of_four(&(SRUN.to_owned() + PMI2)), expected);
    let first = SRUN.replace("PROCID=3", "PROCID=0").replace("NODENAME=node2", "NODENAME=node1");
    assert_eq!(detect(&first).unwrap().root, detect(SRUN).unwrap().root);
    let (place, asked) = detect_asking(&(SRUN.to_owned() + PMI2));
    assert_eq!((place.unwrap().root.to_string(), asked.len()), ("10.0.0.7:77".to_owned(), 1));
}

/// `srun --mpi=pmix -N1 -n4`.
#[test]
fn a_task_with_pmix_is_one_of_srun() {
    let env = "PMIX_RANK=2 PMIX_NAMESPACE=slurm.pmix.59.0 SLURM_PROCID=2 SLURM_STEP_NUM_TASKS=4 \
        SLURM_STEP_NUM_NODES=1 SLURM_JOB_ID=59 SLURM_STEP_ID=0 SLURM_STEP_NODELIST=node1";
    assert_eq!(place_of_four(env), (Launcher::Slurm, 2, "127.0.0.1".to_owned()));
}

/// Slurm sorts its lists, so rank 0 need not run on their first node: `srun
/// --distribution=arbitrary`, and `srun -w node2 … : -w node1 …`.
#[test]
fn rank_0_on_a_later_node_is_an_error_that_names_both_nodes() {
    let zero = SRUN.replace("PROCID=3", "PROCID=0");
    let text = message(&zero);
    let parts = ["runs on node2", "on node1", "SLURM_STEP_NODELIST", "--mpi=pmi2", "FOLDWIRE_ROOT"];
    assert!(parts.iter().all(|part| text.contains(part)), "{text}");
    let rooted = found(&(zero.clone() + "FOLDWIRE_ROOT=node2:29753"));
    assert_eq!(rooted.3, "node2:29753");
    assert_eq!(found(&zero.replace("STEP_NUM_NODES=2", "STEP_NUM_NODES=1")).1, 0, "loopback");
    let pmi2 = PMI2.replace("RANK=3", "RANK=0");
    assert_eq!(detect_asking(&(zero + &pmi2)).0.unwrap().root.to_string(), "10.0.0.7:77");
}

/// `salloc` with `LaunchParameters=use_interactive_step` opens a shell in a step of one task. The
/// job has four.
#[test]
fn a_shell_of_salloc_or_a_batch_script_is_alone() {
    let job = "SLURM_JOB_ID=51 SLURM_NTASKS=4 SLURM_NNODES=2 SLURM_JOB_NODELIST=node[1-2] ";
    let step = "SLURM_PROCID=0 SLURM_STEP_ID=4294967290 SLURM_STEP_NODELIST=node1 \
        SLURM_STEP_NUM_NODES=1 SLURM_STEP_NUM_TASKS=1 SLURMD_NODENAME=node1";
    assert_eq!(detect(job), Ok(Place::alone()));
    assert_eq!(detect(&(job.to_owned() + "SLURM_PROCID=0 SLURM_NODEID=0")), Ok(Place::alone()));
    assert_eq!(found(&(job.to_owned() + step)).2, 1);
}

/// In a batch script, `mpirun` of Open MPI starts the ranks of its own node itself. A step of one
/// node starts those of each other node.
#[test]
fn open_mpi_in_a_job_agrees_on_the_first_node_of_the_job() {
    let common = "OMPI_COMM_WORLD_LOCAL_SIZE=2 OMPI_COMM_WORLD_SIZE=4 PMIX_NAMESPACE=1567490049 \
        OMPI_MCA_ess_base_jobid=1567490049 SLURM_JOB_ID=42 SLURM_JOB_NODELIST=node[1-2] \
        SLURM_PROCID=0 SLURM_NODEID=0 ";
    let zero = common.to_owned()
        + "OMPI_COMM_WORLD_RANK=0 PMIX_RANK=0 SLURMD_NODENAME=node1 SLURM_NNODES=2 SLURM_NTASKS=4";
    let two = common.to_owned()
        + "OMPI_COMM_WORLD_RANK=2 PMIX_RANK=2 SLURMD_NODENAME=node2 SLURM_NNODES=1 SLURM_NTASKS=1 \
           SLURM_STEP_ID=5 SLURM_STEP_NODELIST=node2 SLURM_STEP_NUM_NODES=1 SLURM_STEP_NUM_TASKS=1";
    assert_eq!(place_of_four(&zero), (Launcher::OpenMpi, 0, "node1".to_owned()));
    assert_eq!(place_of_four(&two), (Launcher::OpenMpi, 2, "node1".to_owned()));
    let (zero, two) = (detect(&zero).unwrap(), detect(&two).unwrap());
    assert_eq!((zero.root, zero.job), (two.root, two.job));
}

/// MPICH's launcher starts its proxies as one step of `srun`. Its ranks ask the proxies, because
/// it names no job. `SLURMD_NODENAME` is the node of `mpirun` on all ranks.
#[test]
fn mpich_in_a_job_asks_its_launcher() {
    let env = "MPI_LOCALNRANKS=2 PMI_FD=6 PMI_RANK=3 PMI_SIZE=4 SLURMD_NODENAME=node1 \
        SLURM_JOB_ID=42 SLURM_JOB_NODELIST=node[1-2] SLURM_NODEID=1 SLURM_PROCID=1 SLURM_STEP_ID=1 \
        SLURM_STEP_NODELIST=node[1-2] SLURM_STEP_NUM_NODES=2 SLURM_STEP_NUM_TASKS=2 ";
    for token in ["", "FOLDWIRE_TOKEN=0123456789abcdef"] {
        let (place, asked) = detect_asking(&(env.to_owned() + token));
        let place = place.unwrap();
        assert_eq!((place.launcher, place.rank, place.size), (Launcher::Hydra, Rank(3), 4));
        assert_eq!((place.root.to_string(), asked.len()), ("10.0.0.7:77".to_owned(), 1));
    }
}

/// Rank 3 of `flux run -N2 -n4`, in an instance of two nodes. Flux has removed the variables of the
/// step of Slurm that started it, all but this one.
#[test]
fn flux_asks_its_server_on_two_nodes_only() {
    let env = "FLUX_TASK_RANK=3 FLUX_JOB_SIZE=4 FLUX_JOB_NNODES=2 FLUX_JOB_ID=ƒNFNwznB PMI_FD=22 \
        PMI_RANK=3 PMI_SIZE=4 SLURMD_NODENAME=node1 ";
    for token in ["", "FOLDWIRE_TOKEN=0123456789abcdef"] {
        let (place, asked) = detect_asking(&(env.to_owned() + token));
        let place = place.unwrap();
        assert_eq!((place.launcher, place.rank, place.size), (Launcher::Flux, Rank(3), 4));
        assert_eq!((place.root.to_string(), asked.len()), ("10.0.0.7:77".to_owned(), 1));
    }
    let one = env.replace("NNODES=2", "NNODES=1");
    assert!(found(&one).3.starts_with("127.0.0.1:2"));
    assert_ne!(job(&one), job(&one.replace("ƒNFNwznB", "ƒkzTgzT")));
    // `flux run -o pmi=off`
    let off = env.replace("PMI_", "OTHER_");
    let text = message(&off);
    assert!(text.contains("FOLDWIRE_ROOT=HOST:PORT") && text.contains("pmi=simple"), "{text}");
}
