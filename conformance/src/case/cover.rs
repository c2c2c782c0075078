//! Selection of cases: all of them, or a few that together contain every pair of choices.
//!
//! The search is greedy and draws from a fixed seed, so every run gets the same cases. (After AETG:
//! D. Cohen, S. Dalal, M. Fredman, G. Patton, IEEE TSE 23(7), 1997.)

use super::{AXES, Case, Indices, SIZES, axis, effective_axes, normalised};
use crate::data::Random;

/// All 37 million cases of the product, without those that equal another case because they differ
/// from it only on axes without effect. Tests run every n-th case, or all cases on demand.
pub fn all() -> impl Iterator<Item = Case> {
    let total: usize = AXES.iter().product();
    let indices = (0..total).map(|mut index| {
        AXES.map(|n| {
            let choice = index % n;
            index /= n;
            choice
        })
    });
    let indices = indices.filter(|&i| normalised(i) == i);
    indices.map(|i| Case::of_size(SIZES[i[axis::SIZE]], i))
}

/// A few cases in which every pair of choices on two axes occurs. Pairs are left out if the two
/// choices never have an effect together.
#[must_use]
pub fn pairwise() -> Vec<Case> {
    pairwise_of(&SIZES)
}

/// Like [`pairwise`], but with `sizes`, at least one, as the choices on the size axis.
///
/// A case with one rank or no values sends no messages. It counts only for pairs that include that
/// size or that count, so every other pair occurs in a case with messages.
#[must_use]
pub fn pairwise_of(sizes: &[usize]) -> Vec<Case> {
    let cases = cover(sizes).into_iter();
    cases.map(|i| Case::of_size(sizes[i[axis::SIZE]], i)).collect()
}

/// Two axes, the later one first, and the choice on each.
type ChoicePair = [(usize, usize); 2];

/// A set of choices: a bit for each choice on each axis.
type Choices = u128;

/// A set of pairs of choices.
struct PairSet {
    /// Number of choices on all axes before each axis.
    n_before: [usize; AXES.len()],
    n_choices: Indices,
    /// For each choice on each axis, the choices with which it is in the set.
    partners: Vec<Choices>,
}

impl PairSet {
    fn empty(sizes: &[usize]) -> Self {
        let mut n_choices = AXES;
        n_choices[axis::SIZE] = sizes.len();
        let mut n = 0;
        let n_before = n_choices.map(|n_more| {
            n += n_more;
            n - n_more
        });
        assert!(n <= Choices::BITS as usize, "a bit for each choice");
        Self { n_before, n_choices, partners: vec![0; n] }
    }

    /// All pairs that can be in the set, in order.
    fn all_pairs(&self) -> impl Iterator<Item = ChoicePair> + use<> {
        let n_choices = self.n_choices;
        let choices = move |axes: usize| {
            (0..axes).flat_map(move |axis| (0..n_choices[axis]).map(move |choice| (axis, choice)))
        };
        choices(AXES.len()).flat_map(move |one| choices(one.0).map(move |other| [one, other]))
    }

    fn index(&self, (axis, choice): (usize, usize)) -> usize {
        self.n_before[axis] + choice
    }

    fn has(&self, [one, other]: ChoicePair) -> bool {
        self.partners[self.index(one)] >> self.index(other) & 1 == 1
    }

    fn set(&mut self, [one, other]: ChoicePair, is_in: bool) {
        for (one, other) in [(one, other), (other, one)] {
            let (index, bit) = (self.index(one), 1 << self.index(other));
            let partners = &mut self.partners[index];
            *partners = if is_in { *partners | bit } else { *partners & !bit };
        }
    }

    /// Returns for each axis the choices with which the case covers its choice on that axis.
    fn covered(&self, i: &Indices, sizes: &[usize]) -> [Choices; AXES.len()] {
        let bit = |axis: usize| 1 << self.index((axis, i[axis]));
        let has_effect = effective_axes(i);
        let mut covered = [0; AXES.len()];
        for axis in (0..AXES.len()).filter(|&axis| has_effect[axis]) {
            covered[axis] = bit(axis);
        }
        let all: Choices = covered.iter().sum();
        let has_one_rank = sizes[i[axis::SIZE]] == 1;
        // The first choice on the axis is a count of 0.
        let is_empty = i[axis::COUNT] == 0;
        for (axis, covered) in covered.iter_mut().enumerate().filter(|(_, own)| **own != 0) {
            *covered = all & !*covered;
            if has_one_rank && axis != axis::SIZE {
                *covered &= bit(axis::SIZE);
            }
            if is_empty && axis != axis::COUNT {
                *covered &= bit(axis::COUNT);
            }
        }
        covered
    }
}

/// Selects cases greedily until no pair is missing.
fn cover(sizes: &[usize]) -> Vec<Indices> {
    let mut missing = PairSet::empty(sizes);
    let n_choices = missing.n_choices;
    missing.partners.fill(Choices::MAX);
    let mut random = Random(42);
    let mut cases = Vec::new();
    for first in missing.all_pairs() {
        if !missing.has(first) {
            continue;
        }
        // Among candidates with the first missing pair, select the one that covers the most missing
        // pairs.
        let candidates = (0..1000).map(|_| {
            let mut indices = n_choices;
            indices.iter_mut().for_each(|index| *index = random.below(*index));
            for (axis, choice) in first {
                indices[axis] = choice;
            }
            normalised(indices)
        });
        let [(axis, _), other] = first;
        let candidates = candidates
            .filter(|i| first.iter().all(|&(axis, choice)| i[axis] == choice))
            .map(|i| (i, missing.covered(&i, sizes)))
            .filter(|(_, covered)| covered[axis] >> missing.index(other) & 1 == 1);
        // Each pair counts twice.
        let gain = |(i, covered): &(Indices, [Choices; AXES.len()])| -> u32 {
            let choices =
                i.iter().zip(&missing.n_before).map(|(choice, n_before)| choice + n_before);
            let gains = choices.zip(covered).map(|(at, covered)| missing.partners[at] & covered);
            gains.map(Choices::count_ones).sum()
        };
        let best = candidates.take(200).max_by_key(gain);
        // If no candidate was found, the two choices never have an effect together.
        missing.set(first, false);
        if let Some((best, covered)) = best {
            for (axis, covered) in covered.into_iter().enumerate() {
                let index = missing.index((axis, best[axis]));
                missing.partners[index] &= !covered;
            }
            cases.push(best);
        }
    }
    cases
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::ROUTES;
    use crate::suite;

    /// The pairs of choices that a case covers, one by one.
    fn covered_pairs<'a>(i: &'a Indices, sizes: &[usize]) -> impl Iterator<Item = ChoicePair> + 'a {
        let has_effect = effective_axes(i);
        let has_one_rank = sizes[i[axis::SIZE]] == 1;
        // The first choice on the axis is a count of 0.
        let is_empty = i[axis::COUNT] == 0;
        let pairs = (0..AXES.len()).flat_map(|a| (0..a).map(move |b| (a, b)));
        let pairs = pairs.filter(move |&(a, b)| {
            let is_of = |axis| a == axis || b == axis;
            has_effect[a]
                && has_effect[b]
                && (!has_one_rank || is_of(axis::SIZE))
                && (!is_empty || is_of(axis::COUNT))
        });
        pairs.map(|(a, b)| [(a, i[a]), (b, i[b])])
    }

    /// Every pair that any case covers, found without the search. Only the choices on a few axes
    /// decide which choices have an effect, and this loop tries all combinations on these axes.
    fn possible(sizes: &[usize]) -> PairSet {
        const DECISIVE: [usize; 8] = [
            axis::ROUTE,
            axis::CODEC,
            axis::OP,
            axis::TYPE,
            axis::IN_PLACE,
            axis::BOUND,
            axis::SCOPE,
            axis::ROUGH,
        ];
        let mut pairs = PairSet::empty(sizes);
        let n_choices = pairs.n_choices;
        let total: usize = DECISIVE.iter().map(|&axis| AXES[axis]).product();
        for mut index in 0..total {
            let mut indices = [0; AXES.len()];
            for axis in DECISIVE {
                indices[axis] = index % AXES[axis];
                index /= AXES[axis];
            }
            let indices = normalised(indices);
            let has_effect = effective_axes(&indices);
            let choices = |axis: usize| match DECISIVE.contains(&axis) {
                true => indices[axis]..indices[axis] + 1,
                false => 0..n_choices[axis],
            };
            for a in (0..AXES.len()).filter(|&a| has_effect[a]) {
                for b in (0..a).filter(|&b| has_effect[b]) {
                    for (x, y) in choices(a).flat_map(|x| choices(b).map(move |y| (x, y))) {
                        pairs.set([(a, x), (b, y)], true);
                    }
                }
            }
        }
        pairs
    }

    /// Also tests the suite's sizes. Backends with processes run each of them as a job of its own.
    #[test]
    fn few_cases_cover_every_pair_of_choices() {
        for sizes in [&SIZES[..], &suite::SIZES] {
            let cases = cover(sizes);
            let mut lost = possible(sizes);
            cases
                .iter()
                .flat_map(|i| covered_pairs(i, sizes))
                .for_each(|pair| lost.set(pair, false));
            let lost: Vec<_> = lost.all_pairs().filter(|&pair| lost.has(pair)).collect();
            assert!(lost.is_empty(), "{sizes:?}: {lost:?}");
            // With `SIZES`, every pair of route and size needs a case of its own. Allow a fifth
            // more. The suite has fewer sizes, so its cases stay below the same limit.
            let few = ROUTES.len() * SIZES.len() * 6 / 5;
            assert!(cases.len() < few, "{sizes:?}: {} cases", cases.len());
            println!("{sizes:?}: {} cases", cases.len());
        }
    }
}
