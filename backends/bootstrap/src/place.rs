//! Which rank this process is, of how many, and where rank 0 listens: read from the environment.
//!
//! | launcher | rank | size | on one machine if | port from |
//! |---|---|---|---|---|
//! | Foldwire, or by hand | `FOLDWIRE_RANK` | `FOLDWIRE_SIZE` | `FOLDWIRE_ROOT` is not set | |
//! | torchrun | `RANK` | `WORLD_SIZE` | `LOCAL_WORLD_SIZE` is the size | `TORCHELASTIC_RUN_ID`, `TORCHELASTIC_RESTART_COUNT`, `MASTER_PORT` |
//! | Open MPI | `OMPI_COMM_WORLD_RANK` | `OMPI_COMM_WORLD_SIZE` | `OMPI_COMM_WORLD_LOCAL_SIZE` is the size | `PMIX_NAMESPACE` |
//! | Hydra (MPICH, Intel MPI) | `PMI_RANK` | `PMI_SIZE` | `MPI_LOCALNRANKS` is the size | |
//! | Slurm | `SLURM_PROCID` | `SLURM_STEP_NUM_TASKS`, `SLURM_NTASKS` | `SLURM_STEP_NUM_NODES`, `SLURM_NNODES` is 1 | `SLURM_JOB_ID`, `SLURM_STEP_ID` |
//! | another with PMI | `PMI_RANK` | `PMI_SIZE` | `PMI_LOCAL_SIZE` is the size | |
//! | PMIx | `PMIX_RANK` | `FOLDWIRE_SIZE` | | `PMIX_NAMESPACE` |
//! | by hand, for PyTorch | `RANK` | `WORLD_SIZE` | `LOCAL_WORLD_SIZE` is the size | `MASTER_PORT` |
//!
//! The first whose rank is set counts. Open MPI and Hydra come before Slurm: inside a Slurm job
//! `mpirun` starts one process of its own per node, and every rank below inherits that process's
//! `SLURM_PROCID`. Hydra is told by `MPI_LOCALNRANKS` from Slurm's own PMI. Slurm counts only
//! inside a step (`SLURM_STEP_ID`): a batch script has a `SLURM_PROCID`, but is no rank. torchrun,
//! which others start once per node, is told by `TORCHELASTIC_RUN_ID`; without it `RANK` counts
//! last, and only beside a `MASTER_ADDR`. If none is set, the process is alone: rank 0 of 1.
//!
//! `FOLDWIRE_ROOT` says where rank 0 listens, whoever the launcher is. Otherwise it is loopback if
//! all ranks are on one machine, else torchrun's `MASTER_ADDR`, or the first node of
//! `SLURM_STEP_NODELIST` or `SLURM_JOB_NODELIST`. The port is never `MASTER_PORT` itself, which is
//! PyTorch's.

mod error;
mod nodes;

use std::ffi::OsString;
use std::fmt;

use foldwire::Rank;

use crate::root::{DEFAULT_PORT, Root};
use crate::token::Token;
pub use error::PlaceError;

/// Most ranks of a group: each has a connection to rank 0.
pub const MAX_RANKS: usize = 1 << 16;

/// This process's place in the group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// This process's rank.
    pub rank: Rank,
    /// Number of ranks, at least 1.
    pub size: usize,
    /// Where rank 0 listens.
    pub root: Root,
    /// The secret against strangers; must be there unless the root is loopback.
    pub token: Option<Token>,
    /// Who said so.
    pub launcher: Launcher,
}

/// Who started the ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Launcher {
    /// Nobody: a single process.
    Alone,
    /// `foldwire launch`, or somebody who set the variables by hand.
    Foldwire,
    /// PyTorch's `torchrun`, or somebody who set its variables.
    Torchrun,
    /// Open MPI's `mpirun`.
    OpenMpi,
    /// The `mpiexec` of MPICH and its kin.
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

/// Where a launcher writes what.
struct Source {
    launcher: Launcher,
    /// This process's rank; the launcher counts if this is set…
    rank: &'static str,
    /// …and this, too.
    also: Option<&'static str>,
    /// Number of ranks; the first that is set counts.
    size: &'static [&'static str],
    nodes: Nodes,
    /// The host of rank 0.
    host: Option<&'static str>,
    /// What tells this job from others on the same machine.
    job: &'static [&'static str],
}

/// How to tell whether all ranks are on one machine.
enum Nodes {
    /// They are, unless a root is set.
    One,
    /// They are if this many ranks are on this machine.
    RanksHere(&'static str),
    /// They are if there is one node; the first variable that is set counts.
    Number(&'static [&'static str]),
    /// It is not said.
    Unknown,
}

const SOURCES: [Source; 8] = [
    Source {
        launcher: Launcher::Foldwire,
        rank: "FOLDWIRE_RANK",
        also: None,
        size: &["FOLDWIRE_SIZE"],
        nodes: Nodes::One,
        host: None,
        job: &[],
    },
    Source {
        launcher: Launcher::Torchrun,
        rank: "RANK",
        also: Some("TORCHELASTIC_RUN_ID"),
        size: &["WORLD_SIZE"],
        nodes: Nodes::RanksHere("LOCAL_WORLD_SIZE"),
        host: Some("MASTER_ADDR"),
        job: &["TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "MASTER_PORT"],
    },
    Source {
        launcher: Launcher::OpenMpi,
        rank: "OMPI_COMM_WORLD_RANK",
        also: None,
        size: &["OMPI_COMM_WORLD_SIZE"],
        nodes: Nodes::RanksHere("OMPI_COMM_WORLD_LOCAL_SIZE"),
        host: None,
        job: &["PMIX_NAMESPACE"],
    },
    Source {
        launcher: Launcher::Hydra,
        rank: "PMI_RANK",
        also: Some("MPI_LOCALNRANKS"),
        size: &["PMI_SIZE"],
        nodes: Nodes::RanksHere("MPI_LOCALNRANKS"),
        host: None,
        job: &[],
    },
    Source {
        launcher: Launcher::Slurm,
        rank: "SLURM_PROCID",
        also: Some("SLURM_STEP_ID"),
        size: &["SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"],
        nodes: Nodes::Number(&["SLURM_STEP_NUM_NODES", "SLURM_NNODES"]),
        host: None,
        job: &["SLURM_JOB_ID", "SLURM_STEP_ID"],
    },
    Source {
        launcher: Launcher::Pmi,
        rank: "PMI_RANK",
        also: None,
        size: &["PMI_SIZE"],
        nodes: Nodes::RanksHere("PMI_LOCAL_SIZE"),
        host: None,
        job: &[],
    },
    Source {
        launcher: Launcher::Pmix,
        rank: "PMIX_RANK",
        also: None,
        size: &["FOLDWIRE_SIZE"],
        nodes: Nodes::Unknown,
        host: None,
        job: &["PMIX_NAMESPACE"],
    },
    Source {
        launcher: Launcher::Torchrun,
        rank: "RANK",
        also: Some("MASTER_ADDR"),
        size: &["WORLD_SIZE"],
        nodes: Nodes::RanksHere("LOCAL_WORLD_SIZE"),
        host: Some("MASTER_ADDR"),
        job: &["MASTER_PORT"],
    },
];

const NODE_LISTS: [&str; 2] = ["SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST"];

impl Place {
    /// A single process.
    #[must_use]
    pub fn alone() -> Self {
        Self {
            rank: Rank(0),
            size: 1,
            root: Root::loopback(DEFAULT_PORT),
            token: None,
            launcher: Launcher::Alone,
        }
    }

    /// From this process's environment.
    ///
    /// # Errors
    /// As [`detect`](Self::detect).
    pub fn from_env() -> Result<Self, PlaceError> {
        Self::detect(|name| std::env::var_os(name))
    }

    /// From an environment: `lookup` gives a variable's value. An empty value counts as none.
    ///
    /// # Errors
    /// [`PlaceError`] names the variable, what it holds, and what to set.
    ///
    /// # Examples
    /// ```
    /// use foldwire_bootstrap::Place;
    ///
    /// let set = [("OMPI_COMM_WORLD_RANK", "2"), ("OMPI_COMM_WORLD_SIZE", "4"), ("OMPI_COMM_WORLD_LOCAL_SIZE", "4")];
    /// let lookup = |name: &str| set.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into());
    /// let place = Place::detect(lookup)?;
    /// assert_eq!((place.rank.0, place.size), (2, 4));
    /// assert!(place.root.is_loopback());
    /// # Ok::<(), foldwire_bootstrap::PlaceError>(())
    /// ```
    pub fn detect(lookup: impl Fn(&str) -> Option<OsString>) -> Result<Self, PlaceError> {
        let env = Env(&lookup);
        let token = match env.text("FOLDWIRE_TOKEN")? {
            Some(text) => Some(Token::new(text).map_err(PlaceError::Token)?),
            None => None,
        };
        for source in &SOURCES {
            let also = source.also.map_or(Ok(true), |name| Ok(env.text(name)?.is_some()))?;
            if let Some(rank) = env.number(source.rank)?
                && also
            {
                let (size_from, size) = env.first_number(source.size)?.ok_or_else(|| {
                    PlaceError::Missing { variable: source.size[0], although: source.rank }
                })?;
                if !(1..=MAX_RANKS as u64).contains(&size) {
                    return Err(PlaceError::Size { variable: size_from, value: size });
                }
                if rank >= size {
                    return Err(PlaceError::Rank { variable: source.rank, rank, size_from, size });
                }
                return Ok(Self {
                    rank: Rank(rank as u32),
                    size: size as usize,
                    root: env.root(source, size)?,
                    token,
                    launcher: source.launcher,
                });
            }
        }
        if env.text("FOLDWIRE_SIZE")?.is_some() {
            let (variable, although) = ("FOLDWIRE_RANK", "FOLDWIRE_SIZE");
            return Err(PlaceError::Missing { variable, although });
        }
        Ok(Self { token, ..Self::alone() })
    }
}

/// An environment.
struct Env<'a>(&'a dyn Fn(&str) -> Option<OsString>);

impl Env<'_> {
    fn text(&self, variable: &'static str) -> Result<Option<String>, PlaceError> {
        match self.0(variable).filter(|value| !value.is_empty()) {
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

    /// The first of `variables` that is set.
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

    fn root(&self, source: &Source, size: u64) -> Result<Root, PlaceError> {
        if let Some(value) = self.text("FOLDWIRE_ROOT")? {
            return value.parse().map_err(|reason| PlaceError::Root { value, reason });
        }
        let port = self.port(source)?;
        let is_one_node = size == 1
            || match source.nodes {
                Nodes::One => true,
                Nodes::RanksHere(variable) => self.number(variable)? == Some(size),
                Nodes::Number(variables) => {
                    matches!(self.first_number(variables)?, Some((_, 1)))
                }
                Nodes::Unknown => false,
            };
        if is_one_node {
            return Ok(Root::loopback(port));
        }
        if let Some(host) = source.host.map(|name| self.text(name)).transpose()?.flatten() {
            return Ok(Root::new(host, port));
        }
        for variable in NODE_LISTS {
            if let Some(value) = self.text(variable)? {
                return match nodes::first(&value) {
                    Some(host) => Ok(Root::new(host, port)),
                    None => Err(PlaceError::NodeList { variable, value }),
                };
            }
        }
        Err(PlaceError::RootUnknown { launcher: source.launcher })
    }

    /// The same on every rank of a job, and most likely another for another job. Below the ports
    /// that systems give away themselves (32768 on).
    fn port(&self, source: &Source) -> Result<u16, PlaceError> {
        const FIRST: u64 = 20_000;
        const COUNT: u64 = 9_000;
        if source.job.is_empty() {
            return Ok(DEFAULT_PORT);
        }
        // FNV-1a.
        let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
        for variable in source.job {
            let text = self.text(variable)?.unwrap_or_default();
            for byte in text.bytes().chain([0]) {
                hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
            }
        }
        Ok((FIRST + hash % COUNT) as u16)
    }
}

#[cfg(test)]
mod tests;
