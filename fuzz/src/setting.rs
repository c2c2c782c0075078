//! How the targets of codecs read their input: eight bytes that say what to do with the rest.
//!
//! ```text
//!   0  codec: its wire code, or an index into all codecs
//!   1  bit 0: f64; from bit 1 on: the operation
//!   2  exponent of the bound, a signed byte; -128: lossless
//!   3  most operands of a sum; 0: as many as there can be
//!   4  divisor less 1
//!   5  bits 0..3: how far the encoding is from an aligned address; bits 4..7: the shape
//!   6  a number, two bytes: what it means is the target's
//!   8  the encoding
//! ```
//!
//! Encodings are copied so that the last byte is the last of its allocation: AddressSanitizer then
//! sees every read behind it. Destinations are as long as the codec asks for and no longer.

use foldwire::codec::{Codec, CodecId, CodecParams};
use foldwire::kernel::Level;
use foldwire::{DType, Op, Quantum};
use std::fmt::Debug;

use crate::values::{FuzzValue, MAX_VALUES};

/// Bytes before the encoding.
pub const SETTING_BYTES: usize = 8;

/// Reductions that bytes can choose.
pub const N_OPS: u8 = 6;

/// What the first bytes of an input say.
#[derive(Clone, Copy, Debug)]
pub struct FuzzSetting<'a> {
    /// The codec.
    pub codec: CodecId,
    /// The type of the elements.
    pub dtype: DType,
    /// The reduction, below [`N_OPS`].
    pub op: u8,
    /// log₂ of the bound; [`i8::MIN`] for none.
    pub exponent: i8,
    /// Head-room of sums.
    pub max_operands: u32,
    /// What decoded values are divided by.
    pub divisor: u32,
    /// The encoding's distance from an aligned address.
    pub misaligned: usize,
    /// Which shape arrays have, below 16: rows of so many values and three of them to a plane; 0:
    /// none.
    pub shape: usize,
    /// A number for the target.
    pub number: usize,
    /// The rest of the input.
    pub bytes: &'a [u8],
}

impl<'a> FuzzSetting<'a> {
    /// Takes an input apart; `None` if it is too short.
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

    /// The bytes that [`read`](Self::read) takes apart.
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

    /// The lattice.
    #[must_use]
    pub fn quantum<T: FuzzValue>(&self) -> Quantum {
        match self.exponent {
            i8::MIN => Quantum::LOSSLESS,
            exponent => Quantum::new::<T>(2f64.powi(exponent.into())).expect("positive"),
        }
    }

    /// The reduction.
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

    /// The codec at one level.
    #[must_use]
    pub fn codec_at<T: FuzzValue>(&self, level: Level) -> foldwire::codec::AnyCodec<T> {
        let (quantum, max_operands) = (self.quantum::<T>(), self.max_operands);
        let params = CodecParams::new(quantum).for_sums_of(max_operands).at(level);
        self.codec.instance(&params.with_shape(&[2, 3, self.shape]))
    }

    /// What `outcome` makes of the codec at every level that this machine has; all must agree with
    /// the scalar one, which is the specification.
    ///
    /// # Panics
    /// If they do not.
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

    /// The encoding at its place.
    #[must_use]
    pub fn source(&self) -> PlacedBytes {
        PlacedBytes::new(self.bytes, self.misaligned)
    }

    /// How long a destination for `n_values` is: what the codec asks for, or, as one input in four
    /// wants, a little less.
    ///
    /// # Panics
    /// If a frame cannot hold so few values as [`MAX_VALUES`].
    #[must_use]
    pub fn room<T: FuzzValue>(&self, codec: &dyn Codec<T>, n_values: usize) -> usize {
        let worst = codec.max_encoded_len(n_values).expect("a few chunks fit a frame");
        worst.saturating_sub(if self.number % 4 == 3 { self.number / 4 % 64 } else { 0 })
    }

    /// Values to reduce with: on and off the lattice, constant stretches, and now and then one that
    /// no lattice holds.
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

/// Bytes at a chosen distance from an aligned address, that end where their allocation ends.
#[derive(Clone, Debug)]
pub struct PlacedBytes {
    storage: Box<[u8]>,
    start: usize,
}

impl PlacedBytes {
    /// A copy of `bytes`, `start` bytes behind an address that the allocator gives.
    #[must_use]
    pub fn new(bytes: &[u8], start: usize) -> Self {
        let storage = [&[0x5a; 16][..start.min(16)], bytes].concat().into_boxed_slice();
        Self { start: start.min(16), storage }
    }

    /// The bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.storage[self.start..]
    }

    /// The bytes, to be changed in place.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.storage[self.start..]
    }
}

/// The number of values of an encoding, if it tells one that a target is willing to allocate for.
///
/// # Errors
/// The codec's refusal, as text.
pub fn n_values<T: FuzzValue>(codec: &dyn Codec<T>, src: &[u8]) -> Result<usize, String> {
    let n_values = codec.n_values(src).map_err(|error| error.to_string())?;
    if n_values <= MAX_VALUES { Ok(n_values) } else { Err(format!("{n_values} values")) }
}

/// The bits of values, one for all that are not numbers: a sum's NaN may differ in its payload.
#[must_use]
pub fn canonical<T: FuzzValue>(values: &[T]) -> Vec<u64> {
    values.iter().map(|x| if x.to_f64().is_nan() { u64::MAX } else { x.raw() }).collect()
}
