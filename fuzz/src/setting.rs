//! Input format of the codec targets: eight bytes of settings, then an encoding.
//!
//! ```text
//!   0  codec: its wire code, or an index into all codecs
//!   1  bits 0 and 7: the element type; bits 1..6: the operation
//!   2  exponent of the bound, a signed byte; -128: lossless
//!   3  most operands of a sum; 0: no limit
//!   4  divisor − 1
//!   5  bits 0..3: the encoding's offset from an aligned address; bits 4..7: the shape
//!   6  a number, two bytes; each target uses it differently
//!   8  the encoding
//! ```
//!
//! Encodings are copied to the end of an allocation, so that AddressSanitizer detects every read
//! past their end. Destinations are exactly as long as the codec requests.

use foldwire::codec::{Codec, CodecId, CodecParams};
use foldwire::kernel::Level;
use foldwire::{DType, Op, Quantum};
use std::fmt::Debug;

use crate::values::{FuzzValue, MAX_VALUES};

/// Bytes before the encoding.
pub const SETTING_BYTES: usize = 8;

/// Number of reductions that the bytes can select.
pub const N_OPS: u8 = 6;

/// Settings in the first bytes of an input.
#[derive(Clone, Copy, Debug)]
pub struct FuzzSetting<'a> {
    /// The codec.
    pub codec: CodecId,
    /// The element type.
    pub dtype: DType,
    /// The reduction, below [`N_OPS`].
    pub op: u8,
    /// log₂ of the bound; [`i8::MIN`] for none.
    pub exponent: i8,
    /// Number of operands that the codec leaves headroom for.
    pub max_operands: u32,
    /// Divisor of decoded values.
    pub divisor: u32,
    /// The encoding's offset from an aligned address, in bytes.
    pub misaligned: usize,
    /// Shape of the array, below 16: the number of values in a row, with three rows in a plane. 0
    /// means no shape.
    pub shape: usize,
    /// A number that each target uses differently.
    pub number: usize,
    /// The rest of the input.
    pub bytes: &'a [u8],
}

impl<'a> FuzzSetting<'a> {
    /// Parses an input; `None` if it is too short.
    #[must_use]
    pub fn read(input: &'a [u8]) -> Option<Self> {
        let (head, bytes) = input.split_first_chunk::<SETTING_BYTES>()?;
        let nth = CodecId::ALL[usize::from(head[0]) % CodecId::ALL.len()];
        Some(Self {
            codec: CodecId::from_code(head[0]).unwrap_or(nth),
            dtype: DType::FLOATS[usize::from(head[1] & 1 | head[1] >> 7 << 1)],
            op: (head[1] >> 1 & 0x3f) % N_OPS,
            exponent: head[2].cast_signed(),
            max_operands: if head[3] == 0 { u32::MAX } else { head[3].into() },
            divisor: u32::from(head[4]) + 1,
            misaligned: usize::from(head[5] % 16),
            shape: usize::from(head[5] / 16),
            number: u16::from_le_bytes([head[6], head[7]]).into(),
            bytes,
        })
    }

    /// Returns the bytes that [`read`](Self::read) parses.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let [low, high] = (self.number as u16).to_le_bytes();
        let nth_type = self.dtype as u8 - 1;
        let mut input = vec![
            self.codec as u8,
            nth_type & 1 | self.op << 1 | nth_type >> 1 << 7,
            self.exponent.cast_unsigned(),
            u8::try_from(self.max_operands).unwrap_or(0),
            (self.divisor - 1) as u8,
            (self.misaligned | self.shape << 4) as u8,
            low,
            high,
        ];
        input.extend(self.bytes);
        input
    }

    /// Returns the quantum of the bound.
    #[must_use]
    pub fn quantum<T: FuzzValue>(&self) -> Quantum {
        match self.exponent {
            i8::MIN => Quantum::LOSSLESS,
            exponent => Quantum::new::<T>(2f64.powi(exponent.into())).expect("positive"),
        }
    }

    /// Returns the reduction.
    #[must_use]
    pub fn op<T: FuzzValue>(&self) -> Op<'static, T> {
        match self.op {
            0 => Op::Sum,
            1 => Op::Avg,
            2 => Op::Min,
            3 => Op::Max,
            4 => Op::Prod,
            _ => Op::User(&mean),
        }
    }

    /// Returns the codec at this kernel level.
    #[must_use]
    pub fn codec_at<T: FuzzValue>(&self, level: Level) -> foldwire::codec::AnyCodec<T> {
        let (quantum, max_operands) = (self.quantum::<T>(), self.max_operands);
        let params = CodecParams::new(quantum).for_sums_of(max_operands).at(level);
        self.codec.instance(&params.with_shape(&[2, 3, self.shape]))
    }

    /// Calls `outcome` with the codec at every level of this machine. All results must equal the
    /// result at the scalar level, which is the specification.
    ///
    /// # Panics
    /// If they differ.
    pub fn at_every_level<T: FuzzValue, R: PartialEq + Debug>(
        &self,
        outcome: impl Fn(&dyn Codec<T>) -> R,
    ) {
        let mut specified = None;
        for level in Level::available() {
            let found = outcome(self.codec_at::<T>(level).as_dyn());
            match &specified {
                None => specified = Some(found),
                Some(specified) => assert_eq!(specified, &found, "{level} differs"),
            }
        }
    }

    /// Returns the encoding at its offset.
    #[must_use]
    pub fn source(&self) -> PlacedBytes {
        PlacedBytes::new(self.bytes, self.misaligned)
    }

    /// Returns the length of a destination for `n_values`: the length that the codec requests, or a
    /// little less for one input in four.
    ///
    /// # Panics
    /// If a frame cannot hold [`MAX_VALUES`] values.
    #[must_use]
    pub fn room<T: FuzzValue>(&self, codec: &dyn Codec<T>, n_values: usize) -> usize {
        let worst = codec.max_encoded_len(n_values).expect("a few chunks fit a frame");
        worst.saturating_sub(if self.number % 4 == 3 { self.number / 4 % 64 } else { 0 })
    }

    /// Returns values to reduce with: on and off the lattice, constant stretches, and a few that no
    /// lattice can hold.
    #[must_use]
    pub fn local<T: FuzzValue>(&self, n_values: usize) -> Vec<T> {
        let unit = if self.exponent == i8::MIN { 1.0 } else { 2f64.powi(self.exponent.into()) };
        let value = |i: usize| match i % 1024 {
            700 => f64::NAN,
            701 => f64::NEG_INFINITY,
            702 => -0.0,
            703 => T::MAX.to_f64(),
            at if at < 300 => (i % 50) as f64 * unit * 1.25,
            _ => 7.0 * unit,
        };
        (self.number..self.number + n_values).map(|i| T::from_f64(value(i))).collect()
    }
}

fn mean<T: FuzzValue>(a: T, b: T) -> T {
    let mean = a.to_f64() / 2.0 + b.to_f64() / 2.0;
    T::from_f64(if mean.is_nan() { f64::NAN } else { mean })
}

/// Bytes that begin at a chosen offset from an aligned address and end where their allocation ends.
#[derive(Clone, Debug)]
pub struct PlacedBytes {
    storage: Box<[u8]>,
    start: usize,
}

impl PlacedBytes {
    /// Copies `bytes` to `start` bytes after an address from the allocator.
    #[must_use]
    pub fn new(bytes: &[u8], start: usize) -> Self {
        let storage = [&[0x5a; 16][..start.min(16)], bytes].concat().into_boxed_slice();
        Self { start: start.min(16), storage }
    }

    /// Returns the bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.storage[self.start..]
    }

    /// Returns the bytes for changes in place.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.storage[self.start..]
    }
}

/// Returns the number of values of an encoding.
///
/// # Errors
/// The codec's error as text, or a number above [`MAX_VALUES`], which a target does not allocate
/// for.
pub fn n_values<T: FuzzValue>(codec: &dyn Codec<T>, src: &[u8]) -> Result<usize, String> {
    let n_values = codec.n_values(src).map_err(|error| error.to_string())?;
    if n_values <= MAX_VALUES { Ok(n_values) } else { Err(format!("{n_values} values")) }
}

/// Returns the bits of values. All NaNs become the same, since a sum's NaN may differ in its
/// payload.
#[must_use]
pub fn canonical<T: FuzzValue>(values: &[T]) -> Vec<u64> {
    values.iter().map(|x| if x.to_f64().is_nan() { u64::MAX } else { x.raw() }).collect()
}
