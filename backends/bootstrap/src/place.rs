//! Rank and size of this process and the address of rank 0, from the environment.
//!
//! | launcher | rank | size | on one machine if | job named by |
//! |---|---|---|---|---|
//! | Foldwire, or by hand | `FOLDWIRE_RANK` | `FOLDWIRE_SIZE` | `FOLDWIRE_ROOT` is not set | |
//! | torchrun | `RANK` | `WORLD_SIZE` | `LOCAL_WORLD_SIZE` is the size | `MASTER_PORT`, `TORCHELASTIC_RUN_ID`, `TORCHELASTIC_RESTART_COUNT` |
//! | Open MPI | `OMPI_COMM_WORLD_RANK` | `OMPI_COMM_WORLD_SIZE` | `OMPI_COMM_WORLD_LOCAL_SIZE` is the size | `PMIX_NAMESPACE`, `OMPI_MCA_ess_base_jobid`, `OMPI_MCA_orte_precondition_transports` |
//! | Hydra (MPICH, Intel MPI) | `PMI_RANK` | `PMI_SIZE` | `MPI_LOCALNRANKS` is the size | its process `hydra_pmi_proxy` |
//! | Flux | `FLUX_TASK_RANK` | `FLUX_JOB_SIZE` | `FLUX_JOB_NNODES` is 1 | `FLUX_JOB_ID` |
//! | Slurm | `SLURM_PROCID` | `SLURM_STEP_NUM_TASKS`, `SLURM_NTASKS` | `SLURM_STEP_NUM_NODES`, `SLURM_NNODES` is 1 | `SLURM_JOB_ID`, `SLURM_STEP_ID` |
//! | another with PMI | `PMI_RANK` | `PMI_SIZE` | `PMI_LOCAL_SIZE` is the size | `PMI_JOBID`, `PALS_APID` |
//! | PMIx | `PMIX_RANK` | `FOLDWIRE_SIZE` | | `PMIX_NAMESPACE` |
//! | by hand, for PyTorch | `RANK` | `WORLD_SIZE` | `LOCAL_WORLD_SIZE` is the size | `MASTER_PORT` |
//!
//! The first launcher in this table whose variables are set is used. A launcher needs both rank and
//! size: a shell may set `RANK` or `PMI_RANK` for its own purposes, so a rank without a size is
//! ignored. Names that no other program uses (`FOLDWIRE_…`, `OMPI_…`, `PMIX_…`) are an error
//! without a size, unless another launcher's variables are complete (`FOLDWIRE_…`: always).
//!
//! PyTorch's variables by hand may contradict those of the launcher that started the script which
//! set them. Then a launcher of one process gives way, and otherwise the error
//! [`PlaceError::Ambiguous`] names both. So do `SLURM_PROCID` and another `PMI_RANK`.
//!
//! Reasons for the order:
//! - Open MPI and Hydra come before Slurm. In a Slurm job, `mpirun` starts a process of its own on
//!   each node. The ranks inherit that process's `SLURM_PROCID`.
//! - Hydra sets `MPI_LOCALNRANKS`, and Slurm's own PMI does not.
//! - Flux may run inside a Slurm job, and its ranks inherit the variables of Slurm's task.
//! - Slurm's variables are used only inside a step (`SLURM_STEP_ID`): a batch script has a
//!   `SLURM_PROCID`, but is no rank.
//! - Other launchers may start torchrun once on each node. `TORCHELASTIC_RUN_ID` shows that
//!   torchrun started the process. Without it, `RANK` comes last and needs `MASTER_ADDR`.
//!
//! Without any launcher, the process is alone: rank 0 of 1.
//!
//! With any launcher, `FOLDWIRE_ROOT` sets the address of rank 0. Without it, rank 0 listens on
//! loopback if all ranks are on one machine. Otherwise its host is torchrun's `MASTER_ADDR`, or the
//! first node of a list of Slurm. In both cases the port is derived from the job (module `job`). It
//! is never `MASTER_PORT`, which PyTorch uses itself. The list is `SLURM_STEP_NODELIST`, or else
//! `SLURM_JOB_NODELIST`. For Open MPI and PMIx it is only the latter: in a batch script, `mpirun`
//! starts the ranks of its own node itself, and those of the other nodes by a step without the
//! first node. Flux may use a part of a step's nodes, so its ranks use neither.
//! `FOLDWIRE_JOB` names the job if the launcher does not.
//!
//! **PMI.** Hydra, Flux, Slurm (`srun --mpi=pmi2`) and others with PMI keep a store for their ranks
//! (module `pmi`). If address, job or token is missing, rank 0 publishes them there, so that
//! nothing needs to be set. In a process with `PMI_PORT` alone, the server also tells rank and
//! size.

mod error;
mod launchers;
mod nodes;

use std::ffi::OsString;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use foldwire::Rank;

use crate::host::address_of;
use crate::job::{self, Job};
use crate::pmi::meet::{Meeting, PmiRequest, meet_once};
use crate::pmi::{PmiError, PmiServer};
use crate::rendezvous::DEFAULT_LIMIT;
use crate::root::{DEFAULT_PORT, Root};
use crate::token::Token;
pub use error::PlaceError;
use launchers::{LAUNCHERS, LauncherVariables, SingleNodeTest};

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
    /// Flux's `flux run`.
    Flux,
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
            Self::Flux => "Flux",
            Self::Slurm => "Slurm",
            Self::Pmi => "PMI",
            Self::Pmix => "PMIx",
        })
    }
}

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

    /// Reads this process's environment, and its ancestors if the launcher names no job. If that
    /// does not suffice and the launcher has a PMI server, asks the server, within a minute.
    ///
    /// # Errors
    /// See [`detect`](Self::detect), and [`PmiError`].
    pub fn from_env() -> Result<Self, PlaceError> {
        Self::from_env_within(DEFAULT_LIMIT)
    }

    /// Like [`from_env`](Self::from_env), with another time limit for the PMI server; more than a
    /// year counts as a year.
    ///
    /// # Errors
    /// As [`from_env`](Self::from_env).
    pub fn from_env_within(limit: Duration) -> Result<Self, PlaceError> {
        let ask = |request: &PmiRequest| meet_once(request, limit);
        Self::detect_with(|name| std::env::var_os(name), job::ancestor, Some(&ask))
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
        Self::detect_with(lookup, |_| None, None)
    }

    /// Like [`detect`](Self::detect). `ancestor` returns a text that identifies this process's
    /// ancestor with the given name; `ask` asks a PMI server.
    fn detect_with(
        lookup: impl Fn(&str) -> Option<OsString>,
        ancestor: impl Fn(&str) -> Option<String>,
        ask: Option<&PmiServerQuery<'_>>,
    ) -> Result<Self, PlaceError> {
        let env = Environment { lookup: &lookup, ancestor: &ancestor };
        let token = match env.text("FOLDWIRE_TOKEN")? {
            Some(text) => Some(Token::new(text).map_err(PlaceError::Token)?),
            None => None,
        };
        let met = |launcher, place, local_ranks| {
            let (Some(ask), Some(server)) = (ask, env.pmi_server()?) else { return Ok(None) };
            let address = env.address()?;
            let meeting = ask(&PmiRequest { server, place, local_ranks, address })?;
            Ok::<_, PlaceError>(Some(Self {
                rank: Rank(meeting.rank as u32),
                size: meeting.size as usize,
                root: meeting.root,
                token: token.clone().or(Some(meeting.secret)),
                job: Job::named(&["PMI", &meeting.name]),
                launcher,
            }))
        };
        let Some(Count { source, rank, size, .. }) = env.launcher()? else {
            let local = env.number("MPI_LOCALNRANKS")?.or(env.number("PMI_LOCAL_SIZE")?);
            return match env.pmi_server()? {
                Some(PmiServer::Port { .. }) => {
                    met(Launcher::Pmi, None, local)?.ok_or(PlaceError::OnlyServer)
                }
                _ => Ok(Self { token, ..Self::alone() }),
            };
        };
        let launcher = source.launcher;
        let known = env.root_and_job(source, size);
        let lacks_something = match &known {
            Err(PlaceError::RootUnknown { .. } | PlaceError::JobUnknown { .. }) => true,
            Err(_) => false,
            Ok((root, _)) => token.is_none() && !root.is_loopback() && !env.is_set("FOLDWIRE_ROOT"),
        };
        if lacks_something && source.may_have_pmi {
            let local_ranks = env.is_one_node(source, size)?.then_some(size);
            if let Some(place) = met(launcher, Some((rank, size)), local_ranks)? {
                return Ok(place);
            }
        }
        let (root, job) = known?;
        let is_from_list = !root.is_loopback() && !env.is_set("FOLDWIRE_ROOT");
        if launcher == Launcher::Slurm && rank == 0 && is_from_list {
            env.check_first_node(source)?;
        }
        Ok(Self { rank: Rank(rank as u32), size: size as usize, root, token, job, launcher })
    }
}

/// Asks a launcher's PMI server, or remembers its answer.
type PmiServerQuery<'a> = dyn Fn(&PmiRequest) -> Result<Meeting, PmiError> + 'a;

/// Rank and size that a launcher's variables hold.
#[derive(Clone, Copy)]
struct Count {
    source: &'static LauncherVariables,
    rank: u64,
    size: u64,
    /// The variable with the size.
    size_from: &'static str,
}

impl Count {
    /// Returns whether `other`, which counts later, contradicts this launcher.
    ///
    /// Most later variables are inherited from a launcher around this one. But PyTorch's were set
    /// for this process, and so was PMI's rank in a step of Slurm.
    fn contradicts(&self, other: &Self) -> bool {
        let is_inherited = match (self.source.launcher, other.source.launcher) {
            (Launcher::Foldwire | Launcher::Torchrun, _) => true,
            (Launcher::Slurm, Launcher::Pmi) | (_, Launcher::Torchrun) => false,
            _ => true,
        };
        !is_inherited && (self.rank, self.size) != (other.rank, other.size)
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

    /// Returns the launcher that started this process, and what it counts.
    fn launcher(&self) -> Result<Option<Count>, PlaceError> {
        let mut incomplete = None;
        let mut found: Option<Count> = None;
        for source in &LAUNCHERS {
            let count = match self.count(source) {
                // A variable that users set themselves must not be passed over.
                Err(error) if source.launcher != Launcher::Foldwire => {
                    incomplete = incomplete.or(Some(error));
                    continue;
                }
                count => count?,
            };
            let Some(count) = count else { continue };
            match found {
                None => found = Some(count),
                Some(first) if first.contradicts(&count) => {
                    let Count { source, rank, size, size_from } = first;
                    match (size, count.size) {
                        // A launcher of one process did not start the group.
                        (1, _) => found = Some(count),
                        (_, 1) => {}
                        _ => {
                            return Err(PlaceError::Ambiguous {
                                variables: [source.rank, count.source.rank],
                                ranks: [rank, count.rank],
                                sizes_from: [size_from, count.size_from],
                                sizes: [size, count.size],
                            });
                        }
                    }
                }
                Some(_) => {}
            }
        }
        if let Some(Count { source, rank, .. }) = found {
            // PRRTE's ranks inherit the variables of the Slurm task that started them.
            let pmix = self.number("PMIX_RANK").ok().flatten();
            if source.launcher == Launcher::Slurm && pmix.is_some_and(|pmix| pmix != rank) {
                return Err(PlaceError::Missing {
                    variable: "FOLDWIRE_SIZE",
                    although: "PMIX_RANK, which differs from SLURM_PROCID,",
                });
            }
            return Ok(found);
        }
        match incomplete {
            Some(error) => Err(error),
            None if self.is_set("FOLDWIRE_SIZE") => {
                Err(PlaceError::Missing { variable: "FOLDWIRE_RANK", although: "FOLDWIRE_SIZE" })
            }
            None => Ok(None),
        }
    }

    /// Returns what a launcher's variables count, if they are complete.
    fn count(&self, source: &'static LauncherVariables) -> Result<Option<Count>, PlaceError> {
        let has_size = source.size.iter().any(|name| self.is_set(name));
        let is_complete = has_size && source.also.is_none_or(|name| self.is_set(name));
        if !self.is_set(source.rank) || !(is_complete || source.is_own_name) {
            return Ok(None);
        }
        let rank = self.number(source.rank)?.unwrap_or_default();
        let (size_from, size) = self
            .first_number(source.size)?
            .ok_or(PlaceError::Missing { variable: source.size[0], although: source.rank })?;
        if !(1..=MAX_RANKS as u64).contains(&size) {
            return Err(PlaceError::Size { variable: size_from, value: size });
        }
        if rank >= size {
            return Err(PlaceError::Rank { variable: source.rank, rank, size_from, size });
        }
        Ok(Some(Count { source, rank, size, size_from }))
    }

    /// Returns where the launcher's PMI server is, if there is one.
    fn pmi_server(&self) -> Result<Option<PmiServer>, PlaceError> {
        if let Some(number) = self.number("PMI_FD")? {
            let not_a_number =
                |_| PlaceError::NotANumber { variable: "PMI_FD", value: number.to_string() };
            return Ok(Some(PmiServer::Descriptor(number.try_into().map_err(not_a_number)?)));
        }
        match (self.text("PMI_PORT")?, self.number("PMI_ID")?) {
            (Some(address), Some(id)) => Ok(Some(PmiServer::Port { address, id })),
            _ => Ok(None),
        }
    }

    /// Returns this machine's address that the user chose for communication.
    fn address(&self) -> Result<Option<IpAddr>, PlaceError> {
        if let Some(value) = self.text("FOLDWIRE_ADDRESS")? {
            let address = value.parse().ok();
            let named = address.filter(|address: &IpAddr| !address.to_canonical().is_unspecified());
            return named.map(Some).ok_or(PlaceError::Address { value });
        }
        Ok(self.text("FOLDWIRE_IFACE")?.and_then(|name| address_of(&name)))
    }

    /// Returns whether all ranks are on one machine.
    fn is_one_node(&self, source: &LauncherVariables, size: u64) -> Result<bool, PlaceError> {
        Ok(size == 1
            || match source.nodes {
                SingleNodeTest::Assumed => true,
                SingleNodeTest::LocalRanks(variable) => self.number(variable)? == Some(size),
                SingleNodeTest::NodeCount(variables) => {
                    matches!(self.first_number(variables)?, Some((_, 1)))
                }
                SingleNodeTest::Unknown => false,
            })
    }

    /// Returns the address of rank 0 and the job.
    fn root_and_job(
        &self,
        source: &LauncherVariables,
        size: u64,
    ) -> Result<(Root, Job), PlaceError> {
        let is_one_node = self.is_one_node(source, size)?;
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
        match self.first_node(source)? {
            Some((_, host)) => Ok(host),
            None => Err(PlaceError::RootUnknown { launcher: source.launcher }),
        }
    }

    /// Returns the first node of Slurm's list, and the variable with the list.
    fn first_node(
        &self,
        source: &LauncherVariables,
    ) -> Result<Option<(&'static str, String)>, PlaceError> {
        for variable in source.node_lists {
            if let Some(value) = self.text(variable)? {
                return match nodes::first(&value) {
                    Some(host) => Ok(Some((variable, host))),
                    None => Err(PlaceError::NodeList { variable, value }),
                };
            }
        }
        Ok(None)
    }

    /// Fails if `srun` started rank 0 on another node than the first of the list, where all other
    /// ranks look for it.
    ///
    /// Slurm sorts its lists. So this happens if the user arranges the tasks
    /// (`--distribution=arbitrary`), or if the first part of a heterogeneous job has later nodes.
    fn check_first_node(&self, source: &LauncherVariables) -> Result<(), PlaceError> {
        match (self.text("SLURMD_NODENAME")?, self.first_node(source)?) {
            (Some(node), Some((variable, first))) if node != first => {
                Err(PlaceError::NotOnFirstNode { node, variable, first })
            }
            _ => Ok(()),
        }
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
