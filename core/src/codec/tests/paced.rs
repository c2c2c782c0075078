//! Tests of the progress reports of codecs.

use crate::bound::Quantum;
use crate::codec::chunked::{HEADER_BYTES, INDEX_ENTRY};
use crate::codec::{AnyCodec, CodecError, CodecExt, CodecId, CodecParams, Pace};
use crate::codec::{Source, Stores, Values};
use crate::kernel::CHUNK;
use crate::op::Op;
use crate::threads::Threads;
use std::cell::RefCell;
use std::vec;
use std::vec::Vec;

/// Five chunks, the last one short.
const N_VALUES: usize = 4 * CHUNK + 100;

/// Log of the reported numbers of values.
#[derive(Default)]
struct PaceLog(RefCell<Vec<usize>>);

impl Pace for PaceLog {
    fn passed(&self, n_values: usize) {
        self.0.borrow_mut().push(n_values);
    }
}

/// Codecs with chunked payloads, each for single operands and for operands of an average.
fn codecs() -> Vec<(CodecId, AnyCodec<f64>)> {
    let chunked = CodecId::ALL.iter().filter(|&&id| id != CodecId::Raw);
    let quantum = Quantum::new::<f64>(1e-3).unwrap();
    let params = CodecParams::new(quantum).for_sums_of(2).on(Threads::ONE);
    chunked
        .flat_map(|&id| {
            [params, params.for_averages_of(2)].map(|params| (id, id.instance(&params)))
        })
        .collect()
}

fn field(phase: f64) -> Vec<f64> {
    (0..N_VALUES).map(|i| (i as f64 * 1e-3 + phase).sin()).collect()
}

/// Returns a payload of these values.
fn payload(codec: &AnyCodec<f64>, values: &[f64]) -> Vec<u8> {
    let mut bytes = vec![0; codec.as_dyn().max_encoded_len(values.len()).unwrap()];
    let n_bytes = codec.as_dyn().encode(values, &mut bytes).unwrap().n_bytes;
    bytes.truncate(n_bytes);
    bytes
}

/// An operation that reads a payload. Returns the number of times that it reports all values.
type ReadOperation =
    fn(&AnyCodec<f64>, &[u8], &[f64], &mut [u8], &dyn Pace) -> Result<usize, CodecError>;

const READS: [(&str, ReadOperation); 7] = [
    ("store", |codec, src, _, _, pace| {
        codec.as_dyn().store(src, 1, &mut [0.0; N_VALUES], Stores::Cached, pace)?;
        Ok(1)
    }),
    ("store past caches", |codec, src, _, _, pace| {
        codec.as_dyn().store(src, 2, &mut [0.0; N_VALUES], Stores::PastCaches, pace)?;
        Ok(1)
    }),
    ("reduce", |codec, src, _, _, pace| {
        codec.as_dyn().reduce_paced(&Op::Sum, src, &mut [0.0; N_VALUES], pace)?;
        Ok(1)
    }),
    ("recode", |codec, src, _, dst, pace| {
        codec.as_dyn().recode_paced(src, N_VALUES, None, dst, pace)?;
        Ok(1)
    }),
    ("fold", |codec, src, own, dst, pace| {
        let own = Values::unstored(own);
        codec.as_dyn().fold_paced(&Op::Sum, src, own, 1, dst, pace)?;
        Ok(1)
    }),
    ("refold", |codec, src, own, dst, pace| {
        let own = Some((&Op::Prod, own));
        codec.as_dyn().recode_paced(src, N_VALUES, own, dst, pace)?;
        Ok(1)
    }),
    ("fold-store", |codec, src, own, dst, pace| {
        let values = Values::Apart { local: own, output: &mut [0.0; N_VALUES] };
        codec.as_dyn().fold_paced(&Op::Sum, src, values, 1, dst, pace)?;
        // Codecs that add floats decode the folded frame again.
        Ok(if codec.as_dyn().homomorphic().is_some() { 1 } else { 2 })
    }),
];

#[test]
fn all_values_are_reported_chunk_by_chunk() {
    let (x, y) = (field(0.0), field(1.0));
    for (id, codec) in codecs() {
        let mut dst = vec![0; codec.as_dyn().max_encoded_len(N_VALUES).unwrap()];
        let check = |what: &str, reported: PaceLog, n_passes: usize| {
            let reported = reported.0.into_inner();
            assert!(reported.iter().all(|&n_values| n_values <= CHUNK), "{what}, {}", id.name());
            let all = reported.iter().sum::<usize>();
            assert_eq!(all, n_passes * N_VALUES, "{what}, {}", id.name());
        };
        let reported = PaceLog::default();
        codec.as_dyn().encode_paced(Source::Input(&x), &mut dst, &reported).unwrap();
        check("encode", reported, 1);
        let reported = PaceLog::default();
        codec.as_dyn().encode_paced(Source::Partial(&x), &mut dst, &reported).unwrap();
        check("encode partial", reported, 1);
        let src = payload(&codec, &x);
        for (what, read) in READS {
            let reported = PaceLog::default();
            let n_passes = read(&codec, &src, &y, &mut dst, &reported).unwrap();
            check(what, reported, n_passes);
        }
        for op in [Op::Sum, Op::Max, Op::Prod] {
            let Some(homomorphic) = codec.as_dyn().homomorphic() else { continue };
            let reported = PaceLog::default();
            let b = payload(&codec, &y);
            homomorphic.combine_paced(&op, &src, &b, &mut dst, &reported).unwrap();
            check("combine", reported, 1);
        }
    }
}

/// A codec finds a damaged chunk only when it reads the chunk. If it reports the earlier chunks and
/// then fails, it must have sent these reports while it worked.
#[test]
fn reported_values_are_done_and_later_ones_are_not() {
    let (x, y) = (field(0.0), field(1.0));
    for (id, codec) in codecs() {
        let mut dst = vec![0; codec.as_dyn().max_encoded_len(N_VALUES).unwrap()];
        for n_sound in 0..4 {
            let mut src = payload(&codec, &x);
            // The chunk ends before it begins, or beyond the payload.
            let at = HEADER_BYTES + INDEX_ENTRY * n_sound;
            let end = if n_sound == 0 { [0xff; INDEX_ENTRY] } else { [0; INDEX_ENTRY] };
            src[at..at + INDEX_ENTRY].copy_from_slice(&end);
            for (what, read) in READS {
                let reported = PaceLog::default();
                let done = read(&codec, &src, &y, &mut dst, &reported);
                assert!(done.is_err(), "{what}, {}", id.name());
                let reported = reported.0.into_inner().iter().sum::<usize>();
                assert_eq!(reported, n_sound * CHUNK, "{what}, {}", id.name());
            }
        }
    }
}
