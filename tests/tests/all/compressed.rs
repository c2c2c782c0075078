//! `compress` and `decompress`: arrays of any length and any values come back within the bound, and
//! bytes with another origin are refused with a typed error.

use foldwire::bound::{BoundError, ValueRange};
use foldwire::codec::{CodecId, DecodeError, Loss};
use foldwire::compress::{
    CompressError, Decoder, DecompressError, Encoder, Info, Layout, MAX_DIMS, Order, SEGMENT,
    compress_with,
};
use foldwire::{
    Bound, DType, Element, Float, Plan, Rounding, Scope, Spacing, bf16, compress, decompress, f16,
};
use foldwire_fuzz::decompress::correct;
use foldwire_tests::data::{self, Random};
use proptest::prelude::*;

/// Bytes of the head of an array with one dimension.
const HEAD_BYTES: usize = 40;

/// Compresses an array of one dimension by a plan.
fn by_plan<T: Element>(values: &[T], plan: &Plan) -> Vec<u8> {
    compress_with(values, &Layout::line(values.len()), plan).expect("a good plan")
}

/// Returns whether each value is within the bound, or has the same bits (NaN, infinity).
fn is_within<T: Float>(bound: f64, x: &[T], y: &[T]) -> bool {
    let is_close = |(x, y): (&T, &T)| {
        (x.to_f64() - y.to_f64()).abs() <= bound || data::bytes(&[*x]) == data::bytes(&[*y])
    };
    x.len() == y.len() && x.iter().zip(y).all(is_close)
}

/// Compresses within a bound and decompresses.
fn comes_back<T: Float>(values: &[T], bound: Bound) {
    let count = values.len();
    let bytes = compress(values, bound).expect("a good bound");
    let absolute = bound.absolute(ValueRange::of(values)).expect("positive");
    let info = Info::read(&bytes).expect("a header");
    assert_eq!((info.dtype, info.n_values()), (T::DTYPE, count as u64));
    assert!(info.bound <= absolute, "{info:?}");
    let restored: Vec<T> = decompress(&bytes).expect("undamaged");
    assert!(is_within(info.bound, values, &restored), "{count} values, {bound:?}");
}

/// Compresses without a bound and decompresses.
fn comes_back_exactly<T: Float>(values: &[T]) {
    let restored: Vec<T> = decompress(&by_plan(values, &Plan::lossless())).expect("undamaged");
    assert!(data::bytes(&restored) == data::bytes(values), "{} values, no bound", values.len());
}

const BOUNDS: [Bound; 3] = [Bound::Absolute(1e-3), Bound::Relative(1e-4), Bound::Psnr(70.0)];
/// Lengths up to a segment and beyond.
const LONG: [usize; 3] = [SEGMENT, SEGMENT + 1, 2 * SEGMENT + 7];

/// Tries every bound on arrays of these lengths.
fn every_bound<T: Float>(counts: &[usize]) {
    for &count in counts {
        for values in [data::smooth::<T>(1, count), data::rough(2, count)] {
            BOUNDS.into_iter().for_each(|bound| comes_back(&values, bound));
            comes_back_exactly(&values);
        }
    }
}

fn every_length<T: Float>() {
    every_bound::<T>(&[0, 1, 31, 33, 4095, 4097, 100_003]);
    for (count, bound) in LONG.into_iter().zip(BOUNDS) {
        comes_back::<T>(&data::smooth(1, count), bound);
        comes_back_exactly::<T>(&data::rough(2, count));
    }
}

#[test]
fn arrays_of_every_length_come_back_within_the_bound() {
    every_length::<f32>();
    every_length::<f64>();
    every_length::<f16>();
    every_length::<bf16>();
}

/// Slow tests. When one fails, a faster test usually fails too.
mod long {
    use super::*;

    #[test]
    fn arrays_of_several_segments_come_back_within_every_bound() {
        every_bound::<f32>(&LONG);
        every_bound::<f64>(&LONG);
        every_bound::<f16>(&LONG);
        every_bound::<bf16>(&LONG);
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 300, failure_persistence: None, ..ProptestConfig::default()
    })]

    #[test]
    fn any_bits_come_back_within_any_bound(
        bits in prop::collection::vec(any::<u64>(), 0..200), exponent in -300.0..300.0f64
    ) {
        let bound = Bound::Absolute(10f64.powf(exponent));
        let single: Vec<f32> = bits.iter().map(|&bits| data::from_bits(bits)).collect();
        let double: Vec<f64> = bits.iter().map(|&bits| data::from_bits(bits)).collect();
        let limit = bound.absolute(None).expect("positive");
        let bytes = compress(&single, bound).expect("positive");
        prop_assert!(is_within(limit, &single, &decompress(&bytes).expect("undamaged")));
        let bytes = compress(&double, bound).expect("positive");
        prop_assert!(is_within(limit, &double, &decompress(&bytes).expect("undamaged")));
    }

    #[test]
    fn any_bytes_are_a_typed_error(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        prop_assert!(decompress::<f32>(&bytes).is_err());
        // With a valid start of the head: magic, version, f64, one dimension.
        let bytes = [&b"FWZ1\x03\x02\0\x01"[..], &bytes].concat();
        prop_assert!(decompress::<f64>(&bytes).is_err());
    }
}

#[test]
fn a_relative_bound_refers_to_the_range_of_the_slice_alone() {
    let values: Vec<f64> = (0..5000).map(|i| 100.0 + f64::from(i) / 5000.0).collect();
    let info = Info::read(&compress(&values, Bound::Relative(0.01)).expect("good"))
        .expect("our own output");
    assert!((info.bound - 0.01 * 4999.0 / 5000.0).abs() < 1e-12, "{info:?}");
    // Without a value range (constant values, or no finite ones), every bit is kept.
    for values in [vec![7.25; 100], vec![f64::NAN; 100], vec![f64::INFINITY, f64::NAN], vec![]] {
        let bytes = compress(&values, Bound::Relative(0.01)).expect("good");
        assert_eq!(Info::read(&bytes).map(|info| (info.step, info.bound)), Ok((0.0, 0.0)));
        let restored: Vec<f64> = decompress(&bytes).expect("undamaged");
        assert_eq!(data::bytes(&restored), data::bytes(&values));
    }
}

#[test]
fn a_bad_bound_is_refused() {
    for value in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        let refused = compress(&[1.0f32], Bound::Absolute(value));
        assert!(
            matches!(refused, Err(CompressError::Bound(BoundError::NotPositive { .. }))),
            "{value}"
        );
    }
    let refused = compress(&[1.0f32], Bound::Relative(2.0));
    assert!(matches!(refused, Err(CompressError::Bound(BoundError::BeyondRange { value: 2.0 }))));
}

#[test]
fn whole_numbers_on_a_lattice_of_a_power_of_two_are_exact() {
    let values: Vec<f32> = (0..10_000).map(|i| (i * i % 5000) as f32).collect();
    let plan = Plan::auto(Bound::Absolute(0.5)).with_spacing(Spacing::PowerOfTwo);
    let bytes = by_plan(&values, &plan);
    assert_eq!(decompress(&bytes), Ok(values.clone()));
    assert!(bytes.len() < 3 * values.len());
}

/// Compresses two full chunks and a short one. One block has an exception.
fn example() -> Vec<u8> {
    let mut values: Vec<f32> = data::smooth(3, 2 * 4096 + 40);
    values[5000] = f32::NAN;
    compress(&values, Bound::Absolute(0.01)).expect("a good bound")
}

#[test]
fn prefixes_and_extra_bytes_are_refused() {
    let bytes = example();
    for n in 0..bytes.len() {
        let refused = decompress::<f32>(&bytes[..n]);
        let is_typed =
            matches!(refused, Err(DecompressError::Decode(DecodeError::Truncated { .. })));
        assert!(is_typed, "{n} bytes: {refused:?}");
    }
    let longer = [&bytes[..], &[0]].concat();
    assert_eq!(decompress::<f32>(&longer), Err(DecompressError::Trailing { n_bytes: 1 }));
}

#[test]
fn every_changed_byte_is_noticed() {
    let bytes = example();
    let mut random = Random(3);
    for at in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 1 << random.below(8);
        assert!(decompress::<f32>(&damaged).is_err(), "byte {at}");
    }
}

#[test]
fn the_error_names_what_is_wrong_with_a_head() {
    let bytes = example();
    // Head: magic at 0, version at 4, type at 5, dimensions at 7, step at 8, length at 24. The
    // first segment begins at 40: codec at 48, payload at 64.
    let changed = |at: usize, byte: u8| {
        let mut bytes = bytes.clone();
        bytes[at] = byte;
        decompress::<f32>(&bytes).map(|values| values.len())
    };
    assert_eq!(changed(0, b'G'), Err(DecompressError::NotCompressed));
    assert_eq!(decompress::<f32>(b"PK"), Err(DecompressError::NotCompressed));
    assert_eq!(changed(4, 1), Err(DecodeError::Version { version: 1 }.into()));
    assert_eq!(changed(5, 99), Err(DecompressError::UnknownType { code: 99 }));
    let other = DecodeError::Type { found: 1, expected: DType::F64 };
    assert_eq!(decompress::<f64>(&bytes), Err(other.into()));
    assert_eq!(changed(7, 65), Err(DecodeError::Damaged.into()));
    assert_eq!(changed(8, 1), Err(DecompressError::Checksum));
    assert_eq!(changed(48, 200), Err(DecompressError::UnknownCodec { code: 200 }));
    assert_eq!(changed(bytes.len() - 100, 1), Err(DecompressError::Checksum));
}

/// The count is checked against the bytes first, so a wrong count never causes a memory error.
#[test]
fn a_wrong_count_is_refused_before_memory_is_allocated() {
    for count in [1u64 << 40, u64::MAX - 1, SEGMENT as u64 + 1, 2 * 4096 + 41, 2 * 4096 + 39, 0] {
        let mut bytes = example();
        bytes[24..32].copy_from_slice(&count.to_le_bytes());
        correct(&mut bytes);
        let refused = decompress::<f32>(&bytes);
        assert!(matches!(refused, Err(DecompressError::Decode(_))), "{count}: {refused:?}");
    }
    let empty = by_plan::<f64>(&[], &Plan::lossless());
    assert_eq!(empty.len(), HEAD_BYTES + 24);
    assert_eq!(decompress::<f64>(&empty), Ok(vec![]));
}

#[test]
fn payloads_of_another_version_are_refused() {
    let plan = Plan::foldwire(Bound::Absolute(0.1));
    let mut bytes = by_plan(&[1.0f32; 500], &plan);
    bytes[HEAD_BYTES + 24] = 1;
    correct(&mut bytes);
    let refused = DecompressError::Decode(DecodeError::Version { version: 1 });
    assert_eq!(decompress::<f32>(&bytes), Err(refused));
}

fn every_codec<T: Float>() {
    let values = data::smooth::<T>(4, 9000);
    for &codec in CodecId::OF_ARRAYS {
        let plan = Plan::foldwire(Bound::Absolute(1e-2)).with_codec(codec);
        let made = compress_with(&values, &Layout::new(&[90, 100]), &plan);
        if !codec.is_for(T::DTYPE) && codec != CodecId::Lossless {
            assert_eq!(made, Err(CompressError::Type { codec, dtype: T::DTYPE }));
            continue;
        }
        let bytes = made.expect("supported");
        let info = Info::read(&bytes).expect("a head");
        assert_eq!(info.bound.is_infinite(), codec.loss() == Loss::Setting, "{codec:?}");
        assert_eq!(info.bound == 0.0, codec.is_exact(), "{codec:?}");
        let restored = decompress::<T>(&bytes).expect("undamaged");
        assert!(is_within(info.bound, &values, &restored), "{codec:?}");
    }
}

#[test]
fn every_codec_is_used_or_refused() {
    every_codec::<f32>();
    every_codec::<f64>();
    every_codec::<f16>();
    every_codec::<bf16>();
    let plan = Plan::foldwire(Bound::Absolute(1.0)).with_codec(CodecId::Truncate);
    let refused = compress_with(&[1.0f32], &Layout::line(1), &plan.with_setting(23));
    let (codec, dtype) = (CodecId::Truncate, DType::F32);
    assert_eq!(refused, Err(CompressError::Setting { codec, setting: 23, dtype }));
    let refused = compress_with(&[1.0f32], &Layout::line(1), &Plan::lossless().with_setting(5));
    let codec = CodecId::Lossless;
    assert_eq!(refused, Err(CompressError::Setting { codec, setting: 5, dtype }));
    let plan = Plan::auto(Bound::Absolute(1.0));
    for plan in [plan.with_scope(Scope::Result), plan.with_rounding(Rounding::unbiased(1))] {
        let refused = compress_with(&[1.0f32], &Layout::line(1), &plan);
        assert_eq!(refused, Err(CompressError::Unsupported));
    }
}

#[test]
fn the_automatic_choice_is_as_short_as_the_best_codec() {
    let values: Vec<f32> = data::smooth(5, 300 * 400);
    let layout = Layout::new(&[300, 400]);
    let size = |plan: &Plan| compress_with(&values, &layout, plan).expect("good").len();
    for bound in [1e-1, 1e-3, 1e-6, 1e-9] {
        let plan = Plan::auto(Bound::Relative(bound));
        let auto = size(&plan);
        for &codec in CodecId::OF_ARRAYS.iter().filter(|codec| codec.loss() != Loss::Setting) {
            // Other codecs within a bound are never tried, and are longer on such data.
            let other = size(&plan.with_codec(codec));
            assert!(auto <= other + other / 50, "{bound}, {codec:?}: {auto}, {other}");
        }
    }
}

fn whole_numbers<T: Element>(values: &[T], saves: bool) {
    for plan in [Plan::lossless(), Plan::auto(Bound::Absolute(100.0)), Plan::raw()] {
        let bytes = by_plan(values, &plan);
        assert_eq!(data::bytes(&decompress::<T>(&bytes).expect("undamaged")), data::bytes(values));
        let is_short = bytes.len() < size_of_val(values) / 2;
        assert_eq!(is_short, saves && plan != Plan::raw(), "{}", T::DTYPE);
    }
    let plan = Plan::foldwire(Bound::Absolute(1.0));
    let refused = compress_with(values, &Layout::line(values.len()), &plan);
    let (codec, dtype) = (CodecId::FzLight, T::DTYPE);
    assert_eq!(refused, Err(CompressError::Type { codec, dtype }));
}

#[test]
fn integers_are_exact_with_any_bound() {
    let numbers = 0..10_000_i64;
    whole_numbers(&numbers.clone().map(|i| (i / 300) as i8).collect::<Vec<_>>(), true);
    whole_numbers(&numbers.clone().map(|i| i as u16).collect::<Vec<_>>(), true);
    let mut random = Random(8);
    whole_numbers(&numbers.clone().map(|_| random.bits() as u8).collect::<Vec<_>>(), false);
    whole_numbers(&numbers.clone().map(|_| random.bits() as i16).collect::<Vec<_>>(), false);
    whole_numbers(&numbers.clone().map(|i| i as i32 - 70).collect::<Vec<_>>(), true);
    whole_numbers(&numbers.clone().map(|i| i as u32 * 3).collect::<Vec<_>>(), true);
    whole_numbers(&numbers.map(|i| i - (1 << 40)).collect::<Vec<i64>>(), true);
}

#[test]
fn the_layout_comes_back() {
    let values: Vec<u8> = (0..24).map(|i| i % 2).collect();
    for shape in [&[][..], &[0], &[4, 0, usize::MAX, 7], &[24], &[2, 3, 4], &[1; MAX_DIMS]] {
        for order in [Order::C, Order::Fortran] {
            for (is_big_endian, is_bool) in [(false, true), (true, false)] {
                let layout = Layout { order, is_big_endian, is_bool, ..Layout::new(shape) };
                let n_values = layout.n_values().expect("known") as usize;
                let values = &values[..n_values];
                let bytes = compress_with(values, &layout, &Plan::raw()).expect("good");
                assert_eq!(Info::read(&bytes).map(|info| info.layout), Ok(layout));
                assert_eq!(decompress::<u8>(&bytes).as_deref(), Ok(values));
            }
        }
    }
    for (shape, expected) in [
        (vec![5, 5], CompressError::Count { found: 24, expected: 25 }),
        (vec![usize::MAX, 2], CompressError::Count { found: 0, expected: u64::MAX }),
        (vec![1; MAX_DIMS + 1], CompressError::Dimensions { n_dims: MAX_DIMS + 1 }),
    ] {
        let refused = compress_with(&values, &Layout::new(&shape), &Plan::raw());
        assert_eq!(refused, Err(expected));
    }
}

/// Rows of an array in Fortran order are its columns, so both orders are equally short.
#[test]
fn neighbours_are_known_in_both_orders() {
    let wave = |y: usize, x: usize| (x as f32 * 0.3).sin() + y as f32 * 1e-4;
    let by_rows: Vec<f32> = (0..200 * 300).map(|i| wave(i / 300, i % 300)).collect();
    let plan = Plan::auto(Bound::Absolute(1e-4));
    let size = |layout: &Layout| compress_with(&by_rows, layout, &plan).expect("good").len();
    let rows = Layout::new(&[200, 300]);
    let columns = Layout { order: Order::Fortran, ..Layout::new(&[300, 200]) };
    assert_eq!(size(&columns), size(&rows));
    let not_rows = Layout { order: Order::Fortran, ..rows.clone() };
    assert!(size(&rows) < size(&not_rows));
}

/// An array of unknown length, in pieces.
/// A wave with a coast: the fill value stands in a tenth of it, in runs and alone.
fn with_fills<T: Float>(fill: f64) -> Vec<T> {
    let mut values: Vec<T> = data::smooth(3, 50_000);
    let fill = T::from_f64(fill);
    values[20_000..24_000].fill(fill);
    values[30_000..31_000].iter_mut().step_by(3).for_each(|x| *x = fill);
    (values[0], values[49_999]) = (fill, fill);
    values
}

fn fills<T: Float>() {
    let is_fill = |x: &T, fill| data::bytes(&[*x]) == data::bytes(&[T::from_f64(fill)]);
    for fill in [1e20, -9999.0, 0.0, f64::INFINITY] {
        let values = with_fills::<T>(fill);
        let others: Vec<T> = values.iter().filter(|x| !is_fill(x, fill)).copied().collect();
        let layout = Layout::line(values.len()).with_fill(fill);
        for plan in [
            Plan::auto(Bound::Relative(1e-3)),
            Plan::foldwire(Bound::Psnr(60.0)),
            Plan::foldwire(Bound::Absolute(1e-2)),
            Plan::lossless(),
        ] {
            let bytes = compress_with(&values, &layout, &plan).expect("a good plan");
            let bound = plan.bound.map_or(0.0, |bound| {
                bound.absolute(ValueRange::of(&others)).expect("a good bound")
            });
            let info = Info::read(&bytes).expect("a head");
            assert!(info.layout == layout && info.bound <= bound, "{info:?}, {bound}");
            let restored: Vec<T> = decompress(&bytes).expect("undamaged");
            for (x, y) in values.iter().zip(&restored) {
                assert!(is_fill(x, fill) == is_fill(y, fill), "{fill}, {plan:?}: {x:?}, {y:?}");
            }
            assert!(is_within(bound, &values, &restored), "{fill}, {plan:?}");
            if plan.bound.is_some() && T::BYTES >= 4 {
                assert!(3 * bytes.len() < T::BYTES * values.len(), "{fill}, {plan:?}");
            }
        }
    }
}

#[test]
fn fill_values_keep_their_bits_and_leave_the_range_to_the_others() {
    fills::<f32>();
    fills::<f64>();
    fills::<f16>();
    fills::<bf16>();
}

/// Values beside the fill value must not become missing, whether their segment has fill values or
/// not.
fn values_beside_a_fill<T: Float>() {
    let bits = |x: &T| data::bytes(&[*x]);
    let fills = [(0.0, 1.0), (-9999.0, 4e-8), (0.25, 1e-4)];
    for (fill, distance) in fills {
        let beside = [0.0, -distance, 0.4 * distance, distance].map(|by| T::from_f64(fill + by));
        let own = T::from_f64(fill);
        let far = (0..3000).map(|i| T::from_f64(fill + 10.0 + f64::from(i % 700) * 0.01));
        let mut values: Vec<T> = far.collect();
        values.splice(100..100, beside.iter().flat_map(|&x| [x; 40]));
        values.splice(900..900, [T::from_f64(-0.0); 5]);
        for has_fills in [true, false] {
            if !has_fills {
                values.retain(|x| bits(x) != bits(&own));
            }
            let layout = Layout::line(values.len()).with_fill(fill);
            for &codec in CodecId::OF_ARRAYS.iter().filter(|codec| codec.loss() == Loss::Bound) {
                for relative in [1.0, 3.0] {
                    let bound = Bound::Absolute(relative * distance.max(1e-3));
                    let plans = [Plan::auto(bound), Plan::foldwire(bound).with_codec(codec)];
                    for plan in plans.into_iter().filter(|_| codec.is_for(T::DTYPE)) {
                        let bytes = compress_with(&values, &layout, &plan).expect("a good plan");
                        let restored: Vec<T> = decompress(&bytes).expect("undamaged");
                        for (x, y) in values.iter().zip(&restored) {
                            let (is_fill, was_fill) =
                                (bits(y) == bits(&own), bits(x) == bits(&own));
                            assert!(is_fill == was_fill, "{fill}, {plan:?}: {x:?}, {y:?}");
                        }
                        assert!(is_within(relative * distance.max(1e-3), &values, &restored));
                    }
                }
            }
        }
    }
}

#[test]
fn values_beside_the_fill_value_do_not_become_missing() {
    values_beside_a_fill::<f32>();
    values_beside_a_fill::<f64>();
    values_beside_a_fill::<f16>();
    values_beside_a_fill::<bf16>();
}

/// Among the values is the NaN by which the encoder marks a fill value.
#[test]
fn values_that_look_like_marks_are_kept() {
    let mut values = with_fills::<f32>(-9999.0);
    values[7] = f32::from_bits(0x7fc0_003a);
    let layout = Layout::line(values.len()).with_fill(-9999.0);
    for values in [&values[..], &values[1..10_000]] {
        let layout = Layout { shape: vec![values.len() as u64], ..layout.clone() };
        let plan = Plan::foldwire(Bound::Absolute(1e-2));
        let bytes = compress_with(values, &layout, &plan).expect("a good plan");
        let restored: Vec<f32> = decompress(&bytes).expect("undamaged");
        assert!(is_within(1e-2, values, &restored));
    }
}

#[test]
fn fill_values_of_integers_change_nothing_and_truncating_codecs_refuse_them() {
    let values = [3_i32, -9999, 5];
    let layout = Layout::line(3).with_fill(-9999.0);
    let bytes = compress_with(&values, &layout, &Plan::lossless()).expect("a good plan");
    assert_eq!(Info::read(&bytes).expect("a head").layout.fill_value, None);
    assert_eq!(decompress::<i32>(&bytes), Ok(values.to_vec()));
    let truncating = Plan::raw().with_codec(CodecId::Truncate);
    let refused = compress_with(&[1.0_f32; 3], &layout, &truncating);
    assert_eq!(refused, Err(CompressError::Fill { codec: CodecId::Truncate }));
}

#[test]
fn a_stream_is_read_and_written_in_pieces() {
    let pieces = [vec![1.5f64; SEGMENT], data::smooth(6, SEGMENT), data::rough(7, 1000)];
    let plan = Plan::auto(Bound::Absolute(1e-3));
    let mut bytes = Vec::new();
    let mut encoder = Encoder::new(DType::F64, &Layout::stream(), &plan, None, &mut bytes).unwrap();
    let mut starts = vec![];
    for piece in &pieces {
        starts.push(bytes.len());
        encoder.encode(piece, &mut bytes);
    }
    starts.push(bytes.len());
    encoder.finish(&mut bytes).unwrap();
    let all = pieces.concat();
    assert!(is_within(1e-3, &all, &decompress(&bytes).unwrap()));
    assert_eq!(Info::read(&bytes).map(|info| info.layout), Ok(Layout::line(all.len())));
    let mut decoder = Decoder::new();
    assert_eq!(decoder.n_bytes(), 24);
    let (mut rest, mut n_values) = (&bytes[..], vec![]);
    while !decoder.is_finished() {
        assert!(decoder.n_bytes() <= 8 * SEGMENT);
        let payload = decoder.read(&mut rest).unwrap();
        n_values.extend(payload.map(|payload| payload.n_values()));
    }
    assert_eq!((n_values, rest), (vec![SEGMENT, SEGMENT, 1000], &[][..]));
    // A segment that is missing, repeated, or in another place.
    let part = |at: usize| &bytes[starts[at]..starts[at + 1]];
    let (head, end) = (&bytes[..starts[0]], &bytes[starts[3]..]);
    for parts in [[part(0), part(2), &[]], [part(0), part(0), part(2)], [part(1), part(0), part(2)]]
    {
        let changed = [head, &parts.concat(), end].concat();
        assert_eq!(decompress::<f64>(&changed), Err(DecompressError::Checksum));
    }
}

fn numbers_shrink<T: Element>(values: &[T], least: f64) {
    let bytes = by_plan(values, &Plan::lossless());
    let ratio = size_of_val(values) as f64 / bytes.len() as f64;
    assert!(ratio > least, "{:?}: {ratio:.2}", T::DTYPE);
    let back: Vec<T> = decompress(&bytes).expect("undamaged");
    assert!(data::bytes(&back) == data::bytes(values), "{:?}", T::DTYPE);
}

fn each<T>(numbers: &[f64], value: impl Fn(f64) -> T) -> Vec<T> {
    numbers.iter().map(|&k| value(k)).collect()
}

/// Integers, and floats of few decimal digits, are predicted as numbers. A codec of bits has ratios
/// of 1.3 to 1.7 here.
#[test]
fn exact_whole_numbers_and_decimals_take_the_bits_of_their_noise() {
    let noise = data::rough::<f64>(3, 50_000);
    let tenths = noise.iter().enumerate().map(|(i, x)| {
        let x = if x.is_finite() { x.abs().fract() } else { 0.5 };
        (2500.0 + 300.0 * (i as f64 * 1e-3).sin() + 8.0 * x).round()
    });
    let tenths: Vec<f64> = tenths.collect();
    numbers_shrink(&each(&tenths, |k| k as i16), 3.0);
    numbers_shrink(&each(&tenths, |k| k as u16), 3.0);
    numbers_shrink(&each(&tenths, |k| k as i32 - 2500), 6.0);
    numbers_shrink(&each(&tenths, |k| k as u64), 12.0);
    numbers_shrink(&each(&tenths, |k| (k / 10.0) as f32), 6.0);
    numbers_shrink(&each(&tenths, |k| k / 1000.0), 12.0);
    let mut holes = each(&tenths, |k| (k / 100.0) as f32);
    holes[100..200].fill(f32::NAN);
    holes[777] = f32::INFINITY;
    numbers_shrink(&holes, 5.5);
    // A value without a number: the segment is coded as before.
    holes[778] = -0.0;
    numbers_shrink(&holes, 1.0);
}

/// A bound that keeps all bits chooses among the same codecs as no bound.
#[test]
fn a_bound_that_keeps_all_bits_costs_no_more_than_none() {
    let hundredths: Vec<f32> = (0..50_000_u64).map(|i| (i * i % 977) as f32 / 100.0).collect();
    let exact = by_plan(&hundredths, &Plan::lossless());
    for bound in [Bound::Absolute(1e-40), Bound::Psnr(2000.0)] {
        let bytes = by_plan(&hundredths, &Plan::auto(bound));
        assert_eq!(bytes.len(), exact.len(), "{bound:?}");
        let back: Vec<f32> = decompress(&bytes).expect("undamaged");
        assert!(data::bytes(&back) == data::bytes(&hundredths), "{bound:?}");
    }
}
