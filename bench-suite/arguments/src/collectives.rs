//! Names of collectives on the command line.

use clap::builder::{PossibleValue, TypedValueParser};
use foldwire::Collective;

use crate::values::by_name;

/// Collectives with their names on the command line, and aliases from other programs.
const COLLECTIVES: [NamedCollective; 10] = [
    (Collective::AllReduce, "allreduce", &["all-reduce", "all_reduce"]),
    (Collective::ReduceScatter, "reduce-scatter", &["reduce_scatter"]),
    (Collective::AllGather, "allgather", &["all-gather", "all_gather"]),
    (Collective::Broadcast, "broadcast", &["bcast"]),
    (Collective::Scatter, "scatter", &[]),
    (Collective::Gather, "gather", &[]),
    (Collective::Reduce, "reduce", &[]),
    (Collective::AllToAll, "alltoall", &["all-to-all", "all_to_all"]),
    (Collective::Scan, "scan", &[]),
    (Collective::ExclusiveScan, "exscan", &["exclusive-scan", "exclusive_scan"]),
];

/// Like [`COLLECTIVES`], for collectives with shares of different lengths.
const UNEVEN: [NamedCollective; 5] = [
    (Collective::ReduceScatter, "reduce-scatter-v", &["reduce_scatter_v", "reduce-scatterv"]),
    (Collective::AllGather, "allgatherv", &["all-gather-v", "all_gather_v"]),
    (Collective::Scatter, "scatterv", &["scatter-v", "scatter_v"]),
    (Collective::Gather, "gatherv", &["gather-v", "gather_v"]),
    (Collective::AllToAll, "alltoallv", &["all-to-all-v", "all_to_all_v"]),
];

/// A collective, with shares of equal or of different lengths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FormArg {
    /// The collective.
    pub collective: Collective,
    /// True if the ranks' shares have different lengths.
    pub is_uneven: bool,
}

impl FormArg {
    /// The library's name of the collective.
    pub fn name(self) -> String {
        let name = self.collective.name();
        if self.is_uneven { format!("{name}-v") } else { name.to_owned() }
    }
}

pub(super) fn form() -> impl TypedValueParser<Value = FormArg> {
    let form =
        |is_uneven: bool| move |(name, collective)| (name, FormArg { collective, is_uneven });
    by_name(names(&COLLECTIVES).map(form(false)).chain(names(&UNEVEN).map(form(true))))
}

pub(super) fn collective() -> impl TypedValueParser<Value = Collective> {
    by_name(names(&COLLECTIVES))
}

/// A collective, its name and the aliases of its name.
type NamedCollective = (Collective, &'static str, &'static [&'static str]);

fn names(known: &[NamedCollective]) -> impl Iterator<Item = (PossibleValue, Collective)> {
    known.iter().map(|&(collective, name, aliases)| {
        (PossibleValue::new(name).aliases(aliases.iter().copied()), collective)
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::{Cli, Command};

    fn form_of(name: &str) -> Option<FormArg> {
        match Cli::try_parse_from(["foldwire", "bench", name]).ok()?.command {
            Command::Bench(args) => Some(args.form),
            _ => unreachable!("the subcommand is bench"),
        }
    }

    #[test]
    fn every_collective_has_its_names() {
        assert_eq!(COLLECTIVES.map(|(collective, _, _)| collective), Collective::ALL);
        for (collective, name, aliases) in COLLECTIVES {
            for name in aliases.iter().chain([&name, &collective.name()]) {
                let form = FormArg { collective, is_uneven: false };
                assert_eq!(form_of(name), Some(form), "{name}");
            }
        }
        for (collective, name, aliases) in UNEVEN {
            let form = FormArg { collective, is_uneven: true };
            for name in
                aliases.iter().map(|&alias| alias.to_owned()).chain([name.into(), form.name()])
            {
                assert_eq!(form_of(&name), Some(form), "{name}");
            }
        }
        assert_eq!(form_of("all-to-none"), None);
    }
}
