//! Entropy coding by range asymmetric numeral systems (rANS; J. Duda, 2013), with several states
//! side by side, so that a reader does not wait for one symbol before it looks up the next.
//!
//! Symbol i belongs to state i mod [`STATES`]. A writer codes the symbols from the last to the
//! first, and a reader gets them in order.

use super::tables::{PROBABILITY_BITS, Table};
use crate::codec::DecodeError;
use alloc::vec::Vec;

/// Number of states.
const STATES: usize = 4;
/// Smallest state between two symbols. States have 31 bits, and give away 16 bits at a time.
const SMALLEST: u32 = 1 << 15;
/// Bytes of all states.
const STATE_BYTES: usize = 4 * STATES;
const MASK: u32 = (1 << PROBABILITY_BITS) - 1;

/// How a writer codes a symbol of frequency f that starts at s: x ← ⌊x/f⌋·2ᵏ + x mod f + s. The
/// quotient is computed by a multiplication.
#[derive(Clone, Copy, Default)]
struct Coding {
    /// States from here on give 16 bits away first.
    limit: u32,
    reciprocal: u32,
    shift: u32,
    bias: u32,
    /// 2ᵏ − f.
    rest: u32,
}

impl Coding {
    fn new(start: u32, frequency: u32) -> Self {
        let limit = frequency << (31 - PROBABILITY_BITS);
        let rest = (1 << PROBABILITY_BITS) - frequency;
        if frequency < 2 {
            // ⌊x · (2³² − 1) / 2³²⌋ is x − 1, which the bias makes good.
            let bias = start + MASK;
            return Self { limit, reciprocal: u32::MAX, shift: 0, bias, rest };
        }
        // Rounded up; exact for states below 2³¹.
        let shift = u32::BITS - (frequency - 1).leading_zeros() - 1;
        let reciprocal = (1_u64 << (shift + 32)).div_ceil(frequency.into()) as u32;
        Self { limit, reciprocal, shift, bias: start, rest }
    }
}

/// Codings of all symbols of a table.
pub(super) struct Codings([Coding; 256]);

impl Codings {
    pub(super) fn new(table: &Table) -> Self {
        let mut codings = [Coding::default(); 256];
        let mut start = 0;
        for (coding, &frequency) in codings.iter_mut().zip(table.frequencies()) {
            if frequency > 0 {
                *coding = Coding::new(start, frequency.into());
                start += u32::from(frequency);
            }
        }
        Self(codings)
    }
}

/// Codes symbols, each by the codings of its table, and appends the bytes. All symbols must have a
/// frequency above 0 in their tables.
pub(super) fn encode(symbols: &[u8], tables: &[u8], codings: &[Codings], out: &mut Vec<u8>) {
    let mut states = [SMALLEST; STATES];
    let mut words: Vec<u16> = Vec::with_capacity(symbols.len() / 2);
    for (i, (&symbol, &table)) in symbols.iter().zip(tables).enumerate().rev() {
        let coding = &codings[usize::from(table)].0[usize::from(symbol)];
        let mut x = states[i % STATES];
        if x >= coding.limit {
            words.push(x as u16);
            x >>= 16;
        }
        let product = u64::from(x) * u64::from(coding.reciprocal);
        let quotient = (product >> 32) as u32 >> coding.shift;
        states[i % STATES] = x + coding.bias + quotient * coding.rest;
    }
    out.extend(states.iter().flat_map(|state| state.to_le_bytes()));
    out.extend(words.iter().rev().flat_map(|word| word.to_le_bytes()));
}

/// Symbols of one table by the low bits of a state: symbol, frequency − 1, and the place within
/// the symbol's range.
pub(super) struct Lookup(Vec<u32>);

impl Lookup {
    pub(super) fn new(table: &Table) -> Self {
        let mut slots = Vec::with_capacity(1 << PROBABILITY_BITS);
        for (symbol, &frequency) in table.frequencies().iter().enumerate() {
            let frequency = u32::from(frequency);
            slots.extend((0..frequency).map(|at| symbol as u32 | (frequency - 1) << 8 | at << 20));
        }
        slots.resize(1 << PROBABILITY_BITS, 0);
        Self(slots)
    }
}

/// Reads symbols. Bytes past the end are 0, and [`finish`](Self::finish) reports them.
pub(super) struct Reader<'a> {
    states: [u32; STATES],
    words: &'a [u8],
    at: usize,
    next: usize,
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let Some((head, words)) = bytes.split_first_chunk::<STATE_BYTES>() else {
            return Err(DecodeError::Truncated { need: STATE_BYTES, have: bytes.len() });
        };
        let mut states = [0; STATES];
        for (state, bytes) in states.iter_mut().zip(head.as_chunks().0) {
            *state = u32::from_le_bytes(*bytes);
        }
        Ok(Self { states, words, at: 0, next: 0 })
    }

    /// Returns the next symbol, which has this table.
    #[inline(always)]
    pub(super) fn symbol(&mut self, table: &Lookup) -> u8 {
        let state = &mut self.states[self.next % STATES];
        self.next += 1;
        let slot = table.0[(*state & MASK) as usize];
        let mut x = ((slot >> 8 & MASK) + 1) * (*state >> PROBABILITY_BITS) + (slot >> 20);
        // Without a branch, since nobody could foretell it.
        let place = self.at.min(self.words.len().saturating_sub(2));
        let word = match self.words.get(place..place + 2) {
            Some(word) if self.at == place => u16::from_le_bytes([word[0], word[1]]),
            _ => 0,
        };
        let is_low = x < SMALLEST;
        x = if is_low { x << 16 | u32::from(word) } else { x };
        self.at += 2 * usize::from(is_low);
        *state = x;
        slot as u8
    }

    /// Checks that exactly all bytes were read, and that they were those of a writer.
    pub(super) fn finish(self) -> Result<(), DecodeError> {
        if self.at > self.words.len() {
            let [need, have] = [self.at, self.words.len()].map(|n_bytes| n_bytes + STATE_BYTES);
            return Err(DecodeError::Truncated { need, have });
        }
        let is_sound = self.at == self.words.len() && self.states == [SMALLEST; STATES];
        if is_sound { Ok(()) } else { Err(DecodeError::Damaged) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn symbols_come_back_whatever_their_frequencies() {
        let mut counts = [[0_u32; 256]; 3];
        counts[0][7] = 5;
        counts[1][..4].copy_from_slice(&[1, 1, 1_000_000, 2]);
        counts[2] = core::array::from_fn(|i| 1 + (i * i) as u32);
        let tables = counts.map(|counts| Table::of(&counts));
        let codings: Vec<_> = tables.iter().map(Codings::new).collect();
        let lookups: Vec<_> = tables.iter().map(Lookup::new).collect();
        for n_symbols in [0, 1, 3, 4, 1000] {
            let of: Vec<u8> = (0..n_symbols).map(|i| (i * 7 % 3) as u8).collect();
            let symbol = |(i, &table): (usize, &u8)| match table {
                0 => 7,
                1 => (i * i % 4) as u8,
                _ => (i * 31 % 256) as u8,
            };
            let symbols: Vec<u8> = of.iter().enumerate().map(symbol).collect();
            let mut bytes = vec![];
            encode(&symbols, &of, &codings, &mut bytes);
            let read = |bytes: &[u8]| {
                let mut reader = Reader::new(bytes)?;
                let next = |&table: &u8| reader.symbol(&lookups[usize::from(table)]);
                let read: Vec<u8> = of.iter().map(next).collect();
                reader.finish().map(|()| read)
            };
            assert_eq!(read(&bytes), Ok(symbols));
            for n_bytes in 0..bytes.len() {
                assert!(read(&bytes[..n_bytes]).is_err(), "{n_bytes} of {}", bytes.len());
            }
        }
    }
}
