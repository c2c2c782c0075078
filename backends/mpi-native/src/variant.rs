//! The ways in which the library can carry out a collective, and being told to take one.

use std::env;

use foldwire::{Collective, Float};
use mpi::topology::Communicator;

use crate::ffi::tool::Variable;
use crate::{Buffers, Call, Error, Form, Native, mpich, open_mpi};

/// Which library this is, as far as we know its variables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    OpenMpi,
    Mpich,
    Other,
}

impl Kind {
    /// By what `MPI_Get_library_version` says. Libraries made of MPICH have its variables.
    fn of(version: &str) -> Self {
        let starts = |names: &[&str]| names.iter().any(|name| version.starts_with(name));
        match () {
            () if starts(&["Open MPI"]) => Self::OpenMpi,
            () if starts(&["MPICH", "MVAPICH", "Intel(R) MPI", "CRAY MPICH"]) => Self::Mpich,
            () => Self::Other,
        }
    }
}

fn version() -> String {
    mpi::environment::library_version().unwrap_or_default()
}

/// The library's name and version, as `Open MPI v4.1.4`. May be asked before `MPI_Init`.
#[must_use]
pub fn library() -> String {
    let version = version();
    let first = version.lines().next().unwrap_or_default();
    let name = first.split(',').next().unwrap_or_default();
    // MPICH writes `MPICH Version:<tab>4.0.2`.
    name.replace("Version:", " ").split_whitespace().collect::<Vec<_>>().join(" ")
}

/// An environment variable, and its value, that must be set before `MPI_Init` so that [`ways`] has
/// more than the default; `None` if all is set. It changes no default.
#[must_use]
pub fn required_environment() -> Option<(&'static str, &'static str)> {
    let (name, value) = open_mpi::DYNAMIC_RULES;
    let is_set = env::var(name).is_ok_and(|set| set == value || set == "true");
    (Kind::of(&version()) == Kind::OpenMpi && !is_set).then_some((name, value))
}

/// A way to carry out a collective: one of MPI's functions, and values of control variables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Way {
    pub(crate) name: String,
    pub(crate) form: Form,
    pub(crate) settings: Vec<(String, i32)>,
    /// The least array for which it differs from another way, in bytes.
    pub(crate) least_bytes: usize,
}

impl Way {
    /// What the library does unless told otherwise.
    pub(crate) fn default_of(collective: Collective, form: Form) -> Self {
        let name = format!("MPI_{}", capitalised(function(collective, form)));
        Self { name, form, settings: Vec::new(), least_bytes: 0 }
    }

    /// The same with a setting more.
    pub(crate) fn with(&self, words: &str, variable: &str, value: i32) -> Self {
        let mut way = self.clone();
        way.name =
            format!("{}{}{words}", self.name, if self.settings.is_empty() { ": " } else { ", " });
        way.settings.push((variable.to_owned(), value));
        way
    }

    /// Its function and settings in words, such as `MPI_Allreduce: ring`.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The function that it uses.
    #[must_use]
    pub fn form(&self) -> Form {
        self.form
    }

    /// Whether it differs from the other ways for arrays of `n_bytes`.
    #[must_use]
    pub fn suits(&self, n_bytes: usize) -> bool {
        n_bytes >= self.least_bytes
    }
}

/// Every way that the library offers for `collective` on arrays that divide evenly among the ranks,
/// or do not; the default first. Only the default before `MPI_Init`. The same on all ranks.
#[must_use]
pub fn ways(collective: Collective, is_even: bool) -> Vec<Way> {
    let kind = Kind::of(&version());
    let add: fn(&Way, &str) -> Vec<Way> = match kind {
        Kind::OpenMpi if required_environment().is_none() => open_mpi::ways,
        Kind::Mpich => mpich::ways,
        Kind::OpenMpi | Kind::Other => |_, _| Vec::new(),
    };
    // One value on one rank is even, one on two is not.
    let forms = Call::forms(collective, 1, if is_even { 1 } else { 2 });
    let mut ways = Vec::new();
    for &form in forms {
        let default = Way::default_of(collective, form);
        let more = add(&default, function(collective, form));
        ways.push(default);
        ways.extend(more);
    }
    ways
}

/// MPI's function, in lower case and without `MPI_`.
fn function(collective: Collective, form: Form) -> &'static str {
    match (collective, form) {
        (Collective::AllReduce, _) => "allreduce",
        (Collective::ReduceScatter, Form::Counts) => "reduce_scatter",
        (Collective::ReduceScatter, Form::Equal) => "reduce_scatter_block",
        (Collective::AllGather, Form::Equal) => "allgather",
        (Collective::AllGather, Form::Counts) => "allgatherv",
        (Collective::Broadcast, _) => "bcast",
        (Collective::Scatter, Form::Equal) => "scatter",
        (Collective::Scatter, Form::Counts) => "scatterv",
        (Collective::Gather, Form::Equal) => "gather",
        (Collective::Gather, Form::Counts) => "gatherv",
        (Collective::Reduce, _) => "reduce",
        (Collective::AllToAll, Form::Equal) => "alltoall",
        (Collective::AllToAll, Form::Counts) => "alltoallv",
        (Collective::ExclusiveScan, _) => "exscan",
        (other, _) => other.name(),
    }
}

fn capitalised(name: &str) -> String {
    let mut letters = name.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

/// MPI's collectives, done in one way.
pub struct Tuned {
    native: Native,
    way: Way,
    /// The variables, what they are set to, and what they were.
    settings: Vec<(Variable, i32, i32)>,
    /// Whether the library reads them at each call, not when a communicator is made.
    at_each_call: bool,
}

impl Tuned {
    /// Over a duplicate of `communicator`. All ranks call it together.
    ///
    /// # Errors
    /// MPI's; [`Error::Tool`] if a variable cannot be set.
    pub fn new(communicator: &impl Communicator, way: Way) -> Result<Self, Error> {
        let mut settings = Vec::new();
        for (name, value) in &way.settings {
            // The way was found among the library's, so the variable was there.
            let variable = Variable::open(name).ok_or(Error::Tool { code: 0 })?;
            let before = variable.read()?;
            settings.push((variable, *value, before));
        }
        let at_each_call = Kind::of(&version()) == Kind::Mpich;
        let native = set(&settings).and_then(|()| Native::duplicate(communicator));
        // Also if only some could be set: the library's default is to stay what it was.
        let restored = restore(&settings);
        let native = native?;
        restored?;
        Ok(Self { native, way, settings, at_each_call })
    }

    /// The way.
    #[must_use]
    pub fn way(&self) -> &Way {
        &self.way
    }

    /// Sets what the library reads at each call, until what it returns is dropped. In between, run
    /// only this.
    ///
    /// # Errors
    /// [`Error::Tool`].
    pub fn arm(&self) -> Result<Armed<'_>, Error> {
        let settings: &[_] = if self.at_each_call { &self.settings } else { &[] };
        let armed = Armed { tuned: self, settings };
        set(settings)?;
        Ok(armed)
    }
}

/// A [`Tuned`] whose settings are in force.
pub struct Armed<'a> {
    tuned: &'a Tuned,
    settings: &'a [(Variable, i32, i32)],
}

impl Armed<'_> {
    /// As [`Native::run`], in this way's form of the function.
    ///
    /// # Errors
    /// As [`Native::run`]; also MPI's if the algorithm cannot do the call.
    pub fn run<T: Float>(&self, call: &Call, buffers: Buffers<'_, T>) -> Result<(), Error> {
        self.tuned.native.run(call, buffers)
    }
}

impl Drop for Armed<'_> {
    fn drop(&mut self) {
        // What could be set can be set back.
        let _ = restore(self.settings);
    }
}

fn set(settings: &[(Variable, i32, i32)]) -> Result<(), Error> {
    settings.iter().try_for_each(|(variable, value, _)| variable.write(*value))
}

fn restore(settings: &[(Variable, i32, i32)]) -> Result<(), Error> {
    // All of them, whatever happens to the first.
    settings.iter().map(|(variable, _, before)| variable.write(*before)).fold(Ok(()), Result::and)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_known_by_their_version() {
        assert_eq!(Kind::of("Open MPI v4.1.4, package: Debian OpenMPI"), Kind::OpenMpi);
        assert_eq!(Kind::of("MPICH Version:\t4.0.2\nMPICH Release"), Kind::Mpich);
        assert_eq!(Kind::of("HPC-X"), Kind::Other);
    }

    #[test]
    fn a_way_is_named_by_function_and_settings() {
        let way = Way::default_of(Collective::ReduceScatter, Form::Equal);
        assert_eq!(way.name(), "MPI_Reduce_scatter_block");
        let way = way.with("ring", "a", 3).with("segments of 32 KiB", "b", 32768);
        assert_eq!(way.name(), "MPI_Reduce_scatter_block: ring, segments of 32 KiB");
        assert_eq!(way.settings, [("a".to_owned(), 3), ("b".to_owned(), 32768)]);
    }

    #[test]
    fn the_default_is_always_a_way() {
        let ways = ways(Collective::Broadcast, true);
        assert_eq!((ways[0].name(), ways[0].settings.len()), ("MPI_Bcast", 0));
    }
}
