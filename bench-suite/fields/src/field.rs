//! Arrays in files: raw little-endian `.f32`, `.f64`, `.f16` and `.bf16`, and NumPy's `.npy`.
//!
//! Raw files do not store their element type. A prefix of the path (`f32:/dev/stdin`) or else the
//! extension specifies it. `-` is standard input. A pipe is read to its end before it is parsed. If
//! its path specifies no type, it may hold a `.npy` array.
//!
//! Dimensions come from the first of these sources: the caller (`--dims`); the `.npy` header; the
//! file's name or its folder's, if the product is the number of values. Otherwise the array has one
//! dimension. Names hold dimensions in the styles of SDRBench:
//!
//! ```text
//! P_4x14x48x48.f32
//! CLOUD_1_26_1800_3600.f32
//! SDRBENCH-EXASKY-NYX-512x512x512/temperature.f32
//! ```

use std::any::Any;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, IsTerminal, Read};
use std::path::Path;

use crate::dims::{Dims, dimension};
use crate::memory::{self, NoMemory};
use crate::npy::{MAGIC, NpyHeader};
use crate::usage::{UsageError, usage};
use foldwire::{DType, bf16, f16};

/// Types of the values of fields.
const FLOATS: [DType; 4] = [DType::F32, DType::F64, DType::F16, DType::Bf16];
/// Advice for a file that does not fit in memory.
pub const SMALLER: &str = "use a piece of the file";
/// Bytes of a stream to read at a time.
const PIECE: u64 = 16 << 20;

/// The values of one array.
#[derive(Debug, Clone, PartialEq)]
pub enum FieldValues {
    /// Single precision.
    F32(Vec<f32>),
    /// Double precision.
    F64(Vec<f64>),
    /// Half precision.
    F16(Vec<f16>),
    /// The upper halves of single precision.
    Bf16(Vec<bf16>),
}

/// Evaluates an expression on the typed slice of a [`FieldValues`], bound to a name.
#[macro_export]
macro_rules! with_values {
    ($values:expr, $slice:ident => $body:expr) => {
        match $values {
            $crate::field::FieldValues::F32($slice) => $body,
            $crate::field::FieldValues::F64($slice) => $body,
            $crate::field::FieldValues::F16($slice) => $body,
            $crate::field::FieldValues::Bf16($slice) => $body,
        }
    };
}

impl FieldValues {
    /// Type of the values.
    pub fn dtype(&self) -> DType {
        match self {
            Self::F32(_) => DType::F32,
            Self::F64(_) => DType::F64,
            Self::F16(_) => DType::F16,
            Self::Bf16(_) => DType::Bf16,
        }
    }

    /// The values, if this is their type.
    pub fn of<T: 'static>(&self) -> Option<&[T]> {
        let values: &dyn Any = with_values!(self, values => values);
        values.downcast_ref::<Vec<T>>().map(Vec::as_slice)
    }

    /// Number of values.
    pub fn n_values(&self) -> usize {
        with_values!(self, values => values.len())
    }

    /// Number of bytes in memory.
    pub fn n_bytes(&self) -> usize {
        with_values!(self, values => size_of_val(&values[..]))
    }
}

/// One array with its dimensions.
#[derive(Debug, Clone, PartialEq)]
pub struct Field {
    /// The file's name without folders.
    pub name: String,
    /// Dimensions. Their product is the number of values.
    pub dims: Dims,
    /// The values, fastest dimension contiguous.
    pub values: FieldValues,
}

impl Field {
    /// Repeats the values until they have at least `n_bytes`. The slowest dimension grows.
    pub fn tile(&mut self, n_bytes: usize) {
        let n_times = n_bytes.div_ceil(self.values.n_bytes().max(1)).max(1);
        with_values!(&mut self.values, values => *values = values.repeat(n_times));
        self.dims = self.dims.repeated(n_times);
    }

    /// Reads the file at `path`, which may have a type prefix such as `f32:`. `-` is standard
    /// input. `dims` overrides the dimensions from the file or its name.
    ///
    /// # Errors
    ///
    /// A [`UsageError`] if the file is missing, empty or of an unknown type, if it does not hold as
    /// many values as `dims` specify, or if it does not fit in memory.
    pub fn read(path: &Path, dims: Option<&Dims>) -> Result<Self, UsageError> {
        Self::read_within(path, dims, &|_| Ok(()))
    }

    /// Reads a file like [`read`](Self::read). Calls `room` with the number of bytes that it needs,
    /// to check that so much memory is free.
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read), and the errors of `room`.
    pub fn read_within(
        path: &Path,
        dims: Option<&Dims>,
        room: &dyn Fn(u128) -> Result<(), NoMemory>,
    ) -> Result<Self, UsageError> {
        let no_room = |error: NoMemory| usage!("{}: {error}; {SMALLER}", path.display());
        let (mut stream, length) = open(path)?;
        if let Some(length) = length {
            room(length.into()).map_err(no_room)?;
            return Self::parse(path, &mut stream, length, dims);
        }
        let unreadable = |error: io::Error| unreadable(path, &error);
        let mut bytes = Vec::new();
        loop {
            // The bytes and the values that are made from them are in memory together.
            room(2 * (bytes.len() as u128 + u128::from(PIECE))).map_err(no_room)?;
            if (&mut stream).take(PIECE).read_to_end(&mut bytes).map_err(unreadable)? == 0 {
                break;
            }
        }
        let is_npy = bytes.starts_with(&MAGIC) && FileFormat::of(path).is_err();
        let format = if is_npy { Ok(FileFormat::Npy) } else { FileFormat::of(path) };
        Self::of_format(path, format, &mut &bytes[..], bytes.len() as u64, dims)
    }

    /// Reads an array from `file`, which holds `n_bytes` bytes. `path` specifies the format.
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read).
    pub fn parse(
        path: &Path,
        file: &mut impl Read,
        n_bytes: u64,
        dims: Option<&Dims>,
    ) -> Result<Self, UsageError> {
        Self::of_format(path, FileFormat::of(path), file, n_bytes, dims)
    }

    fn of_format(
        path: &Path,
        format: Result<FileFormat, UsageError>,
        file: &mut impl Read,
        n_bytes: u64,
        dims: Option<&Dims>,
    ) -> Result<Self, UsageError> {
        let fault = |message: &str| usage!("{}: {message}", path.display());
        let too_short = || fault("is shorter than its header says; copy or save it again");
        let format = format.map_err(|error| fault(&error.to_string()))?;
        let (dtype, big_endian, own_dims, n_values) = match format {
            FileFormat::Raw(_) if n_bytes == 0 => return Err(fault("is empty")),
            FileFormat::Raw(dtype) => {
                let n_values = raw_values(n_bytes, dtype.n_bytes() as u64)
                    .map_err(|error| fault(&error.to_string()))?;
                (dtype, false, dims_in_name(path, n_values), n_values)
            }
            FileFormat::Npy => {
                let header = NpyHeader::read(file).map_err(|error| fault(&error.to_string()))?;
                let n_values = header.dims.n_values();
                (header.dtype, header.big_endian, Some(header.dims), n_values)
            }
        };
        // A damaged header may specify any size: allocate only what the file can hold.
        if (n_values as u64).checked_mul(dtype.n_bytes() as u64).is_none_or(|need| need > n_bytes) {
            return Err(too_short());
        }
        let dims = match dims {
            Some(dims) => dims.checked(n_values).map_err(|error| fault(&error.to_string()))?,
            None => own_dims.unwrap_or_else(|| Dims::flat(n_values)),
        };

        let no_room =
            |error: NoMemory| fault(&format!("holds {n_values} values: {error}; {SMALLER}"));
        let zeros = match dtype {
            DType::F64 => memory::zeroed(n_values).map(FieldValues::F64),
            DType::F16 => memory::zeroed(n_values).map(FieldValues::F16),
            DType::Bf16 => memory::zeroed(n_values).map(FieldValues::Bf16),
            _ => memory::zeroed(n_values).map(FieldValues::F32),
        };
        let mut values = zeros.map_err(no_room)?;
        let bytes: &mut [u8] = with_values!(&mut values, values => {
            bytemuck::cast_slice_mut(values)
        });
        file.read_exact(bytes).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => too_short(),
            _ => fault(&format!("cannot be read: {error}")),
        })?;
        if big_endian {
            swap_bytes(bytes, dtype);
        }
        if !matches!(file.read(&mut [0]), Ok(0)) {
            return Err(fault(&format!(
                "holds more than the {n_values} values of its header; save each array in a file of \
                 its own"
            )));
        }
        let (_, place) = split_type(path);
        let name = if place == Path::new("-") {
            OsStr::new("stdin")
        } else {
            place.file_name().unwrap_or_default()
        };
        Ok(Self { name: name.to_string_lossy().into_owned(), dims, values })
    }
}

/// Opens a file, which may have a type prefix, or standard input. Returns its length, too, if it
/// is a regular file.
///
/// # Errors
///
/// A [`UsageError`] if the file is missing, a folder or a terminal.
pub fn open(path: &Path) -> Result<(Box<dyn Read>, Option<u64>), UsageError> {
    let fault = |message: &str| usage!("{}: {message}", path.display());
    let (_, place) = split_type(path);
    if place == Path::new("-") {
        if io::stdin().is_terminal() {
            return Err(fault("standard input is a terminal; pipe data into this command"));
        }
        return Ok((Box::new(io::stdin().lock()), None));
    }
    let unreadable = |error: io::Error| unreadable(path, &error);
    let file = File::open(place).map_err(unreadable)?;
    let about = file.metadata().map_err(unreadable)?;
    if about.is_dir() {
        return Err(fault("is a folder; name the files in it"));
    }
    Ok((Box::new(file), about.is_file().then_some(about.len())))
}

fn unreadable(path: &Path, error: &io::Error) -> UsageError {
    match error.kind() {
        io::ErrorKind::NotFound => {
            usage!("{}: there is no such file; check the path", path.display())
        }
        _ => usage!("{}: cannot be read: {error}", path.display()),
    }
}

/// Format of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileFormat {
    /// Little-endian values, nothing else.
    Raw(DType),
    /// NumPy's format.
    Npy,
}

/// Splits a type prefix such as `f32:` off a path, if there is one.
pub fn split_type(path: &Path) -> (Option<DType>, &Path) {
    let (word, place) = path.to_str().unwrap_or_default().split_once(':').unwrap_or_default();
    match FLOATS.into_iter().find(|dtype| dtype.name() == word) {
        Some(dtype) => (Some(dtype), Path::new(place)),
        None => (None, path),
    }
}

/// Reverses the bytes of each value.
pub fn swap_bytes(values: &mut [u8], dtype: DType) {
    values.chunks_exact_mut(dtype.n_bytes()).for_each(<[u8]>::reverse);
}

impl FileFormat {
    /// Returns the format that a path's prefix or extension specifies.
    ///
    /// # Errors
    ///
    /// A [`UsageError`] if neither does.
    pub fn of(path: &Path) -> Result<Self, UsageError> {
        if let (Some(dtype), _) = split_type(path) {
            return Ok(Self::Raw(dtype));
        }
        let extension = path.extension().and_then(|extension| extension.to_str());
        let raw = FLOATS.into_iter().find(|dtype| extension == Some(dtype.name()));
        match (raw, extension) {
            (Some(dtype), _) => Ok(Self::Raw(dtype)),
            (None, Some("npy")) => Ok(Self::Npy),
            _ => Err(usage!(
                "the type of the values is not known from this name; write it before the path, as \
                 in f32:PATH (or f64:, f16:, bf16:), or rename or link raw little-endian values \
                 to NAME.f32, NAME.f64, NAME.f16 \
                 or NAME.bf16, or save a NumPy array as .npy"
            )),
        }
    }
}

/// Returns the number of values of this size in a file of raw values.
///
/// # Errors
///
/// A [`UsageError`] without the file's name.
pub fn raw_values(n_bytes: u64, size: u64) -> Result<usize, UsageError> {
    if !n_bytes.is_multiple_of(size) {
        return Err(usage!(
            "has {n_bytes} bytes, which is no multiple of {size}; it is cut short, has a header, \
            or is of another type"
        ));
    }
    usize::try_from(n_bytes / size).map_err(|_| usage!("is too large for this machine"))
}

/// Finds dimensions in the names of the file and its folders whose product is `n_values`.
pub fn dims_in_name(path: &Path, n_values: usize) -> Option<Dims> {
    let stem = path.file_stem()?.to_str()?;
    let fits = |dims: &Dims| dims.n_values() == n_values;
    // The folders of a relative path go on above it.
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let folders = absolute.ancestors().skip(1).filter_map(|folder| folder.file_name()?.to_str());
    dims_in_word(stem)
        .find(fits)
        .or_else(|| dims_at_end(stem).filter(fits))
        .or_else(|| folders.flat_map(dims_in_word).find(fits))
}

/// Dimensions such as `4x14x48` between the other words of a name.
fn dims_in_word(name: &str) -> impl Iterator<Item = Dims> {
    let words = name.split(['_', '-', '.', ' ']).filter(|word| word.contains('x'));
    words.filter_map(|word| word.parse().ok())
}

/// Dimensions that end a name, such as `_1_26_1800_3600`, without the leading 1.
fn dims_at_end(stem: &str) -> Option<Dims> {
    let numbers = stem.rsplit('_').map_while(dimension);
    let mut sizes: Vec<usize> = numbers.collect();
    sizes.reverse();
    let n_ones = sizes.iter().take_while(|&&size| size == 1).count();
    sizes.drain(..n_ones);
    if sizes.len() > 1 { Dims::new(sizes).ok() } else { None }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;

    use super::*;
    use crate::npy::tests::file as npy;

    fn put(folder: &tempfile::TempDir, name: &str, bytes: &[u8]) -> PathBuf {
        let path = folder.path().join(name);
        fs::write(&path, bytes).unwrap();
        path
    }

    fn le(values: &[f32]) -> Vec<u8> {
        values.iter().flat_map(|value| value.to_le_bytes()).collect()
    }

    #[test]
    fn the_extension_tells_the_type() {
        let folder = tempfile::tempdir().unwrap();
        let single = Field::read(&put(&folder, "a.f32", &le(&[1.0, -2.5])), None).unwrap();
        assert_eq!((single.name.as_str(), single.dims.sizes()), ("a.f32", &[2][..]));
        assert_eq!(single.values, FieldValues::F32(vec![1.0, -2.5]));
        let double = Field::read(&put(&folder, "a.f64", &0.1_f64.to_le_bytes()), None).unwrap();
        assert_eq!(double.values, FieldValues::F64(vec![0.1]));
        assert_eq!((double.values.dtype(), double.values.n_bytes()), (DType::F64, 8));
        let half = Field::read(&put(&folder, "a.f16", &[0, 0x3e, 0, 0xfc]), None).unwrap();
        assert_eq!(half.values, FieldValues::F16(vec![f16::from_f32(1.5), f16::NEG_INFINITY]));
        let upper = Field::read(&put(&folder, "a.bf16", &[0xc0, 0x3f]), None).unwrap();
        assert_eq!(upper.values, FieldValues::Bf16(vec![bf16::from_f32(1.5)]));
        let npy = npy(1, "{'descr': '>f2', 'fortran_order': False, 'shape': (1,), }", &[0x3e, 0]);
        let half = Field::read(&put(&folder, "a.npy", &npy), None).unwrap();
        assert_eq!(half.values, FieldValues::F16(vec![f16::from_f32(1.5)]));
    }

    #[test]
    fn both_byte_orders_of_npy_hold_the_same_values() {
        let folder = tempfile::tempdir().unwrap();
        let values = [1.5_f64, -3.25];
        let dict =
            |order| format!("{{'descr': '{order}f8', 'fortran_order': False, 'shape': (2, 1), }}");
        let little: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        let big: Vec<u8> = values.iter().flat_map(|v| v.to_be_bytes()).collect();
        for (order, bytes) in [('<', little), ('>', big)] {
            let path = put(&folder, "a.npy", &npy(1, &dict(order), &bytes));
            let field = Field::read(&path, None).unwrap();
            assert_eq!(
                (field.dims.sizes(), field.values),
                (&[2, 1][..], FieldValues::F64(values.to_vec()))
            );
        }
    }

    #[test]
    fn a_word_before_the_path_tells_the_type_whatever_the_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = put(&folder, "a.dat", &le(&[1.0, -2.5]));
        let field = Field::read(Path::new(&format!("f32:{}", path.display())), None).unwrap();
        assert_eq!(
            (field.name.as_str(), field.values),
            ("a.dat", FieldValues::F32(vec![1.0, -2.5]))
        );
        let field = Field::read(Path::new(&format!("bf16:{}", path.display())), None).unwrap();
        assert_eq!(field.values.n_values(), 4);
    }

    #[test]
    fn dims_come_from_the_name_only_if_they_fit() {
        let folder = tempfile::tempdir().unwrap();
        let dims =
            |name: &str| Field::read(&put(&folder, name, &le(&[0.0; 6])), None).unwrap().dims;
        assert_eq!(dims("wrf_P_2x3.f32").sizes(), [2, 3]);
        assert_eq!(dims("run7_3x3.f32").sizes(), [6]);
        assert_eq!(dims("max_6.f32").sizes(), [6]);
        assert_eq!(dims("CLOUD_1_3_2.f32").sizes(), [3, 2]);
        assert_eq!(dims("CLOUD_9_3_2.f32").sizes(), [6]);
        fs::create_dir_all(folder.path().join("HURR-3x1x2/bin")).unwrap();
        assert_eq!(dims("HURR-3x1x2/bin/Uf48.bin.f32").sizes(), [3, 1, 2]);
        assert_eq!(dims("HURR-3x1x2/bin/Uf48_2x3.f32").sizes(), [2, 3]);
    }

    #[test]
    fn errors_say_what_to_do() {
        let folder = tempfile::tempdir().unwrap();
        let dict = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }";
        let dims = "2x4".parse().unwrap();
        for (name, bytes, dims, hint) in [
            ("none.f32", None, None, "no such file"),
            ("a.dat", Some(le(&[0.0; 4])), None, "NAME.f32"),
            ("b.f32", Some(vec![]), None, "empty"),
            ("c.f64", Some(vec![0; 12]), None, "multiple of 8"),
            ("d.f32", Some(le(&[0.0; 6])), Some(&dims), "holds 6 values, but --dims 2x4 are 8"),
            ("e.npy", Some(vec![1; 40]), None, "no .npy file"),
            ("f.npy", Some(npy(1, dict, &[0; 20])), None, "shorter than its header"),
            ("h.npy", Some(npy(1, dict, &[0; 25])), None, "a file of its own"),
            (
                "g.npy",
                Some(npy(1, &dict.replace('2', "99999999999"), &[0; 20])),
                None,
                "shorter than its header",
            ),
        ] {
            let path = match bytes {
                Some(bytes) => put(&folder, name, &bytes),
                None => folder.path().join(name),
            };
            let message = Field::read(&path, dims).unwrap_err().to_string();
            assert!(message.contains(hint) && message.contains(name), "{message}");
        }
    }
}
