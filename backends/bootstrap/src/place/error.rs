//! Errors of the environment, with advice what to set.

use super::{Launcher, MAX_RANKS};
use crate::pmi::PmiError;
use crate::root::RootParseError;
use crate::token::TokenTooShort;

/// The environment does not describe a rank.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlaceError {
    /// A variable is not UTF-8.
    #[error("{variable} is not valid UTF-8; unset it, or set it to a valid value")]
    NotText {
        /// Name of the variable.
        variable: &'static str,
    },
    /// A variable is not a number.
    #[error(
        "{variable} holds `{value}`, which is not a whole number; correct it, or set FOLDWIRE_RANK \
        and FOLDWIRE_SIZE instead"
    )]
    NotANumber {
        /// Name of the variable.
        variable: &'static str,
        /// Its value.
        value: String,
    },
    /// One of two variables is missing.
    #[error(
        "{although} is set, but {variable} is not; set FOLDWIRE_RANK to this process's rank, \
        counted from 0, and FOLDWIRE_SIZE to the number of ranks"
    )]
    Missing {
        /// The missing variable.
        variable: &'static str,
        /// The variable that is set.
        although: &'static str,
    },
    /// Two launchers' variables contradict each other.
    #[error(
        "{} holds {} and {} holds {}, but {} holds {} and {} holds {}; unset the variables of the \
        launcher that did not start this process, or set FOLDWIRE_RANK and FOLDWIRE_SIZE",
        variables[0], ranks[0], sizes_from[0], sizes[0],
        variables[1], ranks[1], sizes_from[1], sizes[1]
    )]
    Ambiguous {
        /// The variables with the ranks.
        variables: [&'static str; 2],
        /// Their values.
        ranks: [u64; 2],
        /// The variables with the sizes.
        sizes_from: [&'static str; 2],
        /// Their values.
        sizes: [u64; 2],
    },
    /// Only a PMI server knows this process's rank, and it was not asked.
    #[error(
        "PMI_PORT is set, so this process's rank is known to its launcher only; join with \
        Place::from_env, or set FOLDWIRE_RANK and FOLDWIRE_SIZE"
    )]
    OnlyServer,
    /// The launcher's PMI server does not tell where rank 0 is.
    #[error(transparent)]
    Pmi(#[from] PmiError),
    /// `FOLDWIRE_ADDRESS` is not an IP address, or it stands for all addresses of a machine.
    #[error(
        "FOLDWIRE_ADDRESS holds `{value}`, which is not an IP address of one machine; set it to \
        one of this machine, such as 10.0.0.1"
    )]
    Address {
        /// Value of the variable.
        value: String,
    },
    /// The size is 0 or too large.
    #[error("{variable} holds {value}; a group has 1 to {MAX_RANKS} ranks")]
    Size {
        /// Name of the variable.
        variable: &'static str,
        /// Its value.
        value: u64,
    },
    /// The rank is not below the size.
    #[error(
        "{variable} holds {rank}, but {size_from} holds {size}; ranks count from 0 to the size \
        minus 1"
    )]
    Rank {
        /// The variable with the rank.
        variable: &'static str,
        /// Its value.
        rank: u64,
        /// The variable with the size.
        size_from: &'static str,
        /// Its value.
        size: u64,
    },
    /// `FOLDWIRE_ROOT` is not an address.
    #[error("FOLDWIRE_ROOT holds `{value}`: {reason}")]
    Root {
        /// Value of the variable.
        value: String,
        /// The valid format.
        reason: RootParseError,
    },
    /// `FOLDWIRE_TOKEN` is too short.
    #[error("FOLDWIRE_TOKEN: {0}")]
    Token(TokenTooShort),
    /// A node list is not in Slurm's notation.
    #[error(
        "{variable} holds `{value}`, which is not a list of nodes; set FOLDWIRE_ROOT=HOST:PORT, \
        the address of rank 0, on every rank"
    )]
    NodeList {
        /// Name of the variable.
        variable: &'static str,
        /// Its value.
        value: String,
    },
    /// Slurm started rank 0 on a node where the other ranks do not look for it.
    #[error(
        "rank 0 runs on {node}, but the other ranks look for it on {first}, the first node of \
        {variable}; start the ranks by `srun --mpi=pmi2` without FOLDWIRE_TOKEN, or set \
        FOLDWIRE_ROOT={node}:PORT on every rank"
    )]
    NotOnFirstNode {
        /// The node of rank 0.
        node: String,
        /// Name of the variable with the list of nodes.
        variable: &'static str,
        /// The first node of the list.
        first: String,
    },
    /// No variable identifies the job.
    #[error("{launcher} does not identify this job, so two jobs that run at the same time could \
        mix; set FOLDWIRE_JOB to a name that no other job has, or FOLDWIRE_ROOT=HOST:PORT to an \
        address that no other job has, the same on every rank{}", job_advice(*launcher))]
    JobUnknown {
        /// Launcher of the ranks.
        launcher: Launcher,
    },
    /// The ranks may be on several machines, and no variable gives the address of rank 0.
    #[error("{launcher} does not give the address of rank 0; set FOLDWIRE_ROOT=HOST:PORT, the \
        address of rank 0, on every rank{}", root_advice(*launcher))]
    RootUnknown {
        /// Launcher of the ranks.
        launcher: Launcher,
    },
}

/// Returns the launcher's options that set `FOLDWIRE_ROOT` on every rank, and also
/// `FOLDWIRE_TOKEN`: ranks on several machines need it, because rank 0 then listens on the network.
fn root_advice(launcher: Launcher) -> &'static str {
    match launcher {
        Launcher::OpenMpi => " (mpirun -x FOLDWIRE_ROOT -x FOLDWIRE_TOKEN …)",
        Launcher::Hydra => " (mpiexec -genv FOLDWIRE_ROOT HOST:PORT -genvlist FOLDWIRE_TOKEN …)",
        Launcher::Flux => ", or let Flux tell it (flux run -o pmi=simple …)",
        _ => "",
    }
}

/// Returns the launcher's options that set `FOLDWIRE_JOB` on every rank.
fn job_advice(launcher: Launcher) -> &'static str {
    match launcher {
        Launcher::Foldwire => " (FOLDWIRE_JOB=$$ in a shell that starts them all)",
        Launcher::OpenMpi => " (mpirun -x FOLDWIRE_JOB=$$ …)",
        Launcher::Hydra => " (mpiexec -genv FOLDWIRE_JOB $$ …)",
        _ => "",
    }
}
