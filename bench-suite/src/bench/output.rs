//! Results for people (a head and a table, in the manner of the OSU benchmarks) and for programs (one JSON object).

use foldwire::kernel::Level;
use foldwire::{Communicator, Element, Transport};
use serde::Serialize;

use super::contest::{Outcome, Settings};
use super::data::Data;
use super::row::{MPI_BEST, MPI_DEFAULT, Row};
use crate::cli::BenchArgs;
use crate::sizes::Size;
use crate::table::{self, Align, Table};

/// What was measured, and how.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Head {
    collective: &'static str,
    backend: String,
    ranks: usize,
    dtype: String,
    /// `None` if nothing is reduced.
    op: Option<&'static str>,
    /// `None` if there is none.
    root: Option<usize>,
    in_place: bool,
    bound: String,
    data: String,
    link: Option<String>,
    lanes: usize,
    frame_bytes: usize,
    /// Whether frames carry them.
    checksums: bool,
    kernels: String,
    checked: bool,
}

impl Head {
    /// `backend` is its name, and whatever else says what it is.
    pub(super) fn new<X: Transport, T: Element>(
        args: &BenchArgs,
        comm: &Communicator<X>,
        backend: &str,
        data: &Data<T>,
        settings: &Settings,
    ) -> Self {
        let collective = settings.collective;
        let has_root =
            !collective.name().starts_with("all") && collective.name() != "reduce-scatter";
        Self {
            collective: collective.name(),
            backend: backend.to_owned(),
            ranks: comm.size(),
            dtype: T::DTYPE.to_string(),
            op: collective.reduces().then(|| settings.op.name()),
            root: has_root.then(|| settings.root.index()),
            in_place: settings.in_place,
            bound: args.bound.to_string(),
            data: data.about().to_owned(),
            link: args.link.as_ref().map(ToString::to_string),
            lanes: super::config(args).lanes,
            frame_bytes: comm.transport().frame_capacity(),
            checksums: comm.transport().needs_checksum(),
            kernels: Level::best().to_string(),
            checked: settings.check,
        }
    }

    /// Lines that begin with `#`.
    fn text(&self, memcpy_gbps: f64) -> String {
        let mut what = format!(
            "# foldwire {}, {} ranks over {}, {}",
            self.collective, self.ranks, self.backend, self.dtype
        );
        let link = self.link.as_ref().map(|link| format!("links of {link}"));
        let op = self.op.map(str::to_owned);
        let root = self.root.map(|root| format!("root {root}"));
        let in_place = self.in_place.then(|| "in place".to_owned());
        for more in [link, op, root, in_place].into_iter().flatten() {
            what += &format!(", {more}");
        }
        let check = if self.checked { "first results checked" } else { "results not checked" };
        format!(
            "{what}\n\
             # data: {}\n\
             # bound on each operand: {}; kernels: {}; {} lanes, frames of {} bytes\n\
             # size: bytes of the whole array; time: median over rounds of the slowest rank's; {check}\n\
             # algbw: size / time; busbw: as in nccl-tests; memcpy on rank 0, same run: {memcpy_gbps:.1} GB/s\n",
            self.data, self.bound, self.kernels, self.lanes, self.frame_bytes,
        )
    }
}

/// One JSON object.
pub(super) fn json(head: &Head, outcome: &Outcome) -> serde_json::Result<String> {
    #[derive(Serialize)]
    struct Object<'a> {
        #[serde(flatten)]
        head: &'a Head,
        memcpy_gbps: f64,
        rows: &'a [Row],
    }
    let memcpy_gbps = outcome.memcpy_gbps;
    serde_json::to_string(&Object { head, memcpy_gbps, rows: &outcome.rows })
}

/// Head and table.
pub(super) fn text(head: &Head, outcome: &Outcome) -> String {
    format!("{}\n{}", head.text(outcome.memcpy_gbps), table(&outcome.rows))
}

/// One line a contestant and size; columns of MPI only where it takes part.
fn table(rows: &[Row]) -> String {
    let has = |name: &str| rows.iter().any(|row| row.contestant == name);
    let (has_default, has_best) = (has(MPI_DEFAULT), has(MPI_BEST));
    let mut columns = vec![
        ("size", "bytes", Align::Right),
        ("contestant", "", Align::Left),
        ("time", "µs", Align::Right),
        ("algbw", "GB/s", Align::Right),
        ("busbw", "GB/s", Align::Right),
        ("ratio", "", Align::Right),
        ("max error", "", Align::Right),
        ("allowed", "", Align::Right),
        ("speed-up", "x raw", Align::Right),
    ];
    if has_default {
        columns.push(("speed-up", "x MPI", Align::Right));
    }
    if has_best {
        columns.push(("speed-up", "x MPI best", Align::Right));
        columns.push(("algorithm", "", Align::Left));
    }
    let mut table = Table::new(&columns);
    let optional =
        |value: Option<f64>, text: fn(f64) -> String| value.map_or_else(|| "-".to_owned(), text);
    let two_digits = |x: f64| format!("{x:.2}");
    for row in rows {
        let mut cells = vec![
            Size(row.n_bytes).to_string(),
            row.title.clone(),
            format!("{:.1}", row.time_s * 1e6),
            format!("{:.3}", row.algbw_gbps),
            format!("{:.3}", row.busbw_gbps),
            optional(row.ratio, two_digits),
            optional(row.max_err, table::scientific),
            optional(row.bound_worst, table::scientific),
            optional(row.speedup_raw, two_digits),
        ];
        if has_default {
            cells.push(optional(row.speedup_mpi_default, two_digits));
        }
        if has_best {
            cells.push(optional(row.speedup_mpi_best, two_digits));
            cells.push(row.algorithm.clone().unwrap_or_default());
        }
        table.row(&cells);
    }
    table.render()
}

#[cfg(test)]
mod tests {
    use super::super::row::RAW;
    use super::super::row::tests::row;
    use super::*;

    fn head() -> Head {
        Head {
            collective: "reduce",
            backend: "MPI (Open MPI v4.1.4)".into(),
            ranks: 2,
            dtype: "f32".into(),
            op: Some("sum"),
            root: Some(1),
            in_place: false,
            bound: "rel:1e-3".into(),
            data: "a.f32".into(),
            link: None,
            lanes: 4,
            frame_bytes: 266_240,
            checksums: false,
            kernels: "avx2".into(),
            checked: true,
        }
    }

    #[test]
    fn the_head_says_what_was_measured() {
        let text = head().text(11.25);
        assert!(text.lines().all(|line| line.starts_with("# ")), "{text}");
        let first = "# foldwire reduce, 2 ranks over MPI (Open MPI v4.1.4), f32, sum, root 1\n";
        assert!(text.starts_with(first), "{text}");
        assert!(text.contains("memcpy on rank 0, same run: 11.2 GB/s"), "{text}");
    }

    #[test]
    fn columns_of_mpi_are_there_where_it_is() {
        let mut rows = vec![row(RAW, 0.004), row("foldwire", 0.001)];
        Row::compare(&mut rows);
        let text = table(&rows);
        assert!(text.contains("4000.0") && !text.contains("MPI"), "{text}");
        let mut best = row(MPI_BEST, 0.002);
        best.algorithm = Some("MPI_Reduce: chain".into());
        rows.push(best);
        Row::compare(&mut rows);
        let text = table(&rows);
        let foldwire = text.lines().find(|line| line.contains("foldwire")).unwrap();
        let cells: Vec<_> = foldwire.split_whitespace().collect();
        assert_eq!(cells[cells.len() - 2..], ["4.00", "2.00"], "{text}");
        assert!(text.trim_end().ends_with("MPI_Reduce: chain"), "{text}");
    }

    #[test]
    fn json_is_one_object_with_head_and_rows() {
        let outcome = Outcome { rows: vec![row(RAW, 0.5)], memcpy_gbps: 9.0 };
        let object: serde_json::Value =
            serde_json::from_str(&json(&head(), &outcome).unwrap()).unwrap();
        assert_eq!(
            (&object["collective"], &object["memcpy_gbps"]),
            (&"reduce".into(), &9.0.into())
        );
        assert_eq!(object["rows"][0]["time_s"], 0.5);
        assert_eq!(object["rows"][0]["contestant"], RAW);
    }
}
