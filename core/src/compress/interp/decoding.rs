//! A reader's loops over the lines of an array.

use super::Scheme;
use super::grid::{Grid, Group, LONG_LINE, Layer, Line, Order, Pass, ROW, layers};
use super::halves::join;
use super::loops::{Layered, LineBuffers, put_strided, rows};
use super::memory::Arrays;
use super::predict::{Integer, Predictor, Shape};
use super::raster::{Filter, RowPredictor};
use super::rounding::{Lattice, Sample};
use super::symbols::{
    FIRST, GROUPS, LAST, NEW, Residual, SMALL, activities, high, n_low, residual as unfolded,
};
use crate::codec::DecodeError;
use crate::codec::bits::BitReader;
use crate::kernel::at_level::{Task, run};
use crate::kernel::{Level, rans};
use alloc::vec::Vec;

/// A reader of an array's symbols, and the values that it has read.
pub(super) struct Decoding<'a, T: Sample> {
    level: Level,
    grid: Grid,
    lattice: Lattice,
    values: &'a mut [T],
    buffers: LineBuffers,
    symbols: SymbolReader<'a, T>,
    /// Places and bits of values off the lattice.
    off: Vec<(usize, T)>,
}

struct SymbolReader<'a, T> {
    /// Tables of each group.
    tables: [rans::Tables<'a>; GROUPS],
    reader: rans::Reader<'a>,
    low_bits: BitReader<'a>,
    off: core::slice::ChunksExact<'a, u8>,
    last_off: Option<T>,
}

impl<'a, T: Sample> Decoding<'a, T> {
    pub(super) fn new(
        level: Level,
        (grid, values, lattice): (Grid, &'a mut [T], Lattice),
        tables: [rans::Tables<'a>; GROUPS],
        [low_bits, off]: [&'a [u8]; 2],
        reader: rans::Reader<'a>,
    ) -> Self {
        let symbols = SymbolReader {
            tables,
            reader,
            low_bits: BitReader::new(low_bits),
            off: off.chunks_exact(size_of::<T>()),
            last_off: None,
        };
        let buffers = LineBuffers::new();
        Self { level, grid, lattice, values, buffers, symbols, off: Vec::new() }
    }

    /// Reads the symbols of a line. `all_active` are the activities of its layer.
    fn halves(&mut self, layer: &Layer, pass: &Pass, line: &Line, all_active: &mut [u16]) {
        let SymbolReader { tables, reader, .. } = &mut self.symbols;
        let tables = &tables[layer.group as usize];
        let buffers = &mut self.buffers;
        run(self.level, HalvesTask { reader, tables, buffers, layer, pass, line, all_active });
    }

    /// Reads the symbols of a block in a raster of one row.
    #[inline(always)]
    fn rows(&mut self, n_values: usize) {
        let LineBuffers { before, contexts, symbols: all, .. } = &mut self.buffers;
        let (n_rows, rows) = rows(n_values);
        for (row, n_symbols) in rows {
            contexts.in_row(before);
            let mut symbols = [0; ROW];
            let symbols = &mut symbols[..n_symbols];
            let SymbolReader { tables, reader, .. } = &mut self.symbols;
            reader.read(&tables[Group::Last as usize], &contexts.of[..n_symbols], symbols);
            put_strided(symbols, all, row, n_rows);
            before.copy_within(..3, 1);
            activities(symbols, &mut before[0]);
        }
    }

    /// Reads the residuals of a line from its symbols. A value off the lattice has residual 0.
    /// Returns true if there is such a value.
    #[inline(always)]
    fn residuals(
        &mut self,
        n_values: usize,
        place: impl Fn(usize) -> usize,
        residuals: &mut [T::Integer; LONG_LINE],
    ) -> Result<bool, DecodeError> {
        let symbols = &self.buffers.symbols[..n_values];
        // It wraps for values off the lattice.
        let mut most = 0;
        for (&symbol, residual) in symbols.iter().zip(&mut *residuals) {
            let number = symbol.wrapping_sub(FIRST);
            most = most.max(number);
            *residual = T::Integer::of_small(number);
        }
        if most < SMALL {
            return Ok(false);
        }
        let n_off = self.off.len();
        for (i, (&symbol, residual)) in symbols.iter().zip(&mut *residuals).enumerate() {
            if symbol.wrapping_sub(FIRST) < SMALL {
                continue;
            }
            if symbol <= NEW {
                let symbols = &mut self.symbols;
                if symbol == NEW {
                    symbols.last_off = symbols.off.next().map(bytemuck::pod_read_unaligned);
                }
                let value = symbols.last_off.ok_or(DecodeError::Damaged)?;
                self.off.push((place(i), value));
                *residual = T::Integer::default();
            } else {
                if symbol > LAST {
                    return Err(DecodeError::Damaged);
                }
                let zigzag = high(symbol) | self.symbols.low_bits.take(n_low(symbol));
                *residual = T::Integer::of_i64(unfolded(zigzag));
            }
        }
        Ok(self.off.len() > n_off)
    }

    #[inline(always)]
    fn stages(
        &mut self,
        arrays: &mut Arrays,
        (order, shape, rule): (&Order, Shape, u8),
    ) -> Result<(), DecodeError> {
        let layers = &layers(&self.grid, order);
        let mut layered = Layered::<T::Integer>::new(layers, &mut arrays.codes, &mut arrays.active);
        let mut predictor = Predictor::new();
        let mut residuals = [T::Integer::default(); LONG_LINE];
        let mut codes = [T::Integer::default(); LONG_LINE];
        let codes = &mut codes;
        let mut anchor = T::Integer::default();
        let grid = self.grid;
        for (nth, layer) in layers.iter().enumerate() {
            if nth > 0 {
                layered.advance(&layers[nth - 1], layer);
            }
            let width = Scheme::width(rule, layer.stage).into();
            for pass in &layer.passes {
                for line in layer.lines(pass) {
                    let line = &line;
                    self.halves(layer, pass, line, layered.active);
                    let place = |i| layer.place(&grid, pass, line, i);
                    self.residuals(line.n_values, place, &mut residuals)?;
                    let places = codes[..line.n_values].iter_mut().zip(&residuals);
                    if layer.group == Group::Anchors {
                        for (place, residual) in places {
                            anchor = anchor.plus(residual.times(width));
                            *place = anchor;
                        }
                    } else {
                        let predictions = predictor.line(layered.codes, layer, pass, line, shape);
                        for ((place, residual), prediction) in places.zip(predictions) {
                            *place = prediction.plus(residual.times(width));
                        }
                    }
                    layer.store(pass.columns, line, codes, layered.codes);
                }
            }
        }
        if let Some(last) = layers.last() {
            self.give(last, layered.codes);
        }
        Ok(())
    }

    /// Stores the values of the last layer.
    #[inline(always)]
    fn give(&mut self, layer: &Layer, codes: &[T::Integer]) {
        let lattice = self.lattice;
        let n_row = self.grid.sizes[2];
        for (values, codes) in self.values.chunks_exact_mut(n_row).zip(codes.chunks_exact(n_row)) {
            if layer.is_parted() {
                let (even, odd) = codes.split_at(layer.n_even);
                let (pairs, last) = values.as_chunks_mut::<2>();
                for (pair, (&even, &odd)) in pairs.iter_mut().zip(even.iter().zip(odd)) {
                    *pair = [lattice.value(even), lattice.value(odd)];
                }
                if let ([last], Some(&code)) = (last, even.last()) {
                    *last = lattice.value(code);
                }
            } else {
                for (value, &code) in values.iter_mut().zip(codes) {
                    *value = lattice.value(code);
                }
            }
        }
    }

    #[inline(always)]
    fn raster(&mut self, arrays: &mut Arrays, filter: &Filter) -> Result<(), DecodeError> {
        let mut predictor = RowPredictor::new();
        let mut residuals = [T::Integer::default(); LONG_LINE];
        let mut own = [T::Integer::default(); LONG_LINE];
        let own = &mut own;
        let grid = self.grid;
        let layer = &Layer::raster(&grid);
        let pass = &layer.passes[0];
        let n_active = if grid.is_row() { 0 } else { grid.n_values() };
        let active: &mut [u16] = arrays.active[0].of(n_active);
        for line in layer.lines(pass) {
            let line = &line;
            let n_off = self.off.len();
            if grid.is_row() {
                self.rows(line.n_values);
            } else {
                self.halves(layer, pass, line, active);
            }
            let any_off = self.residuals(line.n_values, |i| line.start + i, &mut residuals)?;
            let codes: &mut [T::Integer] = bytemuck::cast_slice_mut(self.values);
            predictor.begin(filter, codes, &grid, line);
            if any_off {
                let mut is_off = [false; LONG_LINE];
                self.off[n_off..].iter().for_each(|&(place, _)| is_off[place - line.start] = true);
                let is_off = &is_off[..line.n_values];
                predictor.codes_around(codes, &grid, line, (&residuals, is_off), own);
            } else {
                predictor.codes(codes, &grid, line, &residuals, own);
            }
            layer.store(pass.columns, line, own, codes);
        }
        for value in &mut *self.values {
            *value = self.lattice.value(bytemuck::cast(*value));
        }
        Ok(())
    }

    /// Reads all symbols. `filter` is that of a raster.
    pub(super) fn read(
        &mut self,
        arrays: &mut Arrays,
        scheme: Scheme,
        filter: Option<&Filter>,
    ) -> Result<(), DecodeError> {
        run(self.level, ReadTask { decoding: self, arrays, scheme, filter })
    }

    /// Checks that all was read, and stores the values off the lattice.
    pub(super) fn finish(self, n_words: usize) -> Result<(), DecodeError> {
        let reader = &self.symbols.reader;
        let (need, have) = (reader.n_read(), 2 * n_words);
        if need > have {
            return Err(DecodeError::Truncated { need, have });
        }
        let mut off = self.symbols.off;
        let is_sound = need == have && reader.is_at_start() && off.next().is_none();
        self.symbols.low_bits.finish().filter(|()| is_sound).ok_or(DecodeError::Damaged)?;
        for (place, value) in self.off {
            self.values[place] = value;
        }
        Ok(())
    }
}

/// Reads the symbols of a line. They are alike for all types, so it is a task by itself, and
/// compiled once.
struct HalvesTask<'a, 'b> {
    reader: &'a mut rans::Reader<'b>,
    tables: &'a rans::Tables<'b>,
    buffers: &'a mut LineBuffers,
    layer: &'a Layer,
    pass: &'a Pass,
    line: &'a Line,
    all_active: &'a mut [u16],
}

impl Task for HalvesTask<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Self { reader, tables, buffers, layer, pass, line, all_active } = self;
        let LineBuffers { active, contexts, symbols, parted, active_half, .. } = buffers;
        let n_values = line.n_values;
        let symbols = &mut symbols[..n_values];
        let (even, odd) = parted[..n_values].split_at_mut(n_values.div_ceil(2));
        contexts.begin(all_active, layer, pass, line);
        contexts.even(even.len());
        reader.read(tables, &contexts.of[..even.len()], even);
        activities(even, active_half);
        contexts.odd(&active_half[..even.len()], odd.len());
        reader.read(tables, &contexts.of[..odd.len()], odd);
        join((even, odd), symbols);
        activities(symbols, active);
        layer.store(pass.columns, line, active, all_active);
    }
}

struct ReadTask<'a, 'b, T: Sample> {
    decoding: &'a mut Decoding<'b, T>,
    arrays: &'a mut Arrays,
    scheme: Scheme,
    filter: Option<&'a Filter>,
}

impl<T: Sample> Task for ReadTask<'_, '_, T> {
    type Output = Result<(), DecodeError>;

    #[inline(always)]
    fn run(self) -> Self::Output {
        let Self { decoding, arrays, scheme, filter } = self;
        match (scheme, filter) {
            (Scheme::Stages { order, shape, rule }, _) => {
                decoding.stages(arrays, (&order, shape, rule))
            }
            (Scheme::Raster, Some(filter)) => decoding.raster(arrays, filter),
            (Scheme::Raster, None) => Err(DecodeError::Damaged),
        }
    }
}
