//! `foldwire papers sums`: hZCCL's experiments on a field x and the field y = x rotated by half.
//!
//! - *Paths* (table V): shares of the four paths of the homomorphic add, and its speed. Sums with a
//!   constant array c show single paths. The sum x + c copies blocks of the left operand, c + x
//!   blocks of the right one. The sum c + c copies none.
//! - *Quality* (table VI): ratio and error of sums made by floats and homomorphic.
//! - *STREAM* (table IV): memory traffic of encode and decode as a share of STREAM's rate.

use foldwire::bound::ValueRange;
use foldwire::codec::CodecParams;
use foldwire::{Bound, Float};
use foldwire_arguments::papers::PaperSumsArgs;
use foldwire_fields::usage::usage;
use foldwire_workbench::data::FieldSource;
use foldwire_workbench::table::{Columns, scientific};
use foldwire_workbench::threads::Pool;
use foldwire_workbench::{room, streams, with_float};
use serde::Serialize;
use serde_json::json;

use super::operands::{CodecSetup, Coding, SumResult, Sums};
use crate::codec::quantum;

/// Values of a built-in field.
const N_VALUES: usize = 1 << 24;
/// Packets of waves in the mostly constant field, and the values of each: 4 % of the field.
const PACKETS: (usize, usize) = (164, 4096);
/// Arrays of a field's size that a measurement needs.
const N_ARRAYS: u128 = 16;

/// One field, bound and codec.
#[derive(Debug, Serialize)]
struct SumsRow {
    field: String,
    bound: String,
    bound_abs: f64,
    codec: String,
    threads: usize,
    #[serde(flatten)]
    coding: Coding,
    /// Operands and their sum.
    sums: Vec<(&'static str, Sums)>,
}

/// Runs the experiment.
pub(super) fn run(args: &PaperSumsArgs) -> anyhow::Result<()> {
    let (mut rows, mut faults) = (Vec::new(), Vec::new());
    let pool = Pool::new(args.threads)?;
    if args.field.is_empty() {
        let data = FieldSource::BuiltIn.data::<f32>(1);
        let mut waves = vec![0.0; N_VALUES];
        data.fill(0, 0, &mut waves);
        measure("waves", &waves, (args, pool), &mut rows, &mut faults)?;
        let constant = mostly_constant(N_VALUES);
        measure("mostly constant", &constant, (args, pool), &mut rows, &mut faults)?;
    }
    for path in &args.field {
        let source = FieldSource::open(Some(path))?;
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        with_float!(super::wide(&source)?, T => {
            measure(&name, source.data::<T>(1).base(), (args, pool), &mut rows, &mut faults)?;
        });
    }
    let tables = || [paths(&rows), quality(&rows), shares_of_stream(&rows)].join("\n");
    streams::results(args.json, || json!({ "rows": rows }), tables)?;
    super::report(&faults)
}

/// Zeros, with packets of waves at positions that do not repeat.
fn mostly_constant(n_values: usize) -> Vec<f32> {
    let (n_packets, length) = PACKETS;
    let mut field = vec![0.0; n_values];
    // Multiples of the golden ratio, modulo 1, fill the array evenly, and its halves differently.
    let golden = (5.0_f64.sqrt() - 1.0) / 2.0;
    for packet in 1..=n_packets {
        let start = (packet as f64 * golden).fract() * (n_values - length) as f64;
        for (at, value) in field[start as usize..][..length].iter_mut().enumerate() {
            let x = at as f64 / length as f64 * std::f64::consts::TAU;
            *value = ((1.0 - x.cos()) / 2.0 * (40.0 * x).sin()) as f32;
        }
    }
    field
}

fn measure<T: Float + Into<f64>>(
    name: &str,
    x: &[T],
    (args, pool): (&PaperSumsArgs, Pool),
    rows: &mut Vec<SumsRow>,
    faults: &mut Vec<String>,
) -> anyhow::Result<()> {
    super::check_lossy(&args.codec, T::DTYPE)?;
    room::check(N_ARRAYS * size_of_val(x) as u128)
        .map_err(|error| usage!("to add {name}: {error}"))?;
    let mut y = x.to_vec();
    y.rotate_left(x.len() / 2);
    let constant = vec![T::from_f64(0.0); x.len()];
    let operands: [(&str, [&[T]; 2]); 5] = [
        ("x + y", [x, &y]),
        ("x + x", [x, x]),
        ("x + c", [x, &constant]),
        ("c + x", [&constant, x]),
        ("c + c", [&constant, &constant]),
    ];
    let range = ValueRange::of(x);
    for &bound in &args.bound {
        for &coding in &args.codec {
            let params = CodecParams::new(quantum::<T>(coding, bound, range)?).on(pool.threads());
            let setup = CodecSetup {
                coding,
                params,
                bound: bound.absolute(range)?,
                pool,
                n_rounds: args.repeat,
            };
            let n_faults = faults.len();
            let code = setup.code(x, faults)?;
            let mut sums = Vec::new();
            for (what, arrays) in operands {
                sums.push((what, setup.add(arrays, faults)?));
            }
            for fault in &mut faults[n_faults..] {
                *fault = format!("{name} at {bound}: {fault}");
            }
            rows.push(SumsRow {
                field: name.to_owned(),
                bound: Bound::to_string(&bound),
                bound_abs: setup.bound,
                codec: coding.to_string(),
                threads: args.threads,
                coding: code,
                sums,
            });
        }
    }
    Ok(())
}

fn gbps(result: &SumResult) -> String {
    format!("{:.2}", result.gbps)
}

fn paths(rows: &[SumsRow]) -> String {
    let sums = rows.iter().flat_map(|row| row.sums.iter().map(move |sum| (row, sum)));
    let mut table = Columns::of(sums.map(|(row, (operands, sums))| (row, operands, sums)))
        .text("field", "", |(row, ..)| &row.field)
        .text("bound", "", |(row, ..)| &row.bound)
        .text("codec", "", |(row, ..)| &row.codec)
        .text("operands", "", |(_, operands, _)| *operands);
    let ways = [
        ("both", "constant, %"),
        ("left", "varies, %"),
        ("right", "varies, %"),
        ("both", "vary, %"),
    ];
    for (at, (name, unit)) in ways.into_iter().enumerate() {
        table = table.maybe(name, unit, |(.., sums)| {
            sums.paths.shares().map(|shares| format!("{:.2}", 100.0 * shares[at]))
        });
    }
    let table = table
        .maybe("homomorphic", "GB/s", |(.., sums)| sums.homomorphic.as_ref().map(gbps))
        .number("by floats", "GB/s", |(.., sums)| gbps(&sums.by_floats))
        .maybe("speed-up", "", |(.., sums)| {
            let speedup = sums.homomorphic.as_ref().map(|sum| sum.gbps / sums.by_floats.gbps);
            speedup.map(|speedup| format!("{speedup:.1}"))
        });
    format!(
        "Pairs of blocks by path, and speed in 1e9 bytes of one operand a second; y is x rotated \
         by half, c is constant\n\n{}",
        table.render()
    )
}

fn quality(rows: &[SumsRow]) -> String {
    let mut sums = Vec::new();
    for row in rows {
        // Sums with a constant say nothing about quality.
        for (operands, Sums { by_floats, homomorphic, .. }) in &row.sums[..2] {
            let ways = [("homomorphic", homomorphic.as_ref()), ("by floats", Some(by_floats))];
            sums.extend(ways.into_iter().filter_map(|(way, sum)| Some((row, operands, way, sum?))));
        }
    }
    let table = Columns::of(sums)
        .text("field", "", |(row, ..)| &row.field)
        .text("bound", "", |(row, ..)| &row.bound)
        .text("codec", "", |(row, ..)| &row.codec)
        .text("operands", "", |(_, operands, ..)| *operands)
        .text("sum", "", |(_, _, way, _)| *way)
        .number("ratio", "", |(.., sum)| format!("{:.2}", sum.ratio))
        .number("max error", "/ bound", |(row, .., sum)| match sum.quality.max_error {
            0.0 => "0".to_owned(),
            error => format!("{:.3}", error / row.bound_abs),
        })
        .maybe("PSNR", "dB", |(.., sum)| sum.quality.psnr_db.map(|db| format!("{db:.2}")))
        .maybe("NRMSE", "", |(.., sum)| sum.quality.nrmse.map(scientific));
    format!("Sums\n\n{}", table.render())
}

fn shares_of_stream(rows: &[SumsRow]) -> String {
    let digits = |x: f64| format!("{x:.2}");
    let share = |row: &SumsRow, gbps| format!("{:.1}", 100.0 * row.coding.share_of_stream(gbps));
    let table = Columns::of(rows)
        .text("field", "", |row| &row.field)
        .text("bound", "", |row| &row.bound)
        .text("codec", "", |row| &row.codec)
        .number("threads", "", |row| row.threads)
        .number("ratio", "", |row| digits(row.coding.ratio))
        .number("encode", "GB/s", |row| digits(row.coding.encode_gbps))
        .number("decode", "GB/s", |row| digits(row.coding.decode_gbps))
        .number("STREAM", "GB/s", |row| digits(row.coding.stream_gbps))
        .number("encode", "% of it", |row| share(row, row.coding.encode_gbps))
        .number("decode", "% of it", |row| share(row, row.coding.decode_gbps));
    format!(
        "Memory traffic, the array and its encoding, beside the faster of STREAM's copy and triad \
         on arrays of the same size\n\n{}",
        table.render()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn four_per_cent_of_the_mostly_constant_field_vary() {
        let field = mostly_constant(N_VALUES);
        let varying = field.iter().filter(|x| **x != 0.0).count() as f64 / N_VALUES as f64;
        assert!((0.035..=0.041).contains(&varying), "{varying}");
        let largest = field.iter().fold(0.0_f32, |most, x| most.max(x.abs()));
        assert!((0.95..=1.0).contains(&largest));
    }
}
