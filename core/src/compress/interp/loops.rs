//! The loops of a writer and a reader over the lines of an array.

use super::grid::{self, Grid, Group, LINE, Line, Order, Pass};
use super::predict::{Integer, Predictor, Shape, gather};
use super::raster::{Filter, RowPredictor};
use super::rounding::{Lattice, Sample};
use super::symbols::{Contexts, NEW, OFF, REPEATED, activity, join, split};
use super::tables::{CONTEXTS, Counts, Tables};
use super::{Scheme, bits::BitSink, rans};
use crate::codec::DecodeError;
use crate::codec::bits::BitReader;
use crate::kernel::Level;
use crate::kernel::at_level::{Task, run};
use alloc::vec::Vec;

/// Codes and activities of the values that were visited, and those of a line.
struct Codes<C> {
    all: Vec<C>,
    active: Vec<u16>,
    line: [C; LINE],
    line_active: [u16; LINE],
    contexts: Contexts,
    /// Code of the last anchor.
    anchor: C,
}

impl<C: Integer> Codes<C> {
    fn new(n_values: usize) -> Self {
        Self {
            all: alloc::vec![C::default(); n_values],
            active: alloc::vec![0; n_values],
            line: [C::default(); LINE],
            line_active: [0; LINE],
            contexts: Contexts::new(),
            anchor: C::default(),
        }
    }

    /// Stores the line's codes and activities in their places.
    #[inline(always)]
    fn scatter(&mut self, line: &Line, step: usize) {
        let places = self.all[line.start..].iter_mut().step_by(step);
        for (place, &code) in places.zip(&self.line[..line.n_values]) {
            *place = code;
        }
        let places = self.active[line.start..].iter_mut().step_by(step);
        for (place, &active) in places.zip(&self.line_active[..line.n_values]) {
            *place = active;
        }
    }

    /// Calls `each` with each place of the line in the order of coding, and its context; `each`
    /// returns the value's activity.
    #[inline(always)]
    fn code_line<E>(
        &mut self,
        n_values: usize,
        is_row: bool,
        mut each: impl FnMut(usize, u8) -> Result<u16, E>,
    ) -> Result<(), E> {
        let active = &mut self.line_active[..n_values];
        let step = if is_row { 1 } else { 2 };
        self.contexts.even(n_values);
        for first in 0..step {
            if first == 1 {
                self.contexts.odd(active);
            }
            let mut i = first;
            while i < n_values {
                let context =
                    if is_row { self.contexts.in_row(i, active) } else { self.contexts.of[i] };
                active[i] = each(i, context)?;
                i += step;
            }
        }
        Ok(())
    }
}

/// What a writer makes of an array before it knows the tables.
pub(super) struct Coding {
    pub(super) symbols: Vec<u8>,
    pub(super) contexts: Vec<u8>,
    pub(super) counts: Vec<Counts>,
    pub(super) low_bits: BitSink,
    pub(super) n_low_bits: usize,
    /// Bits of values off the lattice.
    pub(super) off: Vec<u8>,
}

struct CodeTask<'a, T: Sample> {
    coding: &'a mut Coding,
    values: &'a [T],
    grid: Grid,
    scheme: Scheme,
    lattice: &'a Lattice,
}

impl<T: Sample> Task for CodeTask<'_, T> {
    type Output = Option<Filter>;

    #[inline(always)]
    fn run(self) -> Option<Filter> {
        match self.scheme {
            Scheme::Stages { order, shape, rule } => {
                self.coding.stages(self.values, self.grid, (&order, shape, rule), self.lattice);
                None
            }
            Scheme::Raster => Some(self.coding.raster(self.values, self.grid, self.lattice)),
        }
    }
}

/// Values of a line, and what they become.
struct Rounded<T> {
    values: [T; LINE],
    /// Residuals, in bins.
    residuals: [i64; LINE],
    is_off: [bool; LINE],
    any_off: bool,
}

impl Coding {
    /// Codes values on this grid. A raster also has a filter.
    pub(super) fn of<T: Sample>(
        values: &[T],
        grid: Grid,
        scheme: Scheme,
        lattice: &Lattice,
    ) -> (Self, Option<Filter>) {
        let n_values = values.len();
        let mut coding = Self {
            symbols: Vec::with_capacity(n_values),
            contexts: Vec::with_capacity(n_values),
            counts: alloc::vec![[0; 256]; CONTEXTS],
            low_bits: BitSink::default(),
            n_low_bits: 0,
            off: Vec::new(),
        };
        let task = CodeTask { coding: &mut coding, values, grid, scheme, lattice };
        let filter = run(Level::best(), task);
        (coding, filter)
    }

    #[inline(always)]
    fn stages<T: Sample>(
        &mut self,
        values: &[T],
        grid: Grid,
        (order, shape, rule): (&Order, Shape, u8),
        lattice: &Lattice,
    ) {
        let mut codes = Codes::<T::Integer>::new(values.len());
        let mut predictor = Predictor::new();
        let mut rounded = Rounded::new();
        let mut last_off = None;
        for pass in &grid::passes(&grid, order) {
            for line in grid::lines(&grid, pass) {
                let line = &line;
                let (n_values, step) = (line.n_values, pass.steps[2]);
                let width = Scheme::width(rule, pass.stage);
                gather(values, line.start, step, &mut rounded.values[..n_values]);
                codes.contexts.begin(&codes.active, &grid, pass, line);
                if pass.group == Group::Anchors {
                    rounded.any_off = false;
                    for i in 0..n_values {
                        let prediction = [codes.anchor];
                        rounded.round(lattice, i, &prediction, width, &mut codes.line);
                        codes.anchor = codes.line[i];
                    }
                } else {
                    rounded.any_off = false;
                    let predictions = predictor.line(&codes.all, &grid, pass, line, shape);
                    rounded.round(lattice, 0, predictions, width, &mut codes.line);
                }
                self.line(&mut codes, &rounded, n_values, false, &mut last_off);
                codes.scatter(line, step);
            }
        }
    }

    #[inline(always)]
    fn raster<T: Sample>(&mut self, values: &[T], grid: Grid, lattice: &Lattice) -> Filter {
        let mut codes = Codes::<T::Integer>::new(values.len());
        let mut rounded = Rounded::<T>::new();
        let zeros = [T::Integer::default(); LINE];
        let mut is_off = alloc::vec![false; values.len()];
        let mut before = T::Integer::default();
        let lines =
            values.chunks(LINE).zip(codes.all.chunks_mut(LINE)).zip(is_off.chunks_mut(LINE));
        let mut any_off = false;
        for ((values, codes), is_off) in lines {
            let from = (values, &zeros[..values.len()]);
            if !lattice.round(from, 1, codes, &mut rounded.residuals, is_off) {
                any_off = true;
                // A value off the lattice has the code before it.
                for (code, &is_off) in codes.iter_mut().zip(&*is_off) {
                    if is_off {
                        *code = before;
                    }
                    before = *code;
                }
            }
            before = codes.last().copied().unwrap_or(before);
        }
        let filter = Filter::fit(&codes.all, &grid);
        let mut predictor = RowPredictor::new();
        let mut last_off = None;
        let pass = &grid::raster();
        for line in grid::lines(&grid, pass) {
            let line = &line;
            let n_values = line.n_values;
            let places = line.start..line.start + n_values;
            rounded.values[..n_values].copy_from_slice(&values[places.clone()]);
            rounded.is_off[..n_values].copy_from_slice(&is_off[places.clone()]);
            rounded.any_off = any_off && is_off[places.clone()].contains(&true);
            codes.contexts.begin(&codes.active, &grid, pass, line);
            predictor.begin(&filter, &codes.all, &grid, line);
            let own = &codes.all[places.clone()];
            predictor.line(&codes.all, &grid, line, |i, prediction| {
                rounded.residuals[i] = own[i].minus(prediction).to_i64();
                own[i]
            });
            self.line(&mut codes, &rounded, n_values, grid.is_row(), &mut last_off);
            codes.active[places].copy_from_slice(&codes.line_active[..n_values]);
        }
        filter
    }

    /// Codes the residuals of a line.
    #[inline(always)]
    fn line<T: Sample>(
        &mut self,
        codes: &mut Codes<T::Integer>,
        rounded: &Rounded<T>,
        n_values: usize,
        is_row: bool,
        last_off: &mut Option<T::Bits>,
    ) {
        let coded = codes.code_line::<()>(n_values, is_row, |i, context| {
            let residual = rounded.residuals[i];
            let zigzag = (residual << 1 ^ residual >> 63) as u64;
            let (mut symbol, n_low) = split(zigzag);
            let mut active = activity(zigzag);
            if rounded.any_off && rounded.is_off[i] {
                let value = rounded.values[i];
                symbol = if *last_off == Some(value.bits()) { REPEATED } else { NEW };
                if symbol == NEW {
                    *last_off = Some(value.bits());
                    self.off.extend_from_slice(bytemuck::bytes_of(&value));
                }
                active = OFF;
            } else if n_low > 0 {
                self.low_bits.put(zigzag & ((1 << n_low) - 1), n_low);
                self.n_low_bits += n_low as usize;
            }
            self.symbols.push(symbol);
            self.contexts.push(context);
            self.counts[usize::from(context)][usize::from(symbol)] += 1;
            Ok(active)
        });
        debug_assert_eq!(coded, Ok(()));
    }
}

impl<T: Sample> Rounded<T> {
    fn new() -> Self {
        Self {
            values: [T::ZERO; LINE],
            residuals: [0; LINE],
            is_off: [false; LINE],
            any_off: false,
        }
    }

    /// Rounds the values from `start` on to bins around their predictions.
    #[inline(always)]
    fn round(
        &mut self,
        lattice: &Lattice,
        start: usize,
        predictions: &[T::Integer],
        width: u8,
        codes: &mut [T::Integer],
    ) {
        let places = start..start + predictions.len();
        let from = (&self.values[places.clone()], predictions);
        let (residuals, is_off) =
            (&mut self.residuals[places.clone()], &mut self.is_off[places.clone()]);
        self.any_off |= !lattice.round(from, width, &mut codes[places], residuals, is_off);
    }
}

/// A reader of an array's symbols, and the codes that it has read.
pub(super) struct Decoding<'a, T: Sample> {
    grid: Grid,
    codes: Codes<T::Integer>,
    symbols: SymbolReader<'a, T>,
    /// Places and bits of values off the lattice.
    off: Vec<(usize, T)>,
}

struct SymbolReader<'a, T> {
    of: &'a [u8; CONTEXTS],
    lookups: Vec<rans::Lookup>,
    reader: rans::Reader<'a>,
    low_bits: BitReader<'a>,
    off: core::slice::ChunksExact<'a, u8>,
    last_off: Option<T>,
}

/// A value that was read.
enum Item<T> {
    Residual(i64),
    Off(T),
}

impl<T: Sample> SymbolReader<'_, T> {
    /// Reads a value with this context. Returns its activity, too.
    #[inline(always)]
    fn next(&mut self, context: u8) -> Result<(Item<T>, u16), DecodeError> {
        let table = self.lookups.get(usize::from(self.of[usize::from(context)]));
        let symbol = self.reader.symbol(table.ok_or(DecodeError::Damaged)?);
        if symbol <= NEW {
            if symbol == NEW {
                self.last_off = self.off.next().map(bytemuck::pod_read_unaligned);
            }
            return Ok((Item::Off(self.last_off.ok_or(DecodeError::Damaged)?), OFF));
        }
        let (mut zigzag, n_low) = join(symbol);
        if n_low > 0 {
            zigzag |= self.low_bits.take_long(n_low);
        }
        let residual = (zigzag >> 1) as i64 ^ -((zigzag & 1) as i64);
        Ok((Item::Residual(residual), activity(zigzag)))
    }
}

impl<'a, T: Sample> Decoding<'a, T> {
    pub(super) fn new(
        grid: Grid,
        tables: &'a Tables,
        low_bits: &'a [u8],
        off: &'a [u8],
        coded: &'a [u8],
    ) -> Result<Self, DecodeError> {
        let symbols = SymbolReader {
            of: &tables.of,
            lookups: tables.tables.iter().map(rans::Lookup::new).collect(),
            reader: rans::Reader::new(coded)?,
            low_bits: BitReader::new(low_bits),
            off: off.chunks_exact(size_of::<T>()),
            last_off: None,
        };
        Ok(Self { grid, codes: Codes::new(grid.n_values()), symbols, off: Vec::new() })
    }

    /// Reads the residuals of a line. Those of values off the lattice are 0; returns whether there
    /// are any.
    #[inline(always)]
    fn read_line(
        &mut self,
        pass: &Pass,
        line: &Line,
        is_row: bool,
        residuals: &mut [i64; LINE],
    ) -> Result<bool, DecodeError> {
        self.codes.contexts.begin(&self.codes.active, &self.grid, pass, line);
        let n_off = self.off.len();
        self.codes.code_line(line.n_values, is_row, |i, context| {
            let (item, active) = self.symbols.next(context)?;
            residuals[i] = match item {
                Item::Residual(residual) => residual,
                Item::Off(value) => {
                    self.off.push((line.start + i * pass.steps[2], value));
                    0
                }
            };
            Ok(active)
        })?;
        Ok(self.off.len() > n_off)
    }

    #[inline(always)]
    fn stages(&mut self, order: &Order, shape: Shape, rule: u8) -> Result<(), DecodeError> {
        let mut predictor = Predictor::new();
        let mut residuals = [0; LINE];
        let grid = self.grid;
        for pass in &grid::passes(&grid, order) {
            for line in grid::lines(&grid, pass) {
                let line = &line;
                self.read_line(pass, line, false, &mut residuals)?;
                let codes = &mut self.codes;
                let width = i64::from(Scheme::width(rule, pass.stage));
                let code = |prediction: T::Integer, residual: i64| {
                    prediction.plus(T::Integer::of_i64(residual.wrapping_mul(width)))
                };
                let places = codes.line[..line.n_values].iter_mut().zip(&residuals);
                if pass.group == Group::Anchors {
                    for (place, &residual) in places {
                        codes.anchor = code(codes.anchor, residual);
                        *place = codes.anchor;
                    }
                } else {
                    let predictions = predictor.line(&codes.all, &grid, pass, line, shape);
                    for ((place, &residual), &prediction) in places.zip(predictions) {
                        *place = code(prediction, residual);
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
        let mut residuals = [0; LINE];
        let grid = self.grid;
        let pass = &grid::raster();
        for line in grid::lines(&grid, pass) {
            let line = &line;
            let n_off = self.off.len();
            let any_off = self.read_line(pass, line, grid.is_row(), &mut residuals)?;
            let codes = &mut self.codes;
            predictor.begin(filter, &codes.all, &grid, line);
            if any_off {
                let mut is_off = [false; LINE];
                self.off[n_off..].iter().for_each(|&(place, _)| is_off[place - line.start] = true);
                let mut before = line
                    .start
                    .checked_sub(1)
                    .map_or_else(Default::default, |before| codes.all[before]);
                predictor.line(&codes.all, &grid, line, |i, prediction| {
                    if !is_off[i] {
                        before = prediction.plus(T::Integer::of_i64(residuals[i]));
                    }
                    codes.line[i] = before;
                    before
                });
            } else {
                predictor.line(&codes.all, &grid, line, |i, prediction| {
                    codes.line[i] = prediction.plus(T::Integer::of_i64(residuals[i]));
                    codes.line[i]
                });
            }
            codes.scatter(line, 1);
        }
        Ok(())
    }

    /// Reads all symbols. `filter` is that of a raster.
    pub(super) fn read(
        &mut self,
        scheme: Scheme,
        filter: Option<&Filter>,
    ) -> Result<(), DecodeError> {
        run(Level::best(), ReadTask { decoding: self, scheme, filter })
    }

    /// Checks that all was read, and stores the values.
    pub(super) fn finish(mut self, lattice: &Lattice, values: &mut [T]) -> Result<(), DecodeError> {
        self.symbols.reader.finish()?;
        self.symbols.low_bits.finish().ok_or(DecodeError::Damaged)?;
        if self.symbols.off.next().is_some() {
            return Err(DecodeError::Damaged);
        }
        for (value, &code) in values.iter_mut().zip(&self.codes.all) {
            *value = lattice.value(code);
        }
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
