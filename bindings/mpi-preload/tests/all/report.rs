//! The report at the end.

use foldwire::{Bound, Collective, Report};
use foldwire_preload::decide::PassReason;
use foldwire_preload::report::CallTally;
use foldwire_preload::settings::{ReportFormat, TransferMode};

fn some() -> CallTally {
    let mut tally = CallTally::default();
    let mut report = Report::default();
    (report.raw_bytes, report.wire_bytes) = (3 << 20, 1 << 20);
    report.worst_case = Some(0.25);
    tally.take(Collective::AllReduce, TransferMode::Lossless, &report);
    tally.pass(PassReason::Short);
    tally.pass(PassReason::Short);
    tally
}

#[test]
fn a_tally_survives_the_way_over_all_ranks() {
    let tally = some();
    assert_eq!(CallTally::of_all(&tally.sums(), tally.largest()), tally);
    let (mut worse, mut report) = (some(), Report::default());
    // No bound is known, as for a product of lossy values. The mode has no effect here.
    report.worst_case = None;
    worse.take(Collective::Broadcast, TransferMode::Raw, &report);
    assert!(worse.largest() > tally.largest() && tally.largest() > CallTally::default().largest());
    assert!(worse.render(2, ReportFormat::Line).unwrap().ends_with("errors without a bound"));
}

#[test]
fn the_line_says_what_was_taken_at_which_ratio_and_error() {
    let line = some().render(2, ReportFormat::Line).unwrap();
    assert_eq!(
        line,
        "foldwire: calls of 2 ranks: 1 taken (Allreduce 1), 2 passed on (short 2); 3.0 MiB \
         sent as 1.0 MiB (ratio 3.00), largest error at most 2.500e-1"
    );
    assert_eq!(some().render(2, ReportFormat::Off), None);
    let json = some().render(2, ReportFormat::Json).unwrap();
    assert!(json.contains("\"Allreduce\":1") && json.contains("\"largest_error\":2.5e-1"));
}

#[test]
fn messages_have_their_own_words() {
    let mut tally = CallTally::default();
    tally.messages.count(3 << 20, Some(1 << 20), 0.0);
    tally.messages.count(1 << 20, None, 0.0);
    assert_eq!(CallTally::of_all(&tally.sums(), tally.largest()), tally);
    let line = tally.render(2, ReportFormat::Line).unwrap();
    let words = "; messages: 1 taken, 1 passed on (no_gain 1); 3.0 MiB sent as 1.0 MiB \
                 (ratio 3.00), exactly";
    assert!(line.ends_with(words), "{line}");
    tally.messages.count(1 << 20, Some(1 << 10), 0.25);
    assert_eq!(CallTally::of_all(&tally.sums(), tally.largest()), tally);
    let line = tally.render(2, ReportFormat::Line).unwrap();
    assert!(line.ends_with("largest error at most 2.500e-1"), "{line}");
    let json = tally.render(2, ReportFormat::Json).unwrap();
    let words = "\"messages\":{\"taken\":2,\"passed\":1,\"raw_bytes\":4194304,";
    assert!(json.contains(words), "{json}");
}

/// The absolute error alone says little if the value range is unknown.
#[test]
fn errors_are_said_in_units_of_the_range_where_the_bound_is() {
    let mut report = Report::default();
    // Two operands with a value range of 4e233, whose errors are large only in absolute terms. The
    // bound is 1e-3 of the range, or 60 dB.
    (report.bound, report.worst_case) = (4e230, Some(8e230));
    for (bound, says) in [
        (Bound::Relative(1e-3), ", and 2.0e-3 of the range of a call's values"),
        (Bound::Psnr(60.0), ", and 2.0e-3 of the range of a call's values"),
        (Bound::Absolute(4e230), "largest error at most 8.000e230"),
    ] {
        let mut tally = CallTally::default();
        tally.take(Collective::AllReduce, TransferMode::Lossy(bound), &report);
        assert_eq!(CallTally::of_all(&tally.sums(), tally.largest()), tally);
        let line = tally.render(2, ReportFormat::Line).unwrap();
        assert!(line.ends_with(says), "{line}");
    }
}
