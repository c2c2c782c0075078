//! What is wrong with an environment, and what to set instead.

use super::{Launcher, MAX_RANKS};
use crate::root::RootParseError;
use crate::token::TokenTooShort;

/// Why the environment does not say which rank this is.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlaceError {
    /// A variable is no text.
    #[error("{variable} is not UTF-8; unset it, or set it to what this program understands")]
    NotText {
        /// Its name.
        variable: &'static str,
    },
    /// A variable is no number.
    #[error(
        "{variable} holds `{value}`, which is no whole number; set FOLDWIRE_RANK and FOLDWIRE_SIZE to say it yourself"
    )]
    NotANumber {
        /// Its name.
        variable: &'static str,
        /// What it holds.
        value: String,
    },
    /// A variable is missing that belongs to another.
    #[error(
        "{although} is set, but {variable} is not; FOLDWIRE_RANK is to hold this process's rank from 0 on, FOLDWIRE_SIZE the number of ranks"
    )]
    Missing {
        /// The one that is missing.
        variable: &'static str,
        /// The one that is there.
        although: &'static str,
    },
    /// No group has this size.
    #[error("{variable} holds {value}; a group has 1 to {MAX_RANKS} ranks")]
    Size {
        /// The variable's name.
        variable: &'static str,
        /// What it holds.
        value: u64,
    },
    /// The rank is not one of the group.
    #[error(
        "{variable} holds {rank}, but {size_from} holds {size}; ranks are below the size, from 0 on"
    )]
    Rank {
        /// The variable with the rank.
        variable: &'static str,
        /// What it holds.
        rank: u64,
        /// The variable with the size.
        size_from: &'static str,
        /// What it holds.
        size: u64,
    },
    /// `FOLDWIRE_ROOT` is no address.
    #[error("FOLDWIRE_ROOT holds `{value}`: {reason}")]
    Root {
        /// What it holds.
        value: String,
        /// What it should hold.
        reason: RootParseError,
    },
    /// `FOLDWIRE_TOKEN` is too short.
    #[error("FOLDWIRE_TOKEN: {0}")]
    Token(TokenTooShort),
    /// A node list is not in Slurm's notation.
    #[error(
        "{variable} holds `{value}`, which is no list of nodes; set FOLDWIRE_ROOT=HOST:PORT, the address of rank 0, on every rank"
    )]
    NodeList {
        /// Its name.
        variable: &'static str,
        /// What it holds.
        value: String,
    },
    /// Nobody says which job the ranks are of.
    #[error("{launcher} does not say which job this is, so two jobs at once could mix; set FOLDWIRE_JOB to a name that no other job has, or FOLDWIRE_ROOT=HOST:PORT to an address that no other job has, the same on every rank{}", name(*launcher))]
    JobUnknown {
        /// Who started the ranks.
        launcher: Launcher,
    },
    /// The ranks are on several machines, or nobody says that they are not, and nothing says where
    /// rank 0 is.
    #[error("{launcher} does not say where rank 0 is; set FOLDWIRE_ROOT=HOST:PORT, the address of rank 0, on every rank{}", how(*launcher))]
    RootUnknown {
        /// Who started the ranks.
        launcher: Launcher,
    },
}

/// How to set a variable on every rank.
fn how(launcher: Launcher) -> &'static str {
    match launcher {
        Launcher::OpenMpi => " (mpirun -x FOLDWIRE_ROOT -x FOLDWIRE_TOKEN …)",
        Launcher::Hydra => " (mpiexec -genv FOLDWIRE_ROOT HOST:PORT -genvlist FOLDWIRE_TOKEN …)",
        _ => "",
    }
}

/// How to name a job on every rank.
fn name(launcher: Launcher) -> &'static str {
    match launcher {
        Launcher::Foldwire => " (FOLDWIRE_JOB=$$ in a shell that starts them all)",
        Launcher::OpenMpi => " (mpirun -x FOLDWIRE_JOB=$$ …)",
        Launcher::Hydra => " (mpiexec -genv FOLDWIRE_JOB $$ …)",
        _ => "",
    }
}
