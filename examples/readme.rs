//! README.md and docs/fabrics.md show code without its context. Here it compiles with that context.

use foldwire::HeapFrame;
use foldwire::transport::TransportError;
use foldwire::{Rank, Tag, Transport};
use std::task::Poll;
use std::time::{Duration, Instant};

trait Net {
    type Lost: TransportError;
    fn rank(&self) -> Rank;
    fn size(&self) -> usize;
    fn buffer(&mut self) -> Poll<Result<HeapFrame, Self::Lost>>;
    fn give_back(&mut self, frame: HeapFrame);
    fn room(&mut self, to: Rank, tag: Tag) -> Poll<Result<(), Self::Lost>>;
    fn push(&mut self, to: Rank, tag: Tag, frame: HeapFrame, n: usize) -> Result<(), Self::Lost>;
    fn pop(&mut self, from: Rank, tag: Tag) -> Poll<Result<(HeapFrame, usize), Self::Lost>>;
    fn queued(&self) -> Option<Rank>;
    fn pump(&mut self) -> Result<(), Self::Lost>;
    fn wait(&mut self, budget: Duration);
}

type Lost = foldwire_threads::Error;
type Polled<T> = Poll<Result<T, Lost>>;

struct Wire {
    net: Box<dyn Net<Lost = Lost>>,
    start: Instant,
}

#[rustfmt::skip]
impl Transport for Wire {
    type Frame = HeapFrame; // feature `alloc`; or memory of your network's, aligned to 64 bytes
    type Error = Lost;

    fn rank(&self) -> Rank { self.net.rank() }
    fn size(&self) -> usize { self.net.size() }
    fn frame_capacity(&self) -> usize { 65_536 }
    fn poll_frame(&mut self) -> Polled<HeapFrame> { self.net.buffer() } // Pending: none is free
    fn recycle(&mut self, frame: HeapFrame) { self.net.give_back(frame) }
    // Ready: the link accepts one more frame from the next send.
    fn poll_ready(&mut self, to: Rank, tag: Tag) -> Polled<()> { self.net.room(to, tag) }
    fn send(&mut self, to: Rank, tag: Tag, frame: HeapFrame, n_bytes: usize) -> Result<(), Lost> {
        self.net.push(to, tag, frame, n_bytes)
    }
    // Accepted frames arrive, in order for each (peer, tag).
    fn poll_recv(&mut self, from: Rank, tag: Tag) -> Polled<(HeapFrame, usize)> {
        self.net.pop(from, tag)
    }
    // A rank whose accepted frames have not all left yet. The call ends once there is none.
    fn undelivered(&self) -> Option<Rank> { self.net.queued() }
    fn progress(&mut self) -> Result<(), Lost> { self.net.pump() }
    fn now(&self) -> Duration { self.start.elapsed() }
    fn idle(&mut self, budget: Duration) { self.net.wait(budget) }
}

#[test]
fn the_transport_in_fabrics_is_the_one_that_compiles() {
    let here = include_str!("readme.rs");
    let (_, rest) = here.split_once("#[rustfmt::skip]\n").unwrap();
    let (shown, _) = rest.split_once("\n#[test]").unwrap();
    assert!(
        include_str!("../docs/fabrics.md").contains(shown),
        "fabrics.md shows another transport"
    );
    // `Wire` implements `Transport`.
    fn is_transport<X: Transport>() {}
    is_transport::<Wire>();
}

#[test]
fn the_program_in_readme_is_an_example() {
    let (_, program) = include_str!("sum.rs").split_once("\n\n").unwrap();
    let (program, _) = program.split_once("\n#[test]").unwrap();
    assert!(include_str!("../README.md").contains(program), "README shows another program");
}
