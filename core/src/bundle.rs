//! Several segments in one payload: what a message carries that concerns a run of parts.
//!
//! The segments lie one after the other in the order of the run, each at a multiple of
//! [`FRAME_ALIGN`]. An *index* behind them says where each ends, counted from the first byte of the
//! payload, and how many there are:
//!
//! ```text
//! payload = (segment ‖ zeros) × n_parts ‖ ends (4 bytes × n_parts) ‖ n_parts (4 bytes)
//! ```
//!
//! A run of one part has neither zeros nor index: the payload is the segment. As the index comes
//! last, segments are put behind others, and taken off the end, without moving those before them. A
//! rank that splits or joins bundles copies bytes and decodes nothing.
//!
//! Nothing here trusts an index. [`check`] looks at one that has arrived; every other function
//! returns `None` where a bundle contradicts itself or the room is too short.

use crate::codec::DecodeError;
use crate::transport::FRAME_ALIGN;
use core::ops::Range;

/// Bytes of an entry of the index.
const ENTRY: usize = 4;

/// Bytes of the index of so many segments.
const fn index_bytes(n_parts: usize) -> usize {
    if n_parts > 1 { ENTRY * (n_parts + 1) } else { 0 }
}

/// Where a segment begins if the one before it ends here.
const fn padded(n_bytes: usize) -> usize {
    n_bytes.next_multiple_of(FRAME_ALIGN)
}

/// How many segments of at most `segment_bytes` each are sure to fit a payload of `room` bytes; at
/// least 1.
#[must_use]
pub const fn max_parts(segment_bytes: usize, room: usize) -> usize {
    let each = padded(segment_bytes) + ENTRY;
    let n_parts = room.saturating_sub(ENTRY) / each;
    if n_parts > 1 { n_parts } else { 1 }
}

/// Most bytes of each of so many segments that are sure to fit a payload of `room` bytes.
#[must_use]
pub const fn max_segment_bytes(n_parts: usize, room: usize) -> usize {
    if n_parts <= 1 {
        return room;
    }
    room.saturating_sub(index_bytes(n_parts)) / n_parts / FRAME_ALIGN * FRAME_ALIGN
}

/// Bytes of a payload of segments of so many bytes each.
pub fn n_bytes(segments: impl ExactSizeIterator<Item = usize>) -> usize {
    let n_parts = segments.len();
    let padded = |bytes| if n_parts > 1 { padded(bytes) } else { bytes };
    segments.map(padded).sum::<usize>() + index_bytes(n_parts)
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

/// How many segments a payload of more than one says that it has.
#[must_use]
pub fn n_parts(payload: &[u8]) -> Option<usize> {
    entry(payload, payload.len().checked_sub(ENTRY)?)
}

/// Checks a payload that should have so many segments. After that [`segment`] finds each of them,
/// in order, none on another, and nothing between or behind them but zeros and the index.
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

/// Where a segment lies in the payload of a bundle of `n_parts`.
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

/// Where all segments end, with their zeros: there the index begins.
fn segments_end(payload: &[u8], n_parts: usize) -> Option<usize> {
    Some(padded(segment(payload, n_parts, n_parts.checked_sub(1)?)?.end))
}

/// Where in the room of a frame the next segment goes of a bundle of `n_parts` that is being
/// written, after `n_bytes`. Until the last one is there, the index lies at the end of the room.
#[must_use]
pub fn free(room: &[u8], n_parts: usize, n_bytes: usize) -> Option<Range<usize>> {
    let end = room.len().checked_sub(index_bytes(n_parts))?;
    (n_bytes <= end).then_some(n_bytes..end)
}

/// Notes that a segment has been [written](free) at `written`; the bytes of the bundle up to now,
/// and of all of it after the last segment.
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
    close(room, n_parts, next)
}

/// Zeros up to where the next segment begins.
fn pad(room: &mut [u8], end: usize) -> Option<usize> {
    let next = padded(end);
    room.get_mut(end..next)?.fill(0);
    Some(next)
}

/// Writes the number of segments behind their ends, which are at `ends`; the bytes of the bundle.
fn close(room: &mut [u8], n_parts: usize, ends: usize) -> Option<usize> {
    set_entry(room, ends + ENTRY * n_parts, n_parts)?;
    Some(ends + index_bytes(n_parts))
}

/// Copies the last `n_last` segments of a bundle into the room of another frame; the bytes of the
/// bundle that they are there.
#[must_use]
pub fn copy_last(payload: &[u8], n_parts: usize, n_last: usize, room: &mut [u8]) -> Option<usize> {
    if n_last == n_parts {
        room.get_mut(..payload.len())?.copy_from_slice(payload);
        return Some(payload.len());
    }
    let first = n_parts.checked_sub(n_last)?;
    let start = segment(payload, n_parts, first)?.start;
    if n_last == 1 {
        let last = payload.get(segment(payload, n_parts, first)?)?;
        room.get_mut(..last.len())?.copy_from_slice(last);
        return Some(last.len());
    }
    let ends = segments_end(payload, n_parts)?;
    let segments = payload.get(start..ends)?;
    room.get_mut(..segments.len())?.copy_from_slice(segments);
    for index in 0..n_last {
        let end = segment(payload, n_parts, first + index)?.end - start;
        set_entry(room, segments.len() + ENTRY * index, end)?;
    }
    close(room, n_last, segments.len())
}

/// The same of the first `n_first`.
#[must_use]
pub fn copy_first(
    payload: &[u8],
    n_parts: usize,
    n_first: usize,
    room: &mut [u8],
) -> Option<usize> {
    let room = room.get_mut(..payload.len())?;
    room.copy_from_slice(payload);
    keep_first(room, n_parts, n_first)
}

/// Takes segments off the front of a bundle, so that the last `n_last` are left; their bytes.
#[must_use]
pub fn keep_last(payload: &mut [u8], n_parts: usize, n_last: usize) -> Option<usize> {
    let first = n_parts.checked_sub(n_last)?;
    let range = segment(payload, n_parts, first)?;
    if n_last == 1 {
        payload.copy_within(range.clone(), 0);
        return Some(range.len());
    }
    let ends = segments_end(payload, n_parts)?;
    payload.get(range.start..ends)?;
    payload.copy_within(range.start..ends, 0);
    let n_bytes = ends - range.start;
    // Of the old index, which lies behind the new one, no entry is overwritten before it is read.
    for index in 0..n_last {
        let end = entry(payload, ends + ENTRY * (first + index))?.checked_sub(range.start)?;
        set_entry(payload, n_bytes + ENTRY * index, end)?;
    }
    close(payload, n_last, n_bytes)
}

/// Takes segments off the end of a bundle, so that the first `n_first` are left; their bytes.
#[must_use]
pub fn keep_first(payload: &mut [u8], n_parts: usize, n_first: usize) -> Option<usize> {
    let end = segment(payload, n_parts, n_first.checked_sub(1)?)?.end;
    if n_first == 1 || n_first == n_parts {
        return Some(if n_first == 1 { end } else { payload.len() });
    }
    let (from, to) = (segments_end(payload, n_parts)?, padded(end));
    let ends = from..from + ENTRY * n_first;
    payload.get(ends.clone())?;
    payload.copy_within(ends, to);
    close(payload, n_first, to)
}

/// Puts the segments of another bundle behind those of the first `n_bytes` of a room; the bytes of
/// the bundle that they are together.
#[must_use]
pub fn join(
    room: &mut [u8],
    (n_bytes, n_parts): (usize, usize),
    (other, n_other): (&[u8], usize),
) -> Option<usize> {
    let bundle = room.get(..n_bytes)?;
    let start = segments_end(bundle, n_parts)?;
    let from = if n_other > 1 { segments_end(other, n_other)? } else { other.len() };
    let (segments, ends) = (other.get(..from)?, start + padded(from));
    // The ends first: the segments come where those are now.
    if n_parts > 1 {
        room.get(ends..ends + ENTRY * n_parts)?;
        room.copy_within(start..start + ENTRY * n_parts, ends);
    } else {
        pad(room, n_bytes)?;
        set_entry(room, ends, n_bytes)?;
    }
    room.get_mut(start..start + from)?.copy_from_slice(segments);
    pad(room, start + from)?;
    for index in 0..n_other {
        let end = start + segment(other, n_other, index)?.end;
        set_entry(room, ends + ENTRY * (n_parts + index), end)?;
    }
    close(room, n_parts + n_other, ends)
}

#[cfg(test)]
mod tests;
