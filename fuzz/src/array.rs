//! Any values of an array of any shape through codec interp and the automatic choice, within any
//! kind of bound, with and without a fill value: each value is within the bound or has the same
//! bits, and exactly the fill values come back as the fill value.

use arbitrary::{Result, Unstructured};
use foldwire::codec::CodecId;
use foldwire::compress::{Info, Layout, compress_with, decompress};
use foldwire::{Bound, Plan};

use crate::values::{FuzzValue, MAX_VALUES, assert_within, bound, values};

/// Runs the target on an input.
pub fn check(input: &[u8]) {
    let mut u = Unstructured::new(input);
    // An input that ends early is valid.
    let _ = match u.arbitrary().unwrap_or(false) {
        true => of::<f32>(&mut u),
        false => of::<f64>(&mut u),
    };
}

fn of<T: FuzzValue>(u: &mut Unstructured<'_>) -> Result<()> {
    let absolute = bound(u)?;
    let [rows, row] = [u.int_in_range(1..=9)?, u.int_in_range(1..=50)?];
    let planes = u.int_in_range(0..=MAX_VALUES / rows / row)?;
    let shape = [planes, rows, row];
    let values = values::<T>(u, shape.iter().product(), absolute)?;
    // An input that ends here has an absolute bound and no fill value.
    let plan = match u.int_in_range(0..=3)? {
        0 => Plan::auto(Bound::Absolute(absolute)),
        1 => Plan::auto(Bound::Relative(absolute)),
        2 => Plan::auto(Bound::Psnr(absolute)),
        _ => Plan::lossless(),
    };
    let fill = match u.int_in_range(0..=2)? {
        0 => None,
        1 => Some(u.arbitrary()?),
        _ => values.get(u.int_in_range(0..=u16::MAX)? as usize).map(|x| x.to_f64()),
    };
    let layout = Layout { fill_value: fill, ..Layout::new(&shape) };
    let fill = fill.map(|fill| T::from_f64(fill).raw());
    for plan in [plan.with_codec(CodecId::Interp), plan] {
        match compress_with(&values, &layout, &plan) {
            Ok(bytes) => {
                let info = Info::read(&bytes).expect("our own output");
                let decoded = decompress::<T>(&bytes).expect("what we write, we can read");
                assert!(info.bound <= largest_error(&plan, fill, &values), "{plan:?}, {info:?}");
                assert_within(info.bound, &values, &decoded);
                let is_missing = |x: &T| Some(x.raw()) == fill;
                assert!(values.iter().map(is_missing).eq(decoded.iter().map(is_missing)));
            }
            Err(error) => {
                let is_usable = plan.bound.is_none_or(|bound| bound.check_on_operands().is_ok());
                assert!(!is_usable, "{error}");
            }
        }
    }
    Ok(())
}

/// Returns the largest error that a plan allows, with the range of the finite values that are not
/// missing.
fn largest_error<T: FuzzValue>(plan: &Plan, fill: Option<u64>, values: &[T]) -> f64 {
    let counts = |x: &&T| x.to_f64().is_finite() && Some(x.raw()) != fill;
    let numbers = || values.iter().filter(counts).map(|x| x.to_f64());
    let min = numbers().fold(f64::INFINITY, f64::min);
    let max = numbers().fold(f64::NEG_INFINITY, f64::max);
    // The range of values near the largest may overflow.
    let range = if min > max { 0.0 } else { (max - min).min(f64::MAX) };
    match plan.bound {
        None => 0.0,
        Some(Bound::Absolute(bound)) => bound,
        Some(Bound::Relative(fraction)) => fraction * range,
        Some(Bound::Psnr(decibels)) => 10_f64.powf(-decibels / 20.0) * range * (1.0 + 1e-12),
        Some(other) => panic!("no input has {other}"),
    }
}
