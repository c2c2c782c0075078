//! Tests that bundles keep their segments when they are split and joined, and that a false index is
//! rejected.

use super::*;
use std::vec;
use std::vec::Vec;

/// Segments of these lengths, each filled with a different byte.
fn segments(lens: &[usize]) -> Vec<Vec<u8>> {
    lens.iter().zip(1_u8..).map(|(&len, byte)| vec![byte; len]).collect()
}

/// Writes a bundle of these segments to a buffer full of other bytes. Returns the buffer and the
/// length of the bundle.
fn bundle(segments: &[Vec<u8>], n_room: usize) -> (Vec<u8>, usize) {
    let mut room = vec![0xaa; n_room];
    let mut n_bytes = 0;
    for (index, segment) in segments.iter().enumerate() {
        let free = free(&room, segments.len(), n_bytes).expect("room");
        let written = free.start..free.start + segment.len();
        room[written.clone()].copy_from_slice(segment);
        n_bytes = end_segment(&mut room, segments.len(), index, written).expect("room");
    }
    (room, n_bytes)
}

fn payload(segments: &[Vec<u8>]) -> Vec<u8> {
    let (mut room, n_bytes) = bundle(segments, 8192);
    room.truncate(n_bytes);
    room
}

/// Segments of a valid bundle.
fn unpacked(payload: &[u8], n_parts: usize) -> Vec<Vec<u8>> {
    assert_eq!(check(payload, n_parts), Ok(()));
    let range = |index| segment(payload, n_parts, index).expect("it was checked");
    (0..n_parts).map(|index| payload[range(index)].to_vec()).collect()
}

const LENS: [&[usize]; 6] =
    [&[0], &[100], &[0, 0], &[64, 1, 0], &[88, 128, 63, 65], &[3, 200, 0, 64, 7, 500, 1, 90]];

#[test]
fn the_bytes_are_those_of_the_page_on_the_format() {
    let (one, two) = (vec![7; 5], vec![8; 64]);
    let zeros = |n| vec![0; n];
    let index = vec![5, 0, 0, 0, 128, 0, 0, 0, 2, 0, 0, 0];
    let expected = [one.clone(), zeros(59), two.clone(), index].concat();
    assert_eq!(payload(&[one.clone(), two]), expected);
    assert_eq!(payload(core::slice::from_ref(&one)), one);
}

#[test]
fn what_is_packed_is_unpacked_and_fits_where_it_should() {
    for lens in LENS {
        let segments = segments(lens);
        let bytes = payload(&segments);
        assert_eq!(unpacked(&bytes, lens.len()), segments);
        assert_eq!(n_bytes(lens.iter().copied()), bytes.len());
        // The computed length is sufficient, and no shorter buffer is.
        let longest = lens.iter().copied().max().unwrap_or(0);
        let equal = vec![vec![9; longest]; lens.len()];
        let need = payload(&equal).len();
        assert_eq!(bundle(&equal, need).1, need);
        assert!(max_parts(longest, need) == lens.len() || lens.len() == 1);
        assert!(lens.len() == 1 || max_parts(longest, need - 1) < lens.len());
        assert_eq!(free(&vec![0; need], lens.len(), need + 1), None);
    }
    assert_eq!((max_parts(1000, 0), max_parts(0, 3), max_parts(usize::MAX / 2, 100)), (1, 1, 1));
}

#[test]
fn bundles_are_split_and_joined_anywhere() {
    for lens in LENS {
        let segments = segments(lens);
        let (n, bytes) = (lens.len(), payload(&segments));
        for n_first in 1..=n {
            let n_last = n - n_first;
            let [firsts, lasts] = [Some(Placement::first(n_first)), Placement::last(n_last, n)];
            let [firsts, lasts] = [firsts, lasts].map(|places| places.expect("there are so many"));
            let mut first = bytes.clone();
            let n_bytes = take_out(&mut first, n, lasts).expect("some are left");
            assert_eq!(first[..n_bytes], payload(&segments[..n_first]));
            if n_last == 0 {
                continue;
            }
            let mut last = vec![0xbb; bytes.len()];
            let n_last_bytes = copy(&bytes, n, lasts, &mut last).expect("room");
            assert_eq!(last[..n_last_bytes], payload(&segments[n_first..]));

            let mut same = vec![0xbb; bytes.len()];
            assert_eq!(copy(&bytes, n, firsts, &mut same), Some(n_bytes));
            assert_eq!(same[..n_bytes], first[..n_bytes]);
            let mut kept = bytes.clone();
            assert_eq!(take_out(&mut kept, n, firsts), Some(n_last_bytes));
            assert_eq!(kept[..n_last_bytes], last[..n_last_bytes]);

            let [first, last] = [&first[..n_bytes], &last[..n_last_bytes]];
            for [(held, n_held), (other, n_other)] in
                [[(first, n_first), (last, n_last)], [(last, n_last), (first, n_first)]]
            {
                let places = if n_held == n_first && held == first { lasts } else { firsts };
                let mut room = vec![0xcc; bytes.len()];
                room[..held.len()].copy_from_slice(held);
                let joined = join(&mut room, (held.len(), n_held), (other, n_other), places);
                assert_eq!(joined, Some(bytes.len()));
                assert_eq!(room, bytes, "{lens:?} at {n_first}");
                room.pop();
                room[..held.len()].copy_from_slice(held);
                let joined = join(&mut room, (held.len(), n_held), (other, n_other), places);
                assert_eq!(joined, None, "the buffer is too short");
            }
        }
        let all = Placement::first(n);
        let mut same = vec![0; bytes.len()];
        assert_eq!(copy(&bytes, n, all, &mut same), Some(bytes.len()));
        assert_eq!(same, bytes);
        same.pop();
        assert_eq!(copy(&bytes, n, all, &mut same).is_none(), !bytes.is_empty());
    }
}

/// Lists the last `len` places of each row, among `n` places. A row has `row` places; the first row
/// lacks its first one.
fn of_rows(n: usize, len: usize, row: usize) -> Vec<usize> {
    (0..n).filter(|place| (place + 1) % row >= row - len).collect()
}

#[test]
fn ends_of_rows_are_taken_out_and_put_in() {
    let lens = LENS.concat();
    for (n, row) in (2..=lens.len()).flat_map(|n| (2..=n + 1).map(move |row| (n, row))) {
        for len in 1..row {
            let all = segments(&lens[..n]);
            let expected = of_rows(n, len, row);
            let n_parts = expected.len();
            let places = Placement::of_rows(n_parts, len, row).expect("rows are longer");
            let found: Vec<usize> = (0..n_parts).map(|index| places.nth(index)).collect();
            assert_eq!(found, expected, "{len} of {row} among {n}");
            assert_eq!(places.end(), expected.last().map_or(0, |last| last + 1));
            if n_parts == 0 || n_parts == n {
                continue;
            }
            let (ends, others): (Vec<_>, Vec<_>) =
                (0..n).partition(|place| expected.contains(place));
            let [ends, others] = [ends, others].map(|places| {
                payload(&places.iter().map(|&place| all[place].clone()).collect::<Vec<_>>())
            });
            let bytes = payload(&all);
            let mut room = vec![0xbb; bytes.len()];
            assert_eq!(copy(&bytes, n, places, &mut room), Some(ends.len()));
            assert_eq!(room[..ends.len()], ends);
            let mut rest = bytes.clone();
            assert_eq!(take_out(&mut rest, n, places), Some(others.len()));
            assert_eq!(rest[..others.len()], others);
            // The buffer has exactly the required length, and its tail holds other bytes.
            rest[others.len()..].fill(0xcc);
            let held = (others.len(), n - n_parts);
            assert_eq!(join(&mut rest, held, (&ends, n_parts), places), Some(bytes.len()));
            assert_eq!(rest, bytes, "{len} of {row} among {n}");
        }
    }
    assert_eq!(Placement::of_rows(1, 0, 2), None);
    assert_eq!(Placement::of_rows(1, 2, 2), None);
}

#[test]
fn an_index_that_lies_is_refused() {
    let segments = segments(&[100, 3, 64]);
    let bytes = payload(&segments);
    for n in 0..bytes.len() {
        assert!(check(&bytes[..n], 3).is_err(), "{n} bytes of {}", bytes.len());
    }
    for n_parts in [0, 2, 4, 1000, usize::MAX / 8] {
        assert!(check(&bytes, n_parts).is_err(), "{n_parts} parts");
    }
    let ends = bytes.len() - index_bytes(3);
    for (entry, end) in
        [(0, 0), (0, 129), (0, 1 << 31), (1, 127), (1, 257), (2, 191), (2, 300), (2, u32::MAX)]
    {
        let mut lie = bytes.clone();
        lie[ends + ENTRY * entry..][..ENTRY].copy_from_slice(&end.to_le_bytes());
        let sound = check(&lie, 3);
        // A false end within the padding of 64 bytes is valid: it only changes a segment's length.
        let may_be = (entry, end) == (0, 0) || sound == Err(DecodeError::Damaged);
        assert!(may_be, "entry {entry} says {end}: {sound:?}");
        // No operation on a false index accesses bytes outside the buffers.
        let mut room = vec![0; 4096];
        let ends =
            (0..=4).map(Placement::first).chain((0..=3).filter_map(|n| Placement::last(n, 3)));
        let rows = [(1, 1, 2), (2, 1, 2), (1, 1, 3), (2, 2, 3), (5, 1, 2)];
        let rows = rows.into_iter().filter_map(|(n, len, row)| Placement::of_rows(n, len, row));
        for places in ends.chain(rows) {
            let _ = (segment(&lie, 3, places.n_parts()), copy(&lie, 3, places, &mut room));
            let _ = take_out(&mut lie.clone(), 3, places);
            let _ = join(&mut room, (lie.len(), 3), (&lie, 3), places);
            let _ = join(&mut lie.clone(), (lie.len(), 3), (&bytes, 3), places);
        }
    }
}
