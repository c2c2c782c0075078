//! The Adam optimizer (D. Kingma, J. Ba, ICLR 2015).
//!
//! Each weight moves by about the learning rate, whatever the scale of its gradient: by rate·m/√v.
//! Here m is the running mean of the gradient, and v that of its square.

use super::neural_net::NeuralNet;

/// Decay factors of the two running means.
const KEPT: [f32; 2] = [0.9, 0.999];
/// Added to √v, so that a zero gradient does not divide by zero.
const LEAST: f32 = 1e-8;

/// The running means of gradients and of their squares.
#[derive(Debug)]
pub(super) struct Adam {
    means: NeuralNet,
    squares: NeuralNet,
    n_steps: i32,
}

impl Adam {
    /// An optimizer before its first step, for a network of this shape.
    pub(super) fn new(net: &NeuralNet) -> Self {
        Self { means: net.zeroed(), squares: net.zeroed(), n_steps: 0 }
    }

    /// Updates all weights by one step.
    pub(super) fn step(&mut self, net: &mut NeuralNet, gradient: &NeuralNet, rate: f32) {
        self.n_steps += 1;
        // The means began at 0. These factors correct the bias.
        let [for_mean, for_square] = KEPT.map(|kept| 1.0 / (1.0 - kept.powi(self.n_steps)));
        let gradients = net.arrays_mut().zip(gradient.arrays());
        let means = self.means.arrays_mut().zip(self.squares.arrays_mut());
        for ((weights, gradient), (means, squares)) in gradients.zip(means) {
            let all = weights.iter_mut().zip(gradient).zip(means).zip(squares);
            for (((weight, &slope), mean), square) in all {
                *mean += (1.0 - KEPT[0]) * (slope - *mean);
                *square += (1.0 - KEPT[1]) * (slope * slope - *square);
                *weight -= rate * for_mean * *mean / ((for_square * *square).sqrt() + LEAST);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With constant gradients, the running means equal the gradient and its square.
    #[test]
    fn weights_move_by_the_rate_against_their_gradient() {
        let mut net = NeuralNet::new(&[2, 3, 1]);
        let before = net.clone();
        let mut gradient = net.zeroed();
        for (at, slope) in gradient.arrays_mut().flatten().enumerate() {
            *slope = if at % 2 == 0 { 1e-3 } else { -50.0 };
        }
        let mut adam = Adam::new(&net);
        (0..5).for_each(|_| adam.step(&mut net, &gradient, 0.01));
        for ((now, then), slope) in
            net.arrays().flatten().zip(before.arrays().flatten()).zip(gradient.arrays().flatten())
        {
            assert!((now - then + 0.05 * slope.signum()).abs() < 1e-5, "{then}, {now}, {slope}");
        }
    }
}
