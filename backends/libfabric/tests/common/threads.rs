//! Ranks as threads, with an in-memory [`Exchange`].

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::{Arc, Barrier, Mutex};
use std::thread;

use foldwire::Rank;
use foldwire_bootstrap::Exchange;

/// State shared by the ranks of a test.
struct SharedBoard {
    barrier: Barrier,
    /// Message of each rank in each round.
    messages: Mutex<HashMap<(usize, u32), Vec<u8>>>,
}

/// Exchange of one rank over the board.
pub struct InMemory {
    rank: u32,
    size: usize,
    n_rounds: usize,
    board: Arc<SharedBoard>,
}

impl Exchange for InMemory {
    type Error = Infallible;

    fn rank(&self) -> Rank {
        Rank(self.rank)
    }

    fn size(&self) -> usize {
        self.size
    }

    fn all_gather(&mut self, mine: &[u8]) -> Result<Vec<Vec<u8>>, Infallible> {
        let round = self.n_rounds;
        self.n_rounds += 1;
        self.board.messages.lock().unwrap().insert((round, self.rank), mine.to_vec());
        self.board.barrier.wait();
        let messages = self.board.messages.lock().unwrap();
        Ok((0..self.size as u32).map(|rank| messages[&(round, rank)].clone()).collect())
    }
}

/// Runs `program` on `size` ranks, each with its own exchange.
pub fn ranks<T: Send>(size: usize, program: impl Fn(InMemory) -> T + Sync) -> Vec<T> {
    let board = Arc::new(SharedBoard { barrier: Barrier::new(size), messages: Mutex::default() });
    thread::scope(|scope| {
        let threads: Vec<_> = (0..size as u32)
            .map(|rank| {
                let exchange = InMemory { rank, size, n_rounds: 0, board: Arc::clone(&board) };
                let program = &program;
                scope.spawn(move || program(exchange))
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}
