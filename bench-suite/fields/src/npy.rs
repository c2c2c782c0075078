//! The header of NumPy's `.npy` files: of any array, and of fields, which are arrays of float16,
//! float32 and float64. (NumPy has no bfloat16.)
//!
//! A file has these parts: `\x93NUMPY`; the version (major, minor); the length of the header (u16
//! in version 1.0, u32 in 2.0 and 3.0); the header; the values. The header is a Python dictionary
//! literal with the keys `descr`, `fortran_order` and `shape`. NumPy writes it with `repr`, so a
//! search for the quoted key is enough. Source: numpy.lib.format, "Format Version 1.0" to "3.0".
//!
//! Existing crates for this format depend on a parser generator, which needs an assembler at build
//! time. This module replaces them, to avoid both.

use std::io::{self, Read};

use foldwire::DType;

use crate::dims::{Dims, dimension};
use crate::usage::{UsageError, usage};

/// Magic bytes at the start of every file.
pub const MAGIC: [u8; 6] = *b"\x93NUMPY";

/// Longest header that is accepted. NumPy's own headers are below 1 KiB.
const MAX_HEADER_BYTES: usize = 1 << 16;

/// A header of any array, as it is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NpyText {
    /// Type of the values in numpy's notation, such as `<f4`.
    pub descr: String,
    /// True if the first dimension is contiguous.
    pub fortran_order: bool,
    /// Shape. A number has no dimensions.
    pub shape: Vec<usize>,
}

impl NpyText {
    /// Reads the header and leaves `file` at the first value.
    ///
    /// # Errors
    ///
    /// A usage error without the file's name, if this is not a `.npy` file.
    pub fn read(file: &mut impl Read) -> Result<Self, UsageError> {
        let not_npy = |_| {
            usage!("this is no .npy file; save it with numpy.save, or name raw values .f32 or .f64")
        };
        let [major, minor] = version(file).map_err(not_npy)?;
        if !matches!((major, minor), (1..=3, 0)) {
            return Err(usage!(
                "version {major}.{minor} of the .npy format is not known here (1.0, 2.0 and 3.0 \
                 are); save the array with numpy.save, or its values with \
                 array.astype('<f4').tofile('NAME.f32')"
            ));
        }
        Self::parse(&header_text(file, major).map_err(not_npy)?)
    }

    fn parse(text: &str) -> Result<Self, UsageError> {
        let damaged =
            || usage!("the .npy header cannot be read; save the array again with numpy.save");
        let descr = value_of(text, "descr").ok_or_else(damaged)?;
        let descr = descr.split_once(',').map_or(descr, |(first, _)| first).trim();
        let shape = value_of(text, "shape").ok_or_else(damaged)?;
        let (shape, _) =
            shape.strip_prefix('(').and_then(|rest| rest.split_once(')')).ok_or_else(damaged)?;
        let shape = shape
            .split(',')
            .map(str::trim)
            .filter(|size| !size.is_empty())
            .map(|size| dimension(size).ok_or_else(damaged))
            .collect::<Result<Vec<_>, _>>()?;
        let order = value_of(text, "fortran_order").ok_or_else(damaged)?;
        Ok(Self {
            descr: descr.trim_matches(['\'', '"']).to_owned(),
            fortran_order: order.starts_with("True"),
            shape,
        })
    }

    /// The bytes of a file up to the first value, in version 1.0 of the format.
    ///
    /// Shapes of up to three dimensions give the same length, so that a writer can replace a shape
    /// that it learns late.
    ///
    /// # Panics
    ///
    /// If the shape has hundreds of dimensions.
    pub fn to_bytes(&self) -> Vec<u8> {
        let order = if self.fortran_order { "True" } else { "False" };
        let comma = if self.shape.len() == 1 { "," } else { "" };
        let sizes: Vec<String> = self.shape.iter().map(usize::to_string).collect();
        let (descr, sizes) = (&self.descr, sizes.join(", "));
        let dict = format!(
            "{{'descr': '{descr}', 'fortran_order': {order}, 'shape': ({sizes}{comma}), }}"
        );
        // Magic, version, length, dictionary and a line feed fill a multiple of 64 bytes.
        let n_bytes = (10 + dict.len() + 1).next_multiple_of(64).max(128) - 10;
        let length = u16::try_from(n_bytes).expect("the header is short").to_le_bytes();
        let text = format!("{dict:width$}\n", width = n_bytes - 1);
        [&MAGIC[..], &[1, 0], &length, text.as_bytes()].concat()
    }
}

/// Contents of the header of a field: a C-ordered array of floats with at least one value.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NpyHeader {
    /// Element type.
    pub(crate) dtype: DType,
    /// True if the values are stored in big-endian order.
    pub(crate) big_endian: bool,
    /// Shape, slowest dimension first.
    pub(crate) dims: Dims,
}

impl NpyHeader {
    /// Reads the header and leaves `file` at the first value.
    ///
    /// # Errors
    ///
    /// A usage error without the file's name, if this is not a `.npy` file or not a C-ordered array
    /// of float16, float32 or float64.
    pub(crate) fn read(file: &mut impl Read) -> Result<Self, UsageError> {
        of_field(NpyText::read(file)?)
    }
}

/// Reads the magic bytes and the version: major, minor.
fn version(file: &mut impl Read) -> io::Result<[u8; 2]> {
    let mut start = [0; 8];
    file.read_exact(&mut start)?;
    match start {
        [magic @ .., major, minor] if magic == MAGIC => Ok([major, minor]),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

fn header_text(file: &mut impl Read, major: u8) -> io::Result<String> {
    let bad = || io::Error::from(io::ErrorKind::InvalidData);
    let mut n_bytes = [0; 4];
    file.read_exact(&mut n_bytes[..if major == 1 { 2 } else { 4 }])?;
    let n_bytes = u32::from_le_bytes(n_bytes) as usize;
    if n_bytes > MAX_HEADER_BYTES {
        return Err(bad());
    }
    let mut text = vec![0; n_bytes];
    file.read_exact(&mut text)?;
    String::from_utf8(text).map_err(|_| bad())
}

fn of_field(text: NpyText) -> Result<NpyHeader, UsageError> {
    let (dtype, big_endian) = match &*text.descr {
        "<f4" => (DType::F32, false),
        "<f8" => (DType::F64, false),
        "<f2" => (DType::F16, false),
        ">f4" => (DType::F32, true),
        ">f8" => (DType::F64, true),
        ">f2" => (DType::F16, true),
        other => {
            return Err(usage!(
                "values of type `{other}` are not supported; convert with array.astype('<f4') or \
                '<f8'"
            ));
        }
    };
    if text.fortran_order && text.shape.len() > 1 {
        return Err(usage!(
            "the array is in Fortran order; save it in C order with numpy.save(name, \
            numpy.ascontiguousarray(array))"
        ));
    }
    let dims = Dims::new(text.shape)
        .map_err(|fault| usage!("the array {fault}; check the array that was saved"))?;
    Ok(NpyHeader { dtype, big_endian, dims })
}

/// Returns the text after `'key':`, up to the end of the header.
fn value_of<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(&format!("'{key}'"))?;
    Some(rest.trim_start().strip_prefix(':')?.trim_start())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Builds the bytes of a file: magic, version, the header `dict`, and `values`.
    pub(crate) fn file(version: u8, dict: &str, values: &[u8]) -> Vec<u8> {
        let mut bytes = b"\x93NUMPY".to_vec();
        bytes.extend([version, 0]);
        let n_bytes = u32::try_from(dict.len() + 1).unwrap().to_le_bytes();
        bytes.extend(&n_bytes[..if version == 1 { 2 } else { 4 }]);
        bytes.extend(dict.as_bytes());
        bytes.push(b'\n');
        bytes.extend(values);
        bytes
    }

    fn header(dict: &str) -> Result<NpyHeader, String> {
        NpyHeader::read(&mut &file(1, dict, b"")[..]).map_err(|error| error.to_string())
    }

    #[test]
    fn headers_of_all_versions_are_read() {
        let dict = "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 40, 5), }   ";
        for version in [1, 2, 3] {
            let bytes = file(version, dict, &[7; 9]);
            let mut rest = &bytes[..];
            let header = NpyHeader::read(&mut rest).unwrap();
            assert_eq!((header.dtype, header.big_endian), (DType::F32, false));
            assert_eq!(header.dims.sizes(), [3, 40, 5]);
            assert_eq!(rest, [7; 9]);
        }
        let flat = header("{'descr': '>f8', 'fortran_order': True, 'shape': (6,), }").unwrap();
        assert_eq!((flat.dtype, flat.big_endian), (DType::F64, true));
    }

    #[test]
    fn versions_without_a_specification_are_refused() {
        let dict = "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }";
        for (major, minor) in [(0, 0), (1, 1), (4, 0), (9, 0), (255, 0)] {
            let mut bytes = file(major, dict, &[0; 8]);
            bytes[7] = minor;
            let message = NpyHeader::read(&mut &bytes[..]).unwrap_err().to_string();
            assert!(message.starts_with(&format!("version {major}.{minor} of")), "{message}");
            assert!(message.contains("numpy.save"), "{message}");
        }
    }

    #[test]
    fn what_is_not_supported_says_what_to_do() {
        for (dict, hint) in [
            ("{'descr': '<f4', 'fortran_order': True, 'shape': (3, 4), }", "ascontiguousarray"),
            ("{'descr': '<i4', 'fortran_order': False, 'shape': (3, 4), }", "astype"),
            ("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (3,), }", "astype"),
            ("{'descr': '<f4', 'fortran_order': False, 'shape': (), }", "no dimensions"),
            ("{'descr': '<f4', 'fortran_order': False, 'shape': (0, 3), }", "no values"),
            (
                "{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296, 4), }",
                "shape that overflows",
            ),
            (
                "{'descr': '<f8', 'fortran_order': False, 'shape': (99999999999999999999,), }",
                "shape that overflows",
            ),
            ("{'descr': '<f8', 'fortran_order': False, 'shape': (-3,), }", "cannot be read"),
            ("{'descr': '<f4', 'fortran_order': False, 'shape': 3}", "cannot be read"),
            ("{}", "cannot be read"),
        ] {
            let message = header(dict).unwrap_err();
            assert!(message.contains(hint), "{dict}: {message}");
        }
    }

    #[test]
    fn written_headers_are_read_and_their_length_does_not_depend_on_short_shapes() {
        for shape in [vec![], vec![7], vec![3, usize::MAX], vec![0, 5, 1]] {
            for (descr, fortran_order) in [("<f4", false), (">i8", true), ("|b1", false)] {
                let text = NpyText { descr: descr.to_owned(), fortran_order, shape: shape.clone() };
                let bytes = text.to_bytes();
                assert_eq!(bytes.len(), 128, "{text:?}");
                let mut rest = &bytes[..];
                assert_eq!(NpyText::read(&mut rest), Ok(text));
                assert!(rest.is_empty());
            }
        }
    }

    #[test]
    fn every_prefix_is_an_error() {
        let bytes = file(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }", b"");
        for n_bytes in 0..bytes.len() {
            assert!(NpyHeader::read(&mut &bytes[..n_bytes]).is_err(), "{n_bytes} bytes");
        }
    }
}
