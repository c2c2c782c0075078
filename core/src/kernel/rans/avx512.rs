//! rANS with AVX-512: each state is a lane, and 16 symbols are coded at a time.

use super::{BUCKETS, MASK, PROBABILITY_BITS, Reader, SMALLEST, STATE_BITS, Tables, Writer};
use core::arch::x86_64::*;

/// Symbols that are coded at a time.
pub(super) const LANES: usize = 16;

/// Returns a mask of the first lanes, as many as there are symbols from `i` on.
#[inline]
const fn lanes(i: usize, n_symbols: usize) -> __mmask16 {
    if n_symbols - i >= LANES { !0 } else { (1 << (n_symbols - i)) - 1 }
}

/// Loads numbers of 8 bits as lanes, from `i` on; those past the end are 0.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
fn load(numbers: &[u8], i: usize) -> __m512i {
    let lanes = lanes(i, numbers.len());
    // SAFETY: masked lanes are not read.
    let bytes = unsafe { _mm_maskz_loadu_epi8(lanes, numbers.as_ptr().add(i).cast()) };
    _mm512_cvtepu8_epi32(bytes)
}

/// Looks up the base of each bucket.
struct Bases(__m512i, __m512i);

impl Bases {
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn new(bases: &[u32; BUCKETS]) -> Self {
        let at = bases.as_ptr();
        // SAFETY: there are two vectors of bases.
        unsafe { Self(_mm512_loadu_si512(at.cast()), _mm512_loadu_si512(at.add(LANES).cast())) }
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    fn of(&self, buckets: __m512i) -> __m512i {
        _mm512_permutex2var_epi32(self.0, buckets, self.1)
    }
}

/// Reads a run.
///
/// # Safety
/// The machine has the instructions, the reader has 16 or 32 states, and each base is followed by a
/// whole table.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,popcnt")]
pub(super) unsafe fn read(
    reader: &mut Reader<'_>,
    tables: &Tables<'_>,
    buckets: &[u8],
    symbols: &mut [u8],
) {
    let bases = Bases::new(tables.bases);
    let mask = _mm512_set1_epi32(MASK as i32);
    let mut at = reader.at;
    let n_symbols = symbols.len();
    for i in (0..n_symbols).step_by(LANES) {
        let lanes = lanes(i, n_symbols);
        let state = i & (reader.n_states - 1) & LANES;
        // SAFETY: there are 16 states from 0 or 16 on.
        let old = unsafe { _mm512_loadu_si512(reader.states.as_ptr().add(state).cast()) };
        let places = _mm512_add_epi32(bases.of(load(buckets, i)), _mm512_and_si512(old, mask));
        // SAFETY: a place is within the bucket's table.
        let found = unsafe { _mm512_i32gather_epi32::<4>(places, tables.entries.as_ptr().cast()) };
        // SAFETY: masked lanes are not written.
        unsafe {
            let place = symbols.as_mut_ptr().add(i).cast();
            _mm_mask_storeu_epi8(place, lanes, _mm512_cvtepi32_epi8(found));
        }
        let frequency = _mm512_and_si512(_mm512_srli_epi32::<8>(found), mask);
        let frequency = _mm512_add_epi32(frequency, _mm512_set1_epi32(1));
        let x = _mm512_mullo_epi32(frequency, _mm512_srli_epi32::<PROBABILITY_BITS>(old));
        let x = _mm512_add_epi32(x, _mm512_srli_epi32::<20>(found));
        let low = lanes & _mm512_cmplt_epu32_mask(x, _mm512_set1_epi32(SMALLEST as i32));
        // SAFETY: a vector of words follows the last one.
        let words = unsafe {
            let place = reader.words.as_ptr().add(at.min(reader.n_bytes));
            _mm256_loadu_si256(place.cast::<__m256i>())
        };
        let words = _mm512_maskz_expand_epi32(low, _mm512_cvtepu16_epi32(words));
        let refilled = _mm512_or_si512(_mm512_slli_epi32::<16>(x), words);
        let x = _mm512_mask_mov_epi32(x, low, refilled);
        let new = _mm512_mask_mov_epi32(old, lanes, x);
        // SAFETY: as for the load.
        unsafe { _mm512_storeu_si512(reader.states.as_mut_ptr().add(state).cast(), new) };
        at += 2 * low.count_ones() as usize;
    }
    reader.at = at;
}

/// Returns ⌊x / frequency⌋, exactly: x + ½ is at least 1/8192 of the frequency away from a
/// multiple of it.
#[inline]
#[target_feature(enable = "avx512f,avx512dq")]
fn quotient(x: __m512i, frequency: __m512i) -> __m512i {
    #[inline]
    #[target_feature(enable = "avx512f,avx512dq")]
    fn half(x: __m256i, frequency: __m256i) -> __m256i {
        let x: __m512d = _mm512_add_pd(_mm512_cvtepi32_pd(x), _mm512_set1_pd(0.5));
        _mm512_cvttpd_epi32(_mm512_div_pd(x, _mm512_cvtepi32_pd(frequency)))
    }
    let low = half(_mm512_castsi512_si256(x), _mm512_castsi512_si256(frequency));
    let high = half(_mm512_extracti64x4_epi64::<1>(x), _mm512_extracti64x4_epi64::<1>(frequency));
    _mm512_inserti64x4::<1>(_mm512_castsi256_si512(low), high)
}

/// Writes a run.
///
/// # Safety
/// The machine has the instructions, the writer has 16 or 32 states and space for a word for each
/// symbol, and each base is followed by a whole table.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,popcnt")]
pub(super) unsafe fn write(
    writer: &mut Writer<'_>,
    tables: &Tables<'_>,
    buckets: &[u8],
    symbols: &[u8],
) {
    let bases = Bases::new(tables.bases);
    let mask = _mm512_set1_epi32(MASK as i32);
    let one = _mm512_set1_epi32(1);
    let n_symbols = symbols.len();
    for i in (0..n_symbols).step_by(LANES).rev() {
        let lanes = lanes(i, n_symbols);
        let state = i & (writer.n_states - 1) & LANES;
        // SAFETY: there are 16 states from 0 or 16 on.
        let old = unsafe { _mm512_loadu_si512(writer.states.as_ptr().add(state).cast()) };
        let places = _mm512_add_epi32(bases.of(load(buckets, i)), load(symbols, i));
        // SAFETY: a place is within the bucket's table.
        let found = unsafe { _mm512_i32gather_epi32::<4>(places, tables.entries.as_ptr().cast()) };
        let frequency = _mm512_add_epi32(_mm512_and_si512(found, mask), one);
        let start = _mm512_srli_epi32::<PROBABILITY_BITS>(found);
        let limit = _mm512_slli_epi32::<{ STATE_BITS - PROBABILITY_BITS }>(frequency);
        let gives = lanes & _mm512_cmpge_epu32_mask(old, limit);
        let words: __m256i = _mm512_cvtepi32_epi16(_mm512_maskz_compress_epi32(gives, old));
        let n_words = gives.count_ones();
        writer.at -= n_words as usize;
        let stored = ((1_u32 << n_words) - 1) as __mmask16;
        // SAFETY: there is space for these words; others are not written.
        unsafe {
            let place = writer.words.as_mut_ptr().add(writer.at).cast();
            _mm256_mask_storeu_epi16(place, stored, words);
        }
        let x = _mm512_mask_srli_epi32::<16>(old, gives, old);
        let rest = _mm512_sub_epi32(_mm512_set1_epi32(1 << PROBABILITY_BITS), frequency);
        let more = _mm512_mullo_epi32(quotient(x, frequency), rest);
        let x = _mm512_add_epi32(_mm512_add_epi32(x, start), more);
        let new = _mm512_mask_mov_epi32(old, lanes, x);
        // SAFETY: as for the load.
        unsafe { _mm512_storeu_si512(writer.states.as_mut_ptr().add(state).cast(), new) };
    }
}
