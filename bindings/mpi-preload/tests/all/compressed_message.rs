//! CompressedMessages of messages.

use foldwire::{Bound, Float, Spacing};
use foldwire_preload::compressed_message::{
    CompressedMessage, Damaged, HEADER_BYTES, Header, Mark, UNIT,
};
use foldwire_preload::settings::TransferMode;
use proptest::prelude::*;

const MARK: Mark = Mark(*b"a mark of 16 byt");
const LOSSY: TransferMode = TransferMode::Lossy(Bound::Relative(1e-3));

fn compressed<T: Float>(values: &[T], mode: TransferMode) -> Option<CompressedMessage> {
    CompressedMessage::of(values, mode, (Spacing::PowerOfTwo, None), (MARK, 64))
}

fn opened<T: Float>(bytes: &[u8]) -> Option<Result<Vec<T>, Damaged>> {
    let header = Header::read(bytes, MARK)?;
    Some(header.and_then(|header| {
        let payload = &bytes[HEADER_BYTES..][..header.payload];
        if header.dtype != T::DTYPE {
            return Err(Damaged);
        }
        header.check::<T>(payload)?;
        let mut values = vec![T::ZERO; header.n_values()];
        header.decode(payload, &mut values)?;
        Ok(values)
    }))
}

fn smooth(n: usize) -> Vec<f32> {
    let mut values: Vec<f32> = (0..n).map(|i| (i as f32 * 1e-3).sin()).collect();
    for (i, odd) in [f32::NAN, -0.0, f32::INFINITY, 1e-40].into_iter().enumerate() {
        values[i * n / 5] = odd;
    }
    values
}

#[test]
fn an_message_is_shorter_than_its_message_and_gives_the_values_back() {
    for n in [300, 1000, 4096, 10_001] {
        let values = smooth(n);
        let sealed = compressed(&values, TransferMode::Lossless).unwrap();
        let bytes = sealed.bytes.as_ref();
        assert!(bytes.len() <= n * 4 * 9 / 10 && bytes.len().is_multiple_of(UNIT), "{n}");
        let all = opened::<f32>(bytes).unwrap().unwrap();
        let bits = |all: &[f32]| all.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(&all), bits(&values), "{n}");
        let lossy = compressed(&values, LOSSY).unwrap();
        let all = opened::<f32>(lossy.bytes.as_ref()).unwrap().unwrap();
        assert!(lossy.error > 0.0 && lossy.error <= 2e-3);
        for (x, y) in values.iter().zip(&all) {
            let is_near = f64::from((x - y).abs()) <= lossy.error;
            assert!(is_near || x.to_bits() == y.to_bits(), "{x} {y}");
        }
    }
}

#[test]
fn what_gains_nothing_stays_as_it_is() {
    let mut state = 1u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        f64::from_bits(state)
    };
    let bits: Vec<f64> = (0..5000).map(|_| next()).collect();
    assert!(compressed(&bits, TransferMode::Lossless).is_none());
    assert!(compressed(&[1.0f32; 12], TransferMode::Lossless).is_none());
    assert!(compressed(&smooth(5000), TransferMode::Off).is_none());
    // The smallest compressed message would be longer than the message.
    let (widest, least) = ((Spacing::Widest, None), (MARK, 512));
    let least = CompressedMessage::of(&smooth(100), TransferMode::Lossless, widest, least);
    assert!(least.is_none());
}

#[test]
fn fill_values_keep_their_bits_and_leave_the_range_to_the_others() {
    for fill in [1e20, -9999.0] {
        let mut values = smooth(5000);
        values.iter_mut().skip(7).step_by(3).for_each(|x| *x = fill as f32);
        let settings = (Spacing::PowerOfTwo, Some(fill));
        let sealed = CompressedMessage::of(&values, LOSSY, settings, (MARK, 64)).unwrap();
        assert!(sealed.error <= 2e-3);
        let all = opened::<f32>(sealed.bytes.as_ref()).unwrap().unwrap();
        for (x, y) in values.iter().zip(&all) {
            let is_near = f64::from((x - y).abs()) <= sealed.error && *x != fill as f32;
            assert!(is_near || x.to_bits() == y.to_bits(), "{x} {y}");
        }
        // A message without it is as it is without the setting.
        let without = CompressedMessage::of(&smooth(5000), LOSSY, settings, (MARK, 64)).unwrap();
        let plain = compressed(&smooth(5000), LOSSY).unwrap();
        assert_eq!(without.bytes.as_ref(), plain.bytes.as_ref());
        // Without a bound it is a number like others.
        let mode = TransferMode::Lossless;
        let exact = CompressedMessage::of(&values, mode, settings, (MARK, 64)).unwrap();
        let plain = compressed(&values, mode).unwrap();
        assert_eq!(exact.bytes.as_ref(), plain.bytes.as_ref());
    }
}

#[test]
fn messages_without_the_mark_are_no_messages() {
    let sealed = compressed(&smooth(5000), TransferMode::Lossless).unwrap();
    let bytes = sealed.bytes.as_ref();
    assert_eq!(Header::read(bytes, Mark([7; 16])), None);
    assert_eq!(Header::read(&bytes[..15], MARK), None);
    assert_eq!(Header::read(&bytes[1..], MARK), None);
    assert_eq!(Header::read(&bytes[..16], MARK), Some(Err(Damaged)));
}

proptest! {
    /// Bytes after a mark never panic, and never make room for more values than they hold.
    #[test]
    fn damaged_messages_are_errors_or_values(
        at in 16usize..2000, flip in 1u8.., cut in 0usize..4000,
    ) {
        for (mode, fill) in [(TransferMode::Lossless, None), (LOSSY, None), (LOSSY, Some(0.0))] {
            let (values, settings) = (smooth(5000), (Spacing::PowerOfTwo, fill));
            let sealed = CompressedMessage::of(&values, mode, settings, (MARK, 64)).unwrap();
            let mut bytes = sealed.bytes.as_ref().to_vec();
            let n = bytes.len();
            bytes.truncate(n - cut % n);
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= flip;
            }
            if let Some(Ok(values)) = opened::<f32>(&bytes) {
                prop_assert!(values.len() <= 5000 * 1024);
            }
        }
    }
}
