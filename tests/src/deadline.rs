//! Groups of ranks for tests of failures. Ranks leave only after all have their result, so that the
//! others cannot detect a silent rank by its leaving. A hang is a failure.

use foldwire::schedule::Ring;
use foldwire::{Bound, Communicator, Plan};
use foldwire_threads::{Endpoint, World};
use std::sync::{Arc, Barrier, Mutex, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

/// A communicator of the threads backend.
pub type Comm = Communicator<Endpoint>;

/// A run that takes longer counts as hung.
pub const DEADLINE: Duration = Duration::from_secs(20);
/// A timeout that passes only on a rank that waits for a call that never comes.
pub const PATIENT: Duration = Duration::from_secs(10);

/// Runs `body` on every rank. Ranks that return wait for the others before they leave.
///
/// # Panics
/// If a rank panics, or after [`DEADLINE`].
pub fn run<R: Send + 'static>(
    size: usize,
    timeout: Duration,
    body: impl Fn(&mut Comm) -> R + Send + Sync + 'static,
) -> Vec<R> {
    let barrier = Barrier::new(size);
    within_deadline(move || {
        World::new(size).frame_bytes(20_000).run(|mut comm| {
            comm.config_mut().timeout = timeout;
            let result = body(&mut comm);
            barrier.wait();
            result
        })
    })
}

/// Returns the result of `body`, which runs on its own thread.
///
/// # Panics
/// If `body` panics, or after [`DEADLINE`].
pub fn within_deadline<R: Send + 'static>(body: impl FnOnce() -> R + Send + 'static) -> R {
    let result = Arc::new(Mutex::new(None));
    let kept = Arc::clone(&result);
    end_within_deadline(Box::new(move || {
        let result = body();
        *kept.lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
    }));
    let result = result.lock().unwrap_or_else(PoisonError::into_inner).take();
    result.expect("the body has returned")
}

/// Not generic: compiling channels and threads anew for each of many bodies would take long.
fn end_within_deadline(body: Box<dyn FnOnce() + Send>) {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        body();
        sender.send(())
    });
    receiver.recv_timeout(DEADLINE).expect("hung, or panicked (see above)");
}

/// Runs the test on every case, eight cases at a time. For tests in which ranks mostly sleep.
///
/// # Panics
/// If `test` panics on a case.
pub fn in_parallel<C: Send>(cases: impl IntoIterator<Item = C>, test: impl Fn(C) + Sync) {
    let cases: Vec<C> = cases.into_iter().collect();
    let cases = Mutex::new(cases.into_iter());
    let next = || cases.lock().unwrap_or_else(PoisonError::into_inner).next();
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| std::iter::from_fn(next).for_each(&test));
        }
    });
}

/// The plan that most calls use.
#[must_use]
pub fn plan() -> Plan {
    Plan::foldwire(Bound::Absolute(1e-3)).with_schedule(&Ring)
}
