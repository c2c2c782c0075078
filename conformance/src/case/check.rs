//! Whether the results of a [`Case`] are right.

use super::{Case, Operation};
use crate::{Backend, data, oracle};
use foldwire::{Collective, Element, Report, Scope};

impl Case {
    /// Runs the case, checks every rank's result, and returns digests of them.
    ///
    /// # Panics
    /// If a result is wrong, naming the case.
    pub fn check<B: Backend>(&self, backend: &B) -> Vec<u64> {
        if self.is_f64 {
            self.check_as::<f64, B>(backend)
        } else {
            self.check_as::<f32, B>(backend)
        }
    }

    fn check_as<T: Element, B: Backend>(&self, backend: &B) -> Vec<u64> {
        let outcomes = backend.run(self.size, |mut comm| {
            let outcome = self.run_rank::<T, _>(&mut comm);
            outcome.unwrap_or_else(|error| panic!("{self:?}, rank {}: {error}", comm.rank()))
        });
        let inputs = self.inputs::<T>();
        for (rank, (result, report)) in backend.ranks(self.size).zip(&outcomes) {
            let verdict = self.verify(rank, result, report, &inputs);
            verdict.unwrap_or_else(|wrong| panic!("{self:?}, rank {rank}: {wrong}"));
        }
        let digests = outcomes.iter().map(|(result, _)| data::digest(result)).collect();
        let digests = backend.gather(digests);
        assert_eq!(digests.len(), self.size, "{self:?}: ranks are missing");
        if self.is_the_same_everywhere() {
            for (rank, digest) in digests.iter().enumerate() {
                assert!(*digest == digests[0], "{self:?}: rank {rank} differs from rank 0");
            }
        }
        digests
    }

    /// Whether all ranks end with the same bits.
    #[must_use]
    pub fn is_the_same_everywhere(&self) -> bool {
        matches!(
            self.collective,
            Collective::AllReduce | Collective::AllGather | Collective::Broadcast
        )
    }

    /// What every rank contributes (and more, where it does not contribute all).
    #[must_use]
    pub fn inputs<T: Element>(&self) -> Vec<Vec<T>> {
        (0..self.size).map(|rank| self.input(rank)).collect()
    }

    /// Compares one rank's result with the oracle, given all ranks' inputs.
    ///
    /// # Errors
    /// What is wrong.
    pub fn verify<T: Element>(
        &self,
        rank: usize,
        result: &[T],
        report: &Report,
        inputs: &[Vec<T>],
    ) -> Result<(), String> {
        let asked = self.asked(inputs);
        let terms = if self.codec.is_exact() { Some(0.0) } else { oracle::error_terms(self) };
        // A bound may come out smaller: of a sample's range, or shared among operands. Powers of
        // ten differ in the last bit.
        let is_kept = report.bound <= asked * (1.0 + 1e-12);
        let worst_case = terms.map(|n| n * report.bound);
        if !is_kept || !is_about(report.worst_case, worst_case) {
            return Err(format!(
                "{asked:e} was asked for, a worst case of {worst_case:?} expected; {report:?}"
            ));
        }
        let bound_on_result =
            (self.scope == Scope::Result && !self.codec.is_exact()).then_some(asked);
        let range = self.result_range(rank);
        if result.len() != range.len() {
            return Err(format!("{} values instead of {}", result.len(), range.len()));
        }
        for (&got, i) in result.iter().zip(range) {
            let context = |wrong| format!("value {i}: {wrong}; {report:?}");
            let error = self.error_of(got, i, inputs, report).map_err(context)?;
            if !bound_on_result.is_none_or(|bound| error <= bound) {
                return Err(context(format!("off by {error:e}")));
            }
        }
        Ok(())
    }

    /// How far one value is off, or what is wrong with it.
    fn error_of<T: Element>(
        &self,
        got: T,
        i: usize,
        inputs: &[Vec<T>],
        report: &Report,
    ) -> Result<f64, String> {
        let got = got.to_f64();
        let is_same = |want: f64| got == want || (got.is_nan() && want.is_nan());
        if !self.collective.reduces() {
            let owner = match self.collective {
                Collective::Broadcast | Collective::Scatter => self.root,
                _ => (0..self.size).find(|&r| self.share(r).contains(&i)).unwrap_or(0),
            };
            let sent = inputs[owner][i].to_f64();
            let error = if is_same(sent) { 0.0 } else { (got - sent).abs() };
            return if error <= report.bound {
                Ok(error)
            } else {
                Err(format!("{sent} became {got}"))
            };
        }
        let operands: Vec<f64> = inputs.iter().map(|x| x[i].to_f64()).collect();
        let exact = oracle::reduce(self.op, &operands);
        let rounded = T::from_f64(exact).to_f64();
        if !rounded.is_finite() {
            // Beyond T, or not a number to begin with. A product may get there on one way and not
            // on another.
            let is_right = is_same(rounded) || self.multiplies();
            return if is_right { Ok(0.0) } else { Err(format!("{exact} became {got}")) };
        }
        if self.multiplies() && operands.iter().any(|x| x.abs() > 1e30) {
            // Products and norms of fill values move by the bound times the other operands.
            return Ok(0.0);
        }
        let (bound, worst_case) = (report.bound, report.worst_case);
        let n = self.size as u64;
        let encodings = oracle::encodings(self.schedule.name(), self.collective, n) as f64;
        let allowed = oracle::tolerance::<T>(self.op, &operands, bound, worst_case, encodings);
        let error = (got - exact).abs();
        if error <= allowed {
            Ok(error)
        } else {
            Err(format!("{exact} became {got}, off by {error:e} of {allowed:e}"))
        }
    }

    fn multiplies(&self) -> bool {
        matches!(self.op, Operation::Prod | Operation::Norm)
    }

    /// The bound on each operand that the case asks for.
    fn asked<T: Element>(&self, inputs: &[Vec<T>]) -> f64 {
        if self.codec.is_exact() {
            return 0.0;
        }
        let contributed = inputs.iter().enumerate().map(|(rank, input)| match self.collective {
            Collective::Broadcast | Collective::Scatter if rank != self.root => &[],
            Collective::AllGather | Collective::Gather => &input[self.share(rank)],
            _ => &input[..],
        });
        oracle::absolute(self.bound, contributed.flatten().map(|x| x.to_f64()))
    }
}

/// Whether two numbers are the same but for rounding, or both missing.
fn is_about(a: Option<f64>, b: Option<f64>) -> bool {
    match (a, b) {
        (Some(a), Some(b)) => (a - b).abs() <= 1e-12 * b,
        (a, b) => a == b,
    }
}
