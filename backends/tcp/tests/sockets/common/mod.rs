//! Code that the tests share: ranks as threads, and a proxy between them that injects faults.

pub(crate) mod proxy;

use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use foldwire::transport::Rank;
use foldwire::{Communicator, Op, Plan};
use foldwire_bootstrap::{Exchange, MemoryStore, StoreExchange, StorePlace, Token};
use foldwire_tcp::fuzzing::OpaqueOffer;
use foldwire_tcp::{Endpoint, JoinError, Settings, join};

/// Longest time that any step of a test may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// Settings of tests, with short waits, and all bytes through sockets.
pub(crate) fn settings() -> Settings {
    let mut settings = Settings::default().share_memory(false);
    settings.options.grace = Duration::from_millis(100);
    settings.options.frame_bytes = 20_000;
    settings.limit = Duration::from_secs(5);
    settings
}

pub(crate) fn token(text: &str) -> Token {
    Token::new(text).unwrap()
}

/// Settings with and without encryption and shared memory, with one and with several connections.
pub(crate) fn variants() -> Vec<Settings> {
    let plain = [settings(), settings().streams(3)];
    let encrypted = plain.clone().map(|settings| settings.encrypt(true));
    let shared = settings().streams(2).share_memory(true);
    let can_encrypt = cfg!(feature = "noise");
    let encrypted = encrypted.into_iter().filter(|_| can_encrypt);
    plain.into_iter().chain([shared]).chain(encrypted).collect()
}

/// Exchange of a rank whose group meets in memory.
pub(crate) type MemoryExchange = StoreExchange<MemoryStore>;

/// Returns the exchanges of `size` ranks, in rank order.
pub(crate) fn exchanges(size: usize) -> impl Iterator<Item = MemoryExchange> {
    let store = MemoryStore::default();
    (0..size).map(move |rank| {
        let place = StorePlace { limit: PATIENCE, ..StorePlace::new(rank, size, "test") };
        StoreExchange::new(store.clone(), place).unwrap()
    })
}

/// Runs `program` on `size` ranks, each with its exchange, and returns the results in rank order.
pub(crate) fn ranks<T: Send>(size: usize, program: impl Fn(MemoryExchange) -> T + Sync) -> Vec<T> {
    thread::scope(|scope| {
        let program = &program;
        let threads: Vec<_> =
            exchanges(size).map(|rank| scope.spawn(move || program(rank))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// Runs `program` on `size` ranks that have joined.
pub(crate) fn endpoints<T: Send>(
    size: usize,
    settings: &Settings,
    program: impl Fn(Endpoint) -> T + Sync,
) -> Vec<T> {
    ranks(size, |mut exchange| program(join(settings, &mut exchange).unwrap()))
}

/// Joins with each rank's settings, and returns the results.
pub(crate) fn outcomes(
    size: usize,
    settings: impl Fn(Rank) -> Settings + Sync,
) -> Vec<Result<(), JoinError>> {
    ranks(size, |mut exchange| join(&settings(exchange.rank()), &mut exchange).map(drop))
}

/// Number of correct sums, error of the next one, and the time that it took.
pub(crate) type Sums = (usize, Option<foldwire::Error>, Duration);

/// Sums until a call fails, or `n_calls` times.
pub(crate) fn sums(comm: &mut Communicator<Endpoint>, n_calls: usize) -> Sums {
    let size = comm.size() as f32;
    for n_right in 0..n_calls {
        let mut values: Vec<f32> = (0..50_000).map(|i| (i % 1000) as f32).collect();
        let start = Instant::now();
        if let Err(error) = comm.all_reduce(&mut values, Op::Sum, &Plan::raw()) {
            return (n_right, Some(error), start.elapsed());
        }
        let is_right = |(i, &x): (usize, &f32)| x == (i % 1000) as f32 * size;
        assert!(values.iter().enumerate().all(is_right), "a wrong sum in call {n_right}");
    }
    (n_calls, None, Duration::ZERO)
}

/// An exchange in which a rank changes its own offer, or sees it before others do.
pub(crate) struct TamperedExchange<F> {
    pub(crate) inner: MemoryExchange,
    /// Changes the first input of this rank.
    pub(crate) tamper: Option<F>,
}

impl<F: FnOnce(&mut Vec<u8>)> Exchange for TamperedExchange<F> {
    type Error = foldwire_bootstrap::Error;

    fn rank(&self) -> Rank {
        self.inner.rank()
    }

    fn size(&self) -> usize {
        self.inner.size()
    }

    fn all_gather(&mut self, mine: &[u8]) -> Result<Vec<Vec<u8>>, Self::Error> {
        let mut mine = mine.to_vec();
        if let Some(tamper) = self.tamper.take() {
            tamper(&mut mine);
        }
        self.inner.all_gather(&mine)
    }
}

/// Returns the address in an offer.
pub(crate) fn address_in(offer: &[u8]) -> SocketAddr {
    OpaqueOffer::decode(offer).unwrap().address()
}

/// For [`TamperedExchange`]: makes each rank appear to be on a machine of its own.
pub(crate) fn apart(rank: Rank, token: &Token) -> impl FnOnce(&mut Vec<u8>) {
    move |mine| {
        let offer = OpaqueOffer::decode(mine).unwrap();
        let address = offer.address();
        *mine = offer.moved(&format!("machine {rank}"), address, Some(token)).encode();
    }
}
