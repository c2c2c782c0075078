//! Shared by the tests: ranks as processes or threads, and a driver of one message layer.

#![allow(unreachable_pub, dead_code, reason = "each test program uses only parts of it")]

pub mod pipes;
pub mod threads;

use std::io::Write;
use std::process;
use std::process::Command;
use std::time::{Duration, Instant};

use foldwire::transport::{Rank, Tag};
use foldwire_bootstrap::Exchange;
use foldwire_libfabric::{Endpoint, Error, Fabric, MessageBuffer, Settings, join, providers};
use foldwire_messaging::{Event, Net, Refused, Source};

/// Time limit of each wait.
pub const TIME_LIMIT: Duration = Duration::from_secs(60);

/// A test, by its name in this program, and its provider.
#[derive(Clone, Copy)]
pub struct Test {
    pub name: &'static str,
    pub provider: &'static str,
}

impl Test {
    /// Runs `program` on `size` ranks that are joined over the provider. Each rank is a process
    /// that runs this test. All ranks must succeed, except ranks reported as lost. Without the
    /// provider, prints a note and does nothing.
    ///
    /// The ranks are processes, because libfabric's shared memory allows one rank in each.
    pub fn run(self, size: u32, program: impl Fn(Driver)) {
        self.run_with(size, |exchange| exchange, program);
    }

    /// As [`run`](Self::run), with an exchange that `adapt` makes from the usual one.
    pub fn run_with<X: Exchange + 'static>(
        self,
        size: u32,
        adapt: impl Fn(pipes::SharedPipes) -> X,
        program: impl Fn(Driver),
    ) {
        self.run_joined(size, |settings, exchange| {
            program(Driver::new(Fabric::join(settings, adapt(exchange)).unwrap()));
        });
    }

    /// As [`run`](Self::run), with a transport.
    pub fn run_transport(self, size: u32, program: impl Fn(Endpoint)) {
        self.run_joined(size, |settings, exchange| program(join(settings, exchange).unwrap()));
    }

    fn run_joined(self, size: u32, program: impl Fn(&Settings, pipes::SharedPipes)) {
        if let Some(reason) = missing(self.provider) {
            // Not with `println`, because the harness hides its output when a test passes.
            let line = format!("skipped: provider {}: {reason}\n", self.provider);
            std::io::stdout().write_all(line.as_bytes()).unwrap();
            return;
        }
        let args = ["--exact", self.name, "--nocapture", "--test-threads=1"];
        let exchange = pipes::SharedPipes::open(size, &args).unwrap();
        program(&Settings::default().provider(self.provider), exchange.clone());
        if exchange.rank() > Rank(0) {
            process::exit(0);
        }
        assert_eq!(exchange.wait().unwrap(), [], "these ranks failed");
    }
}

/// Returns the reason why this libfabric has no such provider. A provider that libfabric's
/// `fi_info` finds must be usable here.
pub fn missing(provider: &str) -> Option<String> {
    let all = providers(&Settings::default());
    let reason = match all.iter().find(|found| found.name == provider) {
        None => Some("unknown".to_owned()),
        Some(found) => found.offer.as_ref().err().map(ToString::to_string),
    };
    let fi_info = Command::new("fi_info").args(["-p", provider, "-t", "FI_EP_RDM"]).output();
    let is_found = fi_info.is_ok_and(|output| output.status.success());
    assert!(!is_found || reason.is_none(), "fi_info finds {provider}; here it is {reason:?}");
    reason
}

/// A received message.
#[derive(Debug, PartialEq, Eq)]
pub struct Message {
    pub from: Rank,
    pub tag: Tag,
    pub bytes: Vec<u8>,
}

/// A message layer and the events that it returned.
pub struct Driver {
    pub net: Fabric,
    pub arrived: Vec<Message>,
    pub lost: Vec<Rank>,
    pub n_released: usize,
    pub n_returned: usize,
    /// Sends that were refused as busy.
    pub n_busy: usize,
}

impl Driver {
    pub fn new(net: Fabric) -> Self {
        Self { net, arrived: Vec::new(), lost: Vec::new(), n_released: 0, n_returned: 0, n_busy: 0 }
    }

    /// Polls once. Returns whether there was an event.
    pub fn poll(&mut self) -> Result<bool, Error> {
        match self.net.poll()? {
            None => {
                self.net.idle(Duration::from_millis(1));
                return Ok(false);
            }
            Some(Event::Released { .. }) => self.n_released += 1,
            Some(Event::Returned { .. }) => self.n_returned += 1,
            Some(Event::Matched { .. }) => {}
            Some(Event::Lost { peer } | Event::Left { peer }) => self.lost.push(peer),
            Some(Event::Received { from, tag, buffer, n_bytes }) => {
                let bytes = buffer.as_ref()[..n_bytes].to_vec();
                self.arrived.push(Message { from, tag, bytes });
            }
        }
        Ok(true)
    }

    /// Polls until `done`.
    #[track_caller]
    pub fn until(&mut self, done: impl Fn(&Self) -> bool) {
        let start = Instant::now();
        while !done(self) {
            self.poll().unwrap();
            assert!(start.elapsed() < TIME_LIMIT, "no event for too long");
        }
    }

    /// Polls for a while, whatever happens.
    pub fn linger(&mut self, time: Duration) {
        let start = Instant::now();
        while start.elapsed() < time {
            self.poll().unwrap();
        }
    }

    pub fn buffer(&mut self, n_bytes: usize) -> MessageBuffer {
        self.net.allocate(n_bytes).unwrap()
    }

    /// Sends a message, and repeats that until the network accepts it.
    #[track_caller]
    pub fn send(&mut self, to: Rank, tag: Tag, bytes: &[u8], matched: bool) {
        let mut buffer = self.buffer(bytes.len().max(1));
        buffer.as_mut()[..bytes.len()].copy_from_slice(bytes);
        let start = Instant::now();
        loop {
            match self.net.send(to, tag, buffer, bytes.len(), matched) {
                Ok(()) => return,
                Err(Refused::Busy(refused)) => buffer = refused,
                Err(Refused::Failed(_, error)) => panic!("{error}"),
            }
            self.n_busy += 1;
            self.poll().unwrap();
            assert!(start.elapsed() < TIME_LIMIT, "the network stays full");
        }
    }

    /// Posts a receive, and repeats that until the network accepts it.
    #[track_caller]
    pub fn post(&mut self, from: Source, tag: Tag, n_bytes: usize) {
        let mut buffer = self.buffer(n_bytes);
        let start = Instant::now();
        loop {
            match self.net.recv(from, tag, buffer) {
                Ok(()) => return,
                Err(Refused::Busy(refused)) => buffer = refused,
                Err(Refused::Failed(_, error)) => panic!("{error}"),
            }
            self.poll().unwrap();
            assert!(start.elapsed() < TIME_LIMIT, "the network stays full");
        }
    }

    /// Receives the next message on a link.
    #[track_caller]
    pub fn receive(&mut self, from: Rank, tag: Tag, n_bytes: usize) -> Vec<u8> {
        self.post(Source::Rank(from), tag, n_bytes);
        let is_it = |message: &Message| message.from == from && message.tag == tag;
        self.until(|driver| driver.arrived.iter().any(is_it));
        let at = self.arrived.iter().position(is_it).unwrap();
        self.arrived.remove(at).bytes
    }
}
