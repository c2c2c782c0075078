//! Reads the result of a run from libFuzzer's log.

use anyhow::{bail, ensure};
use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;

/// Figures of a run, and its failure if it found something.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct FuzzOutcome {
    /// Number of inputs.
    n_runs: u64,
    /// Number of reached edges of the program.
    coverage: u64,
    /// Number of libFuzzer's features: edges by number of visits, and compared values.
    features: u64,
    failed: bool,
    /// Reason of the failure, and the end of the log.
    said: String,
}

/// Number of lines from the end of the log that are shown with a finding.
const TAIL_LINES: usize = 12;

/// Number of characters of a line that are shown: names of generic functions can be very long.
const LINE_CHARACTERS: usize = 300;

/// Texts in the line before a reason. The reason may continue on the next line.
const REASONS: [&str; 2] = ["panicked at", "ERROR: "];

impl FuzzOutcome {
    pub(crate) fn of(log: &str, success: bool) -> Self {
        let status = |key: &str| {
            let line =
                log.lines().rev().find(|line| line.contains(" cov: ") && line.contains(" ft: "));
            let words = line.into_iter().flat_map(str::split_whitespace);
            words.skip_while(|word| *word != key).nth(1).and_then(|word| word.parse().ok())
        };
        let total = log.lines().rev().find_map(|line| {
            line.strip_prefix("stat::number_of_executed_units:")?.trim().parse().ok()
        });
        let lines: Vec<_> = log.lines().collect();
        let gives_reason = |line: &&str| REASONS.iter().any(|reason| line.contains(reason));
        let reasons = (0..lines.len())
            .filter(|&at| lines[at.saturating_sub(1)..=at].iter().any(gives_reason));
        let tail = lines.len().saturating_sub(TAIL_LINES)..lines.len();
        let shown: BTreeSet<usize> = reasons.chain(tail).collect();
        let shorter = |at: usize| lines[at].chars().take(LINE_CHARACTERS).collect::<String>();
        Self {
            n_runs: total.unwrap_or(0),
            coverage: status("cov:").unwrap_or(0),
            features: status("ft:").unwrap_or(0),
            failed: !success,
            said: shown.into_iter().map(shorter).collect::<Vec<_>>().join("\n"),
        }
    }

    /// Prints the figures.
    ///
    /// # Errors
    /// If the run found something, or tried nothing.
    pub(crate) fn into_result(self, target: &str, log: &Path) -> anyhow::Result<()> {
        if self.failed {
            bail!(
                "fuzz target `{target}` failed; its log, {}, says\n{}\nTo repeat it, run the \
                 program with the artifact's path alone; after fixing it, commit that file as \
                 fuzz/corpus/{target}/regress-NAME",
                log.display(),
                self.said
            );
        }
        ensure!(
            self.n_runs > 0 && self.coverage > 0,
            "fuzz target `{target}` ran, but tried no input; see {}",
            log.display()
        );
        println!("fuzz {target}: {self}");
        Ok(())
    }
}

impl fmt::Display for FuzzOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { n_runs, coverage, features, .. } = self;
        write!(f, "{n_runs} inputs, {coverage} edges, {features} features, nothing found")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "#2\tINITED cov: 5 ft: 6 corp: 1/1b exec/s: 0 rss: 40Mb\n\
        #512\tpulse  cov: 2107 ft: 8514 corp: 180/3Mb lim: 70000 exec/s: 24 rss: 90Mb\n\
        #600\tDONE   cov: 2110 ft: 8600 corp: 181/3Mb lim: 70000 exec/s: 24 rss: 90Mb\n\
        Done 600 runs in 25 second(s)\n\
        stat::number_of_executed_units: 600\n";

    #[test]
    fn the_last_figures_count() {
        let outcome = FuzzOutcome::of(LOG, true);
        assert_eq!((outcome.n_runs, outcome.coverage, outcome.features), (600, 2110, 8600));
        outcome.into_result("x", Path::new("x.log")).unwrap();
    }

    #[test]
    fn a_run_that_failed_or_tried_nothing_is_no_success() {
        let error = FuzzOutcome::of(LOG, false).into_result("x", Path::new("x.log")).unwrap_err();
        assert!(error.to_string().contains("Done 600 runs"), "{error}");
        let found =
            format!("thread panicked at x.rs:1:1:\nthe reason\n{}{LOG}", "frame\n".repeat(99));
        let said = FuzzOutcome::of(&found, false).said;
        assert!(said.starts_with("thread panicked at x.rs:1:1:\nthe reason\nframe\n"), "{said}");
        assert!(said.len() < 300 + LOG.len(), "{said}");
        assert!(FuzzOutcome::of("", true).into_result("x", Path::new("x.log")).is_err());
    }
}
