//! Wakes the tasks of a world regularly, so that they notice timeouts while no message arrives. A
//! world whose ranks run as futures has one such thread.

use std::sync::{Arc, OnceLock, Weak};
use std::thread;
use std::time::Duration;

use crate::parker::Parker;

/// Time between two wake-ups, equal to the longest single sleep of a waiting thread.
const PERIOD: Duration = Duration::from_millis(20);

/// State of the ticking thread: not started, running, or refused by the system.
#[derive(Debug, Default)]
pub(crate) struct Ticker(OnceLock<bool>);

impl Ticker {
    /// At the first call, starts a thread that wakes the tasks registered with `parkers` for as
    /// long as the parkers live. Returns `false` if the system refused the thread.
    pub(crate) fn start(&self, parkers: &Arc<[Parker]>) -> bool {
        *self.0.get_or_init(|| {
            let parkers = Arc::downgrade(parkers);
            thread::Builder::new().name("foldwire".to_owned()).spawn(|| tick(parkers)).is_ok()
        })
    }
}

fn tick(parkers: Weak<[Parker]>) {
    loop {
        thread::sleep(PERIOD);
        let Some(parkers) = parkers.upgrade() else { return };
        parkers.iter().for_each(Parker::wake_task);
    }
}
