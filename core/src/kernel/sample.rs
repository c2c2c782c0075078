//! Scans of samples: value ranges, and grids on which the values lie.
//!
//! The sample for value ranges is one block in 64, chosen by a hash, so that it does not miss
//! periodic extremes. It consists of two halves. If both halves have about the same range, the
//! sample is reliable. Otherwise extremes are rare, and only a scan of all data finds them.
//!
//! Another sample determines the largest power of two that divides all values: their grid. Data
//! that were rounded before, such as archives of 16 bits, counts and indices, lie on a coarse grid.

use super::{BLOCK, prefetch};
use crate::element::Float;
use crate::element::sealed::{Wide, Word};

/// Number of blocks in a group. One block of each group is in the sample.
const GROUP: usize = 64;
/// Distance from the current group to the group whose block is prefetched.
const GROUPS_AHEAD: usize = 8;

/// Returns the smallest and largest finite value of each half of the sample; (+MAX, −MAX) if there
/// is none.
#[inline(never)]
pub fn value_ranges<T: Float>(src: &[T]) -> [(T, T); 2] {
    let (lowest, highest) = (T::MIN.widen(), T::MAX.widen());
    let mut halves = [([highest; BLOCK], [lowest; BLOCK]); 2];
    let n_groups = src.len() / (GROUP * BLOCK);
    for group in 0..n_groups {
        prefetch::block(src.as_ptr().wrapping_add(sampled_block(group + GROUPS_AHEAD).0));
        let (start, half) = sampled_block(group);
        let (low, high) = &mut halves[half];
        for ((low, high), x) in low.iter_mut().zip(high).zip(&src[start..][..BLOCK]) {
            let x = x.widen();
            // Comparisons with NaN are false; infinities fail the second one.
            *low = if x < *low && x >= lowest { x } else { *low };
            *high = if x > *high && x <= highest { x } else { *high };
        }
    }
    halves.map(|(low, high)| {
        let least = low.into_iter().fold(highest, |least, x| if x < least { x } else { least });
        let most = high.into_iter().fold(lowest, |most, x| if x > most { x } else { most });
        (T::narrow(least), T::narrow(most))
    })
}

/// Smallest sample for grids, in blocks. The sample has at least one block in 64.
const GRID_BLOCKS: usize = 64;

/// One block in this many may have a finer grid of differences than the result of [`grids`].
const BLOCKS_PER_FINER: usize = 4;
/// Number of powers of two that finite values can have, from 2⁻¹⁰⁷⁴ to 2¹⁰²³.
const N_POWERS: usize = 2098;
/// Number of values that are processed side by side in vectors.
const LANES: usize = 8;

/// Returns two grids of a sample: the grid of all values, and the grid of most differences between
/// neighbours.
///
/// The grid of numbers is the largest power of two that divides the finite ones. It is the largest
/// value of `T` if they are all 0 or there are none. The second grid divides all differences in at
/// least three of four blocks.
///
/// Archives store values as o + k·s, where s and often o differ between levels or records. Their
/// differences may then lie on a grid although their values do not.
///
/// The scan ends early once both grids are useless. A grid is useless if it is so fine that every
/// sampled block has a value beyond the largest code. For fields whose values use all bits, this is
/// known after a quarter of the sample.
pub fn grids<T: Float>(src: &[T]) -> [f64; 2] {
    let mut all = T::MAX.widen();
    let (mut n_blocks, mut n_of_power) = (0, [0_u32; N_POWERS]);
    let (mut n_fine, mut finest, mut useful) = (0, N_POWERS, f64::INFINITY);
    let (blocks, rest) = src.as_chunks::<BLOCK>();
    let per_group = (blocks.len() / GRID_BLOCKS).clamp(1, GROUP);
    // Pad with the last value: repeated values do not change the result.
    let padded = rest.last().map(|&last| {
        let mut padded = [last; BLOCK];
        padded[..rest.len()].copy_from_slice(rest);
        padded
    });
    let rest = padded.as_ref().filter(|_| per_group == 1);
    let n_sampled = blocks.len().div_ceil(per_group) + usize::from(rest.is_some());
    let sampled = blocks.chunks(per_group).enumerate();
    let sampled = sampled.map(|(group, blocks)| &blocks[hash(group) % blocks.len()]);
    for block in sampled.chain(rest) {
        let (of_values, of_differences) = (grid_of(block), grid_of(&differences(block)));
        all = if of_values < all { of_values } else { all };
        if of_differences < T::MAX.widen() {
            let power = power_index(of_differences.to_f64());
            n_blocks += 1;
            n_of_power[power] += 1;
            finest = finest.min(power);
        }
        let largest = largest_magnitude(block).to_f64();
        // A grid finer than `useful` is useless.
        useful = if largest > 0.0 { useful.min(largest / T::MAX_CODE) } else { useful };
        n_fine += usize::from(of_differences.to_f64() < useful);
        if all.to_f64() < useful && useful.is_finite() && n_fine > n_sampled / BLOCKS_PER_FINER {
            break;
        }
    }
    // Skip the finest grids of up to a quarter of the blocks.
    let mut n_skippable = n_blocks / BLOCKS_PER_FINER as u32;
    let is_of_most = |&(_, &n): &(usize, &u32)| {
        let is_of_most = n > n_skippable;
        n_skippable = n_skippable.saturating_sub(n);
        is_of_most
    };
    let of_most = n_of_power.iter().enumerate().skip(finest).find(is_of_most);
    let of_most =
        of_most.map_or(T::MAX.to_f64(), |(power, _)| libm::ldexp(1.0, power as i32 - 1074));
    [all.to_f64(), of_most]
}

/// Returns the index of a power of two among all; 2⁻¹⁰⁷⁴ has index 0.
fn power_index(x: f64) -> usize {
    ((libm::ilogb(x) + 1074).max(0) as usize).min(N_POWERS - 1)
}

/// Returns the differences of neighbouring values, and 0 in the last place.
fn differences<T: Float>(block: &[T; BLOCK]) -> [T; BLOCK] {
    let mut differences = [T::ZERO; BLOCK];
    for ((difference, a), b) in differences.iter_mut().zip(block).zip(&block[1..]) {
        *difference = T::narrow(b.widen() - a.widen());
    }
    differences
}

/// Returns the largest power of two that divides all finite values; the largest value of `T` if
/// they are all 0.
fn grid_of<T: Float>(block: &[T; BLOCK]) -> T::Wide {
    let fraction = T::Bits::from_u64((1 << T::FRACTION_BITS) - 1);
    let one = T::Bits::from_u64(1);
    let zero = T::ZERO.widen();
    let mut least = [T::MAX.widen(); LANES];
    for values in block.as_chunks::<LANES>().0 {
        for (least, x) in least.iter_mut().zip(values) {
            // Clear the lowest set bit of the significand, and take the difference. In a power of
            // two that bit is the implicit one.
            let bits = x.bits();
            let is_power = bits & fraction == T::Bits::ZERO;
            let cleared = if is_power { T::Bits::ZERO } else { bits & bits.minus(one) };
            let lowest = (x.widen() - T::from_bits(cleared).widen()).abs();
            // Comparisons with NaN are false; infinities fail the first one.
            *least = if lowest < *least && lowest > zero { lowest } else { *least };
        }
    }
    least.into_iter().fold(T::MAX.widen(), |least, x| if x < least { x } else { least })
}

/// Returns the largest magnitude of a finite value; 0 if there is none.
fn largest_magnitude<T: Float>(block: &[T; BLOCK]) -> T::Wide {
    let highest = T::MAX.widen();
    let mut most = [T::ZERO.widen(); LANES];
    for values in block.as_chunks::<LANES>().0 {
        for (most, x) in most.iter_mut().zip(values) {
            let x = x.widen().abs();
            *most = if x > *most && x <= highest { x } else { *most };
        }
    }
    most.into_iter().fold(T::ZERO.widen(), |most, x| if x > most { x } else { most })
}

/// Returns the start of the sampled block of a group, and the half to which it belongs.
fn sampled_block(group: usize) -> (usize, usize) {
    let (block, half) = (hash(group) % GROUP, hash(group) / GROUP % 2);
    ((group * GROUP + block) * BLOCK, half)
}

/// Hashes a group's index by Fibonacci hashing (D. Knuth, TAOCP vol. 3, section 6.4).
fn hash(group: usize) -> usize {
    ((group as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::element::sealed::OnLattice;
    use std::vec::Vec;

    #[test]
    fn the_sample_lies_within_the_data_and_misses_what_is_not_finite() {
        let mut x: Vec<f32> = (0..100_003).map(|i| (i % 1009) as f32).collect();
        for (low, high) in value_ranges(&x) {
            assert!(low <= 100.0 && (908.0..=1008.0).contains(&high), "{low} {high}");
        }
        x.iter_mut().step_by(3).for_each(|x| *x = f32::NAN);
        x.iter_mut().step_by(5).for_each(|x| *x = f32::INFINITY);
        x.iter_mut().step_by(7).for_each(|x| *x = f32::NEG_INFINITY);
        for (low, high) in value_ranges(&x) {
            assert!(low <= 100.0 && (908.0..=1008.0).contains(&high), "{low} {high}");
        }
        x.fill(f32::NAN);
        assert_eq!(value_ranges(&x), [(f32::MAX, -f32::MAX); 2]);
        assert_eq!(value_ranges::<f64>(&[1.0; 511]), [(f64::MAX, -f64::MAX); 2]);
    }

    #[test]
    fn the_grid_is_the_largest_power_of_two_of_which_all_are_multiples() {
        let all = |x: &[f32]| grids(x)[0];
        assert_eq!(all(&[]), f64::from(f32::MAX));
        assert_eq!(all(&[0.0, -0.0, f32::NAN, f32::INFINITY]), f64::from(f32::MAX));
        assert_eq!(all(&[3.0, -12.0, 0.0]), 1.0);
        assert_eq!(all(&[-12.0, 40.0, f32::NEG_INFINITY]), 4.0);
        assert_eq!(all(&[8.0, 0.75]), 0.25);
        assert_eq!(all(&[1.0, f32::from_bits(3)]), f64::from(f32::from_bits(1)));
        assert_eq!(grids(&[3.0f64 * 2f64.powi(-1060), 1e300])[0], 2f64.powi(-1060));
        assert_eq!(grids(&[crate::bf16::from_f32(1.5), crate::bf16::from_f32(-64.0)])[0], 0.5);
        // A long array is sampled; an array of 2000 values is scanned to the last value.
        let mut x: Vec<f32> = (0..1_000_000).map(|i| (i % 4001) as f32 / 512.0).collect();
        assert_eq!(all(&x), 1.0 / 512.0);
        x.truncate(1999);
        x.push(1.0 / 1024.0);
        assert_eq!(all(&x), 1.0 / 1024.0);
    }

    #[test]
    fn differences_may_lie_on_a_grid_where_values_do_not() {
        // Records of 4000 values, each with its own offset.
        let value = |i: usize| 200.0 + (i / 4000) as f32 * 0.01 + (i * i % 97) as f32 / 512.0;
        let x: Vec<f32> = (0..400_000).map(value).collect();
        let [of_values, of_differences] = grids(&x);
        assert!(of_values < 1e-4 && of_differences == 1.0 / 512.0, "{of_values} {of_differences}");
        // Differences of constant data are 0 and have no grid.
        assert_eq!(grids(&[0.7f32; 10_000])[1], f64::from(f32::MAX));
        assert_eq!(grids(&[f32::NAN; 100])[1], f64::from(f32::MAX));
        assert_eq!(grids(&[f64::from_bits(1), 0.0])[1], f64::from_bits(1));
        let noise = |i: u32| f32::from_bits(0x3f80_0000 | i.wrapping_mul(0x9e37_79b9) >> 9);
        let noise: Vec<f32> = (0..100_000).map(noise).collect();
        assert!(grids(&noise)[1] < 1e-6);
    }

    #[test]
    fn only_grids_that_are_too_fine_for_codes_end_the_look() {
        // Only the last value is on a finer grid. The first value is large.
        let mut x: Vec<f32> = (0..2000).map(|i| i as f32 * 0.5).collect();
        (x[0], x[1999]) = (1e37, 0.125);
        assert_eq!(grids(&x)[0], 0.125);
        // All values use all bits, so the scan ends before it reaches the last value.
        let fine = |i: u32| 250.0 + f32::from_bits(0x3f80_0000 | i.wrapping_mul(0x9e37_79b9) >> 9);
        let mut x: Vec<f32> = (0..2000).map(fine).collect();
        let before = grids(&x);
        x[1999] = 1.0 / 1024.0 / 1024.0;
        assert_eq!(grids(&x), before);
        let coded = 250.0 / <f32 as OnLattice>::MAX_CODE;
        assert!(before.into_iter().all(|grid| grid < coded), "{before:?}");
    }

    #[test]
    fn no_period_hides_from_the_sample() {
        // One value in `period` is large.
        for period in [512, 1024, 4096, 640, 96] {
            let x: Vec<f32> =
                (0..1 << 23).map(|i| if i % period == 1 { 9.0 } else { 1.0 }).collect();
            assert_eq!(value_ranges(&x), [(1.0, 9.0); 2], "{period}");
        }
    }
}
