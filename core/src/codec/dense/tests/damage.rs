//! Payloads that no writer writes.

use super::*;

/// Tag bit: some differences are taken twice.
const TWICE: u8 = 128;
/// Tag bit: low bits are left out.
const ZEROS: u8 = 64;

/// Passes these bytes to all functions that read payloads. Each must return without a panic.
fn is_harmless<T: Float>(codec: &dyn Codec<T>, bytes: &[u8], other: &[u8], values: &mut [T]) {
    let mut dst = vec![0; codec.max_encoded_len(values.len()).unwrap()];
    let _ = codec.fold(&Op::Sum, bytes, values, &mut dst);
    let folded = codec.fold_store(&Op::Min, bytes, Values::InPlace(values), 2, &mut dst);
    // If the codec accepts the bytes, the payload that it writes must be valid.
    if let Ok(written) = folded {
        codec.decode(&dst[..written.n_bytes], 1, values).unwrap();
    }
    let homomorphic = codec.homomorphic().unwrap();
    for op in [Op::Max, Op::Prod] {
        for (a, b) in [(bytes, other), (other, bytes)] {
            if let Ok(written) = homomorphic.combine(&op, a, b, &mut dst) {
                codec.decode(&dst[..written.n_bytes], 1, values).unwrap();
            }
        }
    }
    let _ = codec.recode(bytes, values.len(), &mut dst);
}

/// Makes payloads of two chunks each: predicted, predicted with exceptions, and stored unchanged.
fn payloads<T: Float>(codec: &dyn Codec<T>) -> Vec<(Vec<T>, Vec<u8>)> {
    let field = smooth(SHAPE, 0.0);
    let mut random = Random(5);
    let mut array = |make: &mut dyn FnMut(usize, &mut Random) -> f64| {
        let values: Vec<T> = (0..CHUNK + 205).map(|i| T::from_f64(make(i, &mut random))).collect();
        let bytes = encode(codec, &values);
        (values, bytes)
    };
    vec![
        array(&mut |i, _| field[i]),
        array(&mut |i, _| if i % 61 < 5 || i % 97 == 0 { f64::NAN } else { field[i] }),
        array(&mut |_, random| match random.below(2) {
            0 => 1e30 * random.unit(),
            _ => 2.5e-4 * T::MAX_CODE * random.unit(),
        }),
    ]
}

fn tags(bytes: &[u8]) -> [u8; 2] {
    let body = HEADER_BYTES + 2 * INDEX_ENTRY;
    let end = u32::from_le_bytes(bytes[HEADER_BYTES..][..4].try_into().unwrap()) as usize;
    [bytes[body], bytes[body + end]]
}

fn any_bytes_are_harmless<T: Float>(id: CodecId) {
    let params = params::<T>(1e-3, &SHAPE).for_sums_of(2);
    let codec = id.instance::<T>(&params);
    let codec = codec.as_dyn();
    let payloads = payloads(codec);
    // All tags of fz-nd have the bit of fixed-width packing, except those of chunks stored
    // unchanged.
    let fixed = if id == CodecId::FzNd { 32 } else { 0 };
    let found: Vec<_> = payloads.iter().map(|(_, bytes)| tags(bytes)).collect();
    let once = |tag: &u8| tag & !TWICE ^ fixed;
    assert!(found[0].iter().all(|tag| (1..8).contains(&once(tag))), "{found:?}");
    assert!(found[1].iter().all(|tag| (9..16).contains(&once(tag))), "{found:?}");
    // Stored unchanged (16), with exceptions (8).
    assert_eq!(found[2], [24, 24]);
    let mut random = Random(11);
    for (values, bytes) in &payloads {
        let mut decoded = values.clone();
        for at in 0..bytes.len() {
            let outcome = codec.decode(&bytes[..at], 1, &mut decoded);
            assert!(outcome.is_err(), "{at} of {}", bytes.len());
            let mut damaged = bytes.clone();
            damaged[at] ^= if at % 2 == 0 { 0xff } else { 1 << random.below(8) };
            let _ = codec.decode(&damaged, 1, &mut decoded);
            if at < 200 || random.below(40) == 0 {
                is_harmless(codec, &damaged, bytes, &mut decoded);
            }
        }
        // Random bytes anywhere, including the lengths of chunks.
        for _ in 0..300 {
            let mut damaged = bytes.clone();
            for _ in 0..=random.below(6) {
                let at = match random.below(2) {
                    0 => HEADER_BYTES + random.below(80),
                    _ => random.below(bytes.len()),
                };
                damaged[at] = random.next() as u8;
            }
            is_harmless(codec, &damaged, bytes, &mut decoded);
        }
        // A chunk with random contents in its proper place.
        let body = HEADER_BYTES + 2 * INDEX_ENTRY;
        for _ in 0..300 {
            let mut damaged = bytes.clone();
            let from = body + random.below(50);
            let end = bytes.len() - PAD;
            damaged[from..end].iter_mut().for_each(|byte| *byte = random.next() as u8);
            is_harmless(codec, &damaged, bytes, &mut decoded);
        }
    }
}

/// The slowest tests. They seldom fail unless a faster test fails too.
mod long {
    use super::*;

    #[test]
    fn any_bytes_are_refused_or_harmless() {
        any_bytes_are_harmless::<f32>(CodecId::Dense);
        any_bytes_are_harmless::<f64>(CodecId::Dense);
        any_bytes_are_harmless::<f64>(CodecId::FzNd);
    }
}

#[test]
fn what_no_writer_writes_is_refused() {
    let params = params::<f32>(1e-3, &SHAPE);
    let codec = CodecId::Dense.instance::<f32>(&params);
    let codec = codec.as_dyn();
    let body = HEADER_BYTES + 2 * INDEX_ENTRY;
    let [smooth, dotted, plain]: [_; 3] = payloads(codec).try_into().unwrap();
    let is_refused = |of: &(Vec<f32>, Vec<u8>), change: &dyn Fn(&mut Vec<u8>)| {
        let (mut values, mut bytes) = of.clone();
        change(&mut bytes);
        codec.decode(&bytes, 1, &mut values) == Err(DecodeError::Damaged)
    };
    // Tags: a predictor with PLAIN, another packing, exceptions that are missing, and second
    // differences without any difference or with planes.
    let twice = (0..8).filter(|bits| ![1, 2, 3].contains(bits)).map(|bits| TWICE | bits);
    for tag in (8..ZEROS).chain(twice) {
        assert!(is_refused(&smooth, &|bytes| bytes[body] = tag), "tag {tag}");
    }
    // A count of 0 left-out bits, and counts of all bits or more.
    for zeros in [0, 32, 33, 255] {
        let tag = smooth.1[body] | ZEROS;
        assert!(is_refused(&smooth, &|bytes| (bytes[body], bytes[body + 9]) = (tag, zeros)));
    }
    for tag in (0..=u8::MAX).filter(|&tag| tag != 24) {
        assert!(is_refused(&plain, &|bytes| bytes[body] = tag), "tag {tag}");
    }
    // Strides: a row of 1, a plane within a row, and distances beyond the window.
    let strides = |row: u16, plane: u16| {
        is_refused(&smooth, &move |bytes| {
            bytes[body + 5..body + 7].copy_from_slice(&row.to_le_bytes());
            bytes[body + 7..body + 9].copy_from_slice(&plane.to_le_bytes());
        })
    };
    for (row, plane) in [(1, 0), (61, 1), (61, 61), (61, 60), (6000, 6287), (12_287, 0), (0, 1)] {
        assert!(strides(row, plane), "{row}, {plane}");
    }
    assert!(strides(u16::MAX, u16::MAX) && strides(61, u16::MAX) && strides(0, u16::MAX));
    // Predictors along dimensions that the strides lack.
    for predictor in 2..8 {
        assert!(is_refused(&smooth, &|bytes| {
            bytes[body] = predictor;
            bytes[body + 5..body + 9].fill(0);
        }));
    }
    // An empty set of exceptions: one group of seven blocks, all of the usual kind.
    assert!(is_refused(&smooth, &|bytes| {
        let entry = HEADER_BYTES + INDEX_ENTRY;
        let [first, end] = [0, 1].map(|i| {
            let bytes = &bytes[HEADER_BYTES + i * INDEX_ENTRY..][..INDEX_ENTRY];
            u32::from_le_bytes(bytes.try_into().unwrap())
        });
        bytes[body + first as usize] |= 8;
        bytes[entry..entry + 4].copy_from_slice(&(end + 1).to_le_bytes());
        bytes.push(0);
    }));
    // A bitmap that marks places after the last value, and an empty bitmap.
    let end = plain.1.len() - PAD;
    assert!(is_refused(&plain, &|bytes| bytes[end - 1] |= 0x80));
    assert!(is_refused(&plain, &|bytes| bytes[end - 26..end].fill(0)));
    assert!(!is_refused(&dotted, &|_| ()) && !is_refused(&plain, &|_| ()));
}
