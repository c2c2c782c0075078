//! Entropy coding by range asymmetric numeral systems (rANS; J. Duda, 2013), with several states
//! side by side, so that nobody waits for one symbol before the next is looked up. For codec
//! `interp` of compressed arrays.
//!
//! Symbols come in *runs*. Symbol i of a run belongs to state i mod n, where n is the number of
//! states. Each symbol has a *bucket*, which both sides know before, and each bucket a table of
//! frequencies. A writer codes the symbols from the last to the first, and a reader gets them in
//! order.
//!
//! `avx2` does the same for 8 symbols at a time, and `avx512` for 16.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;

use super::Level;

/// Frequencies of a table add up to 2 to this power.
pub(crate) const PROBABILITY_BITS: u32 = 12;
/// Entries of a table for readers.
pub(crate) const SLOTS: usize = 1 << PROBABILITY_BITS;
/// Entries of a table for writers.
pub(crate) const SYMBOLS: usize = 256;
/// Most states.
pub(crate) const MAX_STATES: usize = 32;
/// Number of buckets.
pub(crate) const BUCKETS: usize = 32;
/// Smallest state between two symbols. States have 31 bits, and give away 16 bits at a time.
pub(crate) const SMALLEST: u32 = 1 << 15;
/// Bytes after the words that may be read.
pub(crate) const PADDING: usize = 32;
/// Symbols that `avx2` codes at a time.
const AVX2_LANES: usize = 8;
const MASK: u32 = SLOTS as u32 - 1;
const STATE_BITS: u32 = 31;

/// Packs what a reader finds in a slot: the symbol, its frequency, and the place of the slot within
/// the symbol's range.
pub(crate) const fn slot(symbol: u8, frequency: u16, at: u16) -> u32 {
    symbol as u32 | (frequency as u32 - 1) << 8 | (at as u32) << 20
}

/// Packs what a writer knows of a symbol: its frequency, and the sum of those of lower symbols.
pub(crate) const fn range(frequency: u16, start: u16) -> u32 {
    (frequency as u32 - 1) | (start as u32) << PROBABILITY_BITS
}

/// Tables of the buckets.
#[derive(Clone, Copy)]
pub(crate) struct Tables<'a> {
    entries: &'a [u32],
    /// Where the table of each bucket begins.
    bases: &'a [u32; BUCKETS],
    /// The number of each bucket's table.
    numbers: [u8; BUCKETS],
    /// Entries of a table.
    len: usize,
}

impl<'a> Tables<'a> {
    /// Tables of [`SLOTS`] or [`SYMBOLS`] entries, at most 256, that begin at these bases.
    pub(crate) fn new(entries: &'a [u32], bases: &'a [u32; BUCKETS], len: usize) -> Self {
        let most = entries.len().checked_sub(len).expect("at least one table");
        let is_whole = |&base: &u32| base as usize <= most && base % len as u32 == 0;
        assert!(bases.iter().all(is_whole), "whole tables");
        let number = |base| u8::try_from(base / len as u32).expect("at most 256 tables");
        let numbers = bases.map(number);
        Self { entries, bases, numbers, len }
    }

    #[inline(always)]
    fn entry(&self, bucket: u8, at: usize) -> u32 {
        self.entries[self.bases[usize::from(bucket) % BUCKETS] as usize + at]
    }
}

/// How symbols are coded.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Lanes {
    One,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

impl Lanes {
    fn of(level: Level, n_states: usize) -> Self {
        assert!(matches!(n_states, 4 | 16 | 32), "a number of states that exists");
        #[cfg(target_arch = "x86_64")]
        match level {
            _ if n_states < 16 => {}
            Level::Avx512 if level.is_available() => return Self::Avx512,
            Level::Avx2 | Level::Avx512 if Level::Avx2.is_available() => return Self::Avx2,
            _ => {}
        }
        let _ = level;
        Self::One
    }
}

/// A reader: words, and its states after those that it has read.
pub(crate) struct Reader<'a> {
    lanes: Lanes,
    states: [u32; MAX_STATES],
    n_states: usize,
    /// Words, and [`PADDING`].
    words: &'a [u8],
    n_bytes: usize,
    at: usize,
}

impl<'a> Reader<'a> {
    /// Begins with these states, 4, 16 or 32. [`PADDING`] bytes follow the words.
    pub(crate) fn new(level: Level, states: &[u32], words: &'a [u8]) -> Self {
        let lanes = Lanes::of(level, states.len());
        let n_bytes = words.len().checked_sub(PADDING).expect("padded words");
        let mut all = [SMALLEST; MAX_STATES];
        all[..states.len()].copy_from_slice(states);
        Self { lanes, states: all, n_states: states.len(), words, n_bytes, at: 0 }
    }

    /// Reads a run of symbols with these buckets.
    ///
    /// It is not inlined: what needs a level's instructions is compiled with them by itself.
    #[inline(never)]
    pub(crate) fn read(&mut self, tables: &Tables<'_>, buckets: &[u8], symbols: &mut [u8]) {
        assert!(buckets.len() == symbols.len() && tables.len == SLOTS);
        let n_done = match self.lanes {
            Lanes::One => 0,
            // SAFETY: the machine has the instructions.
            #[cfg(target_arch = "x86_64")]
            Lanes::Avx2 => unsafe { avx2::read(self, tables, buckets, symbols) },
            // SAFETY: the machine has the instructions, and the tables are whole.
            #[cfg(target_arch = "x86_64")]
            Lanes::Avx512 => return unsafe { avx512::read(self, tables, buckets, symbols) },
        };
        let last = self.n_states - 1;
        let mut at = self.at;
        for (i, (symbol, &bucket)) in symbols.iter_mut().zip(buckets).enumerate().skip(n_done) {
            let state = &mut self.states[(i & last) % MAX_STATES];
            let slot = tables.entry(bucket, (*state & MASK) as usize);
            let x = ((slot >> 8 & MASK) + 1)
                .wrapping_mul(*state >> PROBABILITY_BITS)
                .wrapping_add(slot >> 20);
            // Without a branch, since nobody could foretell it. Words past the end are 0.
            let place = at.min(self.n_bytes);
            let word = match self.words.get(place..place + 2) {
                Some(word) => u32::from(u16::from_le_bytes([word[0], word[1]])),
                None => 0,
            };
            let is_low = x < SMALLEST;
            *state = if is_low { x << 16 | word } else { x };
            at += 2 * usize::from(is_low);
            *symbol = slot as u8;
        }
        self.at = at;
    }

    /// Returns the number of bytes of words that were read, or would have been.
    pub(crate) const fn n_read(&self) -> usize {
        self.at
    }

    /// Returns whether the states are those with which a writer begins.
    pub(crate) fn is_at_start(&self) -> bool {
        self.states.iter().all(|&state| state == SMALLEST)
    }
}

/// A writer: room for words, and its states after those that it has written.
pub(crate) struct Writer<'a> {
    lanes: Lanes,
    states: [u32; MAX_STATES],
    n_states: usize,
    /// Words, filled from the end.
    words: &'a mut [u16],
    at: usize,
}

impl<'a> Writer<'a> {
    /// Begins with this number of states: 4, 16 or 32. There must be a word for each symbol.
    pub(crate) fn new(level: Level, n_states: usize, words: &'a mut [u16]) -> Self {
        let (lanes, at) = (Lanes::of(level, n_states), words.len());
        Self { lanes, states: [SMALLEST; MAX_STATES], n_states, words, at }
    }

    /// Writes a run of symbols; the last run comes first. All symbols must have a range in their
    /// tables.
    #[inline(always)]
    pub(crate) fn write(&mut self, tables: &Tables<'_>, buckets: &[u8], symbols: &[u8]) {
        assert!(buckets.len() == symbols.len() && tables.len == SYMBOLS);
        assert!(symbols.len() <= self.at, "a word for each symbol");
        #[cfg(target_arch = "x86_64")]
        if self.lanes == Lanes::Avx512 {
            // SAFETY: the machine has the instructions, the tables are whole, and there is space.
            return unsafe { avx512::write(self, tables, buckets, symbols) };
        }
        // Vectors are written after what follows them.
        let n_others =
            if self.lanes == Lanes::One { 0 } else { symbols.len() / AVX2_LANES * AVX2_LANES };
        let Self { states, n_states, words, at, .. } = self;
        let last = *n_states - 1;
        let mut left = *at;
        let words = &mut words[..left];
        for (i, (&symbol, &bucket)) in symbols.iter().zip(buckets).enumerate().skip(n_others).rev()
        {
            let range = tables.entry(bucket, symbol.into());
            let (frequency, start) = ((range & MASK) + 1, range >> PROBABILITY_BITS);
            let mut x = states[(i & last) % MAX_STATES];
            let gives = x >= frequency << (STATE_BITS - PROBABILITY_BITS);
            // A word is stored in any case, since nobody could foretell it.
            words[left - 1] = x as u16;
            left -= usize::from(gives);
            x >>= 16 * u32::from(gives);
            let rest = (1 << PROBABILITY_BITS) - frequency;
            states[(i & last) % MAX_STATES] = x + start + x / frequency * rest;
        }
        *at = left;
        #[cfg(target_arch = "x86_64")]
        if self.lanes == Lanes::Avx2 {
            // SAFETY: the machine has the instructions, and there is space.
            unsafe { avx2::write(self, tables, buckets, symbols) };
        }
    }

    /// Returns the states and the words.
    pub(crate) fn finish(&self) -> (&[u32], &[u16]) {
        (&self.states[..self.n_states], &self.words[self.at..])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec;
    use std::vec::Vec;

    /// Frequencies of three tables: one symbol, four with very different ones, and all.
    fn tables() -> Vec<Vec<u16>> {
        let mut tables = vec![vec![0; SYMBOLS]; 3];
        tables[0][7] = 4096;
        tables[1][..4].copy_from_slice(&[1, 1, 4090, 4]);
        tables[2] = (0..SYMBOLS).map(|i| if i < 128 { 1 } else { 31 }).collect();
        tables
    }

    fn slots(tables: &[Vec<u16>]) -> Vec<u32> {
        let table = |table: &Vec<u16>| -> Vec<u32> {
            let symbols = (0..=255).zip(table);
            symbols.flat_map(|(i, &f)| (0..f).map(move |at| slot(i, f, at))).collect()
        };
        tables.iter().flat_map(table).collect()
    }

    fn ranges(tables: &[Vec<u16>]) -> Vec<u32> {
        let table = |table: &Vec<u16>| {
            let mut start = 0;
            let range = |&f: &u16| {
                start += f;
                if f > 0 { range(f, start - f) } else { 0 }
            };
            table.iter().map(range).collect::<Vec<u32>>()
        };
        tables.iter().flat_map(table).collect()
    }

    #[test]
    fn symbols_come_back_and_every_level_writes_the_same() {
        let tables = tables();
        let (slots, ranges) = (slots(&tables), ranges(&tables));
        let table = |bucket: u8| u32::from(bucket) % 3;
        let [slot_bases, range_bases] =
            [SLOTS, SYMBOLS].map(|n| core::array::from_fn(|bucket| table(bucket as u8) * n as u32));
        let slots = Tables::new(&slots, &slot_bases, SLOTS);
        let ranges = Tables::new(&ranges, &range_bases, SYMBOLS);
        for run_lens in [&[0][..], &[1], &[5, 0, 3], &[16, 32, 48], &[1000, 17, 31, 1, 1024]] {
            let n_symbols: usize = run_lens.iter().sum();
            let buckets: Vec<u8> = (0..n_symbols).map(|i| (i * 7 % BUCKETS) as u8).collect();
            let symbol = |(i, &bucket): (usize, &u8)| match table(bucket) {
                0 => 7,
                1 => [2, 2, 2, 0, 3, 1][i * i % 6],
                _ => (i * 31 % 256) as u8,
            };
            let symbols: Vec<u8> = buckets.iter().enumerate().map(symbol).collect();
            let mut ends: Vec<usize> = vec![0];
            run_lens.iter().for_each(|n| ends.push(ends[ends.len() - 1] + n));
            for n_states in [4, 16, 32] {
                let written: Vec<_> = Level::available()
                    .map(|level| {
                        let mut words = vec![0; n_symbols];
                        let mut writer = Writer::new(level, n_states, &mut words);
                        for run in ends.windows(2).rev() {
                            let run = run[0]..run[1];
                            writer.write(&ranges, &buckets[run.clone()], &symbols[run]);
                        }
                        let (states, words) = writer.finish();
                        (states.to_vec(), words.to_vec())
                    })
                    .collect();
                assert!(written.iter().all(|other| *other == written[0]));
                let (states, words) = &written[0];
                let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
                let n_bytes = bytes.len();
                bytes.resize(n_bytes + PADDING, 0);
                let read = |level: Level, bytes: &[u8]| {
                    let mut reader = Reader::new(level, states, bytes);
                    let mut read = vec![0; n_symbols];
                    for run in ends.windows(2) {
                        let run = run[0]..run[1];
                        reader.read(&slots, &buckets[run.clone()], &mut read[run]);
                    }
                    (read, reader.n_read(), reader.is_at_start())
                };
                for level in Level::available() {
                    assert_eq!(read(level, &bytes), (symbols.clone(), n_bytes, true));
                }
                // Words that are missing are 0, whatever the level.
                for n_missing in (2..=n_bytes.min(200)).step_by(2) {
                    let mut short = bytes.clone();
                    short.truncate(bytes.len() - n_missing);
                    let end = short.len() - PADDING;
                    short[end..].fill(0);
                    let expected = read(Level::Scalar, &short);
                    assert!(Level::available().all(|level| read(level, &short) == expected));
                }
            }
        }
    }
}
