//! Any bytes as a file of values: a usage error, or exactly as many values as the dimensions say.
//!
//! The first byte selects the file's name and the requested dimensions. The rest is the content.

use foldwire_fields::dims::Dims;
use foldwire_fields::field::Field;
use std::path::Path;

const NAMES: [&str; 6] = ["a.npy", "a.f32", "a.f64", "a_2x3.f32", "run-7x_4x1x2.f64", "a.dat"];

/// Runs the target on an input.
pub fn check(input: &[u8]) {
    let Some((&choice, content)) = input.split_first() else { return };
    let name = NAMES[usize::from(choice) % NAMES.len()];
    let dims = usize::from(choice) / NAMES.len();
    let dims = Dims::new(vec![dims % 8, dims / 8]).ok();
    let mut rest = content;
    let n_bytes = content.len() as u64;
    match Field::parse(Path::new(name), &mut rest, n_bytes, dims.as_ref()) {
        Ok(field) => {
            assert_eq!(field.values.n_values(), field.dims.n_values());
            assert!(field.values.n_bytes() <= content.len() && field.name == name);
            assert!(dims.is_none_or(|dims| dims == field.dims));
        }
        Err(error) => assert!(error.to_string().starts_with(name), "{error}"),
    }
}
