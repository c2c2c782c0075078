//! The shape (`--shape`) for codecs that predict values from other rows.

use foldwire::Float;
use foldwire::codec::CodecParams;
use foldwire_fields::dims::Dims;
use foldwire_fields::usage::{UsageError, usage};
use std::str::FromStr;

/// Source of the shape.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ShapeArg {
    /// The file's dimensions, unless others that a search finds are better.
    OfFile,
    /// A search for rows and planes in the values.
    Found,
    /// No shape: the array is one row.
    Line,
    /// Dimensions from the command line.
    Given(Dims),
}

impl FromStr for ShapeArg {
    type Err = UsageError;

    fn from_str(text: &str) -> Result<Self, UsageError> {
        Ok(match text {
            "file" => Self::OfFile,
            "find" => Self::Found,
            "none" => Self::Line,
            dims => {
                Self::Given(dims.parse().map_err(|error| usage!("{error}; or file, find or none"))?)
            }
        })
    }
}

impl ShapeArg {
    /// Returns the dimensions for calls, which search the values themselves if there are none.
    pub fn known<'a>(&'a self, of_file: &'a Dims) -> Option<&'a Dims> {
        match self {
            Self::OfFile => Some(of_file),
            Self::Given(dims) => Some(dims),
            Self::Found | Self::Line => None,
        }
    }

    /// Returns `params` with the shape that this source gives for `values`. `of_file` holds the
    /// file's dimensions.
    pub fn tell<T: Float>(&self, params: CodecParams, of_file: &Dims, values: &[T]) -> CodecParams {
        match self {
            Self::OfFile => params.with_shape(of_file.sizes()).with_shape_of(values),
            Self::Found => params.with_shape_of(values),
            Self::Line => params,
            Self::Given(dims) => params.with_shape(dims.sizes()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_dimensions_are_shapes_and_nothing_else() {
        let shape = |text: &str| text.parse::<ShapeArg>();
        assert_eq!(shape("file"), Ok(ShapeArg::OfFile));
        assert_eq!(shape("find"), Ok(ShapeArg::Found));
        assert_eq!(shape("none"), Ok(ShapeArg::Line));
        assert_eq!(shape("8x9"), Ok(ShapeArg::Given(Dims::new(vec![8, 9]).unwrap())));
        let file = Dims::new(vec![72]).unwrap();
        let known = |text: &str| shape(text).unwrap().known(&file).map(ToString::to_string);
        assert_eq!(["file", "8x9"].map(known), [Some("72".into()), Some("8x9".into())]);
        assert_eq!(["find", "none"].map(known), [None, None]);
        let message = shape("8by9").unwrap_err().to_string();
        assert!(message.contains("file, find or none"), "{message}");
    }
}
