//! Variants of the MPI library's collectives. Control variables of the library select them.

use std::env;

use foldwire::{Collective, Float};
use mpi::topology::Communicator;

use crate::ffi::tool::Variable;
use crate::{Buffers, Call, Error, FunctionForm, Native, mpich, open_mpi};

/// MPI library, as far as its control variables are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MpiImplementation {
    OpenMpi,
    Mpich,
    Other,
}

impl MpiImplementation {
    /// Identifies the library by the text of `MPI_Get_library_version`. Libraries derived from
    /// MPICH have its variables.
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

/// Returns the library's name and version, such as `Open MPI v4.1.4`. May be called before
/// `MPI_Init`.
#[must_use]
pub fn library() -> String {
    let version = version();
    let first = version.lines().next().unwrap_or_default();
    let name = first.split(',').next().unwrap_or_default();
    // MPICH writes `MPICH Version:<tab>4.0.2`.
    name.replace("Version:", " ").split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Returns an environment variable and the value that it must have before `MPI_Init`. Without it,
/// [`variants`] returns only the library's default variants. Returns `None` if the variable has
/// that value or the library needs none. The variable does not change the library's defaults.
#[must_use]
pub fn required_environment() -> Option<(&'static str, &'static str)> {
    let (name, value) = open_mpi::DYNAMIC_RULES;
    let is_set = env::var(name).is_ok_and(|set| set == value || set == "true");
    (MpiImplementation::of(&version()) == MpiImplementation::OpenMpi && !is_set)
        .then_some((name, value))
}

/// Variant of a collective: one of MPI's functions, and values of control variables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CollectiveVariant {
    pub(crate) name: String,
    pub(crate) form: FunctionForm,
    pub(crate) settings: Vec<(String, i32)>,
    /// Smallest array for which the variant differs from others, in bytes.
    pub(crate) least_bytes: usize,
}

impl CollectiveVariant {
    /// Makes the library's default variant.
    pub(crate) fn default_of(collective: Collective, form: FunctionForm) -> Self {
        let name = format!("MPI_{}", capitalised(function(collective, form)));
        Self { name, form, settings: Vec::new(), least_bytes: 0 }
    }

    /// Returns this variant with one more setting. `words` describes it in the name.
    pub(crate) fn with(&self, words: &str, variable: &str, value: i32) -> Self {
        let mut variant = self.clone();
        variant.name =
            format!("{}{}{words}", self.name, if self.settings.is_empty() { ": " } else { ", " });
        variant.settings.push((variable.to_owned(), value));
        variant
    }

    /// Returns the function and settings in words, such as `MPI_Allreduce: ring`.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the form of its function.
    #[must_use]
    pub fn form(&self) -> FunctionForm {
        self.form
    }

    /// Returns whether the variant differs from the others for arrays of `n_bytes`.
    #[must_use]
    pub fn suits(&self, n_bytes: usize) -> bool {
        n_bytes >= self.least_bytes
    }
}

/// Returns every variant that the library offers for `collective`. `is_even` says whether the array
/// divides evenly among the ranks. The default variant comes first. Before `MPI_Init`, only the
/// default is known. The result is the same on all ranks.
#[must_use]
pub fn variants(collective: Collective, is_even: bool) -> Vec<CollectiveVariant> {
    let implementation = MpiImplementation::of(&version());
    let others: fn(&CollectiveVariant, &str) -> Vec<CollectiveVariant> = match implementation {
        MpiImplementation::OpenMpi if required_environment().is_none() => open_mpi::variants,
        MpiImplementation::Mpich => mpich::variants,
        MpiImplementation::OpenMpi | MpiImplementation::Other => |_, _| Vec::new(),
    };
    // One value divides evenly among one rank, but not among two.
    let forms = Call::forms(collective, 1, if is_even { 1 } else { 2 });
    let mut variants = Vec::new();
    for &form in forms {
        let default = CollectiveVariant::default_of(collective, form);
        let others = others(&default, function(collective, form));
        variants.push(default);
        variants.extend(others);
    }
    variants
}

/// Returns the name of MPI's function, in lower case and without `MPI_`.
fn function(collective: Collective, form: FunctionForm) -> &'static str {
    match (collective, form) {
        (Collective::AllReduce, _) => "allreduce",
        (Collective::ReduceScatter, FunctionForm::Counts) => "reduce_scatter",
        (Collective::ReduceScatter, FunctionForm::Equal) => "reduce_scatter_block",
        (Collective::AllGather, FunctionForm::Equal) => "allgather",
        (Collective::AllGather, FunctionForm::Counts) => "allgatherv",
        (Collective::Broadcast, _) => "bcast",
        (Collective::Scatter, FunctionForm::Equal) => "scatter",
        (Collective::Scatter, FunctionForm::Counts) => "scatterv",
        (Collective::Gather, FunctionForm::Equal) => "gather",
        (Collective::Gather, FunctionForm::Counts) => "gatherv",
        (Collective::Reduce, _) => "reduce",
        (Collective::AllToAll, FunctionForm::Equal) => "alltoall",
        (Collective::AllToAll, FunctionForm::Counts) => "alltoallv",
        (Collective::ExclusiveScan, _) => "exscan",
        (other, _) => other.name(),
    }
}

fn capitalised(name: &str) -> String {
    let mut letters = name.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

/// A duplicated communicator whose calls use one variant of a collective.
pub struct Tuned {
    native: Native,
    variant: CollectiveVariant,
    /// Each control variable, its value for this variant, and its previous value.
    settings: Vec<(Variable, i32, i32)>,
    /// The library reads the variables at each call, not when a communicator is made.
    at_each_call: bool,
}

impl Tuned {
    /// Duplicates `communicator` while the control variables have the variant's values, and then
    /// restores their previous values. All ranks call it together.
    ///
    /// # Errors
    /// MPI's errors; [`Error::Tool`] if a variable cannot be set.
    pub fn new(
        communicator: &impl Communicator,
        variant: CollectiveVariant,
    ) -> Result<Self, Error> {
        let mut settings = Vec::new();
        for (name, value) in &variant.settings {
            // The variant was built from variables that existed.
            let variable = Variable::open(name).ok_or(Error::Tool { code: 0 })?;
            let before = variable.read()?;
            settings.push((variable, *value, before));
        }
        let at_each_call = MpiImplementation::of(&version()) == MpiImplementation::Mpich;
        let native = set(&settings).and_then(|()| Native::duplicate(communicator));
        // Restore the settings even if only some could be set, so that the library's default stays
        // unchanged.
        let restored = restore(&settings);
        let native = native?;
        restored?;
        Ok(Self { native, variant, settings, at_each_call })
    }

    /// Returns the variant.
    #[must_use]
    pub fn variant(&self) -> &CollectiveVariant {
        &self.variant
    }

    /// If the library reads the control variables at each call, sets them until the returned value
    /// is dropped. Until then, run only this variant.
    ///
    /// # Errors
    /// [`Error::Tool`].
    pub fn activate(&self) -> Result<ActiveVariant<'_>, Error> {
        let settings: &[_] = if self.at_each_call { &self.settings } else { &[] };
        let active = ActiveVariant { tuned: self, settings };
        set(settings)?;
        Ok(active)
    }
}

/// A [`Tuned`] with its settings in force.
pub struct ActiveVariant<'a> {
    tuned: &'a Tuned,
    settings: &'a [(Variable, i32, i32)],
}

impl ActiveVariant<'_> {
    /// As [`Native::run`], with this variant's settings.
    ///
    /// # Errors
    /// As [`Native::run`]; also MPI's errors if the algorithm does not support the call.
    pub fn run<T: Float>(&self, call: &Call, buffers: Buffers<'_, T>) -> Result<(), Error> {
        self.tuned.native.run(call, buffers)
    }
}

impl Drop for ActiveVariant<'_> {
    fn drop(&mut self) {
        // A variable that could be set can be restored.
        let _ = restore(self.settings);
    }
}

fn set(settings: &[(Variable, i32, i32)]) -> Result<(), Error> {
    settings.iter().try_for_each(|(variable, value, _)| variable.write(*value))
}

fn restore(settings: &[(Variable, i32, i32)]) -> Result<(), Error> {
    // Restore all variables, even if one fails.
    settings.iter().map(|(variable, _, before)| variable.write(*before)).fold(Ok(()), Result::and)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_known_by_their_version() {
        assert_eq!(
            MpiImplementation::of("Open MPI v4.1.4, package: Debian OpenMPI"),
            MpiImplementation::OpenMpi
        );
        assert_eq!(
            MpiImplementation::of("MPICH Version:\t4.0.2\nMPICH Release"),
            MpiImplementation::Mpich
        );
        assert_eq!(MpiImplementation::of("HPC-X"), MpiImplementation::Other);
    }

    #[test]
    fn a_variant_is_named_by_function_and_settings() {
        let variant = CollectiveVariant::default_of(Collective::ReduceScatter, FunctionForm::Equal);
        assert_eq!(variant.name(), "MPI_Reduce_scatter_block");
        let variant = variant.with("ring", "a", 3).with("segments of 32 KiB", "b", 32768);
        assert_eq!(variant.name(), "MPI_Reduce_scatter_block: ring, segments of 32 KiB");
        assert_eq!(variant.settings, [("a".to_owned(), 3), ("b".to_owned(), 32768)]);
    }

    #[test]
    fn the_default_is_always_a_variant() {
        let variants = variants(Collective::Broadcast, true);
        assert_eq!((variants[0].name(), variants[0].settings.len()), ("MPI_Bcast", 0));
    }
}
