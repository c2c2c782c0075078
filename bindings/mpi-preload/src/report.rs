//! Counts of calls, and the report at the end.

use std::fmt::Write as _;

use foldwire::schedule::Collective;
use foldwire::{Bound, Report};

use crate::decide::{COLLECTIVES, PassReason, index_of};
use crate::settings::{ReportFormat, TransferMode};

const N_COLLECTIVES: usize = COLLECTIVES.len();
const N_REASONS: usize = PassReason::ALL.len();

/// Number of counts that are summed over all ranks.
pub const N_SUMS: usize = N_COLLECTIVES + N_REASONS + 7;

/// Counts of the program's messages: those of long floats to ranks that may receive compressed
/// messages.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MessageTally {
    /// Compressed messages.
    taken: i64,
    /// Messages that compression would not have shortened enough.
    passed: i64,
    /// Bytes of the taken messages, before and after compression.
    raw_bytes: i64,
    wire_bytes: i64,
    /// Largest possible error of a received value.
    largest_error: f64,
}

impl MessageTally {
    /// Counts a message of `n_bytes` bytes, which travelled as a compressed message of `sent` bytes
    /// or, with `None`, as it was.
    pub fn count(&mut self, n_bytes: usize, sent: Option<usize>, error: f64) {
        let Some(sent) = sent else {
            self.passed += 1;
            return;
        };
        self.taken += 1;
        self.raw_bytes += n_bytes as i64;
        self.wire_bytes += sent as i64;
        self.largest_error = self.largest_error.max(error);
    }

    fn words(&self) -> Option<String> {
        let Self { taken, passed, largest_error: error, .. } = *self;
        if taken + passed == 0 {
            return None;
        }
        let error = match error {
            0.0 => "exactly".to_owned(),
            _ => format!("largest error at most {error:.3e}"),
        };
        let passed = match passed {
            0 => String::new(),
            _ => format!(", {passed} passed on (no_gain {passed})"),
        };
        let sent = match taken {
            0 => String::new(),
            _ => format!("; {}, {error}", sent(self.raw_bytes, self.wire_bytes)),
        };
        Some(format!("; messages: {taken} taken{passed}{sent}"))
    }
}

fn ratio(raw_bytes: i64, wire_bytes: i64) -> f64 {
    if wire_bytes == 0 { 1.0 } else { raw_bytes as f64 / wire_bytes as f64 }
}

/// Words for bytes that were sent, before and after compression.
fn sent(raw_bytes: i64, wire_bytes: i64) -> String {
    let [raw, wire] = [raw_bytes, wire_bytes].map(|n| n as f64 / f64::from(1 << 20));
    format!("{raw:.1} MiB sent as {wire:.1} MiB (ratio {:.2})", ratio(raw_bytes, wire_bytes))
}

/// Counts of the calls of one rank, or of all ranks.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CallTally {
    /// Taken calls of each collective that succeeded.
    taken: [i64; N_COLLECTIVES],
    /// Calls passed on for each reason.
    passed: [i64; N_REASONS],
    /// Bytes of the values that taken calls sent, and of their messages.
    raw_bytes: i64,
    wire_bytes: i64,
    /// Calls that failed in Foldwire.
    failed: i64,
    /// Largest possible error of a result value; infinite if unknown.
    largest_error: f64,
    /// Largest possible error relative to the value range of its call, where that is known.
    largest_relative_error: f64,
    /// Counts of messages.
    pub messages: MessageTally,
}

impl CallTally {
    /// Counts a taken call that succeeded.
    pub fn take(&mut self, collective: Collective, mode: TransferMode, report: &Report) {
        self.taken[index_of(collective)] += 1;
        self.raw_bytes += report.raw_bytes as i64;
        self.wire_bytes += report.wire_bytes as i64;
        let error = report.worst_case.unwrap_or(f64::INFINITY);
        self.largest_error = self.largest_error.max(error);
        // `report.bound` is the relative bound times the value range. If all values are equal, the
        // range is 0, and the relative error is undefined.
        let relative_bound = match mode {
            TransferMode::Lossy(Bound::Relative(bound)) => bound,
            TransferMode::Lossy(Bound::Psnr(db)) => 10f64.powf(-db / 20.0),
            _ => 0.0,
        };
        if relative_bound > 0.0 && report.bound > 0.0 && error.is_finite() {
            self.largest_relative_error =
                self.largest_relative_error.max(error / report.bound * relative_bound);
        }
    }

    /// Counts a call that was passed on.
    pub const fn pass(&mut self, reason: PassReason) {
        self.passed[reason as usize] += 1;
    }

    /// Counts `n_calls` calls that were passed on.
    pub const fn pass_many(&mut self, reason: PassReason, n_calls: u64) {
        self.passed[reason as usize] += n_calls as i64;
    }

    /// Counts a call that failed in Foldwire. It is neither taken nor passed on.
    pub const fn fail(&mut self) {
        self.failed += 1;
    }

    /// Numbers to sum over all ranks.
    #[must_use]
    pub fn sums(&self) -> [i64; N_SUMS] {
        let mut sums = [0; N_SUMS];
        let MessageTally { taken, passed, raw_bytes, wire_bytes, .. } = self.messages;
        let messages = [taken, passed, raw_bytes, wire_bytes];
        let rest = [self.raw_bytes, self.wire_bytes, self.failed].into_iter().chain(messages);
        let rest: Vec<i64> = rest.collect();
        let all = self.taken.iter().chain(&self.passed).chain(&rest);
        sums.iter_mut().zip(all).for_each(|(sum, &number)| *sum = number);
        sums
    }

    /// Numbers to maximise over all ranks. Non-negative floats have the same order as their bits.
    #[must_use]
    pub const fn largest(&self) -> [i64; 3] {
        let messages = self.messages.largest_error.to_bits() as i64;
        let relative = self.largest_relative_error.to_bits() as i64;
        [self.largest_error.to_bits() as i64, relative, messages]
    }

    /// Builds the counts of all ranks from the sums and maxima.
    #[must_use]
    pub fn of_all(sums: &[i64; N_SUMS], largest: [i64; 3]) -> Self {
        let [largest_error, largest_relative_error, of_messages] =
            largest.map(|bits| f64::from_bits(bits as u64));
        let mut all = Self { largest_error, largest_relative_error, ..Self::default() };
        let (taken, rest) = sums.split_at(N_COLLECTIVES);
        let (passed, rest) = rest.split_at(N_REASONS);
        all.taken.copy_from_slice(taken);
        all.passed.copy_from_slice(passed);
        [all.raw_bytes, all.wire_bytes, all.failed] = [rest[0], rest[1], rest[2]];
        let [taken, passed, raw_bytes, wire_bytes] = [rest[3], rest[4], rest[5], rest[6]];
        let largest_error = of_messages;
        all.messages = MessageTally { taken, passed, raw_bytes, wire_bytes, largest_error };
        all
    }

    /// Text of the report; `None` if the user wants none.
    #[must_use]
    pub fn render(&self, n_ranks: usize, format: ReportFormat) -> Option<String> {
        match format {
            ReportFormat::Off => None,
            ReportFormat::Line => Some(self.line(n_ranks)),
            ReportFormat::Json => Some(self.json(n_ranks)),
        }
    }

    /// Number of calls that reached this library.
    #[must_use]
    pub fn n_calls(&self) -> i64 {
        self.n_taken() + self.passed.iter().sum::<i64>() + self.failed
    }

    fn n_taken(&self) -> i64 {
        self.taken.iter().sum()
    }

    fn line(&self, n_ranks: usize) -> String {
        let named = |names: &[&str], numbers: &[i64]| {
            let some = names.iter().zip(numbers).filter(|(_, number)| **number > 0);
            let words: Vec<_> = some.map(|(name, number)| format!("{name} {number}")).collect();
            if words.is_empty() { String::new() } else { format!(" ({})", words.join(", ")) }
        };
        let taken = named(&COLLECTIVES.map(|row| row.name), &self.taken);
        let passed = named(&PassReason::ALL.map(PassReason::name), &self.passed);
        let n_passed: i64 = self.passed.iter().sum();
        let mut line = format!(
            "foldwire: calls of {n_ranks} ranks: {} taken{taken}, {n_passed} passed on{passed}",
            self.n_taken()
        );
        if self.n_taken() > 0 {
            let _ = write!(line, "; {}, ", sent(self.raw_bytes, self.wire_bytes));
            let _ = match self.largest_error {
                0.0 => write!(line, "exactly"),
                error if error.is_finite() && self.largest_relative_error > 0.0 => write!(
                    line,
                    "largest error at most {error:.3e}, and {:.1e} of the range of a call's values",
                    self.largest_relative_error
                ),
                error if error.is_finite() => write!(line, "largest error at most {error:.3e}"),
                _ => write!(line, "errors without a bound"),
            };
        }
        line.extend(self.messages.words());
        if self.failed > 0 {
            let _ = write!(line, "; {} FAILED", self.failed);
        }
        line
    }

    fn json(&self, n_ranks: usize) -> String {
        let object = |names: &[&str], numbers: &[i64]| {
            let pairs = names.iter().zip(numbers).map(|(name, n)| format!("\"{name}\":{n}"));
            format!("{{{}}}", pairs.collect::<Vec<_>>().join(","))
        };
        let taken = object(&COLLECTIVES.map(|row| row.name), &self.taken);
        let passed = object(&PassReason::ALL.map(PassReason::name), &self.passed);
        let share = match self.largest_relative_error {
            0.0 => "null".to_owned(),
            share => format!("{share:e}"),
        };
        let error = if self.largest_error.is_finite() {
            format!("{:e}", self.largest_error)
        } else {
            "null".to_owned()
        };
        format!(
            "{{\"foldwire\":\"preload\",\"ranks\":{n_ranks},\"taken\":{taken},\"passed\":{passed},\
             \"failed\":{},\"raw_bytes\":{},\"wire_bytes\":{},\"ratio\":{:.4},\
             \"largest_error\":{error},\"largest_error_of_range\":{share},\
             \"messages\":{{\"taken\":{},\"passed\":{},\"raw_bytes\":{},\"wire_bytes\":{},\
             \"largest_error\":{:e}}}}}",
            self.failed,
            self.raw_bytes,
            self.wire_bytes,
            ratio(self.raw_bytes, self.wire_bytes),
            self.messages.taken,
            self.messages.passed,
            self.messages.raw_bytes,
            self.messages.wire_bytes,
            self.messages.largest_error,
        )
    }
}
