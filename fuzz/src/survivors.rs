//! Any messages of one rank, the *liar*, while the other ranks form groups of survivors on a
//! simulated network: no panic, and an end in time. Ranks that count each other as members are in
//! the same group.
//!
//! ```text
//!   input:  ranks − 2, plus 16 × the liar (1 byte)  manner (1 byte)  delays (2 bytes)  acts
//!   manner: bit 0: the liar receives messages; 1: it stays to the end; 2: links hold one frame;
//!           3: frames leave only while their sender polls; 4: a call fails first; 5: checksums;
//!           6: the network refuses and delays
//!   act:    0 n                              waits for n/64 of the patience
//!           1 to tag n bytes[n]              sends these bytes
//!           2 to tag message[5]              sends a message
//!           3 to tag message[5] n (at byte)[n]   sends a message with n bytes replaced
//!           4 to tag how epoch round members     sends the last received message with changes, or
//!                    an empty message if none was received. Bit 0 of how: a view becomes a fence,
//!                    and a fence a view; bit 1: part 0 becomes 1, and 1 becomes 0. Adds epoch
//!                    and round to those of the message, and toggles these members
//!   message: kind  epoch (2 bytes)  members  round: bits 0–3; part: bit 4; checksum: bit 5
//! ```
//!
//! A *view* is the set of ranks that its sender counts among the survivors. A *fence* is the last
//! message on a link before messages of the survivors' group.
//!
//! `to` is a rank; a number that is not a rank means all ranks. A rank that lies can get others
//! excluded, and be in two groups of one epoch itself (docs/failures.md). So the assertions are
//! about pairs of ranks that do not lie.

use foldwire::frame::{CallHeader, HEADER_BYTES, Header, MessageKind};
use foldwire::op::OpCode;
use foldwire::pipeline;
use foldwire::schedule::{self, RecursiveDoubling};
use foldwire::transport::{MIN_FRAME_BYTES, Tag};
use foldwire::{Communicator, Config, Element, Error, Op, Plan, Rank, Shrink, Transport};
use foldwire_sim::{Clock, End, Endpoint, NetSettings, World};
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

/// Time that survivors wait for each other.
const PATIENCE: Duration = Duration::from_secs(1);
/// Time from the last lie within which a shrink must end. In each of three attempts, each of six
/// ranks runs out of patience with each of five others at most once, and the other ranks follow.
const LIMIT: Duration = PATIENCE.saturating_mul(100);
/// Number of lanes of each rank.
const LANES: usize = 2;
/// Most attempts of a rank to form a group and compute a sum in it.
const ROUNDS: usize = 3;
/// Most acts of the liar: more acts find nothing new and take longer.
const MAX_ACTS: usize = 48;
/// Most attempts of the liar to send a message.
const ASKS: usize = 16;

/// Scenario that an input describes.
#[derive(Debug)]
struct LiarScenario<'a> {
    size: usize,
    liar: usize,
    manner: u8,
    seed: u64,
    script: &'a [u8],
}

/// Facts that the honest ranks share, and the groups that they saw.
struct SurvivorLog {
    /// Time of the liar's last message.
    last_lie: Cell<Duration>,
    /// Number of honest ranks that have not ended.
    n_running: Cell<usize>,
    groups: RefCell<Vec<GroupRecord>>,
}

/// A group that a rank has formed.
#[derive(Debug)]
struct GroupRecord {
    rank: usize,
    epoch: u16,
    members: Vec<usize>,
}

/// Runs the target on an input.
///
/// # Panics
/// If a claim does not hold.
pub fn check(input: &[u8]) {
    let [ranks, manner, low, high, script @ ..] = input else { return };
    let size = 2 + usize::from(ranks % 16) % 5;
    let seed = u64::from(u16::from_le_bytes([*low, *high]));
    let liar = usize::from(ranks / 16) % size;
    let scenario = LiarScenario { size, liar, manner: *manner, seed, script };
    let log = SurvivorLog {
        last_lie: Cell::default(),
        n_running: Cell::new(size - 1),
        groups: RefCell::default(),
    };
    let world = World::new(size, scenario.seed).net(scenario.net());
    let run = world.run(async |endpoint| {
        if endpoint.rank().index() == scenario.liar {
            scenario.lie(endpoint, &log).await;
        } else {
            scenario.survive(endpoint, &log).await;
            log.n_running.set(log.n_running.get() - 1);
        }
    });
    for (rank, end) in run.ends.iter().enumerate() {
        assert_eq!(*end, End::Returned(()), "rank {rank} of {scenario:?}");
    }
    assert_eq!(run.n_leaked(), 0, "{scenario:?}");
    compare(&log.groups.borrow(), &scenario);
}

/// Asserts that ranks that count each other as members are in the same group.
fn compare(groups: &[GroupRecord], scenario: &LiarScenario<'_>) {
    for ours in groups {
        let counted_in = |theirs: &&GroupRecord| {
            theirs.epoch == ours.epoch && ours.members.contains(&theirs.rank)
        };
        for theirs in groups.iter().filter(counted_in) {
            assert_eq!(ours.members, theirs.members, "{ours:?}, {theirs:?}, {scenario:?}");
        }
    }
}

impl LiarScenario<'_> {
    const fn has(&self, bit: u8) -> bool {
        self.manner >> bit & 1 == 1
    }

    fn net(&self) -> NetSettings {
        let usual = NetSettings::default();
        NetSettings {
            depth: if self.has(2) { 1 } else { usual.depth },
            attended: self.has(3),
            // The network answers one query in 4 with "not yet", and skips one poll of a rank in 3.
            refusal: if self.has(6) { 4 } else { 0 },
            neglect: if self.has(6) { 3 } else { 0 },
            jitter: if self.has(6) { Duration::from_micros(300) } else { usual.jitter },
            frame_bytes: MIN_FRAME_BYTES,
            jump: PATIENCE / 8,
            ..usual
        }
    }

    /// Runs an honest rank.
    async fn survive(&self, endpoint: Endpoint, log: &SurvivorLog) {
        let (clock, own) = (endpoint.clock(), endpoint.rank().index());
        let config = Config::default()
            .with_lanes(LANES)
            .with_timeout(PATIENCE / 2)
            .with_checksum(self.has(5));
        let comm = Communicator::with_config(endpoint, config);
        let mut comm = comm.expect("frames are large enough");
        if self.has(4) {
            let _ = self.count(&mut comm, own).await;
        }
        for _ in 0..ROUNDS {
            let before = members(&comm);
            let here = comm.rank();
            let formed = match comm.start_shrink(PATIENCE) {
                Ok(shrink) => end_of(shrink, &clock, log).await,
                Err(error) => Err(error),
            };
            comm = match formed {
                Ok(comm) => comm,
                Err(error) => return check_error(error, here, before.len()),
            };
            let members = members(&comm);
            assert!(members.contains(&own) && members.iter().all(|rank| before.contains(rank)));
            let group = GroupRecord { rank: own, epoch: comm.epoch(), members: members.clone() };
            log.groups.borrow_mut().push(group);
            match self.count(&mut comm, own).await {
                // The liar may contribute anything.
                Ok(_) if members.contains(&self.liar) => return,
                Ok(counts) => {
                    let once = |rank: usize| f64::from(u8::from(members.contains(&rank)));
                    return assert!((0..self.size).map(once).eq(counts), "a sum over {members:?}");
                }
                Err(error) => assert!(!error.is_usage(), "{error}"),
            }
        }
    }

    /// Counts how often each rank takes part in a sum.
    async fn count(
        &self,
        comm: &mut Communicator<Endpoint>,
        own: usize,
    ) -> Result<Vec<f64>, Error> {
        let mut counts = vec![0.0; self.size];
        counts[own] = 1.0;
        comm.start(foldwire::Call::all_reduce(&mut counts, Op::Sum), &Plan::raw())?.await?;
        Ok(counts)
    }

    /// Runs the liar's script.
    async fn lie(&self, mut endpoint: Endpoint, log: &SurvivorLog) {
        let clock = endpoint.clock();
        let mut received = None;
        let script = LiarScript { rest: self.script, size: self.size, liar: self.liar };
        for act in script.take(MAX_ACTS) {
            match act {
                LiarAct::Wait(time) => clock.sleep(time).await,
                LiarAct::Say { to, tag, lie } => {
                    let (first, last) = to.map_or((0, self.size - 1), |rank| (rank, rank));
                    let message = match lie {
                        LiarMessage::New(message) => message,
                        LiarMessage::Answer(changes) => {
                            changes.of(self.liar, received.as_deref()).unwrap_or_default()
                        }
                    };
                    for to in (first..=last).filter(|&to| to != self.liar) {
                        say(&mut endpoint, &clock, Rank::new(to), tag, &message).await;
                    }
                    log.last_lie.set(clock.now());
                }
            }
            self.attend(&mut endpoint, &mut received);
        }
        while self.has(1) && log.n_running.get() > 0 {
            self.attend(&mut endpoint, &mut received);
            clock.sleep(PATIENCE / 8).await;
        }
    }

    /// Lets the liar's messages leave, and receives messages if the scenario says so. Keeps the
    /// last one.
    fn attend(&self, endpoint: &mut Endpoint, received: &mut Option<Vec<u8>>) {
        endpoint.progress().expect("no rank dies here");
        let links = (0..self.size).flat_map(|from| (0..Tag::COUNT).map(move |tag| (from, tag)));
        for (from, tag) in links.filter(|&(from, _)| self.has(0) && from != self.liar) {
            let (from, tag) = (Rank::new(from), Tag(tag as u16));
            while let Poll::Ready(Ok((frame, n_bytes))) = endpoint.poll_recv(from, tag) {
                *received = Some(frame.as_ref()[..n_bytes].to_vec());
                endpoint.recycle(frame);
            }
        }
    }
}

/// Sends a message, unless the link stays full for long.
async fn say(endpoint: &mut Endpoint, clock: &Clock, to: Rank, tag: Tag, message: &[u8]) {
    for _ in 0..ASKS {
        if let Poll::Ready(Ok(())) = endpoint.poll_ready(to, tag)
            && let Poll::Ready(Ok(mut frame)) = endpoint.poll_frame()
        {
            frame.as_mut()[..message.len()].copy_from_slice(message);
            endpoint.send(to, tag, frame, message.len()).expect("there is room");
            return;
        }
        clock.pause().await;
    }
}

/// Awaits the end of a shrink, which must come in time.
async fn end_of(
    mut shrink: Shrink<Endpoint>,
    clock: &Clock,
    log: &SurvivorLog,
) -> Result<Communicator<Endpoint>, Error> {
    let start = clock.now();
    poll_fn(|_| {
        let quiet = clock.now().saturating_sub(start.max(log.last_lie.get()));
        assert!(quiet < LIMIT, "the shrink does not end: {shrink:?}");
        shrink.poll()
    })
    .await
}

/// Asserts that the error is one that a shrink may return, and that it names another rank, if any.
/// A liar may use up the group numbers.
fn check_error(error: Error, own: Rank, size: usize) {
    let named = match error {
        Error::Excluded { rank } | Error::Stalled { rank, .. } | Error::Mismatch { rank, .. } => {
            rank
        }
        Error::TooManyGroups { .. } => return,
        other => panic!("a shrink must not return this error: {other}"),
    };
    assert!(named != own && named.index() < size, "rank {own} of {size}: {error}");
}

/// Returns the group's members as ranks of the transport.
fn members(comm: &Communicator<Endpoint>) -> Vec<usize> {
    let ranks = (0..comm.size()).map(Rank::new);
    ranks.filter_map(|rank| comm.transport_rank(rank)).map(Rank::index).collect()
}

/// One act of the liar.
enum LiarAct {
    Wait(Duration),
    Say {
        /// The receiver; `None` means all ranks.
        to: Option<usize>,
        tag: Tag,
        lie: LiarMessage,
    },
}

enum LiarMessage {
    New(Vec<u8>),
    /// The last received message, with these changes.
    Answer(MessageChanges),
}

struct MessageChanges {
    how: u8,
    epoch: u8,
    round: u8,
    members: u8,
}

impl MessageChanges {
    /// Returns a changed copy of the message.
    fn of(&self, liar: usize, message: Option<&[u8]>) -> Option<Vec<u8>> {
        let mut message = message?.to_vec();
        let mut header = Header::parse(&message, false).ok()?;
        header.kind = match header.kind {
            MessageKind::View if self.how & 1 == 1 => MessageKind::Fence,
            MessageKind::Fence if self.how & 1 == 1 => MessageKind::View,
            kind => kind,
        };
        header.from = Rank::new(liar);
        header.part ^= u32::from(self.how >> 1 & 1);
        header.call.epoch = header.call.epoch.wrapping_add(self.epoch.into());
        header.round = header.round.wrapping_add(self.round.into());
        if let Some(members) = message.get_mut(HEADER_BYTES) {
            *members ^= self.members;
            if matches!(header.kind, MessageKind::View | MessageKind::Fence) {
                header.n_values = members.count_ones();
            }
        }
        header.emit(&mut message, false);
        Some(message)
    }
}

struct LiarScript<'a> {
    rest: &'a [u8],
    size: usize,
    liar: usize,
}

impl<'a> LiarScript<'a> {
    fn byte(&mut self) -> Option<u8> {
        let (&byte, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(byte)
    }

    fn bytes(&mut self, n_bytes: usize) -> &'a [u8] {
        let (bytes, rest) = self.rest.split_at(n_bytes.min(self.rest.len()));
        self.rest = rest;
        bytes
    }

    fn message(&mut self) -> Option<Vec<u8>> {
        let [kind, low, high, members, flags] = *self.bytes(5) else { return None };
        let kind = match kind {
            4 => MessageKind::Call,
            5 => MessageKind::Message,
            6 => MessageKind::Grant,
            7 => MessageKind::Flush,
            kind => [MessageKind::Data, MessageKind::Abort, MessageKind::View, MessageKind::Fence]
                [usize::from(kind % 4)],
        };
        let is_of_shrink = matches!(kind, MessageKind::View | MessageKind::Fence);
        // The payload is a set of ranks, a contribution to a sum, an abort notice, or nothing.
        let payload = match kind {
            MessageKind::Data | MessageKind::Message => vec![members; self.size * size_of::<f64>()],
            // Any reason (byte 0), field that differs (byte 1), and culprit (from byte 4 on).
            MessageKind::Abort => {
                let mut notice = vec![0; 16];
                (notice[0], notice[1], notice[4]) = (members % 16, flags % 32, flags % 8);
                notice
            }
            MessageKind::Call | MessageKind::Grant | MessageKind::Flush => Vec::new(),
            MessageKind::View | MessageKind::Fence => vec![members],
        };
        let of_no_call = CallHeader {
            count: self.size as u64,
            ..CallHeader::of_no_call(0, u16::from_le_bytes([low, high]))
        };
        let of_a_sum = CallHeader {
            sequence: members.into(),
            dtype: f64::DTYPE,
            op: OpCode::Sum,
            pipeline: pipeline::RAW.code(),
            schedule: schedule::code(&RecursiveDoubling),
            lanes: LANES as u8,
            ..of_no_call
        };
        let header = Header {
            as_floats: false,
            kind,
            call: if is_of_shrink { of_no_call } else { of_a_sum },
            from: Rank::new(self.liar),
            part: u32::from(flags >> 4 & 1),
            round: u32::from(flags % 16),
            n_values: if is_of_shrink { members.count_ones() } else { self.size as u32 },
            n_bytes: payload.len() as u32,
            operands: u32::from(matches!(kind, MessageKind::Data | MessageKind::Message)),
        };
        let mut message = [&[0; HEADER_BYTES], &payload[..]].concat();
        header.emit(&mut message, flags >> 5 & 1 == 1);
        Some(message)
    }
}

impl Iterator for LiarScript<'_> {
    type Item = LiarAct;

    fn next(&mut self) -> Option<LiarAct> {
        let act = self.byte()? % 5;
        if act == 0 {
            return Some(LiarAct::Wait(PATIENCE * u32::from(self.byte()?) / 64));
        }
        let to = Some(usize::from(self.byte()?)).filter(|&rank| rank < self.size);
        let tag = Tag(u16::from(self.byte()?) % Tag::COUNT as u16);
        if act == 4 {
            let [how, epoch, round, members] = *self.bytes(4) else { return None };
            let lie = LiarMessage::Answer(MessageChanges { how, epoch, round, members });
            return Some(LiarAct::Say { to, tag, lie });
        }
        let message = if act == 1 {
            let n_bytes = self.byte()?.into();
            self.bytes(n_bytes).to_vec()
        } else {
            let mut message = self.message()?;
            let n_others = if act == 3 { self.byte()? } else { 0 };
            for _ in 0..n_others {
                let at = usize::from(self.byte()?) % message.len();
                message[at] = self.byte()?;
            }
            message
        };
        Some(LiarAct::Say { to, tag, lie: LiarMessage::New(message) })
    }
}
