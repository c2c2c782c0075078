//! The extremes of a sample: one block in 64, chosen by a hash so that no period of the data can
//! hide from it.
//!
//! The sample comes in two halves, which tells something of its worth: where the halves agree on
//! the range, most of the range is in both; where they do not, extremes are rare and only a full
//! look finds them.

use super::{BLOCK, prefetch};
use crate::element::Float;

/// One block of so many is looked at.
const GROUP: usize = 64;
/// Groups between the one looked at and the one asked for.
const GROUPS_AHEAD: usize = 8;

/// Smallest and largest finite value of each half of the sample; (+MAX, −MAX) if there is none.
pub fn extents<T: Float>(src: &[T]) -> [(T, T); 2] {
    let (lowest, highest) = (T::MIN.widen(), T::MAX.widen());
    let mut halves = [([highest; BLOCK], [lowest; BLOCK]); 2];
    let n_groups = src.len() / (GROUP * BLOCK);
    for group in 0..n_groups {
        prefetch::block(src.as_ptr().wrapping_add(choose(group + GROUPS_AHEAD).0));
        let (start, half) = choose(group);
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

/// Where the block of a group starts, and in which half it counts: Fibonacci hashing (D. Knuth,
/// TAOCP vol. 3, section 6.4).
fn choose(group: usize) -> (usize, usize) {
    let hash = (group as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    let (block, half) = (hash as usize % GROUP, hash as usize / GROUP % 2);
    ((group * GROUP + block) * BLOCK, half)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    #[test]
    fn the_sample_lies_within_the_data_and_misses_what_is_not_finite() {
        let mut x: Vec<f32> = (0..100_003).map(|i| (i % 1009) as f32).collect();
        for (low, high) in extents(&x) {
            assert!(low <= 100.0 && (908.0..=1008.0).contains(&high), "{low} {high}");
        }
        x.iter_mut().step_by(3).for_each(|x| *x = f32::NAN);
        x.iter_mut().step_by(5).for_each(|x| *x = f32::INFINITY);
        x.iter_mut().step_by(7).for_each(|x| *x = f32::NEG_INFINITY);
        for (low, high) in extents(&x) {
            assert!(low <= 100.0 && (908.0..=1008.0).contains(&high), "{low} {high}");
        }
        x.fill(f32::NAN);
        assert_eq!(extents(&x), [(f32::MAX, -f32::MAX); 2]);
        assert_eq!(extents::<f64>(&[1.0; 511]), [(f64::MAX, -f64::MAX); 2]);
    }

    #[test]
    fn no_period_hides_from_the_sample() {
        // One value in `period` is large.
        for period in [512, 1024, 4096, 640, 96] {
            let x: Vec<f32> =
                (0..1 << 23).map(|i| if i % period == 1 { 9.0 } else { 1.0 }).collect();
            assert_eq!(extents(&x), [(1.0, 9.0); 2], "{period}");
        }
    }
}
