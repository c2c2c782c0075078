//! Any bytes as a bundle of segments ([`foldwire::bundle`]). The check fails, or the segments are
//! in order and stay the same after the bundle is split and joined at any place. No access leaves
//! the bundle's bytes.

use foldwire::bundle::{self, Placement};
use foldwire::transport::FRAME_ALIGN;

/// Largest number of parts that is tried.
const MAX_PARTS: u8 = 40;

/// Runs the target on an input. The first two bytes give the expected number of parts, and the
/// number of parts before the split. The rest is the bundle.
pub fn check(input: &[u8]) {
    let [n_parts, n_first, payload @ ..] = input else { return };
    let n_parts = usize::from(1 + n_parts % MAX_PARTS);
    let n_first = 1 + usize::from(*n_first) % n_parts;
    let is_sound = bundle::check(payload, n_parts).is_ok();
    let ranges: Option<Vec<_>> =
        (0..n_parts).map(|index| bundle::segment(payload, n_parts, index)).collect();
    let split = split_and_join(payload, n_parts, n_first);
    if !is_sound {
        return;
    }
    assert!(n_parts == 1 || bundle::n_parts(payload) == Some(n_parts));
    let ranges = ranges.expect("each segment is found");
    assert!(ranges.windows(2).all(|pair| pair[0].end <= pair[1].start));
    assert!(ranges.iter().all(|range| range.start % FRAME_ALIGN == 0));
    let lens = ranges.iter().map(ExactSizeIterator::len);
    assert_eq!(bundle::n_bytes(lens), payload.len());
    let again = split.expect("the joined bundle fits where it was before");
    assert_eq!(bundle::check(&again, n_parts), Ok(()));
    for (index, range) in ranges.into_iter().enumerate() {
        let same = bundle::segment(&again, n_parts, index).expect("it was checked");
        assert!(payload[range] == again[same], "segment {index} of {n_parts}");
    }
}

/// Splits the bundle and joins it again, first at one place, and then at the ends of rows.
fn split_and_join(payload: &[u8], n_parts: usize, n_first: usize) -> Option<Vec<u8>> {
    let last = Placement::last(n_parts - n_first, n_parts)?;
    let again = split_and_join_at(payload, n_parts, last)?;
    // Rows have `n_first` parts. From each row, `len` parts are taken out: one, or all but one.
    let len = if n_first.is_multiple_of(2) { 1 } else { n_first - 1 };
    let n_ends = (1..=n_parts).filter(|place| place % n_first.max(1) >= n_first - len).count();
    match Placement::of_rows(n_ends, len, n_first) {
        Some(rows) if n_ends > 0 && n_ends < n_parts => split_and_join_at(&again, n_parts, rows),
        _ => Some(again),
    }
}

fn split_and_join_at(payload: &[u8], n_parts: usize, places: Placement) -> Option<Vec<u8>> {
    let mut room = payload.to_vec();
    let mut other = vec![0; payload.len()];
    let n_other = places.n_parts();
    let n_bytes = bundle::take_out(&mut room, n_parts, places)?;
    if n_other > 0 {
        let n_other_bytes = bundle::copy(payload, n_parts, places, &mut other)?;
        let other = (&other[..n_other_bytes], n_other);
        let joined = bundle::join(&mut room, (n_bytes, n_parts - n_other), other, places)?;
        room.truncate(joined);
    }
    Some(room)
}
