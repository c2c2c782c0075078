//! A writer's loops over the lines of an array.

use super::grid::{Grid, Group, LONG_LINE, Layer, Line, Order, Pass, ROW, layers};
use super::halves::{Parity, part};
use super::loops::{Layered, LineBuffers, rows, strided};
use super::memory::{Arrays, Slab};
use super::predict::{Predictor, Shape};
use super::raster::{Filter, RowPredictor};
use super::rounding::{Lattice, Sample};
use super::symbols::{BUCKETS, GROUPS, NEW, REPEATED, Residual, SMALL, activities, n_low};
use super::tables::{self, CONTEXTS, Counts, Tables};
use super::{Scheme, bits::BitSink};
use crate::kernel::at_level::{Task, run};
use crate::kernel::{Level, rans};
use alloc::vec::Vec;

/// Symbols that are coded at a time.
#[derive(Clone, Copy)]
pub(super) struct Run {
    pub(super) n_symbols: u16,
    pub(super) group: u8,
}

/// Symbols and side data of an array, before the tables are known.
#[derive(Default)]
pub(super) struct Coding {
    pub(super) runs: Vec<Run>,
    pub(super) symbols: Vec<u8>,
    /// Contexts within the group.
    pub(super) buckets: Vec<u8>,
    pub(super) low_bits: BitSink,
    /// Bits of values off the lattice.
    pub(super) off: Vec<u8>,
    /// Occurrences of symbols at even and at odd places of runs.
    counts: [Vec<Counts>; 2],
    words: Vec<u16>,
}

struct CodeTask<'a, T: Sample> {
    coding: &'a mut Coding,
    level: Level,
    arrays: &'a mut Arrays,
    values: &'a [T],
    grid: Grid,
    scheme: Scheme,
    lattice: &'a Lattice,
}

impl<T: Sample> Task for CodeTask<'_, T> {
    type Output = Option<Filter>;

    #[inline(always)]
    fn run(self) -> Option<Filter> {
        let Self { coding, level, arrays, values, grid, scheme, lattice } = self;
        match scheme {
            Scheme::Stages { order, shape, rule } => {
                coding.stages(level, arrays, (values, grid), (&order, shape, rule), lattice);
                None
            }
            Scheme::Raster => Some(coding.raster(level, arrays, (values, grid), lattice)),
        }
    }
}

/// Values of a line, and what they become.
struct Rounded<T: Sample> {
    values: [T; LONG_LINE],
    /// Residuals, in bins.
    residuals: [T::Integer; LONG_LINE],
    is_off: [bool; LONG_LINE],
    any_off: bool,
}

impl Coding {
    /// Codes values on this grid, in place of those before. A raster also has a filter.
    pub(super) fn code<T: Sample>(
        &mut self,
        arrays: &mut Arrays,
        level: Level,
        (values, grid): (&[T], Grid),
        scheme: Scheme,
        lattice: &Lattice,
    ) -> Option<Filter> {
        self.runs.clear();
        self.symbols.clear();
        self.buckets.clear();
        self.symbols.reserve(values.len());
        self.buckets.reserve(values.len());
        self.low_bits.clear();
        self.off.clear();
        run(level, CodeTask { coding: self, level, arrays, values, grid, scheme, lattice })
    }

    /// Counts the symbols of each context.
    pub(super) fn counts(&mut self) -> &[Counts] {
        for counts in &mut self.counts {
            counts.clear();
            counts.resize(CONTEXTS, [0; 256]);
        }
        let (mut symbols, mut buckets) = (&self.symbols[..], &self.buckets[..]);
        for run in &self.runs {
            let (symbols_of, symbols_left) = symbols.split_at(run.n_symbols.into());
            let (buckets_of, buckets_left) = buckets.split_at(run.n_symbols.into());
            (symbols, buckets) = (symbols_left, buckets_left);
            // Two symbols that follow each other are often alike, and would wait for each other.
            let [even, odd] = self
                .counts
                .each_mut()
                .map(|counts| &mut counts.as_chunks_mut::<BUCKETS>().0[usize::from(run.group)]);
            let (symbol_pairs, last_symbol) = symbols_of.as_chunks::<2>();
            let (bucket_pairs, last_bucket) = buckets_of.as_chunks::<2>();
            for (symbols, buckets) in symbol_pairs.iter().zip(bucket_pairs) {
                even[usize::from(buckets[0]) % BUCKETS][usize::from(symbols[0])] += 1;
                odd[usize::from(buckets[1]) % BUCKETS][usize::from(symbols[1])] += 1;
            }
            if let ([symbol], [bucket]) = (last_symbol, last_bucket) {
                even[usize::from(*bucket) % BUCKETS][usize::from(*symbol)] += 1;
            }
        }
        let [counts, others] = &mut self.counts;
        let pairs = counts.as_flattened_mut().iter_mut().zip(others.as_flattened());
        pairs.for_each(|(count, other)| *count += other);
        counts
    }

    /// Appends the states and the words of all symbols.
    pub(super) fn write(
        &mut self,
        level: Level,
        tables: &Tables,
        n_states: usize,
        out: &mut Vec<u8>,
    ) {
        run(level, WriteTask { coding: self, level, tables, n_states, out });
    }

    #[inline(always)]
    fn stages<T: Sample>(
        &mut self,
        level: Level,
        arrays: &mut Arrays,
        (values, grid): (&[T], Grid),
        (order, shape, rule): (&Order, Shape, u8),
        lattice: &Lattice,
    ) {
        let layers = &layers(&grid, order);
        let values_of = &thinned(values, layers, &mut arrays.thinned);
        let mut layered = Layered::<T::Integer>::new(layers, &mut arrays.codes, &mut arrays.active);
        let mut buffers = LineBuffers::new();
        let mut codes = [T::Integer::default(); LONG_LINE];
        let codes = &mut codes;
        let mut anchor = T::Integer::default();
        let mut predictor = Predictor::new();
        let mut rounded = Rounded::new();
        let mut last_off = None;
        for (nth, layer) in layers.iter().enumerate() {
            if nth > 0 {
                layered.advance(&layers[nth - 1], layer);
            }
            let values = values_of.get(nth).copied().unwrap_or(values);
            let width = Scheme::width(rule, layer.stage);
            for pass in &layer.passes {
                for line in layer.lines(pass) {
                    let line = &line;
                    let (n_values, step) = (line.n_values, pass.steps[2]);
                    let start = line.row + pass.starts[2] + line.n_before * step;
                    strided(values, start, step, &mut rounded.values[..n_values]);
                    rounded.any_off = false;
                    if layer.group == Group::Anchors {
                        for i in 0..n_values {
                            rounded.round_one(lattice, i, anchor, width, codes);
                            anchor = codes[i];
                        }
                    } else {
                        let predictions = predictor.line(layered.codes, layer, pass, line, shape);
                        rounded.round(lattice, 0, predictions, width, codes);
                    }
                    layer.store(pass.columns, line, codes, layered.codes);
                    self.symbols(&mut buffers, &rounded, n_values, &mut last_off);
                    self.halves(level, &mut buffers, (layer, pass, line), layered.active);
                }
            }
        }
    }

    #[inline(always)]
    fn raster<T: Sample>(
        &mut self,
        level: Level,
        arrays: &mut Arrays,
        (values, grid): (&[T], Grid),
        lattice: &Lattice,
    ) -> Filter {
        let Arrays { codes: [all, _], active: [active, _], is_off, .. } = arrays;
        let all: &mut [T::Integer] = all.of(values.len());
        let active: &mut [u16] = active.of(if grid.is_row() { 0 } else { values.len() });
        let mut buffers = LineBuffers::new();
        let mut rounded = Rounded::<T>::new();
        let zeros = [T::Integer::default(); LONG_LINE];
        is_off.clear();
        is_off.resize(values.len(), false);
        let mut before = T::Integer::default();
        let lines = values
            .chunks(LONG_LINE)
            .zip(all.chunks_mut(LONG_LINE))
            .zip(is_off.chunks_mut(LONG_LINE));
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
        let all = &*all;
        let filter = Filter::fit(level, all, &grid);
        let mut predictor = RowPredictor::new();
        let mut last_off = None;
        let layer = &Layer::raster(&grid);
        let pass = &layer.passes[0];
        let is_row = grid.is_row();
        for line in layer.lines(pass) {
            let line = &line;
            let n_values = line.n_values;
            let places = line.start..line.start + n_values;
            rounded.any_off = any_off && is_off[places.clone()].contains(&true);
            predictor.begin(&filter, all, &grid, line);
            let own = &all[places.clone()];
            predictor.residuals(all, &grid, line, own, &mut rounded.residuals);
            if rounded.any_off {
                rounded.values[..n_values].copy_from_slice(&values[places.clone()]);
                rounded.is_off[..n_values].copy_from_slice(&is_off[places]);
                let residuals = rounded.residuals.iter_mut().zip(&rounded.is_off);
                let off = residuals.take(n_values).filter(|(_, is_off)| **is_off);
                off.for_each(|(residual, _)| *residual = T::Integer::default());
            }
            self.symbols(&mut buffers, &rounded, n_values, &mut last_off);
            if is_row {
                self.rows(&mut buffers, n_values);
            } else {
                self.halves(level, &mut buffers, (layer, pass, line), active);
            }
        }
        filter
    }

    /// Finds the symbols of a line.
    #[inline(always)]
    fn symbols<T: Sample>(
        &mut self,
        buffers: &mut LineBuffers,
        rounded: &Rounded<T>,
        n_values: usize,
        last_off: &mut Option<T::Bits>,
    ) {
        let residuals = &rounded.residuals[..n_values];
        let symbols = &mut buffers.symbols[..n_values];
        // Symbols of small residuals, and bits of all.
        let mut bits = T::Integer::default();
        for (residual, symbol) in residuals.iter().zip(&mut *symbols) {
            bits = bits.or(residual.folded());
            *symbol = residual.small_symbol();
        }
        if bits.zigzag() >= SMALL.into() {
            for (residual, symbol) in residuals.iter().zip(&mut *symbols) {
                let zigzag = residual.zigzag();
                if zigzag >= SMALL.into() {
                    *symbol = residual.symbol();
                    let n_low = n_low(*symbol);
                    self.low_bits.put(zigzag & ((1 << n_low) - 1), n_low);
                }
            }
        }
        if rounded.any_off {
            for i in (0..n_values).filter(|&i| rounded.is_off[i]) {
                let value = rounded.values[i];
                symbols[i] = if *last_off == Some(value.bits()) { REPEATED } else { NEW };
                if symbols[i] == NEW {
                    *last_off = Some(value.bits());
                    self.off.extend_from_slice(bytemuck::bytes_of(&value));
                }
            }
        }
    }

    /// Codes the symbols of a line. `all_active` are the activities of its layer.
    fn halves(
        &mut self,
        level: Level,
        buffers: &mut LineBuffers,
        (layer, pass, line): (&Layer, &Pass, &Line),
        all_active: &mut [u16],
    ) {
        run(level, HalvesTask { coding: self, buffers, layer, pass, line, all_active });
    }

    /// Codes the symbols of a block in a raster of one row.
    #[inline(always)]
    fn rows(&mut self, buffers: &mut LineBuffers, n_values: usize) {
        let (n_rows, rows) = rows(n_values);
        for (row, n_symbols) in rows {
            buffers.contexts.in_row(&buffers.before);
            let mut symbols = [0; ROW];
            let symbols = &mut symbols[..n_symbols];
            strided(&buffers.symbols, row, n_rows, symbols);
            self.run(symbols, &buffers.contexts.of, Group::Last);
            buffers.before.copy_within(..3, 1);
            activities(symbols, &mut buffers.before[0]);
        }
    }

    #[inline(always)]
    fn run(&mut self, symbols: &[u8], buckets: &[u8], group: Group) {
        self.symbols.extend_from_slice(symbols);
        self.buckets.extend_from_slice(&buckets[..symbols.len()]);
        self.runs.push(Run { n_symbols: symbols.len() as u16, group: group as u8 });
    }
}

/// Codes the symbols of a line: first the even ones, and then the odd ones. Symbols are alike for
/// all types, so it is a task by itself, and compiled once.
struct HalvesTask<'a> {
    coding: &'a mut Coding,
    buffers: &'a mut LineBuffers,
    layer: &'a Layer,
    pass: &'a Pass,
    line: &'a Line,
    all_active: &'a mut [u16],
}

impl Task for HalvesTask<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Self { coding, buffers, layer, pass, line, all_active } = self;
        let LineBuffers { active, contexts, symbols, parted, active_half, .. } = buffers;
        let n_values = line.n_values;
        let n_even = n_values.div_ceil(2);
        let symbols = &symbols[..n_values];
        let (even, odd) = parted[..n_values].split_at_mut(n_even);
        contexts.begin(all_active, layer, pass, line);
        part(symbols, even, Parity::Even);
        part(symbols, odd, Parity::Odd);
        contexts.even(n_even);
        coding.run(even, &contexts.of, layer.group);
        activities(even, active_half);
        contexts.odd(&active_half[..n_even], odd.len());
        coding.run(odd, &contexts.of, layer.group);
        activities(symbols, active);
        layer.store(pass.columns, line, active, all_active);
    }
}

/// Returns the values of each layer but the last.
#[inline(always)]
fn thinned<'a, T: Sample>(values: &[T], layers: &[Layer], memory: &'a mut Slab) -> Vec<&'a [T]> {
    let n_values = |layer: &Layer| layer.grid.n_values();
    let n_thinned = layers.iter().rev().skip(1).map(n_values).sum();
    let mut memory = memory.of(n_thinned);
    let mut all: Vec<&[T]> = Vec::with_capacity(layers.len());
    for pair in layers.windows(2).rev() {
        let from = all.last().copied().unwrap_or(values);
        let (thinned, rest) = memory.split_at_mut(n_values(&pair[0]));
        pair[0].thin(&pair[1], from, thinned);
        all.push(thinned);
        memory = rest;
    }
    all.reverse();
    all
}

impl<T: Sample> Rounded<T> {
    fn new() -> Self {
        Self {
            values: [T::ZERO; LONG_LINE],
            residuals: [T::Integer::default(); LONG_LINE],
            is_off: [false; LONG_LINE],
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

    /// Rounds one value, without vectors.
    #[inline(never)]
    fn round_one(
        &mut self,
        lattice: &Lattice,
        i: usize,
        prediction: T::Integer,
        width: u8,
        codes: &mut [T::Integer],
    ) {
        self.round(lattice, i, &[prediction], width, codes);
    }
}

struct WriteTask<'a> {
    coding: &'a mut Coding,
    level: Level,
    tables: &'a Tables,
    n_states: usize,
    out: &'a mut Vec<u8>,
}

impl Task for WriteTask<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Coding { runs, symbols, buckets, words, .. } = self.coding;
        let (ranges, bases) = self.tables.ranges();
        words.resize(words.len().max(symbols.len()), 0);
        let words = &mut words[..symbols.len()];
        let mut writer = rans::Writer::new(self.level, self.n_states, words);
        let groups: [_; GROUPS] =
            core::array::from_fn(|group| tables::of_group(&ranges, &bases, group, rans::SYMBOLS));
        let mut end = symbols.len();
        for run in runs.iter().rev() {
            let places = end - usize::from(run.n_symbols)..end;
            end = places.start;
            let (buckets, symbols) = (&buckets[places.clone()], &symbols[places]);
            writer.write(&groups[usize::from(run.group)], buckets, symbols);
        }
        let (states, words) = writer.finish();
        self.out.extend(states.iter().flat_map(|state| state.to_le_bytes()));
        let begin = self.out.len();
        self.out.resize(begin + size_of_val(words), 0);
        let places = self.out[begin..].as_chunks_mut().0;
        places.iter_mut().zip(words).for_each(|(place, word)| *place = word.to_le_bytes());
    }
}
