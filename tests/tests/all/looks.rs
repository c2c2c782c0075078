//! While a rank computes, its network is looked at, so that one that moves only when it is polled
//! goes on.

use std::cell::Cell;

use foldwire::codec::CodecId;
use foldwire::pipeline;
use foldwire::schedule::{Binomial, RecursiveDoubling, Ring, Schedule};
use foldwire::threads::Threads;
use foldwire::{Bound, Communicator, Config, DType, Error, Incoming, Op, Outgoing, Plan, Rank};
use foldwire_tests::Backend;
use foldwire_tests::wrapped::{Hooks, Wrapped};
use foldwire_threads::Endpoint;

/// Most values between two looks.
const MOST: usize = 8192;
/// Several rounds of frames of the usual size.
const COUNT: usize = 200_000;
const SIZE: usize = 3;

std::thread_local! {
    /// Values that this rank has combined since its network was last looked at.
    static PASSED: Cell<usize> = const { Cell::new(0) };
    /// Looks while it computed.
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

/// Each rank's result of a call on its values: how often it looked while it computed.
fn run(call: impl Fn(&mut Comm, &mut [f32]) -> Result<(), Error> + Sync) -> Vec<usize> {
    foldwire_tests::Threads { frame_bytes: None }.run_transports(SIZE, |inner| {
        let rank = foldwire::Transport::rank(&inner).index();
        let config = Config::default().with_threads(Threads::ONE);
        let mut comm = Communicator::with_config(Wrapped::new(inner, PollCounter), config)
            .expect("frames are large enough");
        let mut data: Vec<f32> = (0..COUNT).map(|i| ((i + rank) as f32 * 1e-3).sin()).collect();
        N_LOOKS.set(0);
        call(&mut comm, &mut data).expect("the call");
        N_LOOKS.get()
    })
}

/// Every codec of chunks, by every pipeline that compresses.
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

/// Sums of codes and what is only moved have no operation to count values by, but each of them is
/// encoded or decoded somewhere, and takes a look in 8192, but for the last in a frame.
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
