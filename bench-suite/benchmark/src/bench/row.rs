//! One row of results: an implementation at one size, over all ranks.

use foldwire::Collective;
use foldwire_arguments::OpArg;
use foldwire_workbench::infinite;
use serde::{Deserialize, Serialize};

use super::benchmark::{self, RankRecord, ReportSummary};
use super::implementation::SweptSchedule;
use super::overlap;
use super::problem::Problem;
use super::result_check::ResultCheck;

/// Name of the preset that sends values uncompressed.
pub(super) const RAW: &str = "raw";
/// Name of the implementation that is the MPI library without tuning.
pub(super) const MPI_DEFAULT: &str = "mpi-default";
/// Name of the implementation that is the MPI library with its fastest algorithm.
pub(super) const MPI_BEST: &str = "mpi-best";

/// Results of an implementation at one size. Times are the slowest rank's.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct CollectiveRow {
    /// Size of the array.
    pub(crate) n_bytes: usize,
    /// Name of the implementation in JSON and CSV.
    pub(crate) contestant: String,
    /// Name of the implementation in tables and messages; schedule, pipeline and codec of a plan
    /// that is not a preset.
    #[serde(default)]
    pub(crate) title: String,
    /// Median over rounds, in seconds.
    pub(crate) time_s: f64,
    /// Seconds of the fastest round.
    #[serde(default)]
    pub(crate) min_s: f64,
    /// 99th percentile over rounds, in seconds.
    #[serde(default)]
    pub(crate) p99_s: f64,
    /// Seconds of each round.
    pub(crate) times_s: Vec<f64>,
    /// Median of each launch, if there are several; `time_s` is the median of these.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) launches_s: Vec<f64>,
    /// Difference between the greatest and the least of `launches_s`, in percent of `time_s`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) spread_percent: Option<f64>,
    /// Seconds of the work alone, if overlap is measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) work_s: Option<f64>,
    /// Seconds of the call and the work together, if overlap is measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) total_s: Option<f64>,
    /// Percentage of the call's time that the work hides, if overlap is measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) overlap_percent: Option<f64>,
    /// Size / time, in 1e9 bytes/s.
    pub(crate) algbw_gbps: f64,
    /// Bus bandwidth (rate of each link) in 1e9 bytes/s, as nccl-tests define it.
    pub(crate) busbw_gbps: f64,
    /// Bytes that all ranks together sent, before compression; only for Foldwire.
    pub(crate) raw_bytes: Option<u64>,
    /// Bytes that all ranks together sent, after compression; only for Foldwire.
    pub(crate) wire_bytes: Option<u64>,
    /// `raw_bytes` / `wire_bytes`.
    pub(crate) ratio: Option<f64>,
    /// Most threads that a rank computed on; only for Foldwire.
    pub(crate) threads: Option<u16>,
    /// Absolute bound on each operand.
    pub(crate) bound_abs: Option<f64>,
    /// Largest allowed error of the checked call, or else of the last one, including rounding;
    /// `None` if there is no limit.
    pub(crate) bound_worst: Option<f64>,
    /// Largest error on any rank; `None` unless checked.
    #[serde(default, with = "infinite")]
    pub(crate) max_err: Option<f64>,
    /// Values of the result that should be NaN or infinite and are something else; `None` unless
    /// checked.
    pub(crate) mismatched_nonfinite: Option<usize>,
    /// Minima or maxima that are numbers although an operand is NaN, from a library that does not
    /// guarantee NaN; `None` unless checked.
    pub(crate) nans_left_open: Option<usize>,
    /// Number of faults over all ranks; `None` unless checked. It counts values beyond the allowed
    /// error, and `mismatched_nonfinite`. It also counts ranks whose bits differ from rank 0's, if
    /// Foldwire guarantees equal bits.
    pub(crate) n_wrong: Option<usize>,
    /// Number of ranks whose bits differ from rank 0's, where all ranks get the same array; `None`
    /// unless checked.
    pub(crate) n_unequal: Option<usize>,
    /// Seconds that ranks spent on each kind of work in the last round, mean over ranks; only for
    /// Foldwire.
    pub(crate) encode_s: Option<f64>,
    pub(crate) fold_s: Option<f64>,
    pub(crate) decode_s: Option<f64>,
    pub(crate) wait_s: Option<f64>,
    /// Time of another implementation / this time, if that implementation takes part.
    pub(crate) speedup_raw: Option<f64>,
    pub(crate) speedup_mpi_default: Option<f64>,
    pub(crate) speedup_mpi_best: Option<f64>,
    /// This time / time of a memcpy of the same size by all ranks at once, if ranks share memory.
    pub(crate) times_memcpy: Option<f64>,
    /// The chosen algorithm, if there was a choice.
    pub(crate) algorithm: Option<String>,
    /// The schedule, if schedules are compared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) schedule: Option<String>,
    /// True if a call chooses this schedule by default, if schedules are compared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) is_chosen: Option<bool>,
    /// This time / time of the fastest schedule, if schedules are compared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) times_best: Option<f64>,
}

impl CollectiveRow {
    /// Returns the row of one implementation, from the records of all ranks.
    ///
    /// # Panics
    /// If there are no ranks, or ranks have run different numbers of rounds.
    pub(super) fn new(
        (contestant, title): (&str, String),
        n_bytes: usize,
        problem: &Problem,
        ranks: &[RankRecord],
        rounding: f64,
    ) -> Self {
        let slowest = |of: fn(&RankRecord) -> &[f64]| {
            benchmark::slowest(&ranks.iter().map(of).collect::<Vec<_>>())
        };
        let times_s = slowest(|record| &record.times);
        let time_s = median(&times_s);
        let middle = |of| Some(slowest(of)).filter(|times| !times.is_empty()).map(|t| median(&t));
        let (work_s, total_s) = (middle(|record| &record.works), middle(|record| &record.totals));
        let hidden = |(work, total)| overlap::percent(time_s, work, total);
        let algbw_gbps = n_bytes as f64 / time_s.max(1e-9) / 1e9;
        let reports: Option<Vec<ReportSummary>> = ranks.iter().map(|r| r.report).collect();
        let sum = |part: fn(&ReportSummary) -> u64| {
            reports.as_ref().map(|reports| reports.iter().map(part).sum::<u64>())
        };
        let mean = |part: fn(&ReportSummary) -> std::time::Duration| {
            let reports = reports.as_ref()?;
            let total: f64 = reports.iter().map(|r| part(r).as_secs_f64()).sum();
            Some(total / reports.len() as f64)
        };
        let (raw_bytes, wire_bytes) = (sum(|r| r.raw_bytes), sum(|r| r.wire_bytes));
        let ratio = raw_bytes.zip(wire_bytes).map(|(raw, wire)| {
            // A single rank sends nothing.
            if wire == 0 { 1.0 } else { raw as f64 / wire as f64 }
        });
        let result_checks: Option<Vec<_>> = ranks.iter().map(|r| r.result_check).collect();
        let sum_up = |part: fn(&ResultCheck) -> usize| {
            result_checks
                .as_ref()
                .map(|result_checks| result_checks.iter().map(part).sum::<usize>())
        };
        // In Foldwire, a minimum or maximum with a NaN is NaN. MPI leaves it undefined.
        let leaves_nan_open = reports.is_none()
            && problem.collective.reduces()
            && matches!(problem.op, OpArg::Min | OpArg::Max);
        let (mismatched_nonfinite, nans_left_open) = if leaves_nan_open {
            (sum_up(|v| v.mismatched_nonfinite - v.lost_nans), sum_up(|v| v.lost_nans))
        } else {
            (sum_up(|v| v.mismatched_nonfinite), sum_up(|_| 0))
        };
        let is_same_array = matches!(
            problem.collective,
            Collective::AllReduce | Collective::AllGather | Collective::Broadcast
        );
        let n_unequal = result_checks
            .as_ref()
            .filter(|_| is_same_array)
            .map(|checks| checks.iter().filter(|check| check.digest != checks[0].digest).count());
        let guarantees_bits = reports.as_ref().is_some_and(|reports| !reports[0].as_published);
        let n_faults = n_unequal.filter(|_| guarantees_bits).unwrap_or(0);
        let n_beyond = sum_up(|v| v.n_beyond);
        let n_wrong = n_beyond.zip(mismatched_nonfinite).map(|(a, b)| a + b + n_faults);
        // Other libraries have no error except rounding.
        let of_last_call =
            || Some(reports.as_ref().map_or(Some(0.0), |r| r[0].worst_case)? + rounding);
        let of_checked = |checks: &Vec<ResultCheck>| {
            let allowed = checks.iter().map(|check| check.allowed).fold(0.0, f64::max);
            Some(allowed).filter(|allowed| allowed.is_finite())
        };
        Self {
            n_bytes,
            contestant: contestant.to_owned(),
            title,
            time_s,
            min_s: times_s.iter().copied().fold(f64::INFINITY, f64::min),
            p99_s: percentile(&times_s, 0.99),
            times_s,
            work_s,
            total_s,
            overlap_percent: work_s.zip(total_s).map(hidden),
            algbw_gbps,
            busbw_gbps: algbw_gbps * problem.bus_factor(),
            raw_bytes,
            wire_bytes,
            ratio,
            threads: reports.as_ref().and_then(|all| all.iter().map(|r| r.threads).max()),
            bound_abs: reports.as_ref().map(|r| r[0].bound),
            bound_worst: result_checks.as_ref().map_or_else(of_last_call, of_checked),
            max_err: result_checks
                .as_ref()
                .map(|v| v.iter().map(|v| v.max_error).fold(0.0, f64::max)),
            mismatched_nonfinite,
            nans_left_open,
            n_wrong,
            n_unequal,
            encode_s: mean(|r| r.encode),
            fold_s: mean(|r| r.fold),
            decode_s: mean(|r| r.decode),
            wait_s: mean(|r| r.waiting),
            // Other fields follow from other rows, other launches or a choice, and are set later.
            ..Self::default()
        }
    }

    /// Combines several launches: the largest error and allowance, or those of the worst faulty
    /// launch; the sum of faults; medians of times. Byte counts are the first launch's.
    ///
    /// # Panics
    /// If there is no launch.
    pub(super) fn of_launches(launches: &[Self]) -> Self {
        let all = |of: fn(&Self) -> f64| launches.iter().map(of).collect::<Vec<f64>>();
        let middle = |of: fn(&Self) -> Option<f64>| {
            let values: Option<Vec<f64>> = launches.iter().map(of).collect();
            values.map(|values| median(&values))
        };
        let total = |of: fn(&Self) -> Option<usize>| launches.iter().map(of).sum::<Option<usize>>();
        let first = &launches[0];
        let launches_s = all(|row| row.time_s);
        let time_s = median(&launches_s);
        let (least, greatest) = (percentile(&launches_s, 0.0), percentile(&launches_s, 1.0));
        let times_s: Vec<f64> = launches.iter().flat_map(|row| row.times_s.clone()).collect();
        let (work_s, total_s) = (middle(|row| row.work_s), middle(|row| row.total_s));
        let hidden = |(work, total)| overlap::percent(time_s, work, total);
        let algbw_gbps = first.n_bytes as f64 / time_s.max(1e-9) / 1e9;
        let bus_factor = first.busbw_gbps / first.algbw_gbps.max(f64::MIN_POSITIVE);
        let worst = |of: fn(&Self) -> Option<f64>| {
            let values: Option<Vec<f64>> = launches.iter().map(of).collect();
            values.map(|values| values.into_iter().fold(0.0, f64::max))
        };
        let faulty = launches.iter().filter(|row| row.fault().is_some());
        let error = |row: &&Self| row.max_err.unwrap_or_default();
        let worst_fault = faulty.max_by(|a, b| error(a).total_cmp(&error(b)));
        let (max_err, bound_worst) = match worst_fault {
            Some(faulty) => (faulty.max_err, faulty.bound_worst),
            None => (worst(|row| row.max_err), worst(|row| row.bound_worst)),
        };
        Self {
            time_s,
            min_s: percentile(&times_s, 0.0),
            p99_s: percentile(&times_s, 0.99),
            times_s,
            spread_percent: Some(100.0 * (greatest - least) / time_s.max(1e-9)),
            launches_s,
            work_s,
            total_s,
            overlap_percent: work_s.zip(total_s).map(hidden),
            algbw_gbps,
            busbw_gbps: algbw_gbps * bus_factor,
            max_err,
            bound_worst,
            mismatched_nonfinite: total(|row| row.mismatched_nonfinite),
            nans_left_open: total(|row| row.nans_left_open),
            n_wrong: total(|row| row.n_wrong),
            n_unequal: total(|row| row.n_unequal),
            encode_s: middle(|row| row.encode_s),
            fold_s: middle(|row| row.fold_s),
            decode_s: middle(|row| row.decode_s),
            wait_s: middle(|row| row.wait_s),
            ..first.clone()
        }
    }

    /// Sets the schedule, if schedules are compared.
    pub(super) fn set_schedule(&mut self, swept: Option<SweptSchedule>) {
        self.schedule = swept.map(|swept| swept.schedule.to_owned());
        self.is_chosen = swept.map(|swept| swept.is_chosen);
    }

    /// Sets the fields that depend on other rows of the same size: speed-ups, and `times_best`.
    /// Also sets `times_memcpy`, if `memcpy` holds the seconds of a copy by all ranks at once.
    pub(super) fn compare(rows: &mut [Self], memcpy: Option<f64>) {
        let time = |of: &str| rows.iter().find(|row| row.contestant == of).map(|row| row.time_s);
        let [raw, default, best] = [RAW, MPI_DEFAULT, MPI_BEST].map(time);
        let swept = rows.iter().filter(|row| row.schedule.is_some()).map(|row| row.time_s);
        let least = swept.fold(f64::INFINITY, f64::min);
        for row in rows {
            let speedup = |other: Option<f64>| other.map(|other| other / row.time_s.max(1e-9));
            (row.speedup_raw, row.speedup_mpi_default) = (speedup(raw), speedup(default));
            row.speedup_mpi_best = speedup(best);
            row.times_best = row.schedule.as_ref().map(|_| row.time_s / least);
            row.times_memcpy = memcpy.map(|memcpy| row.time_s / memcpy.max(1e-9));
        }
    }

    /// Returns a note if another library's result has numbers where an operand is NaN, which MPI
    /// permits.
    pub(super) fn note(&self) -> Option<String> {
        let n = self.nans_left_open.filter(|&n| n > 0)?;
        Some(format!(
            "{}, {} bytes: {n} results are numbers although an operand is NaN; MPI leaves open \
             what the minimum and maximum of NaN are",
            self.title, self.n_bytes
        ))
    }

    /// Returns a description of the first fault of a checked result, or `None` if it has none.
    pub(super) fn fault(&self) -> Option<String> {
        let (error, mismatched) = (self.max_err?, self.mismatched_nonfinite?);
        let fault = |what: String| format!("{}, {} bytes: {what}", self.title, self.n_bytes);
        match self.bound_worst {
            _ if mismatched > 0 => {
                Some(fault(format!("{mismatched} NaNs or infinities differ from the exact result")))
            }
            Some(worst) if error > worst || error.is_nan() => {
                Some(fault(format!("the error {error:e} exceeds the promised {worst:e}")))
            }
            _ if self.n_wrong.is_some_and(|n| n > 0) => {
                Some(fault("ranks have other bits than rank 0".to_owned()))
            }
            _ => None,
        }
    }
}

/// Returns the percentile by the nearest-rank method: the smallest value that at least a fraction
/// `part` of all values does not exceed. Returns 0 for no values.
pub(crate) fn percentile(times: &[f64], part: f64) -> f64 {
    let mut times = times.to_vec();
    times.sort_unstable_by(f64::total_cmp);
    let rank = (times.len() as f64 * part).ceil() as usize;
    times.get(rank.saturating_sub(1)).copied().unwrap_or(0.0)
}

/// Returns the middle value, or the mean of the two middle values; 0 for no values.
pub(crate) fn median(times: &[f64]) -> f64 {
    let mut times = times.to_vec();
    times.sort_unstable_by(f64::total_cmp);
    let (middle, n) = (times.len() / 2, times.len());
    match n {
        0 => 0.0,
        n if n % 2 == 1 => times[middle],
        _ => f64::midpoint(times[middle - 1], times[middle]),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::time::Duration;

    use super::*;

    const PROBLEM: Problem = Problem::sum(Collective::AllReduce, 250, 2, 0);

    fn record(times: &[f64], wire_bytes: u64, max_error: f64) -> RankRecord {
        let encode = Duration::from_millis(4);
        let report =
            ReportSummary { raw_bytes: 1000, wire_bytes, encode, ..ReportSummary::default() };
        let result_check = ResultCheck { max_error, allowed: 1e-6, ..ResultCheck::default() };
        let times = times.to_vec();
        RankRecord {
            times,
            report: Some(report),
            result_check: Some(result_check),
            ..RankRecord::default()
        }
    }

    pub(in super::super) fn row(contestant: &str, time_s: f64) -> CollectiveRow {
        let ranks = [record(&[time_s], 100, 0.0), record(&[time_s], 300, 0.0)];
        CollectiveRow::new((contestant, contestant.to_owned()), 1000, &PROBLEM, &ranks, 1e-6)
    }

    #[test]
    fn a_round_takes_as_long_as_its_slowest_rank() {
        let ranks = [record(&[1.0, 5.0, 3.0], 1, 0.0), record(&[2.0, 4.0, 9.0], 1, 0.0)];
        let row = CollectiveRow::new(("a", "A".into()), 1_000_000_000, &PROBLEM, &ranks, 0.0);
        assert_eq!((&row.times_s[..], row.time_s), (&[2.0, 5.0, 9.0][..], 5.0));
        assert_eq!((row.algbw_gbps, row.busbw_gbps), (0.2, 0.2));
    }

    #[test]
    fn what_is_hidden_follows_from_the_medians_of_the_slowest_rank() {
        let with = |works: [f64; 3], totals: [f64; 3]| RankRecord {
            works: works.to_vec(),
            totals: totals.to_vec(),
            ..record(&[4.0; 3], 1, 0.0)
        };
        let ranks = [with([4.0; 3], [5.0; 3]), with([1.0, 5.0, 4.0], [9.0, 1.0, 6.0])];
        let row = CollectiveRow::new(("a", "A".into()), 4, &PROBLEM, &ranks, 0.0);
        assert_eq!(
            (row.work_s, row.total_s, row.overlap_percent),
            (Some(4.0), Some(6.0), Some(50.0))
        );
        let row = self::row("a", 1.0);
        assert_eq!((row.work_s, row.overlap_percent), (None, None));
    }

    #[test]
    fn of_launches_the_median_and_the_spread_count() {
        let of =
            |time_s, max_err| CollectiveRow { max_err: Some(max_err), ..row("foldwire", time_s) };
        let row = CollectiveRow::of_launches(&[of(2.0, 0.1), of(4.0, 0.5), of(3.0, 0.2)]);
        assert_eq!((row.time_s, row.min_s, row.p99_s), (3.0, 2.0, 4.0));
        assert_eq!(
            (&row.launches_s[..], &row.times_s[..]),
            (&[2.0, 4.0, 3.0][..], &[2.0, 4.0, 3.0][..])
        );
        assert_eq!((row.spread_percent, row.max_err), (Some(200.0 / 3.0), Some(0.5)));
        assert_eq!(row.algbw_gbps, 1000.0 / 3.0 / 1e9);
    }

    #[test]
    fn bytes_add_up_and_times_are_means() {
        let row = row("foldwire", 0.5);
        assert_eq!((row.raw_bytes, row.wire_bytes, row.ratio), (Some(2000), Some(400), Some(5.0)));
        assert_eq!((row.encode_s, row.wait_s), (Some(0.004), Some(0.0)));
    }

    #[test]
    fn speed_ups_are_over_those_who_take_part() {
        let mut rows = [row(RAW, 4.0), row("foldwire", 1.0), row(MPI_BEST, 2.0)];
        CollectiveRow::compare(&mut rows, Some(0.5));
        assert_eq!((rows[0].times_memcpy, rows[1].times_memcpy), (Some(8.0), Some(2.0)));
        assert_eq!((rows[1].speedup_raw, rows[1].speedup_mpi_best), (Some(4.0), Some(2.0)));
        assert_eq!((rows[0].speedup_raw, rows[1].speedup_mpi_default), (Some(1.0), None));
    }

    #[test]
    fn of_the_schedules_that_are_compared_one_is_the_best() {
        let mut rows = [row(RAW, 1.0), row("ring", 6.0), row("chain", 4.0)];
        for (row, is_chosen) in rows[1..].iter_mut().zip([true, false]) {
            row.set_schedule(Some(SweptSchedule { schedule: "s", is_chosen }));
        }
        CollectiveRow::compare(&mut rows, None);
        let times = rows.each_ref().map(|row| row.times_best);
        assert_eq!(times, [None, Some(1.5), Some(1.0)], "a preset is none of them");
    }

    #[test]
    fn a_result_beyond_its_bound_is_a_fault() {
        let of = |error| {
            let ranks = [record(&[1.0], 1, 0.0), record(&[1.0], 1, error)];
            CollectiveRow::new(("a", "A".into()), 4, &PROBLEM, &ranks, 1e-6).fault()
        };
        assert_eq!(of(1e-7), None);
        assert!(of(1e-5).unwrap().contains("exceeds the promised"));
        assert!(of(f64::INFINITY).is_some());
        // The report is that of the last call, which was exact. The checked one was not.
        let mut compressed = record(&[1.0], 1, 5e-3);
        compressed.result_check.as_mut().unwrap().allowed = 1e-2;
        let row = CollectiveRow::new(("a", "A".into()), 4, &PROBLEM, &[compressed], 0.0);
        assert_eq!((row.fault(), row.bound_worst), (None, Some(1e-2)));
        // Each launch keeps its own bound, and a launch that does not is not hidden by another.
        let of = |allowed, error| {
            let mut checked = record(&[1.0], 1, error);
            checked.result_check.as_mut().unwrap().allowed = allowed;
            CollectiveRow::new(("a", "A".into()), 4, &PROBLEM, &[checked], 0.0)
        };
        let kept = CollectiveRow::of_launches(&[of(0.0, 0.0), of(1e-2, 5e-3)]);
        assert_eq!((kept.fault(), kept.bound_worst), (None, Some(1e-2)));
        assert!(CollectiveRow::of_launches(&[of(1e-2, 5e-3), of(0.0, 1e-3)]).fault().is_some());
        let unchecked = RankRecord { result_check: None, ..record(&[1.0], 1, 9.0) };
        assert_eq!(
            CollectiveRow::new(("a", "A".into()), 4, &PROBLEM, &[unchecked], 0.0).fault(),
            None
        );
    }

    /// MPI leaves the minimum and maximum of NaN undefined, so its results get a note. Foldwire
    /// guarantees NaN.
    #[test]
    fn what_mpi_makes_of_nan_is_no_fault_and_what_foldwire_makes_of_it_is() {
        let of = |op, report: Option<ReportSummary>, lost_nans| {
            let result_check =
                ResultCheck { mismatched_nonfinite: 3, lost_nans, ..ResultCheck::default() };
            let record =
                RankRecord { report, result_check: Some(result_check), ..record(&[1.0], 1, 0.0) };
            let problem = Problem { op, ..PROBLEM };
            let row =
                CollectiveRow::new((MPI_BEST, "MPI best".into()), 64, &problem, &[record], 0.0);
            (row.fault().is_some(), row.note().is_some())
        };
        let ours = Some(ReportSummary { wire_bytes: 1, ..ReportSummary::default() });
        for op in [OpArg::Min, OpArg::Max] {
            assert_eq!(of(op, None, 3), (false, true));
            assert_eq!(of(op, None, 2), (true, true), "an infinity is no NaN");
            assert_eq!(of(op, ours, 3), (true, false));
        }
        for op in [OpArg::Sum, OpArg::Avg, OpArg::Prod] {
            assert_eq!(of(op, None, 3), (true, false));
        }
    }

    #[test]
    fn ranks_with_other_bits_are_counted_where_bits_are_promised() {
        let of = |collective, report: Option<ReportSummary>| {
            let with_digest = |digest| {
                let result_check = ResultCheck { digest, ..ResultCheck::default() };
                RankRecord { report, result_check: Some(result_check), ..record(&[1.0], 1, 0.0) }
            };
            let problem = Problem { collective, ..PROBLEM };
            let ranks = [5, 5, 6].map(with_digest);
            let row = CollectiveRow::new(("a", "A".into()), 64, &problem, &ranks, 0.0);
            (row.n_wrong, row.fault().is_some())
        };
        let ours = Some(ReportSummary::default());
        let as_published = Some(ReportSummary { as_published: true, ..ReportSummary::default() });
        assert_eq!(of(Collective::AllReduce, ours), (Some(1), true));
        assert_eq!(of(Collective::AllReduce, as_published), (Some(0), false));
        assert_eq!(of(Collective::AllReduce, None), (Some(0), false));
        assert_eq!(of(Collective::ReduceScatter, ours), (Some(0), false));
    }

    #[test]
    fn of_few_rounds_the_slowest_is_the_99th_of_100() {
        assert_eq!(percentile(&[3.0, 1.0, 2.0], 0.99), 3.0);
        let times: Vec<f64> = (1..=1000).map(f64::from).collect();
        assert_eq!(percentile(&times, 0.99), 990.0);
        assert_eq!(percentile(&[], 0.99), 0.0);
    }

    #[test]
    fn the_median_is_in_the_middle() {
        assert_eq!(median(&[9.0, 1.0, 4.0]), 4.0);
        assert_eq!(median(&[1.0, 9.0, 4.0, 6.0]), 5.0);
        assert_eq!(median(&[]), 0.0);
    }
}
