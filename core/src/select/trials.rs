//! Trials: calls made both exactly and compressed, to find out which is faster.
//!
//! The time of a call depends on more than the model knows: cores that ranks share, caches, the
//! transport's work for a message. So if the model expects exact and compressed calls to take about
//! as long, the communicator times some of each. It compresses later calls if that was clearly
//! faster.
//!
//! The communicator tries each [`CallKind`] separately. The trial of a kind begins with its call
//! number [`FIRST`]. Calls are exact and compressed in turn, [`N_TIMES`] of each. Before each of
//! them the ranks synchronize, so that no timed call waits for a late rank. With that, they
//! exchange the time of the trial's previous call. The time of a call is that on the slowest rank,
//! and of several calls the shortest time counts. After [`AGAIN`] times as many calls, another
//! trial checks whether the result still holds.

use super::automatic::Mode;
use crate::bound::Bound;
use crate::element::DType;
use crate::op::OpCode;
use crate::schedule::Collective;
use alloc::vec::Vec;

/// Number of the call, from 1, with which a kind's first trial begins. Calls before it touch memory
/// for the first time, and the rate of links is not known yet.
const FIRST: u32 = 3;
/// Factor by which the number of calls grows until the next trial begins.
const AGAIN: u32 = 32;
/// Number of exact calls in a trial, and of compressed calls.
const N_TIMES: u8 = 4;
/// Number of kinds of calls that a communicator remembers.
const N_KINDS: usize = 16;
/// A compressed call must take less than this share of an exact call's time.
const CLEARLY: f32 = 0.95;

/// A kind of calls that take about as long.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct CallKind {
    pub(crate) collective: Collective,
    pub(crate) op: OpCode,
    pub(crate) dtype: DType,
    pub(crate) bound: Option<Bound>,
    /// Floor of the base-2 logarithm of the array's bytes.
    pub(crate) log2_bytes: u32,
}

/// Statistics of the calls of one kind.
#[derive(Clone, Copy, Debug)]
struct Record {
    kind: CallKind,
    n_calls: u32,
    /// Number of the call with which the next trial begins.
    next: u32,
    /// Number of calls of the running trial that have begun.
    n_begun: u8,
    /// Seconds of the last of these calls on this rank; 0 if that call has not ended.
    last: f32,
    /// Shortest time in this trial, exact and compressed.
    seconds: [f32; 2],
    /// Result of the previous trial.
    found: Option<Mode>,
}

/// Trials of a communicator, the same on all ranks except for [`last`](Record::last).
#[derive(Clone, Debug, Default)]
pub(crate) struct Trials {
    records: Vec<Record>,
    /// Index of the record that a new kind replaces if the list is full.
    oldest: usize,
}

impl Trials {
    fn record(&self, kind: &CallKind) -> Option<&Record> {
        self.records.iter().find(|record| record.kind == *kind)
    }

    fn record_mut(&mut self, kind: &CallKind) -> Option<&mut Record> {
        self.records.iter_mut().find(|record| record.kind == *kind)
    }

    /// Returns the mode for calls of this kind outside of trials; `None` if the model decides.
    pub(crate) fn found(&self, kind: &CallKind) -> Option<Mode> {
        self.record(kind)?.found
    }

    /// Returns whether the next call of this kind is part of a trial, so that the ranks must
    /// synchronize before it. They then exchange [`last`](Self::last), and pass the longest of
    /// these times to [`note`](Self::note), which counts the call.
    pub(crate) fn is_due(&self, kind: &CallKind) -> bool {
        // After the counter's maximum there are no more trials.
        self.record(kind).is_some_and(|record| {
            record.next < u32::MAX && record.n_calls.saturating_add(1) >= record.next
        })
    }

    /// Returns whether a call of this kind has been counted, and has not been forgotten since.
    pub(crate) fn knows(&self, kind: &CallKind) -> bool {
        self.record(kind).is_some()
    }

    /// Counts a call that is not part of a trial. Returns whether a trial was forgotten on which
    /// the choice of calls depended, because there are too many kinds.
    pub(crate) fn count(&mut self, kind: &CallKind) -> bool {
        match self.record_mut(kind) {
            Some(record) => {
                record.n_calls = record.n_calls.saturating_add(1);
                false
            }
            None => self
                .insert(*kind)
                .is_some_and(|replaced| replaced.found.is_some() || replaced.n_begun > 0),
        }
    }

    /// Inserts the record of a first call. Returns the record that it replaces.
    fn insert(&mut self, kind: CallKind) -> Option<Record> {
        let seconds = [f32::INFINITY; 2];
        let record =
            Record { kind, n_calls: 1, next: FIRST, n_begun: 0, last: 0.0, seconds, found: None };
        if self.records.len() < N_KINDS {
            self.records.push(record);
            return None;
        }
        let replaced = core::mem::replace(&mut self.records[self.oldest], record);
        self.oldest = (self.oldest + 1) % N_KINDS;
        Some(replaced)
    }

    /// Seconds that the last call of a trial took on this rank.
    pub(crate) fn last(&self, kind: &CallKind) -> f32 {
        self.record(kind).map_or(0.0, |record| record.last)
    }

    /// Counts a call that is due. Records the time of the trial's last call on the slowest rank, 0
    /// if that call failed or there was none. Returns the mode of the call that now begins, if the
    /// call is part of the trial; `None` at the trial's end.
    pub(crate) fn note(&mut self, kind: &CallKind, seconds: f32) -> Option<Mode> {
        let record = self.record_mut(kind)?;
        record.n_calls = record.n_calls.saturating_add(1);
        if record.n_begun > 0 && seconds <= 0.0 {
            // The last call failed, so its mode is tried again.
            record.n_begun -= 1;
        } else if record.n_begun > 0 {
            let mode = usize::from((record.n_begun - 1) % 2);
            record.seconds[mode] = record.seconds[mode].min(seconds);
        }
        record.last = 0.0;
        if record.n_begun < 2 * N_TIMES {
            record.n_begun += 1;
            return Some(if record.n_begun % 2 == 1 { Mode::Exact } else { Mode::Compressed });
        }
        let [exact, compressed] = record.seconds;
        let is_faster = compressed < CLEARLY * exact;
        record.found = Some(if is_faster { Mode::Compressed } else { Mode::Exact });
        record.next = record.n_calls.saturating_mul(AGAIN);
        (record.n_begun, record.seconds) = (0, [f32::INFINITY; 2]);
        None
    }

    /// Records that a call of a trial ended `seconds` after the ranks synchronized.
    pub(crate) fn end(&mut self, kind: &CallKind, seconds: f32) {
        if let Some(record) = self.record_mut(kind) {
            // 0 would mean that the call failed, but the clock may not have advanced.
            record.last = seconds.max(f32::MIN_POSITIVE);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Number of calls until the first trial has ended.
    const N_FIRST: usize = FIRST as usize + 2 * N_TIMES as usize;

    fn kind(log2_bytes: u32) -> CallKind {
        let bound = Some(Bound::Relative(1e-3));
        let (collective, op) = (Collective::AllReduce, OpCode::Sum);
        CallKind { collective, op, dtype: DType::F32, bound, log2_bytes }
    }

    /// Makes a call that takes these seconds, exact or compressed. Returns the call's mode if the
    /// call was part of a trial.
    fn call(trials: &mut Trials, kind: CallKind, seconds: [f32; 2]) -> Option<Mode> {
        if !trials.is_due(&kind) {
            trials.count(&kind);
            return None;
        }
        let last = trials.last(&kind);
        let mode = trials.note(&kind, last)?;
        trials.end(&kind, seconds[mode as usize]);
        Some(mode)
    }

    /// Makes `n` calls. Returns how many of them were part of a trial, exact and compressed.
    fn calls(trials: &mut Trials, kind: CallKind, seconds: [f32; 2], n: usize) -> [usize; 2] {
        let mut n_tried = [0; 2];
        for _ in 0..n {
            if let Some(mode) = call(trials, kind, seconds) {
                n_tried[mode as usize] += 1;
            }
        }
        n_tried
    }

    #[test]
    fn compressed_calls_are_found_to_be_better_if_they_are_clearly_sooner() {
        let ways = [
            ([1.0, 0.9], Mode::Compressed),
            ([1.0, 0.97], Mode::Exact),
            ([1.0, CLEARLY], Mode::Exact),
            ([0.9, 1.0], Mode::Exact),
            ([0.0, 1.0], Mode::Exact),
        ];
        for (seconds, found) in ways {
            let mut trials = Trials::default();
            assert_eq!(calls(&mut trials, kind(20), seconds, N_FIRST), [4, 4]);
            assert_eq!(trials.found(&kind(20)), Some(found), "{seconds:?}");
            assert_eq!(trials.found(&kind(21)), None);
        }
    }

    #[test]
    fn a_later_trial_finds_what_has_changed() {
        let mut trials = Trials::default();
        calls(&mut trials, kind(20), [2.0, 1.0], N_FIRST);
        assert_eq!(calls(&mut trials, kind(20), [1.0, 2.0], N_FIRST * 32 - N_FIRST - 1), [0, 0]);
        assert_eq!(trials.found(&kind(20)), Some(Mode::Compressed));
        assert_eq!(calls(&mut trials, kind(20), [1.0, 2.0], 9), [4, 4]);
        assert_eq!(trials.found(&kind(20)), Some(Mode::Exact));
    }

    #[test]
    fn a_call_of_a_trial_that_fails_is_made_again() {
        let mut trials = Trials::default();
        calls(&mut trials, kind(20), [2.0, 1.0], 4);
        for _ in 0..3 {
            assert!(trials.is_due(&kind(20)));
            let last = trials.last(&kind(20));
            // The fourth call has ended, and the calls of this loop fail.
            assert_eq!(trials.note(&kind(20), last), Some(Mode::Exact));
        }
        calls(&mut trials, kind(20), [2.0, 1.0], 7);
        assert_eq!(trials.found(&kind(20)), Some(Mode::Compressed));
    }

    #[test]
    fn calls_beyond_those_that_are_counted_are_no_trials() {
        let mut trials = Trials::default();
        calls(&mut trials, kind(20), [2.0, 1.0], N_FIRST);
        trials.records[0].n_calls = u32::MAX / AGAIN;
        trials.records[0].next = 0;
        assert_eq!(calls(&mut trials, kind(20), [2.0, 1.0], 9), [4, 4]);
        trials.records[0].n_calls = u32::MAX - 1;
        assert_eq!(calls(&mut trials, kind(20), [2.0, 1.0], 9), [0, 0]);
    }

    #[test]
    fn no_more_kinds_are_remembered_than_there_is_room_for() {
        let mut trials = Trials::default();
        for _ in 0..N_FIRST {
            for log2_bytes in 0..N_KINDS as u32 {
                call(&mut trials, kind(log2_bytes), [2.0, 1.0]);
            }
        }
        assert_eq!(trials.found(&kind(0)), Some(Mode::Compressed));
        assert!(!trials.count(&kind(0)));
        // A trial that calls may have been planned with is gone, complete or not.
        assert!(trials.count(&kind(99)));
        assert_eq!(trials.found(&kind(0)), None);
        assert_eq!(trials.found(&kind(1)), Some(Mode::Compressed));
        assert_eq!(trials.records.len(), N_KINDS);
        let mut trials = Trials::default();
        calls(&mut trials, kind(0), [2.0, 1.0], FIRST as usize);
        (1..N_KINDS as u32).for_each(|log2_bytes| assert!(!trials.count(&kind(log2_bytes))));
        assert!(trials.count(&kind(99)));
        assert!(trials.knows(&kind(99)) && !trials.knows(&kind(0)));
    }
}
