//! Codec `interp`: interpolation in a closed loop, for compressed arrays.
//!
//! Values are predicted from values around them that are already decoded, from coarse to fine
//! (`grid.rs`): linear or cubic interpolation in up to three dimensions (`predict.rs`), as in SZ3.
//! The error of a prediction is counted in bins of twice the bound (`rounding.rs`), and the count
//! is written as a symbol (`symbols.rs`). Symbols are coded by rANS (`kernel::rans`), with a table
//! of frequencies for each context (`tables.rs`): how active the residuals around a value are. On
//! rough arrays a filter that predicts from values before is better (`raster.rs`). A sample decides
//! between the two, and which dimensions are interpolated, in which order, and how (`choice.rs`).
//!
//! Decoded values of an interpolation are points of a lattice 17 times as fine as the bins, so all
//! of a decoder's arithmetic is that of integers. The writer decodes each value. One that is not
//! within the bound is stored unchanged.
//!
//! A reader needs the whole array in memory, so collectives, which decode from any chunk and own no
//! memory, do not have this codec. Section 7 of docs/format.md specifies the bytes.
//!
//! With an operating system each thread keeps the arrays of the codec (`memory.rs`).
//!
//! Loops are plain and compiled for each level (`kernel::at_level`); `kernel::rans` has vectors of
//! its own. Every level gives the same bytes. A line's symbols have contexts that are known before,
//! so many are coded at a time (`coding.rs`, `decoding.rs`).
//!
//! Cost, with AVX-512: about 9 to 32 ns to encode a value and 4 to 12 ns to decode it. Choosing
//! takes the time of about 10 encodings of a sample of up to 40,000 values, once for each array.

mod bits;
mod choice;
mod coding;
mod decoding;
mod grid;
mod halves;
mod loops;
mod memory;
mod predict;
mod raster;
mod rounding;
mod symbols;
mod tables;
#[cfg(test)]
mod tests;

use crate::bound::Quantum;
use crate::codec::DecodeError;
use crate::element::{DType, with_type};
use crate::kernel::{Level, rans};
use alloc::vec::Vec;
use bits::BitSink;
pub(super) use choice::Choice;
use decoding::Decoding;
use grid::{DIMS, Grid, Order};
use memory::Memory;
use predict::Shape;
use raster::Filter;
use rounding::{Lattice, Sample};
use tables::Tables;

const VERSION: u8 = 2;
/// Bytes before the tables.
const HEAD: usize = 36;
/// Points of the lattice in a bin, by the rule that a payload names and by stage. Coarse stages
/// predict all others, so narrower bins can pay there. The last rule is for values on a grid.
const WIDTHS: [[u8; 8]; 4] =
    [[17; 8], [17, 15, 13, 11, 11, 9, 9, 9], [17, 13, 11, 9, 7, 5, 5, 5], [1; 8]];
const GRID_RULE: u8 = 3;
/// Numbers of states, by the number that a payload names.
const STATES: [usize; 3] = [4, 16, 32];
/// Bytes of coded symbols from which on the second and the third number of states hardly count.
const SPACED: [f64; 2] = [8192.0, 32768.0];

/// How an array is predicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scheme {
    /// From known values around a value, in stages.
    Stages {
        order: Order,
        shape: Shape,
        /// Index in [`WIDTHS`].
        rule: u8,
    },
    /// From values before, by a filter that fits the array.
    Raster,
}

impl Scheme {
    /// Returns the number of lattice points in a bin.
    fn width(rule: u8, stage: u32) -> u8 {
        WIDTHS[usize::from(rule)][stage.min(7) as usize]
    }

    fn to_bytes(self) -> [u8; 2] {
        match self {
            Self::Raster => [0, 0],
            Self::Stages { order, shape, rule } => {
                let Order { dims, n_dims, is_mean } = order;
                let is_cubic = shape == Shape::Cubic;
                let flags = u8::from(is_mean) << 2 | u8::from(is_cubic) << 3 | rule << 4;
                [n_dims | flags, dims[0] | dims[1] << 2 | dims[2] << 4]
            }
        }
    }

    fn of_bytes([first, dims]: [u8; 2]) -> Option<Self> {
        if [first, dims] == [0, 0] {
            return Some(Self::Raster);
        }
        let n_dims = first & 3;
        let dims = [dims & 3, dims >> 2 & 3, dims >> 4];
        let is_new = |(i, dim): (usize, &u8)| *dim < DIMS as u8 && !dims[..i].contains(dim);
        let (used, others) = dims.split_at(n_dims.into());
        let is_order = used.iter().enumerate().all(is_new) && others.iter().all(|&dim| dim == 0);
        let is_sound = is_order && n_dims > 0 && first < 1 << 6 && dims[2] < 4;
        let shape = if first & 8 != 0 { Shape::Cubic } else { Shape::Linear };
        let order = Order { dims, n_dims, is_mean: first & 4 != 0 };
        is_sound.then_some(Self::Stages { order, shape, rule: first >> 4 })
    }

    /// Returns the lattice of decoded values; `None` if the bound is too small for one.
    fn lattice(self, quantum: Quantum) -> Option<Lattice> {
        let bin = quantum.step();
        let step = match self {
            Self::Stages { rule, .. } if rule != GRID_RULE => bin / f64::from(WIDTHS[0][0]),
            _ => bin,
        };
        Some(Lattice::of_step(step)?.within(quantum.bound()))
    }
}

/// Encodes values of this float type within the bound of the quantum. `strides` are the distances
/// between rows and between planes (0 if unknown). `None` if the codec is not for the type, or the
/// bound is too small for a lattice. `known` is the choice for an earlier part of the array.
pub(super) fn encode(
    dtype: DType,
    values: &[u8],
    strides: [u32; 2],
    quantum: Quantum,
    known: &mut Option<Choice>,
) -> Option<Vec<u8>> {
    memory::with(|memory| {
        with_type!(
            dtype, T,
            encode_as::<T>(
                memory, Level::best(), bytemuck::cast_slice(values), strides, quantum, known
            );
            F32 f32, F64 f64;
            _ => None
        )
    })
}

fn encode_as<T: Sample>(
    memory: &mut Memory,
    level: Level,
    values: &[T],
    strides: [u32; 2],
    quantum: Quantum,
    known: &mut Option<Choice>,
) -> Option<Vec<u8>> {
    let grid = Grid::of(values.len(), strides)?;
    let choice = match known {
        Some(known) if known.is_for(&grid) => known,
        _ => known.insert(Choice::of(memory, level, values, grid, quantum)?),
    };
    let mut payload = encode_by(memory, level, choice.scheme, values, grid, quantum)?;
    if let Some(other) = choice.other.take() {
        let shorter = encode_by(memory, level, other, values, grid, quantum);
        if let Some(shorter) = shorter.filter(|shorter| shorter.len() < payload.len()) {
            (payload, choice.scheme) = (shorter, other);
        }
    }
    Some(payload)
}

/// Encodes values by this scheme.
fn encode_by<T: Sample>(
    memory: &mut Memory,
    level: Level,
    scheme: Scheme,
    values: &[T],
    grid: Grid,
    quantum: Quantum,
) -> Option<Vec<u8>> {
    let lattice = scheme.lattice(quantum)?;
    let Memory { coding, arrays, .. } = memory;
    let filter = coding.code(arrays, level, (values, grid), scheme, &lattice);
    let counts = coding.counts();
    let tables = Tables::of(counts);
    let mut table_bits = BitSink::default();
    tables.write(&mut table_bits);
    let n_bits: f64 = counts.iter().map(tables::cost).sum();
    let states = SPACED.iter().take_while(|&&least| n_bits >= 8.0 * least).count();
    let table_bits = table_bits.finish();
    let low_bits = coding.low_bits.finish();

    let n_coded = (n_bits / 8.0) as usize + coding.symbols.len() / 64;
    let n_sides = table_bits.len() + low_bits.len() + coding.off.len();
    let mut out = Vec::with_capacity(HEAD + n_coded + n_sides + raster::FILTER_BYTES);
    let [first, second] = scheme.to_bytes();
    out.extend_from_slice(&[VERSION, T::DTYPE as u8, first, second | (states as u8) << 6]);
    out.extend_from_slice(&lattice.step.to_le_bytes());
    let n_off = coding.off.len() / size_of::<T>();
    let sizes = [values.len(), grid.sizes[1], grid.sizes[2]];
    for number in sizes.into_iter().chain([table_bits.len(), low_bits.len(), n_off]) {
        out.extend_from_slice(&(number as u32).to_le_bytes());
    }
    if let Some(filter) = filter {
        filter.emit(&mut out);
    }
    for part in [table_bits, low_bits, &coding.off] {
        out.extend_from_slice(part);
    }
    coding.write(level, &tables, STATES[states], &mut out);
    Some(out)
}

/// Decodes a payload into the memory of values of this type.
///
/// # Errors
/// [`DecodeError`] if it is not a valid payload of exactly these values.
pub(super) fn decode(dtype: DType, bytes: &[u8], values: &mut [u8]) -> Result<(), DecodeError> {
    memory::with(|memory| {
        with_type!(
            dtype, T,
            decode_as::<T>(memory, Level::best(), bytes, bytemuck::cast_slice_mut(values));
            F32 f32, F64 f64;
            _ => Err(DecodeError::Damaged)
        )
    })
}

fn decode_as<T: Sample>(
    memory: &mut Memory,
    level: Level,
    bytes: &[u8],
    values: &mut [T],
) -> Result<(), DecodeError> {
    let truncated = |need| DecodeError::Truncated { need, have: bytes.len() };
    let (head, mut rest) = bytes.split_first_chunk::<HEAD>().ok_or_else(|| truncated(HEAD))?;
    if head[0] != VERSION {
        return Err(DecodeError::Version { version: head[0] });
    }
    if head[1] != T::DTYPE as u8 {
        return Err(DecodeError::Type { found: head[1], expected: T::DTYPE });
    }
    let mut step = [0; 8];
    step.copy_from_slice(&head[4..12]);
    let mut numbers = [0; 6];
    for (number, bytes) in numbers.iter_mut().zip(head[12..].as_chunks().0) {
        *number = u32::from_le_bytes(*bytes) as usize;
    }
    let [n_values, rows, row, n_tables, n_low, n_off] = numbers;
    if n_values != values.len() {
        return Err(DecodeError::Count { found: n_values, expected: values.len() });
    }
    let scheme = Scheme::of_bytes([head[2], head[3] & 63]).ok_or(DecodeError::Damaged)?;
    let n_states = *STATES.get(usize::from(head[3] >> 6)).ok_or(DecodeError::Damaged)?;
    let lattice = Lattice::of_step(f64::from_le_bytes(step)).ok_or(DecodeError::Damaged)?;
    let grid = Grid::of_sizes(n_values, rows, row).ok_or(DecodeError::Damaged)?;
    let filter = match scheme {
        Scheme::Raster => Some(Filter::read(&mut rest)?),
        Scheme::Stages { .. } => None,
    };
    let have = rest.len();
    let n_off_bytes = n_off.saturating_mul(size_of::<T>());
    let need = n_tables
        .saturating_add(n_low)
        .saturating_add(n_off_bytes)
        .saturating_add(size_of::<u32>() * n_states);
    let (sides, words) =
        rest.split_at_checked(need).ok_or(DecodeError::Truncated { need, have })?;
    let (tables, sides) = sides.split_at(n_tables);
    let (low_bits, sides) = sides.split_at(n_low);
    let (off, states) = sides.split_at(n_off_bytes);
    let tables = Tables::read(tables)?;
    let states: Vec<u32> =
        states.as_chunks().0.iter().map(|bytes| u32::from_le_bytes(*bytes)).collect();
    let (words, odd) = words.as_chunks::<2>();
    let n_words = words.len();
    let Memory { arrays, slots, words: padded, .. } = memory;
    padded.clear();
    padded.extend_from_slice(words.as_flattened());
    padded.extend_from_slice(&[0; rans::PADDING]);
    if !odd.is_empty() {
        return Err(DecodeError::Damaged);
    }
    let reader = rans::Reader::new(level, &states, padded);
    let bases = tables.slots(slots);
    let group = |group| tables::of_group(slots, &bases, group, rans::SLOTS);
    let tables = core::array::from_fn(group);
    let sides = [low_bits, off];
    let mut decoding = Decoding::new(level, (grid, values, lattice), tables, sides, reader);
    decoding.read(arrays, scheme, filter.as_ref())?;
    decoding.finish(n_words)
}
