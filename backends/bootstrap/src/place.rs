//! Rank and size of this process and the address of rank 0, from the environment.
//!
//! | launcher | rank | size | on one machine if | job named by |
//! |---|---|---|---|---|
//! | Foldwire, or by hand | `FOLDWIRE_RANK` | `FOLDWIRE_SIZE` | `FOLDWIRE_ROOT` is not set | |
//! | torchrun | `RANK` | `WORLD_SIZE` | `LOCAL_WORLD_SIZE` is the size | `MASTER_PORT`, `TORCHELASTIC_RUN_ID`, `TORCHELASTIC_RESTART_COUNT` |
//! | Open MPI | `OMPI_COMM_WORLD_RANK` | `OMPI_COMM_WORLD_SIZE` | `OMPI_COMM_WORLD_LOCAL_SIZE` is the size | `PMIX_NAMESPACE`, `OMPI_MCA_ess_base_jobid`, `OMPI_MCA_orte_precondition_transports` |
//! | Hydra (MPICH, Intel MPI) | `PMI_RANK` | `PMI_SIZE` | `MPI_LOCALNRANKS` is the size | its process `hydra_pmi_proxy` |
//! | Slurm | `SLURM_PROCID` | `SLURM_STEP_NUM_TASKS`, `SLURM_NTASKS` | `SLURM_STEP_NUM_NODES`, `SLURM_NNODES` is 1 | `SLURM_JOB_ID`, `SLURM_STEP_ID` |
//! | another with PMI | `PMI_RANK` | `PMI_SIZE` | `PMI_LOCAL_SIZE` is the size | `PMI_JOBID`, `PALS_APID`, `FLUX_JOB_ID` |
//! | PMIx | `PMIX_RANK` | `FOLDWIRE_SIZE` | | `PMIX_NAMESPACE` |
//! | by hand, for PyTorch | `RANK` | `WORLD_SIZE` | `LOCAL_WORLD_SIZE` is the size | `MASTER_PORT` |
//!
//! The first launcher in this table whose variables are set is used. A launcher needs both rank and
//! size: a shell may set `RANK` or `PMI_RANK` for its own purposes, so a rank without a size is
//! ignored. Names that no other program uses (`FOLDWIRE_…`, `OMPI_…`, `PMIX_…`) are an error
//! without a size.
//!
//! Reasons for the order:
//! - Open MPI and Hydra come before Slurm. Inside a Slurm job, `mpirun` starts one process of its
//!   own on each node, and its ranks inherit that process's `SLURM_PROCID`.
//! - Hydra sets `MPI_LOCALNRANKS`, and Slurm's own PMI does not.
//! - Slurm's variables are used only inside a step (`SLURM_STEP_ID`): a batch script has a
//!   `SLURM_PROCID`, but is no rank.
//! - Other launchers may start torchrun once on each node. `TORCHELASTIC_RUN_ID` shows that
//!   torchrun started the process. Without it, `RANK` comes last and needs `MASTER_ADDR`.
//!
//! Without any launcher, the process is alone: rank 0 of 1.
//!
//! With any launcher, `FOLDWIRE_ROOT` sets the address of rank 0. Without it, rank 0 listens on
//! loopback if all ranks are on one machine. Otherwise its host is torchrun's `MASTER_ADDR`, or the
//! first node of `SLURM_STEP_NODELIST` or `SLURM_JOB_NODELIST`. In both cases the port is derived
//! from the job (module `job`). It is never `MASTER_PORT`, which PyTorch uses itself.
//! `FOLDWIRE_JOB` names the job if the launcher does not.

mod error;
mod nodes;

use std::ffi::OsString;
use std::fmt;
use std::net::SocketAddr;

use foldwire::Rank;

use crate::job::{self, Job};
use crate::root::{DEFAULT_PORT, Root};
use crate::token::Token;
pub use error::PlaceError;

/// Maximum number of ranks in a group. There is a limit because each rank keeps a connection to
/// rank 0.
pub const MAX_RANKS: usize = 1 << 16;

/// Rank of this process, and what it needs to join its group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// This process's rank.
    pub rank: Rank,
    /// Number of ranks, at least 1.
    pub size: usize,
    /// Address of rank 0.
    pub root: Root,
    /// Secret that keeps other programs out; required unless the root is loopback.
    pub token: Option<Token>,
    /// Job that the group belongs to.
    pub job: Job,
    /// Launcher that set the variables.
    pub launcher: Launcher,
}

/// Launcher that started the ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Launcher {
    /// None: a single process.
    Alone,
    /// `foldwire launch`, or Foldwire's variables set by hand.
    Foldwire,
    /// PyTorch's `torchrun`, or its variables set by hand.
    Torchrun,
    /// Open MPI's `mpirun`.
    OpenMpi,
    /// The `mpiexec` of MPICH and MPI libraries derived from it.
    Hydra,
    /// Slurm's `srun`.
    Slurm,
    /// Another launcher that speaks PMI.
    Pmi,
    /// A launcher that speaks PMIx only, such as `prterun`.
    Pmix,
}

impl fmt::Display for Launcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Alone => "none",
            Self::Foldwire => "FOLDWIRE_RANK",
            Self::Torchrun => "torchrun",
            Self::OpenMpi => "Open MPI",
            Self::Hydra => "Hydra (MPICH)",
            Self::Slurm => "Slurm",
            Self::Pmi => "PMI",
            Self::Pmix => "PMIx",
        })
    }
}

/// The environment variables of a launcher.
struct LauncherVariables {
    launcher: Launcher,
    /// Variable with the rank of this process.
    rank: &'static str,
    /// Another variable that the launcher always sets. If it is not set, the process has another
    /// launcher.
    also: Option<&'static str>,
    /// Variables with the number of ranks. The first one that is set counts.
    size: &'static [&'static str],
    /// True if no other program uses the rank's variable, so that a missing size is an error.
    is_own_name: bool,
    nodes: SingleNodeTest,
    /// Variable with the host of rank 0.
    host: Option<&'static str>,
    /// Variables that name the job. At least one must be set.
    job: &'static [&'static str],
    /// Variables that distinguish jobs of the same name.
    run: &'static [&'static str],
    /// Name of the ancestor process of all ranks on a machine, which identifies the job there.
    ancestor: Option<&'static str>,
}

/// Test for whether all ranks are on one machine.
enum SingleNodeTest {
    /// Assume that they are. For ranks on several machines the user sets a root.
    Assumed,
    /// This variable holds the number of ranks on this machine. Compare it with the size.
    LocalRanks(&'static str),
    /// The first of these variables that is set holds the number of nodes. Compare it with 1.
    NodeCount(&'static [&'static str]),
    /// The launcher sets no such variable. Assume that they are not.
    Unknown,
}

const LAUNCHERS: [LauncherVariables; 8] = [
    LauncherVariables {
        launcher: Launcher::Foldwire,
        rank: "FOLDWIRE_RANK",
        also: None,
        size: &["FOLDWIRE_SIZE"],
        is_own_name: true,
        nodes: SingleNodeTest::Assumed,
        host: None,
        job: &[],
        run: &[],
        ancestor: None,
    },
    LauncherVariables {
        launcher: Launcher::Torchrun,
        rank: "RANK",
        also: Some("TORCHELASTIC_RUN_ID"),
        size: &["WORLD_SIZE"],
        is_own_name: false,
        nodes: SingleNodeTest::LocalRanks("LOCAL_WORLD_SIZE"),
        host: Some("MASTER_ADDR"),
        job: &["MASTER_PORT"],
        run: &["TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT"],
        ancestor: None,
    },
    LauncherVariables {
        launcher: Launcher::OpenMpi,
        rank: "OMPI_COMM_WORLD_RANK",
        also: None,
        size: &["OMPI_COMM_WORLD_SIZE"],
        is_own_name: true,
        nodes: SingleNodeTest::LocalRanks("OMPI_COMM_WORLD_LOCAL_SIZE"),
        host: None,
        job: &[
            "PMIX_NAMESPACE",
            "OMPI_MCA_ess_base_jobid",
            "OMPI_MCA_orte_precondition_transports",
        ],
        run: &[],
        ancestor: None,
    },
    LauncherVariables {
        launcher: Launcher::Hydra,
        rank: "PMI_RANK",
        also: Some("MPI_LOCALNRANKS"),
        size: &["PMI_SIZE"],
        is_own_name: false,
        nodes: SingleNodeTest::LocalRanks("MPI_LOCALNRANKS"),
        host: None,
        job: &[],
        run: &[],
        ancestor: Some(HYDRA_PROXY),
    },
    LauncherVariables {
        launcher: Launcher::Slurm,
        rank: "SLURM_PROCID",
        also: Some("SLURM_STEP_ID"),
        size: &["SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"],
        is_own_name: false,
        nodes: SingleNodeTest::NodeCount(&["SLURM_STEP_NUM_NODES", "SLURM_NNODES"]),
        host: None,
        job: &["SLURM_JOB_ID"],
        run: &["SLURM_STEP_ID"],
        ancestor: None,
    },
    LauncherVariables {
        launcher: Launcher::Pmi,
        rank: "PMI_RANK",
        also: None,
        size: &["PMI_SIZE"],
        is_own_name: false,
        nodes: SingleNodeTest::LocalRanks("PMI_LOCAL_SIZE"),
        host: None,
        job: &["PMI_JOBID", "PALS_APID", "FLUX_JOB_ID"],
        run: &[],
        ancestor: None,
    },
    LauncherVariables {
        launcher: Launcher::Pmix,
        rank: "PMIX_RANK",
        also: None,
        size: &["FOLDWIRE_SIZE"],
        is_own_name: true,
        nodes: SingleNodeTest::Unknown,
        host: None,
        job: &["PMIX_NAMESPACE"],
        run: &[],
        ancestor: None,
    },
    LauncherVariables {
        launcher: Launcher::Torchrun,
        rank: "RANK",
        also: Some("MASTER_ADDR"),
        size: &["WORLD_SIZE"],
        is_own_name: false,
        nodes: SingleNodeTest::LocalRanks("LOCAL_WORLD_SIZE"),
        host: Some("MASTER_ADDR"),
        job: &["MASTER_PORT"],
        run: &[],
        ancestor: None,
    },
];

/// Process of MPICH's launcher that starts the ranks of one machine.
const HYDRA_PROXY: &str = "hydra_pmi_proxy";

const NODE_LISTS: [&str; 2] = ["SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST"];

impl Place {
    /// Returns the place of a single process: rank 0 of 1.
    #[must_use]
    pub fn alone() -> Self {
        Self {
            rank: Rank(0),
            size: 1,
            root: Root::loopback(DEFAULT_PORT),
            token: None,
            job: Job::at_given_root(),
            launcher: Launcher::Alone,
        }
    }

    /// Returns addresses at which rank 0 may listen if another program uses `addresses`, to which
    /// the root resolves.
    pub(crate) fn spare_addresses<'a>(
        &'a self,
        addresses: &'a [SocketAddr],
    ) -> impl Iterator<Item = SocketAddr> + 'a {
        let spare = |port| addresses.iter().map(move |at| SocketAddr::new(at.ip(), port));
        self.job.spare_ports(self.root.port()).flat_map(spare)
    }

    /// Reads this process's environment, and its ancestors if the launcher names no job.
    ///
    /// # Errors
    /// See [`detect`](Self::detect).
    pub fn from_env() -> Result<Self, PlaceError> {
        Self::detect_below(|name| std::env::var_os(name), job::ancestor)
    }

    /// Reads an environment. `lookup` returns a variable's value; an empty value counts as not set.
    ///
    /// # Errors
    /// If variables are missing or contradict each other. [`PlaceError`] names the variable, its
    /// value, and what to set.
    ///
    /// # Examples
    /// ```
    /// use foldwire_bootstrap::Place;
    ///
    /// let set = [
    ///     ("OMPI_COMM_WORLD_RANK", "2"),
    ///     ("OMPI_COMM_WORLD_SIZE", "4"),
    ///     ("OMPI_COMM_WORLD_LOCAL_SIZE", "4"),
    ///     ("PMIX_NAMESPACE", "1438646273"),
    /// ];
    /// let lookup = |name: &str| {
    ///     set.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into())
    /// };
    /// let place = Place::detect(lookup)?;
    /// assert_eq!((place.rank.0, place.size), (2, 4));
    /// assert!(place.root.is_loopback());
    /// # Ok::<(), foldwire_bootstrap::PlaceError>(())
    /// ```
    pub fn detect(lookup: impl Fn(&str) -> Option<OsString>) -> Result<Self, PlaceError> {
        Self::detect_below(lookup, |_| None)
    }

    /// Like [`detect`](Self::detect). `ancestor` returns a text that identifies this process's
    /// ancestor with the given name.
    fn detect_below(
        lookup: impl Fn(&str) -> Option<OsString>,
        ancestor: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, PlaceError> {
        let env = Environment { lookup: &lookup, ancestor: &ancestor };
        let token = match env.text("FOLDWIRE_TOKEN")? {
            Some(text) => Some(Token::new(text).map_err(PlaceError::Token)?),
            None => None,
        };
        for source in &LAUNCHERS {
            let has_size = source.size.iter().any(|name| env.is_set(name));
            let is_complete = has_size && source.also.is_none_or(|name| env.is_set(name));
            if !env.is_set(source.rank) || !(is_complete || source.is_own_name) {
                continue;
            }
            let rank = env.number(source.rank)?.unwrap_or_default();
            let (size_from, size) = env.first_number(source.size)?.ok_or_else(|| {
                PlaceError::Missing { variable: source.size[0], although: source.rank }
            })?;
            if !(1..=MAX_RANKS as u64).contains(&size) {
                return Err(PlaceError::Size { variable: size_from, value: size });
            }
            if rank >= size {
                return Err(PlaceError::Rank { variable: source.rank, rank, size_from, size });
            }
            let (root, job) = env.root_and_job(source, size)?;
            return Ok(Self {
                rank: Rank(rank as u32),
                size: size as usize,
                root,
                token,
                job,
                launcher: source.launcher,
            });
        }
        if env.is_set("FOLDWIRE_SIZE") {
            let (variable, although) = ("FOLDWIRE_RANK", "FOLDWIRE_SIZE");
            return Err(PlaceError::Missing { variable, although });
        }
        Ok(Self { token, ..Self::alone() })
    }
}

/// Access to environment variables and ancestor processes.
struct Environment<'a> {
    lookup: &'a dyn Fn(&str) -> Option<OsString>,
    ancestor: &'a dyn Fn(&str) -> Option<String>,
}

impl Environment<'_> {
    fn is_set(&self, variable: &str) -> bool {
        (self.lookup)(variable).is_some_and(|value| !value.is_empty())
    }

    fn text(&self, variable: &'static str) -> Result<Option<String>, PlaceError> {
        match (self.lookup)(variable).filter(|value| !value.is_empty()) {
            None => Ok(None),
            Some(value) => match value.into_string() {
                Ok(text) => Ok(Some(text)),
                Err(_) => Err(PlaceError::NotText { variable }),
            },
        }
    }

    fn number(&self, variable: &'static str) -> Result<Option<u64>, PlaceError> {
        match self.text(variable)? {
            None => Ok(None),
            Some(value) => match value.trim().parse() {
                Ok(number) => Ok(Some(number)),
                Err(_) => Err(PlaceError::NotANumber { variable, value }),
            },
        }
    }

    /// Returns the first of `variables` that is set, with its value.
    fn first_number(
        &self,
        variables: &'static [&'static str],
    ) -> Result<Option<(&'static str, u64)>, PlaceError> {
        for variable in variables {
            if let Some(number) = self.number(variable)? {
                return Ok(Some((variable, number)));
            }
        }
        Ok(None)
    }

    /// Returns the address of rank 0 and the job.
    fn root_and_job(
        &self,
        source: &LauncherVariables,
        size: u64,
    ) -> Result<(Root, Job), PlaceError> {
        let is_one_node = size == 1
            || match source.nodes {
                SingleNodeTest::Assumed => true,
                SingleNodeTest::LocalRanks(variable) => self.number(variable)? == Some(size),
                SingleNodeTest::NodeCount(variables) => {
                    matches!(self.first_number(variables)?, Some((_, 1)))
                }
                SingleNodeTest::Unknown => false,
            };
        let job = self.job(source, is_one_node)?;
        if let Some(value) = self.text("FOLDWIRE_ROOT")? {
            return match value.parse() {
                Ok(root) => Ok((root, job.unwrap_or_else(Job::at_given_root))),
                Err(reason) => Err(PlaceError::Root { value, reason }),
            };
        }
        let unknown = PlaceError::JobUnknown { launcher: source.launcher };
        if size == 1 {
            return Ok((Root::loopback(DEFAULT_PORT), Job::at_given_root()));
        }
        let known = job.map(Job::choosing_port);
        if is_one_node {
            let job = known.ok_or(unknown)?;
            return Ok((Root::loopback(job.port()), job));
        }
        let host = self.host(source)?;
        let job = known.ok_or(unknown)?;
        Ok((Root::new(host, job.port()), job))
    }

    /// Returns the host of rank 0, for ranks on several machines.
    fn host(&self, source: &LauncherVariables) -> Result<String, PlaceError> {
        if let Some(host) = source.host.map(|name| self.text(name)).transpose()?.flatten() {
            return Ok(host);
        }
        for variable in NODE_LISTS {
            if let Some(value) = self.text(variable)? {
                return match nodes::first(&value) {
                    Some(host) => Ok(host),
                    None => Err(PlaceError::NodeList { variable, value }),
                };
            }
        }
        Err(PlaceError::RootUnknown { launcher: source.launcher })
    }

    /// Returns the job, if a variable or an ancestor names it.
    fn job(
        &self,
        source: &LauncherVariables,
        is_one_node: bool,
    ) -> Result<Option<Job>, PlaceError> {
        let mut is_named = false;
        let mut names = vec![source.launcher.to_string()];
        for variable in ["FOLDWIRE_JOB"].iter().chain(source.job) {
            is_named |= self.is_set(variable);
            names.push(self.text(variable)?.unwrap_or_default());
        }
        for variable in source.run {
            names.push(self.text(variable)?.unwrap_or_default());
        }
        if let Some(process) = source.ancestor.filter(|_| is_one_node).and_then(self.ancestor) {
            is_named = true;
            names.push(process);
        }
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        Ok(is_named.then(|| Job::named(&names)))
    }
}

#[cfg(test)]
mod tests;
