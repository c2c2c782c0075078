//! Checks of a [`Case`]'s results.

use super::{Case, Operation};
use crate::places::Places;
use crate::{Backend, Threads, data, oracle, with_type};
use foldwire::codec::Loss;
use foldwire::schedule::ProgramSpec;
use foldwire::{Collective, Communicator, Error, Float, Rank, Report, Scope, Transport};

impl Case {
    /// Runs the case, checks every rank's result, and returns a [word](Self::word) of each.
    ///
    /// # Panics
    /// If a result is wrong. The message names the case.
    pub fn check<B: Backend>(&self, backend: &B) -> Vec<u64> {
        with_type!(self.dtype, T => self.check_as::<T, B>(backend))
    }

    fn check_as<T: Float, B: Backend>(&self, backend: &B) -> Vec<u64> {
        let places = Places::of(backend, self.size);
        let outcomes = backend.run(self.size, |mut comm| self.outcome::<T, _>(&places, &mut comm));
        let inputs = self.inputs::<T>();
        for (rank, (result, report)) in backend.ranks(self.size).zip(&outcomes) {
            // If all results must be the same, the loop below compares the other ranks' results
            // with rank 0's.
            if rank == 0 || !self.is_the_same_everywhere() {
                let verdict = self.verify(rank, result, report, &inputs);
                verdict.unwrap_or_else(|wrong| panic!("{self:?}, rank {rank}: {wrong}"));
            }
        }
        let words = outcomes.iter().map(|(result, report)| Self::word(result, report)).collect();
        let words = backend.gather(words);
        assert_eq!(words.len(), self.size, "{self:?}: ranks are missing");
        if self.is_the_same_everywhere() {
            for (rank, word) in words.iter().enumerate() {
                assert!(*word == words[0], "{self:?}: rank {rank} differs from rank 0");
            }
        }
        words
    }

    /// Runs the case, and compares every rank's [word](Self::word) with that of the threads
    /// backend. The threads use frames of the same capacity, and their results are
    /// [checked](Self::check). A device must refuse a case that it does not support; then it runs a
    /// similar one.
    ///
    /// # Panics
    /// If a result or its reported bounds differ. The message names the case.
    pub fn compare_with_threads<B: Backend>(&self, backend: &B) {
        let places = Places::of(backend, self.size);
        if !places.support(self) {
            with_type!(self.dtype, T => self.expect_refusal::<T, B>(backend, &places));
        }
        let case = places.adapt(self);
        with_type!(case.dtype, T => case.compare_as::<T, B>(backend, &places));
    }

    fn compare_as<T: Float, B: Backend>(&self, backend: &B, places: &Places<'_>) {
        let outcomes = backend.run_transports(self.size, |transport| {
            let n_bytes = transport.frame_capacity();
            let mut comm = Communicator::new(transport).expect("frames are large enough");
            let (result, report) = self.outcome::<T, _>(places, &mut comm);
            (Self::word(&result, &report), n_bytes)
        });
        let (words, n_bytes): (_, Vec<usize>) = outcomes.into_iter().unzip();
        let words = backend.gather(words);
        // Every process has the words of all ranks, so only one process compares them.
        if backend.ranks(self.size).start == 0 {
            let of_threads = self.check(&Threads { frame_bytes: n_bytes.first().copied() });
            assert!(words == of_threads, "{self:?}: {words:x?}, between threads {of_threads:x?}");
        }
    }

    /// Checks that ranks on devices refuse the case before they send anything.
    fn expect_refusal<T: Float, B: Backend>(&self, backend: &B, places: &Places<'_>) {
        backend.run(self.size, |mut comm| {
            if places.is_on_device(comm.rank()) {
                let refused = self.run_rank_at::<T, _>(places, &mut comm).map(drop);
                let is_typed = matches!(refused, Err(Error::NotOnDevice { .. }));
                assert!(is_typed, "{self:?}, rank {}: {refused:?}", comm.rank());
            }
            comm.barrier().expect("the communicator stays usable");
        });
    }

    fn outcome<T: Float, X: Transport>(
        &self,
        places: &Places<'_>,
        comm: &mut Communicator<X>,
    ) -> (Vec<T>, Report) {
        let outcome = self.run_rank_at::<T, _>(places, comm);
        outcome.unwrap_or_else(|error| panic!("{self:?}, rank {}: {error}", comm.rank()))
    }

    /// A digest of a rank's result and of the bounds in the report.
    #[must_use]
    pub fn word<T: Float>(result: &[T], report: &Report) -> u64 {
        // Errors are not negative, so −1 means none.
        let bounds = [report.bound, report.worst_case.unwrap_or(-1.0)];
        data::digest(result) ^ data::digest(&bounds)
    }

    /// Returns whether all ranks end with the same bits.
    #[must_use]
    pub fn is_the_same_everywhere(&self) -> bool {
        matches!(
            self.collective,
            Collective::AllReduce | Collective::AllGather | Collective::Broadcast
        )
    }

    /// Inputs of all ranks. They may contain more values than a rank contributes.
    #[must_use]
    pub fn inputs<T: Float>(&self) -> Vec<Vec<T>> {
        self.inputs_by(&|_| *self)
    }

    /// Like [`inputs`](Self::inputs), if each rank made a case of its own: `made_by` returns the
    /// case of a rank. Only the counts of these cases are used.
    #[must_use]
    pub fn inputs_by<T: Float>(&self, made_by: &dyn Fn(usize) -> Self) -> Vec<Vec<T>> {
        let input = |rank: usize| Self { count: made_by(rank).count, ..*self }.input(rank);
        (0..self.size).map(input).collect()
    }

    /// Compares one rank's result with the oracle, given all ranks' inputs.
    ///
    /// # Errors
    /// A description of the mistake.
    pub fn verify<T: Float>(
        &self,
        rank: usize,
        result: &[T],
        report: &Report,
        inputs: &[Vec<T>],
    ) -> Result<(), String> {
        self.verify_among(rank, result, report, inputs, &|_| *self)
    }

    /// Like [`verify`](Self::verify), if each rank made a case of its own for the call: `made_by`
    /// returns the case of a rank. The counts of these cases may differ from this case's, if no
    /// rank can detect the difference.
    ///
    /// # Errors
    /// A description of the mistake.
    pub fn verify_among<T: Float>(
        &self,
        rank: usize,
        result: &[T],
        report: &Report,
        inputs: &[Vec<T>],
        made_by: &dyn Fn(usize) -> Self,
    ) -> Result<(), String> {
        // This case with the counts that the rank's own case has.
        let dealt_by = |rank| {
            let Self { deal, count, .. } = made_by(rank);
            Self { deal, count, ..*self }
        };
        let requested = self.requested_bound(inputs, &dealt_by);
        let terms = match self.coding().loss() {
            Loss::Bound => oracle::error_terms(self),
            Loss::Setting => None,
            _ => Some(0.0),
        };
        // The bound may be smaller than requested, if it refers to the range of a sample or is
        // divided among operands. The tolerance allows for the rounding of bounds.
        let is_kept = report.bound <= requested * (1.0 + 1e-12);
        let worst_case = terms.map(|n| n * report.bound);
        if !is_kept || !is_about(report.worst_case, worst_case) {
            return Err(format!(
                "bound {requested:e} was requested, worst case {worst_case:?} expected; {report:?}"
            ));
        }
        let bound_on_result = (self.scope == Scope::Result && self.coding().loss() == Loss::Bound)
            .then_some(requested);
        let limits = match self.coding().loss() {
            Loss::Setting => ErrorLimits::of_setting(self, inputs),
            _ => ErrorLimits { bound: report.bound, worst_case: report.worst_case },
        };
        let origins = self.origins(rank, &dealt_by);
        if result.len() != origins.len() {
            return Err(format!("{} values instead of {}", result.len(), origins.len()));
        }
        let call = ProgramSpec::new(self.collective, self.size, Rank::new(self.root));
        let mut operands = vec![0.0; call.n_operands(Rank::new(rank))];
        for (place, (&got, (owner, at))) in result.iter().zip(origins).enumerate() {
            let context = |wrong| format!("value {place}: {wrong}; {report:?}");
            for (operand, input) in operands.iter_mut().zip(inputs) {
                // If nothing is reduced, only the owner's operand is used.
                *operand = input.get(at).map_or(0.0, |x| x.to_f64());
            }
            let error = self.error_of(got, owner, &operands, limits).map_err(context)?;
            if !bound_on_result.is_none_or(|bound| error <= bound) {
                return Err(context(format!("off by {error:e}")));
            }
        }
        Ok(())
    }

    /// Returns the error of a value that is made of `operands`, or a description of the mistake. If
    /// nothing is reduced, the value is the operand of `owner`.
    fn error_of<T: Float>(
        &self,
        got: T,
        owner: usize,
        operands: &[f64],
        limits: ErrorLimits,
    ) -> Result<f64, String> {
        let ErrorLimits { bound, worst_case } = limits;
        let got = got.to_f64();
        let is_same = |want: f64| got == want || (got.is_nan() && want.is_nan());
        if !self.collective.reduces() {
            let sent = operands[owner];
            let error = if is_same(sent) { 0.0 } else { (got - sent).abs() };
            return if error <= bound { Ok(error) } else { Err(format!("{sent} became {got}")) };
        }
        let exact = oracle::reduce(self.op, operands);
        let rounded = T::from_f64(exact).to_f64();
        if !rounded.is_finite() {
            // The result is beyond `T`'s range, or not a number. A product may overflow in one
            // order of factors and not in another.
            let is_right = is_same(rounded) || self.multiplies();
            return if is_right { Ok(0.0) } else { Err(format!("{exact} became {got}")) };
        }
        let is_set = self.coding().loss() == Loss::Setting;
        if self.multiplies() && (is_set || operands.iter().any(|x| x.abs() > 1e30)) {
            // Not checked. With fill values, the error of a product or norm is the bound times the
            // other operands. With a codec's setting, the error is not known.
            return Ok(0.0);
        }
        let encodings = oracle::encodings_of(self) as f64;
        let allowed = oracle::tolerance::<T>(self.op, operands, bound, worst_case, encodings);
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

    /// The absolute bound on each operand that the case requests, for these inputs.
    fn requested_bound<T: Float>(
        &self,
        inputs: &[Vec<T>],
        dealt_by: &dyn Fn(usize) -> Self,
    ) -> f64 {
        match self.coding().loss() {
            Loss::Bound => {}
            Loss::Setting => return f64::INFINITY,
            _ => return 0.0,
        }
        let contributed = inputs.iter().enumerate().flat_map(|(rank, input)| {
            let made = dealt_by(rank);
            let dealt = made.dealt(input, rank);
            let range = match self.collective {
                Collective::Broadcast | Collective::Scatter if rank != self.root => 0..0,
                Collective::AllGather | Collective::Gather => made.share(rank),
                _ => 0..dealt.len(),
            };
            range.map(move |at| dealt[at].to_f64())
        });
        oracle::absolute(self.bound, contributed)
    }
}

/// Allowed errors.
#[derive(Clone, Copy)]
struct ErrorLimits {
    /// Allowed error of each operand.
    bound: f64,
    /// Allowed error of the result.
    worst_case: Option<f64>,
}

impl ErrorLimits {
    /// Limits for a codec that keeps no bound: the error of its setting on the largest possible
    /// sum.
    fn of_setting<T: Float>(case: &Case, inputs: &[Vec<T>]) -> Self {
        let values = inputs.iter().flatten().map(|x| x.to_f64()).filter(|x| x.is_finite());
        let largest = values.fold(0.0, |max: f64, x| max.max(x.abs())) * inputs.len() as f64;
        let bound = oracle::lost(case.coding(), T::DTYPE) * largest;
        Self { bound, worst_case: oracle::error_terms(case).map(|n_errors| n_errors * bound) }
    }
}

/// Returns whether two numbers are equal up to rounding, or both missing.
fn is_about(a: Option<f64>, b: Option<f64>) -> bool {
    match (a, b) {
        (Some(a), Some(b)) => (a - b).abs() <= 1e-12 * b,
        (a, b) => a == b,
    }
}
