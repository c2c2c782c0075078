//! Pseudorandom numbers that are the same for the same seed on every platform.

/// SplitMix64 (G. Steele, D. Lea, C. Flood, "Fast splittable pseudorandom number generators",
/// OOPSLA 2014). Its state is one word, which starts as the seed. It is good enough for inputs and
/// delays, not for secrets.
#[derive(Clone, Copy, Debug)]
pub struct Random(pub u64);

impl Random {
    /// Returns the next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// Returns a number uniform in 0…1.
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Returns a number in `0..n`, or 0 if `n` is 0.
    pub fn below(&mut self, n: usize) -> usize {
        // The bias is at most n / 2⁶⁴.
        ((u128::from(self.bits()) * n as u128) >> 64) as usize
    }

    /// Returns true once in `n` times on average; never if `n` is 0.
    pub fn one_in(&mut self, n: usize) -> bool {
        n > 0 && self.below(n) == 0
    }

    /// Picks one of the choices.
    ///
    /// # Panics
    /// If there are no choices.
    pub fn pick<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[self.below(choices.len())]
    }

    /// Shuffles `items`.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.below(i + 1));
        }
    }
}

/// A bijection of 64-bit words in which every bit of the result depends on every bit of `z`.
pub(crate) const fn mix(z: u64) -> u64 {
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_the_reference() {
        // The first outputs of the authors' program for seed 1234567.
        let mut random = Random(1_234_567);
        let expected = [6_457_827_717_110_365_317, 3_203_168_211_198_807_973];
        assert_eq!([random.bits(), random.bits()], expected);
    }

    #[test]
    fn a_shuffle_keeps_every_item_and_choices_stay_in_range() {
        let mut random = Random(5);
        let mut items: Vec<usize> = (0..50).collect();
        random.shuffle(&mut items);
        assert!(items != (0..50).collect::<Vec<_>>());
        items.sort_unstable();
        assert_eq!(items, (0..50).collect::<Vec<_>>());
        assert!(
            (0..1000).all(|n| random.below(n) < n.max(1) && (0.0..1.0).contains(&random.unit()))
        );
        assert!(!random.one_in(0) && random.one_in(1));
    }
}
