//! What the tests share: ranks as threads, and somebody between them who does harm.

#![allow(unreachable_pub, dead_code, reason = "each test program uses parts of it")]

pub mod proxy;

use std::thread;
use std::time::Duration;

use foldwire::transport::Rank;
use foldwire_bootstrap::{Error, Exchange, InProcess, Token};
use foldwire_tcp::{Endpoint, JoinError, Settings, join};

/// Longest time that anything may take.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// Settings of tests: short waits.
pub fn settings() -> Settings {
    let mut settings = Settings::default();
    settings.options.grace = Duration::from_millis(100);
    settings.options.frame_bytes = 20_000;
    settings.limit = Duration::from_secs(5);
    settings
}

pub fn token(text: &str) -> Token {
    Token::new(text).unwrap()
}

/// The ways to carry frames: plain and encrypted, by one connection and several.
pub fn ways() -> Vec<Settings> {
    let plain = [settings(), settings().streams(3)];
    let sealed = plain.clone().map(|settings| settings.encrypt(true));
    let is_there = cfg!(feature = "noise");
    plain.into_iter().chain(sealed.into_iter().filter(|_| is_there)).collect()
}

/// Runs `program` as each of `size` ranks, with what it needs to join; the results in rank order.
pub fn ranks<T: Send>(size: usize, program: impl Fn(InProcess) -> T + Sync) -> Vec<T> {
    thread::scope(|scope| {
        let program = &program;
        let threads: Vec<_> =
            InProcess::ranks(size).map(|rank| scope.spawn(move || program(rank))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// The same with transports.
pub fn endpoints<T: Send>(
    size: usize,
    settings: &Settings,
    program: impl Fn(Endpoint) -> T + Sync,
) -> Vec<T> {
    ranks(size, |mut exchange| program(join(settings, &mut exchange).unwrap()))
}

/// What became of joining.
pub fn outcomes(
    size: usize,
    settings: impl Fn(Rank) -> Settings + Sync,
) -> Vec<Result<(), JoinError>> {
    ranks(size, |mut exchange| join(&settings(exchange.rank()), &mut exchange).map(drop))
}

/// An exchange of which one rank changes what it hears in the first round: where others listen.
pub struct Mangling<F> {
    pub inner: InProcess,
    /// Gets what each rank said.
    pub mangle: Option<F>,
}

impl<F: FnOnce(&mut Vec<Vec<u8>>)> Exchange for Mangling<F> {
    type Error = Error;

    fn rank(&self) -> Rank {
        self.inner.rank()
    }

    fn size(&self) -> usize {
        self.inner.size()
    }

    fn all_gather(&mut self, mine: &[u8]) -> Result<Vec<Vec<u8>>, Error> {
        let mut all = self.inner.all_gather(mine)?;
        if let Some(mangle) = self.mangle.take() {
            mangle(&mut all);
        }
        Ok(all)
    }
}

/// The address in what a rank said, and what is around it.
pub fn address_in(said: &[u8]) -> [String; 3] {
    let text = String::from_utf8(said.to_vec()).unwrap();
    let mut lines = text.splitn(3, '\n').map(str::to_owned);
    [(); 3].map(|()| lines.next().unwrap())
}
