//! Measures the message layer's latency and bandwidth between two processes on this host, by
//! message size.
//!
//! `cargo run --release -p foldwire-libfabric --example pingpong -- PROVIDER [SECONDS]`
//!
//! *Latency* is half a round trip. *Bandwidth* is the rate of a stream in one direction with a
//! window of 8 messages. Each is the median of 9 repetitions.

#[path = "../tests/common/pipes.rs"]
mod pipes;

use std::error::Error;
use std::time::{Duration, Instant};

use foldwire::transport::{Rank, Tag};
use foldwire_bootstrap::Exchange;
use foldwire_libfabric::{Fabric, MessageBuffer, Settings};
use foldwire_messaging::{Event, Net, Refused, Source};

type BoxResult<T> = Result<T, Box<dyn Error>>;

const SIZES: [usize; 8] = [64, 1 << 10, 1 << 12, 1 << 14, 1 << 16, 1 << 18, 1 << 20, 1 << 22];
const WINDOW: usize = 8;
const REPETITIONS: usize = 9;
const TAG: Tag = Tag(0);

fn main() -> BoxResult<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let provider = args.first().ok_or("usage: pingpong PROVIDER [SECONDS]")?;
    let seconds: f64 = args.get(1).map_or(Ok(0.2), |text| text.parse())?;
    let settings = Settings::from_env()?.provider(provider);
    let arguments: Vec<&str> = args.iter().map(String::as_str).collect();
    let exchange = pipes::SharedPipes::open(2, &arguments)?;
    let is_child = exchange.rank() == Rank(1);
    let mut net = Fabric::join(&settings, exchange.clone())?;
    if is_child {
        return SIZES.into_iter().try_for_each(|size| measure(&mut net, size, seconds).map(|_| ()));
    }
    println!("{}", net.provider());
    println!("{:>9} {:>12} {:>10}", "bytes", "latency µs", "GB/s");
    for size in SIZES {
        let (latency, rate) = measure(&mut net, size, seconds)?;
        println!("{size:>9} {:>12.2} {:>10.2}", latency * 1e6, rate / 1e9);
    }
    exchange.wait()?;
    Ok(())
}

/// Returns the median latency in seconds and bandwidth in bytes per second.
fn measure(net: &mut Fabric, size: usize, seconds: f64) -> BoxResult<(f64, f64)> {
    let mut test = PingPong::new(net, size)?;
    let each = seconds / REPETITIONS as f64;
    // Each repetition lasts a fixed time. Rank 0 decides when it ends, and marks the last message
    // for rank 1.
    let mut latencies = Vec::new();
    let mut rates = Vec::new();
    for _ in 0..REPETITIONS {
        latencies.push(test.ping_pong(each)?);
        rates.push(test.stream(each)?);
    }
    while test.n_in_flight > 0 {
        test.poll()?;
    }
    latencies.sort_by(f64::total_cmp);
    rates.sort_by(f64::total_cmp);
    Ok((latencies[REPETITIONS / 2], rates[REPETITIONS / 2]))
}

/// The test's connection to the other process, with its buffers.
struct PingPong<'n> {
    net: &'n mut Fabric,
    size: usize,
    peer: Rank,
    free: Vec<MessageBuffer>,
    n_arrived: usize,
    /// Sent messages that the network has not released.
    n_in_flight: usize,
    /// The last message was marked as the last one.
    is_last: bool,
}

impl<'n> PingPong<'n> {
    fn new(net: &'n mut Fabric, size: usize) -> BoxResult<Self> {
        let peer = Rank(1 - net.rank().0);
        // Two windows of messages on their way, and two posted receives for acknowledgements.
        let free = (0..2 * WINDOW + 2).map(|_| net.allocate(size)).collect::<Result<_, _>>()?;
        Ok(Self { net, size, peer, free, n_arrived: 0, n_in_flight: 0, is_last: false })
    }

    fn is_first(&self) -> bool {
        self.net.rank() == Rank(0)
    }

    fn poll(&mut self) -> BoxResult<()> {
        match self.net.poll()? {
            Some(Event::Released { buffer, .. }) => {
                self.n_in_flight -= 1;
                self.free.push(buffer);
            }
            Some(Event::Returned { buffer }) => self.free.push(buffer),
            Some(Event::Matched { .. }) => {}
            Some(Event::Received { buffer, .. }) => {
                self.n_arrived += 1;
                self.is_last = buffer.as_ref()[0] == 1;
                self.free.push(buffer);
            }
            Some(Event::Lost { peer } | Event::Left { peer }) => {
                return Err(format!("rank {peer} is lost").into());
            }
            None => self.net.idle(Duration::from_millis(1)),
        }
        Ok(())
    }

    fn buffer(&mut self) -> BoxResult<MessageBuffer> {
        loop {
            match self.free.pop() {
                Some(buffer) => return Ok(buffer),
                None => self.poll()?,
            }
        }
    }

    fn send(&mut self, n_bytes: usize, is_last: bool) -> BoxResult<()> {
        let mut buffer = self.buffer()?;
        buffer.as_mut()[0] = u8::from(is_last);
        // The last argument of `Net::send`, `matched`, is false: the network may release the buffer
        // before the peer has posted its receive.
        loop {
            match self.net.send(self.peer, TAG, buffer, n_bytes, false) {
                Ok(()) => {
                    self.n_in_flight += 1;
                    return Ok(());
                }
                Err(Refused::Busy(refused)) => buffer = refused,
                Err(Refused::Failed(_, error)) => return Err(error.into()),
            }
            self.poll()?;
        }
    }

    fn post(&mut self) -> BoxResult<()> {
        let mut buffer = self.buffer()?;
        loop {
            match self.net.recv(Source::Rank(self.peer), TAG, buffer) {
                Ok(()) => return Ok(()),
                Err(Refused::Busy(refused)) => buffer = refused,
                Err(Refused::Failed(_, error)) => return Err(error.into()),
            }
            self.poll()?;
        }
    }

    fn receive(&mut self) -> BoxResult<()> {
        self.post()?;
        self.wait_for(1)
    }

    fn wait_for(&mut self, n: usize) -> BoxResult<()> {
        while self.n_arrived < n {
            self.poll()?;
        }
        self.n_arrived -= n;
        Ok(())
    }

    /// Returns the latency in seconds.
    fn ping_pong(&mut self, seconds: f64) -> BoxResult<f64> {
        let start = Instant::now();
        let mut n_trips = 0.0;
        loop {
            if self.is_first() {
                let is_last = n_trips >= 4.0 && start.elapsed().as_secs_f64() > seconds;
                self.send(self.size, is_last)?;
                self.receive()?;
            } else {
                self.receive()?;
                self.send(self.size, self.is_last)?;
            }
            n_trips += 1.0;
            if self.is_last {
                return Ok(start.elapsed().as_secs_f64() / n_trips / 2.0);
            }
        }
    }

    /// Returns the rate in bytes per second from rank 0 to rank 1, which acknowledges each window.
    /// On rank 1, returns 0.
    fn stream(&mut self, seconds: f64) -> BoxResult<f64> {
        let start = Instant::now();
        let mut n_windows = 0.0;
        loop {
            if self.is_first() {
                let is_last = n_windows >= 4.0 && start.elapsed().as_secs_f64() > seconds;
                for _ in 0..WINDOW {
                    self.send(self.size, is_last)?;
                }
                // Keep one window ahead of the acknowledgements.
                self.post()?;
                if n_windows > 0.0 {
                    self.wait_for(1)?;
                }
                n_windows += 1.0;
                if is_last {
                    self.wait_for(1)?;
                    let n_bytes = n_windows * (WINDOW * self.size) as f64;
                    return Ok(n_bytes / start.elapsed().as_secs_f64());
                }
            } else {
                for _ in 0..WINDOW {
                    self.post()?;
                }
                self.wait_for(WINDOW)?;
                let is_last = self.is_last;
                self.send(1, is_last)?;
                if is_last {
                    return Ok(0.0);
                }
            }
        }
    }
}
