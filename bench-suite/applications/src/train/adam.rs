//! How weights follow their gradient: Adam (D. Kingma, J. Ba, ICLR 2015).
//!
//! Each weight moves by about the rate, whatever the scale of its gradient: by rate·m/√v, with m
//! and v the running means of its gradient and of that squared.

use super::neural_net::NeuralNet;

/// How much of the means remains after a step.
const KEPT: [f32; 2] = [0.9, 0.999];
/// Below this a gradient is as good as none.
const LEAST: f32 = 1e-8;

/// The running means.
#[derive(Debug)]
pub(super) struct Adam {
    means: NeuralNet,
    squares: NeuralNet,
    n_steps: i32,
}

impl Adam {
    /// Before the first step of a network like this.
    pub(super) fn new(net: &NeuralNet) -> Self {
        Self { means: net.zeroed(), squares: net.zeroed(), n_steps: 0 }
    }

    /// Moves all weights by a step.
    pub(super) fn step(&mut self, net: &mut NeuralNet, gradient: &NeuralNet, rate: f32) {
        self.n_steps += 1;
        // Means that began at 0 are too small by these factors.
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

    /// For gradients that stay as they are, the means are those gradients.
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
