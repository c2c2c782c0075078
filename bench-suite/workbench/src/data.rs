//! Values that ranks send. They are a function of rank and index, so every rank can compute the
//! exact result.
//!
//! All ranks share one base array, which is read from a file or generated. The data of rank r of n
//! begins at r/n of the array, and continues at its start after the end.

use std::path::Path;
use std::sync::Arc;

use foldwire::{DType, Float};
use foldwire_fields::field::{Field, SMALLER};
use foldwire_fields::usage::{UsageError, usage};
use foldwire_fields::with_values;

use crate::input;
use crate::room;

/// Rows and columns of the built-in field.
pub const SIDE: usize = 1024;

/// The base array, and the number of ranks that begin at different offsets in it.
#[derive(Debug, Clone)]
pub struct Data<T> {
    base: Arc<[T]>,
    magnitude: f64,
    size: usize,
    about: String,
    /// Shape of the base array, slowest dimension first.
    shape: Vec<usize>,
    /// Value that stands for missing data, if there is one.
    fill: Option<f64>,
}

impl<T: Float> Data<T> {
    /// Data of `size` ranks from a base array. `about` describes it for people.
    ///
    /// # Panics
    /// If the base array is empty.
    pub fn new(base: Vec<T>, size: usize, about: String) -> Self {
        assert!(!base.is_empty(), "there is a value to send");
        let magnitude = magnitude(base.iter());
        let shape = vec![base.len()];
        Self { base: base.into(), magnitude, size, about, shape, fill: None }
    }

    /// The same data with a value that stands for missing data.
    pub fn with_fill(self, fill: Option<f64>) -> Self {
        let Some(value) = fill.map(T::from_f64) else { return Self { fill, ..self } };
        let magnitude = magnitude(self.base.iter().filter(|&&x| x != value));
        Self { fill, magnitude, ..self }
    }

    /// The same data with this shape of the base array.
    fn of_shape(self, shape: &[usize]) -> Self {
        Self { shape: shape.to_vec(), ..self }
    }

    /// Shape of the base array, slowest dimension first.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The same base array for another number of ranks.
    pub fn between(&self, size: usize) -> Self {
        Self { size, ..self.clone() }
    }

    /// The base array.
    pub fn base(&self) -> &[T] {
        &self.base
    }

    fn start(&self, rank: usize) -> usize {
        rank * self.base.len() / self.size
    }

    /// Writes the values of `rank` from index `first` on into `out`.
    pub fn fill(&self, rank: usize, first: usize, mut out: &mut [T]) {
        let mut at = (self.start(rank) + first) % self.base.len();
        while !out.is_empty() {
            let n = out.len().min(self.base.len() - at);
            let (now, rest) = out.split_at_mut(n);
            now.copy_from_slice(&self.base[at..at + n]);
            (out, at) = (rest, 0);
        }
    }

    /// Does the same as [`fill`](Self::fill), with NaN in place of missing values.
    pub fn fill_known(&self, rank: usize, first: usize, out: &mut [T]) {
        self.fill(rank, first, out);
        self.forget_missing(out);
    }

    /// Puts NaN in place of missing values.
    pub fn forget_missing(&self, values: &mut [T]) {
        if let Some(fill) = self.fill {
            input::forget(values, fill);
        }
    }

    /// Largest magnitude of a finite value that is not missing.
    pub fn magnitude(&self) -> f64 {
        self.magnitude
    }

    /// Description of the values for people.
    pub fn about(&self) -> &str {
        &self.about
    }
}

/// Returns the largest magnitude of a finite value; 0 if there is none.
fn magnitude<'v, T: Float>(values: impl Iterator<Item = &'v T>) -> f64 {
    values.map(|x| x.to_f64().abs()).filter(|x| x.is_finite()).fold(0.0, f64::max)
}

/// The user's field, before its conversion to an element type.
pub enum FieldSource {
    /// A field from a file.
    File(Field),
    /// Waves with a little noise.
    BuiltIn,
}

/// Evaluates an expression in which `$float` is the type of floats that `$dtype` names, or `f32`.
#[macro_export]
macro_rules! with_float {
    ($dtype:expr, $float:ident => $result:expr) => {
        ::foldwire::with_float!($dtype, $float => $result, else {
            type $float = f32;
            $result
        })
    };
}

impl FieldSource {
    /// Reads the user's file, or selects the built-in field if there is none.
    pub fn open(field: Option<&Path>) -> Result<Self, UsageError> {
        Self::open_filled(field, None)
    }

    /// Does the same for a field in which this value stands for missing data.
    pub fn open_filled(field: Option<&Path>, fill: Option<f64>) -> Result<Self, UsageError> {
        match field {
            None => Ok(Self::BuiltIn),
            Some(path) => {
                let field = input::read(path, None)?;
                if fill.is_none() {
                    input::warn_of_fill(&field);
                }
                // Two copies of the converted values exist while they are moved into shared memory.
                room::check(2 * field.values.n_bytes() as u128)
                    .map_err(|error| usage!("to send {}: {error}; {SMALLER}", field.name))?;
                Ok(Self::File(field))
            }
        }
    }

    /// Returns the requested type, or else the field's own type, or else f32.
    pub fn dtype(&self, requested: Option<DType>) -> DType {
        match (requested, self) {
            (Some(dtype), _) => dtype,
            (None, Self::File(field)) => field.values.dtype(),
            (None, Self::BuiltIn) => DType::F32,
        }
    }

    /// The data of `size` ranks. The field's values become `T`, rounded if `T` is narrower.
    pub fn data<T: Float>(&self, size: usize) -> Data<T> {
        let (base, name, shape): (Vec<T>, _, &[usize]) = match self {
            Self::BuiltIn => {
                let name = format!("built-in: waves with 0.1 % noise, {SIDE} x {SIDE}");
                (waves(), name, &[SIDE; 2])
            }
            Self::File(field) => {
                let base = with_values!(&field.values, values => convert(values));
                let name = format!("{} ({}, {})", field.name, field.dims, field.values.dtype());
                (base, name, field.dims.sizes())
            }
        };
        let about = format!("{name}, {} values, around and around", base.len());
        Data::new(base, size, about).of_shape(shape)
    }
}

fn convert<F: Float, T: Float>(values: &[F]) -> Vec<T> {
    values.iter().map(|x| T::from_f64(x.to_f64())).collect()
}

/// A smooth field between −2 and 2 with 0.1 % noise: waves of several lengths, as in fluid
/// simulations.
fn waves<T: Float>() -> Vec<T> {
    let mut state = 1_u64;
    let mut noise = || {
        // Knuth's MMIX generator. Its high bits are the random ones.
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f64 / (1 << 24) as f64 - 0.5
    };
    let mut field = Vec::with_capacity(SIDE * SIDE);
    for row in 0..SIDE {
        let y = std::f64::consts::TAU * row as f64 / SIDE as f64;
        let across = 0.2 * (31.0 * y).sin();
        for column in 0..SIDE {
            let x = std::f64::consts::TAU * column as f64 / SIDE as f64;
            let long = (2.0 * x + y).sin() + 0.5 * (5.0 * x - 3.0 * y).cos();
            let short = 0.3 * (17.0 * x + 4.0 * y).sin() + across;
            field.push(T::from_f64(long + short + 0.004 * noise()));
        }
    }
    field
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_rank_begins_elsewhere_and_goes_around() {
        let data = Data::new((0..10).map(f64::from).collect(), 3, "test".into());
        for (rank, start) in [(0, 0), (1, 3), (2, 6)] {
            for first in [0, 4, 9, 23] {
                let mut out = [0.0; 35];
                data.fill(rank, first, &mut out);
                let expected = |i: usize| ((start + first + i) % 10) as f64;
                assert!(out.iter().enumerate().all(|(i, &x)| x == expected(i)));
            }
        }
    }

    #[test]
    fn where_ranks_begin_depends_on_how_many_there_are() {
        let most = Data::new((0..16).map(f64::from).collect(), 16, "test".into());
        let (mut two, mut out) = ([0.0; 3], [0.0; 3]);
        most.between(2).fill(1, 0, &mut two);
        most.fill(1, 0, &mut out);
        assert_eq!((two, out), ([8.0, 9.0, 10.0], [1.0, 2.0, 3.0]));
    }

    #[test]
    fn the_built_in_field_is_what_it_says() {
        let data = FieldSource::BuiltIn.data::<f32>(4);
        assert!(data.about().starts_with("built-in: waves"), "{}", data.about());
        assert!((1.0..=2.01).contains(&data.magnitude()));
        // All ranks and runs generate the same values.
        assert_eq!(data.base, FieldSource::BuiltIn.data::<f32>(4).base);
    }

    #[test]
    fn the_magnitude_skips_what_is_not_finite() {
        let data = Data::new(vec![f32::NAN, -3.0, f32::INFINITY, 2.0], 1, String::new());
        assert_eq!(data.magnitude(), 3.0);
    }
}
