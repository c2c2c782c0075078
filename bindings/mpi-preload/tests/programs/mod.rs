//! Runs programs that know nothing of Foldwire, with and without the library preloaded. An MPI
//! library's own compilers build them, and its own launcher starts them. A call is *taken* if
//! Foldwire executes it, and *passed on* if the MPI library does.
//!
//! Tests whose tools are missing are skipped with a message.

mod library;
pub(crate) mod messages;

use std::env;
use std::path::Path;
use std::process::Command;

use foldwire_preload::ffi::abi::{Abi, LIBRARY_HANDLES, TYPES};

pub(crate) use library::{MpiUnderTest, current};
use library::{output, text};

/// Tests of calls. Versions that `cargo xtask packages --current-mpi` installs run only these.
macro_rules! tests_of_calls {
    ($library:expr) => {
        #[test]
        fn calls_of_all_kinds_are_right() {
            $crate::programs::calls(&$library);
        }

        #[test]
        fn calls_that_are_waited_for_later_are_right() {
            $crate::programs::ahead(&$library);
        }

        #[test]
        fn pairs_of_values_and_indices_are_right() {
            $crate::programs::pairs(&$library);
        }

        #[test]
        fn calls_that_are_waited_for_later_fail_then() {
            $crate::programs::wrong_ahead(&$library);
        }

        #[test]
        fn shares_of_different_lengths_are_right() {
            $crate::programs::shares(&$library);
        }

        #[test]
        fn messages_of_all_kinds_are_right() {
            $crate::programs::messages::all_kinds(&$library);
        }

        #[test]
        fn receives_that_are_pending_go_on() {
            $crate::programs::messages::pending(&$library);
        }

        #[test]
        fn communicators_without_an_error_handler_stay_so() {
            $crate::programs::messages::unset_handlers(&$library);
        }

        #[test]
        fn shares_of_different_lengths_are_right_where_they_are_waited_for_later() {
            $crate::programs::shares_ahead(&$library);
        }
    };
}
pub(crate) use tests_of_calls;

/// All tests of a library, except those of Fortran.
macro_rules! tests {
    ($library:expr) => {
        $crate::programs::tests_of_calls!($library);

        #[test]
        fn lines_of_calls_count_all_shares() {
            $crate::programs::debug_lines(&$library);
        }

        #[test]
        fn a_rank_warns_once_of_a_fill_value() {
            $crate::programs::fill(&$library);
        }

        #[test]
        fn shares_that_ranks_do_not_have_alike_are_refused() {
            $crate::programs::wrong_shares(&$library);
        }

        #[test]
        fn ranks_that_filter_calls_and_ranks_that_inspect_them_decide_alike() {
            $crate::programs::alike(&$library);
        }

        #[test]
        fn arguments_that_mpi_ignores_may_have_any_value() {
            $crate::programs::unused(&$library);
        }

        #[test]
        fn programs_that_find_large_counts_may_use_them() {
            $crate::programs::large_counts(&$library);
        }

        #[test]
        fn variables_that_mean_nothing_end_the_job_and_those_that_differ_pass_all_on() {
            $crate::programs::variables(&$library);
        }

        #[test]
        fn a_rank_without_the_library_is_noticed() {
            $crate::programs::missing(&$library);
        }

        #[test]
        fn messages_of_programs_with_probes_are_passed_on() {
            $crate::programs::messages::probes(&$library);
        }

        #[test]
        fn probes_that_are_loaded_late_fail() {
            $crate::programs::messages::late_probes(&$library);
        }

        #[test]
        fn freed_receives_are_open_for_all_threads() {
            $crate::programs::messages::freed(&$library);
        }

        #[test]
        fn receives_without_free_communicators_are_right() {
            $crate::programs::messages::no_communicators(&$library);
        }

        #[test]
        fn threads_leave_the_error_handler_as_it_is() {
            $crate::programs::messages::handlers(&$library);
        }

        #[test]
        fn communicators_with_strangers_are_passed_on() {
            $crate::programs::strangers(&$library);
        }

        #[test]
        fn what_the_library_refuses_and_makes_of_nan_is_as_without_us() {
            $crate::programs::refused(&$library);
        }

        #[test]
        fn forked_children_are_no_ranks() {
            $crate::programs::forks(&$library);
        }

        #[test]
        fn tools_behind_us_are_called_and_those_in_front_are_told_of() {
            $crate::programs::tools(&$library);
        }

        #[test]
        fn rules_hold_by_the_names_of_communicators() {
            $crate::programs::names(&$library);
        }

        #[test]
        fn libraries_of_other_families_are_refused() {
            $crate::programs::foreign(&$library);
        }

        #[test]
        fn constants_are_those_of_the_header() {
            $crate::programs::constants(&$library);
        }

        mod long {
            use super::*;

            #[test]
            fn values_of_more_than_2_gib_are_right() {
                programs::huge_values(&$library);
            }
        }
    };
}
pub(crate) use tests;

/// Tests of a library that has a Fortran compiler.
#[allow(unused_macros, reason = "not used for all libraries")]
macro_rules! fortran_tests {
    ($library:expr) => {
        #[test]
        fn fortran_programs_are_taken_too() {
            $crate::programs::fortran(&$library);
        }
    };
}
#[allow(unused_imports, reason = "not used for all libraries")]
pub(crate) use fortran_tests;

/// A low minimum size, so that Foldwire takes the programs' short calls.
const LOW: (&str, &str) = ("FOLDWIRE_MIN_BYTES", "1k");

/// Runs the checks with several numbers of ranks, exactly and within a bound. The argument 0.61 is
/// the largest error that the program accepts. With more than one rank, some calls must be taken.
pub(crate) fn calls(library: &MpiUnderTest) {
    let Some(program) = library.compiled("calls.c", "calls") else { return };
    for (n, words, bound, expected) in [
        (1, &[][..], "raw", " 0 taken"),
        (2, &[], "raw", "no_gain"),
        (3, &[], "lossless", "exactly"),
        (4, &["0.61"], "abs:0.6", "Alltoall"),
    ] {
        let line = library.checks(&program, n, words, bound);
        assert!(line.contains(expected), "{n} ranks, {bound}: {line}");
        assert_eq!(line.contains(" 0 taken"), n == 1, "{line}");
    }
}

/// Non-blocking calls. They are taken if the library supports progress callbacks, and passed on
/// otherwise. The results must be right in both cases. The expected text counts the calls of all
/// ranks.
pub(crate) fn ahead(library: &MpiUnderTest) {
    let Some(program) = library.compiled("ahead.c", "ahead") else { return };
    for (n, tolerance, bound, expected) in [
        (1, "0", "raw", " 0 taken, 131 passed on (communicator 131)"),
        (2, "0", "raw", "174 taken (Allreduce 168, Reduce_scatter 4, Reduce 2)"),
        (3, "0", "lossless", "Gather 9, Scatter 6, Alltoall 9"),
        (4, "0.61", "abs:0.6", "Scatter 8, Alltoall 12"),
    ] {
        let (words, expected) = match library.has_progress_callbacks() {
            true => (&[tolerance, "free"][..], expected),
            false if n == 1 => (&[tolerance][..], expected),
            false => (&[tolerance][..], "no_progress"),
        };
        let line = library.checks(&program, n, words, bound);
        assert!(line.contains(expected), "{n} ranks, {bound}: {line}");
    }
}

/// Calls on pairs, which are passed on, beside sums, which are taken: at once and later.
pub(crate) fn pairs(library: &MpiUnderTest) {
    let Some(program) = library.compiled("pairs.c", "pairs") else { return };
    for (n, tolerance, bound) in
        [(1, "0", "raw"), (2, "0", "raw"), (3, "0", "lossless"), (4, "0.61", "abs:0.6")]
    {
        let line = library.checks(&program, n, &[tolerance], bound);
        let taken = match n > 1 && library.has_progress_callbacks() {
            true => format!(" {0} taken (Allreduce {0})", 72 * n),
            false => " 0 taken".to_owned(),
        };
        assert!(line.contains(&taken), "{n} ranks, {bound}: {line}");
    }
}

/// If a taken call fails, its request reports the error.
pub(crate) fn wrong_ahead(library: &MpiUnderTest) {
    let Some(program) = library.compiled("ahead.c", "wrong_ahead") else { return };
    if !library.has_progress_callbacks() {
        println!(
            "skipped: requests that fail under {}: it has no progress callbacks",
            library.name
        );
        return;
    }
    let variables = [LOW, ("FOLDWIRE_BOUND", "lossless")];
    let said = text(&library.run(&program, &[(2, &["0", "wrong"], &variables)]));
    assert_eq!(said.matches("as it should be").count(), 2, "{said}");
    assert!(said.contains("1 FAILED"), "{said}");
}

/// Calls with shares of different lengths. Not with one rank: MPICH 4.0 ignores the displacement
/// then.
pub(crate) fn shares(library: &MpiUnderTest) {
    let Some(program) = library.compiled("shares.c", "shares") else { return };
    for (n, words, bound, expected) in [
        (2, &[][..], "raw", " 0 taken"),
        (2, &[], "lossless", "(Allgather 8, Gather 10, Scatter 10, Alltoall 6)"),
        (3, &["0.61"], "abs:0.6", "Alltoall 9"),
        (4, &[], "lossless", "(Allgather 16, Gather 36, Scatter 36, Alltoall 12)"),
    ] {
        let line = library.checks(&program, n, words, bound);
        assert!(line.contains(expected), "{n} ranks, {bound}: {line}");
    }
}

/// Non-blocking calls with shares of different lengths.
pub(crate) fn shares_ahead(library: &MpiUnderTest) {
    let Some(program) = library.compiled("shares.c", "shares_ahead") else { return };
    for (n, tolerance, bound, expected) in [
        (2, "0", "raw", " 0 taken"),
        (2, "0", "lossless", "(Allgather 8, Gather 10, Scatter 10, Alltoall 6)"),
        (3, "0.61", "abs:0.6", "Alltoall 9"),
        (4, "0", "lossless", "(Allgather 16, Gather 36, Scatter 36, Alltoall 12)"),
    ] {
        let line = library.checks(&program, n, &[tolerance, "-1", "later"], bound);
        let expected = if library.has_progress_callbacks() { expected } else { " 0 taken" };
        assert!(line.contains(expected), "{n} ranks, {bound}: {line}");
    }
}

/// Log lines have the numbers of values that each rank sends and receives.
pub(crate) fn debug_lines(library: &MpiUnderTest) {
    let Some(program) = library.compiled("shares.c", "debug_lines") else { return };
    let variables = [LOW, ("FOLDWIRE_BOUND", "lossless"), ("FOLDWIRE_DEBUG", "1")];
    let said = text(&library.run(&program, &[(2, &[], &variables)]));
    for line in [
        "rank 0: Alltoall (2999, 3001): taken",
        "rank 1: Alltoall (3001, 2999): taken",
        "rank 1: Allgather (0, 3000): taken",
        "rank 0: Gather (3000, 3000): taken",
    ] {
        assert!(said.contains(line), "{line}: {said}");
    }
}

/// The rank that has a fill value warns of it, in its first call only.
pub(crate) fn fill(library: &MpiUnderTest) {
    let Some(program) = library.compiled("fill.c", "fill") else { return };
    for (bound, expected) in [("rel:1e-3", 1), ("abs:1e-3", 0)] {
        let variables = [LOW, ("FOLDWIRE_BOUND", bound)];
        let said = text(&library.run(&program, &[(2, &[], &variables)]));
        assert!(said.contains("2 ranks: 6 taken"), "{bound}: {said}");
        let warning =
            "rank 1: Allreduce (5000, 5000): warning: the value 1.0000000200408773e20 sets";
        assert_eq!(said.matches(warning).count(), expected, "{bound}: {said}");
    }
    let variables = [LOW, ("FOLDWIRE_BOUND", "rel:1e-3"), ("FOLDWIRE_FILL", "refuse")];
    let said = text(&library.run(&program, &[(2, &["returns"], &variables)]));
    assert!(said.contains("2 ranks: 0 taken") && said.contains("6 FAILED"), "{said}");
    assert!(said.contains("0 failed\n"), "{said}");
    for rank in 0..2 {
        let error = format!("rank {rank}: Allreduce (5000, 5000): error: ");
        assert_eq!(said.matches(&error).count(), 3, "{said}");
    }
}

/// Counts that differ between two ranks result in MPI errors, also of taken calls. The program's
/// second argument selects one of its invalid calls.
pub(crate) fn wrong_shares(library: &MpiUnderTest) {
    let Some(program) = library.compiled("shares.c", "wrong_shares") else { return };
    for which in ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "10"] {
        let variables = [LOW, ("FOLDWIRE_BOUND", "lossless")];
        let said = text(&library.run(&program, &[(2, &["0", which], &variables)]));
        assert!(said.contains("refused") && !said.contains("wrong values"), "{which}: {said}");
    }
}

/// The filter on one rank decides as the inspection on the others.
pub(crate) fn alike(library: &MpiUnderTest) {
    let Some(program) = library.compiled("alike.c", "alike") else { return };
    let lossless = ("FOLDWIRE_BOUND", "lossless");
    let no_broadcasts = ("FOLDWIRE_BOUND_BCAST", "off");
    let debug = ("FOLDWIRE_DEBUG", "1");
    // The last one logs calls on rank 0 only.
    for (variables, of_first) in [
        (&[][..], &[][..]),
        (&[LOW], &[LOW]),
        (&[LOW, lossless], &[LOW, lossless]),
        (&[("FOLDWIRE_MIN_BYTES", "64k"), lossless], &[("FOLDWIRE_MIN_BYTES", "64k"), lossless]),
        (&[LOW, lossless, no_broadcasts], &[LOW, lossless, no_broadcasts, debug]),
    ] {
        let mut run = library.command(&program, &[(1, &[], of_first), (2, &[], variables)]);
        // Seconds after which the launcher ends a job that waits forever.
        let said = output(run.env("MPIEXEC_TIMEOUT", "60"));
        let (is_good, said) = (said.status.success(), text(&said));
        assert!(is_good && said.contains("0 failed"), "{variables:?}: {said}");
    }
}

/// Arguments that are insignificant on a rank may be uninitialised, as without Foldwire.
pub(crate) fn unused(library: &MpiUnderTest) {
    let Some(program) = library.compiled("unused.c", "unused") else { return };
    let lossless = ("FOLDWIRE_BOUND", "lossless");
    let debug = ("FOLDWIRE_DEBUG", "1");
    for (n, variables) in [
        (3, &[("LD_PRELOAD", "")][..]),
        (3, &[]),
        (1, &[LOW, lossless]),
        (2, &[LOW, lossless]),
        (3, &[LOW, lossless]),
        (3, &[LOW, lossless, debug]),
    ] {
        let said = library.run(&program, &[(n, &[], variables)]);
        let (is_good, said) = (said.status.success(), text(&said));
        assert!(is_good && said.contains("0 failed"), "{n} ranks, {variables:?}: {said}");
        if n > 1 && variables.contains(&lossless) {
            // Long calls of all kinds are taken.
            for name in ["(Allgather ", " Gather ", " Scatter ", " Alltoall "] {
                assert!(said.contains(name), "{n} ranks, {variables:?}: {said}");
            }
        }
    }
}

/// Large counts. A program finds these functions even if its library lacks them.
pub(crate) fn large_counts(library: &MpiUnderTest) {
    let Some(program) = library.compiled("large.c", "large_counts") else { return };
    for bound in ["raw", "off"] {
        let variables = [LOW, ("FOLDWIRE_BOUND", bound)];
        let said = library.run(&program, &[(3, &[], &variables)]);
        let (is_good, said) = (said.status.success(), text(&said));
        assert!(is_good && said.contains("0 failed"), "{bound}: {said}");
        let expected = match library.has_progress_callbacks() {
            true => "(Allreduce 6, Reduce_scatter 6)",
            false => "(Allreduce 3, Reduce_scatter 3)",
        };
        assert!(bound == "off" || said.contains(expected), "{said}");
    }
}

/// A value of a derived type with more bytes than an `int` counts. The ranks copy it.
pub(crate) fn huge_values(library: &MpiUnderTest) {
    let memory = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let free = memory.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let free = free.and_then(|words| words.split_whitespace().next()?.parse::<u64>().ok());
    if free.is_none_or(|kib| kib < 8 << 20) {
        println!("skipped: huge.c under {}: it needs 8 GiB of memory", library.name);
        return;
    }
    let Some(program) = library.compiled("huge.c", "huge") else { return };
    let said = text(&library.run(&program, &[(2, &[], &[("FOLDWIRE_BOUND", "lossless")])]));
    assert!(said.contains("2 taken (Bcast 2)") && said.matches("good").count() == 2, "{said}");
}

/// Fortran calls are taken, too.
#[allow(dead_code, reason = "not used for all libraries")]
pub(crate) fn fortran(library: &MpiUnderTest) {
    let Some(program) = library.compiled("sums.f90", "fortran") else { return };
    // Includes the non-blocking calls if they can be taken.
    let n = if library.has_progress_callbacks() { 12 } else { 6 };
    for (bound, expected) in [
        ("raw", format!("{n} taken (Allreduce {n})")),
        ("lossless", format!("(Allreduce {n}, Allgather 2, Gather 2, Scatter 2, Alltoall 2)")),
    ] {
        let variables = [LOW, ("FOLDWIRE_BOUND", bound)];
        let said = text(&library.run(&program, &[(2, &[], &variables)]));
        assert!(said.contains("good") && said.contains(&expected), "{said}");
    }
}

/// Invalid values, and settings that differ between ranks.
pub(crate) fn variables(library: &MpiUnderTest) {
    let Some(program) = library.compiled("calls.c", "variables") else { return };
    let said = library.run(&program, &[(2, &[], &[("FOLDWIRE_BOUND", "1e-3")])]);
    let (is_good, said) = (said.status.success(), text(&said));
    assert!(!is_good && said.contains("FOLDWIRE_BOUND=1e-3: "), "{said}");
    let said = library.run(&program, &[(1, &[], &[LOW]), (1, &[], &[("FOLDWIRE_BOUND", "off")])]);
    let (is_good, said) = (said.status.success(), text(&said));
    assert!(is_good && said.contains(" 0 taken") && said.contains("disagreement"), "{said}");
    assert!(said.contains("ranks have different settings"), "{said}");
    let json = [LOW, ("FOLDWIRE_REPORT", "json")];
    let said = text(&library.run(&program, &[(2, &[], &json)]));
    assert!(said.contains("\"taken\":{\"Allreduce\":16,"), "{said}");
}

/// If a rank lacks the library, the job waits forever, but prints a message.
pub(crate) fn missing(library: &MpiUnderTest) {
    let Some(program) = library.compiled("calls.c", "missing") else { return };
    let lacks = [("LD_PRELOAD", "")];
    let mut run = library.command(&program, &[(1, &[], &lacks), (1, &[], &[LOW])]);
    // Seconds after which the launcher ends the job.
    let said = text(&output(run.env("MPIEXEC_TIMEOUT", "8")));
    assert!(said.contains("rank 1 has waited 5 s in MPI_Init"), "{said}");
}

/// Processes of another `MPI_COMM_WORLD` may lack the library, so calls that involve them are
/// passed on.
pub(crate) fn strangers(library: &MpiUnderTest) {
    let Some(program) = library.compiled("strangers.c", "strangers") else { return };
    let mut plain = library.command(&program, &[(2, &[], &[("LD_PRELOAD", "")])]);
    let plain = output(plain.env("MPIEXEC_TIMEOUT", "60"));
    if !plain.status.success() || !text(&plain).contains("0 failed") {
        println!("skipped: strangers under {}: it cannot spawn them by itself", library.name);
        return;
    }
    for bound in ["raw", "lossless"] {
        let line = library.checks(&program, 2, &[], bound);
        assert!(line.contains("communicator") && !line.contains(" 0 taken"), "{bound}: {line}");
    }
}

/// Wrong arguments, and special numbers, must have the same results as without Foldwire.
pub(crate) fn refused(library: &MpiUnderTest) {
    let Some(program) = library.compiled("refused.c", "refused") else { return };
    for n in [1, 2, 3] {
        let said = |variables: &[(&str, &str)]| {
            let said = library.run(&program, &[(n, &[], variables)]);
            assert!(said.status.success(), "{n} ranks, {variables:?}: {}", text(&said));
            String::from_utf8_lossy(&said.stdout).into_owned()
        };
        let plain = said(&[("LD_PRELOAD", "")]);
        assert!(plain.contains("1 MPI_Allreduce(a, a, N"), "{plain}");
        for bound in ["raw", "lossless"] {
            assert_eq!(said(&[LOW, ("FOLDWIRE_BOUND", bound)]), plain, "{n} ranks, {bound}");
        }
    }
}

/// A forked child prints nothing, neither for its calls nor at its end.
pub(crate) fn forks(library: &MpiUnderTest) {
    let Some(program) = library.compiled("forks.c", "forks") else { return };
    let said = text(&library.run(&program, &[(1, &[], &[LOW, ("FOLDWIRE_DEBUG", "1")])]));
    assert_eq!(said.matches("rank 0: Allreduce (4096, 4096)").count(), 2, "{said}");
    assert_eq!(said.matches("foldwire: calls of 1 ranks").count(), 1, "{said}");
}

/// Another preloaded library replaces MPI functions too. It comes after ours in `LD_PRELOAD`, or
/// before it.
pub(crate) fn tools(library: &MpiUnderTest) {
    let Some(program) = library.compiled("names.c", "tools") else { return };
    let shared = ["-shared", "-fPIC"];
    let tool = library.compiled_with(&shared, "tool.c", "tool").unwrap();
    let front = [&shared[..], &["-DFRONT"]].concat();
    let front = library.compiled_with(&front, "tool.c", "front").unwrap();
    let said = |files: [&Path; 2]| {
        let files = files.map(|file| file.to_str().unwrap()).join(":");
        // With this minimum, all calls are passed on.
        let variables = [("LD_PRELOAD", &files[..]), ("FOLDWIRE_MIN_BYTES", "1G")];
        let said = library.run(&program, &[(2, &[], &variables)]);
        assert!(said.status.success(), "{}", text(&said));
        text(&said)
    };
    let ours = library.preloaded();
    let behind = said([&ours, &tool]);
    assert_eq!(behind.matches("the tool saw 9 calls").count(), 2, "{behind}");
    assert!(behind.contains("18 passed on (short 18)"), "{behind}");
    let before = said([&tool, &ours]);
    assert!(before.contains("warning: no call reached this library; "), "{before}");
    let all_before = said([&front, &ours]);
    let warning = "warning: MPI_Init did not reach this library; ";
    assert_eq!(all_before.matches(warning).count(), 1, "{all_before}");
}

/// Rules for communicator names, which may differ between ranks.
pub(crate) fn names(library: &MpiUnderTest) {
    let Some(program) = library.compiled("names.c", "names") else { return };
    let rules = ("FOLDWIRE_RULES", "comm=halo: off; MPI_Allreduce f64 1k-: raw");
    let said = text(&library.run(&program, &[(2, &[], &[rules])]));
    assert!(said.contains("12 taken (Allreduce 12), 6 passed on (off 6)"), "{said}");
    let said = text(&library.run(&program, &[(2, &["unlike"], &[rules])]));
    assert!(said.contains("6 taken (Allreduce 6), 12 passed on (off 6, disagreement 6)"), "{said}");
    let wrong = [("FOLDWIRE_RULES", "halo: off"), ("FOLDWIRE_MINBYTES", "1k")];
    let said = library.run(&program, &[(2, &[], &wrong)]);
    assert!(!said.status.success() && text(&said).contains("`halo` is no condition"), "{said:?}");
    let unknown = [("FOLDWIRE_MINBYTES", "1k")];
    let said = text(&library.run(&program, &[(2, &[], &unknown)]));
    let warning = "variable FOLDWIRE_MINBYTES; do you mean FOLDWIRE_MIN_BYTES?";
    assert_eq!(said.matches(warning).count(), 1, "{said}");
}

/// If the preloaded library is for another MPI implementation, a program ends at once with a
/// message.
pub(crate) fn foreign(library: &MpiUnderTest) {
    let Some(program) = library.compiled("calls.c", "foreign") else { return };
    let own = env::current_exe().unwrap();
    for family in ["openmpi", "mpich", "mpi_abi"] {
        let other = own.with_file_name(format!("libfoldwire_preload_{family}.so"));
        // The other libraries exist if all packages are tested together.
        if other.ends_with(library.file) || !other.is_file() {
            continue;
        }
        let preload = [("LD_PRELOAD", other.to_str().unwrap())];
        let said = text(&library.run(&program, &[(1, &[], &preload)]));
        assert!(said.contains("is this preloaded under another library?"), "{family}: {said}");
    }
}

/// Returns the constants that this crate defines for an ABI, in the order of `constants.c`.
pub(crate) fn constants_of<A: Abi>() -> Vec<i64> {
    let constants =
        [A::IN_PLACE as i64, A::ANY_SOURCE.into(), A::ROOT.into(), A::COMM_TYPE_SHARED.into()];
    let ignored = [A::STATUS_IGNORE as i64; 2];
    let codes = A::ERRORS.into_iter().chain(A::COMBINERS).map(i64::from);
    let status = A::STATUS.into_iter().map(|n| n as i64);
    let sizes = [size_of::<A::Handle>() as i64; 2];
    // Open MPI's handles are addresses, which the header does not contain.
    let handles = LIBRARY_HANDLES.iter().chain(TYPES.iter().map(|(known, _)| known));
    let handles = handles.filter_map(|known| A::handle(known, &|_| None));
    let handles = handles.map(|handle| handle.number() as i64);
    constants
        .into_iter()
        .chain(status)
        .chain(ignored)
        .chain(codes)
        .chain(sizes)
        .chain(handles)
        .collect()
}

/// This crate's constants of the ABI must equal those of the library's header.
pub(crate) fn constants(library: &MpiUnderTest) {
    let Some(program) = library.compiled("constants.c", "constants") else { return };
    let said = text(&output(&mut Command::new(program)));
    let theirs: Vec<i64> =
        said.lines().map(|line| line.rsplit(' ').next().unwrap().parse().unwrap()).collect();
    assert_eq!(theirs, (library.constants)(), "{said}");
}
