//! Refuses options that have no effect with the other options. Users who give such an option expect
//! an effect.
//!
//! clap knows which options were given and which have their defaults, but the commands do not. This
//! check runs once, before a command begins.

use clap::ArgMatches;
use clap::parser::ValueSource;
use foldwire::{Collective, DType, Preset};
use foldwire_fields::usage::{UsageError, usage};

use super::{BackendArg, BenchArgs, Command, NetworkArgs, P2pTest, RequestedPresets, SimArgs};
use crate::speeds::SpeedsArg;

/// Refuses an option without effect.
///
/// # Errors
/// A [`UsageError`] that names the option and the reason.
pub fn check(command: &Command, given: &ArgMatches) -> Result<(), UsageError> {
    let given = given.subcommand().map_or(given, |(_, of_command)| of_command);
    for (names, why) in without_use(command) {
        let is_given = |name: &&&str| given.value_source(name) == Some(ValueSource::CommandLine);
        if let Some(name) = names.iter().find(is_given) {
            let name = name.replace('_', "-");
            return Err(usage!("--{name} has no use here: {why}"));
        }
    }
    Ok(())
}

/// Options that have no effect in this command, each list with its reason.
fn without_use(command: &Command) -> Vec<(Vec<&'static str>, &'static str)> {
    match command {
        Command::Stack(args) if !args.input.is_empty() => {
            vec![(vec!["cache"], "--input provides the images, and none is simulated")]
        }
        Command::Codec(args) if args.bound.is_empty() => {
            let timed = vec!["threads", "level", "repeat", "peers"];
            vec![(timed, "nothing is timed without --bound")]
        }
        Command::Bench(args) => of_bench(args),
        Command::P2p(args) => {
            let mut found = of_network(&args.network);
            if args.whats() == [P2pTest::Barrier] {
                let of_messages = vec!["sizes", "bound", "field", "exact_below"];
                found.push((of_messages, "a barrier carries no values"));
            }
            found
        }
        Command::Choose(args) => of_network(&args.network),
        Command::Guidelines(args) if args.backend != BackendArg::Threads => {
            vec![(vec!["ranks"], WHY_NO_RANKS)]
        }
        Command::Sim(args) => of_sim(args),
        Command::Schedule(args) if args.schedule.is_none() => {
            vec![(vec!["plot", "json"], "it needs the name of a schedule")]
        }
        _ => Vec::new(),
    }
}

const WHY_NO_RANKS: &str =
    "it is for --backend threads; here the launcher starts the ranks (mpirun -n 4 …)";

fn of_network(args: &NetworkArgs) -> Vec<(Vec<&'static str>, &'static str)> {
    let of_other_backends = [
        (BackendArg::Threads, vec!["ranks"], WHY_NO_RANKS),
        (BackendArg::Libfabric, vec!["provider"], "it is for --backend libfabric"),
        (BackendArg::Tcp, vec!["streams", "encrypt"], "it is for --backend tcp"),
    ];
    let found = of_other_backends.into_iter().filter(|(backend, ..)| *backend != args.backend);
    found.map(|(_, names, why)| (names, why)).collect()
}

fn of_sim(args: &SimArgs) -> Vec<(Vec<&'static str>, &'static str)> {
    let of_model = ["latency", "overhead", "eager", "ranks_per_node", "cores"];
    let of_calls = ["ranks", "size", "link", "preset", "ring_from", "as_published", "schedule"];
    let of_codecs = ["speeds", "threads", "by_node", "lanes", "frame", "checksum"];
    let all_but_values = || of_calls.into_iter().chain(of_codecs);
    let of_values = ["bound", "dtype"];
    if args.published {
        let names = all_but_values().chain(of_model).chain(of_values).chain(["field"]);
        return vec![(names.collect(), "--published has a fixed list of figures")];
    }
    if let Some(files) = &args.validate {
        let why = "--validate fixes its value or takes it from the files (see --help)";
        let others = if files.is_empty() { &of_model[..] } else { &of_values };
        return vec![(all_but_values().chain(others.iter().copied()).collect(), why)];
    }
    let mut found = Vec::new();
    if args.speeds != SpeedsArg::Measure {
        found.push((vec!["threads"], "--speeds names the speeds, and none is measured"));
    }
    let has_own_schedule = args.schedule.is_none();
    if !(has_own_schedule && has_ring_from(args.collective, args.presets())) {
        found.push((vec!["ring_from"], WHY_NO_RING));
    }
    found
}

const WHY_NO_RING: &str = "it is for the all-reduce of preset gzccl";

/// Returns whether one of the presets has another schedule for long arrays.
fn has_ring_from(collective: Option<Collective>, presets: RequestedPresets<'_>) -> bool {
    // Both are for this type, too.
    let presets = presets.of(DType::F32);
    collective == Some(Collective::AllReduce)
        && [Preset::Gzccl, Preset::GzcclPlus].iter().any(|preset| presets.contains(preset))
}

fn of_bench(args: &BenchArgs) -> Vec<(Vec<&'static str>, &'static str)> {
    // Scripts pass --root and --op for all collectives, so they are allowed without effect.
    let mut found = of_network(&args.network);
    if args.network.backend != BackendArg::Mpi {
        found.push((vec!["mpi_best"], "it is for --backend mpi"));
    }
    if args.network.backend != BackendArg::Threads {
        found.push((vec!["latency"], "other backends have the latency of their network"));
        let why = "it is for --backend threads; run mpirun several times, each with --json";
        found.push((vec!["launches"], why));
    }
    // Automatic plans are for all floats.
    if !args.presets().of(DType::F32).contains(&Preset::Auto) {
        found.push((vec!["speeds"], "it is for automatic plans (--preset auto)"));
    }
    if !has_ring_from(Some(args.form.collective), args.presets()) {
        found.push((vec!["ring_from"], WHY_NO_RING));
    }
    found
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, FromArgMatches};

    use super::*;
    use crate::Cli;

    fn checked(line: &str) -> Result<(), UsageError> {
        let words = ["foldwire"].into_iter().chain(line.split_whitespace());
        let given = Cli::command().try_get_matches_from(words).expect("clap knows it");
        check(&Cli::from_arg_matches(&given).unwrap().command, &given)
    }

    /// Also tests that clap knows every name in [`without_use`]. It would panic otherwise.
    #[test]
    fn options_without_use_are_refused_and_defaults_are_not() {
        for (line, option) in [
            ("stack --input a.f32 --cache b", "--cache"),
            ("codec --field a.f32 --plot a.svg --repeat 3", "--repeat"),
            ("codec --field a.f32 --plot a.svg --level scalar", "--level"),
            ("bench allreduce --mpi-best false", "--mpi-best"),
            ("bench allreduce --provider shm", "--provider"),
            ("bench allreduce --backend tcp --ranks 4", "--ranks"),
            ("bench allreduce --backend mpi --link 1gbit --latency 1ms", "--latency"),
            ("bench allreduce --backend mpi --launches 2", "--launches"),
            ("p2p --backend libfabric --encrypt", "--encrypt"),
            ("choose --backend mpi --streams 2", "--streams"),
            ("guidelines --backend mpi --ranks 4", "--ranks"),
            ("bench allreduce --speeds a.toml", "--speeds"),
            ("bench allreduce --preset raw --ring-from 1M", "--ring-from"),
            ("bench allgather --preset gzccl --ring-from 1M", "--ring-from"),
            ("sim --published --link 1gbit --preset foldwire --speeds mine.toml", "--link"),
            ("sim --published --field a.f32", "--field"),
            ("sim allreduce --speeds zccl-1-thread --threads 18", "--threads"),
            ("sim allreduce --preset raw --ring-from 1M", "--ring-from"),
            ("sim allreduce --schedule ring --ring-from 1M", "--ring-from"),
            ("sim --validate a.json --as-published", "--as-published"),
            ("p2p barrier --sizes 4K", "--sizes"),
            ("sim --validate --ranks 4", "--ranks"),
            ("sim --validate --latency 1us", "--latency"),
            ("sim --validate a.json --dtype f64", "--dtype"),
            ("schedule --plot a.svg", "--plot"),
        ] {
            if !cfg!(feature = "plots") && line.contains("--plot") {
                continue;
            }
            let message = checked(line).unwrap_err().to_string();
            assert!(message.starts_with(&format!("{option} has no use")), "{line}: {message}");
        }
        for line in [
            "stack",
            "stack --cache b",
            "codec --field a.f32 --bound abs:1 --plot a.svg --repeat 3",
            "codec --field a.f32 --plot a.svg",
            "bench allreduce --op max --preset auto --speeds a.toml",
            "bench broadcast --root 1",
            "bench allreduce --root 1",
            "bench allgather --op max",
            "p2p barrier --ranks 4",
            "p2p --sizes 4K",
            "bench allreduce --ring-from 1M",
            "bench allreduce --preset gzccl+ --ring-from 1M",
            "sim --published --json",
            "sim allreduce --threads 2 --ring-from 1M",
            "sim allreduce --ranks 4",
            "sim --validate --bound abs:1",
            "sim --validate a.json --latency 1us",
            "schedule --ranks 6",
            "schedule ring --plot a.svg",
            "info",
        ] {
            if !cfg!(feature = "plots") && line.contains("--plot") {
                continue;
            }
            assert_eq!(checked(line), Ok(()), "{line}");
        }
    }
}
