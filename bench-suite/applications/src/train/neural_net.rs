//! A small neural network: linear layers with tanh between them, and their gradient.
//!
//! Layer k computes y = W·x + b. All layers but the last then apply tanh. Backpropagation (D.
//! Rumelhart, G. Hinton, R. Williams, 1986) computes the gradient of a sample's error. With δ the
//! derivative by a layer's sums, ∂/∂W is x·δ and ∂/∂b is δ. The previous layer's δ is (1 − x²)·Wᵀδ.
//! A sample costs two operations per weight forward, and four backward. Initial weights follow X.
//! Glorot and Y. Bengio (AISTATS 2010): uniform within √(6/(inputs + outputs)).

use std::iter;

use foldwire_sim::Random;
use xxhash_rust::xxh3::xxh3_64;

/// Seed of the initial weights.
const SEED: u64 = 1;

/// Weights and biases of all layers. Also holds other data with a value per weight, such as a
/// gradient.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct NeuralNet {
    layers: Vec<Layer>,
}

#[derive(Debug, Clone, PartialEq)]
struct Layer {
    /// A row per input, with a weight per output.
    weights: Vec<f32>,
    biases: Vec<f32>,
}

/// Buffers for the computation of one sample, reused for the next one.
#[derive(Debug)]
pub(super) struct SampleWorkspace {
    /// The inputs, then each layer's outputs.
    values: Vec<Vec<f32>>,
    /// Derivatives of the error by each layer's sums (δ).
    slopes: Vec<Vec<f32>>,
}

impl NeuralNet {
    /// A network with these layer widths, inputs first. Its initial weights are the same every
    /// time.
    pub(super) fn new(widths: &[usize]) -> Self {
        let mut random = Random(SEED);
        let layers = widths.windows(2).map(|width| {
            let limit = (6.0 / (width[0] + width[1]) as f64).sqrt();
            let weight = || ((2.0 * random.unit() - 1.0) * limit) as f32;
            Layer {
                weights: iter::repeat_with(weight).take(width[0] * width[1]).collect(),
                biases: vec![0.0; width[1]],
            }
        });
        Self { layers: layers.collect() }
    }

    /// A network of the same shape that holds zeros.
    pub(super) fn zeroed(&self) -> Self {
        let mut zeroed = self.clone();
        zeroed.arrays_mut().for_each(|array| array.fill(0.0));
        zeroed
    }

    /// Each layer's weights, followed by its biases.
    pub(super) fn arrays(&self) -> impl Iterator<Item = &[f32]> {
        self.layers.iter().flat_map(|layer| [&layer.weights[..], &layer.biases[..]])
    }

    /// Each layer's weights, followed by its biases.
    pub(super) fn arrays_mut(&mut self) -> impl Iterator<Item = &mut [f32]> {
        self.layers.iter_mut().flat_map(|layer| [&mut layer.weights[..], &mut layer.biases[..]])
    }

    /// Number of weights and biases of a network with these widths.
    pub(super) fn n_values(widths: &[usize]) -> usize {
        widths.windows(2).map(|width| (width[0] + 1) * width[1]).sum()
    }

    /// A digest of all bits.
    pub(super) fn digest(&self) -> u64 {
        let digests = self.arrays().map(|array| xxh3_64(bytemuck::cast_slice(array)));
        digests.fold(0, |all: u64, one| all.rotate_left(1) ^ one)
    }

    /// Buffers to compute a sample in.
    pub(super) fn workspace(&self) -> SampleWorkspace {
        let slopes: Vec<Vec<f32>> =
            self.layers.iter().map(|layer| vec![0.0; layer.biases.len()]).collect();
        let n_inputs =
            self.layers.first().map_or(0, |layer| layer.weights.len() / layer.biases.len());
        let values = iter::once(vec![0.0; n_inputs]).chain(slopes.iter().cloned()).collect();
        SampleWorkspace { values, slopes }
    }

    /// Computes the network's first output for the inputs in `workspace`.
    pub(super) fn predict(&self, workspace: &mut SampleWorkspace) -> f32 {
        for (at, layer) in self.layers.iter().enumerate() {
            let (before, after) = workspace.values.split_at_mut(at + 1);
            let (inputs, outputs) = (&before[at], &mut after[0]);
            outputs.copy_from_slice(&layer.biases);
            for (&input, row) in inputs.iter().zip(layer.weights.chunks_exact(outputs.len())) {
                add(outputs, input, row);
            }
            if at + 1 < self.layers.len() {
                outputs.iter_mut().for_each(|y| *y = y.tanh());
            }
        }
        workspace.values.last().map_or(0.0, |outputs| outputs[0])
    }

    /// Adds `weight` times the gradient of the squared error for the inputs in `workspace`. Returns
    /// the squared error.
    pub(super) fn add_gradient(
        &self,
        workspace: &mut SampleWorkspace,
        target: f32,
        weight: f32,
        gradient: &mut Self,
    ) -> f32 {
        let error = self.predict(workspace) - target;
        let SampleWorkspace { values, slopes } = workspace;
        if let Some(last) = slopes.last_mut() {
            last.fill(0.0);
            last[0] = 2.0 * weight * error;
        }
        let layers = self.layers.iter().zip(&mut gradient.layers).enumerate();
        for (at, (layer, gradient)) in layers.rev() {
            let (before, after) = slopes.split_at_mut(at);
            let (inputs, slopes) = (&values[at], &after[0]);
            add(&mut gradient.biases, 1.0, slopes);
            let rows = gradient.weights.chunks_exact_mut(slopes.len());
            for (&input, row) in inputs.iter().zip(rows) {
                add(row, input, slopes);
            }
            if let Some(before) = before.last_mut() {
                let rows = layer.weights.chunks_exact(slopes.len());
                for ((slope, &input), row) in before.iter_mut().zip(inputs).zip(rows) {
                    *slope = (1.0 - input * input) * dot(row, slopes);
                }
            }
        }
        error * error
    }
}

impl SampleWorkspace {
    /// Buffer of the network's inputs.
    pub(super) fn inputs(&mut self) -> &mut [f32] {
        &mut self.values[0]
    }
}

/// Adds `factor` times `row`.
fn add(sums: &mut [f32], factor: f32, row: &[f32]) {
    for (sum, value) in sums.iter_mut().zip(row) {
        *sum += factor * value;
    }
}

/// Dot product, in eight partial sums that the processor can add in parallel.
fn dot(a: &[f32], b: &[f32]) -> f32 {
    let ((a, rest_a), (b, rest_b)) = (a.as_chunks::<8>(), b.as_chunks::<8>());
    let mut sums = [0.0; 8];
    for (a, b) in a.iter().zip(b) {
        for ((sum, a), b) in sums.iter_mut().zip(a).zip(b) {
            *sum += a * b;
        }
    }
    let rest: f32 = rest_a.iter().zip(rest_b).map(|(a, b)| a * b).sum();
    sums.iter().sum::<f32>() + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Weighted squared error of two samples together; the second one has weight 3.
    fn loss(net: &NeuralNet, gradient: Option<&mut NeuralNet>) -> f32 {
        let mut workspace = net.workspace();
        let mut sink = net.zeroed();
        let gradient = gradient.unwrap_or(&mut sink);
        let samples = [([0.3, -0.8, 0.5], 0.7, 1.0), ([-0.6, 0.1, 0.9], -1.2, 3.0)];
        let losses = samples.map(|(inputs, target, weight)| {
            workspace.inputs().copy_from_slice(&inputs);
            weight * net.add_gradient(&mut workspace, target, weight, gradient)
        });
        losses.iter().sum()
    }

    #[test]
    fn the_gradient_is_that_of_finite_differences() {
        let mut net = NeuralNet::new(&[3, 11, 9, 1]);
        for (at, bias) in net.layers.iter_mut().flat_map(|layer| &mut layer.biases).enumerate() {
            *bias = 0.1 * (at as f32).sin();
        }
        let mut gradient = net.zeroed();
        loss(&net, Some(&mut gradient));
        let steepest = gradient.arrays().flatten().fold(0.0_f32, |a, b| a.max(b.abs()));
        assert!(steepest > 0.5);
        let step = 1e-2;
        for (array, gradient) in gradient.arrays().enumerate() {
            for (at, &slope) in gradient.iter().enumerate() {
                let moved = |by: f32| {
                    let mut net = net.clone();
                    net.arrays_mut().nth(array).unwrap()[at] += by;
                    loss(&net, None)
                };
                let expected = (moved(step) - moved(-step)) / (2.0 * step);
                let difference = (slope - expected).abs();
                assert!(difference < 1e-3 * steepest, "{array}, {at}: {slope}, {expected}");
            }
        }
    }

    #[test]
    fn networks_begin_alike_and_digests_tell_one_bit() {
        let net = NeuralNet::new(&[4, 8, 1]);
        assert_eq!(net, NeuralNet::new(&[4, 8, 1]));
        let n_values: usize = net.arrays().map(<[f32]>::len).sum();
        assert_eq!((n_values, NeuralNet::n_values(&[4, 8, 1])), (49, 49));
        let limit = (6.0_f32 / 12.0).sqrt();
        assert!(net.layers[0].weights.iter().all(|x| x.abs() <= limit));
        let mut other = net.clone();
        let bias = &mut other.layers[1].biases[0];
        *bias = -*bias;
        assert_eq!(other, net);
        assert_ne!(other.digest(), net.digest());
    }
}
