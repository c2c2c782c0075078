//! The operands of `foldwire stack`: one volume per rank, all of one type and shape.
//!
//! With several files, each is one operand. A single file is cut into one piece per rank along its
//! slowest dimension, as applications divide a field. If the number of ranks does not divide that
//! dimension, the last slices are left out and a note says so, because users cannot choose the size
//! of their file. A file without dimensions counts as one-dimensional.

use std::path::{Path, PathBuf};

use foldwire::bound::ValueRange;
use foldwire::{Float, SuspectedFill};
use foldwire_fields::dims::Dims;
use foldwire_fields::field::{Field, FieldValues, SMALLER};
use foldwire_fields::usage::{UsageError, usage};
use foldwire_fields::with_values;

use crate::{room, streams, threads};

/// Default number of ranks, if neither `--ranks` nor the number of files determines it.
pub const DEFAULT_RANKS: usize = 8;

/// Returns the arrays of the same type as `first`, which is one of them.
pub fn typed<'a, T: 'static>(_first: &[T], arrays: &'a [FieldValues]) -> Vec<&'a [T]> {
    arrays.iter().filter_map(FieldValues::of).collect()
}

/// Sum of arrays of equal length, value by value, in f64.
///
/// Compensated summation (Neumaier 1974) keeps each sum within about an ulp of the exact one, even
/// for f64 input. Infinities and NaN follow IEEE 754 addition.
pub fn exact_sum<T: Copy + Sync + Into<f64>>(volumes: &[impl AsRef<[T]> + Sync]) -> Vec<f64> {
    let n_values = volumes.first().map_or(0, |volume| volume.as_ref().len());
    let sum_at = |at: usize| {
        let (mut sum, mut lost) = (0.0_f64, 0.0_f64);
        for volume in volumes {
            let value: f64 = volume.as_ref()[at].into();
            let next = sum + value;
            lost +=
                if sum.abs() >= value.abs() { (sum - next) + value } else { (value - next) + sum };
            sum = next;
        }
        if sum.is_finite() { sum + lost } else { sum }
    };
    let mut sums = vec![0.0; n_values];
    threads::fill(&mut sums, &|first, piece| {
        piece.iter_mut().zip(first..).for_each(|(sum, at)| *sum = sum_at(at));
    });
    sums
}

/// The operands and their origin.
#[derive(Debug, Clone, PartialEq)]
pub struct Inputs {
    /// One volume per rank, all of the same type and length.
    pub volumes: Vec<FieldValues>,
    /// Dimensions of each volume.
    pub dims: Dims,
    /// One line about the origin of the data.
    pub source: String,
    /// Notes for the user about the use of the files.
    pub notes: Vec<String>,
}

/// Reads the user's files. `ranks`, `dims` and `fill` come from the command line.
///
/// # Errors
///
/// A [`UsageError`] if a file cannot be read as an array (see [`Field::read`]), if files differ in
/// type or size, if they do not match the number of ranks, or if a file has too few slices for the
/// ranks.
///
/// # Panics
///
/// If `files` is empty.
pub fn load(
    files: &[PathBuf],
    dims: Option<&Dims>,
    ranks: Option<usize>,
    fill: Option<f64>,
) -> Result<Inputs, UsageError> {
    match files {
        [] => panic!("the caller simulates when there are no files"),
        [file] => {
            let mut field = read(file, dims)?;
            forget_missing(&mut field, fill);
            cut(field, ranks.unwrap_or(DEFAULT_RANKS))
        }
        files => {
            if let Some(ranks) = ranks.filter(|&ranks| ranks != files.len()) {
                return Err(usage!(
                    "--ranks {ranks} does not match {} input files; give one file per rank, or one \
                    file that is cut",
                    files.len()
                ));
            }
            let mut fields =
                files.iter().map(|file| read(file, dims)).collect::<Result<Vec<_>, _>>()?;
            fields.iter_mut().for_each(|field| forget_missing(field, fill));
            one_per_rank(fields)
        }
    }
}

/// Reads the file at `path` if it fits in the free memory. See [`Field::read`].
///
/// # Errors
///
/// A [`UsageError`].
pub fn read(path: &Path, dims: Option<&Dims>) -> Result<Field, UsageError> {
    Field::read_within(path, dims, &room::check)
}

/// Relative bound for which [`warn_of_fill`] looks at a field.
const USUAL_BOUND: f64 = 1e-3;

/// Puts NaN in place of the field's fill value. Without one, warns if a value seems to be one.
pub fn forget_missing(field: &mut Field, fill: Option<f64>) {
    let Some(fill) = fill else { return warn_of_fill(field) };
    with_values!(&mut field.values, values => forget(values, fill));
}

/// Puts NaN in place of a value.
pub(crate) fn forget<T: Float>(values: &mut [T], value: f64) {
    let [value, nan] = [value, f64::NAN].map(T::from_f64);
    values.iter_mut().filter(|x| **x == value).for_each(|x| *x = nan);
}

/// Warns if a value of the field seems to be a fill value.
pub fn warn_of_fill(field: &Field) {
    let suspected_fill = with_values!(&field.values, values => {
        let range = ValueRange::of(values);
        range.and_then(|range| range.suspected_fill(values, USUAL_BOUND * range.range()))
    });
    if let Some(fill) = suspected_fill {
        streams::remark(format_args!("warning: {}: {}", field.name, SuspectedFill(fill)));
    }
}

fn one_per_rank(fields: Vec<Field>) -> Result<Inputs, UsageError> {
    let first = &fields[0];
    let dims = first.dims.clone();
    for field in &fields[1..] {
        if field.values.dtype() != first.values.dtype() {
            return Err(usage!(
                "{} holds {}, but {} holds {}; convert one, since a collective has one type",
                first.name,
                first.values.dtype(),
                field.name,
                field.values.dtype()
            ));
        }
        if field.dims.n_values() != dims.n_values() {
            return Err(usage!(
                "{} holds {} values, but {} holds {}; every rank needs the same number of values",
                first.name,
                dims.n_values(),
                field.name,
                field.dims.n_values()
            ));
        }
    }
    let source = format!("{} files, one per rank, from {} on", fields.len(), first.name);
    let volumes = fields.into_iter().map(|field| field.values).collect();
    Ok(Inputs { volumes, dims, source, notes: Vec::new() })
}

fn cut(field: Field, ranks: usize) -> Result<Inputs, UsageError> {
    let slowest = field.dims.sizes()[0];
    let per_rank = slowest / ranks;
    if per_rank == 0 {
        return Err(usage!(
            "{} ({}) has {slowest} slices along its slowest dimension, too few for {ranks} ranks; \
             use --ranks {slowest} or fewer, or regroup the values with --dims, or give one file \
             per rank",
            field.name,
            field.dims
        ));
    }
    room::check(field.values.n_bytes() as u128)
        .map_err(|error| usage!("to cut {}: {error}; {SMALLER}", field.name))?;
    let dims = field.dims.with_slowest(per_rank);
    let n_values = dims.n_values();
    let volumes = match &field.values {
        FieldValues::F32(values) => pieces(values, n_values, ranks, FieldValues::F32),
        FieldValues::F64(values) => pieces(values, n_values, ranks, FieldValues::F64),
        FieldValues::F16(values) => pieces(values, n_values, ranks, FieldValues::F16),
        FieldValues::Bf16(values) => pieces(values, n_values, ranks, FieldValues::Bf16),
    };
    let left = slowest % ranks;
    let notes = if left == 0 {
        Vec::new()
    } else {
        vec![format!(
            "{ranks} ranks do not divide {slowest} of {}: the last {left} along the slowest \
            dimension ({} values) are left out",
            field.name,
            field.dims.with_slowest(left).n_values()
        )]
    };
    let whole = format!("{} ({})", field.name, field.dims);
    let source = if ranks == 1 { whole } else { format!("{whole}, cut into {ranks} pieces") };
    Ok(Inputs { volumes, dims, source, notes })
}

fn pieces<T: Clone>(
    values: &[T],
    n_values: usize,
    ranks: usize,
    of: fn(Vec<T>) -> FieldValues,
) -> Vec<FieldValues> {
    values.chunks_exact(n_values).take(ranks).map(|piece| of(piece.to_vec())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(name: &str, dims: &str, start: f32) -> Field {
        let dims: Dims = dims.parse().unwrap();
        let values = (0..dims.n_values()).map(|at| start + at as f32).collect();
        Field { name: name.into(), dims, values: FieldValues::F32(values) }
    }

    #[test]
    fn one_file_is_cut_along_its_slowest_dimension() {
        let inputs = cut(field("a", "5x2x2", 0.0), 2).unwrap();
        assert_eq!(inputs.dims.sizes(), [2, 2, 2]);
        let volumes = typed(&[0.0_f32], &inputs.volumes);
        assert_eq!((volumes[0][0], volumes[1][0], volumes[1][7]), (0.0, 8.0, 15.0));
        assert!(inputs.notes[0].contains("last 1") && inputs.notes[0].contains("4 values"));
        assert!(cut(field("a", "4x2", 0.0), 4).unwrap().notes.is_empty());
        let message = cut(field("a", "4x2", 0.0), 5).unwrap_err().to_string();
        assert!(message.contains("--ranks 4"), "{message}");
    }

    #[test]
    fn several_files_are_one_per_rank_and_alike() {
        let inputs = one_per_rank(vec![field("a", "2x3", 0.0), field("b", "2x3", 10.0)]).unwrap();
        assert_eq!((inputs.volumes.len(), inputs.volumes[0].n_bytes()), (2, 24));
        assert_eq!(exact_sum(&typed(&[0.0_f32], &inputs.volumes))[..2], [10.0, 12.0]);
        let sizes = one_per_rank(vec![field("a", "2x3", 0.0), field("b", "2x4", 0.0)]).unwrap_err();
        assert!(sizes.to_string().contains("same number of values"));
        let mut double = field("b", "2x3", 0.0);
        double.values = FieldValues::F64(vec![0.0; 6]);
        let types = one_per_rank(vec![field("a", "2x3", 0.0), double]).unwrap_err();
        assert!(types.to_string().contains("one type"));
    }

    #[test]
    fn the_exact_sum_loses_nothing_and_keeps_what_is_not_finite() {
        let volumes = [[1e16, f64::INFINITY, 1.0], [1.0, 1.0, f64::NAN], [-1e16, 0.0, 0.0]];
        let sum = exact_sum(&volumes);
        assert_eq!(sum[..2], [1.0, f64::INFINITY]);
        assert!(sum[2].is_nan());
    }
}
