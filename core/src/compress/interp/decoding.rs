//! A reader's loops over the lines of an array.

use super::Scheme;
use super::grid::{self, Grid, Group, LONG_LINE, Line, Order, Pass, ROW};
use super::loops::{Codes, join, rows};
use super::predict::{Integer, Predictor, Shape, put_strided};
use super::raster::{Filter, RowPredictor};
use super::rounding::{Lattice, Sample};
use super::symbols::{
    FIRST, GROUPS, LAST, NEW, Residual, SMALL, activities, high, n_low, residual,
};
use crate::codec::DecodeError;
use crate::codec::bits::BitReader;
use crate::kernel::at_level::{Task, run};
use crate::kernel::{Level, rans};
use alloc::vec::Vec;

/// A reader of an array's symbols, and the codes that it has read.
pub(super) struct Decoding<'a, T: Sample> {
    level: Level,
    grid: Grid,
    codes: Codes<'a, T::Integer>,
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

impl<T> SymbolReader<'_, T> {
    #[inline(always)]
    fn run(&mut self, group: Group, buckets: &[u8], symbols: &mut [u8]) {
        self.reader.read(&self.tables[group as usize], &buckets[..symbols.len()], symbols);
    }
}

impl<'a, T: Sample> Decoding<'a, T> {
    pub(super) fn new(
        level: Level,
        (grid, values): (Grid, &'a mut [T]),
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
        let codes = Codes::new(bytemuck::cast_slice_mut(values));
        Self { level, grid, codes, symbols, off: Vec::new() }
    }

    /// Reads the symbols of a line.
    #[inline(always)]
    fn halves(&mut self, pass: &Pass, line: &Line) {
        let Codes { active, line_active, contexts, symbols, parted, active_half, .. } =
            &mut self.codes;
        let n_values = line.n_values;
        let n_even = n_values.div_ceil(2);
        let (even, odd) = parted[..n_values].split_at_mut(n_even);
        contexts.begin(active, &self.grid, pass, line);
        contexts.even(n_even);
        self.symbols.run(pass.group, &contexts.of, even);
        activities(even, active_half);
        contexts.odd(&active_half[..n_even], odd.len());
        self.symbols.run(pass.group, &contexts.of, odd);
        join(&parted[..n_values], symbols);
        activities(&symbols[..n_values], line_active);
    }

    /// Reads the symbols of a block in a raster of one row.
    #[inline(always)]
    fn rows(&mut self, n_values: usize) {
        let Codes { before, contexts, symbols: all, .. } = &mut self.codes;
        let (n_rows, rows) = rows(n_values);
        for (row, n_symbols) in rows {
            contexts.in_row(before);
            let mut symbols = [0; ROW];
            let symbols = &mut symbols[..n_symbols];
            self.symbols.run(Group::Last, &contexts.of, symbols);
            put_strided(symbols, all, row, n_rows);
            before.copy_within(..3, 1);
            activities(symbols, &mut before[0]);
        }
    }

    /// Makes residuals of the symbols of a line. Those of values off the lattice are 0; returns
    /// whether there are any.
    #[inline(always)]
    fn residuals(
        &mut self,
        line: &Line,
        step: usize,
        residuals: &mut [T::Integer; LONG_LINE],
    ) -> Result<bool, DecodeError> {
        let symbols = &self.codes.symbols[..line.n_values];
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
        for (i, (&symbol, place)) in symbols.iter().zip(&mut *residuals).enumerate() {
            if symbol <= NEW {
                let symbols = &mut self.symbols;
                if symbol == NEW {
                    symbols.last_off = symbols.off.next().map(bytemuck::pod_read_unaligned);
                }
                let value = symbols.last_off.ok_or(DecodeError::Damaged)?;
                self.off.push((line.start + i * step, value));
                *place = T::Integer::default();
            } else {
                if symbol > LAST {
                    return Err(DecodeError::Damaged);
                }
                let zigzag = high(symbol) | self.symbols.low_bits.take(n_low(symbol));
                *place = T::Integer::of_i64(residual(zigzag));
            }
        }
        Ok(self.off.len() > n_off)
    }

    #[inline(always)]
    fn stages(&mut self, order: &Order, shape: Shape, rule: u8) -> Result<(), DecodeError> {
        let mut predictor = Predictor::new();
        let mut residuals = [T::Integer::default(); LONG_LINE];
        let grid = self.grid;
        for pass in &grid::passes(&grid, order) {
            for line in grid::lines(&grid, pass) {
                let line = &line;
                self.halves(pass, line);
                self.residuals(line, pass.steps[2], &mut residuals)?;
                let codes = &mut self.codes;
                let width = Scheme::width(rule, pass.stage).into();
                let places = codes.line[..line.n_values].iter_mut().zip(&residuals);
                if pass.group == Group::Anchors {
                    for (place, residual) in places {
                        codes.anchor = codes.anchor.plus(residual.times(width));
                        *place = codes.anchor;
                    }
                } else {
                    let predictions = predictor.line(codes.all, &grid, pass, line, shape);
                    for ((place, residual), prediction) in places.zip(predictions) {
                        *place = prediction.plus(residual.times(width));
                    }
                }
                codes.scatter(line, pass.steps[2]);
            }
        }
        Ok(())
    }

    #[inline(always)]
    fn raster(&mut self, filter: &Filter) -> Result<(), DecodeError> {
        let mut predictor = RowPredictor::new();
        let mut residuals = [T::Integer::default(); LONG_LINE];
        let grid = self.grid;
        let pass = &grid::raster(&grid);
        for line in grid::lines(&grid, pass) {
            let line = &line;
            let n_off = self.off.len();
            if grid.is_row() {
                self.rows(line.n_values);
            } else {
                self.halves(pass, line);
            }
            let any_off = self.residuals(line, 1, &mut residuals)?;
            let codes = &mut self.codes;
            predictor.begin(filter, codes.all, &grid, line);
            if any_off {
                let mut is_off = [false; LONG_LINE];
                self.off[n_off..].iter().for_each(|&(place, _)| is_off[place - line.start] = true);
                let is_off = &is_off[..line.n_values];
                predictor.codes_around(
                    codes.all,
                    &grid,
                    line,
                    (&residuals, is_off),
                    &mut codes.line,
                );
            } else {
                predictor.codes(codes.all, &grid, line, &residuals, &mut codes.line);
            }
            if grid.is_row() {
                put_strided(&codes.line[..line.n_values], codes.all, line.start, 1);
            } else {
                codes.scatter(line, 1);
            }
        }
        Ok(())
    }

    /// Reads all symbols. `filter` is that of a raster.
    pub(super) fn read(
        &mut self,
        scheme: Scheme,
        filter: Option<&Filter>,
    ) -> Result<(), DecodeError> {
        run(self.level, ReadTask { decoding: self, scheme, filter })
    }

    /// Checks that all was read, and stores the values.
    pub(super) fn finish(mut self, n_words: usize, lattice: &Lattice) -> Result<(), DecodeError> {
        let reader = &self.symbols.reader;
        let (need, have) = (reader.n_read(), 2 * n_words);
        if need > have {
            return Err(DecodeError::Truncated { need, have });
        }
        let is_sound = need == have && reader.is_at_start() && self.symbols.off.next().is_none();
        self.symbols.low_bits.finish().filter(|()| is_sound).ok_or(DecodeError::Damaged)?;
        run(self.level, ValueTask::<T> { codes: self.codes.all, lattice });
        let values: &mut [T] = bytemuck::cast_slice_mut(self.codes.all);
        for (place, value) in self.off {
            values[place] = value;
        }
        Ok(())
    }
}

struct ReadTask<'a, 'b, T: Sample> {
    decoding: &'a mut Decoding<'b, T>,
    scheme: Scheme,
    filter: Option<&'a Filter>,
}

impl<T: Sample> Task for ReadTask<'_, '_, T> {
    type Output = Result<(), DecodeError>;

    #[inline(always)]
    fn run(self) -> Self::Output {
        match (self.scheme, self.filter) {
            (Scheme::Stages { order, shape, rule }, _) => self.decoding.stages(&order, shape, rule),
            (Scheme::Raster, Some(filter)) => self.decoding.raster(filter),
            (Scheme::Raster, None) => Err(DecodeError::Damaged),
        }
    }
}

/// Makes values of codes, in their memory.
struct ValueTask<'a, T: Sample> {
    codes: &'a mut [T::Integer],
    lattice: &'a Lattice,
}

impl<T: Sample> Task for ValueTask<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        for place in self.codes {
            *place = bytemuck::cast(self.lattice.value::<T>(*place));
        }
    }
}
