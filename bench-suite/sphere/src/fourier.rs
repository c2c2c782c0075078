//! Fourier transforms of rows.
//!
//! A row of n values, n even, has n coefficients: the mean, then cosine and sine of each
//! wavenumber. The last wavenumber, n / 2, has only a cosine.

use std::sync::Arc;

use realfft::num_complex::Complex;
use realfft::{ComplexToReal, RealFftPlanner, RealToComplex};

/// Transforms of rows of one length.
pub(super) struct Fourier {
    forward: Arc<dyn RealToComplex<f64>>,
    backward: Arc<dyn ComplexToReal<f64>>,
    line: Vec<f64>,
    spectrum: Vec<Complex<f64>>,
    scratch: Vec<Complex<f64>>,
}

impl Fourier {
    pub(super) fn new(n_columns: usize) -> Self {
        let mut planner = RealFftPlanner::new();
        let forward = planner.plan_fft_forward(n_columns);
        let backward = planner.plan_fft_inverse(n_columns);
        let n_scratch = forward.get_scratch_len().max(backward.get_scratch_len());
        Self {
            line: forward.make_input_vec(),
            spectrum: forward.make_output_vec(),
            scratch: vec![Complex::default(); n_scratch],
            forward,
            backward,
        }
    }

    /// Wavenumber of a coefficient.
    pub(super) const fn wavenumber(coefficient: usize) -> usize {
        coefficient.div_ceil(2)
    }

    /// Computes the coefficients of a row, and passes each to `put(index, coefficient)`.
    pub(super) fn waves(&mut self, row: &[f64], mut put: impl FnMut(usize, f64)) {
        self.line.copy_from_slice(row);
        self.forward
            .process_with_scratch(&mut self.line, &mut self.spectrum, &mut self.scratch)
            .expect("the buffers are of the plan's lengths");
        let scale = 1.0 / row.len() as f64;
        for at in 0..row.len() {
            let wave = self.spectrum[Self::wavenumber(at)];
            put(at, scale * if is_sine(at) { wave.im } else { wave.re });
        }
    }

    /// Computes the row with the given coefficients.
    pub(super) fn row(&mut self, wave: impl Fn(usize) -> f64, row: &mut [f64]) {
        self.spectrum.fill(Complex::default());
        for at in 0..row.len() {
            let place = &mut self.spectrum[Self::wavenumber(at)];
            let part = if is_sine(at) { &mut place.im } else { &mut place.re };
            *part = wave(at);
        }
        self.backward
            .process_with_scratch(&mut self.spectrum, row, &mut self.scratch)
            .expect("the buffers are of the plan's lengths");
    }

    /// Multiplies each coefficient of a row by the factor of its wavenumber.
    pub(super) fn filter(&mut self, factors: &[f64], row: &mut [f64]) {
        let mut waves = vec![0.0; row.len()];
        self.waves(row, |at, wave| waves[at] = wave * factors[Self::wavenumber(at)]);
        self.row(|at| waves[at], row);
    }
}

/// True for a sine. After the mean, cosines have odd indices and sines even ones.
const fn is_sine(at: usize) -> bool {
    at > 0 && at.is_multiple_of(2)
}

/// Filter factors at a latitude with this cosine, by wavenumber. Applied in each step, they damp
/// waves that are shorter than about the shortest wave at 60°: the shorter, the more. `None` if
/// nothing is filtered there.
pub(super) fn polar_factors(cos: f64, n_columns: usize) -> Option<Vec<f64>> {
    const COS_60: f64 = 0.5;
    let factor = |wavenumber: usize| {
        let sin = (wavenumber as f64 * std::f64::consts::PI / n_columns as f64).sin();
        if wavenumber == 0 { 1.0 } else { (cos / COS_60 / sin).min(1.0) }
    };
    (cos < COS_60).then(|| (0..=n_columns / 2).map(factor).collect())
}
