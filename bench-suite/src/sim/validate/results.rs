//! What `foldwire bench --json` has written, as far as a prediction needs it.

use std::num::NonZeroUsize;
use std::path::Path;
use std::str::FromStr;

use foldwire::{Collective, DType, Preset};
use serde::Deserialize;

use crate::usage::UsageError;
use crate::values::{BoundArg, LinkRate};

/// The file's object.
#[derive(Debug, Clone, Deserialize)]
struct File {
    collective: String,
    backend: String,
    ranks: NonZeroUsize,
    dtype: String,
    op: Option<String>,
    root: Option<usize>,
    in_place: bool,
    bound: String,
    data: String,
    link: Option<String>,
    lanes: usize,
    frame_bytes: usize,
    checksums: bool,
    rows: Vec<FileRow>,
}

#[derive(Debug, Clone, Deserialize)]
struct FileRow {
    n_bytes: usize,
    contestant: String,
    time_s: f64,
    times_s: Vec<f64>,
}

/// Times of a collective on a fabric.
#[derive(Debug, Clone)]
pub(super) struct Results {
    pub(super) collective: Collective,
    pub(super) backend: String,
    pub(super) ranks: usize,
    pub(super) dtype: DType,
    pub(super) root: usize,
    pub(super) in_place: bool,
    pub(super) bound: BoundArg,
    /// What the values are, for people.
    pub(super) data: String,
    pub(super) link: LinkRate,
    pub(super) lanes: usize,
    pub(super) frame_bytes: usize,
    pub(super) checksums: bool,
    /// Of presets; those of the MPI library's own collectives are left out.
    pub(super) times: Vec<Times>,
}

/// Times of a preset at a size.
#[derive(Debug, Clone)]
pub(super) struct Times {
    pub(super) preset: Preset,
    pub(super) n_bytes: usize,
    /// Seconds, the median.
    pub(super) median: f64,
    /// The fastest and the slowest.
    pub(super) range: [f64; 2],
}

impl Results {
    /// # Errors
    /// Files that are missing, no results of the benchmark, or of calls that the model does not tell apart from others.
    pub(super) fn read(path: &Path) -> Result<Self, UsageError> {
        let fault = |error: String| UsageError::new(format!("{}: {error}", path.display()));
        let text = std::fs::read_to_string(path).map_err(|error| fault(error.to_string()))?;
        Self::parse(&text).map_err(fault)
    }

    fn parse(text: &str) -> Result<Self, String> {
        const SOURCE: &str = "write the file with `foldwire bench COLLECTIVE --link RATE --json`";
        let file: File =
            serde_json::from_str(text).map_err(|error| format!("{error}; {SOURCE}"))?;
        let collective = Collective::ALL.into_iter().find(|c| c.name() == file.collective);
        let collective = collective
            .ok_or_else(|| format!("`{}` is no collective; {SOURCE}", file.collective))?;
        if let Some(op) = file.op.filter(|op| op != "sum") {
            return Err(format!("results of `--op {op}`; only those of sums are predicted"));
        }
        let dtype = [DType::F32, DType::F64].into_iter().find(|t| t.to_string() == file.dtype);
        let dtype =
            dtype.ok_or_else(|| format!("`{}` is no type of values; {SOURCE}", file.dtype))?;
        let link = file.link.ok_or_else(|| {
            format!("the rate of the links is not in it; {SOURCE} (`--link none`: no limit)")
        })?;
        let times: Vec<Times> = file.rows.iter().filter_map(FileRow::times).collect();
        if times.is_empty() {
            return Err(format!("no times of presets in it; {SOURCE}"));
        }
        Ok(Self {
            collective,
            backend: file.backend,
            ranks: file.ranks.get(),
            dtype,
            root: file.root.unwrap_or(0),
            in_place: file.in_place,
            bound: parse(&file.bound)?,
            data: file.data,
            link: parse(&link)?,
            lanes: file.lanes,
            frame_bytes: file.frame_bytes,
            checksums: file.checksums,
            times,
        })
    }
}

impl FileRow {
    /// `None` if it is no preset's.
    fn times(&self) -> Option<Times> {
        let preset = Preset::ALL.into_iter().find(|preset| preset.name() == self.contestant)?;
        let fastest = self.times_s.iter().copied().fold(self.time_s, f64::min);
        let slowest = self.times_s.iter().copied().fold(self.time_s, f64::max);
        let (n_bytes, median) = (self.n_bytes, self.time_s);
        Some(Times { preset, n_bytes, median, range: [fastest, slowest] })
    }
}

fn parse<X: FromStr<Err = UsageError>>(text: &str) -> Result<X, String> {
    text.parse().map_err(|error: UsageError| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"{"collective": "all-reduce", "backend": "MPI (some)", "ranks": 4, "dtype": "f32", "op": "sum",
        "root": null, "in_place": false, "bound": "rel:0.001", "data": "waves", "link": "1gbit", "lanes": 4,
        "frame_bytes": 266240, "checksums": true, "kernels": "avx2", "rows": [
            {"n_bytes": 64, "contestant": "zccl", "time_s": 0.5, "times_s": [0.75, 0.25, 0.5]},
            {"n_bytes": 64, "contestant": "mpi-best", "time_s": 0.5, "times_s": [0.5]}]}"#;

    #[test]
    fn presets_have_times_and_others_are_left_out() {
        let results = Results::parse(TEXT).unwrap();
        assert_eq!((results.collective, results.ranks), (Collective::AllReduce, 4));
        assert_eq!(results.link.bytes_per_s(), Some(0.125e9));
        let [times] = &results.times[..] else { panic!("one row is a preset's") };
        assert_eq!((times.preset, times.n_bytes), (Preset::Zccl, 64));
        assert_eq!((times.median, times.range), (0.5, [0.25, 0.75]));
    }

    #[test]
    fn what_cannot_be_predicted_is_refused_with_what_to_do() {
        for (from, to, hint) in [
            ("\"all-reduce\"", "\"all-to-all\"", "no collective"),
            ("\"f32\"", "\"f16\"", "no type of values"),
            ("\"sum\"", "\"min\"", "only those of sums"),
            ("\"1gbit\"", "null", "--link none"),
            ("\"1gbit\"", "\"1\"", "no link rate"),
            ("\"ranks\": 4", "\"ranks\": 0", "nonzero"),
            ("\"zccl\"", "\"mpi-default\"", "no times of presets"),
            ("\"lanes\"", "\"tracks\"", "foldwire bench"),
        ] {
            assert!(TEXT.contains(from));
            let error = Results::parse(&TEXT.replace(from, to)).unwrap_err();
            assert!(error.contains(hint), "{error}");
        }
    }
}
