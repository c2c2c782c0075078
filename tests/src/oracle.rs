//! What a reduction should give, in `f64`, and how far a result may be off.

use crate::case::Operation;
use foldwire::Element;

/// The exact reduction of one value of every rank (up to `f64` rounding).
#[must_use]
pub fn reduce(op: Operation, operands: &[f64]) -> f64 {
    let n = operands.len() as f64;
    let fold = |f: fn(f64, f64) -> f64| operands[1..].iter().fold(operands[0], |a, &b| f(a, b));
    let ordered = |f: fn(f64, f64) -> f64| {
        if operands.iter().any(|x| x.is_nan()) { f64::NAN } else { fold(f) }
    };
    match op {
        Operation::Sum => fold(|a, b| a + b),
        Operation::Avg => fold(|a, b| a + b) / n,
        Operation::Min => ordered(f64::min),
        Operation::Max => ordered(f64::max),
        Operation::Prod => fold(|a, b| a * b),
        Operation::Norm => fold(f64::hypot),
    }
}

/// How far a result may be from the exact one: the codec's share and the rounding of `T`.
///
/// `bound` is the bound on each operand, `worst_case` what the library promises for the result, if it
/// promises anything; `encodings` how many lossy encodings can add up.
#[must_use]
pub fn tolerance<T: Element>(
    op: Operation,
    operands: &[f64],
    bound: f64,
    worst_case: Option<f64>,
    encodings: f64,
) -> f64 {
    let n = operands.len() as f64;
    let magnitude: f64 = operands.iter().map(|x| x.abs()).sum();
    let rounding = 2.0 * (n + 4.0) * T::UNIT_ROUNDOFF;
    match op {
        Operation::Sum => worst_case.unwrap_or(f64::NAN) + rounding * magnitude,
        Operation::Avg => worst_case.unwrap_or(f64::NAN) + rounding * magnitude / n,
        Operation::Min | Operation::Max => {
            worst_case.unwrap_or(f64::NAN)
                + 2.0 * T::UNIT_ROUNDOFF * operands.iter().fold(0.0, |m, x| x.abs().max(m))
        }
        // The norm moves by at most what an operand moves, so errors add.
        Operation::Norm => encodings * bound + rounding * magnitude,
        // |Π(x+e) − Πx| ≤ Π(|x|+|e|) − Π|x|; each encoding of a partial product adds e to it, which
        // the factors that follow scale by at most their own product.
        Operation::Prod => {
            let product: f64 = operands.iter().map(|x| x.abs().max(1.0)).product();
            let off: f64 = operands.iter().map(|x| x.abs().max(1.0) + bound).product();
            (off - product) + encodings * bound * off + rounding * off
        }
    }
}
