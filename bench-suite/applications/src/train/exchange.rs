//! Averaging of gradients over ranks, in any float type.
//!
//! An exchange is exact or has an error bound. With a bound, it rounds to nearest or without bias.
//! With *feedback*, a rank keeps the error that an exchange made (its *residues*), and adds it to
//! the next gradient.

use foldwire::{
    Bound, DType, Element, Error, Float, Op, Plan, Report, Rounding, SharedCommunicator,
};
use foldwire_arguments::{RoundingArg, TrainArgs};
use foldwire_threads::Endpoint;
use foldwire_workbench::with_float;
use serde::Serialize;

use super::neural_net::NeuralNet;

/// A combination of settings for the average.
#[derive(Debug, Clone, Serialize)]
pub(super) struct GradientExchange {
    /// `raw`, or the bound followed by the settings that differ from the defaults.
    #[serde(rename = "exchange")]
    pub(super) name: String,
    #[serde(skip)]
    bound: Option<Bound>,
    pub(super) rounding: RoundingArg,
    pub(super) feedback: bool,
}

impl GradientExchange {
    /// The uncompressed exchange first, then each combination of bound, rounding and feedback that
    /// the user requested.
    pub(super) fn all(args: &TrainArgs) -> Vec<Self> {
        let raw = Self {
            name: "raw".to_owned(),
            bound: None,
            rounding: RoundingArg::Nearest,
            feedback: false,
        };
        let mut all = vec![raw];
        for &bound in &args.bound {
            for &rounding in &args.rounding {
                for &feedback in &args.feedback {
                    let feedback = feedback.into();
                    let unbiased = matches!(rounding, RoundingArg::Unbiased);
                    let mut name = bound.to_string();
                    name += if unbiased { " unbiased" } else { "" };
                    name += if feedback { " feedback" } else { "" };
                    all.push(Self { name, bound: Some(bound), rounding, feedback });
                }
            }
        }
        all
    }

    /// The plan of a step. Each step has its own seed, because with one seed all steps would round
    /// values in the same direction.
    fn plan(&self, step: usize) -> Plan {
        let plan = self.bound.map_or_else(Plan::raw, Plan::foldwire);
        match self.rounding {
            RoundingArg::Nearest => plan,
            RoundingArg::Unbiased => plan.with_rounding(Rounding::unbiased(step as u64)),
        }
    }
}

/// A buffer for a rank's gradient, with the element type hidden.
pub(super) trait GradientBuffer {
    /// Copies this rank's gradient in, rounded to the element type. A [`NeuralNet`] also holds
    /// gradients, which have a value for each weight.
    fn load(&mut self, gradient: &NeuralNet);

    /// Averages the gradients of all ranks, in one call.
    fn average(
        &mut self,
        comm: &SharedCommunicator<'_, Endpoint>,
        exchange: &GradientExchange,
        step: usize,
    ) -> Result<Report, Error>;

    /// Copies the buffer's gradient to `gradient`.
    fn store(&self, gradient: &mut NeuralNet);
}

/// Returns a buffer for gradients of this network in this type, with residues of zero.
pub(super) fn gradient_buffer(net: &NeuralNet, dtype: DType) -> Box<dyn GradientBuffer> {
    with_float!(dtype, T => Box::new(TypedGradients::<T>::new(net)))
}

/// A rank's gradient in the element type that ranks exchange.
#[derive(Debug)]
struct TypedGradients<T: Element> {
    arrays: Vec<Vec<T>>,
    /// Errors that earlier exchanges made in this rank's gradient. Exchanges with feedback use
    /// them.
    residues: Vec<Vec<T::Residue>>,
}

impl<T: Float> TypedGradients<T> {
    fn new(net: &NeuralNet) -> Self {
        let lens: Vec<usize> = net.arrays().map(<[f32]>::len).collect();
        let arrays = lens.iter().map(|&n| vec![T::from_f64(0.0); n]).collect();
        let residues = lens.iter().map(|&n| vec![T::Residue::default(); n]).collect();
        Self { arrays, residues }
    }
}

impl<T: Float> GradientBuffer for TypedGradients<T> {
    fn load(&mut self, gradient: &NeuralNet) {
        for (to, from) in self.arrays.iter_mut().zip(gradient.arrays()) {
            to.iter_mut().zip(from).for_each(|(to, &from)| *to = T::from_f64(from.into()));
        }
    }

    fn average(
        &mut self,
        comm: &SharedCommunicator<'_, Endpoint>,
        exchange: &GradientExchange,
        step: usize,
    ) -> Result<Report, Error> {
        let plan = exchange.plan(step);
        // A raw plan ignores the bound.
        let bound = exchange.bound.unwrap_or(Bound::Absolute(1.0));
        let mut arrays: Vec<(&mut [T], Bound)> =
            self.arrays.iter_mut().map(|array| (&mut array[..], bound)).collect();
        let reports = if exchange.feedback {
            let mut residues: Vec<&mut [T::Residue]> =
                self.residues.iter_mut().map(|residues| &mut residues[..]).collect();
            comm.all_reduce_group_with_feedback(&mut arrays, &mut residues, Op::Avg, &plan)?
        } else {
            comm.all_reduce_group(&mut arrays, Op::Avg, &plan)?
        };
        let mut all = Report::default();
        reports.into_iter().for_each(|report| all += report);
        Ok(all)
    }

    fn store(&self, gradient: &mut NeuralNet) {
        for (to, from) in gradient.arrays_mut().zip(&self.arrays) {
            to.iter_mut().zip(from).for_each(|(to, from)| *to = from.to_f64() as f32);
        }
    }
}
