//! Any text as a plan, a bound, a list of speeds or rules: refused, with a message of some length,
//! or the same whatever the order of its words; and an array within the bound of its plan.
//!
//! The first byte selects what the text is.

use foldwire::Bound;
use foldwire::compress::{Layout, compress_with, decompress};
use foldwire::plan::PlanSpec;
use foldwire::select::{Speeds, parse};

/// Most characters of a message, beside the text's own.
const MAX_MESSAGE: usize = 800;

/// Runs the target on an input.
pub fn check(input: &[u8]) {
    let Some((&first, text)) = input.split_first() else { return };
    let text = String::from_utf8_lossy(text);
    match first % 4 {
        0 => plan(&text),
        1 => match text.parse::<Bound>() {
            Ok(bound) => assert_eq!(bound.to_string().parse(), Ok(bound)),
            Err(error) => is_short(&error, 0),
        },
        2 => match text.parse::<Speeds>() {
            Ok(speeds) => assert!(speeds.to_string().parse::<Speeds>().is_ok(), "{speeds}"),
            Err(error) => is_short(&error, 0),
        },
        _ => {
            if let Err(error) = parse(&text) {
                is_short(&error, text.len());
            }
        }
    }
}

fn is_short(error: &dyn std::fmt::Display, n_own: usize) {
    let n_chars = error.to_string().len();
    assert!(n_chars > 0 && n_chars <= MAX_MESSAGE + 2 * n_own, "{error}");
}

fn plan(text: &str) {
    let parsed = match text.parse::<PlanSpec>() {
        Ok(parsed) => parsed,
        Err(error) => return is_short(&error, text.len()),
    };
    let plan = parsed.plan().expect("it was checked");
    let words: Vec<&str> = text.split(',').rev().collect();
    let turned: PlanSpec = words.join(",").parse().expect("words have no order");
    assert_eq!(turned.plan(), Ok(plan), "{text}");
    let values: Vec<f32> = (0..300).map(|i| (i as f32 * 0.1).sin() + (i % 7) as f32).collect();
    let compressed = match compress_with(&values, &Layout::line(values.len()), &plan) {
        Ok(compressed) => compressed,
        Err(error) => return is_short(&error, 0),
    };
    let again = decompress::<f32>(&compressed).expect("our own output");
    let pairs = values.iter().zip(&again).map(|(&x, &y)| (f64::from(x), f64::from(y)));
    let error = pairs.clone().map(|(x, y)| (x - y).abs()).fold(0.0, f64::max);
    let [low, high] = values.iter().fold([f64::INFINITY, f64::NEG_INFINITY], |[low, high], &x| {
        [low.min(x.into()), high.max(x.into())]
    });
    match plan.bound {
        Some(Bound::Absolute(bound)) => assert!(error <= bound, "{error} with {text}"),
        Some(Bound::Relative(bound)) => {
            // The product is rounded.
            let bound = bound * (high - low) * (1.0 + f64::EPSILON);
            assert!(error <= bound, "{error} with {text}");
        }
        _ => {}
    }
}
