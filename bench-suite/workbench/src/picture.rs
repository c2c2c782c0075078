//! Pictures of arrays: heat maps of a slice, alone and side by side.
//!
//! A [`Slice`] is the middle section of a volume: its last two dimensions at the middle of all
//! others. A one-dimensional array or a narrow strip is wrapped into a rectangle like text. Colours
//! of signed data diverge from white at 0. Other data run from dark to bright, and NaN is grey. The
//! range of colours ends at the 99.5th percentile, so that a few extremes do not hide the rest. To
//! compare slices, use the same [`ColourScale`] for all, usually that of the exact result.

mod font;
mod gallery;
mod image;

pub use gallery::Gallery;
pub use image::Image;

use foldwire_fields::dims::Dims;

/// Least width in pixels. Small slices are enlarged by an integer factor.
const MIN_WIDTH: usize = 400;

/// Largest width and height in pixels. Larger slices are subsampled.
const MAX_SIDE: usize = 1024;

/// Largest ratio of a slice's sides. Narrower slices are wrapped.
const MAX_ASPECT: usize = 8;

/// Fraction of the values that the range of colours covers.
const PERCENTILE: f64 = 0.995;

const GREY: [u8; 3] = [128; 3];

/// A rectangle of values.
#[derive(Debug, Clone, PartialEq)]
pub struct Slice {
    width: usize,
    values: Vec<f64>,
}

impl Slice {
    /// The middle section of an array.
    ///
    /// # Panics
    ///
    /// If the number of `values` is not the product of `dims`.
    pub fn middle<T: Copy + Into<f64>>(values: &[T], dims: &Dims) -> Self {
        assert_eq!(values.len(), dims.n_values(), "an array has the values of its dimensions");
        let sizes: Vec<_> = dims.sizes().iter().copied().filter(|&size| size > 1).collect();
        let (leading, last) = sizes.split_at(sizes.len().saturating_sub(2));
        // Row-major index of the middle of all leading dimensions.
        let middle = leading.iter().fold(0, |index, size| index * size + size / 2);
        let n_values: usize = last.iter().product();
        let values = &values[middle * n_values..][..n_values];
        let [height, width] = match *last {
            [height, width] if height.max(width) <= MAX_ASPECT * height.min(width) => {
                [height, width]
            }
            _ => wrapped(n_values),
        };

        let [down, across] = [height, width].map(|side| side.div_ceil(MAX_SIDE));
        let rows = values[..height * width].chunks_exact(width).step_by(down);
        let values =
            rows.flat_map(|row| row.iter().step_by(across).map(|&value| value.into())).collect();
        Self { width: width.div_ceil(across), values }
    }

    /// |self − exact| in units of `bound`, point by point. 0 where both are equal or both are NaN.
    ///
    /// # Panics
    ///
    /// If the slices differ in size.
    #[must_use]
    pub fn error(&self, exact: &Self, bound: f64) -> Self {
        assert_eq!(self.values.len(), exact.values.len(), "slices of the same volume");
        let error = |(&value, &exact): (&f64, &f64)| {
            if value == exact || (value.is_nan() && exact.is_nan()) {
                0.0
            } else {
                (value - exact).abs() / bound
            }
        };
        Self {
            width: self.width,
            values: self.values.iter().zip(&exact.values).map(error).collect(),
        }
    }

    /// Draws the slice.
    pub fn heat_map(&self, scale: ColourScale) -> Image {
        let factor = MIN_WIDTH.div_ceil(self.width);
        let height = self.values.len() / self.width;
        let colours: Vec<_> = self.values.iter().map(|&value| scale.colour(value)).collect();
        Image::draw(self.width * factor, height * factor, |x, y| {
            colours[y / factor * self.width + x / factor]
        })
    }
}

/// Height and width of a rectangle, slightly wider than high, that holds nearly all of `n_values`.
fn wrapped(n_values: usize) -> [usize; 2] {
    let width = ((n_values as f64 * 4.0 / 3.0).sqrt().ceil() as usize).clamp(1, n_values);
    [n_values / width, width]
}

/// Mapping from values to colours.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ColourScale {
    /// Blue for −limit, white for 0, red for limit.
    Diverging {
        /// Magnitude of the strongest colours.
        limit: f64,
    },
    /// From dark to bright.
    Sequential {
        /// Value of the darkest colour.
        from: f64,
        /// Value of the brightest colour.
        to: f64,
    },
    /// From black through red to pale yellow for 0 to 1: an error in units of its bound.
    Error,
}

impl ColourScale {
    /// A suitable scale for a slice: diverging if it has values of both signs.
    pub fn of(slice: &Slice) -> Self {
        let mut values: Vec<_> =
            slice.values.iter().copied().filter(|value| value.is_finite()).collect();
        values.sort_unstable_by(f64::total_cmp);
        let (Some(&least), Some(&greatest)) = (values.first(), values.last()) else {
            return Self::Sequential { from: 0.0, to: 1.0 };
        };
        if least < 0.0 && greatest > 0.0 {
            values.iter_mut().for_each(|value| *value = value.abs());
            values.sort_unstable_by(f64::total_cmp);
            let limit = quantile(&values, PERCENTILE);
            // If nearly all values are zero, the range covers the few others.
            Self::Diverging { limit: if limit > 0.0 { limit } else { greatest.max(-least) } }
        } else {
            Self::Sequential {
                from: quantile(&values, 1.0 - PERCENTILE),
                to: quantile(&values, PERCENTILE),
            }
        }
    }

    fn colour(self, value: f64) -> [u8; 3] {
        if value.is_nan() {
            return GREY;
        }
        let (gradient, at) = match self {
            Self::Diverging { limit } => (colorous::RED_BLUE, 0.5 - value / limit / 2.0),
            Self::Sequential { from, to } => (colorous::VIRIDIS, (value - from) / (to - from)),
            Self::Error => (colorous::INFERNO, value),
        };
        // If the scale has an empty range (0/0), use the middle colour.
        let at = if at.is_nan() { 0.5 } else { at.clamp(0.0, 1.0) };
        gradient.eval_continuous(at).as_array()
    }
}

/// The value that a `fraction` of the sorted values does not exceed.
fn quantile(sorted: &[f64], fraction: f64) -> f64 {
    sorted[((sorted.len() - 1) as f64 * fraction).round() as usize]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slice(dims: &str) -> Slice {
        let dims: Dims = dims.parse().unwrap();
        let values: Vec<f64> = (0..dims.n_values()).map(|at| at as f64).collect();
        Slice::middle(&values, &dims)
    }

    #[test]
    fn the_middle_is_taken_of_all_leading_dimensions() {
        let volume = slice("3x4x5");
        assert_eq!((volume.width, volume.values[0], volume.values.len()), (5, 20.0, 20));
        assert_eq!(slice("2x3x4x5").values[0], (1.0 * 3.0 + 1.0) * 20.0);
        assert_eq!(slice("1x4x5"), slice("4x5"));
    }

    #[test]
    fn lines_and_strips_are_wrapped() {
        for dims in ["12", "1", "2", "7x1", "3x3341", "5x2x1000"] {
            let wrapped = slice(dims);
            let height = wrapped.values.len() / wrapped.width;
            assert!(wrapped.values.len() == height * wrapped.width && height > 0, "{dims}");
            assert!(wrapped.width <= 4 * height, "{dims}: {} x {height}", wrapped.width);
        }
    }

    #[test]
    fn pictures_are_neither_small_nor_huge() {
        assert_eq!(slice("3x30x50").heat_map(ColourScale::Error).size(), [400, 240]);
        assert_eq!(slice("3000x2000").heat_map(ColourScale::Error).size(), [1000, 1000]);
        let [width, height] = slice("7208960").heat_map(ColourScale::Error).size();
        assert!((400..=1024).contains(&width) && (400..=1024).contains(&height));
    }

    #[test]
    fn signed_data_diverge_and_extremes_do_not_count() {
        let mut values = vec![1.0; 999];
        values.extend([-2.0, 500.0, f64::NAN, f64::INFINITY]);
        let signed = Slice { width: values.len(), values };
        assert_eq!(ColourScale::of(&signed), ColourScale::Diverging { limit: 1.0 });
        let ColourScale::Sequential { from, to } = ColourScale::of(&slice("10x20x50")) else {
            panic!("no signs")
        };
        assert_eq!((from, to), (5004.995_f64.floor() + 1.0, 5994.0));
        let sparse = Slice { width: 1000, values: [vec![0.0; 998], vec![-1.0, 3.0]].concat() };
        assert_eq!(ColourScale::of(&sparse), ColourScale::Diverging { limit: 3.0 });
        let nothing = Slice { width: 1, values: vec![f64::NAN] };
        assert_eq!(ColourScale::of(&nothing).colour(0.5).len(), 3);
    }

    #[test]
    fn colours_say_sign_size_and_nan() {
        let scale = ColourScale::Diverging { limit: 2.0 };
        let ([r, _, b], [r2, _, b2]) = (scale.colour(2.0), scale.colour(-9.0));
        assert!(r > b && b2 > r2, "red is positive");
        assert!(scale.colour(0.0).iter().all(|&channel| channel > 230), "zero is white");
        assert_eq!(scale.colour(f64::NAN), GREY);
        assert_eq!(ColourScale::Error.colour(1.0), ColourScale::Error.colour(f64::INFINITY));
        assert_eq!(
            ColourScale::Sequential { from: 1.0, to: 1.0 }.colour(1.0),
            colorous::VIRIDIS.eval_continuous(0.5).as_array()
        );
    }

    #[test]
    fn errors_are_in_units_of_the_bound() {
        let [a, b] =
            [[1.0, f64::NAN, f64::INFINITY, f64::NAN], [1.5, f64::NAN, f64::INFINITY, 0.0]]
                .map(|values| Slice { width: 2, values: values.to_vec() });
        let error = a.error(&b, 0.25).values;
        assert_eq!(error[..3], [2.0, 0.0, 0.0]);
        assert!(error[3].is_nan());
    }
}
