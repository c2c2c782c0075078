//! Names of collectives on the command line.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use foldwire::Collective;

/// Collectives with their names on the command line, and aliases from other programs.
const COLLECTIVES: [(Collective, &str, &[&str]); 10] = [
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
const UNEVEN: [(Collective, &str, &[&str]); 5] = [
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
    let value = |(_, name, aliases): (Collective, &'static str, &'static [&'static str])| {
        PossibleValue::new(name).aliases(aliases.iter().copied())
    };
    PossibleValuesParser::new(COLLECTIVES.into_iter().chain(UNEVEN).map(value)).map(|text| {
        let is_named = |name: &str, aliases: &[&str]| name == text || aliases.contains(&&*text);
        let even = COLLECTIVES.into_iter().map(|known| (known, false));
        let mut all = even.chain(UNEVEN.into_iter().map(|known| (known, true)));
        let found = all.find(|((_, name, aliases), _)| is_named(name, aliases));
        let ((collective, ..), is_uneven) = found.expect("the parser lets nothing else pass");
        FormArg { collective, is_uneven }
    })
}

pub(super) fn collective() -> impl TypedValueParser<Value = Collective> {
    let values = COLLECTIVES
        .map(|(_, name, aliases)| PossibleValue::new(name).aliases(aliases.iter().copied()));
    PossibleValuesParser::new(values).map(|text| {
        let is_named = |name: &str, aliases: &[&str]| name == text || aliases.contains(&&*text);
        let found = COLLECTIVES.iter().find(|(_, name, aliases)| is_named(name, aliases));
        found.expect("the parser lets nothing else pass").0
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
