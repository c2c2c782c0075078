//! Ranks that are refused a frame, and the actions that must wake them.

use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use foldwire::transport::{MIN_FRAME_BYTES, Rank};
use loom::thread;

use super::explore;
use crate::frame::Frame;
use crate::parker::Parker;
use crate::pool::{CACHED, FramePool};

/// Creates a pool and the ranks' parkers. The pool may hand out only [`CACHED`] frames for each
/// rank.
fn pool(n_ranks: usize) -> (Arc<FramePool>, Arc<[Parker]>) {
    let parkers: Arc<[Parker]> = (0..n_ranks).map(|_| Parker::default()).collect();
    (FramePool::new(MIN_FRAME_BYTES, 0, Arc::clone(&parkers)), parkers)
}

fn take(pool: &Arc<FramePool>, rank: usize) -> Option<Frame> {
    match pool.poll_take(&mut Vec::new(), Rank::new(rank)) {
        Poll::Ready(frame) => Some(frame.expect("there is memory")),
        Poll::Pending => None,
    }
}

/// Takes a frame; sleeps until there is one.
fn wait_for_frame(pool: &Arc<FramePool>, parkers: &[Parker], rank: usize) -> Frame {
    loop {
        let seen = parkers[rank].epoch();
        if let Some(frame) = take(pool, rank) {
            return frame;
        }
        parkers[rank].park(seen, Duration::MAX);
    }
}

/// Takes all frames that the pool may hand out.
fn take_all(pool: &Arc<FramePool>) -> Vec<Frame> {
    let n_frames = CACHED * 2;
    (0..n_frames).map(|_| take(pool, 1).expect("the limit is not reached")).collect()
}

/// A rank that was refused a frame is woken when another rank recycles one, drops one, or makes a
/// link.
#[test]
fn a_freed_frame_wakes_whoever_waits() {
    for how in ["recycled", "dropped", "allowed"] {
        explore(&format!("pool, a frame is {how}"), None, move || {
            let (pool, parkers) = pool(2);
            let mut held = take_all(&pool);
            let spare = held.pop();
            let other = {
                let pool = Arc::clone(&pool);
                thread::spawn(move || match how {
                    "recycled" => pool.give_all(spare.into_iter()),
                    "dropped" => drop(spare),
                    _ => {
                        pool.raise_limit(1);
                        std::mem::forget(spare);
                    }
                })
            };
            drop(wait_for_frame(&pool, &parkers, 0));
            other.join().unwrap();
        });
    }
}

/// A rank that recycles more frames than it may keep passes some to a waiting rank, even if the
/// rank that recycles has not seen that another waits.
#[test]
fn frames_beyond_a_cache_reach_whoever_waits() {
    explore("pool, recycled through a cache", None, || {
        let (pool, parkers) = pool(2);
        let mut held = take_all(&pool);
        let given = held.split_off(CACHED - 1);
        assert!(given.len() > CACHED);
        let other = {
            let pool = Arc::clone(&pool);
            thread::spawn(move || {
                let mut cache = Vec::new();
                for frame in given {
                    pool.give(&mut cache, frame);
                }
                cache
            })
        };
        drop(wait_for_frame(&pool, &parkers, 0));
        drop(other.join().unwrap());
    });
}

/// Two waiting ranks both get a frame when two frames return one after the other.
#[test]
fn nobody_who_waits_is_forgotten() {
    explore("pool, two wait", Some(3), || {
        let (pool, parkers) = pool(2);
        let mut held = take_all(&pool);
        let spares = [held.pop(), held.pop()];
        let waiter = {
            let (pool, parkers) = (Arc::clone(&pool), Arc::clone(&parkers));
            thread::spawn(move || std::mem::forget(wait_for_frame(&pool, &parkers, 1)))
        };
        let giver = {
            let pool = Arc::clone(&pool);
            thread::spawn(move || {
                for spare in spares {
                    pool.give_all(spare.into_iter());
                }
            })
        };
        std::mem::forget(wait_for_frame(&pool, &parkers, 0));
        waiter.join().unwrap();
        giver.join().unwrap();
    });
}
