//! Tests of exceptions. The main one checks that the result for a value does not depend on the
//! other values.

use super::*;
use crate::op;

/// Random mixture of exceptions and lattice points.
struct Sample<T> {
    values: Vec<T>,
    is_exception: Vec<bool>,
    /// The same values, with 0 in place of exceptions.
    plain: Vec<T>,
}

impl<T: Float> Sample<T> {
    /// Makes `n` values. Each is an exception with a probability of `density` / 32, or else a point
    /// whose code has at most `bits` bits.
    fn new(n: usize, seed: u64, density: u64, bits: u32, step: f64) -> Self {
        let mut kinds = vec![f64::NAN, -f64::NAN, f64::INFINITY, f64::NEG_INFINITY];
        // In `f16` every finite value is on the lattice.
        kinds.extend([T::MAX, T::MIN].map(T::to_f64).into_iter().filter(|x| x.abs() > 1e9));
        let mut random = Random(seed ^ density << 20 ^ u64::from(bits) << 30);
        let same = random.next().is_multiple_of(2);
        let mut sample = Self { values: vec![], is_exception: vec![], plain: vec![] };
        for _ in 0..n {
            let is_exception = random.next() % 32 < density;
            // Mostly one kind of exception, as in masked data, or all kinds.
            let nth = if same && !random.next().is_multiple_of(8) { seed } else { random.next() };
            let code = step * (random.next() & ((1 << bits) - 1)) as f64;
            let kind = kinds[nth as usize % kinds.len()];
            sample.values.push(T::from_f64(if is_exception { kind } else { code }));
            sample.plain.push(T::from_f64(if is_exception { 0.0 } else { code }));
            sample.is_exception.push(is_exception);
        }
        sample
    }

    fn n_exceptions(&self) -> usize {
        self.is_exception.iter().filter(|is| **is).count()
    }

    /// Returns the exceptions in their places, and `points` in the other places.
    fn or(&self, points: &[T]) -> Vec<T> {
        let pairs = self.values.iter().zip(points).zip(&self.is_exception);
        pairs.map(|((&x, &point), &is)| if is { x } else { point }).collect()
    }
}

const DENSITIES: [u64; 6] = [0, 1, 4, 16, 31, 32];

fn exceptions_change_no_other_value<T: Float>() {
    let quantum = Quantum::new::<T>(0.5).unwrap();
    let params = |level, averages| {
        let params = CodecParams::new(quantum).at(level);
        if averages { params.for_averages_of(4) } else { params.for_sums_of(4) }
    };
    let scalar = FzLight::from_params(&params(Level::Scalar, false));
    for n in [1, 2, 7, 31, 32, 33, 64, 71, 128, 4096 + 33] {
        for density in DENSITIES {
            for bits_of_codes in [0, 1, 6, 15] {
                let sample = |seed, density| {
                    Sample::<T>::new(n, seed, density, bits_of_codes, quantum.step())
                };
                let x = sample(1, density);
                let y = sample(2, DENSITIES[(density as usize + n) % 6]);
                let [(frame, points), (other, other_points)] = [&x, &y].map(|x| {
                    let points = decoded(&scalar, &encoded(&scalar, &x.plain), n);
                    (encoded(&scalar, &x.values), points)
                });
                for level in Level::available() {
                    let context = (level, n, density, bits_of_codes);
                    let codec = FzLight::from_params(&params(level, false));
                    let mut bytes = vec![0xAA; codec.max_encoded_len(n).unwrap()];
                    let written = codec.encode(&x.values, &mut bytes).unwrap();
                    assert!(bytes[..written.n_bytes] == frame, "{context:?}");
                    assert_eq!(written.blocks.exceptions, x.n_exceptions() as u64, "{context:?}");
                    let y_hat = decoded(&codec, &frame, n);
                    assert!(bits(&y_hat) == bits(&x.or(&points)), "{context:?}");
                    for op in [Op::Sum, Op::Min, Op::Max] {
                        let two: fn(T, T) -> T = match op {
                            Op::Sum => op::sum,
                            Op::Min => op::minimum,
                            _ => op::maximum,
                        };
                        // Expect the result in `T` where an operand is an exception, and the result
                        // on the lattice everywhere else.
                        let plain = combined(
                            &codec,
                            &op,
                            &encoded(&codec, &x.plain),
                            &encoded(&codec, &y.plain),
                        );
                        let mut expected = decoded(&codec, &plain, n);
                        let (a, b) = (x.or(&points), y.or(&other_points));
                        for i in 0..n {
                            if x.is_exception[i] || y.is_exception[i] {
                                expected[i] = two(a[i], b[i]);
                            }
                        }
                        let fold = folded(&codec, &op, &frame, &y.values);
                        assert!(bits(&decoded(&codec, &fold, n)) == bits(&expected), "{context:?}");
                        let combine = combined(&codec, &op, &frame, &other);
                        assert!(combine == fold, "{op:?}, {context:?}");
                        let swapped = combined(&codec, &op, &other, &frame);
                        assert!(swapped == fold, "{op:?}, {context:?}");
                        assert!(folded(&scalar, &op, &frame, &y.values) == fold, "{context:?}");
                        one_pass_is_two(&codec, &op, &frame, &y.values);
                    }
                    let codec = FzLight::from_params(&params(level, true));
                    let lowest = FzLight::from_params(&params(Level::Scalar, true));
                    let frame = encoded(&codec, &x.values);
                    let fold = folded(&codec, &Op::Avg, &frame, &y.values);
                    let combine = combined(&lowest, &Op::Avg, &frame, &encoded(&lowest, &y.values));
                    assert!(fold == combine, "{context:?}");
                    one_pass_is_two(&codec, &Op::Avg, &frame, &y.values);
                }
            }
        }
    }
}

#[test]
fn exceptions_leave_the_values_beside_them_on_the_lattice() {
    exceptions_change_no_other_value::<f32>();
    exceptions_change_no_other_value::<f64>();
    exceptions_change_no_other_value::<f16>();
    exceptions_change_no_other_value::<bf16>();
}

/// Checks the largest blocks: exceptions, and codes so far apart that residuals take all bits.
#[test]
fn the_widest_residuals_stand_beside_exceptions() {
    fn check<T: Float>(largest: f64) {
        let quantum = Quantum::new::<T>(0.5).unwrap();
        for n in [2, 31, 32, 33, 4096] {
            for period in [2, 3, 5, 33] {
                let far =
                    |i: usize| T::from_f64(if i.is_multiple_of(2) { largest } else { -largest });
                let nan = T::from_f64(if period == 3 { -f64::NAN } else { f64::NAN });
                let x: Vec<T> =
                    (0..n).map(|i| if i % period == 1 { nan } else { far(i) }).collect();
                for level in Level::available() {
                    let codec = FzLight::<T>::with_level(quantum, 512, level);
                    // Nine doublings multiply by 512: codes of 2²¹ become 2³⁰ (`f64`: 2⁵⁰ become
                    // 2⁵⁹).
                    let mut frame = encoded(&codec, &x);
                    for _ in 0..9 {
                        frame = combined(&codec, &Op::Sum, &frame, &frame);
                    }
                    let sums = decoded(&codec, &frame, n);
                    for (x, sum) in x.iter().zip(&sums) {
                        let exact = 512.0 * x.to_f64();
                        let error = (sum.to_f64() - exact).abs();
                        let close = error <= 1e-2 * exact.abs() || sum.to_f64().is_infinite();
                        assert!(x.finite() && close || !x.finite() && !sum.finite());
                    }
                }
            }
        }
    }
    check::<f32>(2_000_000.0);
    check::<f64>(1e15);
    check::<f16>(60_000.0);
    check::<bf16>(65_536.0);
}

#[test]
fn a_chunk_view_refuses_heads_of_blocks_that_contradict_themselves() {
    /// Returns whether a chunk of one block with this width byte, mask and number of stored
    /// exceptions is valid. Decodes it if so.
    fn view(n: usize, width: u8, mask: u32, n_stored: u8, n_bytes: usize) -> bool {
        let mut chunk = vec![chunk::DENSE | chunk::SPECIAL];
        chunk.extend(mask.to_le_bytes());
        chunk.push(n_stored);
        chunk.resize(1 + n_bytes, 0);
        chunk.extend([width, 0]);
        let len = chunk.len();
        chunk.resize(len + PAD, 0);
        let view = ChunkView::<f32>::parse(&chunk, len, n);
        if let Ok(view) = view {
            let mut values = vec![0.0; n];
            let scale = Scale::new(1.0, 1, 1.0);
            for level in Level::available() {
                Kernel::at(level).decode(&view, &scale, &mut values, Stores::Cached);
            }
        }
        view.is_ok()
    }
    // Valid: one exception, stored or repeated, and residuals of c bits.
    assert!(view(32, 0x80, 1, 1, 5 + 4) && view(32, 0x80, 1, 0, 5));
    assert!(view(32, 0x83, 1 << 31, 1, 5 + 12 + 4) && view(32, 0xa0, 2, 1, 5 + 124 + 4));
    assert!(view(2, 0x81, 1, 1, 5 + 4 + 4) && view(31, 0x80, 1 << 30, 0, 5));
    // Valid: one code between 31 exceptions.
    assert!(view(32, 0xa0, !8, 31, 5 + 4 + 124) && view(32, 0x81, !8, 0, 5 + 1));
    // Invalid masks: no exception, only exceptions, exceptions beyond the block.
    assert!(!view(32, 0x80, 0, 0, 5) && !view(32, 0x80, u32::MAX, 0, 5));
    assert!(!view(2, 0x80, 3, 0, 5) && !view(2, 0x80, 5, 0, 5) && !view(1, 0x80, 1, 0, 5));
    // Invalid: more exceptions stored than exist, sizes that do not add up, residuals too wide.
    assert!(!view(32, 0x80, 1, 2, 5 + 8) && !view(32, 0x80, 1, 255, 5 + 1020));
    assert!(!view(32, 0x80, 1, 1, 5) && !view(32, 0x80, 1, 0, 6) && !view(32, 0x81, 1, 0, 5));
    assert!(!view(32, 0xa1, 1, 0, 5 + 128) && !view(32, 0xfc, 1, 0, 5));
    // Invalid: an incomplete head.
    assert!((0..5).all(|n_bytes| !view(32, 0x80, 1, 0, n_bytes)));
}
