//! Writer and reader of a payload's chunks, in order. They predict the codes of a chunk from
//! earlier codes, which may lie in earlier chunks. `dense` packs the residuals with a Huffman code
//! for pairs of numbers (the *pair code*, `huffman.rs`), which writer and reader derive from
//! earlier chunks.

use super::chunk::{self, PairCounts};
use super::codes::Exceptions;
use super::huffman::{CodeLengths, Decoder, Encoder, PAIRS};
use super::prediction::Prediction;
use super::widths;
use super::window::{self, CodeWindow, Predictor, Strides};
use crate::codec::DecodeError;
use crate::codec::chunked::{CheckedPayload, chunk_len};
use crate::element::Float;
use crate::element::sealed::Word;
use crate::kernel::at_level::{Task, run};
use crate::kernel::{BLOCK, CHUNK, Kernel, Level};

/// Tag bit: the chunk has exceptions.
const EXCEPTIONS: u8 = 8;
/// Tag bit: the chunk's codes are stored unchanged.
const PLAIN: u8 = 16;
/// Tag bit: residuals are packed in blocks, each as wide as its largest residual.
const FIXED: u8 = 32;
/// Tag bit: the low bits that are 0 in all residuals are left out. A byte gives their number.
const ZEROS: u8 = 64;

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
const fn head_len<T: Float>(index: usize) -> usize {
    if index == 0 { 1 + T::BYTES + size_of::<[u16; 2]>() } else { 1 }
}

fn plain_len<T: Float>(n_values: usize, has_exceptions: bool) -> usize {
    n_values * T::BYTES + if has_exceptions { n_values.div_ceil(8) } else { 0 }
}

/// Returns whether the pair code of the following chunks is derived from the pairs of chunk
/// `index`. This is so for the first, fourth, sixteenth chunk and so on, but not for the last one.
const fn counts_pairs(index: usize, n_values: usize) -> bool {
    let n_chunks = n_values.div_ceil(CHUNK);
    let n_read = index + 1;
    n_read.is_power_of_two() && n_read.trailing_zeros().is_multiple_of(2) && n_read < n_chunks
}

/// Writes chunks in order.
pub(super) struct Writer<T: Float> {
    packing: Packing,
    /// Predictor for all chunks; `None` to choose the best one for each chunk.
    predictor: Option<Predictor>,
    kernel: Kernel<T>,
    level: Level,
    n_values: usize,
    window: CodeWindow<T::Bits>,
    /// `None` for the initial pair code.
    encoder: Option<Encoder>,
    /// Scratch space for the residuals of a chunk.
    residuals: [T::Bits; CHUNK],
    index: usize,
}

impl<T: Float> Writer<T> {
    #[inline(always)]
    pub(super) fn new(
        (packing, prediction): (Packing, Prediction),
        strides: Strides,
        (kernel, level): (Kernel<T>, Level),
        n_values: usize,
    ) -> Self {
        Self {
            packing,
            predictor: prediction.predictor(strides),
            kernel,
            level,
            n_values,
            window: CodeWindow::new(strides),
            encoder: None,
            residuals: [T::Bits::ZERO; CHUNK],
            index: 0,
        }
    }

    /// Starts the next chunk, of `n_values` values, and returns space for its codes.
    pub(super) fn next(&mut self, n_values: usize) -> &mut [T::Bits] {
        self.window.go_on(n_values);
        self.window.chunk_mut()
    }

    /// Returns the codes of the chunk.
    pub(super) fn codes(&self) -> &[T::Bits] {
        self.window.chunk()
    }

    /// Writes the chunk and returns the number of bytes.
    pub(super) fn write(&mut self, exceptions: &Exceptions<T>, dst: &mut [u8]) -> usize {
        let n_values = self.window.chunk().len();
        let mut tag = 0;
        let at = head_len::<T>(self.index);
        let mut before = self.window.before();
        if self.index == 0 {
            let first = exceptions.first_code(n_values);
            before = first.map_or(T::Bits::ZERO, |first| self.window.chunk()[first]);
            let strides = self.window.strides();
            self.window.begin(strides, before);
            dst[1..][..T::BYTES].copy_from_slice(bytemuck::bytes_of(&before));
            dst[1 + T::BYTES..][..2].copy_from_slice(&strides.row.to_le_bytes());
            dst[3 + T::BYTES..][..2].copy_from_slice(&strides.plane.to_le_bytes());
        }
        if !exceptions.is_empty() {
            tag |= EXCEPTIONS;
            exceptions.hold(self.window.chunk_mut(), before);
        }
        let n_plain = plain_len::<T>(n_values, tag & EXCEPTIONS > 0);
        let (head, body) = dst.split_at_mut(at);
        let coded = self.code(body).and_then(|(form, n_coded, counts)| {
            let n_exceptions = match exceptions.is_empty() {
                true => 0,
                false => exceptions.write(n_values, body.get_mut(n_coded..)?)?,
            };
            Some((form, n_coded + n_exceptions, counts))
        });
        let n_bytes = match coded {
            Some((form, n_coded, counts)) if n_coded < n_plain => {
                tag |= form;
                if let Some(counts) = counts {
                    self.encoder = Some(Encoder::new(&CodeLengths::of(&counts)));
                }
                n_coded
            }
            _ => {
                tag |= PLAIN;
                exceptions.write_plain(self.window.chunk(), body)
            }
        };
        head[0] = tag;
        self.index += 1;
        at + n_bytes
    }

    /// Writes the residuals of the chunk. Returns tag bits that describe their form, the number of
    /// bytes, and the pair counts if the next pair code is derived from them.
    fn code(&mut self, body: &mut [u8]) -> Option<(u8, usize, Option<PairCounts>)> {
        let (predictor, window, residuals) = (self.predictor, &self.window, &mut self.residuals);
        if self.packing == Packing::Fixed {
            let Residuals { predictor, before, zeros } =
                run(self.level, RowResidualsTask { predictor, window, residuals });
            let residuals = &residuals[..window.chunk().len().next_multiple_of(BLOCK)];
            let (form, at) = put_zeros(zeros, body);
            let n_coded = at + widths::write(self.kernel, residuals, before, &mut body[at..])?;
            return Some((FIXED | form | predictor.bits(), n_coded, None));
        }
        let mut counts = counts_pairs(self.index, self.n_values).then_some([0; PAIRS]);
        let encoder = self.encoder.as_ref().unwrap_or(Encoder::INITIAL);
        let encode =
            EncodeTask { predictor, window, residuals, encoder, counts: &mut counts, body };
        let (form, n_coded) = run(self.level, encode)?;
        Some((form, n_coded, counts))
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
    window: &'a CodeWindow<B>,
    residuals: &'a mut [B; CHUNK],
}

impl<B: Word> Task for RowResidualsTask<'_, B> {
    type Output = Residuals<B>;

    #[inline(always)]
    fn run(self) -> Residuals<B> {
        let n_values = self.window.chunk().len();
        let predictor = self.predictor.unwrap_or_else(|| self.window.best(window::width));
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

/// Computes all residuals of a chunk and packs them with the pair code.
struct EncodeTask<'a, B> {
    predictor: Option<Predictor>,
    window: &'a CodeWindow<B>,
    residuals: &'a mut [B; CHUNK],
    encoder: &'a Encoder,
    counts: &'a mut Option<PairCounts>,
    body: &'a mut [u8],
}

impl<B: Word> Task for EncodeTask<'_, B> {
    type Output = Option<(u8, usize)>;

    #[inline(always)]
    fn run(self) -> Self::Output {
        let n_values = self.window.chunk().len();
        let predictor = self.predictor.unwrap_or_else(|| self.window.best(window::entropy));
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
        let n_coded = at + chunk::write(residuals, self.encoder, self.counts.as_mut(), body)?;
        Some((form | predictor.bits(), n_coded))
    }
}

/// Reads chunks in order.
pub(super) struct Reader<'a, T: Float> {
    kernel: Kernel<T>,
    level: Level,
    stream: CheckedPayload<'a, T>,
    window: CodeWindow<T::Bits>,
    /// `None` for the initial pair code.
    decoder: Option<Decoder>,
    pub(super) exceptions: Exceptions<T>,
    index: usize,
}

impl<'a, T: Float> Reader<'a, T> {
    #[inline(always)]
    pub(super) fn new(stream: CheckedPayload<'a, T>, (kernel, level): (Kernel<T>, Level)) -> Self {
        Self {
            kernel,
            level,
            stream,
            window: CodeWindow::new(Strides::default()),
            decoder: None,
            exceptions: Exceptions::NONE,
            index: 0,
        }
    }

    /// Returns the codes of the chunk.
    pub(super) fn codes(&self) -> &[T::Bits] {
        self.window.chunk()
    }

    /// Reads the next chunk.
    pub(super) fn read(&mut self) -> Result<(), DecodeError> {
        let (src, len) = self.stream.chunk(self.index)?;
        // The decoder may read up to eight bytes past a chunk. After the last chunk, the payload
        // has padding for this.
        if src.len() < len || len < head_len::<T>(self.index) {
            return Err(DecodeError::Damaged);
        }
        self.exceptions.clear();
        self.chunk(src, len).ok_or(DecodeError::Damaged)?;
        self.index += 1;
        Ok(())
    }

    fn chunk(&mut self, src: &[u8], len: usize) -> Option<()> {
        let n_values = chunk_len(self.stream.n_values, self.index);
        let (tag, at) = (src[0], head_len::<T>(self.index));
        if self.index == 0 {
            let stride = |at: usize| u16::from_le_bytes([src[at], src[at + 1]]);
            let (row, plane) = (stride(1 + T::BYTES), stride(3 + T::BYTES));
            let strides = Strides { row, plane };
            if Strides::within(row.into(), plane.into()) != strides {
                return None;
            }
            self.window.begin(strides, bytemuck::pod_read_unaligned(&src[1..1 + T::BYTES]));
        }
        self.window.go_on(n_values);
        let has_exceptions = tag & EXCEPTIONS > 0;
        let (src, len) = (&src[at..], len - at);
        if tag & PLAIN > 0 {
            if tag & !EXCEPTIONS != PLAIN {
                return None;
            }
            let codes = self.window.chunk_mut();
            self.exceptions.read_plain(has_exceptions, codes, &src[..len])?;
            let before = self.window.before();
            self.exceptions.hold(self.window.chunk_mut(), before);
            return Some(());
        }
        let predictor = Predictor::of_bits(tag & Predictor::BITS, self.window.strides())?;
        let window = &mut self.window;
        let mut before = predictor.has_next().then(|| window.across_before(predictor));
        let rows_before = predictor.has_next_twice().then(|| window.rows_before(predictor));
        let mut scaled = None;
        let (mut src, mut len) = (src, len);
        if tag & ZEROS > 0 {
            let zeros = u32::from(*src[..len].first()?);
            if !(1..T::Bits::BITS).contains(&zeros) {
                return None;
            }
            (src, len) = (&src[1..], len - 1);
            // First add up the residuals as they are stored, without low bits. `RescaleTask` then
            // restores the low bits of the sums.
            scaled = Some((zeros, before.unwrap_or(T::Bits::ZERO)));
            before = before.map(|_| T::Bits::ZERO);
        }
        let n_coded = if tag & FIXED > 0 {
            widths::read(self.kernel, src, len, before, window.blocks_mut())?
        } else {
            let mut counts = counts_pairs(self.index, self.stream.n_values).then_some([0; PAIRS]);
            let decoder = self.decoder.as_ref().unwrap_or(Decoder::INITIAL);
            let numbers = window.blocks_mut();
            let decode = DecodeTask { src, len, decoder, counts: &mut counts, numbers };
            let n_coded = run(self.level, decode)?;
            if let Some(counts) = counts {
                Decoder::learn(&mut self.decoder, &counts);
            }
            if let Some(before) = before {
                widths::add_up(self.kernel, window.blocks_mut(), before)?;
            }
            n_coded
        };
        if let Some((zeros, base)) = scaled {
            run(self.level, RescaleTask { zeros, base, window });
        }
        if let Some(before) = rows_before {
            widths::add_up(self.kernel, window.blocks_mut(), before)?;
        }
        run(self.level, UndoRowsTask { predictor, window });
        let rest = &src[n_coded..len];
        if has_exceptions {
            self.exceptions.read(n_values, rest)
        } else {
            rest.is_empty().then_some(())
        }
    }
}

/// Restores the low bits that were left out of the differences to `base`, and adds `base`.
struct RescaleTask<'a, B> {
    zeros: u32,
    base: B,
    window: &'a mut CodeWindow<B>,
}

impl<B: Word> Task for RescaleTask<'_, B> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        for code in self.window.blocks_mut() {
            *code = (*code << self.zeros).plus(self.base);
        }
    }
}

/// Turns residuals to neighbours in other rows and planes back into codes.
struct UndoRowsTask<'a, B> {
    predictor: Predictor,
    window: &'a mut CodeWindow<B>,
}

impl<B: Word> Task for UndoRowsTask<'_, B> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        self.window.undo_rows(self.predictor);
    }
}

struct DecodeTask<'a, B> {
    src: &'a [u8],
    len: usize,
    decoder: &'a Decoder,
    counts: &'a mut Option<PairCounts>,
    numbers: &'a mut [B],
}

impl<B: Word> Task for DecodeTask<'_, B> {
    type Output = Option<usize>;

    #[inline(always)]
    fn run(self) -> Option<usize> {
        chunk::read(self.src, self.len, self.decoder, self.counts.as_mut(), self.numbers)
    }
}
