//! Results for people (a header and a table, in the style of the OSU benchmarks) and for programs
//! (one JSON object, or CSV).

use std::time::Duration;

use foldwire::kernel::Level;
use foldwire::{Float, Preset, Transport};
use foldwire_arguments::sizes::Size;
use foldwire_arguments::values::LinkRate;
use foldwire_workbench::table::{self, Columns};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::benchmark::{BenchmarkOutcome, Settings};
use super::call_mode::BenchInputs;
use super::problem::Problem;
use super::row::{self, CollectiveRow, MPI_BEST};
use super::sweep;

/// Columns of `--csv`: fields of the head and of a row, and the number of rounds.
const CSV_COLUMNS: &str = "\
    collective,backend,ranks,dtype,n_bytes,contestant,rounds,time_s,min_s,p99_s,algbw_gbps,\
    busbw_gbps,ratio,threads,max_err,bound_worst,n_wrong,n_unequal,speedup_raw,\
    speedup_mpi_default,speedup_mpi_best,times_memcpy,algorithm,schedule,is_chosen,\
    times_best,in_flight,work_s,total_s,overlap_percent,launches,spread_percent,title,\
    as_published,device";

/// Object that `--json` prints, and that `foldwire sim --validate` reads.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct BenchResults {
    #[serde(flatten)]
    pub(crate) head: BenchHead,
    #[serde(flatten)]
    pub(crate) outcome: BenchmarkOutcome,
}

/// Configuration of the benchmark.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct BenchHead {
    pub(crate) collective: String,
    pub(crate) backend: String,
    pub(crate) ranks: usize,
    pub(crate) dtype: String,
    /// `None` if the collective does not reduce.
    pub(crate) op: Option<String>,
    /// `None` if the collective has no root.
    pub(crate) root: Option<usize>,
    pub(crate) in_place: bool,
    pub(crate) bound: String,
    /// Description of the values, for people.
    pub(crate) data: String,
    pub(crate) link: Option<String>,
    /// Latency of links in seconds, if set.
    latency_s: Option<f64>,
    pub(crate) lanes: usize,
    pub(crate) frame_bytes: usize,
    /// True if frames carry checksums.
    pub(crate) checksums: bool,
    kernels: String,
    checked: bool,
    /// Number of concurrent calls.
    #[serde(default = "one")]
    pub(crate) in_flight: usize,
    /// Number of launches of all ranks, one after the other.
    #[serde(default = "one")]
    launches: usize,
    /// True if presets ran without the guarantee of the same bits on all ranks.
    #[serde(default)]
    pub(crate) as_published: bool,
    /// The device whose memory held the values, if it was not the host's.
    pub(crate) device: Option<String>,
    /// Value that stands for missing data.
    pub(crate) fill: Option<f64>,
    /// Bytes of a share from which gZCCL's all-reduce is a ring.
    #[serde(default = "ring_from")]
    pub(crate) ring_from: usize,
    /// The user's file of speeds for automatic plans.
    speeds: Option<String>,
    /// Number of polls of a call while its rank computes, if overlap is measured.
    overlap_polls: Option<usize>,
    /// Units of the columns of `--budget`, if they are shown.
    budget: Option<BudgetUnits>,
}

/// Units in which a budget gives the time that each value of the array takes.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct BudgetUnits {
    bytes_per_value: usize,
    /// Bytes per second of a rank's link, if known.
    link_rate: Option<f64>,
}

impl BudgetUnits {
    /// Names of the columns. The link's time is known only with its rate.
    fn columns(self) -> impl Iterator<Item = &'static str> {
        let wire = self.link_rate.map(|_| "wire");
        ["encode", "fold", "decode", "wait"].into_iter().chain(wire)
    }

    /// Returns a row's nanoseconds for each value, in the order of the columns.
    fn of(self, row: &CollectiveRow, n_ranks: usize) -> impl Iterator<Item = Option<f64>> {
        let n_values = (row.n_bytes / self.bytes_per_value).max(1) as f64;
        let sent = row.wire_bytes.map(|all| all as f64 / n_ranks as f64);
        let wire = self.link_rate.map(|rate| sent.map(|sent| sent / rate));
        let times = [row.encode_s, row.fold_s, row.decode_s, row.wait_s].into_iter().chain(wire);
        times.map(move |seconds| seconds.map(|seconds| seconds * 1e9 / n_values))
    }
}

fn one() -> usize {
    1
}

fn ring_from() -> usize {
    Preset::RING_FROM
}

impl BenchHead {
    pub(super) fn new<X: Transport, T: Float>(inputs: &BenchInputs<'_, T>, endpoint: &X) -> Self {
        let &BenchInputs { args, settings, data, backend, .. } = inputs;
        let Problem { collective, op, root, in_place, .. } = settings.problem;
        Self {
            collective: args.form.name(),
            backend: backend.to_owned(),
            ranks: endpoint.size(),
            dtype: T::DTYPE.to_string(),
            op: collective.reduces().then(|| op.name().to_owned()),
            root: collective.has_root().then(|| root.index()),
            in_place,
            bound: args.bound.to_string(),
            data: data.about().to_owned(),
            link: args.link.as_ref().map(ToString::to_string),
            latency_s: args.latency,
            lanes: super::lanes(args),
            frame_bytes: endpoint.frame_capacity(),
            checksums: endpoint.needs_checksum(),
            kernels: Level::best().to_string(),
            checked: settings.check,
            in_flight: settings.in_flight,
            launches: args.launches,
            as_published: args.as_published,
            device: args.device.clone(),
            fill: args.fill,
            ring_from: args.ring_from,
            speeds: args.speeds.as_ref().map(|path| path.display().to_string()),
            overlap_polls: settings.overlap,
            budget: args.budget.then(|| BudgetUnits {
                bytes_per_value: T::BYTES,
                link_rate: args.link.as_ref().and_then(LinkRate::bytes_per_s),
            }),
        }
    }

    /// Returns whether frames move only through memory, at its speed. A memcpy is then a fair
    /// comparison for calls.
    pub(super) fn shares_memory(&self, settings: &Settings) -> bool {
        !self.checksums && !settings.has_links
    }

    /// Describes the benchmark and its columns in lines that begin with `#`.
    fn text(&self, memcpy_gbps: f64) -> String {
        let mut what = format!(
            "# foldwire {}, {} ranks over {}, {}",
            self.collective, self.ranks, self.backend, self.dtype
        );
        let link = self.link.as_ref().map(|link| format!("links of {link}"));
        let latency = self.latency_s.map(|s| format!("latency {:?}", Duration::from_secs_f64(s)));
        let op = self.op.clone();
        let root = self.root.map(|root| format!("root {root}"));
        let in_place = self.in_place.then(|| "in place".to_owned());
        let device = self.device.as_ref().map(|device| format!("on {device}"));
        let as_published = self.as_published.then(|| "as published".to_owned());
        let fill = self.fill.map(|fill| format!("fill value {fill}"));
        for more in
            [link, latency, op, root, in_place, device, as_published, fill].into_iter().flatten()
        {
            what += &format!(", {more}");
        }
        let mut how = String::new();
        if self.collective.ends_with("-v") {
            // The array has 1 + 2 + … + (n − 1) equal parts. Rank r gets r of them.
            how +=
                "# shares grow with the rank: that of rank r is r parts of 1 + 2 + ... + (n - 1)\n";
        }
        if self.launches > 1 {
            how += &format!(
                "# {} launches; time: the median of their medians; spread: from their least to \
                 their greatest, of time\n",
                self.launches
            );
        }
        if self.in_flight > 1 {
            how += &format!("# {} calls at once; times are per call\n", self.in_flight);
        }
        if let Some(n_polls) = self.overlap_polls {
            how += &format!(
                "# work: as long as the call, alone; total: call and work, {n_polls} polls in \
                 between\n\
                 # hidden: 100 (1 - (total - work) / time) %, of the call's time\n"
            );
        }
        if self.budget.is_some() {
            how += "# encode, fold, decode, wait: time for each value of the array in the last \
                    round, mean over ranks; wire: a link's time for what a rank sends\n";
        }
        let check = if self.checked { "first results checked" } else { "results not checked" };
        format!(
            "{what}\n\
             # data: {}\n\
             # bound on each operand: {}; kernels: {}; {} lanes, frames of {} bytes\n\
             # size: bytes of the whole array; time: median over rounds of the slowest rank's; \
             {check}\n\
             # #wrong: values beyond what is allowed, and ranks with other bits than rank 0\n\
             # algbw: size / time; busbw: as in nccl-tests; memcpy on rank 0, same run: \
             {memcpy_gbps:.1} GB/s\n\
             {how}",
            self.data, self.bound, self.kernels, self.lanes, self.frame_bytes,
        )
    }
}

impl BenchResults {
    /// Combines the results of several launches of the same benchmark. A single launch stays as it
    /// is.
    pub(super) fn of_launches(mut launches: Vec<Self>) -> Option<Self> {
        if launches.len() < 2 {
            return launches.pop();
        }
        let rates: Vec<f64> = launches.iter().map(|launch| launch.outcome.memcpy_gbps).collect();
        let mut all = launches.first()?.clone();
        all.outcome.memcpy_gbps = row::median(&rates);
        for (nth, row) in all.outcome.rows.iter_mut().enumerate() {
            let of = launches.iter().filter_map(|launch| launch.outcome.rows.get(nth).cloned());
            *row = CollectiveRow::of_launches(&of.collect::<Vec<_>>());
        }
        for rows in all.outcome.rows.chunk_by_mut(|a, b| a.n_bytes == b.n_bytes) {
            let memcpy_s = |row: &CollectiveRow| row.times_memcpy.map(|times| row.time_s / times);
            let n_bytes = rows[0].n_bytes;
            let same = |launch: &Self| {
                let row = launch.outcome.rows.iter().find(|row| row.n_bytes == n_bytes);
                row.and_then(memcpy_s)
            };
            let copies: Option<Vec<f64>> = launches.iter().map(same).collect();
            CollectiveRow::compare(rows, copies.map(|copies| row::median(&copies)));
        }
        Some(all)
    }

    /// Returns one JSON object.
    pub(crate) fn json(&self) -> serde_json::Result<String> {
        serde_json::to_string(self)
    }

    /// Returns the rows as CSV with a header line: times in seconds, rates in 1e9 bytes/s.
    pub(super) fn csv(&self) -> anyhow::Result<String> {
        csv_of(CSV_COLUMNS, &self.head, &self.outcome.rows)
    }

    /// Returns header and table. If schedules are compared, a second table has the chosen and the
    /// best one for each size.
    pub(super) fn text(&self) -> String {
        let BenchmarkOutcome { rows, memcpy_gbps, .. } = &self.outcome;
        let memcpy_note = if rows.iter().any(|row| row.times_memcpy.is_some()) {
            "# x memcpy: time / that of a memcpy of as many bytes by all ranks at once, in the \
            same rounds\n"
        } else {
            ""
        };
        let best_note = if rows.iter().any(|row| row.schedule.is_some()) {
            "# x best: time / that of the best schedule; \
             *: the schedule that a call takes by itself\n"
        } else {
            ""
        };
        let head = self.head.text(*memcpy_gbps);
        format!(
            "{head}{memcpy_note}{best_note}\n{}{}",
            table(rows, &self.head),
            sweep::choices(rows)
        )
    }
}

/// Returns rows as CSV with a header line. Columns are fields of a row or of the head, and
/// `rounds`, the number of a row's times.
pub(crate) fn csv_of<R: Serialize>(
    columns: &str,
    head: &impl Serialize,
    rows: &[R],
) -> anyhow::Result<String> {
    let text = |value: &Value| match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        value => value.to_string(),
    };
    let columns: Vec<&str> = columns.split(',').collect();
    let head = serde_json::to_value(head)?;
    let mut csv = csv::Writer::from_writer(Vec::new());
    csv.write_record(&columns)?;
    for row in rows {
        let row = serde_json::to_value(row)?;
        let n_rounds = row.get("times_s").and_then(Value::as_array).map_or(0, Vec::len);
        csv.write_record(columns.iter().map(|&column| match row.get(column) {
            _ if column == "rounds" => n_rounds.to_string(),
            Some(value) => text(value),
            None => head.get(column).map(text).unwrap_or_default(),
        }))?;
    }
    Ok(String::from_utf8(csv.into_inner()?)?)
}

/// Formats one line for each implementation and size. MPI has columns only if it takes part.
fn table(rows: &[CollectiveRow], head: &BenchHead) -> String {
    let two_digits = |x: f64| format!("{x:.2}");
    let micros = |s: f64| format!("{:.1}", s * 1e6);
    let percent = |part: f64| format!("{part:.1}");
    let mut table = Columns::of(rows)
        .number("size", "bytes", |row| Size(row.n_bytes))
        .text("contestant", "", |row| &row.title)
        .number("time", "µs", |row| micros(row.time_s))
        .number("min", "µs", |row| micros(row.min_s))
        .number("p99", "µs", |row| micros(row.p99_s))
        .number("algbw", "GB/s", |row| format!("{:.3}", row.algbw_gbps))
        .number("busbw", "GB/s", |row| format!("{:.3}", row.busbw_gbps))
        .maybe("ratio", "", |row| row.ratio.map(two_digits))
        .maybe("threads", "", |row| row.threads)
        .maybe("max error", "", |row| row.max_err.map(table::scientific))
        .maybe("allowed", "", |row| row.bound_worst.map(table::scientific))
        .maybe("#wrong", "", |row| row.n_wrong);
    // Ranks may differ only without the guarantee of the same bits.
    if rows.iter().any(|row| row.n_unequal > Some(0)) {
        table = table.maybe("#unequal", "ranks", |row| row.n_unequal);
    }
    table = table
        .maybe("speed-up", "x raw", |row| row.speedup_raw.map(two_digits))
        .if_any("time", "x memcpy", |row| row.times_memcpy.map(two_digits))
        .if_any("speed-up", "x MPI", |row| row.speedup_mpi_default.map(two_digits))
        .if_any("speed-up", "x MPI best", |row| row.speedup_mpi_best.map(two_digits));
    if rows.iter().any(|row| row.contestant == MPI_BEST) {
        table = table.text("algorithm", "", |row| row.algorithm.clone().unwrap_or_default());
    }
    if rows.iter().any(|row| row.schedule.is_some()) {
        table = table.maybe("time", "x best", |row| row.times_best.map(two_digits)).text(
            "chosen",
            "",
            |row| if row.is_chosen == Some(true) { "*" } else { "" },
        );
    }
    table = table
        .if_any("spread", "%", |row| row.spread_percent.map(percent))
        .if_any("work", "µs", |row| row.work_s.map(micros))
        .if_any("total", "µs", |row| row.total_s.map(micros))
        .if_any("hidden", "%", |row| row.overlap_percent.map(percent));
    if let Some(units) = head.budget {
        for (at, column) in units.columns().enumerate() {
            table = table.maybe(column, "ns/value", |row| {
                let time = units.of(row, head.ranks).nth(at).flatten();
                time.map(|ns| format!("{ns:.3}"))
            });
        }
    }
    table.render()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::super::row::RAW;
    use super::super::row::tests::row;
    use super::*;

    /// Results of a preset and of MPI.
    pub(crate) fn results() -> BenchResults {
        let rows = vec![row(RAW, 0.5), row(MPI_BEST, 0.25)];
        BenchResults {
            head: head(),
            outcome: BenchmarkOutcome { rows, left_out: Vec::new(), memcpy_gbps: 9.0 },
        }
    }

    fn head() -> BenchHead {
        BenchHead {
            collective: "reduce".into(),
            backend: "MPI (Open MPI v4.1.4)".into(),
            ranks: 2,
            dtype: "f32".into(),
            op: Some("sum".into()),
            root: Some(1),
            in_place: false,
            bound: "rel:1e-3".into(),
            data: "a.f32".into(),
            link: None,
            latency_s: None,
            lanes: 4,
            frame_bytes: 266_240,
            checksums: false,
            kernels: "avx2".into(),
            checked: true,
            in_flight: 1,
            launches: 1,
            as_published: false,
            device: None,
            fill: None,
            ring_from: ring_from(),
            speeds: None,
            overlap_polls: None,
            budget: None,
        }
    }

    #[test]
    fn the_head_says_what_was_measured() {
        let text = head().text(11.25);
        assert!(text.lines().all(|line| line.starts_with("# ")), "{text}");
        let first = "# foldwire reduce, 2 ranks over MPI (Open MPI v4.1.4), f32, sum, root 1\n";
        assert!(text.starts_with(first), "{text}");
        assert!(text.contains("memcpy on rank 0, same run: 11.2 GB/s"), "{text}");
        let head = BenchHead {
            as_published: true,
            device: Some("cuda:1".into()),
            fill: Some(-9999.0),
            ..head()
        };
        let first = head.text(1.0).lines().next().unwrap().to_owned();
        assert!(first.ends_with(", on cuda:1, as published, fill value -9999"), "{first}");
    }

    #[test]
    fn columns_of_mpi_are_there_where_it_is() {
        let mut rows = vec![row(RAW, 0.004), row("foldwire", 0.001)];
        CollectiveRow::compare(&mut rows, None);
        let text = table(&rows, &head());
        assert!(text.contains("4000.0"), "{text}");
        assert!(!text.contains("MPI") && !text.contains("x memcpy"), "{text}");
        let mut best = row(MPI_BEST, 0.002);
        best.algorithm = Some("MPI_Reduce: chain".into());
        rows.push(best);
        CollectiveRow::compare(&mut rows, Some(0.0005));
        let text = table(&rows, &head());
        let foldwire = text.lines().find(|line| line.contains("foldwire")).unwrap();
        let cells: Vec<_> = foldwire.split_whitespace().collect();
        assert_eq!(cells[cells.len() - 3..], ["4.00", "2.00", "2.00"], "{text}");
        assert!(text.trim_end().ends_with("MPI_Reduce: chain"), "{text}");
    }

    #[test]
    fn csv_has_a_line_for_each_row_under_one_of_names() {
        let text = results().csv().unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!((lines.len(), lines[0]), (3, CSV_COLUMNS));
        assert!(lines[1].ends_with(",raw,false,"), "{text}");
        assert!(lines[1].starts_with("reduce,MPI (Open MPI v4.1.4),2,f32,1000,raw,1,0.5,0.5,0.5,"));
    }

    #[test]
    fn json_is_one_object_with_head_and_rows() {
        let mut results = results();
        results.outcome.rows[0].max_err = Some(f64::INFINITY);
        results.outcome.rows[0].title = "ring × fused × dense".into();
        let text = results.json().unwrap();
        let object: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(
            (&object["collective"], &object["memcpy_gbps"]),
            (&"reduce".into(), &9.0.into())
        );
        assert_eq!(object["rows"][0]["time_s"], 0.5);
        assert_eq!(object["rows"][0]["contestant"], RAW);
        assert_eq!(object["rows"][0]["max_err"], "inf");
        assert_eq!(object["ring_from"], Preset::RING_FROM);
        let read: BenchResults = serde_json::from_str(&text).unwrap();
        let row = &read.outcome.rows[0];
        assert_eq!((row.max_err, &*row.title), (Some(f64::INFINITY), "ring × fused × dense"));
    }

    #[test]
    fn a_budget_is_in_nanoseconds_for_each_value_and_knows_the_link_only_by_its_rate() {
        // Each of 250 values takes 4 ms / 250 to encode; a rank sends 200 bytes.
        let mpi = CollectiveRow { encode_s: None, wire_bytes: None, ..row(MPI_BEST, 0.5) };
        let rows = [row("foldwire", 0.5), mpi];
        let units = |link_rate| BudgetUnits { bytes_per_value: 4, link_rate };
        let of = |row, link_rate| units(link_rate).of(row, 2).collect::<Vec<_>>();
        let encode = Some(0.004 * 1e9 / 250.0);
        let (none, zero) = (None, Some(0.0));
        assert_eq!(of(&rows[0], None), [encode, zero, zero, zero]);
        assert_eq!(of(&rows[0], Some(1e9)), [encode, zero, zero, zero, Some(0.8)]);
        assert_eq!(of(&rows[1], Some(1e9)), [none, zero, zero, zero, none], "MPI counts no bytes");
        let head = BenchHead { budget: Some(units(Some(1e9))), ..head() };
        let text = table(&rows, &head);
        let columns = ["encode", "fold", "decode", "wait", "wire", "16000.000", "0.800"];
        assert!(columns.iter().all(|column| text.contains(column)), "{text}");
        assert!(head.text(1.0).contains("# encode, fold, decode, wait: "), "{text}");
    }
}
