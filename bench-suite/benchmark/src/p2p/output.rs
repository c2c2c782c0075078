//! Results for people (a header and a table) and for programs (one JSON object, or CSV).

use foldwire::kernel::Level;
use foldwire::{Communicator, Transport};
use foldwire_arguments::sizes::Size;
use foldwire_arguments::{P2pArgs, P2pTest};
use foldwire_workbench::data::Data;
use foldwire_workbench::infinite;
use foldwire_workbench::table::Columns;
use serde::Serialize;

use super::benchmark::RankMessageRecord;
use super::implementation::{MPI, RAW};
use crate::bench::benchmark::slowest;
use crate::bench::output::csv_of;
use crate::bench::row::{median, percentile};

/// Columns of `--csv`.
const CSV_COLUMNS: &str = "\
    what,backend,ranks,n_bytes,contestant,rounds,in_a_row,time_s,min_s,p99_s,encode_s,\
    decode_s,mb_per_s,ratio,max_err,n_wrong,speedup_raw,speedup_mpi";

/// Object that `--json` prints.
#[derive(Debug, Serialize)]
pub(super) struct P2pResults {
    #[serde(flatten)]
    pub(super) head: P2pHead,
    pub(super) rows: Vec<MessageRow>,
}

/// Configuration of the benchmark.
#[derive(Debug, Serialize)]
pub(super) struct P2pHead {
    backend: String,
    ranks: usize,
    link: Option<String>,
    /// Messages of fewer bytes are not compressed.
    exact_below: usize,
    /// Description of the values, for people.
    data: String,
    frame_bytes: usize,
    checksums: bool,
    kernels: String,
}

impl P2pHead {
    /// `backend` is the name and details of the backend.
    pub(super) fn new<X: Transport>(
        args: &P2pArgs,
        comm: &Communicator<X>,
        backend: &str,
        data: &Data<f32>,
    ) -> Self {
        Self {
            backend: backend.to_owned(),
            ranks: comm.size(),
            link: args.link.as_ref().map(ToString::to_string),
            exact_below: args.exact_below.unwrap_or(0),
            data: data.about().to_owned(),
            frame_bytes: comm.transport().frame_capacity(),
            checksums: comm.transport().needs_checksum(),
            kernels: Level::best().to_string(),
        }
    }

    /// Describes the benchmark and its columns in lines that begin with `#`.
    fn text(&self) -> String {
        let link = self.link.as_ref().map_or_else(String::new, |link| format!(", links of {link}"));
        let checksums = if self.checksums { "with checksums" } else { "without checksums" };
        format!(
            "# foldwire p2p, {} ranks over {}, f32{link}\n\
             # data: {}\n\
             # kernels: {}; frames of {} bytes, {checksums}\n\
             # pingpong: half of the way to and fro; sendrecv, barrier: the slowest rank's time\n\
             # encode, decode: the codec's part of the time, with copies into frames\n\
             # time: median over rounds; MB/s: size / time, of sendrecv what is sent and received\n\
             # #wrong: values beyond the bound, or with other bits where there is none\n",
            self.ranks, self.backend, self.data, self.kernels, self.frame_bytes,
        )
    }
}

/// Results of an implementation at one size.
#[derive(Debug, Serialize)]
pub(super) struct MessageRow {
    what: P2pTest,
    /// Size of a message; `None` for the barrier.
    n_bytes: Option<usize>,
    contestant: String,
    /// Number of messages in a measurement.
    in_a_row: usize,
    /// Seconds per message, median over rounds.
    time_s: f64,
    /// Seconds per message in the fastest round.
    min_s: f64,
    /// Seconds per message, 99th percentile over rounds.
    p99_s: f64,
    /// Seconds per message in each round.
    times_s: Vec<f64>,
    /// Seconds to encode and to decode a message on the slowest rank, median over rounds; only for
    /// Foldwire. The rest of the time is the network's.
    encode_s: Option<f64>,
    decode_s: Option<f64>,
    /// Rate in 1e6 bytes/s.
    mb_per_s: Option<f64>,
    /// Bytes of the checked messages over all ranks, before compression; only for Foldwire.
    raw_bytes: Option<u64>,
    /// Bytes of the checked messages over all ranks, after compression; only for Foldwire.
    wire_bytes: Option<u64>,
    /// `raw_bytes` / `wire_bytes`.
    ratio: Option<f64>,
    /// Largest error of the received values.
    #[serde(serialize_with = "infinite::serialize")]
    max_err: Option<f64>,
    /// Allowed error.
    bound_abs: Option<f64>,
    /// Number of received values beyond the allowed error.
    n_wrong: Option<usize>,
    /// Time of another implementation / this time, if that implementation takes part.
    speedup_raw: Option<f64>,
    speedup_mpi: Option<f64>,
}

impl MessageRow {
    /// Returns the row of one implementation, from the records of all ranks.
    ///
    /// # Panics
    /// If there are no ranks, or ranks have run different numbers of rounds.
    pub(super) fn new(
        what: P2pTest,
        n_bytes: Option<usize>,
        contestant: &str,
        ranks: &[RankMessageRecord],
    ) -> Self {
        let times_s = slowest(&ranks.iter().map(|rank| &rank.times[..]).collect::<Vec<_>>());
        let time_s = median(&times_s);
        let n_ways = if what == P2pTest::SendRecv { 2 } else { 1 };
        let rate = |n_bytes: usize| (n_ways * n_bytes) as f64 / time_s.max(1e-9) / 1e6;
        let sum = |which: usize| {
            // Ranks that send nothing report nothing.
            let mut bytes = ranks.iter().filter_map(|rank| rank.bytes).map(|b| b[which]).peekable();
            bytes.peek().is_some().then(|| bytes.sum::<u64>())
        };
        let (raw_bytes, wire_bytes) = (sum(0), sum(1));
        let coding = |part: usize| {
            let of_rank = |rank: &RankMessageRecord| -> Vec<f64> {
                rank.coding.iter().map(|parts| parts[part]).collect()
            };
            let times: Vec<Vec<f64>> =
                ranks.iter().map(of_rank).filter(|times| !times.is_empty()).collect();
            (!times.is_empty()).then(|| median(&slowest(&times)))
        };
        let most = |part: fn(&RankMessageRecord) -> f64| ranks.iter().map(part).fold(0.0, f64::max);
        Self {
            what,
            n_bytes,
            contestant: contestant.to_owned(),
            in_a_row: ranks[0].in_a_row,
            time_s,
            min_s: times_s.iter().copied().fold(f64::INFINITY, f64::min),
            p99_s: percentile(&times_s, 0.99),
            times_s,
            encode_s: coding(0),
            decode_s: coding(1),
            mb_per_s: n_bytes.map(rate),
            raw_bytes,
            wire_bytes,
            ratio: raw_bytes.zip(wire_bytes).map(|(raw, wire)| raw as f64 / wire.max(1) as f64),
            max_err: n_bytes.map(|_| most(|rank| rank.max_err)),
            bound_abs: n_bytes.map(|_| most(|rank| rank.bound)),
            n_wrong: n_bytes.map(|_| ranks.iter().map(|rank| rank.n_wrong).sum()),
            speedup_raw: None,
            speedup_mpi: None,
        }
    }

    /// Returns a description of what is wrong with the received values, if anything is.
    pub(super) fn fault(&self) -> Option<String> {
        let n_wrong = self.n_wrong.filter(|&n| n > 0)?;
        let (what, contestant) = (self.what.name(), &self.contestant);
        let (max_err, bound) = (self.max_err.unwrap_or(0.0), self.bound_abs.unwrap_or(0.0));
        Some(format!(
            "{what}, {} bytes, {contestant}: {n_wrong} values are wrong; the largest error is \
             {max_err:e}, {bound:e} is allowed",
            self.n_bytes.unwrap_or(0)
        ))
    }
}

/// Sets the speed-ups in the rows of one size.
pub(super) fn compare(rows: &mut [MessageRow]) {
    let time = |of: &str| rows.iter().find(|row| row.contestant == of).map(|row| row.time_s);
    let [raw, mpi] = [RAW, MPI].map(time);
    for row in rows {
        let speedup = |other: Option<f64>| other.map(|other| other / row.time_s.max(1e-9));
        (row.speedup_raw, row.speedup_mpi) = (speedup(raw), speedup(mpi));
    }
}

impl P2pResults {
    /// Returns the rows as CSV with a header line.
    pub(super) fn csv(&self) -> anyhow::Result<String> {
        csv_of(CSV_COLUMNS, &self.head, &self.rows)
    }

    /// Returns header and table.
    pub(super) fn text(&self) -> String {
        format!("{}\n{}", self.head.text(), table(&self.rows))
    }
}

/// Formats one line for each implementation and size. MPI has a column only if it takes part.
fn table(rows: &[MessageRow]) -> String {
    let two_digits = |x: f64| format!("{x:.2}");
    let micros = |s: f64| format!("{:.2}", s * 1e6);
    Columns::of(rows)
        .text("what", "", |row| row.what.name())
        .maybe("size", "bytes", |row| row.n_bytes.map(Size))
        .text("contestant", "", |row| &row.contestant)
        .number("time", "µs", |row| micros(row.time_s))
        .number("min", "µs", |row| micros(row.min_s))
        .number("p99", "µs", |row| micros(row.p99_s))
        .maybe("encode", "µs", |row| row.encode_s.map(micros))
        .maybe("decode", "µs", |row| row.decode_s.map(micros))
        .maybe("rate", "MB/s", |row| row.mb_per_s.map(|x| format!("{x:.1}")))
        .maybe("ratio", "", |row| row.ratio.map(two_digits))
        .maybe("#wrong", "", |row| row.n_wrong)
        .maybe("speed-up", "x raw", |row| row.speedup_raw.map(two_digits))
        .if_any("speed-up", "x MPI", |row| row.speedup_mpi.map(two_digits))
        .render()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rank(times: &[f64], bytes: Option<[u64; 2]>, n_wrong: usize) -> RankMessageRecord {
        RankMessageRecord {
            in_a_row: 5,
            times: times.to_vec(),
            bytes,
            n_wrong,
            ..RankMessageRecord::default()
        }
    }

    #[test]
    fn a_row_is_of_all_ranks() {
        let ranks =
            [rank(&[1e-3, 5e-3], Some([100, 20]), 0), rank(&[2e-3, 4e-3], Some([100, 30]), 0)];
        let row = MessageRow::new(P2pTest::SendRecv, Some(7_000), RAW, &ranks);
        assert_eq!((row.time_s, row.min_s, row.p99_s), (3.5e-3, 2e-3, 5e-3));
        assert_eq!((row.mb_per_s, row.ratio), (Some(4.0), Some(4.0)));
        assert_eq!(row.fault(), None);
        let ranks = [rank(&[0.5], None, 0), rank(&[0.0], None, 2)];
        let row = MessageRow::new(P2pTest::PingPong, Some(4), MPI, &ranks);
        assert_eq!((row.ratio, row.n_wrong), (None, Some(2)));
        assert!(row.fault().unwrap().starts_with("pingpong, 4 bytes, mpi: 2 values"));
    }

    #[test]
    fn the_column_of_mpi_is_there_where_it_is() {
        let row = |name, time| {
            MessageRow::new(P2pTest::PingPong, Some(4), name, &[rank(&[time], None, 0)])
        };
        let mut rows = vec![row(RAW, 4e-6), row("rel:1e-3", 2e-6)];
        compare(&mut rows);
        assert!(!table(&rows).contains("MPI"));
        rows.push(row(MPI, 3e-6));
        compare(&mut rows);
        let text = table(&rows);
        let bounded = text.lines().find(|line| line.contains("rel:1e-3")).unwrap();
        let cells: Vec<_> = bounded.split_whitespace().collect();
        assert_eq!(cells[cells.len() - 2..], ["2.00", "1.50"], "{text}");
    }
}
