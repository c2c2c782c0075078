//! Wakes the tasks of a world every now and then, so that they notice limits of time while nothing
//! comes: one thread for each world whose ranks are driven as futures.

use std::sync::{Arc, OnceLock, Weak};
use std::thread;
use std::time::Duration;

use crate::parker::Parker;

/// From one wake-up to the next: as long as a thread rests that waits.
const PERIOD: Duration = Duration::from_millis(20);

/// Whether a thread ticks; not known before it is first asked for.
#[derive(Debug, Default)]
pub(crate) struct Ticker(OnceLock<bool>);

impl Ticker {
    /// Sees that a thread wakes the tasks registered with `parkers` as long as those live; `false`
    /// if the system refused one.
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
