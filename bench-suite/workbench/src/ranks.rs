//! Ranks as threads of this process.

use foldwire_threads::World;

/// Ranks with links of this rate in bytes per second, each way. With `None`, links have the speed
/// of memory.
pub fn world(n_ranks: usize, link_rate: Option<f64>) -> World {
    let world = World::new(n_ranks);
    if let Some(rate) = link_rate { world.link_rate(rate) } else { world }
}
