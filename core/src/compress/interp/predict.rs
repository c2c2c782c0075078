//! Predictions of a line's codes from codes around it: interpolation between known values, or
//! extrapolation at the end of a dimension.
//!
//! Codes are integers, and arithmetic on them wraps. So every machine and every instruction set
//! predicts the same, whatever a payload says.

use super::grid::{DIMS, Grid, LINE, Line, Pass};

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
#[derive(Clone, Copy, PartialEq, Eq)]
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
    /// values are `distance` away.
    #[inline(always)]
    const fn of(at: usize, distance: usize, size: usize) -> Self {
        let has_far_left = at >= 3 * distance;
        let has_right = at + distance < size;
        let has_far_right = at + 3 * distance < size;
        match (has_far_left, has_right, has_far_right) {
            (true, true, true) => Self::All,
            (true, true, false) => Self::NoFarRight,
            (false, true, true) => Self::NoFarLeft,
            (false, true, false) => Self::NearOnly,
            (true, false, _) => Self::LeftTwo,
            (false, false, _) => Self::LeftOnly,
        }
    }
}

#[inline(always)]
fn interpolate<C: Integer>(shape: Shape, around: Around, n: Neighbours<C>) -> C {
    let near = n.left.plus(n.right);
    match (around, shape) {
        (Around::LeftOnly, _) => n.left,
        (Around::LeftTwo, _) => n.left.times(3).minus(n.far_left).shifted(1),
        (Around::NearOnly, _) | (_, Shape::Linear) => near.shifted(1),
        (Around::All, _) => near.times(9).minus(n.far_left.plus(n.far_right)).shifted(4),
        // Parabolas through three values.
        (Around::NoFarRight, _) => {
            n.left.times(6).plus(n.right.times(3)).minus(n.far_left).shifted(3)
        }
        (Around::NoFarLeft, _) => {
            n.left.times(3).plus(n.right.times(6)).minus(n.far_right).shifted(3)
        }
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

/// Interpolates each value of a line. A loop for each kind of neighbours is compiled.
macro_rules! each_kind {
    ($shape:expr, $around:expr, |$s:ident, $a:ident| $each:expr) => {
        each_kind!(@ $shape, $around, $s, $a, $each;
            (Linear, All) (Linear, NoFarLeft) (Linear, NoFarRight) (Linear, NearOnly)
            (Linear, LeftTwo) (Linear, LeftOnly) (Cubic, All) (Cubic, NoFarLeft)
            (Cubic, NoFarRight) (Cubic, NearOnly) (Cubic, LeftTwo) (Cubic, LeftOnly))
    };
    (@ $shape:expr, $around:expr, $s:ident, $a:ident, $each:expr;
        $(($shapes:ident, $arounds:ident))*) => {
        match ($shape, $around) {
            $((Shape::$shapes, Around::$arounds) => {
                let ($s, $a) = (Shape::$shapes, Around::$arounds);
                $each
            })*
            #[allow(unreachable_patterns)]
            _ => {}
        }
    };
}

/// Copies values of an array that are `step` apart.
#[inline(always)]
pub(super) fn strided<V: Copy>(array: &[V], start: usize, step: usize, out: &mut [V]) {
    match (step, array.get(start..)) {
        (_, None) => {}
        (1, Some(array)) => out.copy_from_slice(&array[..out.len()]),
        (2, Some(array)) => {
            let pairs = array.as_chunks::<2>().0;
            let n_pairs = pairs.len().min(out.len());
            for (value, pair) in out.iter_mut().zip(pairs) {
                *value = pair[0];
            }
            if let Some(value) = out.get_mut(n_pairs) {
                *value = array[2 * n_pairs];
            }
        }
        (_, Some(array)) => {
            for (value, found) in out.iter_mut().zip(array.iter().step_by(step)) {
                *value = *found;
            }
        }
    }
}

/// Stores values in an array, `step` apart.
#[inline(always)]
pub(super) fn put_strided<V: Copy>(values: &[V], array: &mut [V], start: usize, step: usize) {
    let array = &mut array[start..];
    match step {
        1 => array[..values.len()].copy_from_slice(values),
        2 => {
            let pairs = array.as_chunks_mut::<2>().0;
            let n_pairs = pairs.len().min(values.len());
            // What is between is stored again, so that whole vectors are.
            for (pair, value) in pairs.iter_mut().zip(values) {
                *pair = [*value, pair[1]];
            }
            if let Some(value) = values.get(n_pairs) {
                array[2 * n_pairs] = *value;
            }
        }
        _ => {
            for (place, value) in array.iter_mut().step_by(step).zip(values) {
                *place = *value;
            }
        }
    }
}

/// Buffers for the predictions of a line.
pub(super) struct Predictor<C> {
    lines: [[C; LINE + 3]; 4],
    sum: [C; LINE],
}

impl<C: Integer> Predictor<C> {
    pub(super) fn new() -> Self {
        Self { lines: [[C::default(); LINE + 3]; 4], sum: [C::default(); LINE] }
    }

    /// Predicts the codes of a line between known ones.
    #[inline(always)]
    pub(super) fn line(
        &mut self,
        codes: &[C],
        grid: &Grid,
        pass: &Pass,
        line: &Line,
        shape: Shape,
    ) -> &[C] {
        let n_values = line.n_values;
        let mut n_dims = 0;
        for dim in (0..DIMS).filter(|&dim| pass.is_between[dim]) {
            if dim == DIMS - 1 {
                self.along(codes, grid, pass, line, shape, n_dims > 0);
            } else {
                self.across(codes, grid, pass, line, shape, (dim, n_dims > 0));
            }
            n_dims += 1;
        }
        let sum = &mut self.sum[..n_values];
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
        grid: &Grid,
        pass: &Pass,
        line: &Line,
        shape: Shape,
        (dim, adds): (usize, bool),
    ) {
        let n_values = line.n_values;
        let (distance, step) = (grid.strides[dim] << pass.stage, pass.steps[2]);
        let around = Around::of(line.at[dim], 1 << pass.stage, grid.sizes[dim]);
        let [a, b, c, d] = self.lines.each_mut().map(|line| &mut line[..n_values]);
        let is_cubic = shape == Shape::Cubic;
        strided(codes, line.start - distance, step, b);
        if !matches!(around, Around::LeftTwo | Around::LeftOnly) {
            strided(codes, line.start + distance, step, c);
        }
        let needs_far_left = matches!(around, Around::All | Around::NoFarRight);
        if around == Around::LeftTwo || needs_far_left && is_cubic {
            strided(codes, line.start - 3 * distance, step, a);
        }
        if matches!(around, Around::All | Around::NoFarLeft) && is_cubic {
            strided(codes, line.start + 3 * distance, step, d);
        }
        let (a, b, c, d) = (&*a, &*b, &*c, &*d);
        let sum = &mut self.sum[..n_values];
        each_kind!(shape, around, |shape, around| put!(sum, adds, |i| {
            let neighbours =
                Neighbours { far_left: a[i], left: b[i], right: c[i], far_right: d[i] };
            interpolate(shape, around, neighbours)
        }));
    }

    /// Predicts from values before and behind in the line's own dimension.
    #[inline(always)]
    fn along(
        &mut self,
        codes: &[C],
        grid: &Grid,
        pass: &Pass,
        line: &Line,
        shape: Shape,
        adds: bool,
    ) {
        let (n_values, size, x) = (line.n_values, grid.sizes[2], line.at[2]);
        let (distance, row) = (1 << pass.stage, line.start - x);
        // Known values of the row are 2·distance apart; value i lies between known i + 1 and i + 2,
        // counted from the one 3·distance before the line.
        let n_before = usize::from(x >= 3 * distance);
        let first = x - distance - 2 * distance * n_before;
        let n_known = (size - first).div_ceil(2 * distance).min(n_values + 2 + n_before);
        let known = &mut self.lines[0];
        let begin = 1 - n_before;
        strided(codes, row + first, 2 * distance, &mut known[begin..begin + n_known]);
        known[begin + n_known..n_values + 3].fill(C::default());
        let known = &known[..n_values + 3];
        let around = |i: usize| {
            let all = known.get(i..i + 4).and_then(|all| all.first_chunk());
            let [far_left, left, right, far_right] = all.copied().unwrap_or_default();
            Neighbours { far_left, left, right, far_right }
        };
        let sum = &mut self.sum[..n_values];
        let mut ends = [(0, C::default()); 3];
        for (nth, end) in ends.iter_mut().enumerate() {
            let i = if nth == 0 { 0 } else { n_values.saturating_sub(nth) };
            let kind = Around::of(x + 2 * distance * i, distance, size);
            let before = if adds { sum[i] } else { C::default() };
            *end = (i, before.plus(interpolate(shape, kind, around(i))));
        }
        let (far, near) = (&known[3..], &known[1..]);
        let (far, near) = (&far[..n_values], &near[..=n_values]);
        each_kind!(@ shape, Around::All, shape, around, put!(sum, adds, |i| {
            let (far_left, far_right) = (known[i], far[i]);
            let neighbours = Neighbours { far_left, left: near[i], right: near[i + 1], far_right };
            interpolate(shape, around, neighbours)
        }); (Linear, All) (Cubic, All));
        for (i, prediction) in ends {
            sum[i] = prediction;
        }
    }
}
