//! The head of a compressed array: what the values are, and how they lay in memory.

use super::{CompressError, Decoder, DecompressError, VERSION, fill};
use crate::bound::ValueRange;
use crate::codec::DecodeError;
use crate::element::DType;
use crate::plan::Plan;
use alloc::vec::Vec;
use xxhash_rust::xxh3::xxh3_64;

/// Maximum number of dimensions, as in numpy.
pub const MAX_DIMS: usize = 64;
/// Bytes before the dimensions.
pub(super) const START: usize = 24;
const MAGIC: [u8; 4] = *b"FWZ1";
/// Stands for the only dimension of an array whose length the writer did not know.
const UNKNOWN: u64 = u64::MAX;

/// Order of an array's values in memory, and in compressed bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// The last dimension is contiguous.
    #[default]
    C,
    /// The first dimension is contiguous.
    Fortran,
}

/// How an array lay in memory, and which of its values are missing. The byte order and truth values
/// do not affect the compressed segments.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Layout {
    /// Dimensions. A number has none.
    pub shape: Vec<u64>,
    /// Order of the values.
    pub order: Order,
    /// True if each value was stored most significant byte first. Encoders take, and decoders
    /// return, values of the machine's own byte order.
    pub is_big_endian: bool,
    /// True if bytes (`u8`) are truth values.
    pub is_bool: bool,
    /// Value that stands for missing data among floats, as in NetCDF's attribute `_FillValue`. It
    /// does not count in the range of a relative bound, and keeps its bits.
    pub fill_value: Option<f64>,
}

impl Layout {
    /// An array of this shape in C order.
    #[must_use]
    pub fn new(shape: &[usize]) -> Self {
        Self { shape: shape.iter().map(|&size| size as u64).collect(), ..Self::default() }
    }

    /// An array of one dimension.
    #[must_use]
    pub fn line(n_values: usize) -> Self {
        Self::new(&[n_values])
    }

    /// An array of one dimension whose length is known only when it ends.
    #[must_use]
    pub fn stream() -> Self {
        Self { shape: [UNKNOWN].into(), ..Self::default() }
    }

    /// Number of values: the product of the dimensions. `None` for a [`stream`](Self::stream), and
    /// if the product overflows.
    #[must_use]
    pub fn n_values(&self) -> Option<u64> {
        if self.shape.contains(&0) {
            return Some(0);
        }
        let n_values =
            self.shape.iter().try_fold(1_u64, |product, &size| product.checked_mul(size));
        n_values.filter(|&n_values| n_values != UNKNOWN)
    }

    /// The same layout with this fill value.
    #[must_use]
    pub fn with_fill(self, fill_value: f64) -> Self {
        Self { fill_value: Some(fill_value), ..self }
    }

    /// Returns the value range of a part of the array, without fill values: the memory of values of
    /// any type. `None` for integers, and if no value is finite.
    ///
    /// # Panics
    /// If the bytes are not aligned for the type, or not a whole number of values.
    #[must_use]
    pub fn value_range(&self, dtype: DType, values: &[u8]) -> Option<ValueRange> {
        match self.fill_value {
            Some(fill) => fill::value_range(dtype, fill, values),
            None => ValueRange::of_bytes(dtype, values),
        }
    }

    /// The same layout with the plan's fill value, unless it has one of its own.
    pub(super) fn filled_by(&self, plan: &Plan) -> Self {
        let fill_value = self.fill_value.or_else(|| plan.fill.map(|fill| fill.value));
        Self { fill_value, ..self.clone() }
    }

    pub(super) fn is_stream(&self) -> bool {
        self.shape == [UNKNOWN]
    }

    /// Dimensions in the order of the values in memory, slowest first.
    pub(super) fn slowest_first(&self) -> Vec<usize> {
        let sizes = self.shape.iter().map(|&size| usize::try_from(size).unwrap_or(usize::MAX));
        match self.order {
            Order::C => sizes.collect(),
            Order::Fortran => sizes.rev().collect(),
        }
    }

    pub(super) fn check(&self) -> Result<(), CompressError> {
        if self.shape.len() > MAX_DIMS {
            return Err(CompressError::Dimensions { n_dims: self.shape.len() });
        }
        match self.n_values() {
            None if !self.is_stream() => Err(CompressError::Count { found: 0, expected: UNKNOWN }),
            _ => Ok(()),
        }
    }

    fn flags(&self) -> u8 {
        u8::from(self.order == Order::Fortran)
            | u8::from(self.is_big_endian) << 1
            | u8::from(self.is_bool) << 2
            | u8::from(self.fill_value.is_some()) << 3
    }
}

/// Contents of the head of compressed bytes.
#[derive(Clone, Debug, PartialEq)]
pub struct Info {
    /// Type of the values.
    pub dtype: DType,
    /// Shape, and order in memory.
    pub layout: Layout,
    /// Spacing of the lattice; 0 if there is none.
    pub step: f64,
    /// Largest error of a finite value; 0 if every bit is kept. Infinite if a codec's setting
    /// determines the error.
    pub bound: f64,
}

/// Returns the bytes of a head with this many dimensions, and with or without a fill value.
pub(super) const fn n_bytes(n_dims: usize, has_fill: bool) -> usize {
    START + 8 * (n_dims + has_fill as usize) + 8
}

impl Info {
    /// Reads the head. It does not check the segments, except in a [`stream`](Layout::stream):
    /// there it reads them, and returns the number of values as the shape.
    ///
    /// # Errors
    /// [`DecompressError`] if the bytes do not begin with a valid head, or if this library does not
    /// know its version or element type.
    pub fn read(bytes: &[u8]) -> Result<Self, DecompressError> {
        let (mut decoder, mut rest) = (Decoder::new(), bytes);
        while decoder.info().is_none() {
            decoder.read(&mut rest)?;
        }
        let is_stream = decoder.info().is_some_and(|info| info.layout.is_stream());
        while is_stream && !decoder.is_finished() {
            decoder.read(&mut rest)?;
        }
        decoder.into_info().ok_or_else(|| DecodeError::Damaged.into())
    }

    /// Number of values. For a stream that is still being read, the number is not known yet, and
    /// this is the largest one.
    #[must_use]
    pub fn n_values(&self) -> u64 {
        self.layout.n_values().unwrap_or(UNKNOWN)
    }

    pub(super) fn emit(&self, out: &mut Vec<u8>) -> u64 {
        let start = out.len();
        out.extend_from_slice(&MAGIC);
        let n_dims = self.layout.shape.len() as u8;
        out.extend_from_slice(&[VERSION, self.dtype as u8, self.layout.flags(), n_dims]);
        out.extend_from_slice(&self.step.to_le_bytes());
        out.extend_from_slice(&self.bound.to_le_bytes());
        for size in &self.layout.shape {
            out.extend_from_slice(&size.to_le_bytes());
        }
        if let Some(fill) = self.layout.fill_value {
            out.extend_from_slice(&fill.to_le_bytes());
        }
        let checksum = xxh3_64(&out[start..]);
        out.extend_from_slice(&checksum.to_le_bytes());
        checksum
    }

    /// Checks the first bytes. There may be fewer than [`START`]. Returns the number of
    /// bytes of the whole head.
    pub(super) fn check_start(bytes: &[u8]) -> Result<usize, DecompressError> {
        let have = bytes.len();
        if bytes[..have.min(MAGIC.len())] != MAGIC[..have.min(MAGIC.len())] {
            return Err(DecompressError::NotCompressed);
        }
        match bytes.get(4) {
            Some(&version) if version != VERSION => Err(DecodeError::Version { version })?,
            _ => {}
        }
        match bytes.get(6..8) {
            Some(&[flags, n_dims]) if usize::from(n_dims) <= MAX_DIMS => {
                Ok(n_bytes(n_dims.into(), flags & 8 != 0))
            }
            Some(_) => Err(DecodeError::Damaged)?,
            None => Err(DecodeError::Truncated { need: n_bytes(0, false), have })?,
        }
    }

    /// Reads a whole head, whose start was checked. Returns it with its checksum.
    pub(super) fn parse(head: &[u8]) -> Result<(Self, u64), DecompressError> {
        let (body, checksum) = head.split_last_chunk().ok_or(DecodeError::Damaged)?;
        let dtype =
            DType::from_code(body[5]).ok_or(DecompressError::UnknownType { code: body[5] })?;
        let checksum = u64::from_le_bytes(*checksum);
        if xxh3_64(body) != checksum {
            return Err(DecompressError::Checksum);
        }
        let flags = body[6];
        let mut words = body[8..]
            .chunks_exact(8)
            .map(|word| word.try_into().map(u64::from_le_bytes).unwrap_or_default());
        let mut float = || f64::from_bits(words.next().unwrap_or_default());
        let (step, bound) = (float(), float());
        let order = if flags & 1 != 0 { Order::Fortran } else { Order::C };
        let (is_big_endian, is_bool) = (flags & 2 != 0, flags & 4 != 0);
        let mut shape: Vec<u64> = words.collect();
        let fill_value = if flags & 8 != 0 { shape.pop().map(f64::from_bits) } else { None };
        let layout = Layout { shape, order, is_big_endian, is_bool, fill_value };
        let is_sound = step >= 0.0 && step.is_finite() && bound >= 0.0 && flags < 16;
        let is_typed =
            (!is_bool || dtype == DType::U8) && (fill_value.is_none() || dtype.is_float());
        if !is_sound || !is_typed || layout.check().is_err() {
            return Err(DecodeError::Damaged.into());
        }
        Ok((Self { dtype, layout, step, bound }, checksum))
    }
}
