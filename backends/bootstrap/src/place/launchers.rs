//! The environment variables of launchers, in the order in which they count.

use super::Launcher;

/// The environment variables of a launcher.
pub(super) struct LauncherVariables {
    pub(super) launcher: Launcher,
    /// Variable with the rank of this process.
    pub(super) rank: &'static str,
    /// Another variable that the launcher always sets. If it is not set, the process has another
    /// launcher.
    pub(super) also: Option<&'static str>,
    /// Variables with the number of ranks. The first one that is set counts.
    pub(super) size: &'static [&'static str],
    /// True if no other program uses the rank's variable, so that a missing size is an error.
    pub(super) is_own_name: bool,
    pub(super) nodes: SingleNodeTest,
    /// Variable with the host of rank 0.
    pub(super) host: Option<&'static str>,
    /// Variables with Slurm's list of nodes, whose first is the host of rank 0. The first variable
    /// that is set counts.
    pub(super) node_lists: &'static [&'static str],
    /// Variables that name the job. At least one must be set.
    pub(super) job: &'static [&'static str],
    /// Variables that distinguish jobs of the same name.
    pub(super) run: &'static [&'static str],
    /// True if the launcher may have a PMI server.
    pub(super) may_have_pmi: bool,
    /// Name of the ancestor process of all ranks on a machine, which identifies the job there.
    pub(super) ancestor: Option<&'static str>,
}

/// Test for whether all ranks are on one machine.
pub(super) enum SingleNodeTest {
    /// Assume that they are. For ranks on several machines the user sets a root.
    Assumed,
    /// This variable holds the number of ranks on this machine. Compare it with the size.
    LocalRanks(&'static str),
    /// The first of these variables that is set holds the number of nodes. Compare it with 1.
    NodeCount(&'static [&'static str]),
    /// The launcher sets no such variable. Assume that they are not.
    Unknown,
}

/// The variables that a launcher need not have.
const NOTHING_SET: LauncherVariables = LauncherVariables {
    launcher: Launcher::Foldwire,
    rank: "",
    also: None,
    size: &[],
    is_own_name: false,
    nodes: SingleNodeTest::Unknown,
    host: None,
    node_lists: &[],
    job: &[],
    run: &[],
    may_have_pmi: false,
    ancestor: None,
};

pub(super) const LAUNCHERS: [LauncherVariables; 9] = [
    LauncherVariables {
        launcher: Launcher::Foldwire,
        rank: "FOLDWIRE_RANK",
        size: &["FOLDWIRE_SIZE"],
        is_own_name: true,
        nodes: SingleNodeTest::Assumed,
        ..NOTHING_SET
    },
    LauncherVariables {
        launcher: Launcher::Torchrun,
        rank: "RANK",
        also: Some("TORCHELASTIC_RUN_ID"),
        size: &["WORLD_SIZE"],
        nodes: SingleNodeTest::LocalRanks("LOCAL_WORLD_SIZE"),
        host: Some("MASTER_ADDR"),
        job: &["MASTER_PORT"],
        run: &["TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT"],
        ..NOTHING_SET
    },
    LauncherVariables {
        launcher: Launcher::OpenMpi,
        rank: "OMPI_COMM_WORLD_RANK",
        size: &["OMPI_COMM_WORLD_SIZE"],
        is_own_name: true,
        nodes: SingleNodeTest::LocalRanks("OMPI_COMM_WORLD_LOCAL_SIZE"),
        node_lists: NODES_OF_JOB,
        job: &[
            "PMIX_NAMESPACE",
            "OMPI_MCA_ess_base_jobid",
            "OMPI_MCA_orte_precondition_transports",
        ],
        ..NOTHING_SET
    },
    LauncherVariables {
        launcher: Launcher::Hydra,
        rank: "PMI_RANK",
        also: Some("MPI_LOCALNRANKS"),
        size: &["PMI_SIZE"],
        nodes: SingleNodeTest::LocalRanks("MPI_LOCALNRANKS"),
        node_lists: NODES_OF_STEP,
        may_have_pmi: true,
        ancestor: Some(HYDRA_PROXY),
        ..NOTHING_SET
    },
    LauncherVariables {
        launcher: Launcher::Flux,
        rank: "FLUX_TASK_RANK",
        size: &["FLUX_JOB_SIZE"],
        nodes: SingleNodeTest::NodeCount(&["FLUX_JOB_NNODES"]),
        job: &["FLUX_JOB_ID"],
        may_have_pmi: true,
        ..NOTHING_SET
    },
    LauncherVariables {
        launcher: Launcher::Slurm,
        rank: "SLURM_PROCID",
        also: Some("SLURM_STEP_ID"),
        size: &["SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"],
        nodes: SingleNodeTest::NodeCount(&["SLURM_STEP_NUM_NODES", "SLURM_NNODES"]),
        node_lists: NODES_OF_STEP,
        job: &["SLURM_JOB_ID"],
        run: &["SLURM_STEP_ID"],
        may_have_pmi: true,
        ..NOTHING_SET
    },
    LauncherVariables {
        launcher: Launcher::Pmi,
        rank: "PMI_RANK",
        size: &["PMI_SIZE"],
        nodes: SingleNodeTest::LocalRanks("PMI_LOCAL_SIZE"),
        node_lists: NODES_OF_JOB,
        job: &["PMI_JOBID", "PALS_APID"],
        may_have_pmi: true,
        ..NOTHING_SET
    },
    LauncherVariables {
        launcher: Launcher::Pmix,
        rank: "PMIX_RANK",
        size: &["FOLDWIRE_SIZE"],
        is_own_name: true,
        nodes: SingleNodeTest::Unknown,
        node_lists: NODES_OF_JOB,
        job: &["PMIX_NAMESPACE"],
        ..NOTHING_SET
    },
    LauncherVariables {
        launcher: Launcher::Torchrun,
        rank: "RANK",
        also: Some("MASTER_ADDR"),
        size: &["WORLD_SIZE"],
        nodes: SingleNodeTest::LocalRanks("LOCAL_WORLD_SIZE"),
        host: Some("MASTER_ADDR"),
        job: &["MASTER_PORT"],
        ..NOTHING_SET
    },
];

/// Process of MPICH's launcher that starts the ranks of one machine.
const HYDRA_PROXY: &str = "hydra_pmi_proxy";

/// All ranks are in one step: `srun` started them, or one process of their launcher on each node.
const NODES_OF_STEP: &[&str] = &["SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST"];
/// The ranks of one node need not be in a step, and each other node may have a step of its own.
const NODES_OF_JOB: &[&str] = &["SLURM_JOB_NODELIST"];
