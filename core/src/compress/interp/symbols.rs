//! Symbols of a line's codes, and the contexts in which they are coded.
//!
//! A *residual* is the number of bins between a code and its prediction. Its symbol holds a small
//! residual, or the leading bits of a large one; other bits follow elsewhere. The context of a
//! symbol is how large the residuals around it are, in lines before it. So a reader knows the
//! contexts of a whole line before it reads its symbols.

use super::grid::{DIMS, Group, LINE, Layer, Line, Pass, ROW};
use super::predict::Integer;
use crate::kernel::rans;

/// The value before it in coding order was also off the lattice, and has the same bits.
pub(super) const REPEATED: u8 = 0;
/// The value is off the lattice; its bits follow.
pub(super) const NEW: u8 = 1;
/// The first symbol of a residual.
pub(super) const FIRST: u8 = 2;
/// Zig-zag residuals below it have a symbol each.
pub(super) const SMALL: u8 = 32;
/// Logarithm of [`SMALL`].
const SMALL_BITS: u32 = SMALL.ilog2();
/// Largest number of a symbol: that of a zig-zag residual of 52 bits.
pub(super) const LAST: u8 = FIRST + SMALL + 4 * (52 - SMALL_BITS as u8) - 1;

/// Activity of a value off the lattice, more than that of any residual.
const OFF: u16 = 1 << 12;
/// Contexts of a group.
pub(super) const BUCKETS: usize = rans::BUCKETS;
/// Groups of contexts: the two last stages, those before, and anchors.
pub(super) const GROUPS: usize = 4;

/// Returns how many low bits of a residual with this symbol follow elsewhere.
#[inline(always)]
pub(super) const fn n_low(symbol: u8) -> u32 {
    if symbol < FIRST + SMALL { 0 } else { (symbol - FIRST - SMALL) as u32 / 4 + SMALL_BITS - 2 }
}

/// Returns the zig-zag residual with this symbol whose low bits are 0.
#[inline(always)]
pub(super) const fn high(symbol: u8) -> u64 {
    let number = symbol.wrapping_sub(FIRST);
    if number < SMALL {
        return number as u64;
    }
    (4 + ((number - SMALL) % 4) as u64) << n_low(symbol)
}

/// How large the residual of a symbol is, as contexts see it: its magnitude without its low bits.
#[inline(always)]
pub(super) const fn activity(symbol: u8) -> u16 {
    if symbol < FIRST {
        return OFF;
    }
    let number = symbol as u32 - FIRST as u32;
    if number < SMALL as u32 {
        return number.div_ceil(2) as u16;
    }
    let large = number - SMALL as u32;
    // Residuals of 2¹² and more are alike.
    let n_low = large / 4 + SMALL_BITS - 3;
    if n_low > 9 { OFF - 1 } else { (4 + large as u16 % 4) << n_low }
}

/// The same for many symbols.
#[inline(always)]
pub(super) fn activities(symbols: &[u8], active: &mut [u16]) {
    let mut most = 0;
    for (active, &symbol) in active.iter_mut().zip(symbols) {
        most = most.max(symbol.wrapping_sub(FIRST));
        *active = u16::from(symbol.wrapping_sub(1)) / 2;
    }
    if most < SMALL {
        return;
    }
    for (symbols, active) in symbols.chunks(CHUNK).zip(active.chunks_mut(CHUNK)) {
        if has_others(symbols) {
            for (active, &symbol) in active.iter_mut().zip(symbols) {
                *active = ACTIVITIES[usize::from(symbol)];
            }
        }
    }
}

/// Number of symbols that are looked at together: few of them, if any, hold large residuals.
pub(super) const CHUNK: usize = 16;

/// Returns whether a symbol is not that of a small residual.
#[inline(always)]
pub(super) fn has_others(symbols: &[u8]) -> bool {
    symbols.iter().fold(0, |most, symbol| most.max(symbol.wrapping_sub(FIRST))) >= SMALL
}

/// Activity of each symbol.
static ACTIVITIES: [u16; 256] = {
    let mut all = [0; 256];
    let mut symbol = 0;
    while symbol < all.len() {
        all[symbol] = activity(symbol as u8);
        symbol += 1;
    }
    all
};

/// Returns the residual of a zig-zag number.
#[inline(always)]
pub(super) const fn residual(zigzag: u64) -> i64 {
    (zigzag >> 1) as i64 ^ -((zigzag & 1) as i64)
}

/// Residuals as writers and readers see them.
pub(super) trait Residual: Integer {
    /// Returns the residual of a zig-zag number of 8 bits.
    fn of_small(zigzag: u8) -> Self;
    /// Returns the zig-zag number.
    fn zigzag(self) -> u64;
    /// Returns a number that is not negative and has as many bits as the magnitude.
    fn folded(self) -> Self;
    fn or(self, other: Self) -> Self;
    /// Returns the symbol of a residual with a zig-zag number below [`SMALL`].
    fn small_symbol(self) -> u8;
    /// Returns the symbol of a residual with a zig-zag number below 2⁵².
    fn symbol(self) -> u8;
}

macro_rules! residual {
    ($($integer:ident $unsigned:ident)*) => {
        $(impl Residual for $integer {
            #[inline(always)]
            fn of_small(zigzag: u8) -> Self {
                $integer::from(zigzag >> 1) ^ -$integer::from(zigzag & 1)
            }

            #[inline(always)]
            fn zigzag(self) -> u64 {
                ((self << 1 ^ self >> ($integer::BITS - 1)) as $unsigned).into()
            }

            #[inline(always)]
            fn folded(self) -> Self {
                self ^ self >> ($integer::BITS - 1)
            }

            #[inline(always)]
            fn or(self, other: Self) -> Self {
                self | other
            }

            #[inline(always)]
            fn small_symbol(self) -> u8 {
                ((self << 1 ^ self >> ($integer::BITS - 1)) as u8).wrapping_add(FIRST)
            }

            #[inline(always)]
            fn symbol(self) -> u8 {
                // A float has its exponent and the two bits after the leading 1 in a row.
                const LARGE: u64 = (1023 + SMALL_BITS as u64) << 2;
                let zigzag = (self << 1 ^ self >> ($integer::BITS - 1)) as $unsigned;
                let leading = f64::to_bits(zigzag as f64) >> 50;
                let large = leading.wrapping_sub(LARGE) as u8;
                let small = (zigzag as u8).wrapping_sub(SMALL);
                let number = if zigzag < SMALL.into() { small } else { large };
                number.wrapping_add(FIRST + SMALL)
            }
        })*
    };
}

residual! { i32 u32 i64 u64 }

/// Most values of half a line.
pub(super) const HALF: usize = LINE / 2;

/// Contexts of a line's values.
pub(super) struct Contexts {
    /// Activity of lines before, of a value and those beside it.
    line: [u16; LINE + 2],
    even: [u16; LINE],
    odd: [u16; LINE],
    /// Contexts of the half that was found last.
    pub(super) of: [u8; HALF],
}

impl Contexts {
    pub(super) const fn new() -> Self {
        Self { line: [0; LINE + 2], even: [0; LINE], odd: [0; LINE], of: [0; HALF] }
    }

    /// Prepares a line. `active` holds the activities of all values before it.
    #[inline(always)]
    pub(super) fn begin(&mut self, active: &[u16], layer: &Layer, pass: &Pass, line: &Line) {
        let Line { n_values, start, n_before, .. } = *line;
        let grid = &layer.grid;
        let buffer = &mut self.line[..n_values];
        let (even, odd) = (&mut self.even[..n_values], &mut self.odd[..n_values]);
        even.fill(0);
        // Nothing is known before the anchors.
        if layer.group == Group::Anchors {
            odd.fill(0);
            return;
        }
        let n_between = pass.is_between.iter().filter(|&&is_between| is_between).count();
        // Values that predict it.
        let weight = if n_between == 1 { 2 } else { 1 };
        for dim in (0..DIMS).filter(|&dim| pass.is_between[dim]) {
            if dim == DIMS - 1 {
                // The last value of the line may have no right neighbour.
                let known = &active[line.row + n_before..line.row + layer.n_even];
                add(even, known, weight);
                add(even, &known[1..], weight);
            } else {
                let distance = grid.strides[dim];
                let has_right = line.at[dim] + 1 < grid.sizes[dim];
                for at in [Some(start - distance), has_right.then(|| start + distance)] {
                    let Some(at) = at else { continue };
                    add(even, layer.view(active, (pass.columns, at, n_values), buffer), weight);
                }
            }
        }
        odd.copy_from_slice(even);
        if line.at[1] >= pass.starts[1] + pass.steps[1] {
            let start = start - pass.steps[1] * grid.strides[1];
            let row = layer.view(active, (pass.columns, start, n_values), buffer);
            let mut put = |i: usize, sum: u16| {
                even[i] += sum + sum / 2;
                odd[i] += sum;
            };
            if let [only] = *row {
                put(0, 2 * only);
            } else if let ([first, second, ..], [.., before, last]) = (row, row) {
                put(0, 2 * first + second);
                put(n_values - 1, before + 2 * last);
            }
            let inner = even.iter_mut().zip(&mut *odd).skip(1).zip(row.array_windows());
            for ((even, odd), [left, middle, right]) in inner {
                let sum = left + 2 * middle + right;
                *even += sum + sum / 2;
                *odd += sum;
            }
        }
        if line.at[0] >= pass.starts[0] + pass.steps[0] {
            let start = start - pass.steps[0] * grid.strides[0];
            let plane = layer.view(active, (pass.columns, start, n_values), buffer);
            add(even, plane, 2);
            add(odd, plane, 1);
        }
    }

    /// Finds the contexts of even values, this many.
    #[inline(always)]
    pub(super) fn even(&mut self, n_even: usize) {
        let (pairs, last) = self.even[..2 * n_even].as_chunks::<2>();
        debug_assert!(last.is_empty());
        for (of, pair) in self.of.iter_mut().zip(pairs) {
            *of = bucket(pair[0] / 4);
        }
    }

    /// Finds the contexts of odd values, this many, by the activities of the even ones.
    #[inline(always)]
    pub(super) fn odd(&mut self, active: &[u16], n_odd: usize) {
        // The last one may have no right neighbour.
        self.line[..active.len()].copy_from_slice(active);
        self.line[active.len()] = 0;
        let pairs = &self.odd.as_chunks::<2>().0[..n_odd];
        for (i, (of, pair)) in self.of.iter_mut().zip(pairs).enumerate() {
            let beside = self.line[i] + self.line[i + 1];
            *of = bucket(beside + pair[1] / 4);
        }
    }

    /// Finds the contexts of a line in a raster of one row, by the four lines before.
    #[inline(always)]
    pub(super) fn in_row(&mut self, before: &[[u16; ROW]; 4]) {
        let [a, b, c, d] = before;
        for (i, of) in self.of[..ROW].iter_mut().enumerate() {
            *of = bucket(2 * a[i] + b[i] + (c[i] + d[i]) / 2);
        }
    }
}

/// Adds weighted activities.
#[inline(always)]
fn add(sums: &mut [u16], active: &[u16], weight: u16) {
    for (sum, &active) in sums.iter_mut().zip(active) {
        *sum += weight * active;
    }
}

/// Returns the context of a value whose neighbours have this weighted activity: two contexts for
/// each power of two from 8 on.
#[inline(always)]
fn bucket(activity: u16) -> u8 {
    // A float's exponent, and the bit after the leading 1.
    const EIGHT: u32 = 8_f32.to_bits() >> 22;
    let large = (f32::from(activity).to_bits() >> 22).wrapping_sub(EIGHT - 8);
    let bucket = if activity < 8 { activity.into() } else { large };
    bucket.min(BUCKETS as u32 - 1) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn symbols_hold_residuals_of_any_size() {
        let powers = (0..52).map(|n| 1_u64 << n);
        for zigzag in (0..5000).chain(powers.flat_map(|x| [x - 1, x, x + x / 2, 2 * x - 1])) {
            let residual = residual(zigzag);
            assert_eq!(residual.zigzag(), zigzag);
            let symbol = residual.symbol();
            assert!((FIRST..=LAST).contains(&symbol), "{zigzag}");
            let low = zigzag & ((1 << n_low(symbol)) - 1);
            assert_eq!(high(symbol), zigzag - low, "{zigzag}");
            if let Ok(narrow) = i32::try_from(residual) {
                assert_eq!(narrow.zigzag(), zigzag);
                assert_eq!(narrow.symbol(), symbol);
            }
        }
        assert_eq!(residual((1 << 52) - 1).symbol(), LAST);
    }

    #[test]
    fn activities_are_magnitudes_without_low_bits() {
        for magnitude in 0_i64..5000 {
            let active = activity(magnitude.symbol());
            let n_low = n_low(magnitude.symbol());
            let high = ((2 * magnitude) >> n_low << n_low) / 2;
            assert_eq!(i64::from(active), high.min(i64::from(OFF) - 1), "{magnitude}");
        }
    }
}
