//! Frequencies of symbols: made from counts, and written to and read from a payload.
//!
//! A *context* is what a reader knows about a symbol before it reads it. Contexts in which symbols
//! are distributed alike share a table, since each table takes space.

use super::bits::BitSink;
use super::symbols::{BUCKETS, GROUPS, LAST};
use crate::codec::DecodeError;
use crate::codec::bits::BitReader;
use crate::kernel::rans::{self, PROBABILITY_BITS};
use alloc::vec::Vec;

const TOTAL: u32 = 1 << PROBABILITY_BITS;
/// Most tables of a group.
const MAX_TABLES: usize = 16;
/// Number of contexts.
pub(super) const CONTEXTS: usize = GROUPS * BUCKETS;
/// Bits of a frequency after its leading 1 that are kept.
const KEPT_BITS: u32 = 2;

/// Occurrences of each symbol.
pub(super) type Counts = [u32; 256];

/// Frequencies of symbols in 2¹².
#[derive(Clone)]
pub(super) struct Table {
    frequencies: [u16; 256],
    /// The symbol that gets what others leave.
    rest: u8,
}

/// Returns how many low bits of a frequency are not kept.
const fn n_cut(frequency: u32) -> u32 {
    (u32::BITS - frequency.leading_zeros()).saturating_sub(1 + KEPT_BITS)
}

/// Rounds a frequency so that no bit is lost when it is written.
const fn cut(frequency: u32) -> u32 {
    let rounded = frequency + ((1 << n_cut(frequency)) >> 1);
    rounded >> n_cut(rounded) << n_cut(rounded)
}

impl Table {
    /// Makes a table for symbols with these counts. Every symbol that occurs gets a frequency.
    pub(super) fn of(counts: &Counts) -> Self {
        let total: u64 = counts.iter().map(|&count| u64::from(count)).sum();
        let rest = (0..=255).rev().max_by_key(|&i| counts[usize::from(i)]).unwrap_or(0);
        let mut frequencies = [0_u16; 256];
        // Sum that rounding added so far, to be taken back.
        let mut excess = 0;
        for (symbol, (frequency, &count)) in (0..=255).zip(frequencies.iter_mut().zip(counts)) {
            if count > 0 && symbol != rest {
                let share = (u64::from(count) * u64::from(TOTAL) + total / 2) / total;
                let share = (share as i32).clamp(1, TOTAL as i32 / 2);
                let rounded = cut((share - excess.clamp(-share / 8, share / 8)) as u32);
                excess += rounded as i32 - share;
                *frequency = rounded as u16;
            }
        }
        let mut table = Self { frequencies, rest };
        while table.sum() >= TOTAL {
            let widest = (0..256).max_by_key(|&i| table.frequencies[i]).unwrap_or(0);
            let frequency = u32::from(table.frequencies[widest]);
            table.frequencies[widest] = cut(frequency / 2).max(1) as u16;
        }
        table.frequencies[usize::from(rest)] = (TOTAL - table.sum()) as u16;
        table
    }

    fn sum(&self) -> u32 {
        self.frequencies.iter().map(|&frequency| u32::from(frequency)).sum()
    }

    /// Returns the symbols that occur, their frequencies, and the sums of those before.
    fn ranges(&self) -> impl Iterator<Item = (u8, u16, u16)> + '_ {
        let mut start = 0;
        let all = (0..=255).zip(self.frequencies).filter(|&(_, frequency)| frequency > 0);
        all.map(move |(symbol, frequency)| {
            start += frequency;
            (symbol, frequency, start - frequency)
        })
    }

    /// Writes the table: the last symbol and the most frequent one, and of each other one the
    /// number of bits of its frequency, relative to that of the symbol before, and the bits kept.
    pub(super) fn write(&self, out: &mut BitSink) {
        let last = self.frequencies.iter().rposition(|&frequency| frequency > 0).unwrap_or(0);
        out.put(last as u64, 8);
        out.put(self.rest.into(), 8);
        let mut before = 0;
        for frequency in self.others(last) {
            let n_bits = u16::BITS - frequency.leading_zeros();
            let difference = n_bits as i32 - before as i32;
            out.put_unary((difference << 1 ^ difference >> 31) as u32);
            let n_kept = KEPT_BITS.min(n_bits.saturating_sub(1));
            let kept = u64::from(frequency >> n_cut(frequency.into())) & ((1 << n_kept) - 1);
            out.put(kept, n_kept);
            before = n_bits;
        }
    }

    fn others(&self, last: usize) -> impl Iterator<Item = u16> + '_ {
        let all = self.frequencies.iter().enumerate().take(last + 1);
        let others = all.filter(|(symbol, _)| *symbol != usize::from(self.rest));
        others.map(|(_, &frequency)| frequency)
    }

    /// Reads a table.
    pub(super) fn read(bits: &mut BitReader<'_>) -> Result<Self, DecodeError> {
        let mut byte = || bits.take(8) as usize;
        let (last, rest) = (byte(), byte());
        if rest > last || last > usize::from(LAST) {
            return Err(DecodeError::Damaged);
        }
        let mut table = Self { frequencies: [0; 256], rest: rest as u8 };
        let mut before = 0;
        for symbol in (0..=last).filter(|&symbol| symbol != rest) {
            let code = unary(bits)?;
            let difference = (code >> 1) as i32 ^ -((code & 1) as i32);
            let n_bits = before + difference;
            if !(0..=PROBABILITY_BITS as i32).contains(&n_bits) {
                return Err(DecodeError::Damaged);
            }
            let n_kept = KEPT_BITS.min((n_bits as u32).saturating_sub(1));
            let kept = 1 << n_kept | bits.take(n_kept);
            let n_cut = (n_bits as u32).saturating_sub(1 + n_kept);
            table.frequencies[symbol] = if n_bits == 0 { 0 } else { (kept << n_cut) as u16 };
            before = n_bits;
        }
        let left = TOTAL.checked_sub(table.sum()).filter(|&left| left > 0);
        table.frequencies[rest] = left.ok_or(DecodeError::Damaged)? as u16;
        Ok(table)
    }
}

/// Reads a number of ones before a zero, at most 32.
fn unary(bits: &mut BitReader<'_>) -> Result<u32, DecodeError> {
    let n_ones = bits.peek().trailing_ones();
    bits.skip(n_ones + 1);
    if n_ones <= 32 { Ok(n_ones) } else { Err(DecodeError::Damaged) }
}

/// Returns x·log₂ x to about six digits. The same bits on every machine: only additions and
/// multiplications.
fn x_log_x(x: u32) -> f64 {
    if x < 2 {
        return 0.0;
    }
    let exponent = 31 - x.leading_zeros();
    // log₂(1 + t) on 0 ≤ t < 1, by the series of the inverse hyperbolic tangent.
    let m = f64::from(x) / f64::from(1_u32 << exponent);
    let u = (m - 1.0) / (m + 1.0);
    let square = u * u;
    let series = 1.0 + square * (1.0 / 3.0 + square * (0.2 + square * (1.0 / 7.0 + square / 9.0)));
    f64::from(x) * (f64::from(exponent) + 2.0 * core::f64::consts::LOG2_E * u * series)
}

/// Returns about how many bits symbols with these counts take, with their table.
pub(super) fn cost(counts: &Counts) -> f64 {
    // Most contexts of a sample have no symbols.
    let total: u32 = counts.iter().sum();
    if total == 0 {
        return 0.0;
    }
    let (mut bits, mut n_symbols) = (0.0, 0);
    for &count in counts.iter().filter(|&&count| count > 0) {
        bits -= x_log_x(count);
        n_symbols += 1;
    }
    bits + x_log_x(total) + 18.0 + 4.0 * f64::from(n_symbols)
}

/// Tables of a payload, and their contexts.
pub(super) struct Tables {
    pub(super) tables: Vec<Table>,
    /// The table of each context.
    pub(super) of: [u8; CONTEXTS],
    /// How many contexts share each table: those of each group, in order.
    runs: [Vec<u8>; GROUPS],
}

/// Returns the tables of a group of contexts.
pub(super) fn of_group<'a>(
    entries: &'a [u32],
    bases: &'a [u32; CONTEXTS],
    group: usize,
    len: usize,
) -> rans::Tables<'a> {
    rans::Tables::new(entries, &bases.as_chunks::<BUCKETS>().0[group], len)
}

/// Neighbouring contexts that share a table.
struct Run {
    begin: usize,
    counts: Counts,
    cost: f64,
}

impl Run {
    fn new(begin: usize, counts: Counts) -> Self {
        Self { begin, counts, cost: cost(&counts) }
    }

    fn joined(&self, next: &Self) -> Self {
        let counts = core::array::from_fn(|i| self.counts[i] + next.counts[i]);
        Self::new(self.begin, counts)
    }

    fn gain(&self, next: &Self) -> f64 {
        self.cost + next.cost - self.joined(next).cost
    }
}

impl Tables {
    /// Makes tables for symbols with these counts. Neighbouring contexts of a group share a table
    /// where that saves bits.
    pub(super) fn of(counts: &[Counts]) -> Self {
        let mut tables = Self { tables: Vec::new(), of: [0; CONTEXTS], runs: Default::default() };
        for (nth, group) in counts.chunks(BUCKETS).enumerate() {
            let is_used = |counts: &Counts| counts.iter().any(|&count| count > 0);
            let used = group.iter().enumerate().filter(|(_, counts)| is_used(counts));
            let mut runs: Vec<Run> = used.map(|(begin, counts)| Run::new(begin, *counts)).collect();
            let mut gains: Vec<f64> = runs.windows(2).map(|pair| pair[0].gain(&pair[1])).collect();
            while let Some(best) = (0..gains.len()).max_by(|&a, &b| gains[a].total_cmp(&gains[b])) {
                if gains[best] <= 0.0 && runs.len() <= MAX_TABLES {
                    break;
                }
                let next = runs.remove(best + 1);
                runs[best] = runs[best].joined(&next);
                gains.remove(best);
                for i in best.saturating_sub(1)..(best + 1).min(gains.len()) {
                    gains[i] = runs[i].gain(&runs[i + 1]);
                }
            }
            let mut begin = 0;
            for (i, run) in runs.iter().enumerate() {
                let end = runs.get(i + 1).map_or(BUCKETS, |next| next.begin);
                tables.runs[nth].push((end - begin) as u8);
                tables.tables.push(Table::of(&run.counts));
                begin = end;
            }
        }
        tables.give();
        tables
    }

    /// Returns what a writer needs of all tables, and where that of each context begins.
    pub(super) fn ranges(&self) -> (Vec<u32>, [u32; CONTEXTS]) {
        let mut ranges = alloc::vec![0; rans::SYMBOLS * (self.tables.len() + 1)];
        for (table, ranges) in self.tables.iter().zip(ranges.chunks_exact_mut(rans::SYMBOLS)) {
            for (symbol, frequency, start) in table.ranges() {
                ranges[usize::from(symbol)] = rans::range(frequency, start);
            }
        }
        (ranges, self.of.map(|table| u32::from(table) * rans::SYMBOLS as u32))
    }

    /// Replaces `slots` by what a reader needs of all tables, and returns where that of each
    /// context begins.
    pub(super) fn slots(&self, slots: &mut Vec<u32>) -> [u32; CONTEXTS] {
        slots.clear();
        slots.reserve(rans::SLOTS * (self.tables.len() + 1));
        for (symbol, frequency, _) in self.tables.iter().flat_map(Table::ranges) {
            slots.extend((0..frequency).map(|at| rans::slot(symbol, frequency, at)));
        }
        // The table of contexts that have none. No writer has the symbol.
        slots.extend([rans::slot(u8::MAX, 1, 0); rans::SLOTS]);
        self.of.map(|table| u32::from(table) * rans::SLOTS as u32)
    }

    /// Gives each context the table of its run.
    fn give(&mut self) {
        self.of = [self.tables.len() as u8; CONTEXTS];
        let mut table = 0;
        for (runs, of) in self.runs.iter().zip(self.of.chunks_exact_mut(BUCKETS)) {
            let mut of = of.iter_mut();
            for &run in runs {
                of.by_ref().take(run.into()).for_each(|of| *of = table);
                table += 1;
            }
        }
    }

    /// Writes the runs of each group, all but the last of their lengths, and the tables.
    pub(super) fn write(&self, out: &mut BitSink) {
        for runs in &self.runs {
            out.put(runs.len() as u64, 6);
            for &run in runs.split_last().map_or(&[][..], |(_, others)| others) {
                out.put(run.into(), 5);
            }
        }
        self.tables.iter().for_each(|table| table.write(out));
    }

    /// Reads what [`write`](Self::write) wrote.
    pub(super) fn read(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut bits = BitReader::new(bytes);
        let mut tables = Self { tables: Vec::new(), of: [0; CONTEXTS], runs: Default::default() };
        let mut n_tables = 0;
        for runs in &mut tables.runs {
            let n_runs = bits.take(6) as usize;
            if n_runs > MAX_TABLES {
                return Err(DecodeError::Damaged);
            }
            let mut left = BUCKETS as u8;
            for nth in 0..n_runs {
                let run = if nth + 1 == n_runs { left } else { bits.take(5) as u8 };
                left = left.checked_sub(run).ok_or(DecodeError::Damaged)?;
                if run == 0 {
                    return Err(DecodeError::Damaged);
                }
                runs.push(run);
            }
            n_tables += n_runs;
        }
        for _ in 0..n_tables {
            tables.tables.push(Table::read(&mut bits)?);
        }
        bits.finish().ok_or(DecodeError::Damaged)?;
        tables.give();
        Ok(tables)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(of: &[(usize, u32)]) -> Counts {
        let mut counts = [0; 256];
        of.iter().for_each(|&(symbol, count)| counts[symbol] = count);
        counts
    }

    #[test]
    fn tables_come_back() {
        let many: Vec<_> = (0..200).map(|i| (i, 1 + (i * i * 7919 % 1000) as u32)).collect();
        let even: Vec<_> = (0..200).map(|i| (i, 1)).collect();
        let mut all = alloc::vec![[0; 256]; CONTEXTS];
        all[0] = counts(&[(2, 1)]);
        all[1] = counts(&[(2, 1000), (3, 999), (4, 1), (200, 1)]);
        all[3] = counts(&many);
        all[31] = counts(&even);
        all[96] = counts(&[(0, 5), (2, 5)]);
        all[97] = counts(&[(1, 1 << 30), (2, 1)]);
        let tables = Tables::of(&all);
        let mut bits = BitSink::default();
        tables.write(&mut bits);
        let bytes = bits.finish();
        let read = Tables::read(bytes).ok().unwrap();
        assert_eq!(read.of, tables.of);
        for (context, counts) in all.iter().enumerate() {
            let table =
                |tables: &Tables| tables.tables.get(usize::from(tables.of[context])).cloned();
            let (Some(written), Some(read)) = (table(&tables), table(&read)) else {
                assert_eq!(*counts, [0; 256], "{context}");
                continue;
            };
            assert_eq!(written.frequencies, read.frequencies, "{context}");
            assert_eq!(written.sum(), TOTAL);
            let coded = |(count, frequency): (&u32, &u16)| *count == 0 || *frequency > 0;
            assert!(counts.iter().zip(&written.frequencies).all(coded), "{context}");
        }
        for n_bytes in 0..bytes.len() {
            assert!(Tables::read(&bytes[..n_bytes]).is_err(), "{n_bytes} of {}", bytes.len());
        }
    }

    #[test]
    fn logarithms_are_near_enough() {
        for x in (1..100_000).chain([1 << 20, u32::MAX]) {
            let expected = f64::from(x) * f64::from(x).log2();
            assert!((x_log_x(x) - expected).abs() <= 1e-4 * expected, "{x}");
        }
    }
}
