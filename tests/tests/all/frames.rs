//! No failure loses a frame, and a rank with too few frames reports it.
//!
//! The tests run on the simulator. Its pool counts frames that were dropped instead of returned.

use foldwire::error::Field;
use foldwire::frame::HEADER_BYTES;
use foldwire::pipeline;
use foldwire::schedule::Ring;
use foldwire::transport::FRAMES_PER_LANE;
use foldwire::{Communicator, Config, Error, Rank, Transport};
use foldwire_sim::{End, FinishedRun, NetSettings, World};
use foldwire_tests::case::{CODECS, ROUTES};
use foldwire_tests::tamper::{FrameDamage, tamper};
use foldwire_tests::wrapped::{Hooks, Wrapped};
use foldwire_tests::{Case, Operation};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Offset of the message kind in the header; 0 is a segment.
const KIND_AT: usize = 3;

/// Removes the last byte of the `nth` payload. Without a checksum, only the codec can detect it.
fn cut(nth: usize, has_struck: Arc<AtomicBool>) -> FrameDamage {
    let mut left = nth;
    Box::new(move |frame, n_bytes| {
        let has_payload = frame[KIND_AT] == 0 && n_bytes > HEADER_BYTES;
        if has_struck.load(Ordering::Relaxed) || !has_payload {
            return n_bytes;
        }
        if left > 0 {
            left -= 1;
            return n_bytes;
        }
        has_struck.store(true, Ordering::Relaxed);
        n_bytes - 1
    })
}

/// Damages the `nth` payload that `victim` receives. Returns the errors of all ranks, or `None` if
/// it received fewer.
fn with_a_broken_payload(case: &Case, victim: usize, nth: usize) -> Option<Vec<Option<Error>>> {
    let has_struck = Arc::new(AtomicBool::new(false));
    let net = NetSettings { frame_bytes: 1024, ..NetSettings::default() };
    let run = World::new(case.size, 1).net(net).run(|endpoint| {
        let is_victim = endpoint.rank().index() == victim;
        let harm: FrameDamage = if is_victim {
            cut(nth, Arc::clone(&has_struck))
        } else {
            Box::new(|_, n_bytes| n_bytes)
        };
        async move {
            // A checksum would detect the damage first.
            let config = Config::default().with_lanes(2).with_checksum(false);
            let mut comm = Communicator::with_config(tamper(endpoint, harm), config)?;
            let mut buffers = case.buffers::<f32>(comm.rank().index());
            case.start(&mut comm, &mut buffers)?.await.map(|_| ())
        }
    });
    assert_eq!(run.n_leaked(), 0, "{case:?}: rank {victim} received a broken payload, its {nth}th");
    has_struck.load(Ordering::Relaxed).then(|| errors(run))
}

fn errors(run: FinishedRun<Result<(), Error>>) -> Vec<Option<Error>> {
    let ends = run.ends.into_iter().map(|end| match end {
        End::Returned(result) => result.err(),
        other => panic!("{other:?}"),
    });
    ends.collect()
}

mod long {
    use super::*;

    /// Tests every use of a frame in a step, and every state of the lane.
    #[test]
    fn a_broken_payload_costs_no_frame_anywhere() {
        let mut n_struck = 0;
        for (collective, schedule) in ROUTES {
            for pipeline in pipeline::ALL {
                for codec in CODECS {
                    for op in [Operation::Sum, Operation::Prod] {
                        if op == Operation::Prod && !collective.reduces() {
                            continue;
                        }
                        for size in [2, 3, 5] {
                            let case = Case {
                                collective,
                                schedule,
                                pipeline,
                                codec,
                                op,
                                ..Case::all_reduce(size, 700)
                            };
                            for victim in [0, size - 1] {
                                let mut nth = 0;
                                while let Some(errors) = with_a_broken_payload(&case, victim, nth) {
                                    // The end of a bundle holds its number of segments.
                                    let is_found = |e: &Error| match e {
                                        Error::Codec(_) => true,
                                        Error::Mismatch { field, .. } => *field == Field::Run,
                                        _ => false,
                                    };
                                    let found = errors.iter().flatten().any(is_found);
                                    assert!(found, "{case:?}, rank {victim}, {nth}th: {errors:?}");
                                    (n_struck, nth) = (n_struck + 1, nth + 1);
                                }
                            }
                        }
                    }
                }
            }
        }
        assert!(n_struck > 3000, "{n_struck}");
    }
}

/// A call that needs more frames than there are is refused before anything is sent. The error says
/// what to change, and the rank can continue after the change.
#[test]
fn a_pool_too_small_for_the_lanes_is_refused_at_once_and_serves_fewer() {
    let case = Case { schedule: &Ring, ..Case::all_reduce(2, 100_000) };
    for is_told in [true, false] {
        let net = NetSettings {
            frames_per_rank: 2 * FRAMES_PER_LANE + 1,
            refusal: 3,
            ..NetSettings::default()
        };
        let run = World::new(case.size, 1).net(net).run(|endpoint| async move {
            let says = ReportedFrames(if is_told { endpoint.n_frames() } else { None });
            let start = endpoint.clock();
            let mut comm = Communicator::new(Wrapped::new(endpoint, says))?;
            let mut buffers = case.buffers::<f32>(comm.rank().index());
            let refused = case.start(&mut comm, &mut buffers).map(|_| ());
            let expected = Error::TooFewFrames { lanes: 4, need: 16, have: 9 };
            assert_eq!(refused, Err(expected), "told: {is_told}");
            assert!(expected.is_usage() && start.now() < Duration::from_millis(1));
            comm.config_mut().lanes = 2;
            case.start(&mut comm, &mut buffers)?.await.map(|_| ())
        });
        assert_eq!(run.n_leaked(), 0);
        assert_eq!(errors(run), [None, None], "told: {is_told}");
    }
}

/// Reports this number of frames in the pool.
struct ReportedFrames(Option<usize>);

impl Hooks for ReportedFrames {
    fn n_frames(&self, _: Option<usize>) -> Option<usize> {
        self.0
    }
}

/// A rank whose transport reports more frames than it has names itself and the step.
#[test]
fn who_has_too_few_frames_for_a_step_names_itself_and_the_step() {
    let case = Case { schedule: &Ring, ..Case::all_reduce(2, 100) };
    // A step needs a frame for its output. Step 0 sends the only frame.
    let (frames_per_rank, step) = (1, 1);
    let net = NetSettings { frames_per_rank, ..NetSettings::default() };
    let run = World::new(case.size, 1).net(net).run(|endpoint| async {
        let config = Config::default().with_lanes(1).with_timeout(Duration::from_secs(1));
        let transport = Wrapped::new(endpoint, ReportedFrames(Some(usize::MAX)));
        let mut comm = Communicator::with_config(transport, config)?;
        let mut buffers = case.buffers::<f32>(comm.rank().index());
        case.start(&mut comm, &mut buffers)?.await.map(|_| ())
    });
    assert_eq!(run.n_leaked(), 0);
    let errors = errors(run);
    let stalled = |rank| Some(Error::Stalled { rank: Rank::new(rank), step });
    let names_itself = (0..2).any(|rank| errors[rank] == stalled(rank));
    assert!(names_itself, "{frames_per_rank} frames: {errors:?}");
}
