//! Reads results of `foldwire bench --json`, and keeps the fields that predictions need.

use std::path::Path;
use std::str::FromStr;

use foldwire::{Bound, Collective, DType, Plan, Preset};
use foldwire_arguments::values::LinkRate;
use foldwire_fields::usage::{UsageError, usage};

use crate::bench::output::{BenchHead, BenchResults};
use crate::bench::row::CollectiveRow;
use crate::sim::is_priced;

/// Times of a collective on a fabric.
#[derive(Debug, Clone)]
pub(super) struct FabricResults {
    pub(super) head: BenchHead,
    pub(super) collective: Collective,
    pub(super) dtype: DType,
    pub(super) bound: Bound,
    pub(super) link: LinkRate,
    /// Times of presets, without the MPI library's own collectives.
    pub(super) times: Vec<PresetTimes>,
}

/// Times of a preset at one size.
#[derive(Debug, Clone)]
pub(super) struct PresetTimes {
    pub(super) preset: Preset,
    pub(super) n_bytes: usize,
    /// Median, in seconds.
    pub(super) median: f64,
    /// Fastest and slowest, in seconds.
    pub(super) range: [f64; 2],
}

/// Hint in errors: how to make a file that this module can read.
const SOURCE: &str = "write the file with `foldwire bench COLLECTIVE --link RATE --json`";

impl FabricResults {
    /// Reads the results in a file.
    ///
    /// # Errors
    /// Fails if the file is missing, is not a result of the benchmark, or holds calls that the
    /// model does not cover, such as minima.
    pub(super) fn read(path: &Path) -> Result<Self, UsageError> {
        let fault = |error: String| usage!("{}: {error}", path.display());
        let unread = |error| fault(format!("{error}; {SOURCE}"));
        let text = std::fs::read_to_string(path).map_err(unread)?;
        Self::parse(&text).map_err(fault)
    }

    fn parse(text: &str) -> Result<Self, String> {
        let BenchResults { head, outcome } =
            serde_json::from_str(text).map_err(|error| format!("{error}; {SOURCE}"))?;
        let collective = Collective::ALL.into_iter().find(|c| c.name() == head.collective);
        let collective = collective
            .ok_or_else(|| format!("`{}` is no collective; {SOURCE}", head.collective))?;
        if head.ranks == 0 {
            return Err(format!("the results are of 0 ranks; {SOURCE}"));
        }
        if let Some(op) = head.op.as_ref().filter(|op| *op != "sum") {
            return Err(format!("results of `--op {op}`; only those of sums are predicted"));
        }
        let unlike = [
            ("--in-flight", head.in_flight > 1),
            ("--as-published", head.as_published),
            ("--device", head.device.is_some()),
            ("--fill", head.fill.is_some()),
        ];
        if let Some((option, _)) = unlike.iter().find(|(_, is_given)| *is_given) {
            return Err(format!("results with `{option}`, which are not predicted"));
        }
        if let Some(row) = outcome.rows.iter().find(|row| row.threads > Some(1)) {
            return Err(format!(
                "{} computed on several threads a rank; only one is predicted",
                row.contestant
            ));
        }
        let dtype = DType::FLOATS.into_iter().find(|t| t.to_string() == head.dtype);
        let dtype =
            dtype.ok_or_else(|| format!("`{}` is no type of values; {SOURCE}", head.dtype))?;
        let link = head.link.as_ref().ok_or_else(|| {
            format!(
                "the file does not hold the rate of the links; {SOURCE} (`--link none`: no limit)"
            )
        })?;
        let times: Vec<PresetTimes> =
            outcome.rows.iter().filter_map(PresetTimes::of_preset).collect();
        if times.is_empty() {
            return Err(format!("the file holds no times of presets; {SOURCE}"));
        }
        let (bound, link) = (parse(&head.bound)?, parse(link)?);
        Ok(Self { head, collective, dtype, bound, link, times })
    }
}

impl PresetTimes {
    /// Returns the plan of the calls.
    pub(super) fn plan(&self, results: &FabricResults) -> Plan {
        let share_bytes = self.n_bytes / results.head.ranks.max(1);
        let Self { preset, .. } = self;
        preset.plan_switched(results.collective, results.bound, share_bytes, results.head.ring_from)
    }

    /// Returns the times of a row; `None` if it is not a preset, or cannot be predicted. The model
    /// gives presets that work message by message longer frames than the measurement may have had.
    fn of_preset(row: &CollectiveRow) -> Option<Self> {
        let is_known = |preset: &Preset| is_priced(*preset) && !preset.is_message_by_message();
        let mut presets = Preset::ALL.iter().copied().filter(is_known);
        let preset = presets.find(|preset| preset.name() == row.contestant)?;
        let fastest = row.times_s.iter().copied().fold(row.time_s, f64::min);
        let slowest = row.times_s.iter().copied().fold(row.time_s, f64::max);
        Some(Self { preset, n_bytes: row.n_bytes, median: row.time_s, range: [fastest, slowest] })
    }
}

fn parse<X: FromStr<Err: ToString>>(text: &str) -> Result<X, String> {
    text.parse().map_err(|error: X::Err| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::output::tests::results;

    /// Output of the benchmark for a reduction to rank 1, with rows of a preset and of MPI.
    fn text() -> String {
        let mut bench = results();
        bench.head.link = Some("1gbit".into());
        bench.outcome.rows[0].times_s = vec![0.75, 0.25, 0.5];
        bench.outcome.rows[0].threads = Some(1);
        bench.json().unwrap()
    }

    #[test]
    fn presets_have_times_and_others_are_left_out() {
        let results = FabricResults::parse(&text()).unwrap();
        assert_eq!(
            (results.collective, results.head.ranks, results.head.root),
            (Collective::Reduce, 2, Some(1))
        );
        assert_eq!(results.link.bytes_per_s(), Some(0.125e9));
        let [times] = &results.times[..] else { panic!("one row is a preset's") };
        assert_eq!((times.preset, times.n_bytes), (Preset::Raw, 1000));
        assert_eq!((times.median, times.range), (0.5, [0.25, 0.75]));
    }

    #[test]
    fn what_cannot_be_predicted_is_refused_with_what_to_do() {
        for (from, to, hint) in [
            ("\"reduce\"", "\"all-to-none\"", "no collective"),
            ("\"f32\"", "\"f8\"", "no type of values"),
            ("\"sum\"", "\"min\"", "only those of sums"),
            ("\"1gbit\"", "null", "--link none"),
            ("\"1gbit\"", "\"1\"", "no link rate"),
            ("\"ranks\":2", "\"ranks\":0", "0 ranks"),
            ("\"raw\"", "\"mpi-default\"", "no times of presets"),
            ("\"lanes\"", "\"tracks\"", "foldwire bench"),
            ("\"in_flight\":1", "\"in_flight\":2", "--in-flight"),
            ("\"as_published\":false", "\"as_published\":true", "--as-published"),
            ("\"device\":null", "\"device\":\"cuda\"", "--device"),
            ("\"fill\":null", "\"fill\":7.0", "--fill"),
            ("\"threads\":1", "\"threads\":2", "several threads"),
        ] {
            let text = text();
            assert!(text.contains(from), "{from} in {text}");
            let error = FabricResults::parse(&text.replace(from, to)).unwrap_err();
            assert!(error.contains(hint), "{error}");
        }
    }
}
