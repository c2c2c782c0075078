//! Transports between some processes of a simulated world, and the connector that makes them.
//!
//! Each planned group has a channel of the world to itself, as it has connections of its own over
//! TCP. A member that does not come in time counts as lost.

use foldwire::grow::Connector;
use foldwire::transport::{Rank, Tag, Transport, TransportError, TransportErrorKind};
use foldwire_sim::{Clock, Endpoint, Frame, Random};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

/// Channels of the world: the most groups that one run may plan.
pub const N_CHANNELS: usize = 200;
/// First byte of an offer of a process that knows the secret.
const SECRET: u8 = 0x5e;

/// One planned group.
#[derive(Debug, Default)]
struct PlannedGroup {
    channel: usize,
    /// By member, whether it has come.
    is_here: Vec<bool>,
}

/// State that all processes of a run share.
#[derive(Debug)]
pub struct Meeting {
    /// By the offers of its members.
    planned: RefCell<BTreeMap<Vec<u8>, PlannedGroup>>,
    random: RefCell<Random>,
}

impl Meeting {
    pub fn new(seed: u64) -> Self {
        Self { planned: RefCell::default(), random: RefCell::new(Random(seed)) }
    }
}

/// A process's endpoint, which its groups share.
pub type SharedEndpoint = Rc<RefCell<Endpoint>>;

/// A transport between some processes.
pub struct GroupTransport {
    endpoint: SharedEndpoint,
    pub channel: usize,
    own: usize,
    /// Processes by member; `None` for one that did not come.
    members: Vec<Option<Rank>>,
}

impl GroupTransport {
    /// The first group: the processes `0..size`.
    pub fn first(endpoint: SharedEndpoint, size: usize) -> Self {
        let own = endpoint.borrow().rank().index();
        let members = (0..size).map(|rank| Some(Rank::new(rank))).collect();
        Self { endpoint, channel: 0, own, members }
    }

    fn process(&self, member: Rank) -> Result<Rank, Failure> {
        let lost = Failure { kind: TransportErrorKind::PeerLost, peer: Some(member) };
        self.members.get(member.index()).copied().flatten().ok_or(lost)
    }

    fn failure(&self, error: foldwire_sim::Error) -> Failure {
        let at = |process| self.members.iter().position(|&member| member == Some(process));
        Failure { kind: error.kind(), peer: error.peer().and_then(at).map(Rank::new) }
    }

    fn tag(&self, tag: Tag) -> Tag {
        tag.of_channel(self.channel)
    }
}

/// Error of a [`GroupTransport`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Failure {
    kind: TransportErrorKind,
    peer: Option<Rank>,
}

impl TransportError for Failure {
    fn kind(&self) -> TransportErrorKind {
        self.kind
    }

    fn peer(&self) -> Option<Rank> {
        self.peer
    }
}

impl Transport for GroupTransport {
    type Frame = Frame;
    type Error = Failure;

    fn rank(&self) -> Rank {
        Rank::new(self.own)
    }

    fn size(&self) -> usize {
        self.members.len()
    }

    fn frame_capacity(&self) -> usize {
        self.endpoint.borrow().frame_capacity()
    }

    fn poll_frame(&mut self) -> Poll<Result<Frame, Failure>> {
        self.endpoint.borrow_mut().poll_frame().map_err(|error| self.failure(error))
    }

    fn n_frames(&self) -> Option<usize> {
        self.endpoint.borrow().n_frames()
    }

    fn poll_ready(&mut self, to: Rank, tag: Tag) -> Poll<Result<(), Failure>> {
        let (to, tag) = (self.process(to)?, self.tag(tag));
        self.endpoint.borrow_mut().poll_ready(to, tag).map_err(|error| self.failure(error))
    }

    fn send(&mut self, to: Rank, tag: Tag, frame: Frame, n_bytes: usize) -> Result<(), Failure> {
        let to = match self.process(to) {
            Ok(to) => to,
            Err(lost) => {
                self.endpoint.borrow_mut().recycle(frame);
                return Err(lost);
            }
        };
        let tag = self.tag(tag);
        let sent = self.endpoint.borrow_mut().send(to, tag, frame, n_bytes);
        sent.map_err(|error| self.failure(error))
    }

    fn poll_recv(&mut self, from: Rank, tag: Tag) -> Poll<Result<(Frame, usize), Failure>> {
        let (from, tag) = (self.process(from)?, self.tag(tag));
        self.endpoint.borrow_mut().poll_recv(from, tag).map_err(|error| self.failure(error))
    }

    fn recycle(&mut self, frame: Frame) {
        self.endpoint.borrow_mut().recycle(frame);
    }

    fn undelivered(&self) -> Option<Rank> {
        let process = self.endpoint.borrow().undelivered_of(self.channel)?;
        self.members.iter().position(|&member| member == Some(process)).map(Rank::new)
    }

    fn progress(&mut self) -> Result<(), Failure> {
        self.endpoint.borrow_mut().progress().map_err(|error| self.failure(error))
    }

    fn now(&self) -> Duration {
        self.endpoint.borrow().now()
    }

    fn idle(&mut self, _: Duration) {}
}

/// Makes transports between the processes of a run.
pub struct SimConnector {
    pub endpoint: SharedEndpoint,
    pub clock: Clock,
    pub meeting: Rc<Meeting>,
    /// True if the process does not know the secret.
    pub is_stranger: bool,
    /// Start of the current attempt to connect.
    pub since: Option<Duration>,
}

/// A process that cannot connect.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dead;

impl SimConnector {
    /// First byte of what this process offers and plans.
    fn secret(&self) -> u8 {
        if self.is_stranger { !SECRET } else { SECRET }
    }
}

impl Connector for SimConnector {
    type Transport = GroupTransport;
    type Error = Dead;

    fn now(&self) -> Duration {
        self.clock.now()
    }

    fn idle(&mut self, _: Duration) {}

    fn unique(&mut self) -> Result<u128, Dead> {
        let mut random = self.meeting.random.borrow_mut();
        let half = |random: &mut Random| random.below(usize::MAX) as u128;
        Ok(half(&mut random) << 64 | half(&mut random))
    }

    /// The process, and its number.
    fn offer(&mut self, unique: u128) -> Result<Vec<u8>, Dead> {
        let secret = self.secret();
        let process = self.endpoint.borrow().rank().0.to_le_bytes();
        Ok([&[secret][..], &process, &unique.to_le_bytes()].concat())
    }

    fn accepts(&self, unique: u128, offer: &[u8]) -> bool {
        offer.len() == 21 && offer[0] == SECRET && offer.ends_with(&unique.to_le_bytes())
    }

    fn prove(&self, _: &[u8]) -> Vec<u8> {
        vec![self.secret()]
    }

    fn is_proven(&self, _: &[u8], proof: &[u8]) -> bool {
        proof == [SECRET]
    }

    fn poll_connect(
        &mut self,
        rank: usize,
        offers: &[&[u8]],
        plan: &[u8],
        limit: Duration,
    ) -> Poll<Result<GroupTransport, Dead>> {
        if self.clock.is_dead() {
            return Poll::Ready(Err(Dead));
        }
        let now = self.clock.now();
        let since = *self.since.get_or_insert(now);
        let mut planned = self.meeting.planned.borrow_mut();
        let channel = planned.len() + 1;
        // Members of different plans do not meet.
        let group = planned
            .entry(plan.to_vec())
            .or_insert_with(|| PlannedGroup { channel, is_here: vec![false; offers.len()] });
        assert!(group.channel < N_CHANNELS, "too many groups");
        group.is_here[rank] = true;
        if !group.is_here.iter().all(|&is_here| is_here) && now - since <= limit {
            return Poll::Pending;
        }
        let members = offers.iter().zip(&group.is_here).map(|(offer, &is_here)| {
            let process = offer[1..5].try_into().map(u32::from_le_bytes).expect("four bytes");
            is_here.then_some(Rank(process))
        });
        let members = members.collect();
        self.since = None;
        let (endpoint, channel) = (Rc::clone(&self.endpoint), group.channel);
        Poll::Ready(Ok(GroupTransport { endpoint, channel, own: rank, members }))
    }
}
