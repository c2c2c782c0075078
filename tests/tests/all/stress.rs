//! Groups of threads one after another, with random calls, lanes, frames and links. Ranks end or
//! panic at any call.
//!
//! These guarantees must hold:
//!
//! - A call that succeeds has the oracle's result, with the same bits on all ranks where all get
//!   it.
//! - Before a rank goes, every call succeeds on every rank.
//! - After a call has failed on a rank, its next call fails too.
//! - No rank waits for a rank that is gone until a time limit ends it.
//! - No group hangs.
//!
//! An ordinary run takes two seconds; `cargo xtask stress --time 1h` takes longer. A failure names
//! the seed of its group, from which `--seed` starts.

use foldwire::transport::{MAX_LANES, MIN_FRAME_BYTES, TransportErrorKind};
use foldwire::{Error, Float};
use foldwire_tests::case::Choice;
use foldwire_tests::data::{self, Random};
use foldwire_tests::deadline::{Comm, within_deadline};
use foldwire_tests::{Case, with_type};
use foldwire_threads::World;
use std::panic::{self, AssertUnwindSafe};
use std::time::{Duration, Instant};

const MAX_SIZE: usize = 9;
const MAX_CALLS: usize = 8;
/// Shorter than the deadline of a run, longer than any call takes.
const TIME_LIMIT: Duration = Duration::from_secs(10);

/// Way in which a rank goes early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RankExit {
    Returns,
    Panics,
}

/// One group of ranks, and its calls.
#[derive(Clone, Debug)]
struct StressWorld {
    seed: u64,
    size: usize,
    lanes: usize,
    frame_bytes: usize,
    link_depth: usize,
    calls: Vec<Case>,
    /// The rank that goes, the call before which it goes, and the way.
    gone: Option<(usize, usize, RankExit)>,
}

/// Results of a rank's calls: a digest of each, and the error that ended them.
#[derive(Debug)]
struct RankResult {
    digests: Vec<u64>,
    error: Option<Error>,
}

fn environment(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).map_or(otherwise, |text| text.parse().expect("a whole number"))
}

#[test]
fn random_worlds_do_as_the_oracle_says_or_fail_soon() {
    let time = Duration::from_secs(environment("FOLDWIRE_STRESS_SECONDS", 2));
    let first = environment("FOLDWIRE_STRESS_SEED", 1);
    let start = Instant::now();
    let (mut n_worlds, mut n_calls, mut n_gone, mut n_failed) = (0u64, 0, 0, 0);
    while start.elapsed() < time {
        let story = StressWorld::new(first + n_worlds);
        let told = story.clone();
        // Report the seed if the run hangs or panics.
        let ended = panic::catch_unwind(AssertUnwindSafe(|| within_deadline(move || told.run())));
        let ended = ended.unwrap_or_else(|_| panic!("seed {}: {story:?}", story.seed));
        n_worlds += 1;
        n_gone += u64::from(story.gone.is_some());
        n_calls += ended.iter().map(|rank| rank.digests.len() as u64).sum::<u64>();
        n_failed += ended.iter().filter(|rank| rank.error.is_some()).count();
    }
    println!(
        "stress: {n_worlds} worlds from seed {first}, {n_calls} successful calls of ranks, \
         {n_gone} ranks gone, {n_failed} ranks with an error, {:.0} s",
        start.elapsed().as_secs_f64()
    );
    assert!(n_calls > 0 && (n_worlds < 20 || n_gone > 0 && n_failed > 0), "nothing was stressed");
}

impl StressWorld {
    fn new(seed: u64) -> Self {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut below = |n: usize| random.bits() as usize % n;
        let size = 1 + below(MAX_SIZE);
        let lanes = 1 + below(MAX_LANES);
        let frame_bytes = [MIN_FRAME_BYTES, MIN_FRAME_BYTES + 1000, 20_000, 260_000][below(4)];
        let link_depth = 1 + below(4);
        let n_calls = 1 + below(MAX_CALLS);
        let gone = (size > 1 && below(2) == 0).then(|| {
            let fate = [RankExit::Returns, RankExit::Panics][below(2)];
            (below(size), below(n_calls), fate)
        });
        let calls = (0..n_calls).map(|_| Choice::draw(&mut random).short_case(size));
        let calls: Vec<Case> = calls.collect();
        let least = calls.iter().map(Case::min_frame_bytes).max().unwrap_or(0);
        let frame_bytes = frame_bytes.max(least);
        Self { seed, size, lanes, frame_bytes, link_depth, calls, gone }
    }

    fn run(&self) -> Vec<RankResult> {
        let world = World::new(self.size).frame_bytes(self.frame_bytes).link_depth(self.link_depth);
        let outcomes = world.try_run(|mut comm| self.rank(&mut comm));
        let mut ended = Vec::new();
        for (rank, outcome) in outcomes.into_iter().enumerate() {
            let panics =
                self.gone.is_some_and(|(gone, _, fate)| gone == rank && fate == RankExit::Panics);
            match outcome {
                Ok(outcome) => {
                    assert!(!panics, "rank {rank} was to panic");
                    ended.push(outcome);
                }
                Err(payload) if panics && payload.is::<RankExit>() => {
                    ended.push(RankResult { digests: Vec::new(), error: None });
                }
                Err(payload) => panic::resume_unwind(payload),
            }
        }
        self.check(&ended);
        ended
    }

    /// Runs one rank.
    fn rank(&self, comm: &mut Comm) -> RankResult {
        comm.config_mut().lanes = self.lanes;
        comm.config_mut().timeout = TIME_LIMIT;
        let me = comm.rank().index();
        let mut ended = RankResult { digests: Vec::new(), error: None };
        for (index, case) in self.calls.iter().enumerate() {
            match self.gone {
                Some((rank, before, RankExit::Returns)) if (rank, before) == (me, index) => break,
                Some((rank, before, fate)) if (rank, before) == (me, index) => {
                    panic::resume_unwind(Box::new(fate));
                }
                _ => {}
            }
            let result = with_type!(case.dtype, T => call::<T>(case, comm));
            match (result, ended.error) {
                (Ok(digest), None) => ended.digests.push(digest),
                (Err(error), None) => ended.error = Some(error),
                (result, Some(_)) => {
                    assert!(result == Err(Error::Poisoned), "{result:?} after an error");
                }
            }
        }
        ended
    }

    fn check(&self, ended: &[RankResult]) {
        for (rank, outcome) in ended.iter().enumerate() {
            let stayed = self.gone.is_none_or(|(gone, ..)| gone != rank);
            let least = self.gone.map_or(self.calls.len(), |(_, before, _)| before);
            let panicked = !stayed && matches!(self.gone, Some((.., RankExit::Panics)));
            let n_done = outcome.digests.len();
            assert!(panicked || n_done >= least, "rank {rank} of {self:?}: {outcome:?}");
            assert!(self.gone.is_some() || outcome.error.is_none());
            // Ranks are notified of the loss instead of waiting, and see no other error.
            let is_told = matches!(
                outcome.error,
                None | Some(
                    Error::Aborted { .. }
                        | Error::Transport { kind: TransportErrorKind::PeerLost, .. }
                )
            );
            assert!(is_told, "rank {rank} of {self:?}: {outcome:?}");
        }
        for (index, case) in
            self.calls.iter().enumerate().filter(|(_, case)| case.is_the_same_everywhere())
        {
            let mut digests = ended.iter().filter_map(|rank| rank.digests.get(index));
            let first = digests.next();
            assert!(
                digests.all(|digest| Some(digest) == first),
                "call {index} of {self:?}: {case:?}"
            );
        }
    }
}

/// Makes the call and checks its result. Returns a digest.
fn call<T: Float>(case: &Case, comm: &mut Comm) -> Result<u64, Error> {
    let (result, report) = case.run_rank::<T, _>(comm)?;
    let verdict = case.verify(comm.rank().index(), &result, &report, &case.inputs());
    verdict.unwrap_or_else(|wrong| panic!("{case:?}, rank {}: {wrong}", comm.rank()));
    Ok(data::digest(&result))
}
