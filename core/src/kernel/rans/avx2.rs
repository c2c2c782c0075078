//! rANS with AVX2: each state is a lane, and eight symbols are coded at a time. The scalar loops
//! code what is left at the end of a run.

use super::{
    AVX2_LANES as LANES, BUCKETS, MASK, PROBABILITY_BITS, Reader, SMALLEST, STATE_BITS, Tables,
    Writer,
};
use core::arch::x86_64::*;

/// For each set of lanes: how many of them come before each lane.
static RANKS: [[u8; LANES]; 256] = {
    let mut ranks = [[0; LANES]; 256];
    let mut set = 0;
    while set < 256 {
        let mut lane = 1;
        while lane < LANES {
            ranks[set][lane] = ranks[set][lane - 1] + (set >> (lane - 1) & 1) as u8;
            lane += 1;
        }
        set += 1;
    }
    ranks
};

/// For each set of lanes: the lanes, at the end of a vector.
static MEMBERS: [[u8; LANES]; 256] = {
    let mut members = [[0; LANES]; 256];
    let mut set = 0_usize;
    while set < 256 {
        let (mut lane, mut place) = (LANES, LANES);
        while lane > 0 {
            lane -= 1;
            if set >> lane & 1 == 1 {
                place -= 1;
                members[set][place] = lane as u8;
            }
        }
        set += 1;
    }
    members
};

/// Puts bytes into lanes.
#[inline]
#[target_feature(enable = "avx2")]
fn widened(bytes: [u8; LANES]) -> __m256i {
    _mm256_cvtepu8_epi32(_mm_cvtsi64_si128(i64::from_le_bytes(bytes)))
}

/// Returns the lanes whose numbers are negative.
#[inline]
#[target_feature(enable = "avx2")]
fn set_of(numbers: __m256i) -> usize {
    _mm256_movemask_ps(_mm256_castsi256_ps(numbers)) as usize
}

/// Looks up the table of each bucket.
struct Numbers {
    halves: [__m128i; 2],
    len_bits: __m128i,
}

impl Numbers {
    #[inline]
    #[target_feature(enable = "avx2")]
    fn new(tables: &Tables<'_>) -> Self {
        let at: *const u8 = tables.numbers.as_ptr();
        const { assert!(BUCKETS == 2 * size_of::<__m128i>()) };
        // SAFETY: there are two vectors of numbers.
        let halves = unsafe { [_mm_loadu_si128(at.cast()), _mm_loadu_si128(at.add(16).cast())] };
        Self { halves, len_bits: _mm_cvtsi64_si128(tables.len.ilog2().into()) }
    }

    /// Returns the entries at these places of the buckets' tables.
    ///
    /// # Safety
    /// Each place is within a table.
    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn entries(
        &self,
        tables: &Tables<'_>,
        buckets: [u8; LANES],
        places: __m256i,
    ) -> __m256i {
        let buckets = _mm_cvtsi64_si128(i64::from_le_bytes(buckets) & 0x1f1f_1f1f_1f1f_1f1f);
        let [low, high] = self.halves;
        let (low, high) = (_mm_shuffle_epi8(low, buckets), _mm_shuffle_epi8(high, buckets));
        let numbers = _mm_blendv_epi8(low, high, _mm_slli_epi16::<3>(buckets));
        let bases = _mm256_sll_epi32(_mm256_cvtepu8_epi32(numbers), self.len_bits);
        let places = _mm256_add_epi32(bases, places);
        // SAFETY: all tables are whole, as `Tables::new` has checked.
        unsafe { _mm256_i32gather_epi32::<4>(tables.entries.as_ptr().cast(), places) }
    }
}

/// Reads the symbols of a run that fill vectors, and returns their number.
///
/// # Safety
/// The machine has the instructions, and the reader has 16 or 32 states.
#[target_feature(enable = "avx2")]
pub(super) unsafe fn read(
    reader: &mut Reader<'_>,
    tables: &Tables<'_>,
    buckets: &[u8],
    symbols: &mut [u8],
) -> usize {
    let numbers = Numbers::new(tables);
    let mask = _mm256_set1_epi32(MASK as i32);
    let one = _mm256_set1_epi32(1);
    let mut at = reader.at;
    let groups = symbols.as_chunks_mut::<LANES>().0.iter_mut().zip(buckets.as_chunks().0);
    for (nth, (symbols, buckets)) in groups.enumerate() {
        let state = (LANES * nth) & (reader.n_states - 1);
        // SAFETY: there are eight states from 0, 8, 16 or 24 on.
        let old = unsafe { _mm256_loadu_si256(reader.states.as_ptr().add(state).cast()) };
        // SAFETY: tables for readers have more entries than the mask.
        let found = unsafe { numbers.entries(tables, *buckets, _mm256_and_si256(old, mask)) };
        *symbols = low_bytes(found);
        let frequency = _mm256_and_si256(_mm256_srli_epi32::<8>(found), mask);
        let frequency = _mm256_add_epi32(frequency, one);
        let x =
            _mm256_mullo_epi32(frequency, _mm256_srli_epi32::<{ PROBABILITY_BITS as i32 }>(old));
        let x = _mm256_add_epi32(x, _mm256_srli_epi32::<20>(found));
        const { assert!(SMALLEST == 1 << 15) };
        let low = _mm256_cmpeq_epi32(_mm256_srli_epi32::<15>(x), _mm256_setzero_si256());
        // SAFETY: a vector of words follows the last one.
        let words =
            unsafe { _mm_loadu_si128(reader.words.as_ptr().add(at.min(reader.n_bytes)).cast()) };
        let lanes = set_of(low);
        let words = _mm256_cvtepu16_epi32(words);
        let words = _mm256_permutevar8x32_epi32(words, widened(RANKS[lanes]));
        let refilled = _mm256_or_si256(_mm256_slli_epi32::<16>(x), words);
        let new = _mm256_blendv_epi8(x, refilled, low);
        // SAFETY: as for the load.
        unsafe { _mm256_storeu_si256(reader.states.as_mut_ptr().add(state).cast(), new) };
        at += 2 * lanes.count_ones() as usize;
    }
    reader.at = at;
    symbols.len() / LANES * LANES
}

/// Returns the low byte of each lane.
#[inline]
#[target_feature(enable = "avx2")]
fn low_bytes(lanes: __m256i) -> [u8; LANES] {
    let order = _mm_cvtsi64_si128(0x0c08_0400);
    let order = _mm256_set_m128i(order, order);
    let bytes = _mm256_shuffle_epi8(lanes, order);
    let [low, high] = halves(bytes);
    let mut out = [0; LANES];
    // SAFETY: there is space for eight bytes.
    unsafe { _mm_storel_epi64(out.as_mut_ptr().cast(), _mm_unpacklo_epi32(low, high)) };
    out
}

#[inline]
#[target_feature(enable = "avx2")]
fn halves(lanes: __m256i) -> [__m128i; 2] {
    [_mm256_castsi256_si128(lanes), _mm256_extracti128_si256::<1>(lanes)]
}

/// Returns ⌊x / frequency⌋, exactly: x + ½ is at least 1/8192 of the frequency away from a
/// multiple of it.
#[inline]
#[target_feature(enable = "avx2")]
fn quotient(x: __m256i, frequency: __m256i) -> __m256i {
    let half = |x, frequency| {
        let x = _mm256_add_pd(_mm256_cvtepi32_pd(x), _mm256_set1_pd(0.5));
        _mm256_cvttpd_epi32(_mm256_div_pd(x, _mm256_cvtepi32_pd(frequency)))
    };
    let ([low_x, high_x], [low, high]) = (halves(x), halves(frequency));
    _mm256_set_m128i(half(high_x, high), half(low_x, low))
}

/// Writes the symbols of a run that fill vectors.
///
/// # Safety
/// The machine has the instructions, and the writer has 16 or 32 states and space for a word for
/// each symbol.
#[target_feature(enable = "avx2")]
pub(super) unsafe fn write(
    writer: &mut Writer<'_>,
    tables: &Tables<'_>,
    buckets: &[u8],
    symbols: &[u8],
) {
    let numbers = Numbers::new(tables);
    let mask = _mm256_set1_epi32(MASK as i32);
    let one = _mm256_set1_epi32(1);
    let groups = symbols.as_chunks::<LANES>().0.iter().zip(buckets.as_chunks().0);
    for (nth, (symbols, buckets)) in groups.enumerate().rev() {
        let state = (LANES * nth) & (writer.n_states - 1);
        // SAFETY: there are eight states from 0, 8, 16 or 24 on.
        let old = unsafe { _mm256_loadu_si256(writer.states.as_ptr().add(state).cast()) };
        // SAFETY: tables for writers have an entry for each symbol.
        let found = unsafe { numbers.entries(tables, *buckets, widened(*symbols)) };
        let less = _mm256_and_si256(found, mask);
        let start = _mm256_srli_epi32::<{ PROBABILITY_BITS as i32 }>(found);
        let upper = _mm256_srli_epi32::<{ (STATE_BITS - PROBABILITY_BITS) as i32 }>(old);
        let gives = _mm256_cmpgt_epi32(upper, less);
        let lanes = set_of(gives);
        let given = _mm256_permutevar8x32_epi32(old, widened(MEMBERS[lanes]));
        let [low, high] = halves(_mm256_and_si256(given, _mm256_set1_epi32(0xffff)));
        // SAFETY: there is a word for each of these eight symbols. Later words replace what lanes
        // that give none have stored.
        unsafe {
            let place = writer.words.as_mut_ptr().add(writer.at - LANES);
            _mm_storeu_si128(place.cast(), _mm_packus_epi32(low, high));
        }
        writer.at -= lanes.count_ones() as usize;
        let x = _mm256_blendv_epi8(old, _mm256_srli_epi32::<16>(old), gives);
        let frequency = _mm256_add_epi32(less, one);
        let rest = _mm256_sub_epi32(_mm256_set1_epi32(1 << PROBABILITY_BITS), frequency);
        let more = _mm256_mullo_epi32(quotient(x, frequency), rest);
        let new = _mm256_add_epi32(_mm256_add_epi32(x, start), more);
        // SAFETY: as for the load.
        unsafe { _mm256_storeu_si256(writer.states.as_mut_ptr().add(state).cast(), new) };
    }
}
