//! Even and odd values of a row, apart or in turn.

/// Half of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Parity {
    Even,
    Odd,
}

/// Copies the even or the odd values of a line.
#[inline(always)]
pub(super) fn part<V: Copy>(line: &[V], half: &mut [V], parity: Parity) {
    let (pairs, last) = line.as_chunks::<2>();
    let nth = usize::from(parity == Parity::Odd);
    for (value, pair) in half.iter_mut().zip(pairs) {
        *value = pair[nth];
    }
    if let ([last], Some(value), Parity::Even) = (last, half.get_mut(pairs.len()), parity) {
        *value = *last;
    }
}

/// Puts even and odd values in turn.
#[inline(always)]
pub(super) fn join<V: Copy>((even, odd): (&[V], &[V]), line: &mut [V]) {
    let (pairs, last) = line.as_chunks_mut::<2>();
    for (pair, (&even, &odd)) in pairs.iter_mut().zip(even.iter().zip(odd)) {
        *pair = [even, odd];
    }
    if let ([last], Some(even)) = (last, even.last()) {
        *last = *even;
    }
}
