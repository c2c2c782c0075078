//! The recorded bytes of the formats: frames with every kind of chunk and block, and a message.
//!
//! Ranks of different builds communicate. If a change of the library changes any of these bytes, it
//! is a new format. Then increase `VERSION` in `codec/fz_light.rs` or `frame.rs`, and keep reading
//! the old version or refuse it. docs/format.md explains every byte.
//!
//! The frames do not come from the library. An independent encoder in another language produced
//! them from the format's description. Only the checksums come from the library.

use foldwire::codec::{CodecExt, CodecId, FzLight, fz_light};
use foldwire::compress::{Layout, compress_with};
use foldwire::frame::{self, CallHeader, HEADER_BYTES, Header, MessageKind, StepQuantity};
use foldwire::kernel::Level;
use foldwire::layout::Division;
use foldwire::op::OpCode;
use foldwire::pipeline;
use foldwire::{Bound, Collective, DType, Float, Op, Plan, Quantum, Rank, bf16, decompress, f16};
use foldwire_tests::{coding, data};

fn from_hex(hex: &str) -> Vec<u8> {
    let digits: Vec<u32> = hex.chars().filter_map(|c| c.to_digit(16)).collect();
    digits.chunks(2).map(|pair| (pair[0] << 4 | pair[1]) as u8).collect()
}

fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Checks that `values` with bound 0.5 encode to `hex` (header, index and chunks) and 64 zero bytes
/// at every level. Decoding must give `decoded`, which was recorded with the bytes.
fn check<T: Float>(values: &[T], hex: &str, decoded: &[f64]) {
    let expected = [from_hex(hex), vec![0; 64]].concat();
    for level in Level::available() {
        let codec = FzLight::<T>::with_level(Quantum::new::<T>(0.5).expect("a bound"), 4, level);
        let bytes = coding::encode(&codec, values);
        assert!(bytes == expected, "{level} gives\n{}\nfor\n{hex}", to_hex(&bytes));
        let y: Vec<f64> =
            coding::decode(&codec, &expected, values.len()).iter().map(|y| y.to_f64()).collect();
        let same = y.iter().zip(decoded).all(|(y, x)| y.to_bits() == x.to_bits());
        assert!(same && y.len() == decoded.len(), "{level}: {y:?}");
    }
}

/// Step of the lattice for the bound 0.5: 2·0.5·(1 − 2⁻⁶).
const STEP: f64 = 0.984375;

fn floats<T: Float>(values: &[f64]) -> Vec<T> {
    values.iter().map(|&x| T::from_f64(x)).collect()
}

/// Multiples of the step.
fn codes(codes: impl IntoIterator<Item = i32>) -> Vec<f64> {
    codes.into_iter().map(|q| STEP * f64::from(q)).collect()
}

#[test]
fn the_versions_are_those_of_these_bytes() {
    assert_eq!((fz_light::VERSION, frame::VERSION), (2, 4));
}

#[test]
fn no_values() {
    check::<f32>(&[], "0201000001000000 000000000080ef3f 0000000000000000", &[]);
    check::<f64>(&[], "0202000001000000 000000000080ef3f 0000000000000000", &[]);
}

#[test]
fn a_constant_chunk() {
    check::<f32>(
        &[7.0; 100],
        "0201000001000000 000000000080ef3f 6400000000000000 \
         02000000 \
         0407",
        &[STEP * 7.0; 100],
    );
    check::<f64>(
        &[-300.0; 40],
        "0202000001000000 000000000080ef3f 2800000000000000 \
         03000000 \
         14cffe",
        &[STEP * -305.0; 40],
    );
}

#[test]
fn a_dense_chunk() {
    // Residuals 0, 1, −1, 1, −1, …: zig-zag 0, 2, 1, 2, 1, … of 2 bits.
    let x = codes((0..32).map(|i| 5 + i % 2));
    check::<f32>(
        &floats(&x),
        "0201000001000000 000000000080ef3f 2000000000000000 \
         0b000000 \
         0198999999999999990205",
        &x,
    );
    check::<f64>(
        &x,
        "0202000001000000 000000000080ef3f 2000000000000000 \
         0b000000 \
         0198999999999999990205",
        &x,
    );
}

#[test]
fn a_sparse_chunk_with_a_tail() {
    // Blocks 0 and 2 are constant, block 1 has a step of 1000, block 3 has eight values and ends
    // lower by 1.
    let x = codes((0..104).map(|i| {
        if i < 40 {
            0
        } else if i < 103 {
            1000
        } else {
            999
        }
    }));
    check::<f32>(
        &floats(&x),
        "0201000001000000 000000000080ef3f 6800000000000000 \
         35000000 \
         000000000000000000000000d0070000000000000000000000000000000000000000000000000000 \
         0000000000800000000b010a00",
        &x,
    );
    check::<f64>(
        &x,
        "0202000001000000 000000000080ef3f 6800000000000000 \
         35000000 \
         000000000000000000000000d0070000000000000000000000000000000000000000000000000000 \
         0000000000800000000b010a00",
        &x,
    );
}

#[test]
fn exceptions_and_a_tail() {
    // Block 0 has a fill value, block 1 codes, block 2 (two values) an exception and a code.
    let mut x = vec![1e30; 32];
    x.extend(codes(0..32));
    x.extend([f64::NAN, 0.25]);
    let mut y = x.clone();
    y[..32].fill(f64::from(1e30f32));
    y[65] = 0.0;
    check::<f32>(
        &floats(&x),
        "0201000001000000 000000000080ef3f 4200000000000000 \
         32000000 \
         03caf24971a8aaaaaaaaaaaaaa01000000013d000000000000000000000000000000000000000000 \
         00000000c07ffe028600",
        &y,
    );
    y[..32].fill(1e30);
    check::<f64>(
        &x,
        "0202000001000000 000000000080ef3f 4200000000000000 \
         3a000000 \
         03ea8ca039593e2946a8aaaaaaaaaaaaaa01000000013d0000000000000000000000000000000000 \
         000000000000000000000000f87ffe028600",
        &y,
    );
}

#[test]
fn exceptions_that_repeat_are_stored_once() {
    let nan = f64::NAN;
    // Blocks: NaNs; NaNs and codes; two fill values; one of them; that one and codes; different
    // exceptions and codes; two exceptions.
    let mut x = vec![nan; 32];
    x.extend((0..32).map(|i| if i % 5 == 2 { nan } else { STEP * f64::from(i % 3) }));
    x.extend((0..32).map(|i| if i < 3 { 1e30 } else { -1e30 }));
    x.extend([-1e30; 32]);
    x.extend((0..32).map(|i| if i < 30 { -1e30 } else { STEP * 7.0 }));
    x.extend((0..32).map(|i| [1e30, 3.0 * STEP, nan, nan][i % 4]));
    x.extend([nan, 1e30]);
    let mut y = x.clone();
    let fill = f64::from(1e30f32);
    y.iter_mut().filter(|y| y.abs() == 1e30).for_each(|y| *y = fill.copysign(*y));
    check::<f32>(
        &floats(&x),
        "0201000001000000 000000000080ef3f c200000000000000 \
         0a010000 \
         03841042080050a4715234451a274513caf24971caf24971caf24971caf249f1caf249f1caf249f1 \
         caf249f1caf249f1caf249f1caf249f1caf249f1caf249f1caf249f1caf249f1caf249f1caf249f1 \
         caf249f1caf249f1caf249f1caf249f1caf249f1caf249f1caf249f1caf249f1caf249f1caf249f1 \
         caf249f1caf249f1caf249f1caf249f1caf249f1caf249f1ffffff3f000cdddddddd17070000caf2 \
         49710000c07f0000c07fcaf249710000c07f0000c07fcaf249710000c07f0000c07fcaf249710000 \
         c07f0000c07fcaf249710000c07f0000c07fcaf249710000c07f0000c07fcaf249710000c07f0000 \
         c07fcaf249710000c07f0000c07fcaf24971fd83fffd8483ff00",
        &y,
    );
    check::<f64>(
        &x,
        "0202000001000000 000000000080ef3f c200000000000000 \
         ee010000 \
         03841042080050a4715234451a274513ea8ca039593e2946ea8ca039593e2946ea8ca039593e2946 \
         ea8ca039593e29c6ea8ca039593e29c6ea8ca039593e29c6ea8ca039593e29c6ea8ca039593e29c6 \
         ea8ca039593e29c6ea8ca039593e29c6ea8ca039593e29c6ea8ca039593e29c6ea8ca039593e29c6 \
         ea8ca039593e29c6ea8ca039593e29c6ea8ca039593e29c6ea8ca039593e29c6ea8ca039593e29c6 \
         ea8ca039593e29c6ea8ca039593e29c6ea8ca039593e29c6ea8ca039593e29c6ea8ca039593e29c6 \
         ea8ca039593e29c6ea8ca039593e29c6ea8ca039593e29c6ea8ca039593e29c6ea8ca039593e29c6 \
         ea8ca039593e29c6ea8ca039593e29c6ea8ca039593e29c6ea8ca039593e29c6ffffff3f000cdddd \
         dddd17070000ea8ca039593e2946000000000000f87f000000000000f87fea8ca039593e29460000 \
         00000000f87f000000000000f87fea8ca039593e2946000000000000f87f000000000000f87fea8c \
         a039593e2946000000000000f87f000000000000f87fea8ca039593e2946000000000000f87f0000 \
         00000000f87fea8ca039593e2946000000000000f87f000000000000f87fea8ca039593e29460000 \
         00000000f87f000000000000f87fea8ca039593e2946000000000000f87f000000000000f87fea8c \
         a039593e2946fd83fffd8483ff00",
        &x,
    );
}

/// Types of 16 bits have codes of 32 bits, and steps that are powers of two: here 1.
fn sixteen_bits<T: Float>([constant, mixed]: [&str; 2]) {
    check::<T>(&floats(&[7.0; 100]), constant, &[7.0; 100]);
    // A repeated infinity; points and values half way between them; values whose spacing exceeds
    // the step; an exception.
    let mut x = vec![f64::INFINITY; 32];
    x.extend((0..32).map(|i| 0.5 * f64::from(i)));
    x.extend((0..32).map(|i| 300.0 + 2.0 * f64::from(i % 3)));
    x.extend((0..32).map(|i| 2050.0 * f64::from(1 + i % 2)));
    x.extend([f64::NAN, 0.25]);
    let x = floats::<T>(&x);
    let mut y: Vec<f64> = x.iter().map(|x| x.to_f64()).collect();
    y[32..].iter_mut().for_each(|y| *y = y.round_ties_even());
    check(&x, mixed, &y);
}

#[test]
fn f16_and_bf16() {
    sixteen_bits::<f16>([
        "0203000001000000 000000000000f03f 6400000000000000 \
         02000000 \
         0407",
        "0203000001000000 000000000000f03f 8200000000000000 \
         ab000000 \
         03007ca0a0a0a0a0a0a0a0381240c0010410700001041c400001071040c0010410700001041c4000 \
         01071040c0010410700001a88d000e4002380009e00024800390000e4002380009e0002480039000 \
         0e4002380009e00024800390000e4002380009e00024800100000001072000000000000000000000 \
         00000000000000000000000000000000000000000000000000000000000000000000000000000000 \
         000000007efe020a0d8e00",
    ]);
    sixteen_bits::<bf16>([
        "0204000001000000 000000000000f03f 6400000000000000 \
         02000000 \
         0407",
        "0204000001000000 000000000000f03f 8200000000000000 \
         a7000000 \
         03807fa0a0a0a0a0a0a0a0381240c0010410700001041c400001071040c0010410700001041c4000 \
         01071040c0010410700001a40d00fe3f00f8ff00e0ff0380ff0f00fe3f00f8ff00e0ff0380ff0f00 \
         fe3f00f8ff00e0ff0380ff0f00fe3f00f8ff00e0ff03800100000001ff1f00000000000000000000 \
         000000000000000000000000000000000000000000000000000000000000000000000000000000c0 \
         7ffe020a0d8d00",
    ]);
}

#[test]
fn a_sum_of_two_operands() {
    let codec = FzLight::<f32>::new(Quantum::new::<f32>(0.5).expect("a bound"), 4);
    let x: Vec<f32> = floats(&codes((0..32).map(|i| 5 + i % 2)));
    let frame = coding::encode(&codec, &x);
    let expected = [
        from_hex(
            "0201000002000000 000000000080ef3f 2000000000000000 \
         0f000000 \
         01e0388ee3388ee3388ee3388e030a",
        ),
        vec![0; 64],
    ]
    .concat();
    let folded = coding::fold(&codec, &Op::Sum, &frame, &x).expect("head-room");
    assert_eq!(to_hex(&folded), to_hex(&expected));
    let combined = coding::combine(&codec, &Op::Sum, [&frame, &frame], 32).expect("head-room");
    assert_eq!(to_hex(&combined), to_hex(&expected));
    assert_eq!(codec.operands(&expected), Ok(2));
    let sum = coding::decode(&codec, &expected, 32);
    assert_eq!(data::bytes(&sum), data::bytes(&x.iter().map(|x| 2.0 * x).collect::<Vec<_>>()));
}

#[test]
fn chunks_end_where_the_index_says() {
    // Two chunks, the second of one value.
    let mut x = vec![0.0; 4096];
    x.push(STEP * 100_000.0);
    check::<f32>(
        &floats(&x),
        "0201000001000000 000000000080ef3f 0110000000000000 \
         0200000007000000 \
         040024a0860100",
        &x,
    );
    let codec = FzLight::<f64>::new(Quantum::new::<f64>(0.5).expect("a bound"), 4);
    let frame = coding::encode(&codec, &x);
    let mut last = [0.0];
    codec.decode_from(&frame, 4096, 1, &mut last).expect("valid");
    assert_eq!(last[0], x[4096]);
}

#[test]
fn a_message() {
    let header = Header {
        as_floats: false,
        kind: MessageKind::Data,
        call: CallHeader {
            context: 12,
            epoch: 0,
            sequence: 7,
            collective: Collective::AllReduce,
            dtype: DType::F32,
            op: OpCode::Sum,
            codec: CodecId::FzLight,
            division: Division::Interleaved,
            pipeline: pipeline::FUSED.code(),
            schedule: 4,
            lanes: 3,
            root: 0x0102,
            count: 0x0001_0203_0405,
            measure: StepQuantity::Lattice,
            step: STEP,
        },
        from: Rank(0x0a0b),
        part: 3,
        round: 2,
        n_values: 10,
        n_bytes: 4,
        operands: 6,
    };
    for (checksum, hex) in [
        (
            false,
            "46570400100c0101440a0000 07000000 0504030201000000 000000000080ef3f \
         0201000003000000020000000a0000000b0a0000 06000000 0000000000000000 01020304",
        ),
        (
            true,
            "46570400100c0101450a0000 07000000 0504030201000000 000000000080ef3f \
         0201000003000000020000000a0000000b0a0000 06000000 a0cad0963514f0b6 01020304",
        ),
    ] {
        let mut message = vec![0xAA; HEADER_BYTES];
        message.extend([1, 2, 3, 4]);
        header.emit(&mut message, checksum);
        assert_eq!(to_hex(&message), to_hex(&from_hex(hex)));
        assert_eq!(Header::parse(&message, checksum), Ok(header));
    }
    let mut message = [0xAA; HEADER_BYTES];
    let notice = Header { kind: MessageKind::Abort, n_bytes: 0, operands: 0, ..header };
    notice.emit(&mut message, true);
    assert_eq!(
        to_hex(&message),
        to_hex(&from_hex(
            "46570401100c0101450a0000 07000000 0504030201000000 000000000080ef3f \
         0201000003000000020000000a0000000b0a0000 00000000 40d001898f769e86"
        ))
    );
    let call = CallHeader { epoch: 0x0201, ..header.call };
    Header { call, ..notice }.emit(&mut message, false);
    assert_eq!(to_hex(&message[10..12]), "0102");
}

/// The message that docs/format.md shows byte by byte.
#[test]
fn the_example_of_the_documentation() {
    let mut x = vec![300.0f32; 32];
    x.extend((0..32).map(|i| 300.0 + (i % 3) as f32));
    x.extend([1e30; 32]);
    x.extend([299.0, f32::NAN, 298.0, f32::NAN]);
    let codec = FzLight::<f32>::new(Quantum::new::<f32>(32.0 / 63.0).expect("a bound"), 1);
    let payload = coding::encode(&codec, &x);
    let call = CallHeader {
        context: 0,
        epoch: 0,
        sequence: 1,
        collective: Collective::AllReduce,
        dtype: DType::F32,
        op: OpCode::Sum,
        codec: CodecId::FzLight,
        division: Division::Interleaved,
        pipeline: pipeline::FUSED.code(),
        schedule: 0,
        lanes: 4,
        root: 0,
        count: 100,
        measure: StepQuantity::Lattice,
        step: 1.0,
    };
    let n_bytes = payload.len() as u32;
    let header = Header {
        as_floats: false,
        kind: MessageKind::Data,
        call,
        from: Rank(1),
        part: 0,
        round: 0,
        n_values: 100,
        n_bytes,
        operands: 1,
    };
    let mut message = [vec![0; HEADER_BYTES], payload].concat();
    header.emit(&mut message, true);
    let expected = [
        from_hex(
            "4657040010000101070a0000 01000000 6400000000000000 000000000000f03f \
             00000000 00000000 00000000 64000000 01000000 01000000 e765a9239dbba97c \
             0201000001000000 000000000000f03f 6400000000000000 24000000 12 e8baaeebbaaeebba \
             caf24971 0a000000 01 0700000000000000 0000c07f 02fe82 0e 2c01",
        ),
        vec![0; 64],
    ]
    .concat();
    assert_eq!(to_hex(&message), to_hex(&expected));
}

/// The compressed array that docs/format.md shows byte by byte.
#[test]
fn the_compressed_array_of_the_documentation() {
    let values = [300.0f32; 100];
    let expected = [
        from_hex(
            "46575a3103010001 000000000000f03f 100441100441e03f 6400000000000000 8e70d97f7f2bce66 \
             64000000 5f000000 0100000000000000 c7c49b4873f50e21 \
             0201000001000000 000000000000f03f 6400000000000000 03000000 14 2c01",
        ),
        vec![0; 64],
        from_hex("0000000000000000 0000000000000000 673d0f95bbf8e93a"),
    ]
    .concat();
    let plan = Plan::foldwire(Bound::Absolute(32.0 / 63.0));
    let bytes = compress_with(&values, &Layout::line(100), &plan).expect("positive");
    assert_eq!(to_hex(&bytes), to_hex(&expected));
    assert_eq!(decompress(&expected), Ok(values.to_vec()));
    assert_eq!(foldwire::compress::VERSION, 3);
}

/// Payloads of codec interp, in two dimensions with values off the lattice, and in one. They were
/// recorded, not made by another encoder.
#[test]
fn payloads_of_interp() {
    let wave = |i: i32| ((i % 20 - 9) * (i % 20 - 9) * 3 + i / 20 * 7) as f64;
    let mut smooth: Vec<f32> = (0..300).map(|i| wave(i) as f32 * 0.25).collect();
    (smooth[33], smooth[34], smooth[250]) = (f32::NAN, f32::NAN, 1e30);
    let rough: Vec<f64> = (0..60).map(|i| f64::from(i * i * 7919 % 101)).collect();
    let plan = |bound| Plan::foldwire(Bound::Absolute(bound)).with_codec(CodecId::Interp);
    let smooth = compress_with(&smooth, &Layout::new(&[15, 20]), &plan(0.5)).expect("positive");
    let rough = compress_with(&rough, &Layout::line(60), &plan(2.0)).expect("positive");
    // Without the heads of the arrays.
    assert_eq!([to_hex(&smooth[48..]), to_hex(&rough[40..])], [SMOOTH, ROUGH]);
}

const SMOOTH: &str = "\
    2c010000890000001100000000000000a51510f03d26fb4b02011a09a6a5a5a5a5a5ad3f2c0100000f000000\
    140000003f0000000400000002000000433841100808f8df0802e0fffff9ff7fffff3f0504fe7fff7f1602fe\
    7ffc7f0000fcff3f540400000000f8ffdffffff9ffe7ff1fffffbba5050000000000006ac97b01caf2497100\
    00c07f89bd170088a0b70a7faa9a013c316510cb1c565944ff6cb66ce1000000000000000000000000000000\
    0086b8fca49119c01d\
";
const ROUGH: &str = "\
    3c000000900000001100000000000000dc620583ce212ce502020102a6a5a5a5a5a5cd3f3c00000001000000\
    3c0000004e0000000200000000000000411004230680ffffd7ffff01e0fffff5ff7fffff8fffff03fcff3ffe\
    ffcfffff1a39000000ffff3ffeff3f00ffffebffbfffff25b2c1ffff3bfeff030000feffdfffffc7fffffaff\
    efffff212000bc1b14ef25007f100c005ca5a92272ec32000deeda06007440ebc05cc04d0000000000000000\
    0000000000000000ecb4636f209bdaad\
";

/// Payloads of codec interp that are long enough for 16 and 32 states. In place of their bytes, the
/// number of bytes and the last checksum are recorded, in which all bytes before it count. The
/// payload's fourth byte names the states in its two highest bits.
#[test]
fn payloads_of_interp_with_more_states() {
    let value = |i: u32| {
        (i.wrapping_mul(i).wrapping_mul(0x9e37_79b9) >> 28) as f32 + (i % 200 + i / 200) as f32
    };
    let plan = Plan::foldwire(Bound::Absolute(0.5)).with_codec(CodecId::Interp);
    let recorded = [(150, 1, 11789, "1ac5fd9eb7aedd71"), (500, 2, 38057, "23c759445718cd77")];
    for (n_rows, states, n_bytes, checksum) in recorded {
        let values: Vec<f32> = (0..n_rows * 200).map(value).collect();
        let layout = Layout::new(&[n_rows as usize, 200]);
        let bytes = compress_with(&values, &layout, &plan).expect("positive");
        // The head of the array, and that of the segment.
        let payload = &bytes[48 + 24..];
        assert_eq!((payload[3] >> 6, &payload[..2]), (states, &[2, 1][..]));
        let sum = to_hex(&bytes[bytes.len() - 8..]);
        assert_eq!((bytes.len(), &sum[..]), (n_bytes, checksum));
        let restored: Vec<f32> = decompress(&bytes).expect("undamaged");
        assert!(values.iter().zip(restored).all(|(x, y)| (x - y).abs() <= 0.5));
    }
}

/// The codes of enumerations in messages.
#[test]
fn codes_of_types_operations_codecs_and_collectives() {
    assert_eq!(DType::FLOATS.map(|x| x as u8), [1, 2, 3, 4]);
    assert_eq!(DType::FLOATS.map(DType::name), ["f32", "f64", "f16", "bf16"]);
    let integers = DType::ALL[4..].iter().map(|dtype| (*dtype as u8, dtype.name()));
    let names = ["i8", "u8", "i16", "u16", "i32", "u32", "i64", "u64"];
    assert!(integers.eq((5..).zip(names)));
    let ops = [OpCode::None, OpCode::Sum, OpCode::Avg, OpCode::Min, OpCode::Max, OpCode::Prod];
    assert_eq!(ops.map(|x| x as u8), [0, 1, 2, 3, 4, 5]);
    assert_eq!([OpCode::User, OpCode::BitAnd, OpCode::LogicalXor].map(|x| x as u8), [6, 7, 12]);
    assert_eq!([CodecId::Raw, CodecId::FzLight].map(|x| x as u8), [0, 1]);
    assert_eq!([Division::Blocks, Division::Interleaved].map(|x| x as u8), [0, 1]);
    let kinds = [
        MessageKind::Data,
        MessageKind::Abort,
        MessageKind::View,
        MessageKind::Fence,
        MessageKind::Call,
    ];
    assert_eq!(kinds.map(|x| x as u8), [0, 1, 2, 3, 4]);
    let names = Collective::ALL.map(Collective::name);
    let of_one_block =
        ["all-reduce", "reduce-scatter", "all-gather", "broadcast", "scatter", "gather", "reduce"];
    assert_eq!(names[..7], of_one_block);
    assert_eq!(names[7..], ["all-to-all", "scan", "exclusive-scan"]);
}
