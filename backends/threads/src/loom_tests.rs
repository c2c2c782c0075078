//! Loom models of the lock-free parts: they explore every interleaving, and every value that the
//! memory model lets a load see. loom reports a deadlock if a wake-up is lost, or if only a timeout
//! would end a sleep.
//!
//! ```text
//! cargo xtask loom
//! ```
//!
//! | part | what the models show | module |
//! |---|---|---|
//! | ring | order, capacity, credit, inspecting ahead, when items are dropped | `ring` |
//! | parker | no wake-up is lost: with several wakers, after a sleep that timed out, through several sleeps, for a thread and for a task | `parker` |
//! | pool | a rank that was refused a frame is woken when another rank recycles or drops a frame, ends, or makes a link | `pool` |
//! | endpoint | links made at first use by several senders at once, both directions, two tags, full links, ranks that are tasks | `links` |
//! | end of a rank | earlier frames arrive, sleepers wake, both ranks may end at once, links may be made while the receiver ends, panics keep their order | `ending` |
//!
//! The models leave out the rate limit (`pace.rs`), which reads a clock and shares only rings, and
//! reference counts, which are `std`'s own.
//!
//! The larger models bound the preemptions of a run, as loom's documentation advises. Each test
//! sets its bound; `cargo xtask loom --deeper` allows one more. Each test prints how many
//! executions it explored.

mod ending;
mod links;
mod parker;
mod pool;
mod ring;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Poll, Wake, Waker};
use std::time::{Duration, Instant};

use foldwire::transport::{MIN_FRAME_BYTES, Rank, Tag, Transport};

use crate::frame::Frame;
use crate::sync::{self, Condvar, Mutex, lock};
use crate::{Endpoint, World};

const TAG: Tag = Tag(0);

/// Environment variable: number of preemptions to allow on top of each model's bound.
const MORE: &str = "FOLDWIRE_LOOM_MORE";

/// Explores `model` with at most `n_preemptions` per run, or without a bound. Prints the number of
/// executions.
fn explore(name: &str, n_preemptions: Option<usize>, model: impl Fn() + Send + Sync + 'static) {
    let more = std::env::var(MORE).map_or(0, |n| n.parse().expect("a number of preemptions"));
    let n_preemptions = n_preemptions.map(|n: usize| n + more);
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = n_preemptions;
    // The executions of a whole world are longer than loom's default limit.
    builder.max_branches = 20_000;
    // This is not one of loom's atomics, because it outlives executions and no model depends on it.
    let n_executions = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&n_executions);
    let start = Instant::now();
    builder.check(move || {
        counter.fetch_add(1, Ordering::Relaxed);
        model();
    });
    let bound = n_preemptions.map_or_else(|| "any number of".to_owned(), |n| format!("up to {n}"));
    let n_executions = n_executions.load(Ordering::Relaxed);
    let time = start.elapsed().as_secs_f64();
    println!("loom: {name}: {n_executions} executions, {bound} preemptions, {time:.1} s");
    assert!(n_executions > 1, "{name} has only one execution: nothing to explore");
}

/// Creates the endpoints of a world whose links hold one frame.
fn endpoints<const N: usize>() -> [Endpoint; N] {
    let world = World::new(N).frame_bytes(MIN_FRAME_BYTES).link_depth(1);
    world.endpoints().try_into().expect("as many as there are ranks")
}

/// Runs `poll` on `endpoint` as an engine does until the result is ready: `progress`, `poll`, then
/// a sleep without a timeout.
fn wait<R>(endpoint: &mut Endpoint, poll: impl Fn(&mut Endpoint) -> Poll<R>) -> R {
    loop {
        endpoint.progress().expect("progress cannot fail");
        match poll(endpoint) {
            Poll::Ready(result) => return result,
            Poll::Pending => endpoint.idle(Duration::MAX),
        }
    }
}

/// A task, which records whether it was woken.
#[derive(Default)]
struct LoomTask {
    is_woken: Mutex<bool>,
    woken: Condvar,
}

impl Wake for LoomTask {
    fn wake(self: Arc<Self>) {
        *lock(&self.is_woken) = true;
        self.woken.notify_one();
    }
}

impl LoomTask {
    fn new() -> Arc<Self> {
        Arc::default()
    }

    fn waker(self: &Arc<Self>) -> Waker {
        Waker::from(Arc::clone(self))
    }

    /// Sleeps until the task is woken; returns at once if it was woken since its last sleep.
    fn sleep(&self) {
        let mut is_woken = lock(&self.is_woken);
        while !std::mem::take(&mut *is_woken) {
            is_woken = sync::wait(&self.woken, is_woken, None);
        }
    }
}

/// Runs `poll` on `endpoint` as a future does: polls, registers, polls again, sleeps.
fn wait_as_task<R>(endpoint: &mut Endpoint, poll: impl Fn(&mut Endpoint) -> Poll<R>) -> R {
    let task = LoomTask::new();
    loop {
        for is_registered in [false, true] {
            endpoint.progress().expect("progress cannot fail");
            if let Poll::Ready(result) = poll(endpoint) {
                return result;
            }
            assert!(is_registered || endpoint.register(&task.waker()));
        }
        task.sleep();
    }
}

/// Takes a frame and writes `content` into it.
fn frame(endpoint: &mut Endpoint, content: u8) -> Frame {
    let Poll::Ready(Ok(mut frame)) = endpoint.poll_frame() else { panic!("no frame") };
    frame.as_mut()[0] = content;
    frame
}

/// Sends one byte; waits for space on the link.
fn send(endpoint: &mut Endpoint, to: Rank, tag: Tag, content: u8) {
    wait(endpoint, |rank| rank.poll_ready(to, tag)).expect("the receiver is there");
    let frame = frame(endpoint, content);
    endpoint.send(to, tag, frame, 1).expect("there is space");
}

/// Receives one byte; waits for it.
fn receive(endpoint: &mut Endpoint, from: Rank, tag: Tag) -> u8 {
    let (frame, n_bytes) = wait(endpoint, |rank| rank.poll_recv(from, tag)).expect("it was sent");
    assert_eq!(n_bytes, 1);
    let content = frame.as_ref()[0];
    endpoint.recycle(frame);
    content
}
