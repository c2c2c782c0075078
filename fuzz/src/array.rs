//! Any values of an array of any shape through codec interp and the automatic choice: each value is
//! within the bound or has the same bits.

use arbitrary::{Result, Unstructured};
use foldwire::codec::CodecId;
use foldwire::compress::{Layout, compress_with, decompress};
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
    let bound = bound(u)?;
    let [rows, row] = [u.int_in_range(1..=9)?, u.int_in_range(1..=50)?];
    let planes = u.int_in_range(0..=MAX_VALUES / rows / row)?;
    let shape = [planes, rows, row];
    let values = values::<T>(u, shape.iter().product(), bound)?;
    let plan = Plan::auto(Bound::Absolute(bound));
    for plan in [plan.with_codec(CodecId::Interp), plan] {
        match compress_with(&values, &Layout::new(&shape), &plan) {
            Ok(bytes) => {
                let decoded = decompress::<T>(&bytes).expect("what we write, we can read");
                assert_within(bound, &values, &decoded);
            }
            Err(error) => assert!(!(bound > 0.0 && bound.is_finite()), "{error}"),
        }
    }
    Ok(())
}
