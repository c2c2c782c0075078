//! Tests of messages between two ranks, and of programs whose messages are passed on.

use super::{LOW, MpiUnderTest, output, text};

/// Settings under which the programs' short messages travel as compressed messages.
const LOW_MESSAGES: (&str, &str) = ("FOLDWIRE_MESSAGES_MIN_BYTES", "4k");

/// Messages of all kinds, exactly and within a bound, and passed on where the user has not set a
/// minimum, since all ranks are on one node.
pub(crate) fn all_kinds(library: &MpiUnderTest) {
    let Some(program) = library.compiled("messages.c", "messages") else { return };
    for (n, tolerance, mode, minimum, expected) in [
        (2, "0", "off", LOW_MESSAGES, "foldwire: off: "),
        (2, "0", "lossless", LOW_MESSAGES, "; messages: 368 taken, 88 passed on (no_gain 88); "),
        (3, "0", "lossless", LOW_MESSAGES, "), exactly"),
        (4, "1e-3", "abs:1e-3", LOW_MESSAGES, "error at most 9.766e-4"),
        (3, "0.2", "rel:1e-3", ("FOLDWIRE_DEBUG", "0"), "0 taken, 0 passed on"),
    ] {
        let variables = [("FOLDWIRE_BOUND", "off"), ("FOLDWIRE_MESSAGES", mode), minimum];
        let said = library.run(&program, &[(n, &[tolerance], &variables)]);
        let (is_good, said) = (said.status.success(), text(&said));
        assert!(is_good && said.contains("0 failed"), "{n} ranks, {mode}: {said}");
        assert!(said.contains(expected), "{n} ranks, {mode}: {said}");
    }
}

/// A program with probes: they must report the size of the message.
pub(crate) fn probes(library: &MpiUnderTest) {
    let Some(program) = library.compiled("probes.c", "probes") else { return };
    let variables = [LOW_MESSAGES, ("FOLDWIRE_MESSAGES", "lossless")];
    let said = library.run(&program, &[(2, &[], &variables)]);
    let (is_good, said) = (said.status.success(), text(&said));
    assert!(is_good && said.contains("0 failed") && !said.contains("messages: "), "{said}");
    let words = "all messages go to the MPI library: the program has probes";
    assert_eq!(said.matches(words).count(), 1, "{said}");
}

/// A program that loads a file with probes after `MPI_Init` gets an error, and no wrong size.
pub(crate) fn late_probes(library: &MpiUnderTest) {
    let Some(program) = library.compiled_with(&["-DLATE", "-ldl"], "probes.c", "late") else {
        return;
    };
    let shared = library.compiled_with(&["-shared", "-fPIC"], "probes.c", "late_file").unwrap();
    let variables = [LOW_MESSAGES, ("FOLDWIRE_MESSAGES", "lossless")];
    let words = [shared.to_str().unwrap()];
    let said = text(&library.run(&program, &[(2, &words, &variables)]));
    assert!(said.contains("a probe in a file that was loaded after MPI_Init"), "{said}");
    assert!(said.contains("refused") && !said.contains("wrong size"), "{said}");
}

/// Threads whose datatypes are inspected at once leave the program's error handler as it is.
pub(crate) fn handlers(library: &MpiUnderTest) {
    let Some(program) = library.compiled("handlers.c", "handlers") else { return };
    let variables = [LOW_MESSAGES, ("FOLDWIRE_MESSAGES", "lossless")];
    let mut run = library.command(&program, &[(2, &[], &variables)]);
    // Threads of a rank that is bound to one core do not run at once.
    let said = text(&output(run.env("OMPI_MCA_hwloc_base_binding_policy", "none")));
    let is_threaded = !said.contains("no threads");
    assert!(!is_threaded || said.matches("as it was").count() == 2, "{said}");
}

/// A receive that MPI reports as pending, since another one has failed, receives its message.
pub(crate) fn pending(library: &MpiUnderTest) {
    let Some(program) = library.compiled("pending.c", "pending") else { return };
    let variables = [LOW_MESSAGES, ("FOLDWIRE_BOUND", "off"), ("FOLDWIRE_MESSAGES", "lossless")];
    let mut run = library.command(&program, &[(3, &[], &variables)]);
    // A message arrives in pieces if Open MPI 4 and 5 cannot copy from another process.
    run.env("OMPI_MCA_btl_vader_single_copy_mechanism", "none").env("OMPI_MCA_smsc", "^cma");
    let said = text(&output(&mut run));
    assert!(said.contains("0 failed") && said.contains("messages: 40 taken"), "{said}");
}

/// A thread that learns by a later message that a freed receive is complete reads its values, also
/// while another thread opens them.
pub(crate) fn freed(library: &MpiUnderTest) {
    let Some(program) = library.compiled("freed.c", "freed") else { return };
    let variables = [LOW_MESSAGES, ("FOLDWIRE_BOUND", "off"), ("FOLDWIRE_MESSAGES", "lossless")];
    let mut run = library.command(&program, &[(2, &[], &variables)]);
    // Threads of a rank that is bound to one core do not run at once.
    let said = text(&output(run.env("OMPI_MCA_hwloc_base_binding_policy", "none")));
    assert!(said.contains("0 failed"), "{said}");
}

/// A program that has used up all communicators receives into a new datatype.
pub(crate) fn no_communicators(library: &MpiUnderTest) {
    let Some(program) = library.compiled("full.c", "no_communicators") else { return };
    let variables = [LOW_MESSAGES, ("FOLDWIRE_BOUND", "off"), ("FOLDWIRE_MESSAGES", "lossless")];
    let said = text(&library.run(&program, &[(2, &[], &variables)]));
    assert_eq!(said.matches("right values").count(), 2, "{said}");
    assert!(said.contains("messages: 2 taken"), "{said}");
}

/// Communicators on which nobody has set an error handler have none after Foldwire's work, and
/// errors that Foldwire reports go where the library's own would go.
pub(crate) fn unset_handlers(library: &MpiUnderTest) {
    let Some(program) = library.compiled("unset.c", "unset_handlers") else { return };
    let plain = library.run(&program, &[(2, &[], &[("LD_PRELOAD", "")])]);
    // In Open MPI each communicator has a handler, which ends the program.
    if !plain.status.success() {
        return assert!(!library.launcher_is_hydra, "{}", text(&plain));
    }
    let lossless = ["FOLDWIRE_BOUND", "FOLDWIRE_MESSAGES"].map(|name| (name, "lossless"));
    let variables = [LOW, LOW_MESSAGES, lossless[0], lossless[1]];
    let said = library.run(&program, &[(2, &[], &variables)]);
    assert!(said.status.success(), "{}", text(&said));
    assert_eq!(String::from_utf8_lossy(&said.stdout), String::from_utf8_lossy(&plain.stdout));
}
