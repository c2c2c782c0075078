//! Predictions of a line's codes from codes around it: interpolation between known values, or
//! extrapolation at the end of a dimension.
//!
//! Codes are integers, and arithmetic on them wraps. So every machine and every instruction set
//! predicts the same, whatever a payload says.

use super::grid::{DIMS, LINE, Layer, Line, Pass};

/// Integer type of codes.
pub(super) trait Integer:
    bytemuck::Pod + Default + Eq + core::fmt::Debug + Send + Sync
{
    /// Largest magnitude of a code that a writer uses, so that predictions seldom wrap.
    const MOST: f64;
    fn plus(self, other: Self) -> Self;
    fn minus(self, other: Self) -> Self;
    fn times(self, factor: i32) -> Self;
    /// self / 2ⁿ, rounded to nearest.
    fn shifted(self, n: u32) -> Self;
    /// A third, rounded down.
    fn third(self) -> Self;
    fn to_f64(self) -> f64;
    fn to_i64(self) -> i64;
    /// The low bits of a number.
    fn of_i64(number: i64) -> Self;
}

macro_rules! integer {
    ($($integer:ident $most:literal)*) => {
        $(impl Integer for $integer {
            const MOST: f64 = (1_u64 << $most) as f64;
            #[inline(always)]
            fn plus(self, other: Self) -> Self {
                self.wrapping_add(other)
            }
            #[inline(always)]
            fn minus(self, other: Self) -> Self {
                self.wrapping_sub(other)
            }
            #[inline(always)]
            fn times(self, factor: i32) -> Self {
                self.wrapping_mul(factor.into())
            }
            #[inline(always)]
            fn shifted(self, n: u32) -> Self {
                self.wrapping_add(1 << n >> 1) >> n
            }
            #[inline(always)]
            fn third(self) -> Self {
                self.div_euclid(3)
            }
            #[inline(always)]
            fn to_f64(self) -> f64 {
                self as f64
            }
            #[inline(always)]
            fn to_i64(self) -> i64 {
                self.into()
            }
            #[inline(always)]
            fn of_i64(number: i64) -> Self {
                number as Self
            }
        })*
    };
}

integer! { i32 26 i64 45 }

/// How values are interpolated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// By a line through two neighbours.
    Linear,
    /// By a cubic through four neighbours.
    Cubic,
}

/// Neighbours of a value in a dimension, at the distances −3, −1, 1 and 3.
#[derive(Clone, Copy)]
struct Neighbours<C> {
    far_left: C,
    left: C,
    right: C,
    far_right: C,
}

/// Neighbours that exist.
#[derive(Clone, Copy)]
enum Around {
    All,
    NoFarLeft,
    NoFarRight,
    NearOnly,
    LeftTwo,
    LeftOnly,
}

impl Around {
    /// Returns which neighbours the value at `at` has in a dimension of this size, where known
    /// values are 1 and 3 away.
    #[inline(always)]
    const fn of(at: usize, size: usize) -> Self {
        match (at >= 3, at + 1 < size, at + 3 < size) {
            (true, true, true) => Self::All,
            (true, true, false) => Self::NoFarRight,
            (false, true, true) => Self::NoFarLeft,
            (false, true, false) => Self::NearOnly,
            (true, false, _) => Self::LeftTwo,
            (false, false, _) => Self::LeftOnly,
        }
    }
}

/// How a value follows from its neighbours.
#[derive(Clone, Copy)]
enum Interpolation {
    /// The mean of the two nearest.
    Near,
    /// By a cubic through all four.
    Cubic,
    /// The sum at these weights, divided by 2ⁿ, their sum. For places whose neighbours are missing.
    /// A parabola goes through three values.
    Weighted([i32; 4], u32),
}

impl Interpolation {
    #[inline(always)]
    const fn of(shape: Shape, around: Around) -> Self {
        match (around, shape) {
            (Around::LeftOnly, _) => Self::Weighted([0, 1, 0, 0], 0),
            (Around::LeftTwo, _) => Self::Weighted([-1, 3, 0, 0], 1),
            (Around::NearOnly, _) | (_, Shape::Linear) => Self::Near,
            (Around::All, _) => Self::Cubic,
            (Around::NoFarRight, _) => Self::Weighted([-1, 6, 3, 0], 3),
            (Around::NoFarLeft, _) => Self::Weighted([0, 3, 6, -1], 3),
        }
    }
}

impl<C: Integer> Neighbours<C> {
    #[inline(always)]
    fn of([a, b, c, d]: [&[C]; 4], i: usize) -> Self {
        Self { far_left: a[i], left: b[i], right: c[i], far_right: d[i] }
    }

    #[inline(always)]
    fn near(self) -> C {
        self.left.plus(self.right).shifted(1)
    }

    #[inline(always)]
    fn cubic(self) -> C {
        let near = self.left.plus(self.right);
        near.times(9).minus(self.far_left.plus(self.far_right)).shifted(4)
    }

    #[inline(always)]
    fn weighted(self, [a, b, c, d]: [i32; 4], n: u32) -> C {
        let left = self.far_left.times(a).plus(self.left.times(b));
        left.plus(self.right.times(c)).plus(self.far_right.times(d)).shifted(n)
    }
}

/// Sets or adds to each sum. It is a macro, because a closure may be compiled without the level's
/// instructions.
macro_rules! put {
    ($sum:ident, $adds:expr, |$i:ident| $each:expr) => {
        if $adds {
            for $i in 0..$sum.len() {
                $sum[$i] = $sum[$i].plus($each);
            }
        } else {
            for $i in 0..$sum.len() {
                $sum[$i] = $each;
            }
        }
    };
}

/// Buffers for the predictions of a line.
pub(super) struct Predictor<C> {
    lines: [[C; LINE]; 4],
    sum: [C; LINE],
}

impl<C: Integer> Predictor<C> {
    pub(super) fn new() -> Self {
        Self { lines: [[C::default(); LINE]; 4], sum: [C::default(); LINE] }
    }

    /// Predicts the codes of a line between known ones.
    #[inline(always)]
    pub(super) fn line(
        &mut self,
        codes: &[C],
        layer: &Layer,
        pass: &Pass,
        line: &Line,
        shape: Shape,
    ) -> &[C] {
        let mut n_dims = 0;
        for dim in (0..DIMS).filter(|&dim| pass.is_between[dim]) {
            if dim == DIMS - 1 {
                self.along(codes, layer, line, shape, n_dims > 0);
            } else {
                self.across(codes, layer, pass, line, shape, (dim, n_dims > 0));
            }
            n_dims += 1;
        }
        let sum = &mut self.sum[..line.n_values];
        match n_dims {
            2 => sum.iter_mut().for_each(|sum| *sum = sum.shifted(1)),
            3 => sum.iter_mut().for_each(|sum| *sum = sum.third()),
            _ => {}
        }
        sum
    }

    /// Predicts from lines before and behind in a slower dimension.
    #[inline(always)]
    fn across(
        &mut self,
        codes: &[C],
        layer: &Layer,
        pass: &Pass,
        line: &Line,
        shape: Shape,
        (dim, adds): (usize, bool),
    ) {
        let n_values = line.n_values;
        let distance = layer.grid.strides[dim];
        let around = Around::of(line.at[dim], layer.grid.sizes[dim]);
        let has_right = !matches!(around, Around::LeftTwo | Around::LeftOnly);
        let has_far_left = matches!(around, Around::All | Around::NoFarRight | Around::LeftTwo);
        let has_far_right = matches!(around, Around::All | Around::NoFarLeft);
        let left = line.start - distance;
        // Another neighbour takes the place of a missing one, and does not count.
        let starts = [
            if has_far_left { left - 2 * distance } else { left },
            left,
            if has_right { left + 2 * distance } else { left },
            if has_far_right { left + 4 * distance } else { left },
        ];
        // Not by a closure, which `map` would call without the level's instructions.
        let mut views = [&[][..]; 4];
        for ((view, buffer), start) in views.iter_mut().zip(&mut self.lines).zip(starts) {
            *view = layer.view(codes, (pass.columns, start, n_values), buffer);
        }
        let [a, b, c, d] = views;
        let of = [&a[..n_values], &b[..n_values], &c[..n_values], &d[..n_values]];
        let sum = &mut self.sum[..n_values];
        match Interpolation::of(shape, around) {
            Interpolation::Near => put!(sum, adds, |i| Neighbours::of(of, i).near()),
            Interpolation::Cubic => put!(sum, adds, |i| Neighbours::of(of, i).cubic()),
            Interpolation::Weighted(weights, n) => {
                if !adds {
                    sum.fill(C::default());
                }
                put!(sum, true, |i| Neighbours::of(of, i).weighted(weights, n));
            }
        }
    }

    /// Predicts odd values of a row from even ones.
    #[inline(always)]
    fn along(&mut self, codes: &[C], layer: &Layer, line: &Line, shape: Shape, adds: bool) {
        let (n_values, first) = (line.n_values, line.n_before);
        let known = &codes[line.row..line.row + layer.n_even];
        let sum = &mut self.sum[..n_values];
        // From `begin` to `end`, values have four neighbours.
        let begin = usize::from(first == 0).min(n_values);
        let end = (layer.n_even - first).saturating_sub(2).clamp(begin, n_values);
        let one = |i: usize, before: C| {
            let at = first + i;
            let around = Around::of(2 * at + 1, layer.grid.sizes[2]);
            let of = |place: usize| known.get(place).copied().unwrap_or_default();
            let (far_left, left) = (of(at.wrapping_sub(1)), of(at));
            let neighbours =
                Neighbours { far_left, left, right: of(at + 1), far_right: of(at + 2) };
            let prediction = match Interpolation::of(shape, around) {
                Interpolation::Near => neighbours.near(),
                Interpolation::Cubic => neighbours.cubic(),
                Interpolation::Weighted(weights, n) => neighbours.weighted(weights, n),
            };
            if adds { before.plus(prediction) } else { prediction }
        };
        for i in (0..begin).chain(end..n_values) {
            sum[i] = one(i, sum[i]);
        }
        let sum = &mut sum[begin..end];
        let n_inner = sum.len();
        if n_inner > 0 {
            let known = &known[first + begin - 1..][..n_inner + 3];
            let of = [0, 1, 2, 3].map(|at| &known[at..at + n_inner]);
            match shape {
                Shape::Linear => put!(sum, adds, |i| Neighbours::of(of, i).near()),
                Shape::Cubic => put!(sum, adds, |i| Neighbours::of(of, i).cubic()),
            }
        }
    }
}
