//! Reports for the user: tables of speeds, of sizes and errors, and of the points of curves. A
//! further table compares with other compressors, if their sizes are known.

use std::fmt::Display;
use std::fmt::Write as _;
use std::path::Path;

use foldwire::Bound;
use foldwire::codec::{CodecId, Loss};
use foldwire_arguments::values::each_once;
use foldwire_workbench::table::{Columns, scientific};
use serde::{Serialize as _, Serializer};

use super::CodecRow;
use super::curve::CurvePoint;
use crate::peers::{PeerResult, PeerTable};

/// Compressor with which Foldwire's ratios and speeds are compared. It resembles fz-light most: it
/// has the same block size and no entropy coder.
const RIVAL: &str = "SZp-b32";

/// Fields of fewer bytes may fit in a processor's caches.
const CACHED_BYTES: usize = 16_000_000;

/// Serialises a value as it is written on the command line.
pub(super) fn as_text<T: Display, S: Serializer>(value: &T, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(value)
}

/// Serialises an optional value as it is written on the command line, or as null.
pub(super) fn or_null<T: Display, S: Serializer>(
    value: &Option<T>,
    to: S,
) -> Result<S::Ok, S::Error> {
    value.as_ref().map(T::to_string).serialize(to)
}

/// Returns all tables that are not empty.
pub(super) fn all(rows: &[CodecRow], points: &[CurvePoint], peers: &PeerTable) -> String {
    let tables = [
        (!rows.is_empty()).then(|| text(rows, peers)),
        (!points.is_empty()).then(|| curves(points)),
    ];
    tables.into_iter().flatten().collect::<Vec<_>>().join("\n")
}

/// Formats the table of rate and distortion.
fn curves(points: &[CurvePoint]) -> String {
    let table = Columns::of(points)
        .text("field", "", |point| stem(&point.field))
        .text("type", "", |point| point.dtype)
        .text("codec", "", |point| &point.codec)
        .text("bound or", "setting", |point| match (point.bound, point.setting) {
            (Some(bound), _) => bound.to_string(),
            (None, Some(setting)) => setting.to_string(),
            (None, None) => "–".to_owned(),
        })
        .number("rate", "bits a value", |point| format!("{:.3}", point.bits))
        .number("PSNR", "dB", |point| psnr(point.psnr_db, point.max_err))
        .number("max error", "", |point| scientific(point.max_err));
    format!("Rate and distortion; no time was taken\n\n{}", table.render())
}

fn psnr(psnr_db: Option<f64>, max_err: f64) -> String {
    match psnr_db {
        Some(db) => format!("{db:.1}"),
        None if max_err == 0.0 => "exact".to_owned(),
        None => "–".to_owned(),
    }
}

/// Formats the tables of speeds, of sizes and errors, and of other compressors.
fn text(rows: &[CodecRow], peers: &PeerTable) -> String {
    let mut text = speeds(rows);
    text += "\n";
    text += &sizes(rows);
    if let Some(beside) = beside_peers(rows, peers) {
        text += "\n";
        text += &beside;
    }
    text
}

fn speeds(rows: &[CodecRow]) -> String {
    let speed = |gbps: f64| match gbps {
        gbps if gbps.is_nan() => "–".to_owned(),
        gbps => format!("{gbps:.2}"),
    };
    let times = |gbps: f64, row: &CodecRow| format!("{:.2}", gbps / row.measured.memcpy_gbps);
    let table = named(Columns::of(rows))
        .text("level", "", |row| row.level)
        .number("threads", "", |row| row.threads)
        .number("encode", "GB/s", |row| speed(row.measured.encode_gbps))
        .number("decode", "GB/s", |row| speed(row.measured.decode_gbps))
        .number("fold", "GB/s", |row| speed(row.measured.fold_gbps))
        .number("by floats", "GB/s", |row| speed(row.measured.refold_gbps))
        .number("combine", "GB/s", |row| speed(row.measured.combine_gbps.unwrap_or(f64::NAN)))
        .number("memcpy", "GB/s", |row| speed(row.measured.memcpy_gbps))
        .number("read", "GB/s", |row| speed(row.measured.read_gbps))
        .number("encode", "× memcpy", |row| times(row.measured.encode_gbps, row))
        .number("decode", "× memcpy", |row| times(row.measured.decode_gbps, row))
        .number("fold", "× memcpy", |row| times(row.measured.fold_gbps, row));
    let mut text = format!(
        "Speed in 1e9 bytes of the field per second; memcpy and read are of one thread\n\n{}",
        table.render()
    );
    if rows.iter().any(|row| row.n_bytes < CACHED_BYTES) {
        text += "Fields of a few MB stay in the processor's caches, for memcpy and read as for the \
            codec.\n";
    }
    text
}

fn sizes(rows: &[CodecRow]) -> String {
    let mut table = named(Columns::of(rows.iter().filter(|row| is_first(rows, row))))
        .number("= absolute", "", |row| significant(row.bound_abs))
        .number("size", "MB", |row| format!("{:.2}", row.n_bytes as f64 / 1e6))
        .number("ratio", "", |row| format!("{:.2}", row.measured.ratio))
        .number("max error", "/ bound", |row| format!("{:.4}", row.measured.max_err_over_bound))
        .number("values", "beyond it", |row| row.measured.values_over_bound)
        .number("NaN, ∞", "changed", |row| row.measured.mismatched_nonfinite)
        .number("PSNR", "dB", |row| psnr(row.measured.psnr_db, row.measured.max_err_over_bound))
        .number("NRMSE", "", |row| row.measured.nrmse.map_or("–".to_owned(), scientific))
        .number("verbatim", "blocks", |row| row.measured.verbatim_blocks);
    let paths = [("both", "const"), ("left", "varies"), ("right", "varies"), ("both", "vary")];
    for (at, (name, unit)) in paths.into_iter().enumerate() {
        table = table.number(name, unit, |row| {
            let percent = |shares: [f64; 4]| format!("{:.1}", 100.0 * shares[at]);
            row.measured.paths.shares().map_or("–".to_owned(), percent)
        });
    }
    format!(
        "Size and error, the same for every level and number of threads; pairs of blocks that were \
         combined, by which blocks vary, in per cent\n\n{}",
        table.render()
    )
}

/// Formats a comparison of compression ratios with other compressors at the same relative bound.
/// Returns `None` if there is nothing to compare.
fn beside_peers(rows: &[CodecRow], peers: &PeerTable) -> Option<String> {
    let compared: Vec<_> = rows
        .iter()
        .filter(|row| row.codec.codec == CodecId::FzLight && is_first(rows, row))
        .filter_map(|row| match row.bound {
            Bound::Relative(rel) => Some((row, peers.of(&row.field, rel).collect::<Vec<_>>())),
            _ => None,
        })
        .filter(|(_, peers)| !peers.is_empty())
        .collect();
    let all_peers = compared.iter().flat_map(|(_, peers)| peers);
    let names_of_peers = each_once(all_peers.map(|peer| peer.peer.as_str()));
    if names_of_peers.is_empty() {
        return None;
    }

    let or_none = |value: Option<f64>, decimals: usize| {
        value.map_or("–".to_owned(), |value| format!("{value:.decimals$}"))
    };
    let gain = |row: &CodecRow, peers: &[&PeerResult]| {
        of(peers, RIVAL).map(|rival| row.measured.ratio / rival.ratio)
    };
    let mut table = Columns::of(&compared)
        .text("field", "", |(row, _)| stem(&row.field))
        .text("type", "", |(row, _)| row.dtype)
        .text("bound", "", |(row, _)| bound(row))
        .number("Foldwire", "", |(row, _)| format!("{:.2}", row.measured.ratio));
    for name in names_of_peers {
        let (family, variant) = name.split_once('-').unwrap_or((name, ""));
        table = table.number(family, variant, |(_, peers)| {
            or_none(of(peers, name).map(|peer| peer.ratio), 2)
        });
    }
    let table = table
        .number("Foldwire", &format!("/ {RIVAL}"), |(row, peers)| or_none(gain(row, peers), 3))
        .number("encode", &format!("× {RIVAL}"), |(row, peers)| {
            let rival = of(peers, RIVAL);
            or_none(rival.map(|rival| fastest_encode(rows, row) / rival.compress_gbps), 1)
        });
    let of_f32 = compared.iter().filter(|(row, _)| row.dtype == "f32");
    let gains: Vec<(f64, &CodecRow)> =
        of_f32.filter_map(|(row, peers)| Some((gain(row, peers)?, *row))).collect();
    let mut text = format!(
        "Compression ratio beside other compressors, at the same bound\n\n{}",
        table.render()
    );
    if let Some((least, row)) = gains.iter().copied().min_by(|a, b| a.0.total_cmp(&b.0)) {
        let mean =
            (gains.iter().map(|(gain, _)| gain.ln()).sum::<f64>() / gains.len() as f64).exp();
        writeln!(
            text,
            "Speeds of others are theirs on the machine that measured them.\n\
             Foldwire / {RIVAL} over {} f32 rows: least {least:.3} ({} at {}), \
             geometric mean {mean:.3}",
            gains.len(),
            stem(&row.field),
            row.bound
        )
        .expect("writing to a string");
    }
    Some(text)
}

/// Formats three significant digits, in positional notation if that is short.
fn significant(value: f64) -> String {
    if value == 0.0 || !(1e-4..1e6).contains(&value) {
        return scientific(value);
    }
    let decimals = (2.0 - value.log10().floor()).max(0.0) as usize;
    format!("{value:.decimals$}")
}

/// Adds the first columns of tables: field, type, bound and codec.
fn named(table: Columns<&CodecRow>) -> Columns<&CodecRow> {
    table
        .text("field", "", |row| stem(&row.field))
        .text("type", "", |row| row.dtype)
        .text("bound", "", |row| bound(row))
        .text("codec", "", |row| row.codec.to_string())
}

fn bound(row: &CodecRow) -> String {
    match row.codec.codec.loss() {
        Loss::Bound => row.bound.to_string(),
        Loss::None => "exact".to_owned(),
        _ => "none".to_owned(),
    }
}

/// Returns the result of a compressor.
fn of<'p>(peers: &[&'p PeerResult], name: &str) -> Option<&'p PeerResult> {
    peers.iter().copied().find(|peer| peer.peer == name)
}

/// Returns the name without its extension, because the type has its own column.
fn stem(name: &str) -> String {
    Path::new(name).file_stem().map_or_else(String::new, |stem| stem.to_string_lossy().into_owned())
}

fn is_same(a: &CodecRow, b: &CodecRow) -> bool {
    a.field == b.field && a.bound == b.bound && a.codec == b.codec
}

/// Returns whether `row` is the first one of its field, bound and codec.
fn is_first(rows: &[CodecRow], row: &CodecRow) -> bool {
    rows.iter().find(|other| is_same(other, row)).is_some_and(|first| std::ptr::eq(first, row))
}

/// Returns the highest encode speed of the rows with the same field, bound and codec as `row`.
fn fastest_encode(rows: &[CodecRow], row: &CodecRow) -> f64 {
    rows.iter()
        .filter(|other| is_same(other, row))
        .map(|row| row.measured.encode_gbps)
        .fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use foldwire::kernel::Level;

    use super::super::{CodecMeasurements, Place};
    use super::*;

    fn row(dtype: &'static str, level: Level, ratio: f64, encode_gbps: f64) -> CodecRow {
        CodecRow {
            field: format!("a.{dtype}"),
            dtype,
            n_bytes: 1_000_000,
            bound: Bound::Relative(1e-3),
            bound_abs: 0.25,
            codec: "fz-light".parse().unwrap(),
            level: Place::Host(level),
            threads: 1,
            measured: CodecMeasurements {
                ratio,
                encode_gbps,
                memcpy_gbps: 10.0,
                ..CodecMeasurements::default()
            },
        }
    }

    #[test]
    fn others_are_compared_at_the_same_field_and_bound() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("peers.csv");
        let head = "field,rel_bound,abs_bound,peer,compressed_bytes,ratio,compress_GBps,\
                    decompress_GBps,points_over_bound,max_error_over_bound,psnr_dB";
        let rows = "a.f32,1e-3,0.25,SZp-b32,1,4.0,0.5,1,0,1,60\n\
                    a.f32,1e-3,0.25,SZx,1,3.0,0.5,1,0,1,60\n\
                    a.f64,1e-3,0.25,SZx,1,6.5,0.5,1,0,1,60\n";
        fs::write(&path, format!("{head}\n{rows}")).unwrap();
        let peers = PeerTable::load(Some(&path)).unwrap();
        let rows = [
            row("f32", Level::Scalar, 5.0, 2.0),
            row("f32", Level::Avx2, 5.0, 8.0),
            row("f64", Level::Avx2, 7.0, 9.0),
        ];
        let text = beside_peers(&rows, &peers).unwrap();
        let words =
            |at: usize| text.lines().nth(at).unwrap().split_whitespace().collect::<Vec<_>>();
        assert_eq!(words(5), ["a", "f32", "rel:0.001", "5.00", "4.00", "3.00", "1.250", "16.0"]);
        assert_eq!(words(6), ["a", "f64", "rel:0.001", "7.00", "–", "6.50", "–", "–"]);
        let last = text.lines().last().unwrap();
        assert!(last.ends_with("least 1.250 (a at rel:0.001), geometric mean 1.250"), "{last}");
        assert_eq!(beside_peers(&rows, &PeerTable::default()), None);
    }

    #[test]
    fn bounds_have_three_digits() {
        let texts = [0.0, 0.000_915_9, 0.25, 63.23, 531.5, 5e6, 1e-7].map(significant);
        assert_eq!(texts, ["0", "0.000916", "0.250", "63.2", "532", "5.00e6", "1.00e-7"]);
    }

    #[test]
    fn sizes_come_once_and_speeds_for_every_level() {
        let rows = [row("f32", Level::Scalar, 5.0, 2.0), row("f32", Level::Avx2, 5.0, 8.0)];
        let n_rows =
            |text: String| text.lines().filter(|line| line.trim_start().starts_with("a ")).count();
        assert_eq!((n_rows(speeds(&rows)), n_rows(sizes(&rows))), (2, 1));
    }
}
