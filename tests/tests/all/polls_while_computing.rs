//! A rank polls its network while it computes. So a network that needs polls to move messages keeps
//! moving.

use std::cell::Cell;
use std::sync::LazyLock;

use foldwire::codec::CodecId;
use foldwire::pipeline;
use foldwire::schedule::{Binomial, RecursiveDoubling, Ring, Schedule};
use foldwire::threads::Threads;
use foldwire::{
    Bound, Communicator, Config, DType, Error, Incoming, Op, Outgoing, Overlap, Plan, Rank,
};
use foldwire_tests::Backend;
use foldwire_tests::wrapped::{Hooks, Wrapped};
use foldwire_threads::Endpoint;

/// Most values between two polls.
const MOST: usize = 8192;
/// Enough values for several rounds of frames.
const COUNT: usize = 100_000;
const SIZE: usize = 3;

/// Values of all ranks: those of each rank begin one later.
static WAVE: LazyLock<Vec<f32>> =
    LazyLock::new(|| (0..COUNT + SIZE).map(|i| (i as f32 * 1e-3).sin()).collect());

std::thread_local! {
    /// Number of values that this rank has combined since the last poll of its network.
    static PASSED: Cell<usize> = const { Cell::new(0) };
    /// Number of polls while computing.
    static N_LOOKS: Cell<usize> = const { Cell::new(0) };
}

struct PollCounter;

impl Hooks for PollCounter {
    fn looks(&mut self, is_computing: bool) {
        PASSED.set(0);
        N_LOOKS.set(N_LOOKS.get() + usize::from(is_computing));
    }
}

type Comm = Communicator<Wrapped<Endpoint>>;

/// Makes a call on each rank's values. Returns each rank's number of polls while computing.
fn run(call: impl Fn(&mut Comm, &mut [f32]) -> Result<(), Error> + Sync) -> Vec<usize> {
    foldwire_tests::Threads { frame_bytes: None }.run_transports(SIZE, |inner| {
        let rank = foldwire::Transport::rank(&inner).index();
        let config = Config::default().with_threads(Threads::ONE);
        let mut comm = Communicator::with_config(Wrapped::new(inner, PollCounter), config)
            .expect("frames are large enough");
        let mut data = WAVE[rank..][..COUNT].to_vec();
        N_LOOKS.set(0);
        call(&mut comm, &mut data).expect("the call");
        N_LOOKS.get()
    })
}

/// Returns every codec that works in chunks, with every pipeline that compresses.
fn plans() -> impl Iterator<Item = Plan> {
    let codecs = CodecId::ALL.iter().filter(|id| **id != CodecId::Raw && id.is_for(DType::F32));
    codecs.flat_map(|&codec| {
        let pipelines = pipeline::ALL.into_iter().filter(|&by| by != pipeline::RAW);
        pipelines.map(move |by| {
            Plan::foldwire(Bound::Absolute(1e-3)).with_pipeline(by).with_codec(codec)
        })
    })
}

#[test]
fn no_more_than_8192_values_are_combined_between_two_looks() {
    let watched = |a: f32, b: f32| {
        PASSED.set(PASSED.get() + 1);
        assert!(PASSED.get() <= MOST, "{} values since the last look", PASSED.get());
        a.max(b)
    };
    let op = || Op::User(&watched);
    let schedules: [&'static dyn Schedule; 2] = [&Ring, &RecursiveDoubling];
    for plan in plans() {
        for schedule in schedules {
            run(|comm, data| comm.all_reduce(data, op(), &plan.with_schedule(schedule)).map(drop));
        }
        run(|comm, data| {
            comm.reduce_scatter_in_place(data, op(), &plan.with_schedule(&Ring)).map(drop)
        });
        run(|comm, data| {
            comm.reduce_in_place(data, op(), Rank(1), &plan.with_schedule(&Binomial)).map(drop)
        });
    }
}

/// Sums of codes and moved values call no operation that could count values. But each value is
/// encoded or decoded on some rank, with a poll for every 8192 values, except the last ones of a
/// frame.
#[test]
fn ranks_look_while_they_encode_decode_and_add_codes() {
    let least = COUNT / MOST / 2;
    for plan in plans() {
        let all = |looks: Vec<usize>| {
            assert!(looks.iter().all(|&n| n >= least), "{looks:?} looks: {plan:?}");
        };
        all(run(|comm, data| comm.all_reduce(data, Op::Sum, &plan).map(drop)));
        all(run(|comm, data| comm.all_gather_in_place(data, &plan).map(drop)));
        all(run(|comm, data| comm.broadcast(data, Rank(2), &plan).map(drop)));
        all(run(|comm, data| comm.scan(data, Op::Sum, &plan).map(drop)));
        all(run(|comm, data| {
            let rank = comm.rank().index();
            let [next, before] = [1, SIZE - 1].map(|by| Rank::new((rank + by) % SIZE));
            let mut recv = vec![0.0; COUNT];
            let send = Outgoing::new(next, 0, data);
            comm.send_recv(send, Incoming::new(before, 0, &mut recv), &plan).map(drop)
        }));
    }
}

#[test]
fn message_by_message_a_rank_looks_as_its_plan_says() {
    let looks = |overlap| {
        let plan = Plan::raw().compressed(pipeline::COMPRESS_ONCE, Bound::Absolute(1e-3));
        let plan = plan.with_overlap(overlap);
        run(|comm, data| comm.all_reduce(data, Op::Sum, &plan).map(drop))
    };
    let polling = looks(Overlap::Polling);
    assert!(polling.iter().all(|&n| n >= COUNT / 5120 / 2), "{polling:?}");
    assert_eq!(looks(Overlap::Nothing), [0; SIZE]);
}
