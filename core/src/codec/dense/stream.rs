//! Writer of a payload's chunks; `reader.rs` is its inverse. They predict the codes of a chunk from
//! earlier codes, which may lie in earlier chunks. `dense` packs the residuals with a Huffman code
//! for pairs of numbers (`chunk.rs`).
//!
//! A single thread takes chunk after chunk. Each of several threads takes runs of chunks, and a
//! chain connects the runs (`chain.rs`).

use super::chain::Chain;
use super::chunk;
use super::codes::Exceptions;
use super::prediction::Prediction;
use super::space::Space;
use super::widths;
use super::window::{self, CodeWindow, Predictor, Strides};
use crate::codec::Written;
use crate::element::Float;
use crate::element::sealed::Word;
use crate::kernel::at_level::{Task, run};
use crate::kernel::{BLOCK, CHUNK, Kernel, Level};
use core::ops::Range;

/// Tag bit: the chunk has exceptions.
pub(super) const EXCEPTIONS: u8 = 8;
/// Tag bit: the chunk's codes are stored unchanged.
pub(super) const PLAIN: u8 = 16;
/// Tag bit: residuals are packed in blocks, each as wide as its largest residual.
pub(super) const FIXED: u8 = 32;
/// Tag bit: the low bits that are 0 in all residuals are left out. A byte gives their number.
pub(super) const ZEROS: u8 = 64;

/// Packing of residuals into bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Packing {
    /// Blocks as wide as their largest number.
    Fixed,
    /// Low bits and Huffman codes.
    Entropy,
}

impl Packing {
    /// Returns a function from the number of values in a chunk to its maximum bytes. These include
    /// bytes that are written only temporarily.
    pub(super) fn max_chunk_len<T: Float>(self) -> fn(usize) -> usize {
        let plain = |n_values| head_len::<T>(0) + plain_len::<T>(n_values, true);
        match self {
            Self::Entropy => plain,
            Self::Fixed => |n_values| {
                // One byte for the number of left-out zero bits.
                let fixed = 1 + widths::room::<T>(n_values.div_ceil(BLOCK));
                head_len::<T>(0) + fixed.max(plain_len::<T>(n_values, true))
            },
        }
    }
}

/// Returns the number of bytes before a chunk's contents: the tag, and in the first chunk also the
/// strides and a code from which the chunk's first codes are predicted.
pub(super) const fn head_len<T: Float>(index: usize) -> usize {
    if index == 0 { 1 + T::BYTES + size_of::<[u16; 2]>() } else { 1 }
}

fn plain_len<T: Float>(n_values: usize, has_exceptions: bool) -> usize {
    n_values * T::BYTES + if has_exceptions { n_values.div_ceil(8) } else { 0 }
}

/// Writes chunks.
pub(super) struct Writer<'a, T: Float> {
    packing: Packing,
    /// Predictor for all chunks; `None` to choose the best one for each chunk.
    predictor: Option<Predictor>,
    kernel: Kernel<T>,
    level: Level,
    window: CodeWindow<'a, T::Bits>,
    exceptions: &'a mut [Exceptions<T>],
    /// Scratch space for the residuals of a chunk.
    residuals: [T::Bits; CHUNK],
    /// `None` if this writer writes all chunks, in order.
    chain: Option<&'a dyn Chain<T::Bits>>,
}

impl<'a, T: Float> Writer<'a, T> {
    #[inline(always)]
    pub(super) fn new(
        (packing, prediction): (Packing, Prediction),
        strides: Strides,
        (kernel, level): (Kernel<T>, Level),
        space: Space<'a, T>,
        chain: Option<&'a dyn Chain<T::Bits>>,
    ) -> Self {
        Self {
            packing,
            predictor: prediction.predictor(strides),
            kernel,
            level,
            window: CodeWindow::new(strides, space.codes),
            exceptions: space.exceptions,
            residuals: [T::Bits::ZERO; CHUNK],
            chain,
        }
    }

    /// Returns the most chunks that a run may have.
    pub(super) const fn max_run(&self) -> usize {
        self.exceptions.len()
    }

    /// Starts a run of `n_codes` codes.
    pub(super) fn begin(&mut self, n_codes: usize) {
        match self.chain {
            None => self.window.go_on(n_codes),
            Some(_) => self.window.go_to(n_codes),
        }
    }

    /// Returns space for the codes of the run's chunk `nth`, and an empty list for its exceptions.
    pub(super) fn next(&mut self, nth: usize) -> (&mut [T::Bits], &mut Exceptions<T>) {
        self.window.select(nth);
        let exceptions = &mut self.exceptions[nth];
        exceptions.clear();
        (self.window.chunk_mut(), exceptions)
    }

    /// Completes the codes of the run with the chunks of these indices: the codes before the first
    /// chunk of a payload, and at exceptions. `None` if the chain has failed.
    pub(super) fn settle(&mut self, chunks: Range<usize>) -> Option<()> {
        let Some(chain) = self.chain else {
            self.settle_codes(chunks);
            return Some(());
        };
        chain.pass(chunks.clone(), &mut |codes| {
            self.window.take_over(codes);
            self.settle_codes(chunks.clone());
            self.window.hand_over(codes);
        })
    }

    fn settle_codes(&mut self, chunks: Range<usize>) {
        for (nth, index) in chunks.enumerate() {
            let exceptions = &self.exceptions[nth];
            self.window.select(nth);
            if index == 0 {
                let codes = self.window.chunk();
                let first = exceptions.first_code(codes.len());
                let before = first.map_or(T::Bits::ZERO, |first| codes[first]);
                self.window.begin(before);
            }
            if !exceptions.is_empty() {
                let before = self.window.before();
                exceptions.hold(self.window.chunk_mut(), before);
            }
        }
    }

    /// Writes the run's chunk `nth`, which has this index.
    pub(super) fn write(&mut self, index: usize, nth: usize, dst: &mut [u8]) -> Written {
        self.window.select(nth);
        let n_values = self.window.chunk().len();
        let mut tag = 0;
        let at = head_len::<T>(index);
        if index == 0 {
            let Strides { row, plane } = self.window.strides();
            dst[1..][..T::BYTES].copy_from_slice(bytemuck::bytes_of(&self.window.before()));
            dst[1 + T::BYTES..][..2].copy_from_slice(&row.to_le_bytes());
            dst[3 + T::BYTES..][..2].copy_from_slice(&plane.to_le_bytes());
        }
        if !self.exceptions[nth].is_empty() {
            tag |= EXCEPTIONS;
        }
        let n_plain = plain_len::<T>(n_values, tag & EXCEPTIONS > 0);
        let (head, body) = dst.split_at_mut(at);
        let coded = self.code(body);
        let exceptions = &self.exceptions[nth];
        let coded = coded.and_then(|(form, n_coded)| {
            let n_exceptions = match exceptions.is_empty() {
                true => 0,
                false => exceptions.write(n_values, body.get_mut(n_coded..)?)?,
            };
            Some((form, n_coded + n_exceptions))
        });
        let n_bytes = match coded {
            Some((form, n_coded)) if n_coded < n_plain => {
                tag |= form;
                n_coded
            }
            _ => {
                tag |= PLAIN;
                exceptions.write_plain(self.window.chunk(), body)
            }
        };
        head[0] = tag;
        let (verbatim, n_exceptions) = exceptions.counts();
        let mut written = Written { n_bytes: at + n_bytes, ..Written::default() };
        written.blocks.verbatim = verbatim.into();
        written.blocks.exceptions = n_exceptions.into();
        written
    }

    /// Writes the residuals of the chunk. Returns tag bits that describe their form, and the number
    /// of bytes.
    fn code(&mut self, body: &mut [u8]) -> Option<(u8, usize)> {
        let (predictor, window, residuals) = (self.predictor, &self.window, &mut self.residuals);
        if self.packing == Packing::Fixed {
            let Residuals { predictor, before, zeros } =
                run(self.level, RowResidualsTask { predictor, window, residuals });
            let residuals = &residuals[..window.chunk().len().next_multiple_of(BLOCK)];
            let (form, at) = put_zeros(zeros, body);
            let n_coded = at + widths::write(self.kernel, residuals, before, &mut body[at..])?;
            return Some((FIXED | form | predictor.bits(), n_coded));
        }
        run(self.level, EncodeTask { predictor, window, residuals, body })
    }
}

/// Writes the number of left-out low bits, if any. Returns the tag bit and the number of bytes
/// written.
#[inline(always)]
fn put_zeros(zeros: u32, body: &mut [u8]) -> (u8, usize) {
    if zeros == 0 {
        return (0, 0);
    }
    body[0] = zeros as u8;
    (ZEROS, 1)
}

/// Returns the number of low bits that are 0 in all numbers, whose OR is `any`. Returns 0 if all
/// numbers are 0.
#[inline(always)]
fn zeros_of<B: Word>(any: B) -> u32 {
    if any == B::ZERO { 0 } else { any.to_u64().trailing_zeros() }
}

/// Form of the residuals that [`RowResidualsTask`] wrote.
struct Residuals<B> {
    predictor: Predictor,
    /// Residual before the first one, if the packing has to take differences of residuals.
    before: Option<B>,
    /// Number of low bits that are 0 in all differences, and are left out.
    zeros: u32,
}

/// Computes a chunk's residuals, but without the predictor's last difference to the previous place.
/// The packing takes that difference later.
struct RowResidualsTask<'a, B> {
    predictor: Option<Predictor>,
    window: &'a CodeWindow<'a, B>,
    residuals: &'a mut [B; CHUNK],
}

impl<B: Word> Task for RowResidualsTask<'_, B> {
    type Output = Residuals<B>;

    #[inline(always)]
    fn run(self) -> Residuals<B> {
        let n_values = self.window.chunk().len();
        // Not a closure, which might be compiled without the level's instructions.
        let predictor = match self.predictor {
            Some(predictor) => predictor,
            None => self.window.best(window::width),
        };
        let (residuals, padding) =
            self.residuals[..n_values.next_multiple_of(BLOCK)].split_at_mut(n_values);
        self.window.across(predictor, 0, residuals);
        let before = predictor.has_next().then(|| self.window.across_before(predictor));
        let base = before.unwrap_or(B::ZERO);
        let zeros = zeros_of(residuals.iter().fold(B::ZERO, |any, &code| any | code.minus(base)));
        if zeros > 0 {
            residuals.iter_mut().for_each(|code| *code = chunk::above(code.minus(base), zeros));
        }
        // The padding becomes residuals of 0.
        padding.fill(if predictor.has_next() { residuals[n_values - 1] } else { B::ZERO });
        let before = before.map(|before| if zeros > 0 { B::ZERO } else { before });
        Residuals { predictor, before, zeros }
    }
}

/// Computes all residuals of a chunk and packs them.
struct EncodeTask<'a, B> {
    predictor: Option<Predictor>,
    window: &'a CodeWindow<'a, B>,
    residuals: &'a mut [B; CHUNK],
    body: &'a mut [u8],
}

impl<B: Word> Task for EncodeTask<'_, B> {
    type Output = Option<(u8, usize)>;

    #[inline(always)]
    fn run(self) -> Self::Output {
        let n_values = self.window.chunk().len();
        // Not a closure, which might be compiled without the level's instructions.
        let predictor = match self.predictor {
            Some(predictor) => predictor,
            None => self.window.best(window::entropy),
        };
        let (residuals, padding) =
            self.residuals[..n_values.next_multiple_of(BLOCK)].split_at_mut(n_values);
        self.window.differences(predictor, residuals);
        padding.fill(B::ZERO);
        let zeros = zeros_of(residuals.iter().fold(B::ZERO, |any, &number| any | number));
        if zeros > 0 {
            residuals.iter_mut().for_each(|number| *number = chunk::above(*number, zeros));
        }
        let residuals = &self.residuals[..n_values.next_multiple_of(BLOCK)];
        let (form, at) = put_zeros(zeros, self.body);
        let body = &mut self.body[at..];
        let n_coded = at + chunk::write(residuals, body)?;
        Some((form | predictor.bits(), n_coded))
    }
}
