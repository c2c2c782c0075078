//! Reader of a payload's chunks: the inverse of `stream.rs`.

use super::chain::Chain;
use super::chunk;
use super::codes::Exceptions;
use super::space::{MAX_RUN, Space};
use super::stream::{EXCEPTIONS, FIXED, PLAIN, ZEROS, head_len};
use super::widths;
use super::window::{CodeWindow, Predictor, Strides};
use crate::codec::DecodeError;
use crate::codec::chunked::CheckedPayload;
use crate::element::Float;
use crate::element::sealed::Word;
use crate::kernel::at_level::{Task, run};
use crate::kernel::{CHUNK, Kernel, Level};
use core::ops::Range;

/// Payload to be read, with the contents of its first chunk's head.
#[derive(Clone, Copy)]
pub(super) struct Input<'a, T: Float> {
    pub(super) stream: CheckedPayload<'a, T>,
    pub(super) strides: Strides,
    /// Code from which the first codes are predicted.
    pub(super) before: T::Bits,
}

impl<'a, T: Float> Input<'a, T> {
    pub(super) fn of(stream: CheckedPayload<'a, T>) -> Result<Self, DecodeError> {
        let (strides, before) = (Strides::default(), T::Bits::ZERO);
        if stream.n_values == 0 {
            return Ok(Self { stream, strides, before });
        }
        let head = Self::chunk(&stream, 0)?.0;
        let stride = |at: usize| u16::from_le_bytes([head[at], head[at + 1]]);
        let (row, plane) = (stride(1 + T::BYTES), stride(3 + T::BYTES));
        let strides = Strides { row, plane };
        if Strides::within(row.into(), plane.into()) != strides {
            return Err(DecodeError::Damaged);
        }
        Ok(Self { stream, strides, before: bytemuck::pod_read_unaligned(&head[1..][..T::BYTES]) })
    }

    /// Returns all bytes from the start of a chunk on, and the chunk's length, which is not less
    /// than that of its head.
    fn chunk(
        stream: &CheckedPayload<'a, T>,
        index: usize,
    ) -> Result<(&'a [u8], usize), DecodeError> {
        let (src, len) = stream.chunk(index)?;
        // The decoder may read up to eight bytes past a chunk. After the last chunk, the payload
        // has padding for this.
        if src.len() < len || len < head_len::<T>(index) {
            return Err(DecodeError::Damaged);
        }
        Ok((src, len))
    }
}

/// Reads chunks.
pub(super) struct Reader<'a, T: Float> {
    kernel: Kernel<T>,
    level: Level,
    stream: CheckedPayload<'a, T>,
    window: CodeWindow<'a, T::Bits>,
    exceptions: &'a mut [Exceptions<T>],
    /// `None` if this reader reads all chunks, in order.
    chain: Option<&'a dyn Chain<T::Bits>>,
}

/// Form of a chunk whose numbers are read, and which lacks only what earlier chunks provide.
#[derive(Clone, Copy)]
enum Form {
    /// The numbers are codes.
    Plain,
    /// The numbers are residuals, without this many low bits that are 0. Residuals to the previous
    /// place are added up, from 0 on if they are `relative`.
    Residuals { predictor: Predictor, is_relative: bool, zeros: u32 },
}

impl<'a, T: Float> Reader<'a, T> {
    #[inline(always)]
    pub(super) fn new(
        Input { stream, strides, before }: Input<'a, T>,
        (kernel, level): (Kernel<T>, Level),
        Space { codes, exceptions }: Space<'a, T>,
        chain: Option<&'a dyn Chain<T::Bits>>,
    ) -> Self {
        let mut window = CodeWindow::new(strides, codes);
        window.begin(before);
        Self { kernel, level, stream, window, exceptions, chain }
    }

    /// Returns the codes of the run's chunk `nth`, and its exceptions.
    pub(super) fn chunk(&self, nth: usize) -> (&[T::Bits], &Exceptions<T>) {
        (self.window.nth(nth), &self.exceptions[nth])
    }

    /// Reads the run of chunks with these indices.
    pub(super) fn read(&mut self, chunks: Range<usize>) -> Result<(), DecodeError> {
        let n_codes = self.stream.n_values.min(chunks.end * CHUNK) - chunks.start * CHUNK;
        match self.chain {
            None => self.window.go_on(n_codes),
            Some(_) => self.window.go_to(n_codes),
        }
        let mut forms = [Form::Plain; MAX_RUN];
        for (nth, (index, form)) in chunks.clone().zip(&mut forms).enumerate() {
            let (src, len) = Input::chunk(&self.stream, index)?;
            self.window.select(nth);
            *form = self.numbers(index, nth, src, len).ok_or(DecodeError::Damaged)?;
        }
        let forms = &forms[..chunks.len()];
        match self.chain {
            None => self.settle(forms),
            Some(chain) => {
                let mut done = None;
                let passed = chain.pass(chunks, &mut |codes| {
                    self.window.take_over(codes);
                    done = self.settle(forms);
                    self.window.hand_over(codes);
                });
                passed.and(done)
            }
        }
        .ok_or(DecodeError::Damaged)
    }

    /// Reads the numbers of a chunk, and its exceptions.
    fn numbers(&mut self, index: usize, nth: usize, src: &[u8], len: usize) -> Option<Form> {
        let n_values = self.window.chunk().len();
        let (tag, at) = (src[0], head_len::<T>(index));
        let (src, len) = (&src[at..], len - at);
        self.exceptions[nth].clear();
        let has_exceptions = tag & EXCEPTIONS > 0;
        if tag & PLAIN > 0 {
            if tag & !EXCEPTIONS != PLAIN {
                return None;
            }
            let codes = self.window.chunk_mut();
            self.exceptions[nth].read_plain(has_exceptions, codes, &src[..len])?;
            return Some(Form::Plain);
        }
        let predictor = Predictor::of_bits(tag & Predictor::BITS, self.window.strides())?;
        let (mut src, mut len, mut zeros) = (src, len, 0);
        if tag & ZEROS > 0 {
            zeros = u32::from(*src[..len].first()?);
            if !(1..T::Bits::BITS).contains(&zeros) {
                return None;
            }
            (src, len) = (&src[1..], len - 1);
        }
        let is_relative = zeros > 0 || self.chain.is_some();
        let before = predictor.has_next().then(|| match is_relative {
            true => T::Bits::ZERO,
            false => self.window.across_before(predictor),
        });
        let numbers = self.window.blocks_mut();
        let n_coded = if tag & FIXED > 0 {
            widths::read(self.kernel, src, len, before, numbers)?
        } else {
            let n_coded = run(self.level, DecodeTask { src, len, numbers: &mut *numbers })?;
            if let Some(before) = before {
                widths::add_up(self.kernel, numbers, before)?;
            }
            n_coded
        };
        let (rest, n_rest) = (src.get(n_coded..)?, len - n_coded);
        if has_exceptions {
            self.exceptions[nth].read(n_values, rest, n_rest)?;
        } else if n_rest > 0 {
            return None;
        }
        Some(Form::Residuals { predictor, is_relative, zeros })
    }

    /// Turns the numbers of a run into codes, with the codes before it.
    fn settle(&mut self, forms: &[Form]) -> Option<()> {
        for (nth, &form) in forms.iter().enumerate() {
            let window = &mut self.window;
            window.select(nth);
            let Form::Residuals { predictor, is_relative, zeros } = form else {
                let before = window.before();
                self.exceptions[nth].hold(window.chunk_mut(), before);
                continue;
            };
            let has_next = predictor.has_next();
            let base = if has_next { window.across_before(predictor) } else { T::Bits::ZERO };
            let rows_before = predictor.has_next_twice().then(|| window.rows_before(predictor));
            if zeros > 0 || (is_relative && has_next) {
                run(self.level, RescaleTask { zeros, base, window });
            }
            if let Some(before) = rows_before {
                widths::add_up(self.kernel, window.blocks_mut(), before)?;
            }
            run(self.level, UndoRowsTask { predictor, window });
        }
        Some(())
    }
}

/// Restores the low bits that were left out of the differences to `base`, and adds `base`.
struct RescaleTask<'a, 'w, B> {
    zeros: u32,
    base: B,
    window: &'a mut CodeWindow<'w, B>,
}

impl<B: Word> Task for RescaleTask<'_, '_, B> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        for code in self.window.blocks_mut() {
            *code = (*code << self.zeros).plus(self.base);
        }
    }
}

/// Turns residuals to neighbours in other rows and planes back into codes.
struct UndoRowsTask<'a, 'w, B> {
    predictor: Predictor,
    window: &'a mut CodeWindow<'w, B>,
}

impl<B: Word> Task for UndoRowsTask<'_, '_, B> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        self.window.undo_rows(self.predictor);
    }
}

struct DecodeTask<'a, B> {
    src: &'a [u8],
    len: usize,
    numbers: &'a mut [B],
}

impl<B: Word> Task for DecodeTask<'_, B> {
    type Output = Option<usize>;

    #[inline(always)]
    fn run(self) -> Option<usize> {
        chunk::read(self.src, self.len, self.numbers)
    }
}
