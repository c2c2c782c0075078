//! Real fields: every value is within the bound, NaNs keep their bits, and sizes are smaller than
//! the published codec's.
//!
//! The fields are not part of the repository. Without `../shared/data`, the tests report that they
//! skip. Sizes do not depend on the machine, so stored sizes can be compared.

use foldwire::bound::ValueRange;
use foldwire::codec::FzLight;
use foldwire::kernel::Level;
use foldwire::{Bound, Float, Op, Quantum};
use foldwire_tests::{coding, data, skip};
use std::fs;
use std::path::{Path, PathBuf};

const RELATIVE: [f64; 3] = [1e-2, 1e-3, 1e-4];

/// Returns a folder next to the project, if it exists.
fn shared(folder: &str) -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared").join(folder);
    if !path.is_dir() {
        skip(&format!("real fields: there is no {}", path.display()));
        return None;
    }
    Some(path)
}

/// Returns name and values of every field of this type; none if the folder does not exist.
pub(crate) fn fields<T: Float>() -> Vec<(String, Vec<T>)> {
    let Some(folder) = shared("data") else { return Vec::new() };
    let extension = if T::BYTES == 4 { ".f32" } else { ".f64" };
    let mut fields: Vec<_> = fs::read_dir(folder)
        .expect("readable")
        .map(|entry| entry.expect("readable").path())
        .filter_map(|path| {
            let name = path.file_name()?.to_str()?.to_owned();
            name.ends_with(extension).then(|| {
                let bytes = fs::read(path).expect("readable");
                let values = bytes.chunks_exact(T::BYTES).map(bytemuck::pod_read_unaligned);
                (name, values.collect())
            })
        })
        .collect();
    fields.sort_by(|a, b| a.0.cmp(&b.0));
    assert!(!fields.is_empty(), "no field ends in {extension}");
    fields
}

fn absolute<T: Float>(values: &[T], relative: f64) -> f64 {
    Bound::Relative(relative).absolute(ValueRange::of(values)).expect("a good bound")
}

fn bounds_hold<T: Float>() {
    for (name, values) in fields::<T>() {
        for relative in RELATIVE {
            let bound = absolute(&values, relative);
            let codec = FzLight::new(Quantum::new::<T>(bound).expect("a bound"), 2);
            let frame = coding::encode(&codec, &values);
            for level in Level::available() {
                let codec =
                    FzLight::with_level(Quantum::new::<T>(bound).expect("a bound"), 2, level);
                let same = coding::encode(&codec, &values) == frame;
                assert!(same, "{name} at {relative:e}: {level} gives other bytes");
                let decoded = coding::decode(&codec, &frame, values.len());
                for (i, (&x, &y)) in values.iter().zip(&decoded).enumerate() {
                    let close = (x.to_f64() - y.to_f64()).abs() <= bound;
                    assert!(
                        close || data::bytes(&[x]) == data::bytes(&[y]),
                        "{name} at {relative:e}: value {i}, {x:?}, became {y:?}"
                    );
                }
            }
        }
    }
}

#[test]
fn no_f32_value_is_over_the_bound_and_all_levels_give_the_same_bytes() {
    bounds_hold::<f32>();
}

#[test]
fn no_f64_value_is_over_the_bound_and_all_levels_give_the_same_bytes() {
    bounds_hold::<f64>();
}

/// Values that really are fill values are listed with their field.
#[test]
fn no_value_of_a_field_is_mistaken_for_a_fill_value() {
    fn check<T: Float>() {
        for (name, values) in fields::<T>() {
            let Some(range) = ValueRange::of(&values) else { continue };
            for relative in [1e-1, 1e-2, 1e-3, 1e-4, 1e-5] {
                let found = range.suspected_fill(&values, relative * range.range());
                assert_eq!(found, None, "{name} at {relative:e}");
            }
        }
    }
    check::<f32>();
    check::<f64>();
}

#[test]
fn the_nans_of_penobscot_are_bit_exact() {
    let fields = fields::<f64>();
    if fields.is_empty() {
        return;
    }
    let penobscot = fields.into_iter().find(|(name, _)| name.starts_with("penobscot"));
    let (_, values) = penobscot.expect("it is one of the fields");
    assert_eq!(values.iter().filter(|x| x.is_nan()).count(), 39_509);
    for relative in RELATIVE {
        let codec =
            FzLight::new(Quantum::new::<f64>(absolute(&values, relative)).expect("a bound"), 2);
        let decoded = coding::decode(&codec, &coding::encode(&codec, &values), values.len());
        for (x, y) in values.iter().zip(&decoded) {
            assert!(x.is_nan() == y.is_nan() && (!x.is_nan() || x.to_bits() == y.to_bits()));
        }
    }
}

#[test]
fn the_sum_of_two_fields_is_within_two_bounds_folded_or_combined() {
    let fields = fields::<f32>();
    for ((name, a), (other, b)) in fields.iter().zip(fields.iter().skip(1)) {
        let n = a.len().min(b.len());
        let (a, b) = (&a[..n], &b[..n]);
        for relative in RELATIVE {
            let bound = absolute(a, relative).max(absolute(b, relative));
            let codec = FzLight::new(Quantum::new::<f32>(bound).expect("a bound"), 2);
            let frames = [coding::encode(&codec, a), coding::encode(&codec, b)];
            let combined = coding::combine(&codec, &Op::Sum, [&frames[0], &frames[1]], n);
            let folded = coding::fold(&codec, &Op::Sum, &frames[0], b);
            for frame in [combined, folded] {
                let sum = coding::decode(&codec, &frame.expect("two operands"), n);
                for ((&a, &b), &sum) in a.iter().zip(b).zip(&sum) {
                    let (a, b) = (f64::from(a), f64::from(b));
                    let rounding = 4.0 * f32::UNIT_ROUNDOFF * (a.abs() + b.abs());
                    let error = (f64::from(sum) - (a + b)).abs();
                    assert!(
                        error <= 2.0 * bound + rounding,
                        "{name} + {other} at {relative:e}: {a} + {b} became {sum}"
                    );
                }
            }
        }
    }
}

/// Returns the published codec's sizes by field and relative bound; none if the folder does not
/// exist.
fn published(peer: &str) -> Vec<(String, f64, f64)> {
    let Some(folder) = shared("reference") else { return Vec::new() };
    let table = fs::read_to_string(folder.join("peers.csv")).expect("readable");
    let rows = table.lines().skip(1).map(|line| line.split(',').collect::<Vec<_>>());
    let rows = rows.filter(|row| row[3] == peer).map(|row| {
        let number = |i: usize| row[i].parse().expect("a number");
        (row[0].to_owned(), number(1), number(4))
    });
    let rows: Vec<_> = rows.collect();
    assert!(!rows.is_empty(), "no line is about {peer}");
    rows
}

#[test]
fn ratios_on_f32_fields_are_well_above_the_published_ones() {
    let (fields, published) = (fields::<f32>(), published("SZp-b32"));
    if fields.is_empty() || published.is_empty() {
        return;
    }
    let mut logarithms = Vec::new();
    for (name, values) in &fields {
        for relative in RELATIVE {
            let row = published
                .iter()
                .find(|(field, bound, _)| field == name && (bound / relative - 1.0).abs() < 1e-6);
            let (_, _, theirs) = row.expect("every field and bound has been measured");
            let codec =
                FzLight::new(Quantum::new::<f32>(absolute(values, relative)).expect("a bound"), 1);
            let ours = coding::encode(&codec, values).len() as f64;
            println!("{name} at {relative:e}: {:.3}", theirs / ours);
            assert!(theirs / ours >= 1.08, "{name} at {relative:e}: {ours} bytes, {theirs} theirs");
            logarithms.push((theirs / ours).ln());
        }
    }
    let mean = (logarithms.iter().sum::<f64>() / logarithms.len() as f64).exp();
    println!("geometric mean: {mean:.4}");
    assert!(mean >= 1.16, "a geometric mean of {mean:.4}");
}

/// The slowest tests. They seldom fail unless a faster test fails too.
mod long {
    use super::*;
    use foldwire::Plan;
    use foldwire::codec::{CodecExt, CodecId, CodecParams, Loss};
    use foldwire::compress::{Layout, compress_with};

    /// Returns the shape in a field's name, such as `echam_t_17x96x192.f32`.
    fn shape_in(name: &str, n_values: usize) -> Vec<usize> {
        let (stem, _) = name.rsplit_once('.').expect("an extension");
        let (_, sizes) = stem.rsplit_once('_').expect("a shape");
        let shape: Vec<usize> =
            sizes.split('x').map(|size| size.parse().expect("a size")).collect();
        assert_eq!(shape.iter().product::<usize>(), n_values, "{name}");
        shape
    }

    /// The seam that rolling puts inside a field, and chunks that begin elsewhere, cost some bytes.
    /// They are more than 3 % of one field, which has only 34 chunks and few bytes.
    fn rolled<T: Float>() {
        for (name, values) in fields::<T>() {
            let n = values.len();
            for relative in [1e-2, 1e-3, 1e-4, 1e-5] {
                let quantum = Quantum::new::<T>(absolute(&values, relative)).expect("a bound");
                let params = CodecParams::new(quantum).with_shape_of(&values);
                let is_short = name.starts_with("wrf_W") && relative == 1e-2;
                let most = if is_short { 0.06 } else { 0.03 };
                for id in [CodecId::Dense, CodecId::FzNd] {
                    let codec = id.instance::<T>(&params);
                    let codec = codec.as_dyn();
                    let mut bytes = vec![0; codec.max_encoded_len(n).expect("it fits")];
                    let mut n_bytes = |by: usize| {
                        let mut rolled = values.clone();
                        rolled.rotate_left(by);
                        codec.encode(&rolled, &mut bytes).expect("space").n_bytes as f64
                    };
                    let first = n_bytes(0);
                    for by in [n / 3, n / 2 + 17, n - n / 5, n - 5000] {
                        let change = n_bytes(by) / first;
                        let of = format!("{name} at {relative:e}, {}, rolled by {by}", id.name());
                        assert!((change - 1.0).abs() < most, "{of}: {change:.3} of the bytes");
                    }
                }
            }
        }
    }

    #[test]
    fn rolling_a_field_changes_sizes_of_dense_and_fz_nd_by_three_per_cent_at_most() {
        rolled::<f32>();
        rolled::<f64>();
    }

    /// Codecs that keep a bound, and the exact ones, on whole fields with their shapes.
    fn choices<T: Float>() {
        let codecs = CodecId::OF_ARRAYS.iter().copied().filter(|codec| {
            codec.is_for(T::DTYPE) && matches!(codec.loss(), Loss::Bound | Loss::None)
        });
        let codecs: Vec<CodecId> = codecs.collect();
        for (name, values) in fields::<T>() {
            let layout = Layout::new(&shape_in(&name, values.len()));
            for relative in [1e-2, 1e-3, 1e-4, 1e-5] {
                let auto = Plan::auto(Bound::Relative(relative));
                let n_bytes =
                    |plan: &Plan| compress_with(&values, &layout, plan).expect("a plan").len();
                let chosen = n_bytes(&auto) as f64;
                for &codec in &codecs {
                    let plan = match codec.loss() {
                        Loss::Bound => Plan::foldwire(Bound::Relative(relative)).with_codec(codec),
                        _ => Plan::lossless().with_codec(codec),
                    };
                    let excess = chosen / n_bytes(&plan) as f64;
                    let of = format!("{name} at {relative:e}, auto / {}", codec.name());
                    assert!(excess <= 1.03, "{of}: {excess:.4} of the bytes");
                    if excess > 1.0 {
                        println!("{of}: {excess:.4} of the bytes");
                    }
                }
            }
        }
    }

    #[test]
    fn the_automatic_choice_of_compress_is_within_three_per_cent_of_every_codec() {
        choices::<f32>();
        choices::<f64>();
    }
}
