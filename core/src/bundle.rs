//! Bundles: payloads of messages that carry several segments, one for each part of a run.
//!
//! The segments follow each other in the order of the run, each at a multiple of [`FRAME_ALIGN`].
//! An *index* after them holds the end of each segment, counted from the first byte of the payload,
//! and the number of segments:
//!
//! ```text
//! payload = (segment ‖ zeros) × n_parts ‖ ends (4 bytes × n_parts) ‖ n_parts (4 bytes)
//! ```
//!
//! A run of one part has neither zeros nor an index: the payload is the segment. Because the index
//! comes last, segments can be appended, and removed from the end, without moving the segments
//! before them. The first segment begins where a single segment would. Because the index holds ends
//! and not lengths, a reader finds each segment at once.
//!
//! A [`Placement`] gives the places of segments that are inserted or removed. It covers both ends
//! of a bundle, so one function suffices to insert segments, and one to remove them. A rank that
//! splits or joins bundles copies bytes and decodes nothing.
//!
//! No function here trusts an index. [`check`] validates the index of a received payload. The other
//! functions return `None` if a bundle contradicts itself or the buffer is too short.

use crate::codec::DecodeError;
use crate::transport::FRAME_ALIGN;
use core::ops::Range;

/// Number of bytes of an index entry.
const ENTRY: usize = 4;

/// Number of bytes of the index of `n_parts` segments.
const fn index_bytes(n_parts: usize) -> usize {
    if n_parts > 1 { ENTRY * (n_parts + 1) } else { 0 }
}

/// Returns the start of a segment if the previous segment ends at `n_bytes`.
const fn padded(n_bytes: usize) -> usize {
    n_bytes.next_multiple_of(FRAME_ALIGN)
}

/// Number of segments of at most `segment_bytes` each that always fit a payload of `room` bytes; at
/// least 1.
#[must_use]
pub const fn max_parts(segment_bytes: usize, room: usize) -> usize {
    let each = padded(segment_bytes) + ENTRY;
    let n_parts = room.saturating_sub(ENTRY) / each;
    if n_parts > 1 { n_parts } else { 1 }
}

/// Number of bytes of a payload that holds `n_parts` segments of at most `segment_bytes` each,
/// whatever their lengths; `None` if it does not fit `usize`.
#[must_use]
pub fn room(n_parts: usize, segment_bytes: usize) -> Option<usize> {
    if n_parts <= 1 {
        return Some(segment_bytes);
    }
    let each = segment_bytes.checked_next_multiple_of(FRAME_ALIGN)?.checked_add(ENTRY)?;
    each.checked_mul(n_parts)?.checked_add(ENTRY)
}

/// Largest number of bytes of each segment with which `n_parts` segments always fit a payload of
/// `room` bytes.
#[must_use]
pub const fn max_segment_bytes(n_parts: usize, room: usize) -> usize {
    if n_parts <= 1 {
        return room;
    }
    room.saturating_sub(index_bytes(n_parts)) / n_parts / FRAME_ALIGN * FRAME_ALIGN
}

/// Number of bytes of a payload with segments of these lengths.
pub fn n_bytes(segments: impl ExactSizeIterator<Item = usize>) -> usize {
    let n_parts = segments.len();
    let padded = |bytes| if n_parts > 1 { padded(bytes) } else { bytes };
    segments.map(padded).sum::<usize>() + index_bytes(n_parts)
}

/// Places of some segments in a bundle: at its front, at its end, or at the end of each row. Rows
/// are those of an all-to-all ([`SourceRows`](crate::schedule::SourceRows)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placement {
    n_parts: usize,
    /// Place of the first segment.
    first: usize,
    /// Number of segments that follow each other without a gap.
    len: usize,
    /// Distance between the first places of two such sequences.
    stride: usize,
}

impl Placement {
    /// The first `n_parts` places.
    #[must_use]
    pub const fn first(n_parts: usize) -> Self {
        Self { n_parts, first: 0, len: n_parts, stride: n_parts }
    }

    /// The last `n_parts` of `n_all` places; `None` if there are fewer.
    #[must_use]
    pub const fn last(n_parts: usize, n_all: usize) -> Option<Self> {
        let Some(first) = n_all.checked_sub(n_parts) else { return None };
        Some(Self { first, ..Self::first(n_parts) })
    }

    /// The last `len` places of each row, `n_parts` in total. A row has `row` places. The first row
    /// has one fewer, because a rank does not hold its part for itself. Returns `None` unless `len`
    /// is at least 1 and less than `row`.
    #[must_use]
    pub const fn of_rows(n_parts: usize, len: usize, row: usize) -> Option<Self> {
        if len == 0 || len >= row {
            return None;
        }
        Some(Self { n_parts, first: row - 1 - len, len, stride: row })
    }

    /// Number of places.
    #[must_use]
    pub const fn n_parts(self) -> usize {
        self.n_parts
    }

    /// Returns the place with this index, in ascending order.
    #[must_use]
    pub const fn nth(self, index: usize) -> usize {
        if index < self.len {
            return self.first + index;
        }
        self.first + index / self.len * self.stride + index % self.len
    }

    /// Position after the last place.
    #[must_use]
    pub const fn end(self) -> usize {
        if self.n_parts == 0 { 0 } else { self.nth(self.n_parts - 1) + 1 }
    }

    /// Returns whether `place` is one of the places.
    fn has(self, place: usize) -> bool {
        let Some(offset) = place.checked_sub(self.first).filter(|_| place < self.end()) else {
            return false;
        };
        offset % self.stride < self.len
    }
}

fn entry(payload: &[u8], at: usize) -> Option<usize> {
    let bytes = payload.get(at..)?.first_chunk::<ENTRY>()?;
    Some(u32::from_le_bytes(*bytes) as usize)
}

fn set_entry(payload: &mut [u8], at: usize, value: usize) -> Option<()> {
    let bytes = payload.get_mut(at..)?.first_chunk_mut::<ENTRY>()?;
    *bytes = u32::try_from(value).ok()?.to_le_bytes();
    Some(())
}

/// Reads the number of segments from the index of a bundle.
#[must_use]
pub fn n_parts(payload: &[u8]) -> Option<usize> {
    entry(payload, payload.len().checked_sub(ENTRY)?)
}

/// Checks the index of a payload that should have `n_parts` segments.
///
/// For a valid payload, [`segment`] finds each segment. Segments are in order and do not overlap;
/// between and after them are only padding and the index.
///
/// # Errors
/// [`DecodeError`] if the index does not fit the payload.
pub fn check(payload: &[u8], n_parts: usize) -> Result<(), DecodeError> {
    if n_parts == 1 {
        return Ok(());
    }
    let (need, have) = (index_bytes(n_parts), payload.len());
    let at = have.checked_sub(need).ok_or(DecodeError::Truncated { need, have })?;
    let is_sound = self::n_parts(payload) == Some(n_parts)
        && (0..n_parts).all(|index| segment(payload, n_parts, index).is_some())
        && segments_end(payload, n_parts) == Some(at);
    if is_sound { Ok(()) } else { Err(DecodeError::Damaged) }
}

/// Returns the range of a segment in the payload of a bundle of `n_parts`.
#[must_use]
pub fn segment(payload: &[u8], n_parts: usize, index: usize) -> Option<Range<usize>> {
    if n_parts == 1 {
        return Some(0..payload.len());
    }
    let ends = payload.len().checked_sub(index_bytes(n_parts))?;
    let end_of = |index: usize| entry(payload, ends + ENTRY * index);
    let start = if index == 0 { 0 } else { padded(end_of(index - 1)?) };
    let end = end_of(index)?;
    (index < n_parts && start <= end && end <= ends).then_some(start..end)
}

/// Returns the end of the last segment and its padding, where the index begins.
fn segments_end(payload: &[u8], n_parts: usize) -> Option<usize> {
    Some(padded(segment(payload, n_parts, n_parts.checked_sub(1)?)?.end))
}

/// Returns the free range of `room` for the next segment, while a bundle of `n_parts` is written.
///
/// `n_bytes` is the length of the bundle so far. Until the last segment is written, the index is at
/// the end of `room`.
#[must_use]
pub fn free(room: &[u8], n_parts: usize, n_bytes: usize) -> Option<Range<usize>> {
    let end = room.len().checked_sub(index_bytes(n_parts))?;
    (n_bytes <= end).then_some(n_bytes..end)
}

/// Records in the index that a segment has been written to the range `written` (see [`free`]).
///
/// Returns the length of the bundle so far. After the last segment, it is the length of the whole
/// bundle, index included.
#[must_use]
pub fn end_segment(
    room: &mut [u8],
    n_parts: usize,
    index: usize,
    written: Range<usize>,
) -> Option<usize> {
    if n_parts == 1 {
        return Some(written.end);
    }
    let ends = room.len().checked_sub(index_bytes(n_parts))?;
    let next = pad(room, written.end).filter(|&next| next <= ends)?;
    set_entry(room, ends + ENTRY * index, written.end)?;
    if index + 1 < n_parts {
        return Some(next);
    }
    room.copy_within(ends..ends + ENTRY * n_parts, next);
    finish(room, n_parts, next)
}

/// Fills the padding after a segment with zeros. Returns the start of the next segment.
fn pad(room: &mut [u8], end: usize) -> Option<usize> {
    let next = padded(end);
    room.get_mut(end..next)?.fill(0);
    Some(next)
}

/// Writes the number of segments after the index entries, which begin at `ends`. Returns the length
/// of the bundle.
fn finish(room: &mut [u8], n_parts: usize, ends: usize) -> Option<usize> {
    set_entry(room, ends + ENTRY * n_parts, n_parts)?;
    Some(ends + index_bytes(n_parts))
}

/// Copies some segments of a bundle to `room` as a new bundle. Returns the length of the new
/// bundle.
#[must_use]
pub fn copy(payload: &[u8], n_parts: usize, places: Placement, room: &mut [u8]) -> Option<usize> {
    if places.n_parts == n_parts {
        room.get_mut(..payload.len())?.copy_from_slice(payload);
        return Some(payload.len());
    }
    let (mut n_bytes, mut last) = (0, 0..0);
    for index in 0..places.n_parts {
        let segment = payload.get(segment(payload, n_parts, places.nth(index))?)?;
        last = n_bytes..n_bytes + segment.len();
        room.get_mut(last.clone())?.copy_from_slice(segment);
        if places.n_parts > 1 {
            n_bytes = end_segment(room, places.n_parts, index, last.clone())?;
        }
    }
    Some(if places.n_parts > 1 { n_bytes } else { last.end })
}

/// Removes some segments from a bundle, but not all. Returns the length of the remaining bundle.
#[must_use]
pub fn take_out(payload: &mut [u8], n_parts: usize, places: Placement) -> Option<usize> {
    let n_left = n_parts.checked_sub(places.n_parts).filter(|&left| left > 0)?;
    if n_left == n_parts {
        return Some(payload.len());
    }
    let is_left = |index: &usize| !places.has(*index);
    let mut n_bytes = 0;
    for index in (0..n_parts).filter(is_left) {
        let segment = segment(payload, n_parts, index)?;
        let end = n_bytes + segment.len();
        if segment.start != n_bytes {
            payload.get(n_bytes..end)?;
            payload.copy_within(segment, n_bytes);
        }
        if n_left == 1 {
            return Some(end);
        }
        n_bytes = pad(payload, end)?;
    }
    // The new index lies before the old one, so no entry is overwritten before it is read.
    let ends = payload.len().checked_sub(index_bytes(n_parts))?;
    let (mut start, mut next, mut n_done) = (0, 0, 0);
    for index in 0..n_parts {
        let end = entry(payload, ends + ENTRY * index)?;
        if is_left(&index) {
            let end = next + end.checked_sub(start)?;
            next = padded(end);
            set_entry(payload, n_bytes + ENTRY * n_done, end)?;
            n_done += 1;
        }
        start = padded(end);
    }
    finish(payload, n_left, n_bytes)
}

/// Inserts the segments of another bundle into the bundle in the first `n_bytes` of `room`.
///
/// The inserted segments get these `places` in the joint bundle. Returns its length.
#[must_use]
pub fn join(
    room: &mut [u8],
    (n_bytes, n_parts): (usize, usize),
    (other, n_other): (&[u8], usize),
    places: Placement,
) -> Option<usize> {
    let bundle = room.get(..n_bytes)?;
    let end = segments_end(bundle, n_parts)?;
    let n_all = n_parts + n_other;
    if places.n_parts != n_other || places.end() > n_all {
        return None;
    }
    let ends = end + segments_end(other, n_other)?;
    room.get(..ends + index_bytes(n_all))?;
    // Move the index first, then the segments from last to first, because they move up.
    if n_parts > 1 {
        room.copy_within(end..end + ENTRY * n_parts, ends);
    } else {
        pad(room, n_bytes)?;
        set_entry(room, ends, n_bytes)?;
    }
    let (mut n_left, mut next, mut n_new) = (n_parts, ends, n_other);
    for place in (0..n_all).rev() {
        let Some(index) = n_new.checked_sub(1) else { break };
        if places.nth(index) == place {
            let segment = other.get(segment(other, n_other, index)?)?;
            next = next.checked_sub(padded(segment.len()))?;
            room.get_mut(next..next + segment.len())?.copy_from_slice(segment);
            n_new = index;
            pad(room, next + segment.len())?;
            set_entry(room, ends + ENTRY * place, next + segment.len())?;
            continue;
        }
        n_left = n_left.checked_sub(1)?;
        let end_of = |index| entry(room, ends + ENTRY * index);
        let start = if n_left == 0 { 0 } else { padded(end_of(n_left - 1)?) };
        let segment = start..end_of(n_left)?;
        room.get(segment.clone())?;
        next = next.checked_sub(padded(segment.len()))?;
        let len = segment.len();
        room.get(next..next + len)?;
        room.copy_within(segment, next);
        pad(room, next + len)?;
        set_entry(room, ends + ENTRY * place, next + len)?;
    }
    finish(room, n_all, ends)
}

#[cfg(test)]
mod tests;
