//! A transport that breaks its contract causes errors, never a panic, at any function and at any
//! time.
//!
//! One rank of a simulated group has such a transport. A panic in a poll ends the rank's program. A
//! panic in a drop after another panic would end this process.

use crate::faulty_transport::TransportLie::{Clock, Frames, Lengths, Messages, Peers, Rate, Size};
use foldwire::schedule::{Binomial, Schedule};
use foldwire::transport::{MAX_SIZE, TransportErrorKind};
use foldwire::{Collective, Communicator, Config, DType, Error, Rank, Tag, Transport};
use foldwire_sim::{End, NetSettings, World};
use foldwire_tests::case::ROUTES;
use foldwire_tests::{Case, Operation};
use std::cell::Cell;
use std::task::Poll;
use std::time::Duration;

const SIZE: usize = 4;
const LIAR: usize = 1;
const FRAME_BYTES: usize = 2048;

/// Ways in which the transport breaks its contract.
#[derive(Clone, Copy, Debug, PartialEq)]
enum TransportLie {
    /// Its empty frames have a defect.
    Frames(FrameDefect),
    /// Its received frames have a defect.
    Messages(FrameDefect),
    /// It reports this length for a message.
    Lengths(usize),
    /// It reports this size and rank.
    Size(usize, u32),
    /// It reports this frame capacity.
    Capacity(usize),
    /// Its clock jumps back and forth.
    Clock,
    /// It reports this link rate.
    Rate(f64),
    /// It fails, and names ranks that do not exist.
    Peers,
}

/// Defects of a frame.
#[derive(Clone, Copy, Debug, PartialEq)]
enum FrameDefect {
    /// It has this many bytes.
    Short(usize),
    /// It begins at this offset, and is shorter by the offset.
    Askew(usize),
    /// It begins at this offset, and has its full length.
    Shifted(usize),
    /// It has its full length for the first accesses, and then only some bytes: (accesses, bytes).
    Shrinks(usize, usize),
}

const LIES: &[TransportLie] = &[
    Frames(FrameDefect::Short(0)),
    Frames(FrameDefect::Short(63)),
    Frames(FrameDefect::Short(64)),
    Frames(FrameDefect::Short(FRAME_BYTES - 1)),
    Frames(FrameDefect::Askew(1)),
    Frames(FrameDefect::Shifted(4)),
    Frames(FrameDefect::Shrinks(1, 0)),
    Frames(FrameDefect::Shrinks(2, 0)),
    Frames(FrameDefect::Shrinks(2, 64)),
    Frames(FrameDefect::Shrinks(3, 70)),
    Frames(FrameDefect::Shrinks(4, 10)),
    Messages(FrameDefect::Short(0)),
    Messages(FrameDefect::Short(64)),
    Messages(FrameDefect::Short(FRAME_BYTES - 1)),
    Messages(FrameDefect::Askew(3)),
    Messages(FrameDefect::Shifted(8)),
    Messages(FrameDefect::Shrinks(2, 0)),
    Messages(FrameDefect::Shrinks(3, 65)),
    Messages(FrameDefect::Shrinks(4, 70)),
    Messages(FrameDefect::Shrinks(5, 0)),
    Lengths(0),
    Lengths(FRAME_BYTES + 1),
    Lengths(usize::MAX),
    Size(0, 0),
    Size(1, 0),
    Size(SIZE, SIZE as u32),
    Size(2, u32::MAX),
    Size(usize::MAX, 1),
    TransportLie::Capacity(0),
    TransportLie::Capacity(64),
    TransportLie::Capacity(FRAME_BYTES + 1),
    TransportLie::Capacity(usize::MAX),
    Clock,
    Rate(f64::NAN),
    Rate(-1.0),
    Peers,
];

/// A frame that may have a defect.
struct LiarFrame<F> {
    inner: F,
    damage: Option<FrameDefect>,
    n_looks: Cell<usize>,
}

impl<F: AsRef<[u8]>> LiarFrame<F> {
    /// Returns the range of bytes that this frame shows.
    fn range(&self) -> std::ops::Range<usize> {
        let len = self.inner.as_ref().len();
        self.n_looks.set(self.n_looks.get() + 1);
        match self.damage {
            Some(FrameDefect::Short(n)) => 0..n,
            // The inner frames are longer than the reported capacity.
            Some(FrameDefect::Askew(offset)) => offset..FRAME_BYTES,
            Some(FrameDefect::Shifted(offset)) => offset..FRAME_BYTES + offset,
            Some(FrameDefect::Shrinks(n_looks, n)) if self.n_looks.get() > n_looks => 0..n,
            _ => 0..len,
        }
    }
}

impl<F: AsRef<[u8]>> AsRef<[u8]> for LiarFrame<F> {
    fn as_ref(&self) -> &[u8] {
        &self.inner.as_ref()[self.range()]
    }
}

impl<F: AsRef<[u8]> + AsMut<[u8]>> AsMut<[u8]> for LiarFrame<F> {
    fn as_mut(&mut self) -> &mut [u8] {
        let range = self.range();
        &mut self.inner.as_mut()[range]
    }
}

/// A transport that breaks its contract after `n_honest` honest answers.
struct LyingTransport<X> {
    inner: X,
    lie: Option<TransportLie>,
    n_honest: Cell<usize>,
}

impl<X: Transport> LyingTransport<X> {
    /// Returns the lie, once it is time for it.
    fn lie(&self) -> Option<TransportLie> {
        match self.n_honest.get() {
            0 => self.lie,
            left => {
                self.n_honest.set(left - 1);
                None
            }
        }
    }

    fn frame(inner: X::Frame, damage: Option<FrameDefect>) -> LiarFrame<X::Frame> {
        LiarFrame { inner, damage, n_looks: Cell::new(0) }
    }

    fn empty(&self, inner: X::Frame) -> LiarFrame<X::Frame> {
        let damage = if let Some(Frames(damage)) = self.lie() { Some(damage) } else { None };
        Self::frame(inner, damage)
    }
}

/// An error, and the peer that it blames.
#[derive(Debug)]
struct LiarError(TransportErrorKind, Option<Rank>);

impl foldwire::transport::TransportError for LiarError {
    fn kind(&self) -> TransportErrorKind {
        self.0
    }

    fn peer(&self) -> Option<Rank> {
        self.1
    }
}

impl<X: Transport> LyingTransport<X> {
    fn error(error: &X::Error) -> LiarError {
        use foldwire::transport::TransportError;
        LiarError(error.kind(), error.peer())
    }

    /// Reports the loss of a peer if the lie is [`Peers`].
    fn fails(&self) -> Result<(), LiarError> {
        match self.lie() {
            Some(Peers) => Err(LiarError(TransportErrorKind::PeerLost, Some(Rank(u32::MAX)))),
            _ => Ok(()),
        }
    }
}

impl<X: Transport> Transport for LyingTransport<X> {
    type Frame = LiarFrame<X::Frame>;
    type Error = LiarError;

    fn rank(&self) -> Rank {
        match self.lie() {
            Some(Size(_, rank)) => Rank(rank),
            _ => self.inner.rank(),
        }
    }

    fn size(&self) -> usize {
        match self.lie() {
            Some(Size(size, _)) => size,
            _ => self.inner.size(),
        }
    }

    fn frame_capacity(&self) -> usize {
        match self.lie() {
            Some(TransportLie::Capacity(n_bytes)) => n_bytes,
            _ => FRAME_BYTES,
        }
    }

    fn poll_frame(&mut self) -> Poll<Result<Self::Frame, LiarError>> {
        let polled = self.inner.poll_frame().map_err(|error| Self::error(&error));
        polled.map_ok(|inner| self.empty(inner))
    }

    fn poll_ready(&mut self, to: Rank, tag: Tag) -> Poll<Result<(), LiarError>> {
        self.fails()?;
        self.inner.poll_ready(to, tag).map_err(|error| Self::error(&error))
    }

    fn send(
        &mut self,
        to: Rank,
        tag: Tag,
        frame: Self::Frame,
        n_bytes: usize,
    ) -> Result<(), LiarError> {
        self.inner.send(to, tag, frame.inner, n_bytes).map_err(|error| Self::error(&error))
    }

    fn poll_recv(&mut self, from: Rank, tag: Tag) -> Poll<Result<(Self::Frame, usize), LiarError>> {
        let polled = self.inner.poll_recv(from, tag).map_err(|error| Self::error(&error));
        polled.map_ok(|(inner, n_bytes)| match self.lie() {
            Some(Messages(damage)) => (Self::frame(inner, Some(damage)), n_bytes),
            Some(Lengths(n_bytes)) => (Self::frame(inner, None), n_bytes),
            _ => (Self::frame(inner, None), n_bytes),
        })
    }

    fn recycle(&mut self, frame: Self::Frame) {
        self.inner.recycle(frame.inner);
    }

    fn undelivered(&self) -> Option<Rank> {
        // Lie only at every second call. A transport that always lies would make the rank wait
        // forever, which the contract allows.
        match self.lie() {
            Some(Peers) if self.n_honest.replace(2).is_multiple_of(2) => Some(Rank(u32::MAX)),
            _ => self.inner.undelivered(),
        }
    }

    fn progress(&mut self) -> Result<(), LiarError> {
        self.inner.progress().map_err(|error| Self::error(&error))
    }

    fn nudge(&mut self) {
        self.inner.nudge();
    }

    fn now(&self) -> Duration {
        let now = self.inner.now();
        match self.lie() {
            Some(Clock) if now.subsec_nanos().is_multiple_of(2) => Duration::MAX,
            Some(Clock) => Duration::ZERO,
            _ => now,
        }
    }

    fn idle(&mut self, budget: Duration) {
        self.inner.idle(budget);
    }

    fn link_rate(&self) -> Option<f64> {
        match self.lie() {
            Some(Rate(rate)) => Some(rate),
            _ => self.inner.link_rate(),
        }
    }
}

/// Actions of a rank on its communicator.
#[derive(Clone, Copy, Debug, PartialEq)]
enum RankAction {
    /// Makes two calls, and shrinks.
    Call,
    /// Makes two calls, drops each after this many polls, and shrinks.
    Drop(usize),
}

async fn perform<X: Transport>(transport: X, case: Case, action: RankAction) -> Result<(), Error> {
    let config = Config::default().with_lanes(2).with_timeout(Duration::from_secs(1));
    let mut comm = Communicator::with_config(transport, config)?;
    let rank = comm.rank().index();
    let mut outcome = Ok(());
    for _ in 0..2 {
        let mut buffers = case.buffers::<f64>(rank);
        let mut operation = match case.start(&mut comm, &mut buffers) {
            Ok(operation) => operation,
            Err(error) => {
                outcome = Err(error);
                break;
            }
        };
        if let RankAction::Drop(n_polls) = action {
            for _ in 0..n_polls {
                let _ = operation.poll();
            }
            continue;
        }
        outcome = operation.await.map(|_| ());
        if outcome.is_err() {
            break;
        }
    }
    let shrunk = comm.start_shrink(Duration::from_secs(1))?.await;
    outcome.and(shrunk.map(|_| ()))
}

/// Runs a case on four ranks, where one rank lies after `n_honest` honest answers. Returns that
/// rank's result. No rank may panic.
fn outcome(
    case: &Case,
    action: RankAction,
    lie: TransportLie,
    n_honest: usize,
) -> Option<Result<(), Error>> {
    // Frames are longer than the reported capacity, so that a shifted frame still lies within one.
    let net = NetSettings {
        frame_bytes: FRAME_BYTES + 64,
        jump: Duration::from_millis(125),
        patience: Duration::from_secs(30),
        ..NetSettings::default()
    };
    let run = World::new(SIZE, 7).net(net).run(|endpoint| {
        let lie = (endpoint.rank().index() == LIAR).then_some(lie);
        let liar = LyingTransport { inner: endpoint, lie, n_honest: Cell::new(n_honest) };
        perform(liar, *case, action)
    });
    for (rank, end) in run.ends.iter().enumerate() {
        let panicked = matches!(end, End::Panicked(_));
        assert!(!panicked, "{case:?}, {action:?}, {lie:?} after {n_honest}, rank {rank}: {end:?}");
    }
    assert_eq!(run.n_leaked(), 0, "{case:?}, {action:?}, {lie:?} after {n_honest}");
    match run.ends.into_iter().nth(LIAR) {
        Some(End::Returned(outcome)) => Some(outcome),
        // By such a clock no time limit may ever pass, so the rank may wait forever.
        Some(End::Hung) if lie == Clock => None,
        other => panic!("{case:?}, {action:?}, {lie:?} after {n_honest}: {other:?}"),
    }
}

mod long {
    use super::*;

    #[test]
    fn no_lie_of_a_transport_panics_in_any_collective_shrink_or_drop() {
        let (mut n_runs, mut n_refused) = (0, 0);
        // Parts of the shorter array travel in bundles.
        for ((collective, schedule), count) in ROUTES.map(|route| (route, 900)).into_iter().chain([
            ((Collective::Scatter, &Binomial as &dyn Schedule), 60),
            ((Collective::Gather, &Binomial), 60),
        ]) {
            let root = SIZE - 1;
            let case = Case {
                collective,
                schedule,
                root,
                dtype: DType::F64,
                ..Case::all_reduce(SIZE, count)
            };
            let ops: &[Operation] = match collective.reduces() {
                true => &[Operation::Sum, Operation::Prod],
                false => &[Operation::Sum],
            };
            for (&op, &lie) in ops.iter().flat_map(|op| LIES.iter().map(move |lie| (op, lie))) {
                let case = Case { op, ..case };
                for n_honest in [0, 3, 10, 24, 25, 26, 27, 60, 120] {
                    let action =
                        [RankAction::Call, RankAction::Drop(1), RankAction::Drop(3)][n_runs % 3];
                    let outcome = outcome(&case, action, lie, n_honest);
                    n_refused += usize::from(outcome.is_some_and(|outcome| outcome.is_err()));
                    n_runs += 1;
                }
                n_runs += 1;
            }
        }
        assert!(n_refused > 1000, "{n_refused}");
    }
}

/// An impossible rank or size is refused as misuse when the communicator is made.
#[test]
fn a_rank_or_size_that_cannot_be_is_misuse_from_the_start() {
    let case = Case { dtype: DType::F64, ..Case::all_reduce(SIZE, 900) };
    let misuse = Error::Transport { kind: TransportErrorKind::Misuse, peer: None };
    for (size, rank) in [(0, 0), (SIZE, SIZE as u32), (2, u32::MAX), (MAX_SIZE + 1, 1)] {
        let found = outcome(&case, RankAction::Call, Size(size, rank), 0);
        assert_eq!(found, Some(Err(misuse)), "{size} ranks, rank {rank}");
    }
    let found = outcome(&case, RankAction::Call, TransportLie::Capacity(1000), 0);
    assert!(matches!(found, Some(Err(Error::FrameTooSmall { need: 1024, have: 1000 }))));
}

/// A rank that finds a frame defect reports misuse, and its peers learn that the call was aborted.
#[test]
fn frames_that_are_none_are_misuse() {
    let case = Case { dtype: DType::F64, ..Case::all_reduce(SIZE, 900) };
    let misuse = Error::Transport { kind: TransportErrorKind::Misuse, peer: None };
    let damages = [FrameDefect::Short(64), FrameDefect::Askew(1), FrameDefect::Shifted(4)];
    let frames = damages.map(Frames).into_iter().chain(damages.map(Messages));
    for lie in frames.chain([Lengths(FRAME_BYTES + 1), Lengths(usize::MAX)]) {
        assert_eq!(outcome(&case, RankAction::Call, lie, 0), Some(Err(misuse)), "{lie:?}");
    }
}
