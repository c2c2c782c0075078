//! A group of simulated ranks, and the executor that runs their programs.
//!
//! The executor polls all ranks in passes, each pass in a new random order. If no rank moved a
//! frame in a pass, all ranks wait, and virtual time jumps to the next event. A jump is never
//! longer than [`NetSettings::jump`]. Jumps of a quarter of that or more happen only after several
//! idle passes, so that ranks first finish all work that needs no network.

use std::any::Any;
use std::cell::RefCell;
use std::fmt;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use foldwire::Rank;

use crate::fabric::SimFabric;
use crate::link::{NEVER, Nanos};
use crate::{Endpoint, Fault, NetSettings, Trace};

/// Idle passes before time makes a long jump.
const IDLE_PASSES: usize = 3;

/// Settings of a simulated group of ranks. [`run`](Self::run) simulates the group.
#[derive(Clone, Debug)]
pub struct World {
    size: usize,
    seed: u64,
    net: NetSettings,
    faults: Vec<Fault>,
    keeps_trace: bool,
}

/// Outcome of a rank's program.
#[derive(Clone, Debug, PartialEq)]
pub enum End<R> {
    /// The program returned.
    Returned(R),
    /// A fault killed the rank.
    Died,
    /// A fault made the rank stall forever.
    Silent,
    /// The program panicked with this message.
    Panicked(String),
    /// The program did not return, although no fault stopped it.
    Hung,
}

/// Results of a finished run.
pub struct FinishedRun<R> {
    /// Outcome of each rank, in rank order.
    pub ends: Vec<End<R>>,
    /// Injected faults that occurred.
    pub struck: Vec<Fault>,
    /// Recorded events.
    pub trace: Trace,
    /// Virtual time that the run took.
    pub time: Duration,
    /// Number of times that the executor polled a rank.
    pub n_polls: u64,
    fabric: Rc<RefCell<SimFabric>>,
}

impl World {
    /// Creates a group of `size` ranks on the default network, without faults.
    #[must_use]
    pub fn new(size: usize, seed: u64) -> Self {
        Self { size, seed, net: NetSettings::default(), faults: Vec::new(), keeps_trace: false }
    }

    /// Sets the network.
    #[must_use]
    pub const fn net(mut self, net: NetSettings) -> Self {
        self.net = net;
        self
    }

    /// Adds faults.
    #[must_use]
    pub fn faults(mut self, faults: impl IntoIterator<Item = Fault>) -> Self {
        self.faults.extend(faults);
        self
    }

    /// Sets whether the trace keeps its events. The default is `false`.
    #[must_use]
    pub const fn keep_trace(mut self, keeps: bool) -> Self {
        self.keeps_trace = keeps;
        self
    }

    /// Calls `program` with each rank's endpoint, and runs the returned futures. Ends when every
    /// future has returned, when no remaining rank can wake up, or when no frame has moved for
    /// [`NetSettings::patience`].
    pub fn run<F: Future>(self, mut program: impl FnMut(Endpoint) -> F) -> FinishedRun<F::Output> {
        let trace = Trace { keeps: self.keeps_trace, ..Trace::default() };
        let fabric = SimFabric::new(self.size, self.net, self.seed, self.faults, trace);
        let fabric = Rc::new(RefCell::new(fabric));
        let tasks = (0..self.size).map(|rank| {
            let endpoint = Endpoint::new(Rank::new(rank), Rc::clone(&fabric));
            RankTask::Running(Box::pin(program(endpoint)))
        });
        let mut executor = Executor {
            tasks: tasks.collect(),
            fabric: Rc::clone(&fabric),
            net: self.net,
            n_polls: 0,
            idle_passes: 0,
            last_move: 0,
        };
        while executor.poll_all() {}
        // Also drops the futures that have not returned.
        let ends = executor.tasks.into_iter().enumerate().map(|(rank, task)| match task {
            RankTask::Running(_) if sleeps_for_ever(&fabric, rank) => End::Silent,
            RankTask::Running(_) => End::Hung,
            RankTask::Over(end) => end,
        });
        let ends = ends.collect();
        let n_polls = executor.n_polls;
        let mut shared = fabric.borrow_mut();
        let struck = shared.faults.iter().filter(|(_, has_struck)| *has_struck);
        let struck = struck.map(|(fault, _)| *fault).collect();
        let trace = std::mem::take(&mut shared.trace);
        let time = Duration::from_nanos(shared.now);
        drop(shared);
        FinishedRun { ends, struck, trace, time, n_polls, fabric }
    }
}

impl<R> FinishedRun<R> {
    /// Number of frames that ranks have neither recycled nor sent, including dropped ones. Unless
    /// frames leak, it is 0 once all communicators and operations have ended.
    #[must_use]
    pub fn n_leaked(&self) -> usize {
        let mut fabric = self.fabric.borrow_mut();
        fabric.drain();
        fabric.pool.n_in_use() + fabric.pool.n_dropped()
    }
}

impl<R: fmt::Debug> fmt::Debug for FinishedRun<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Run")
            .field("ends", &self.ends)
            .field("struck", &self.struck)
            .field("time", &self.time)
            .finish_non_exhaustive()
    }
}

enum RankTask<F: Future> {
    Running(Pin<Box<F>>),
    Over(End<F::Output>),
}

struct Executor<F: Future> {
    tasks: Vec<RankTask<F>>,
    fabric: Rc<RefCell<SimFabric>>,
    net: NetSettings,
    n_polls: u64,
    /// Consecutive passes in which no frame moved.
    idle_passes: usize,
    /// End of the last pass in which a frame moved.
    last_move: Nanos,
}

impl<F: Future> Executor<F> {
    /// Polls each rank at most once, then advances time if no frame moved. Returns `false` when the
    /// run is over.
    fn poll_all(&mut self) -> bool {
        let mut order: Vec<usize> = (0..self.tasks.len())
            .filter(|&rank| matches!(self.tasks[rank], RankTask::Running(_)))
            .collect();
        if order.is_empty() {
            return false;
        }
        let n_before = self.fabric.borrow().n_moves;
        self.fabric.borrow_mut().random.shuffle(&mut order);
        for &rank in &order {
            if self.is_turn_of(rank) {
                self.poll(rank);
            }
        }
        if order.iter().all(|&rank| sleeps_for_ever(&self.fabric, rank)) {
            for rank in order {
                if let RankTask::Running(_) = self.tasks[rank] {
                    // Mark the rank as dead, so that dropping its program affects no other rank.
                    self.fabric.borrow_mut().ranks[rank].is_dead = true;
                    self.tasks[rank] = RankTask::Over(End::Silent);
                }
            }
            return false;
        }
        let moved = self.fabric.borrow().n_moves > n_before;
        self.advance(moved)
    }

    /// Returns whether to poll the rank now. False if the rank sleeps, or if the network's settings
    /// make the executor skip it at random. If true, also advances time by the random duration of
    /// the poll.
    fn is_turn_of(&self, rank: usize) -> bool {
        let fabric = &mut *self.fabric.borrow_mut();
        let is_turn = fabric.ranks[rank].asleep_until <= fabric.now && !fabric.neglects();
        if is_turn {
            fabric.now += fabric.uniform(self.net.poll);
        }
        is_turn
    }

    /// Advances time if the last pass moved no frame. Returns `false` if no frame has moved for
    /// [`NetSettings::patience`].
    fn advance(&mut self, moved: bool) -> bool {
        let fabric = &mut *self.fabric.borrow_mut();
        fabric.is_idle = !moved;
        if moved {
            (self.idle_passes, self.last_move) = (0, fabric.now);
            return true;
        }
        self.idle_passes += 1;
        let jump = self.net.jump.as_nanos() as Nanos;
        let next = fabric.next_wake().unwrap_or(NEVER);
        let is_far = next - fabric.now >= jump / 4;
        if !is_far || self.idle_passes >= IDLE_PASSES {
            fabric.now = next.min(fabric.now + jump);
        }
        fabric.now - self.last_move < self.net.patience.as_nanos() as Nanos
    }

    fn poll(&mut self, rank: usize) {
        let RankTask::Running(future) = &mut self.tasks[rank] else { return };
        let mut context = Context::from_waker(Waker::noop());
        self.n_polls += 1;
        let polled = catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(&mut context)));
        let end = match polled {
            _ if self.fabric.borrow().ranks[rank].is_dead => End::Died,
            Ok(Poll::Pending) => return,
            Ok(Poll::Ready(result)) => End::Returned(result),
            Err(payload) => End::Panicked(panic_message(&*payload)),
        };
        self.tasks[rank] = RankTask::Over(end);
        // The program may have stored the endpoint elsewhere, so dropping the future may not close
        // it.
        let mut fabric = self.fabric.borrow_mut();
        if fabric.ranks[rank].is_dead {
            fabric.close(Rank::new(rank));
        }
    }
}

fn sleeps_for_ever(fabric: &RefCell<SimFabric>, rank: usize) -> bool {
    fabric.borrow().ranks[rank].asleep_until == NEVER
}

fn panic_message(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<String>().map(String::as_str);
    text.or(payload.downcast_ref::<&str>().copied()).unwrap_or("no message").to_owned()
}
