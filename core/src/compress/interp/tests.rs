//! Every level gives the same bytes and values, within the bound, and damaged payloads are refused
//! or read to the end.

use super::memory::Arrays;
use super::*;
use std::vec;

/// SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % end
    }
}

/// A surface with noise of this size; one value in so many is none.
fn surface<T: Sample>([nz, ny, nx]: [usize; 3], noise: f64, one_in: u64) -> Vec<T> {
    let odd = [f64::NAN, f64::INFINITY, 1e30, -1e300, -0.0, 1e-310];
    let mut random = Random(9);
    let value = |i: usize| {
        let [z, y, x] = [i / nx / ny, i / nx % ny, i % nx].map(|at| at as f64);
        let wave = libm::sin(x * 0.05) * libm::cos(y * 0.07) + 0.1 * libm::sin(z * 0.3);
        let rough = noise * random.below(1000) as f64 / 1000.0;
        let is_odd = random.below(one_in) == 0;
        T::of(if is_odd { odd[random.below(odd.len() as u64) as usize] } else { wave + rough })
    };
    (0..nz * ny * nx).map(value).collect()
}

fn bits<T: Sample>(values: &[T]) -> Vec<T::Bits> {
    values.iter().map(|value| value.bits()).collect()
}

/// Memory that another array has left behind.
fn dirty_memory() -> Memory {
    let mut memory = Memory::default();
    let values = surface::<f64>([5, 50, 300], 1.0, 7);
    let quantum = Quantum::new::<f64>(1e-3).expect("positive");
    let payload = encode_as(&mut memory, Level::best(), &values, [300, 15_000], quantum, &mut None);
    let mut read = vec![0.0; values.len()];
    let payload = payload.expect("a lattice");
    decode_as(&mut memory, Level::best(), &payload, &mut read).expect("undamaged");
    soil(&mut memory);
    memory
}

/// Overwrites what an array has left behind.
fn soil(memory: &mut Memory) {
    let Arrays { codes, active, thinned, is_off } = &mut memory.arrays;
    codes.iter_mut().chain(active).chain([thinned]).for_each(|slab| slab.fill(u64::MAX / 3));
    is_off.fill(true);
}

/// Decodes by each level, which must agree, and returns the values.
fn decoded<T: Sample>(
    memory: &mut Memory,
    payload: &[u8],
    n_values: usize,
) -> Result<Vec<T>, DecodeError> {
    let mut read = |level: Level| {
        let mut values = vec![T::of(7.0); n_values];
        decode_as(memory, level, payload, &mut values).map(|()| values)
    };
    let expected = read(Level::Scalar);
    for level in Level::available() {
        let found = read(level);
        let is_same = match (&found, &expected) {
            (Ok(found), Ok(expected)) => bits(found) == bits(expected),
            (found, expected) => found.as_ref().err() == expected.as_ref().err(),
        };
        assert!(is_same, "{level:?}");
    }
    expected
}

fn every_level<T: Sample>(memory: &mut Memory, sizes: [usize; 3], noise: f64, one_in: u64) {
    let values = surface::<T>(sizes, noise, one_in);
    let grid = Grid::new(sizes);
    let strides = [grid.strides[1] as u32, grid.strides[0] as u32];
    for bound in [0.1, 1e-3, 1e-6] {
        let quantum = Quantum::new::<T>(bound).expect("positive");
        soil(memory);
        let mut choice = None;
        let mut chosen = encode_as(memory, Level::Scalar, &values, strides, quantum, &mut choice);
        let choice = choice.expect("a lattice");
        for scheme in [choice.scheme, Scheme::Raster] {
            let of_level =
                |level| encode_by(&mut Memory::default(), level, scheme, &values, grid, quantum);
            let payload = of_level(Level::Scalar).expect("a lattice");
            assert!(Level::available().all(|level| of_level(level).as_ref() == Some(&payload)));
            assert!(chosen.take().is_none_or(|chosen| chosen == payload));
            let read = decoded::<T>(memory, &payload, values.len()).expect("undamaged");
            for (x, y) in values.iter().zip(&read) {
                let is_near = (x.wide() - y.wide()).abs() <= bound;
                assert!(is_near || x.bits() == y.bits(), "{sizes:?}, {bound}: {x:?}, {y:?}");
            }
        }
    }
}

#[test]
fn every_level_gives_the_same_bytes_and_values_within_the_bound() {
    let memory = &mut dirty_memory();
    for sizes in [[1, 1, 1], [1, 1, 70], [1, 1, 3001], [1, 37, 50], [9, 17, 35], [3, 2, 1100]] {
        for (noise, one_in) in [(0.0, 1 << 40), (1.0, 1 << 40), (1e-3, 20)] {
            every_level::<f32>(memory, sizes, noise, one_in);
            every_level::<f64>(memory, sizes, noise, one_in);
        }
    }
    // Enough for 32 states.
    every_level::<f32>(memory, [1, 200, 300], 1.0, 1000);
}

#[test]
fn damaged_payloads_are_refused_or_read_to_the_end() {
    let mut memory = dirty_memory();
    for sizes in [[1, 1, 700], [1, 20, 35], [5, 10, 14]] {
        let grid = Grid::new(sizes);
        let strides = [grid.strides[1] as u32, grid.strides[0] as u32];
        let values = surface::<f32>(sizes, 0.01, 50);
        let quantum = Quantum::new::<f32>(1e-3).expect("positive");
        let payload = encode_as(&mut memory, Level::best(), &values, strides, quantum, &mut None);
        let payload = payload.expect("a lattice");
        for n_bytes in 0..payload.len() {
            assert!(
                decoded::<f32>(&mut memory, &payload[..n_bytes], 700).is_err(),
                "{sizes:?}: {n_bytes}"
            );
        }
        let mut random = Random(3);
        for _ in 0..3000 {
            let mut damaged = payload.clone();
            for _ in 0..=random.below(2) {
                let at = random.below(damaged.len() as u64) as usize;
                damaged[at] ^= 1 + random.below(255) as u8;
            }
            let _ = decoded::<f32>(&mut memory, &damaged, 700);
        }
    }
}

mod long {
    use super::*;
    use crate::kernel::at_level::{Task, run};
    use grid::LINE;
    use std::num::NonZero;
    use std::thread;

    /// Rounds all patterns with these upper 16 bits.
    struct Patterns<'a> {
        lattice: &'a Lattice,
        bound: f64,
        upper: u32,
        prediction: i32,
        width: u8,
    }

    impl Task for Patterns<'_> {
        type Output = ();

        #[inline(always)]
        fn run(self) {
            let Self { lattice, bound, upper, prediction, width } = self;
            let (mut codes, mut residuals) = ([0; LINE], [0; LINE]);
            let mut is_off = [false; LINE];
            for block in 0..65_536 / LINE as u32 {
                let bits = |i| upper << 16 | (block * LINE as u32 + i as u32);
                let values: [f32; LINE] = core::array::from_fn(|i| f32::from_bits(bits(i)));
                let from = (&values[..], &[prediction; LINE][..]);
                lattice.round(from, width, &mut codes, &mut residuals, &mut is_off);
                let mut is_right = true;
                for i in 0..LINE {
                    let code = prediction.wrapping_add(residuals[i].wrapping_mul(width.into()));
                    let error = (f64::from(values[i]) - lattice.value::<f32>(code).wide()).abs();
                    is_right &= is_off[i] || code == codes[i] && error <= bound;
                    // A value is off for a reason: no point within reach is near.
                    let is_small = values[i].abs() < 1e3 * bound as f32;
                    is_right &= !is_off[i] || !is_small;
                }
                assert!(is_right, "{upper:#x}, block {block}, bound {bound}");
            }
        }
    }

    #[test]
    fn every_pattern_of_f32_is_within_the_bound_or_off_the_lattice() {
        for (bound, prediction, width) in [(1e-3, 0, 17), (0.37, -1234, 11), (1e-30, 5, 1)] {
            let quantum = Quantum::new::<f32>(bound).expect("positive");
            let step = quantum.step() / f64::from(width);
            let lattice = &Lattice::of_step(step).expect("normal").within(quantum.bound());
            let n_threads = thread::available_parallelism().map_or(1, NonZero::get) as u32;
            thread::scope(|scope| {
                for first in 0..n_threads {
                    scope.spawn(move || {
                        for upper in (first..65_536).step_by(n_threads as usize) {
                            let task = Patterns { lattice, bound, upper, prediction, width };
                            run(Level::best(), task);
                        }
                    });
                }
            });
        }
    }
}
