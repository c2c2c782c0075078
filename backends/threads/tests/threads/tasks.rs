//! Ranks as tasks of a generic executor. They are woken when a message comes, are not polled
//! without end, and are polled often enough to notice timeouts.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use foldwire::{Call, Communicator, Error, Op, Plan, Rank};
use foldwire_threads::{Endpoint, World};

/// A task that is polled only after it was woken, as in any executor.
struct TestTask {
    is_woken: AtomicBool,
    executor: Thread,
}

impl Wake for TestTask {
    fn wake(self: Arc<Self>) {
        self.is_woken.store(true, Ordering::Release);
        self.executor.unpark();
    }
}

/// Drives all futures on this thread, each only when woken. Returns their results, and the total
/// number of polls.
fn drive<'f, R>(futures: Vec<Pin<Box<dyn Future<Output = R> + 'f>>>) -> (Vec<R>, usize) {
    let task = || TestTask { is_woken: AtomicBool::new(true), executor: thread::current() };
    let mut futures: Vec<_> = futures.into_iter().map(|f| (f, Arc::new(task()), None)).collect();
    let mut n_polls = 0;
    loop {
        for (future, task, result) in &mut futures {
            if result.is_none() && task.is_woken.swap(false, Ordering::Acquire) {
                n_polls += 1;
                let waker = Waker::from(Arc::clone(task));
                if let Poll::Ready(ready) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
                    *result = Some(ready);
                }
            }
        }
        let mut waiting = futures.iter().filter(|(.., result)| result.is_none()).peekable();
        if waiting.peek().is_none() {
            break;
        }
        if !waiting.any(|(_, task, _)| task.is_woken.load(Ordering::Acquire)) {
            let start = Instant::now();
            thread::park_timeout(Duration::from_secs(10));
            assert!(start.elapsed() < Duration::from_secs(10), "nobody was woken");
        }
    }
    (futures.into_iter().filter_map(|(.., result)| result).collect(), n_polls)
}

fn block_on<R>(future: impl Future<Output = R>) -> (R, usize) {
    let future: Pin<Box<dyn Future<Output = R> + '_>> = Box::pin(future);
    let (mut results, n_polls) = drive(vec![future]);
    (results.remove(0), n_polls)
}

async fn sum(comm: &mut Communicator<Endpoint>, n_values: usize) -> Result<f64, Error> {
    let mut values = vec![1.0f64; n_values];
    comm.start(Call::all_reduce(&mut values, Op::Sum), &Plan::raw())?.await?;
    Ok(values[n_values / 2])
}

/// A waiting rank is polled when a message comes, and at regular intervals.
#[test]
fn who_waits_as_a_task_is_not_polled_without_end() {
    let outcomes = World::new(3).run(|mut comm| {
        if comm.rank() == Rank(2) {
            thread::sleep(Duration::from_millis(400));
        }
        block_on(sum(&mut comm, 1000))
    });
    for (result, n_polls) in outcomes {
        assert_eq!(result, Ok(3.0));
        // The ticker wakes a waiting rank 20 times in 400 ms. Each message adds a few polls.
        assert!(n_polls < 200, "{n_polls} polls");
    }
}

/// The tasks send many messages over links of one frame, first each on its own thread, then all on
/// one thread. If only the ticker woke them, each message would take up to 20 ms.
#[test]
fn no_wake_up_of_a_task_is_lost() {
    const N_CALLS: usize = 100;
    let world = || World::new(3).frame_bytes(4096).link_depth(1);
    let n_woken_late = AtomicUsize::new(0);
    let calls = async |mut comm: Communicator<Endpoint>| {
        for _ in 0..N_CALLS {
            let start = Instant::now();
            assert_eq!(sum(&mut comm, 6000).await, Ok(3.0));
            n_woken_late.fetch_add(
                usize::from(start.elapsed() >= Duration::from_millis(19)),
                Ordering::Relaxed,
            );
        }
    };
    world().run(|comm| block_on(calls(comm)));
    let comms = world().communicators();
    let futures: Vec<Pin<Box<dyn Future<Output = ()> + '_>>> =
        comms.into_iter().map(|comm| Box::pin(calls(comm)) as _).collect();
    drive(futures);
    // Other programs may delay a thread now and then.
    let n_late = n_woken_late.into_inner();
    assert!(n_late < N_CALLS / 2, "{n_late} of {} calls", 6 * N_CALLS);
}

/// The ticker wakes a task that waits for a silent rank, so the task notices its timeout although
/// the executor has no timer.
#[test]
fn limits_of_time_are_noticed_while_nobody_comes() {
    let start = Instant::now();
    let outcomes = World::new(2).run(|mut comm| {
        comm.config_mut().timeout = Duration::from_millis(200);
        if comm.rank() == Rank(1) {
            thread::sleep(Duration::from_secs(2));
            return None;
        }
        let called = block_on(sum(&mut comm, 10)).0;
        let shrink = comm.start_shrink(Duration::from_millis(200)).unwrap();
        let shrunk = block_on(pin!(shrink)).0.unwrap();
        Some((called, shrunk.size(), start.elapsed()))
    });
    let (called, size, took) = outcomes[0].expect("rank 0 calls");
    assert!(matches!(called, Err(Error::Stalled { rank: Rank(1), .. })), "{called:?}");
    assert!(size == 1 && took < Duration::from_secs(2), "{size} ranks after {took:?}");
}

/// After a task is dropped, no registered waker keeps the task or its world alive.
#[test]
fn a_task_that_was_dropped_is_forgotten() {
    let [mut comm, other] = World::new(2).communicators().try_into().expect("two ranks");
    let task = Arc::new(TestTask { is_woken: AtomicBool::new(false), executor: thread::current() });
    let waker = Waker::from(Arc::clone(&task));
    {
        let mut values = [1.0f32; 10];
        let mut call = comm.start(Call::all_reduce(&mut values, Op::Sum), &Plan::raw()).unwrap();
        for _ in 0..10 {
            let _ = Pin::new(&mut call).poll(&mut Context::from_waker(&waker));
        }
    }
    drop((comm, waker, other));
    assert_eq!(Arc::strong_count(&task), 1);
}
