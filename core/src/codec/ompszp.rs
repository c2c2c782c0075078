//! Codec `ompszp`: ompSZp, the baseline of hZCCL (Huang et al., SC'24), which uses cuSZp's layout
//! on CPUs.
//!
//! Values become codes on a lattice with a spacing of twice the bound. Each block of 32 stores its
//! first code. It stores the differences of codes as signs and as many bit planes as the largest
//! difference needs. The lengths of all blocks come first, a byte each, so that the authors'
//! threads find their blocks by a prefix sum. A block of zeros takes only its length byte. A block
//! with a value off the lattice stores its values unchanged.

use super::CodecId;
use super::coder::{Coded, Coder, CoderParams};
use super::lattice::{BLOCKS, GROUP, Points, Verbatim, add_up, max_width, put_verbatim, subtract};
use super::planes::{PLANE, Planes, to_codes, to_signed_magnitudes, width};
use crate::element::Float;
use crate::element::sealed::Word;
use crate::kernel::{BLOCK, Code};

/// The codec `ompszp`.
pub type OmpSzp<T> = Coded<T, OmpSzpCoder<T>>;

/// Coder of [`OmpSzp`]: the lattice, if there is one.
#[derive(Clone, Copy, Debug)]
pub struct OmpSzpCoder<T: Float>(Option<Points<T>>);

/// Length byte of a block whose codes are all 0.
const ZEROS: u8 = 0;
/// Length byte of a block whose values are stored unchanged.
const VERBATIM: u8 = 0xff;
/// Length byte of a block of codes with differences of 0 bits. For differences of c bits the byte
/// is c larger.
const CODES: u8 = 1;

impl<T: Float> Coder<T> for OmpSzpCoder<T> {
    const ID: CodecId = CodecId::OmpSzp;

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
        let mut planes = Planes::new();
        for (lengths, values) in lengths.chunks_mut(BLOCKS).zip(values.chunks(GROUP)) {
            let are_points = points.codes(values, &mut codes);
            subtract::<T>(&codes, &mut differences);
            to_signed_magnitudes::<T>(&differences, &mut numbers);
            planes.set::<T>(&numbers, n_planes(width::<T>(&numbers)));
            for ((i, length), values) in lengths.iter_mut().enumerate().zip(values.chunks(BLOCK)) {
                let dst = dst.get_mut(n_bytes..)?;
                let first = codes[i * BLOCK];
                let width = width::<T>(&numbers[i * BLOCK..(i + 1) * BLOCK]);
                if !are_points[i] {
                    *length = VERBATIM;
                    n_bytes += put_verbatim(values, dst)?;
                } else if width == 0 && first == T::Code::ZERO {
                    *length = ZEROS;
                } else {
                    let (head, dst) = dst.split_at_mut_checked(size_of::<T::Code>())?;
                    head.copy_from_slice(bytemuck::bytes_of(&first));
                    planes.put(i, n_planes(width), dst)?;
                    *length = CODES + width as u8;
                    n_bytes += n_bytes_of::<T>(width);
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
            let are_codes = |length: u8| length != ZEROS && length != VERBATIM;
            let widths = lengths.iter().filter(|length| are_codes(**length));
            let most = widths.fold(0, |most, length| most.max(u32::from(length - CODES)));
            if most > max_width::<T>() {
                return None;
            }
            planes.clear::<T>(n_planes(most));
            let mut firsts = [T::Code::ZERO; BLOCKS];
            let mut verbatim = Verbatim::default();
            for (i, &length) in lengths.iter().enumerate() {
                if length == VERBATIM {
                    verbatim.take(i, values, &mut src)?;
                } else if length != ZEROS {
                    let width = u32::from(length - CODES);
                    let (head, rest) = src.split_at_checked(size_of::<T::Code>())?;
                    firsts[i] = bytemuck::pod_read_unaligned(head);
                    planes.take(i, n_planes(width), rest)?;
                    src = &src[n_bytes_of::<T>(width)..];
                }
            }
            planes.numbers::<T>(n_planes(most), &mut numbers);
            to_codes::<T>(&numbers, &mut codes);
            for ((i, &length), values) in lengths.iter().enumerate().zip(values.chunks(BLOCK)) {
                codes[i * BLOCK] = firsts[i];
                if are_codes(length) {
                    add_up(&mut codes[i * BLOCK..][..values.len()]);
                }
            }
            points.values(&codes, values);
            verbatim.store(values);
        }
        src.is_empty().then_some(())
    }
}

/// Returns the number of planes for signs and differences of `width` bits.
#[inline(always)]
const fn n_planes(width: u32) -> u32 {
    if width == 0 { 0 } else { 1 + width }
}

/// Returns the bytes of a block of codes with differences of `width` bits.
#[inline(always)]
const fn n_bytes_of<T: Float>(width: u32) -> usize {
    size_of::<T::Code>() + PLANE * n_planes(width) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec;
    use std::vec::Vec;

    /// Encodes on a lattice of step 1 and checks that the values decode.
    fn encoded<T: Float>(values: &[T]) -> Vec<u8> {
        let coder =
            OmpSzpCoder::<T>::new(&CoderParams { bound: 32.0 / 63.0, step: 1.0, setting: 0 });
        let mut dst = vec![0xa5; 300];
        let n_bytes = coder.encode(values, &mut dst).unwrap();
        dst.truncate(n_bytes);
        let mut decoded = vec![T::ONE; values.len()];
        let reader = <OmpSzpCoder<T> as Coder<T>>::of_parameter(1.0).unwrap();
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
        values.extend((0..32_u16).map(|i| f32::from(300 + i % 3)));
        values.extend([-2.0; 32]);
        values.extend([7.0, f32::NAN, 2.375]);
        let expected = [
            0x00, 0x03, 0x01, 0xff, 0x2c, 0x01, 0x00, 0x00, 0x48, 0x92, 0x24, 0x49, 0xb6, 0x6d,
            0xdb, 0xb6, 0x48, 0x92, 0x24, 0x49, 0xfe, 0xff, 0xff, 0xff, 0x00, 0x00, 0xe0, 0x40,
            0x00, 0x00, 0xc0, 0x7f, 0x00, 0x00, 0x18, 0x40,
        ];
        assert_eq!(encoded(&values), expected);

        let far = 2f64.powi(40);
        let expected = [
            0x05, 0x00, 0x00, 0x00, 0x00, 0x00, 0x01, 0x00, 0x00, 0x02, 0x00, 0x00, 0x00, 0x02,
            0x00, 0x00, 0x00, 0x02, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x04, 0x00, 0x00,
            0x00,
        ];
        assert_eq!(encoded(&[far, far - 3.25, far + 5.0]), expected);
    }
}
