//! Codec `cuszp`: cuSZp 2 (Huang et al., SC'24) on CPUs. Each block uses the shortest of three
//! modes.
//!
//! Values become codes on a lattice with a spacing of twice the bound. Each block of 32 stores
//! numbers as signs and as many bit planes as the largest number needs. The mode determines the
//! numbers:
//!
//! - *fixed*: the codes;
//! - *plain*: the first code, and then the differences of codes;
//! - *outlier*: the same, but the first code is stored apart, so that it does not widen the block.
//!
//! The authors' code uses one mode for a whole array, except that outlier mode uses plain for
//! blocks where that is shorter. This coder compares all three for each block. A block of zeros
//! takes only its length byte. A block with a value off the lattice stores its values unchanged.

use super::CodecId;
use super::coder::{Coded, Coder, CoderParams};
use super::fz_light::LatticeNumbers;
use super::lattice::{BLOCKS, GROUP, Points, Verbatim, add_up, max_width, put_verbatim, subtract};
use super::planes::{PLANE, Planes, to_codes, to_signed_magnitudes, width};
use crate::element::Float;
use crate::element::sealed::Word;
use crate::kernel::{BLOCK, Code};

/// The codec `cuszp`.
pub type CuSzp<T> = Coded<T, CuSzpCoder<T>>;

impl<T: Float> CuSzp<T> {
    /// Returns the numbers of the lattice; `None` if there is none. Values are multiplied by the
    /// codec's weight before, so the lattice has the weight 1.
    #[must_use]
    pub fn lattice_numbers(&self) -> Option<LatticeNumbers> {
        self.coder().0.map(|points| points.numbers())
    }
}

/// Coder of [`CuSzp`]: the lattice, if there is one.
#[derive(Clone, Copy, Debug)]
pub struct CuSzpCoder<T: Float>(Option<Points<T>>);

/// Length byte of a block whose values are stored unchanged.
const VERBATIM: u8 = 0xff;

/// Kind of numbers in a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BlockMode {
    /// A first code and the differences after it.
    Plain,
    /// Codes.
    Fixed,
    /// Differences after the first code. This many bytes before them hold the first code.
    Outlier(usize),
}

/// Mode and width of a block of codes, as its length byte gives them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct BlockForm {
    mode: BlockMode,
    /// Bits of the largest number.
    width: u32,
}

impl BlockForm {
    /// Returns the first mode number of outlier modes, and the number of bytes for the outlier (the
    /// first code) in each of them.
    #[inline(always)]
    const fn outliers<T: Float>() -> (u8, &'static [usize]) {
        if size_of::<T::Code>() == 4 { (4, &[1, 2, 3]) } else { (2, &[4, 7]) }
    }

    /// Returns the number of low bits of the length byte that hold the width. The bits above hold
    /// the mode.
    #[inline(always)]
    const fn width_bits<T: Float>() -> u32 {
        if size_of::<T::Code>() == 4 { 5 } else { 6 }
    }

    #[inline(always)]
    fn byte<T: Float>(self) -> u8 {
        let (first, outliers) = Self::outliers::<T>();
        let mode = match self.mode {
            BlockMode::Plain => 0,
            BlockMode::Fixed => 1,
            BlockMode::Outlier(n_bytes) => {
                first + outliers.iter().take_while(|other| **other < n_bytes).count() as u8
            }
        };
        mode << Self::width_bits::<T>() | self.width as u8
    }

    #[inline(always)]
    fn of_byte<T: Float>(byte: u8) -> Option<Self> {
        let (first, outliers) = Self::outliers::<T>();
        let mode = match byte >> Self::width_bits::<T>() {
            0 => BlockMode::Plain,
            1 => BlockMode::Fixed,
            code => BlockMode::Outlier(*outliers.get(usize::from(code.checked_sub(first)?))?),
        };
        let width = u32::from(byte) & ((1 << Self::width_bits::<T>()) - 1);
        (width <= max_width::<T>()).then_some(Self { mode, width })
    }

    /// Returns the shortest form of a block. The first code needs `first` bits, the differences
    /// after it need `others`, and codes without differences need `codes`.
    #[inline(always)]
    fn shortest<T: Float>(first: u32, others: u32, codes: u32) -> Self {
        let outliers = Self::outliers::<T>().1;
        let n_bytes = outliers.iter().find(|n_bytes| first <= 8 * **n_bytes as u32);
        let mut best = Self { mode: BlockMode::Plain, width: first.max(others) };
        let fixed = Self { mode: BlockMode::Fixed, width: codes };
        let outlier = n_bytes.map(|n| Self { mode: BlockMode::Outlier(*n), width: others });
        for form in [Some(fixed), outlier].into_iter().flatten() {
            if form.n_bytes() < best.n_bytes() {
                best = form;
            }
        }
        best
    }

    /// Returns the bytes of the outlier; 0 if the mode has none.
    #[inline(always)]
    const fn n_apart(self) -> usize {
        if let BlockMode::Outlier(n_bytes) = self.mode { n_bytes } else { 0 }
    }

    /// Returns the number of planes for signs and numbers.
    #[inline(always)]
    const fn n_planes(self) -> u32 {
        if self.width == 0 && self.n_apart() == 0 { 0 } else { 1 + self.width }
    }

    /// Returns the bytes of the block.
    #[inline(always)]
    const fn n_bytes(self) -> usize {
        self.n_apart() + PLANE * self.n_planes() as usize
    }
}

impl<T: Float> Coder<T> for CuSzpCoder<T> {
    const ID: CodecId = CodecId::CuSzp;

    fn new(params: &CoderParams) -> Self {
        Self(Points::new(params))
    }

    fn parameter(&self) -> f64 {
        Points::parameter(self.0)
    }

    fn of_parameter(parameter: f64) -> Option<Self> {
        Points::of_parameter(parameter).map(Self)
    }

    #[inline(always)]
    fn encode(&self, values: &[T], dst: &mut [u8]) -> Option<usize> {
        let points = self.0?;
        let (lengths, dst) = dst.split_at_mut_checked(values.len().div_ceil(BLOCK))?;
        let mut n_bytes = 0;
        let mut codes = [T::Code::ZERO; GROUP];
        let mut differences = [T::Code::ZERO; GROUP];
        let mut numbers = [T::Bits::ZERO; GROUP];
        let mut folded = [T::Bits::ZERO; GROUP];
        let mut planes = Planes::new();
        for (lengths, values) in lengths.chunks_mut(BLOCKS).zip(values.chunks(GROUP)) {
            let are_points = points.codes(values, &mut codes);
            subtract::<T>(&codes, &mut differences);
            to_signed_magnitudes::<T>(&differences, &mut numbers);
            to_signed_magnitudes::<T>(&codes, &mut folded);
            let mut forms = [BlockForm { mode: BlockMode::Plain, width: 0 }; BLOCKS];
            let mut most = 0;
            for (i, form) in forms.iter_mut().enumerate().filter(|(i, _)| are_points[*i]) {
                let block = i * BLOCK..(i + 1) * BLOCK;
                let (numbers, codes) = (&mut numbers[block.clone()], &folded[block]);
                let first = codes[0];
                let (others, all) = (width::<T>(numbers), width::<T>(codes));
                *form = BlockForm::shortest::<T>(width::<T>(&[first]), others, all);
                match form.mode {
                    BlockMode::Plain => numbers[0] = first,
                    BlockMode::Fixed => numbers.copy_from_slice(codes),
                    // The magnitude is stored apart, so keep only the sign.
                    BlockMode::Outlier(_) => numbers[0] = first & T::Bits::from_u64(1),
                }
                most = most.max(form.n_planes());
            }
            planes.set::<T>(&numbers, most);
            for ((i, length), values) in lengths.iter_mut().enumerate().zip(values.chunks(BLOCK)) {
                let dst = dst.get_mut(n_bytes..)?;
                if are_points[i] {
                    let form = forms[i];
                    put_apart(folded[i * BLOCK] >> 1, form.n_apart(), dst)?;
                    planes.put(i, form.n_planes(), &mut dst[form.n_apart()..])?;
                    *length = form.byte::<T>();
                    n_bytes += form.n_bytes();
                } else {
                    *length = VERBATIM;
                    n_bytes += put_verbatim(values, dst)?;
                }
            }
        }
        Some(values.len().div_ceil(BLOCK) + n_bytes)
    }

    #[inline(always)]
    fn decode(&self, src: &[u8], values: &mut [T]) -> Option<()> {
        let points = self.0?;
        let (lengths, mut src) = src.split_at_checked(values.len().div_ceil(BLOCK))?;
        let mut codes = [T::Code::ZERO; GROUP];
        let mut numbers = [T::Bits::ZERO; GROUP];
        let mut planes = Planes::new();
        for (lengths, values) in lengths.chunks(BLOCKS).zip(values.chunks_mut(GROUP)) {
            let mut forms = [BlockForm { mode: BlockMode::Fixed, width: 0 }; BLOCKS];
            let mut most = 0;
            for (form, &length) in forms.iter_mut().zip(lengths) {
                if length != VERBATIM {
                    *form = BlockForm::of_byte::<T>(length)?;
                    most = most.max(form.n_planes());
                }
            }
            planes.clear::<T>(most);
            let mut outliers = [T::Code::ZERO; BLOCKS];
            let mut verbatim = Verbatim::default();
            for (i, &length) in lengths.iter().enumerate() {
                if length == VERBATIM {
                    verbatim.take(i, values, &mut src)?;
                    continue;
                }
                let n_apart = forms[i].n_apart();
                planes.take(i, forms[i].n_planes(), src.get(n_apart..)?)?;
                if n_apart > 0 {
                    let outlier = T::Code::from_bits(take_apart(n_apart, src));
                    let is_negative = src[n_apart] & 1 != 0;
                    outliers[i] = if is_negative { T::Code::ZERO.minus(outlier) } else { outlier };
                }
                src = &src[forms[i].n_bytes()..];
            }
            planes.numbers::<T>(most, &mut numbers);
            to_codes::<T>(&numbers, &mut codes);
            for ((i, form), values) in forms.iter().enumerate().zip(values.chunks(BLOCK)) {
                let block = &mut codes[i * BLOCK..][..values.len()];
                if let BlockMode::Outlier(_) = form.mode {
                    block[0] = outliers[i];
                }
                if form.mode != BlockMode::Fixed {
                    add_up(block);
                }
            }
            points.values(&codes, values);
            verbatim.store(values);
        }
        src.is_empty().then_some(())
    }
}

/// Writes the low bytes of a number to the front of `dst`. May also overwrite bytes after them.
#[inline(always)]
fn put_apart<W: Word>(number: W, n_bytes: usize, dst: &mut [u8]) -> Option<()> {
    let bytes = number.to_u64().to_le_bytes();
    match dst.first_chunk_mut() {
        Some(dst) => *dst = bytes,
        None => dst.get_mut(..n_bytes)?.copy_from_slice(&bytes[..n_bytes]),
    }
    Some(())
}

/// Reads a number that [`put_apart`] wrote. `src` has at least `n_bytes` bytes.
#[inline(always)]
fn take_apart(n_bytes: usize, src: &[u8]) -> u64 {
    let bytes = match src.first_chunk() {
        Some(bytes) => *bytes,
        None => {
            let mut bytes = [0; 8];
            bytes[..n_bytes].copy_from_slice(&src[..n_bytes]);
            bytes
        }
    };
    u64::from_le_bytes(bytes) & (u64::MAX >> (u64::BITS - 8 * n_bytes as u32))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec;
    use std::vec::Vec;

    /// Encodes on a lattice of step 1 and checks that the values decode.
    fn encoded<T: Float>(values: &[T]) -> Vec<u8> {
        let coder =
            CuSzpCoder::<T>::new(&CoderParams { bound: 32.0 / 63.0, step: 1.0, setting: 0 });
        let mut dst = vec![0xa5; 300];
        let n_bytes = coder.encode(values, &mut dst).unwrap();
        dst.truncate(n_bytes);
        let mut decoded = vec![T::ONE; values.len()];
        let reader = <CuSzpCoder<T> as Coder<T>>::of_parameter(1.0).unwrap();
        reader.decode(&dst, &mut decoded).unwrap();
        for (x, y) in values.iter().zip(decoded) {
            let is_near = (x.to_f64() - y.to_f64()).abs() < 0.5;
            assert!(is_near || x.bits() == y.bits(), "{x:?} {y:?}");
        }
        dst
    }

    /// The expected bytes come from another encoder, written from docs/format.md.
    #[test]
    fn bytes_are_those_of_the_format() {
        let mut values = vec![0.25_f32; 32];
        values.extend((0..32_i16).map(|i| f32::from(1 - i % 3)));
        values.extend((0..32_i16).map(|i| f32::from(-300 - i % 2)));
        values.extend((0..32_i16).map(|i| f32::from(3 * (i % 2) - 1)));
        values.extend([7.0, f32::NAN, 2.375]);
        let expected = [
            0x00, 0x21, 0xa1, 0x02, 0xff, 0x24, 0x49, 0x92, 0x24, 0x6d, 0xdb, 0xb6, 0x6d, 0x2c,
            0x01, 0xab, 0xaa, 0xaa, 0xaa, 0xfe, 0xff, 0xff, 0xff, 0x55, 0x55, 0x55, 0x55, 0xff,
            0xff, 0xff, 0xff, 0xfe, 0xff, 0xff, 0xff, 0x00, 0x00, 0xe0, 0x40, 0x00, 0x00, 0xc0,
            0x7f, 0x00, 0x00, 0x18, 0x40,
        ];
        assert_eq!(encoded(&values), expected);

        let mut values = vec![-2f64.powi(40); 32];
        values.extend([70000.0, 70001.25, 70000.0]);
        let expected = [
            0xc0, 0x81, 0x00, 0x00, 0x00, 0x00, 0x00, 0x01, 0x00, 0x01, 0x00, 0x00, 0x00, 0x70,
            0x11, 0x01, 0x00, 0x04, 0x00, 0x00, 0x00, 0x06, 0x00, 0x00, 0x00,
        ];
        assert_eq!(encoded(&values), expected);
    }

    #[test]
    fn length_bytes_say_the_form_and_no_form_is_that_of_verbatim_blocks() {
        fn check<T: Float>(outliers: &[usize]) {
            let modes = [BlockMode::Plain, BlockMode::Fixed].into_iter();
            for mode in modes.chain(outliers.iter().map(|n_bytes| BlockMode::Outlier(*n_bytes))) {
                for width in 0..=max_width::<T>() {
                    let form = BlockForm { mode, width };
                    assert_eq!(BlockForm::of_byte::<T>(form.byte::<T>()), Some(form));
                    assert_ne!(form.byte::<T>(), VERBATIM);
                }
            }
        }
        check::<f32>(&[1, 2, 3]);
        check::<f64>(&[4, 7]);
        assert_eq!(BlockForm::of_byte::<f32>(2 << 5), None);
        assert_eq!(BlockForm::of_byte::<f32>(24), None);
        assert_eq!(BlockForm::of_byte::<f64>(53), None);
    }
}
