//! Damaged bytes never cause a panic or a hang. With a checksum, they never become a result.
//!
//! The messages are damaged by a transport. The codec reads every prefix of valid frames, and 10⁵
//! random mutations of them, with every reading function. All seeds are fixed.

use foldwire::codec::{Codec, CodecExt, FzLight, Values};
use foldwire::frame::{CallHeader, HEADER_BYTES, Header, MessageKind, StepQuantity};
use foldwire::kernel::Level;
use foldwire::layout::Division;
use foldwire::op::OpCode;
use foldwire::pipeline;
use foldwire::schedule::{Pairwise, RecursiveDoubling, Ring, Schedule};
use foldwire::transport::{Transport, TransportErrorKind};
use foldwire::{
    Bound, Collective, Communicator, Config, DType, Error, Float, Op, Plan, Quantum, Rank, bf16,
    f16,
};
use foldwire_tests::data::Random;
use foldwire_tests::tamper::{FrameDamage, tamper};
use foldwire_tests::{coding, data};
use foldwire_threads::World;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Damage that a test does to messages.
#[derive(Clone, Copy, Debug, PartialEq)]
enum DamageKind {
    Flip,
    Truncate,
    Extend,
    Zero,
    Garbage,
    TooLong,
}

const KINDS: [DamageKind; 6] = [
    DamageKind::Flip,
    DamageKind::Truncate,
    DamageKind::Extend,
    DamageKind::Zero,
    DamageKind::Garbage,
    DamageKind::TooLong,
];

/// Damages about one message in `every`, and counts the damaged ones.
fn harm(kind: DamageKind, every: u64, seed: u64, count: Arc<AtomicUsize>) -> FrameDamage {
    let mut random = Random(seed);
    Box::new(move |frame, n_bytes| {
        let room = frame.len() - n_bytes;
        if !random.bits().is_multiple_of(every) || (kind == DamageKind::Extend && room == 0) {
            return n_bytes;
        }
        count.fetch_add(1, Ordering::Relaxed);
        let at = random.bits() as usize % n_bytes;
        match kind {
            DamageKind::Flip => frame[at] ^= 1 << (random.bits() % 8),
            DamageKind::Truncate => return at,
            DamageKind::Extend => return n_bytes + 1 + at % room,
            DamageKind::Zero => frame[..n_bytes].fill(0),
            DamageKind::Garbage => {
                // Damage the payload only, which the codec must detect.
                let from = HEADER_BYTES.min(n_bytes);
                frame[from..n_bytes].iter_mut().for_each(|byte| *byte = random.bits() as u8);
                frame[0] ^= u8::from(from == n_bytes);
            }
            DamageKind::TooLong => return frame.len() + 1 + at,
        }
        n_bytes
    })
}

type DamageOutcome = (Result<Vec<u8>, Error>, usize);

fn all_reduce<T: Float>(
    size: usize,
    count: usize,
    plan: &Plan,
    checksum: bool,
    kind: Option<DamageKind>,
    seed: u64,
) -> Vec<DamageOutcome> {
    let outcomes = World::new(size).frame_bytes(8_000).try_run_endpoints(|endpoint| {
        let harmed = Arc::new(AtomicUsize::new(0));
        let rank = endpoint.rank().index();
        let harm: FrameDamage = match kind {
            Some(kind) => harm(kind, 6, seed + rank as u64, Arc::clone(&harmed)),
            None => Box::new(|_, n_bytes| n_bytes),
        };
        // With a checksum, all damage is detected at once. Without one, a rank may wait for a lost
        // frame.
        let timeout = Duration::from_millis(if checksum { 10_000 } else { 300 });
        let config = Config::default().with_timeout(timeout).with_checksum(checksum);
        let transport = tamper(endpoint, harm);
        let mut comm = Communicator::with_config(transport, config).expect("large frames");
        let mut values: Vec<T> = data::rough(rank, count);
        let result = comm.all_reduce(&mut values, Op::Sum, plan);
        assert_eq!(values.len(), count);
        (result.map(|_| data::bytes(&values)), harmed.load(Ordering::Relaxed))
    });
    outcomes.into_iter().map(|outcome| outcome.expect("no rank panics")).collect()
}

fn plans() -> impl Iterator<Item = Plan> {
    let schedules: [&'static dyn Schedule; 3] = [&Ring, &RecursiveDoubling, &Pairwise];
    schedules.into_iter().flat_map(|schedule| {
        let compressed =
            pipeline::ALL.map(|pipeline| Plan::raw().compressed(pipeline, Bound::Absolute(1e-3)));
        [Plan::raw()].into_iter().chain(compressed).map(|plan| plan.with_schedule(schedule))
    })
}

fn a_checksum_finds_all_harm<T: Float>(seeds: Range<u64>) {
    for plan in plans() {
        let undamaged = all_reduce::<T>(3, 12_000, &plan, true, None, 0);
        for kind in KINDS {
            for seed in seeds.clone() {
                let outcomes = all_reduce::<T>(3, 12_000, &plan, true, Some(kind), 100 * seed);
                for ((result, harmed), (right, _)) in outcomes.iter().zip(&undamaged) {
                    let context = || format!("{plan:?}, {kind:?}: {:?}", result.as_ref().err());
                    match result {
                        Ok(bytes) => {
                            assert!(*harmed == 0 && Ok(bytes) == right.as_ref(), "{}", context());
                        }
                        // A length beyond the frame is an error of the transport, not damage.
                        Err(Error::Transport { kind: TransportErrorKind::Misuse, .. }) => {
                            assert!(kind == DamageKind::TooLong, "{}", context());
                        }
                        Err(Error::Frame { .. }) => assert!(*harmed > 0, "{}", context()),
                        Err(Error::Aborted { .. } | Error::Transport { .. }) => {
                            // A rank that received a damaged frame reports a frame error. Only an
                            // abort notice with a wrong length may still abort the call.
                            assert!(*harmed == 0 || kind == DamageKind::TooLong, "{}", context());
                        }
                        Err(_) => panic!("{}", context()),
                    }
                }
            }
        }
    }
}

#[test]
fn with_a_checksum_harm_is_always_a_frame_error_and_never_a_wrong_value() {
    a_checksum_finds_all_harm::<f32>(0..2);
    a_checksum_finds_all_harm::<f64>(0..2);
    a_checksum_finds_all_harm::<f16>(0..2);
}

fn harm_without_checksum_is_survived<T: Float>(seeds: Range<u64>) {
    for plan in plans() {
        for kind in KINDS {
            for seed in seeds.clone() {
                let outcomes = all_reduce::<T>(3, 12_000, &plan, false, Some(kind), 77 * seed);
                for (result, harmed) in outcomes {
                    // A wrong length is detected even without a checksum.
                    let lengths = [
                        DamageKind::Truncate,
                        DamageKind::Extend,
                        DamageKind::TooLong,
                        DamageKind::Zero,
                    ];
                    let noticed = harmed > 0 && lengths.contains(&kind);
                    assert!(!noticed || result.is_err(), "{plan:?}, {kind:?}");
                }
            }
        }
    }
}

#[test]
fn without_a_checksum_harm_gives_a_result_of_the_right_length_or_a_typed_error() {
    harm_without_checksum_is_survived::<f32>(0..2);
    harm_without_checksum_is_survived::<f64>(0..2);
    harm_without_checksum_is_survived::<f16>(0..2);
}

const N_OPERANDS: u32 = 4;

fn codec<T: Float>(level: Level) -> FzLight<T> {
    FzLight::with_level(Quantum::new::<T>(1e-3).expect("a bound"), N_OPERANDS, level)
}

/// Returns frames with every kind of chunk and block, small enough for many mutations, and their
/// values.
fn frames<T: Float>() -> Vec<(Vec<u8>, Vec<T>)> {
    let of = |n: usize, f: &dyn Fn(usize) -> f64| -> Vec<T> {
        (0..n).map(|i| T::from_f64(f(i))).collect()
    };
    let noise = |i: usize| (Random(i as u64).bits() % 2000) as f64 * 1e-3;
    let mut special = of(150, &noise);
    special[3] = T::from_f64(f64::NAN);
    special[40..70].fill(T::from_f64(1e30));
    special[149] = T::from_f64(f64::NEG_INFINITY);
    let inputs = [
        of(0, &noise),
        of(1, &noise),
        of(31, &noise),
        of(64, &noise),                                                    // dense
        of(200, &|i| if (64..128).contains(&i) { noise(i) } else { 2.0 }), // sparse
        of(100, &|_| 7.0),                                                 // constant
        of(70, &|_| 9.96921e36),                                           // repeats only
        of(75, &|i| [f64::NAN, 1e30, noise(i), noise(i)][Random(i as u64).bits() as usize % 4]),
        special,
        data::smooth(3, 4096 + 50), // two chunks
        data::rough(5, 2 * 4096 + 1),
    ];
    let codec = codec::<T>(Level::best());
    inputs.into_iter().map(|x| (coding::encode(&codec, &x), x)).collect()
}

fn every_prefix_is_refused<T: Float>() {
    for level in Level::available() {
        let codec = codec::<T>(level);
        for (frame, values) in frames::<T>() {
            let mut decoded = values.clone();
            let mut dst = vec![0; codec.max_encoded_len(values.len()).expect("short")];
            for n_bytes in 0..frame.len() {
                // Use memory of exactly that length, so that a sanitizer detects reads past its
                // end.
                let prefix = frame[..n_bytes].to_vec();
                assert!(codec.n_values(&prefix).is_err(), "{n_bytes} of {}", frame.len());
                assert!(codec.decode(&prefix, 1, &mut decoded).is_err());
                assert!(codec.fold(&Op::Sum, &prefix, &values, &mut dst).is_err());
                let in_place = Values::InPlace(&mut decoded);
                assert!(codec.fold_store(&Op::Sum, &prefix, in_place, 1, &mut dst).is_err());
                let both = [&prefix[..], &frame[..]];
                assert!(coding::combine(&codec, &Op::Max, both, values.len()).is_err());
                let both = [&frame[..], &prefix[..]];
                assert!(coding::combine(&codec, &Op::Sum, both, values.len()).is_err());
            }
        }
    }
}

#[test]
fn every_prefix_of_a_frame_is_refused() {
    every_prefix_is_refused::<f32>();
    every_prefix_is_refused::<f64>();
    every_prefix_is_refused::<f16>();
    every_prefix_is_refused::<bf16>();
}

/// Makes one to four random changes.
fn mutate(random: &mut Random, frame: &mut Vec<u8>, other: &[u8]) {
    for _ in 0..1 + random.bits() % 4 {
        let choice = random.bits() % 12;
        let (a, b) = (random.bits() as usize, random.bits() as usize);
        if frame.is_empty() {
            frame.extend_from_slice(other);
        }
        let n = frame.len();
        match choice {
            0..4 => frame[a % n] ^= 1 << (b % 8),
            4 => frame[a % n] = b as u8,
            5 => frame[a % n] = [0, 1, 0x7f, 0x80, 0xa0, 0xfd, 0xfe, 0xff][b % 8],
            // In the header and the index, which hold lengths.
            6 | 7 => frame[a % n.min(36)] = b as u8,
            // In the last chunk's trailer, before the padding: first code, bitmap, widths.
            8 => frame[n.saturating_sub(33 + a % 24).min(n - 1)] ^= b as u8,
            9 => frame.truncate(n - a % n.min(40)),
            10 => frame.resize(n + a % 40, b as u8),
            _ => {
                let at = a % n.min(other.len()).max(1);
                let len = b % 40.min(n - at).max(1);
                let end = (at + len).min(other.len());
                if at < end {
                    frame[at..end].copy_from_slice(&other[at..end]);
                }
            }
        }
    }
}

fn mutations_are_survived<T: Float>(seed: u64, n: usize) {
    let levels: Vec<Level> = Level::available().collect();
    let frames = frames::<T>();
    let mut random = Random(seed);
    let (mut n_refused, mut n_decoded) = (0, 0);
    for i in 0..n {
        // Use the long frames, which are slow, less often.
        let pick = random.bits() as usize;
        let pick =
            if i % 16 == 0 { frames.len() - 1 - pick % 2 } else { pick % (frames.len() - 2) };
        let (valid, values) = &frames[pick];
        let mut frame = valid.clone();
        let other = &frames[random.bits() as usize % frames.len()].0;
        mutate(&mut random, &mut frame, other);
        let codec = codec::<T>(levels[i % levels.len()]);
        let op = [Op::Sum, Op::Min, Op::Max, Op::Prod][i / levels.len() % 4];
        let n = values.len();
        // Never allocate by a received number of values without a limit.
        let claimed = codec.n_values(&frame).ok().filter(|&claimed| claimed <= 20_000);
        for n in [Some(n), claimed].into_iter().flatten() {
            let mut decoded = vec![T::from_f64(0.0); n];
            match codec.decode(&frame, 1 + i as u32 % 3, &mut decoded) {
                Ok(()) => n_decoded += 1,
                Err(_) => n_refused += 1,
            }
            if n > 4096 {
                let _ = codec.decode_from(&frame, 4096, 1, &mut decoded[..n - 4096]);
            }
        }
        let folded = coding::fold(&codec, &op, &frame, values);
        let stored = coding::fold_store(&codec, &op, &frame, values);
        assert_eq!(folded.is_ok(), stored.is_ok());
        if let (Ok(folded), Ok((frame, output))) = (&folded, &stored) {
            // Encoding a mutated frame again may give other bytes, but never other values.
            for frame in [folded, frame] {
                let decoded = coding::decode(&codec, frame, n);
                assert_eq!(data::bits(&decoded), data::bits(output));
            }
        }
        let written = [
            folded,
            coding::combine(&codec, &op, [&frame, valid], n),
            coding::combine(&codec, &op, [valid, &frame], n),
            coding::combine(&codec, &op, [&frame, &frame], n),
        ];
        for result in written.into_iter().flatten() {
            // The output for an accepted frame is a valid frame.
            let n = codec.n_values(&result).expect("what is written can be read");
            coding::decode(&codec, &result, n);
        }
    }
    assert!(n_refused > n / 10 && n_decoded > n / 10, "{n_refused} refused, {n_decoded} decoded");
}

#[test]
fn ten_thousand_mutations_of_frames_are_refused_or_decoded() {
    mutations_are_survived::<f32>(1, 10_000);
    mutations_are_survived::<f64>(2, 10_000);
}

mod long {
    use super::*;

    #[test]
    fn with_a_checksum_harm_is_a_frame_error_with_more_seeds() {
        a_checksum_finds_all_harm::<f32>(2..4);
        a_checksum_finds_all_harm::<f64>(2..4);
        a_checksum_finds_all_harm::<f16>(2..4);
    }

    #[test]
    fn without_a_checksum_harm_is_survived_with_more_seeds() {
        harm_without_checksum_is_survived::<f32>(2..6);
        harm_without_checksum_is_survived::<f64>(2..6);
        harm_without_checksum_is_survived::<f16>(2..6);
    }

    #[test]
    fn a_hundred_thousand_mutations_of_f32_frames_are_refused_or_decoded() {
        mutations_are_survived::<f32>(1, 100_000);
    }

    #[test]
    fn a_hundred_thousand_mutations_of_f64_frames_are_refused_or_decoded() {
        mutations_are_survived::<f64>(2, 100_000);
    }
}

#[test]
fn a_hundred_thousand_mutations_of_message_headers_are_refused_or_consistent() {
    let header = Header {
        as_floats: false,
        kind: MessageKind::Data,
        call: CallHeader {
            context: 0,
            epoch: 0,
            sequence: 3,
            collective: Collective::Reduce,
            dtype: DType::F64,
            op: OpCode::Avg,
            codec: foldwire::codec::CodecId::FzLight,
            division: Division::Interleaved,
            pipeline: 2,
            schedule: 3,
            lanes: 4,
            root: 2,
            count: 1000,
            measure: StepQuantity::Lattice,
            step: 1.25,
        },
        from: Rank(1),
        part: 1,
        round: 4,
        n_values: 17,
        n_bytes: 20,
        operands: 3,
    };
    let mut random = Random(9);
    let mut n_accepted = 0;
    for checksum in [false, true] {
        let mut valid = vec![0x5A; HEADER_BYTES + 20];
        header.emit(&mut valid, checksum);
        for _ in 0..50_000 {
            let mut message = valid.clone();
            mutate(&mut random, &mut message, &[0xff; HEADER_BYTES]);
            match Header::parse(&message, checksum) {
                Ok(parsed) if checksum => assert!(message == valid && parsed == header),
                Ok(parsed) => {
                    n_accepted += 1;
                    assert_eq!(parsed.n_bytes as usize + HEADER_BYTES, message.len());
                }
                Err(_) => assert!(message != valid),
            }
            let _ = Header::parse(&message, !checksum);
        }
    }
    assert!(n_accepted > 1000, "{n_accepted}");
}
