//! Short parts of a scatter or gather share messages: ⌈log₂ n⌉ messages at the root, and the same
//! results as part by part. An inconsistent bundle gives a typed error.

use crate::bundles::RootedCall::{Gather, Scatter};
use foldwire::bundle;
use foldwire::codec::DecodeError;
use foldwire::error::Field;
use foldwire::frame::{HEADER_BYTES, Header};
use foldwire::pipeline::{COMPRESS_ONCE, PER_HOP};
use foldwire::{
    Bound, Collective, Communicator, Config, DType, Error, Overlap, Plan, Preset, Rank, Report,
    layout::share,
};
use foldwire_tests::data;
use foldwire_tests::tamper::{FrameDamage, tamper};
use foldwire_threads::World;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

#[derive(Clone, Copy, Debug, PartialEq)]
enum RootedCall {
    Scatter,
    Gather,
}

/// Parameters of a call.
#[derive(Clone, Copy, Debug)]
struct RunCase {
    kind: RootedCall,
    size: usize,
    root: usize,
    count: usize,
    plan: Plan,
    frame_bytes: usize,
}

impl RunCase {
    /// All values, which the root scatters or gathers.
    fn whole(&self) -> Vec<f32> {
        data::smooth(7, self.count)
    }

    fn call<X: foldwire::Transport>(
        &self,
        comm: &mut Communicator<X>,
        whole: &[f32],
    ) -> Result<(Vec<f32>, Report), Error> {
        let Self { kind, size, root, count, ref plan, .. } = *self;
        let rank = comm.rank().index();
        let (share, root) = (share(count, size, rank), Rank::new(root));
        let is_root = rank == root.index();
        let (send, n_recv) = match kind {
            Scatter => (if is_root { whole.to_vec() } else { vec![] }, share.len()),
            Gather => (whole[share].to_vec(), if is_root { count } else { 0 }),
        };
        let mut recv = vec![0.0; n_recv];
        let report = match kind {
            Scatter => comm.scatter(count, &send, &mut recv, root, plan)?,
            Gather => comm.gather(count, &send, &mut recv, root, plan)?,
        };
        Ok((recv, report))
    }

    /// Runs the call. Returns each rank's result and report.
    fn run(&self) -> Vec<(Vec<f32>, Report)> {
        let whole = self.whole();
        let world = World::new(self.size).frame_bytes(self.frame_bytes);
        world.run(|mut comm| self.call(&mut comm, &whole).expect("the call"))
    }

    /// Runs the call. Returns each rank's number of messages.
    fn n_messages(&self) -> Vec<u64> {
        self.run().iter().map(|(_, report)| report.n_messages).collect()
    }
}

fn plans() -> [Plan; 4] {
    let bound = Bound::Absolute(1e-3);
    [
        Plan::raw(),
        Plan::foldwire(bound),
        Plan::raw().compressed(PER_HOP, bound),
        Plan::raw().compressed(COMPRESS_ONCE, bound),
    ]
}

fn ceil_log2(n: usize) -> u64 {
    u64::from(n.next_power_of_two().ilog2())
}

#[test]
fn the_root_has_as_many_messages_as_the_tree_has_levels() {
    for size in 1..=17 {
        for root in 0..size {
            let plan = plans()[(size + root) % 4];
            for count in [0, size - 1, 10 * size + 1, 1000] {
                let case =
                    RunCase { kind: Scatter, size, root, count, plan, frame_bytes: 256 << 10 };
                let n_messages = case.n_messages();
                assert_eq!(n_messages[root], ceil_log2(size), "{case:?}");
                assert_eq!(n_messages.iter().sum::<u64>(), size as u64 - 1, "{case:?}");
                // Every rank but the root sends once, to its parent.
                let n_messages = RunCase { kind: Gather, ..case }.n_messages();
                let sends = |rank| u64::from(rank != root);
                assert!((0..size).all(|rank| n_messages[rank] == sends(rank)), "{case:?}");
            }
        }
    }
}

/// Work message by message packs long parts too, and gives the same bits. Plans that compress once
/// divide what the root encoded first; the others encode each message.
#[test]
fn published_systems_pack_parts_of_any_length() {
    let bound = Bound::Absolute(1e-3);
    let plans = [Preset::RawRing, Preset::Cprp2p, Preset::Zccl, Preset::Hzccl, Preset::Gzccl];
    for (i, size) in [1, 2, 3, 5, 8, 13].into_iter().enumerate() {
        for preset in plans {
            for kind in [Scatter, Gather] {
                let collective =
                    if kind == Scatter { Collective::Scatter } else { Collective::Gather };
                let plan = preset.plan(collective, bound);
                let (root, count) = (i * 5 % size, 10_000 * size + 11);
                let payload = plan.max_payload_bytes(DType::F32, 10_011).expect("a short part");
                let payload = bundle::room(size, payload).expect("a short array");
                let frame_bytes = HEADER_BYTES + payload;
                let case = RunCase { kind, size, root, count, plan, frame_bytes };
                let alone = case.run();
                let of_all: u64 = alone.iter().map(|(_, report)| report.n_messages).sum();
                assert_eq!(of_all, size as u64 - 1, "{case:?}");
                let of_root = if kind == Scatter { ceil_log2(size) } else { 0 };
                assert_eq!(alone[root].1.n_messages, of_root, "{case:?}");
                let mut overlapping = plan;
                overlapping.overlap = Overlap::Segments;
                let apart = RunCase { plan: overlapping, frame_bytes: 20_000, ..case }.run();
                for ((x, _), (y, _)) in alone.iter().zip(&apart) {
                    assert_eq!(data::bytes(x), data::bytes(y), "{case:?}");
                }
            }
        }
    }
}

#[test]
fn a_message_carries_as_many_parts_as_fit_a_frame() {
    // Parts of 100 values are 448 bytes in the worst case, padded.
    let case = |kind, frame_bytes| RunCase {
        kind,
        size: 16,
        root: 3,
        count: 1600,
        plan: Plan::raw(),
        frame_bytes,
    };
    for (max_run, blocks) in [(1, 16), (2, 8), (4, 4), (8, 2)] {
        let frame_bytes = (HEADER_BYTES + max_run * (448 + 4) + 4).max(1024);
        if (frame_bytes - HEADER_BYTES) / 452 >= 2 * max_run {
            // The smallest frame has space for more parts.
            continue;
        }
        let of_root = blocks - 1 + ceil_log2(max_run);
        assert_eq!(case(Scatter, frame_bytes).n_messages()[3], of_root, "{max_run} parts");
        let of_all = case(Gather, frame_bytes).n_messages().iter().sum::<u64>();
        let passed: u64 = (0..blocks).map(|block| u64::from(block.count_ones())).sum();
        assert_eq!(of_all, passed + 16 - blocks, "{max_run} parts");
    }
}

#[test]
fn results_do_not_depend_on_how_many_parts_a_message_carries() {
    for (i, size) in [2, 3, 5, 7, 8, 13, 16].into_iter().enumerate() {
        for kind in [Scatter, Gather] {
            for plan in plans() {
                for count in [size - 1, 40 * size + 3, 1500] {
                    let root = [0, size - 1, size / 2][i % 3];
                    let case = RunCase { kind, size, root, count, plan, frame_bytes: 256 << 10 };
                    let packed = case.run();
                    for frame_bytes in [1024, 1500, 2500, 5000] {
                        let other = RunCase { frame_bytes, ..case }.run();
                        for ((x, _), (y, _)) in packed.iter().zip(&other) {
                            assert_eq!(data::bytes(x), data::bytes(y), "{case:?}, {frame_bytes}");
                        }
                    }
                }
            }
        }
    }
}

/// Runs the call with changes to messages of several parts on their way to `victim`. Returns each
/// rank's result, and the number of changed messages.
fn tampered(
    case: &RunCase,
    victim: usize,
    change: impl Fn(&mut [u8], usize, usize) -> usize + Clone + Send + Sync + 'static,
) -> (Vec<Result<Vec<f32>, Error>>, usize) {
    let n_changed = Arc::new(AtomicUsize::new(0));
    let world = World::new(case.size).frame_bytes(case.frame_bytes);
    let outcomes = world.try_run_endpoints(|endpoint| {
        let is_victim = foldwire::Transport::rank(&endpoint).index() == victim;
        let (n_changed, change) = (Arc::clone(&n_changed), change.clone());
        let n_all = case.size;
        let harm: FrameDamage = Box::new(move |frame, n_bytes| {
            let payload = &frame[HEADER_BYTES..n_bytes];
            let n_parts = bundle::n_parts(payload).unwrap_or(0);
            let is_bundle = Header::parse(&frame[..n_bytes], false).is_ok()
                && (2..n_all).contains(&n_parts)
                && bundle::check(payload, n_parts).is_ok();
            if !is_victim || !is_bundle {
                return n_bytes;
            }
            n_changed.fetch_add(1, Ordering::Relaxed);
            change(frame, n_bytes, n_parts)
        });
        // A checksum would detect the change first.
        let config = Config::default().with_timeout(Duration::from_secs(10)).with_checksum(false);
        let transport = tamper(endpoint, harm);
        let mut comm = Communicator::with_config(transport, config).expect("large frames");
        case.call(&mut comm, &case.whole()).map(|(result, _)| result)
    });
    let results = outcomes.into_iter().map(|outcome| outcome.expect("no rank panics")).collect();
    (results, n_changed.load(Ordering::Relaxed))
}

#[test]
fn a_bundle_that_lies_gives_a_typed_error() {
    for kind in [Scatter, Gather] {
        for plan in plans() {
            let case = RunCase { kind, size: 8, root: 0, count: 800, plan, frame_bytes: 20_000 };
            let (results, n) = tampered(&case, 4, |_, n_bytes, _| n_bytes);
            assert!(n == 1 && results.iter().all(Result::is_ok), "{case:?}");

            // Change each entry of the index, and the number of parts.
            for entry in 0..5 {
                for value in [0_u32, 1, 63, 64, 65, 1 << 12, 1 << 20, 1 << 31, u32::MAX] {
                    let lie = move |frame: &mut [u8], n_bytes: usize, n_parts: usize| {
                        let at = n_bytes - 4 * (n_parts + 1) + 4 * (entry % (n_parts + 1));
                        frame[at..at + 4].copy_from_slice(&value.to_le_bytes());
                        n_bytes
                    };
                    let (results, _) = tampered(&case, 4, lie);
                    is_refused(&results, &case, &format!("entry {entry} says {value}"));
                }
            }
            for cut in [1, 4, 5, 63, 64, 100] {
                let (results, _) = tampered(&case, 4, move |_, n_bytes, _| n_bytes - cut);
                is_refused(&results, &case, &format!("{cut} bytes short"));
                let (results, _) = tampered(&case, 4, move |_, n_bytes, _| n_bytes + cut);
                is_refused(&results, &case, &format!("{cut} bytes more"));
            }
        }
    }
}

/// Asserts that the victim detects the change. The other ranks learn of it, or are done.
fn is_refused(results: &[Result<Vec<f32>, Error>], case: &RunCase, lie: &str) {
    for (rank, result) in results.iter().enumerate() {
        let is_right = match result {
            Ok(_) => rank != 4,
            Err(Error::Aborted { .. }) => rank != 4,
            Err(Error::Mismatch { field: Field::Run, .. } | Error::Codec(_)) => rank == 4,
            // The changed index is consistent, but gives a segment another length than the victim's
            // counts require.
            Err(Error::Mismatch { field: Field::Segment, .. }) => rank == 4,
            Err(_) => false,
        };
        assert!(is_right, "{case:?}, {lie}: rank {rank} has {result:?}");
    }
}

#[test]
fn ranks_that_pack_differently_hear_of_it() {
    // The victim gets a bundle of 4 parts that claims to have 3.
    let case = RunCase {
        kind: Scatter,
        size: 8,
        root: 0,
        count: 80,
        plan: Plan::raw(),
        frame_bytes: 4096,
    };
    let (results, _) = tampered(&case, 4, |frame, n_bytes, n_parts| {
        frame[n_bytes - 4] = n_parts as u8 - 1;
        n_bytes
    });
    let Err(error @ Error::Mismatch { rank: Rank(0), field: Field::Run, .. }) = results[4] else {
        panic!("{:?}", results[4]);
    };
    let words = "rank 0 disagrees on the number of parts in a message (frame capacity): 3 there, \
                 4 here";
    assert_eq!(error.to_string(), words);
    // An inconsistent bundle is damaged.
    let (results, _) = tampered(&case, 4, |frame, n_bytes, _| {
        frame[n_bytes - 8] ^= 64;
        n_bytes
    });
    assert_eq!(results[4], Err(Error::from(DecodeError::Damaged)));
}
