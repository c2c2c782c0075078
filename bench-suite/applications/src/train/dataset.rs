//! The training data: the values of a plane as a function of their positions.
//!
//! A position has two coordinates from −1 to 1. A network whose inputs are the coordinates learns
//! only smooth functions. So the inputs are sines and cosines of the position's projections on
//! random directions, with several wavelengths (M. Tancik et al., "Fourier features let networks
//! learn high frequency functions", NeurIPS 2020). Values are normalised to mean 0 and standard
//! deviation 1, so a network that always answers 0 has a loss of 1.

use std::f64::consts::TAU;

use foldwire_fields::usage::{UsageError, usage};
use foldwire_sim::Random;
use foldwire_workbench::data::{FieldSource, SIDE};

use super::neural_net::{NeuralNet, SampleWorkspace};

/// Inputs of the network: a sine and a cosine for each direction.
pub(super) const N_INPUTS: usize = 32;
/// Standard deviation of a direction's components, in waves per unit of a coordinate.
const WAVES: f64 = 0.7;
/// Seed of the directions and of the choice of held-out samples.
const SEED: u64 = 2;
/// Largest number of held-out samples.
const MAX_HELD: usize = 2048;
/// Least number of training samples for each held-out sample.
const TRAINING_PER_HELD: usize = 7;
/// Least number of samples of a usable plane.
const MIN_SAMPLES: usize = 64;

/// The samples of a plane, some of them held out.
#[derive(Debug)]
pub(super) struct PlaneDataset {
    /// The held-out samples come first.
    samples: Vec<PlaneSample>,
    n_held: usize,
    directions: Vec<[f64; 2]>,
    about: String,
}

#[derive(Debug, Clone, Copy)]
struct PlaneSample {
    position: [f64; 2],
    value: f32,
}

impl PlaneDataset {
    /// Reads the first plane of a field, along its two fastest dimensions. Values that are not
    /// finite are left out.
    ///
    /// # Errors
    /// If the field has one dimension, too few finite values, or only equal values.
    pub(super) fn new(source: &FieldSource) -> Result<Self, UsageError> {
        let (name, dims) = match source {
            FieldSource::BuiltIn => ("built-in waves".to_owned(), vec![SIDE, SIDE]),
            FieldSource::File(field) => (field.name.clone(), field.dims.sizes().to_vec()),
        };
        let &[.., n_rows, n_columns] = &dims[..] else {
            return Err(usage!(
                "{name} has one dimension and so no plane; save it as .npy, or put its dimensions \
                 into its name, as in temperature_64x128.f32"
            ));
        };
        let data = source.data::<f32>(1);
        let plane = &data.base()[..n_rows * n_columns];
        let of = |at: usize, n: usize| 2.0 * at as f64 / n.saturating_sub(1).max(1) as f64 - 1.0;
        let finite = plane.iter().enumerate().filter(|(_, value)| value.is_finite());
        let mut samples: Vec<PlaneSample> = finite
            .map(|(at, &value)| PlaneSample {
                position: [of(at / n_columns, n_rows), of(at % n_columns, n_columns)],
                value,
            })
            .collect();
        if samples.len() < MIN_SAMPLES {
            return Err(usage!(
                "the first plane of {name} ({n_rows}x{n_columns}) has {} finite values, too few to \
                 learn from; at least {MIN_SAMPLES} are needed",
                samples.len()
            ));
        }
        normalise(&mut samples)
            .ok_or_else(|| usage!("the first plane of {name} has the same value everywhere"))?;
        let mut random = Random(SEED);
        random.shuffle(&mut samples);
        let directions = (0..N_INPUTS / 2).map(|_| direction(&mut random)).collect();
        let n_held = (samples.len() / (TRAINING_PER_HELD + 1)).min(MAX_HELD);
        let about =
            format!("first plane of {name}, {n_rows}x{n_columns}, {n_held} values held out");
        Ok(Self { samples, n_held, directions, about })
    }

    /// Description of the data for people.
    pub(super) fn about(&self) -> &str {
        &self.about
    }

    /// Adds `weight` times the gradient for a training sample. Returns the squared error.
    ///
    /// `number` selects the sample pseudo-randomly; any number is valid.
    pub(super) fn add_gradient(
        &self,
        net: &NeuralNet,
        number: u64,
        weight: f32,
        workspace: &mut SampleWorkspace,
        gradient: &mut NeuralNet,
    ) -> f32 {
        let others = &self.samples[self.n_held..];
        let sample = Random(number).pick(others);
        self.set_inputs(sample, workspace);
        net.add_gradient(workspace, sample.value, weight, gradient)
    }

    /// Mean square error of the network's predictions for the held-out samples.
    pub(super) fn loss(&self, net: &NeuralNet) -> f64 {
        let mut workspace = net.workspace();
        let errors = self.samples[..self.n_held].iter().map(|sample| {
            self.set_inputs(sample, &mut workspace);
            (f64::from(net.predict(&mut workspace)) - f64::from(sample.value)).powi(2)
        });
        errors.sum::<f64>() / self.n_held as f64
    }

    /// Writes the network's inputs for a sample.
    fn set_inputs(&self, sample: &PlaneSample, workspace: &mut SampleWorkspace) {
        let [y, x] = sample.position;
        let inputs = workspace.inputs().as_chunks_mut().0;
        for ([sine, cosine], direction) in inputs.iter_mut().zip(&self.directions) {
            let (s, c) = (TAU * (direction[0] * y + direction[1] * x)).sin_cos();
            (*sine, *cosine) = (s as f32, c as f32);
        }
    }
}

/// Normalises the values. Returns `None` if all are equal.
fn normalise(samples: &mut [PlaneSample]) -> Option<()> {
    let n = samples.len() as f64;
    let value = |sample: &PlaneSample| f64::from(sample.value);
    let mean = samples.iter().map(value).sum::<f64>() / n;
    let square = samples.iter().map(|sample| (value(sample) - mean).powi(2)).sum::<f64>() / n;
    let deviation = square.sqrt();
    for sample in &mut *samples {
        sample.value = ((value(sample) - mean) / deviation) as f32;
    }
    (deviation > 0.0).then_some(())
}

/// A vector with normally distributed components (G. Box, M. Muller, 1958).
fn direction(random: &mut Random) -> [f64; 2] {
    let length = WAVES * (-2.0 * (1.0 - random.unit()).ln()).sqrt();
    let (sine, cosine) = (TAU * random.unit()).sin_cos();
    [length * sine, length * cosine]
}

#[cfg(test)]
mod tests {
    use super::*;
    use foldwire_fields::field::{Field, FieldValues};

    fn source(dims: &str, value: impl Fn(usize) -> f32) -> FieldSource {
        let dims: foldwire_fields::dims::Dims = dims.parse().unwrap();
        let values = FieldValues::F32((0..dims.n_values()).map(value).collect());
        FieldSource::File(Field { name: "a".into(), dims, values })
    }

    #[test]
    fn values_of_the_first_plane_have_mean_0_and_deviation_1() {
        // The second plane and a NaN in the first would distort the moments if they were used.
        let value = |at: usize| match at {
            5 => f32::NAN,
            _ if at >= 96 => 1e9,
            _ => 250.0 + (at % 12) as f32,
        };
        let dataset = PlaneDataset::new(&source("2x8x12", value)).unwrap();
        assert_eq!((dataset.samples.len(), dataset.n_held), (95, 11));
        let moment =
            |power| dataset.samples.iter().map(|s| s.value.powi(power)).sum::<f32>() / 95.0;
        assert!(moment(1).abs() < 1e-5 && (moment(2) - 1.0).abs() < 1e-5);
        // The value grows with the second coordinate.
        for sample in &dataset.samples {
            assert!(sample.position.iter().all(|x| x.abs() <= 1.0));
            let grown = sample.position[1] * f64::from(12_f32.powi(2) - 1.0).sqrt() / 2.0;
            assert!((f64::from(sample.value) * 3.5 - grown).abs() < 1.5, "{sample:?}");
        }
    }

    #[test]
    fn what_cannot_be_learned_is_an_error_of_use() {
        let ramp = |at: usize| at as f32;
        for (source, says) in [
            (source("200", ramp), "one dimension"),
            (source("9x7", ramp), "63 finite values"),
            (source("9x9", |_| 3.0), "same value"),
        ] {
            let message = PlaneDataset::new(&source).unwrap_err().to_string();
            assert!(message.contains(says), "{message}");
        }
    }
}
