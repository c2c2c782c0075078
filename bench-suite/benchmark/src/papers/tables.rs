//! `foldwire papers tables`: tables of codecs by data set and bound, beside the published columns.
//!
//! A cell is the mean over a set's fields, with their standard deviation. Table VI adds a field to
//! itself: that alone gives the published ratios and errors of sums, which follow from those of
//! single fields (a block's width grows by one bit). Table V adds each field to the one before it
//! in the order of names, within the bound of the wider range; which fields the authors added is
//! not known.

mod specs;

use std::num::NonZero;

use anyhow::{Context, bail};
use foldwire::Bound;
use foldwire::bound::ValueRange;
use foldwire::codec::CodecParams;
use foldwire_arguments::coding::CodecArg;
use foldwire_arguments::papers::PaperTablesArgs;
use foldwire_fields::dims::Dims;
use foldwire_fields::field::FieldValues;
use foldwire_fields::usage::{UsageError, usage};
use foldwire_published::{BOUNDS, figures};
use foldwire_workbench::table::{Columns, scientific};
use foldwire_workbench::threads::Pool;
use foldwire_workbench::{files, input, progress, room, streams};
use serde::Serialize;
use serde_json::json;

use super::operands::{CodecSetup, Coding, Sums};
use super::sets::{self, DataSet};
use crate::codec::quantum;
use specs::{BY_FLOATS, CODECS, FZ_LIGHT, HOMOMORPHIC, Metric, SPECS, SZX, TableSpec};

/// Bound of hZCCL's table V.
const PATHS_AT: f64 = 1e-3;
/// Arrays of a field's size that a measurement needs: operands, results, encodings, STREAM.
const N_ARRAYS: u128 = 14;

/// A measured value of one field, or of two that were added.
struct Sample {
    group: usize,
    system: &'static str,
    metric: Metric,
    bound: f64,
    value: f64,
}

/// Fields of the same set and dimensions.
struct Group {
    set: &'static DataSet,
    dims: Dims,
    n_fields: usize,
}

/// A cell: the mean over fields beside the published one.
#[derive(Debug, Serialize)]
struct Cell {
    paper: &'static str,
    table: &'static str,
    set: &'static str,
    dims: String,
    fields: usize,
    bound: f64,
    system: &'static str,
    metric: &'static str,
    mean: f64,
    /// `None` for a single field.
    std: Option<f64>,
    published: Option<f64>,
    published_std: Option<f64>,
}

/// Runs the experiment.
pub(super) fn run(args: &PaperTablesArgs) -> anyhow::Result<()> {
    let bounds = bounds(args)?;
    let found = sets::find(&args.data);
    if found.is_empty() {
        bail!(usage!(
            "{}: no file is named as those of the papers' data sets (see --help)",
            args.data.display()
        ));
    }
    let n_threads = args
        .threads
        .unwrap_or_else(|| std::thread::available_parallelism().map_or(1, NonZero::get));
    let specs = SPECS.iter().filter(|spec| args.wants(&format!("{}-{}", spec.paper, spec.table)));
    let mut bench = TablesBench {
        specs: specs.collect(),
        bounds,
        n_rounds: args.repeat,
        pool: Pool::new(n_threads)?,
        groups: Vec::new(),
        samples: Vec::new(),
        faults: Vec::new(),
    };
    let n_files = found.iter().map(|(_, files)| files.len()).sum();
    let progress = progress::bar("measuring", n_files);
    for (set, files) in &found {
        let mut before: Option<(Dims, Vec<f32>)> = None;
        for file in files {
            progress
                .set_message(file.file_name().unwrap_or_default().to_string_lossy().into_owned());
            let field = input::read(file, None)?;
            let FieldValues::F32(values) = field.values else { continue };
            room::check(N_ARRAYS * size_of_val(&values[..]) as u128)
                .map_err(|error| usage!("to measure {}: {error}", field.name))?;
            let pair = before.as_ref().filter(|(dims, _)| *dims == field.dims);
            let pair = pair.map(|(_, values)| &values[..]);
            let n_faults = bench.faults.len();
            bench
                .measure(set, &field.dims, &values, pair)
                .with_context(|| file.display().to_string())?;
            for fault in &mut bench.faults[n_faults..] {
                *fault = format!("{}: {fault}", field.name);
            }
            before = Some((field.dims, values));
            progress.inc(1);
        }
    }
    progress.finish_and_clear();
    for Group { set, dims, .. } in
        bench.groups.iter().filter(|group| !group.set.has(group.dims.sizes()))
    {
        streams::remark(format_args!("note: {} of {dims} is not the papers' size", set.name));
    }
    // Neither output may be lost because the other cannot be written.
    let printed = streams::write(&bench.render(n_threads));
    let written = args.out.as_ref().map_or(Ok(()), |file| {
        let text = json!({ "threads": n_threads, "rows": bench.cells() }).to_string();
        files::replace(file, (text + "\n").as_bytes())
            .with_context(|| format!("cannot write {}", file.display()))
    });
    printed?;
    super::report(&bench.faults).and(written)
}

/// Returns the relative bounds that the user asks for.
fn bounds(args: &PaperTablesArgs) -> Result<Vec<f64>, UsageError> {
    if args.bound.is_empty() {
        return Ok(BOUNDS.to_vec());
    }
    let relative = |bound: &Bound| match *bound {
        Bound::Relative(factor) => Ok(factor),
        other => Err(usage!("the papers' bounds are relative, not {other}")),
    };
    args.bound.iter().map(relative).collect()
}

/// Returns the share of blocks of 128 values that SZx stores as their middle.
fn constant_in_szx(values: &[f32], bound: f64) -> f64 {
    let is_constant = |block: &&[f32]| {
        let ends = block.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(least, most), &x| {
            (least.min(x.into()), most.max(x.into()))
        });
        block.iter().all(|x| x.is_finite()) && (ends.1 - ends.0) / 2.0 <= bound
    };
    let blocks = values.chunks(128);
    let n_blocks = blocks.len();
    blocks.filter(is_constant).count() as f64 / n_blocks as f64
}

struct TablesBench {
    specs: Vec<&'static TableSpec>,
    bounds: Vec<f64>,
    n_rounds: usize,
    /// Threads of tables for several threads.
    pool: Pool,
    groups: Vec<Group>,
    samples: Vec<Sample>,
    faults: Vec<String>,
}

impl TablesBench {
    /// Returns whether a table has one of these metrics of this system.
    fn needs(&self, system: &str, metrics: &[Metric]) -> bool {
        self.specs.iter().any(|spec| {
            let mut columns = spec.columns.iter();
            spec.systems.contains(&system) && columns.any(|(metric, ..)| metrics.contains(metric))
        })
    }

    /// Measures everything that the tables need of a field. `pair` is the field to add it to.
    fn measure(
        &mut self,
        set: &'static DataSet,
        dims: &Dims,
        values: &[f32],
        pair: Option<&[f32]>,
    ) -> anyhow::Result<()> {
        let is_same = |group: &Group| group.set == set && group.dims == *dims;
        let group = self.groups.iter().position(is_same).unwrap_or_else(|| {
            self.groups.push(Group { set, dims: dims.clone(), n_fields: 0 });
            self.groups.len() - 1
        });
        self.groups[group].n_fields += 1;
        let range = ValueRange::of(values);
        for relative in self.bounds.clone() {
            let mut at = FieldBound { bench: self, group, relative };
            let bound = Bound::Relative(relative);
            for (system, codec) in CODECS {
                let coding: CodecArg = codec.parse().map_err(UsageError::new)?;
                let absolute = bound.absolute(range)?;
                let params = CodecParams::new(quantum::<f32>(coding, bound, range)?);
                at.code(system, coding, params, absolute, values)?;
                if system == FZ_LIGHT {
                    at.add(coding, params, absolute, values)?;
                    if let Some(pair) = pair.filter(|_| relative == PATHS_AT) {
                        at.add_pair(coding, [pair, values])?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Returns all cells that have a value.
    fn cells(&self) -> Vec<Cell> {
        let mut cells = Vec::new();
        for spec in &self.specs {
            for (group, of) in self.groups.iter().enumerate() {
                for &bound in &self.bounds {
                    for &system in spec.systems {
                        let columns = spec.columns.iter();
                        cells.extend(columns.filter_map(|&(metric, name, _)| {
                            self.cell(spec, (group, of), bound, system, (metric, name))
                        }));
                    }
                }
            }
        }
        cells
    }

    fn cell(
        &self,
        spec: &TableSpec,
        (group, of): (usize, &Group),
        bound: f64,
        system: &'static str,
        (metric, name): (Metric, &'static str),
    ) -> Option<Cell> {
        let is_it = |sample: &&Sample| {
            (sample.group, sample.system, sample.metric) == (group, system, metric)
                && sample.bound == bound
        };
        let values: Vec<f64> =
            self.samples.iter().filter(is_it).map(|sample| sample.value).collect();
        let (mean, std) = mean_and_std(&values)?;
        let published = |name: &str| {
            let is_it = |row: &&foldwire_published::Figure| {
                row.is_of(spec.paper, spec.table)
                    && (row.system, row.set, row.metric) == (system, of.set.name, name)
            };
            figures().iter().find(is_it)?.at(bound)
        };
        Some(Cell {
            paper: spec.paper,
            table: spec.table,
            set: of.set.name,
            dims: of.dims.to_string(),
            fields: of.n_fields,
            bound,
            system,
            metric: name,
            mean,
            std,
            published: published(name),
            published_std: published(&format!("{name} STD")),
        })
    }

    /// Renders the tables.
    fn render(&self, n_threads: usize) -> String {
        let mut text = format!(
            "Mean over fields ± their standard deviation; several threads are {n_threads} here, 36 \
             in the papers, whose machine has two Broadwells of 18 cores\n"
        );
        let cells = self.cells();
        for spec in &self.specs {
            text += &format!("\n{}, table {}: {}\n\n", spec.paper, spec.table, spec.title);
            let of_table = |cell: &&Cell| (cell.paper, cell.table) == (spec.paper, spec.table);
            let cells: Vec<&Cell> = cells.iter().filter(of_table).collect();
            let is_row = |a: &&Cell, b: &&Cell| {
                (a.set, &a.dims, a.bound, a.system) == (b.set, &b.dims, b.bound, b.system)
            };
            let mut table = Columns::of(cells.chunk_by(is_row))
                .text("set", "", |row| row[0].set)
                .text("", "", |row| &row[0].dims)
                .number("fields", "", |row| row[0].fields)
                .text("bound", "", |row| Bound::Relative(row[0].bound))
                .text("system", "", |row| row[0].system);
            for &(_, name, unit) in spec.columns {
                let cell = |row: &[&Cell], text: &dyn Fn(&Cell) -> Option<String>| {
                    let cell = row.iter().find(|cell| cell.metric == name);
                    cell.and_then(|cell| text(cell)).unwrap_or_else(|| "–".to_owned())
                };
                let published = |cell: &Cell| Some(with_std(cell.published?, cell.published_std));
                table = table
                    .number(name, unit, |row| {
                        cell(row, &|cell| Some(with_std(cell.mean, cell.std)))
                    })
                    .number("published", unit, |row| cell(row, &published));
            }
            text += &match cells[..] {
                // Only table V can lack rows.
                [] => "nothing: it needs two fields of a set, and the bound rel:1e-3\n".to_owned(),
                _ => table.render(),
            };
        }
        text
    }
}

/// Measurement of a field at a bound.
struct FieldBound<'a> {
    bench: &'a mut TablesBench,
    group: usize,
    relative: f64,
}

impl FieldBound<'_> {
    fn push(&mut self, system: &'static str, metric: Metric, value: f64) {
        let (group, bound) = (self.group, self.relative);
        if value.is_finite() {
            self.bench.samples.push(Sample { group, system, metric, bound, value });
        }
    }

    fn setup(
        &self,
        coding: CodecArg,
        params: CodecParams,
        bound: f64,
        is_alone: bool,
    ) -> CodecSetup {
        let pool = if is_alone { Pool::ONE } else { self.bench.pool };
        CodecSetup {
            coding,
            params: params.on(pool.threads()),
            bound,
            pool,
            n_rounds: self.bench.n_rounds,
        }
    }

    fn code(
        &mut self,
        system: &'static str,
        coding: CodecArg,
        params: CodecParams,
        bound: f64,
        values: &[f32],
    ) -> anyhow::Result<()> {
        let alone = [Metric::EncodeAlone, Metric::DecodeAlone];
        let together = [Metric::Encode, Metric::Decode, Metric::EncodeShare, Metric::DecodeShare];
        let untimed = [Metric::Ratio, Metric::Nrmse, Metric::Constant];
        let mut one: Option<Coding> = None;
        if self.bench.needs(system, &alone) {
            let setup = self.setup(coding, params, bound, true);
            let measured = setup.code(values, &mut self.bench.faults)?;
            self.push(system, Metric::EncodeAlone, measured.encode_gbps);
            self.push(system, Metric::DecodeAlone, measured.decode_gbps);
            one = Some(measured);
        }
        if self.bench.needs(system, &together) {
            let setup = self.setup(coding, params, bound, false);
            let measured = setup.code(values, &mut self.bench.faults)?;
            let (encode, decode) = (measured.encode_gbps, measured.decode_gbps);
            self.push(system, Metric::Encode, encode);
            self.push(system, Metric::Decode, decode);
            self.push(system, Metric::EncodeShare, 100.0 * measured.share_of_stream(encode));
            self.push(system, Metric::DecodeShare, 100.0 * measured.share_of_stream(decode));
            one = Some(measured);
        }
        if self.bench.needs(system, &untimed) {
            let setup = CodecSetup { n_rounds: 0, ..self.setup(coding, params, bound, false) };
            let measured = match one {
                Some(measured) => measured,
                None => setup.code(values, &mut self.bench.faults)?,
            };
            self.push(system, Metric::Ratio, measured.ratio);
            self.push(system, Metric::Nrmse, measured.quality.nrmse.unwrap_or(f64::NAN));
            if system == SZX {
                self.push(system, Metric::Constant, 100.0 * constant_in_szx(values, bound));
            } else if self.bench.needs(system, &[Metric::Constant]) {
                // Adding an encoding to itself counts its constant blocks.
                let sums = setup.add([values; 2], &mut self.bench.faults)?;
                let [constant, ..] = sums.paths.shares().unwrap_or([f64::NAN; 4]);
                self.push(system, Metric::Constant, 100.0 * constant);
            }
        }
        Ok(())
    }

    /// Adds the field to itself.
    fn add(
        &mut self,
        coding: CodecArg,
        params: CodecParams,
        bound: f64,
        values: &[f32],
    ) -> anyhow::Result<()> {
        if !self.bench.needs(HOMOMORPHIC, &[Metric::Add]) {
            return Ok(());
        }
        let setup = self.setup(coding, params, bound, false);
        let Sums { by_floats, homomorphic, .. } = setup.add([values; 2], &mut self.bench.faults)?;
        let both = [(BY_FLOATS, Some(by_floats)), (HOMOMORPHIC, homomorphic)];
        for (system, sum) in both.into_iter().filter_map(|(name, sum)| Some((name, sum?))) {
            self.push(system, Metric::Add, sum.gbps);
            self.push(system, Metric::AddRatio, sum.ratio);
            self.push(system, Metric::AddNrmse, sum.quality.nrmse.unwrap_or(f64::NAN));
        }
        Ok(())
    }

    /// Adds two fields within the bound of the wider range.
    fn add_pair(&mut self, coding: CodecArg, fields: [&[f32]; 2]) -> anyhow::Result<()> {
        let ranges = fields.map(|values| ValueRange::of(values).map_or(0.0, ValueRange::range));
        let bound = self.relative * ranges[0].max(ranges[1]);
        if !self.bench.needs(HOMOMORPHIC, &[Metric::PairAdd]) || bound <= 0.0 {
            return Ok(());
        }
        let params = CodecParams::new(quantum::<f32>(coding, Bound::Absolute(bound), None)?);
        let setup = self.setup(coding, params, bound, false);
        let sums = setup.add(fields, &mut self.bench.faults)?;
        let add = sums.homomorphic.map_or(f64::NAN, |sum| sum.gbps);
        self.push(HOMOMORPHIC, Metric::PairAdd, add);
        self.push(HOMOMORPHIC, Metric::PairSpeedup, add / sums.by_floats.gbps);
        let paths = [Metric::BothConstant, Metric::Left, Metric::Right, Metric::NeitherConstant];
        for (metric, share) in paths.into_iter().zip(sums.paths.shares().unwrap_or([f64::NAN; 4])) {
            self.push(HOMOMORPHIC, metric, 100.0 * share);
        }
        Ok(())
    }
}

/// Returns mean and sample standard deviation; `None` for no values, and no deviation of one value.
fn mean_and_std(values: &[f64]) -> Option<(f64, Option<f64>)> {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let squares: f64 = values.iter().map(|x| (x - mean) * (x - mean)).sum();
    match values.len() {
        0 => None,
        1 => Some((mean, None)),
        _ => Some((mean, Some((squares / (n - 1.0)).sqrt()))),
    }
}

fn with_std(mean: f64, std: Option<f64>) -> String {
    let text = |x: f64| if x != 0.0 && x.abs() < 0.01 { scientific(x) } else { format!("{x:.2}") };
    std.map_or_else(|| text(mean), |std| format!("{} ± {}", text(mean), text(std)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_is_mean_and_deviation() {
        assert_eq!(mean_and_std(&[1.0, 3.0]), Some((2.0, Some(2.0_f64.sqrt()))));
        assert_eq!((mean_and_std(&[7.0]), mean_and_std(&[])), (Some((7.0, None)), None));
        assert_eq!(with_std(4.62e-3, Some(3e-3)), "4.62e-3 ± 3.00e-3");
        assert_eq!((with_std(61.514, None), with_std(0.0, None)), ("61.51".into(), "0.00".into()));
    }

    #[test]
    fn blocks_within_the_bound_are_constant_for_szx() {
        let values: Vec<f32> =
            (0..512_u16).map(|at| if at < 384 { 1.0 } else { at.into() }).collect();
        assert_eq!(constant_in_szx(&values, 0.5), 0.75);
        assert_eq!(constant_in_szx(&values, 64.0), 1.0);
    }
}
