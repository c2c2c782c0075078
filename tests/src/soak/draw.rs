//! Draws a scenario from a seed: group, network, calls and troubles.

use crate::Case;
use crate::case::{Choice, Deal};
use foldwire::kernel::Level;
use foldwire::schedule::{Schedule, TwoLevels};
use foldwire::transport::{FRAMES_PER_LANE, MAX_LANES, MIN_FRAME_BYTES};
use foldwire::{Config, Rank};
use foldwire_sim::{Fault, Harm, NetSettings, Random};
use std::fmt;
use std::time::Duration;

/// The time limit of every call.
pub(super) const TIMEOUT: Duration = Duration::from_secs(1);
/// Time that survivors wait for each other.
pub(super) const PATIENCE: Duration = TIMEOUT;
/// Longest delay that must not cause an error. Three of them stay below the limit.
const SHORT: Duration = TIMEOUT.checked_div(8).expect("not by zero");
/// Largest frame; short arrays still take several rounds.
const MAX_FRAME_BYTES: usize = 8192;

/// One run of the soak.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The seed that drew the scenario.
    pub seed: u64,
    /// Number of ranks.
    pub size: usize,
    /// The network.
    pub net: NetSettings,
    /// Lanes of every communicator.
    pub lanes: usize,
    /// Kernel level of each rank.
    pub levels: Vec<Level>,
    /// The calls on one communicator, in order.
    pub calls: Vec<Choice>,
    /// True if the calls run at once, not one after the other.
    pub at_once: bool,
    /// True if the calls are arrays of one group call. Only with `at_once`.
    pub grouped: bool,
    /// Number of concurrent calls that the communicator allows. Only with `at_once`.
    pub n_at_once: usize,
    /// Origin of the communicator. Only with `at_once`.
    pub origin: CommunicatorOrigin,
    /// True if a call has failed on the communicator's channels before.
    pub reuses: bool,
    /// Number of values that neighbors on a ring exchange before each call.
    pub halo: Option<usize>,
    /// Number of values in the messages that neighbors on a ring exchange while concurrent calls
    /// run.
    pub messages: Option<usize>,
    /// True if ranks leave when they are done; false if they wait for all ranks.
    pub leaves: bool,
    /// The troubles.
    pub troubles: Vec<Trouble>,
    /// True if ranks with an unusable communicator form a group of survivors at the end.
    pub shrinks: bool,
}

/// Origin of a communicator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommunicatorOrigin {
    /// The first communicator of the transport.
    Transport,
    /// Split from a communicator of the same ranks.
    Split,
    /// Split in the same way, and it knows which ranks share a node.
    Nodes,
}

/// One thing that goes wrong in a scenario.
#[derive(Clone, Copy, Debug)]
pub enum Trouble {
    /// A fault of the network, or of a whole rank.
    Net(Fault),
    /// A rank makes a call late.
    Late {
        /// The rank.
        rank: usize,
        /// The call.
        call: usize,
        /// The delay.
        by: Duration,
    },
    /// A rank makes a different call than the other ranks.
    Twist {
        /// The rank.
        rank: usize,
        /// The call.
        call: usize,
        /// The call that it makes instead.
        choice: Choice,
    },
    /// A rank is configured with another number of lanes.
    Lanes {
        /// The rank.
        rank: usize,
        /// Its number of lanes.
        lanes: usize,
    },
    /// A rank sends frames without checksums and requires none.
    Checksum {
        /// The rank.
        rank: usize,
    },
    /// A rank drops a running call, and continues.
    Drop {
        /// The rank.
        rank: usize,
        /// The call.
        call: usize,
        /// Number of polls before the drop.
        after: usize,
    },
}

impl Trouble {
    /// Name of the kind of trouble.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Net(fault) => fault.kind(),
            Self::Late { .. } => "late rank",
            Self::Twist { .. } => "other parameters",
            Self::Lanes { .. } => "other lanes",
            Self::Checksum { .. } => "other checksums",
            Self::Drop { .. } => "dropped call",
        }
    }

    fn draw(random: &mut Random, size: usize, calls: &[Choice]) -> Self {
        let rank = random.below(size);
        let call = random.below(calls.len());
        // Numbers of every order of magnitude are equally likely.
        let count = |random: &mut Random| (2f64.powf(6.0 * random.unit()) - 1.0) as usize;
        let delay = |random: &mut Random| {
            if random.one_in(2) {
                SHORT.mul_f64(random.unit())
            } else {
                TIMEOUT.mul_f64(1.0 + random.unit() * 3.0)
            }
        };
        let faulty = Rank::new(rank);
        match random.below(12) {
            0 => Self::Late { rank, call, by: delay(random) },
            1 => {
                let twisted = calls[call].twisted(random);
                // If ranks give counts, half of the twists change the counts.
                let mut fork = Random(!random.0);
                let by_counts = calls[call].has_counts() && fork.one_in(2);
                let recounted = calls[call].dealt(Deal::Uneven(fork.bits()));
                Self::Twist { rank, call, choice: if by_counts { recounted } else { twisted } }
            }
            2 => match random.below(3) {
                0 => Self::Lanes { rank, lanes: 1 + random.below(MAX_LANES) },
                1 => Self::Checksum { rank },
                _ => Self::Drop { rank, call, after: random.below(20) },
            },
            3 => Self::Net(Fault::Delay { rank: faulty, nth: count(random), by: delay(random) }),
            4 => {
                let lasting = if random.one_in(3) { None } else { Some(delay(random)) };
                Self::Net(Fault::Stall { rank: faulty, after: count(random), lasting })
            }
            5 => Self::Net(Fault::Death { rank: faulty, after: count(random) }),
            6 => {
                let silent = random.one_in(2);
                Self::Net(Fault::Cut { rank: faulty, nth: count(random), silent })
            }
            _ => {
                // A copy arrives only after `behind` more frames on its link, and few links have
                // many frames.
                let harm = match *random.pick(&Harm::ALL) {
                    Harm::Repeat { .. } => {
                        Harm::Repeat { behind: random.below(4) * random.below(3) }
                    }
                    harm => harm,
                };
                Self::Net(Fault::Harm { rank: faulty, nth: count(random), harm })
            }
        }
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Net(fault) => fault.fmt(f),
            Self::Late { rank, call, by } => write!(f, "late rank: {rank}, in call {call}, {by:?}"),
            Self::Twist { rank, call, .. } => {
                write!(f, "other parameters: rank {rank}, in call {call}")
            }
            Self::Lanes { rank, lanes } => write!(f, "other lanes: rank {rank}, {lanes}"),
            Self::Checksum { rank } => write!(f, "other checksums: rank {rank} has none"),
            Self::Drop { rank, call, after } => {
                write!(f, "dropped call: rank {rank}, call {call}, after {after} polls")
            }
        }
    }
}

impl Scenario {
    /// Draws the scenario of `seed`.
    #[must_use]
    pub fn draw(seed: u64) -> Self {
        let random = &mut Random(seed);
        let calls = (0..1 + random.below(3)).map(|_| Choice::draw(random)).collect();
        let mut scenario = Self::without_trouble(seed, calls, random);
        for _ in 0..*random.pick(&[0, 0, 1, 1, 1, 2, 3]) {
            scenario.add_trouble(random);
        }
        scenario
    }

    /// Makes the scenario that `bytes` describe. A fuzzer can cut, join and change them.
    ///
    /// The bytes are words of two bytes, and each word draws one thing: the numbers of calls and
    /// troubles, the delays, the group and network, each call, each trouble. Missing words are 0.
    #[must_use]
    pub fn of_bytes(bytes: &[u8]) -> Self {
        let mut words =
            bytes.chunks(2).map(|word| word.iter().rev().fold(0, |w, &b| w << 8 | u64::from(b)));
        let mut word = || words.next().unwrap_or(0);
        let numbers = word();
        let (n_calls, n_troubles) = (1 + numbers % 6, (numbers >> 8) % 5);
        let (seed, mut group) = (word(), Random(word()));
        let calls = (0..n_calls).map(|_| Choice::draw(&mut Random(word()))).collect();
        let mut scenario = Self::without_trouble(seed, calls, &mut group);
        for _ in 0..n_troubles {
            scenario.add_trouble(&mut Random(word()));
        }
        scenario
    }

    fn without_trouble(seed: u64, calls: Vec<Choice>, random: &mut Random) -> Self {
        // Large groups take long, so draw them rarely.
        let size = match calls[0].size() {
            size if size > 9 && !random.one_in(4) => 2 + size % 7,
            size => size,
        };
        let lanes = *random.pick(&[1, 2, 3, 4, MAX_LANES]);
        let mut net = net(random);
        let levels: Vec<Level> = Level::available().collect();
        let levels = (0..size).map(|_| *random.pick(&levels)).collect();
        let (leaves, shrinks) = (random.one_in(2), random.one_in(3));
        let mut more = Random(!seed);
        let at_once = more.one_in(4);
        let origin = match more.below(3) {
            1 if at_once => CommunicatorOrigin::Split,
            2 if at_once => CommunicatorOrigin::Nodes,
            _ => CommunicatorOrigin::Transport,
        };
        let halo = more.one_in(3).then(|| more.below(2000)).filter(|_| !at_once);
        // Ranks of a single node would encode nothing.
        net.ranks_per_node = Some(1 + more.below(3)).filter(|&n| n < size).unwrap_or(1);
        // Keep these draws last: they must not change what a seed drew before they were added.
        let calls: Vec<Choice> = calls
            .into_iter()
            .map(|call| {
                let deal = Deal::Uneven(more.bits());
                if more.one_in(3) { call.dealt(deal) } else { call }
            })
            .collect();
        let grouped = at_once && more.one_in(3);
        // From the third time on, a repeated call takes the path of a stored call.
        let n_again = if !at_once && more.one_in(3) { 3 } else { 0 };
        let calls = [vec![calls[0]; n_again], calls].concat();
        let n_arrays = if grouped { more.below(5) } else { 0 };
        let arrays = (0..n_arrays).map(|_| Choice::draw(&mut more)).collect::<Vec<_>>();
        let calls = [calls, arrays].concat();
        let n_at_once = if grouped { 1 + more.below(calls.len()) } else { calls.len() };
        let (shrinks, troubles) = (shrinks && !at_once, Vec::new());
        let messages = (at_once && !grouped && more.one_in(2)).then(|| more.below(2000));
        net.channels = if at_once { n_at_once } else { 1 };
        net.channels += usize::from(messages.is_some());
        // The communicator that is split takes one more channel, for its one call.
        let reuses = origin != CommunicatorOrigin::Transport && more.one_in(2);
        if origin != CommunicatorOrigin::Transport {
            net.channels += 1 + usize::from(messages.is_some());
        }
        #[rustfmt::skip]
        let mut drawn = Self {
            seed, size, net, lanes, levels, calls, at_once, grouped, n_at_once, origin, reuses,
            halo, messages, leaves, troubles, shrinks,
        };
        drawn.net.frames_per_rank = drawn.n_frames(lanes);
        (0..drawn.calls.len()).for_each(|call| drawn.fit(drawn.case(call)));
        drawn
    }

    /// Number of frames that `lanes` lanes of each concurrent call need at most, and one for
    /// control messages.
    const fn n_frames(&self, lanes: usize) -> usize {
        lanes * FRAMES_PER_LANE * self.net.channels + 1
    }

    /// Makes frames long enough for the schedule of a call.
    fn fit(&mut self, case: Case) {
        self.net.frame_bytes = self.net.frame_bytes.max(case.min_frame_bytes());
    }

    fn add_trouble(&mut self, random: &mut Random) {
        let trouble = Trouble::draw(random, self.size, &self.calls);
        if let Trouble::Twist { call, choice, .. } = trouble {
            self.twisted(call, choice).into_iter().for_each(|case| self.fit(case));
        }
        if let Trouble::Lanes { lanes, .. } = trouble {
            self.net.frames_per_rank = self.net.frames_per_rank.max(self.n_frames(lanes));
        }
        self.troubles.push(trouble);
    }

    /// Returns the configuration of `rank`.
    pub(super) fn config(&self, rank: usize) -> Config {
        let mut config = Config::default()
            .with_lanes(self.lanes)
            .with_timeout(TIMEOUT)
            .with_level(self.levels[rank]);
        if self.messages.is_some() {
            config = config.with_messages();
        }
        for trouble in &self.troubles {
            match *trouble {
                Trouble::Lanes { rank: whose, lanes } if whose == rank => config.lanes = lanes,
                Trouble::Checksum { rank: whose } if whose == rank => config.checksum = Some(false),
                _ => {}
            }
        }
        config
    }

    /// Returns whether no rank's frames have checksums.
    pub(super) fn lacks_checksums(&self) -> bool {
        let lacks = |rank: usize| {
            let mut troubles = self.troubles.iter();
            troubles.any(|trouble| matches!(trouble, Trouble::Checksum { rank: r } if *r == rank))
        };
        (0..self.size).all(lacks)
    }

    /// Returns the case of all ranks that do not deviate in this call.
    #[must_use]
    pub fn case(&self, call: usize) -> Case {
        self.case_among(&self.calls, call)
    }

    /// Returns the case of one of these calls. If ranks know their nodes, it uses two levels where
    /// the collective supports them.
    fn case_among(&self, calls: &[Choice], call: usize) -> Case {
        let own = calls[call];
        let choice = if self.grouped { own.in_group_of(&calls[0]) } else { own };
        let case = choice.short_case(self.size);
        if self.origin == CommunicatorOrigin::Nodes && TwoLevels.supports(case.collective) {
            Case { schedule: &TwoLevels, per_node: self.net.ranks_per_node, ..case }
        } else {
            case
        }
    }

    /// Returns all cases of a rank that makes another choice in one call.
    fn twisted(&self, call: usize, choice: Choice) -> Vec<Case> {
        let mut calls = self.calls.clone();
        calls[call] = choice;
        (0..calls.len()).map(|call| self.case_among(&calls, call)).collect()
    }

    /// Returns whether every call must succeed in spite of the trouble, because it is short or no
    /// rank can detect it.
    pub(super) fn is_bearable(&self, trouble: &Trouble) -> bool {
        match *trouble {
            Trouble::Net(Fault::Delay { by, .. }) | Trouble::Late { by, .. } => by <= SHORT,
            Trouble::Net(Fault::Stall { lasting: Some(time), .. }) => time <= SHORT,
            // No other rank could disagree.
            Trouble::Twist { .. } | Trouble::Lanes { .. } | Trouble::Checksum { .. }
                if self.size == 1 =>
            {
                true
            }
            Trouble::Twist { call, choice, .. } => {
                let twisted = self.twisted(call, choice).into_iter().enumerate();
                twisted.into_iter().all(|(call, twisted)| self.case(call).is_same_call(&twisted))
            }
            Trouble::Lanes { lanes, .. } => lanes == self.lanes,
            _ => false,
        }
    }

    /// Returns whether ranks may find frames damaged, out of place, or of another call.
    pub(super) fn shows_in_frames(&self, trouble: &Trouble) -> bool {
        matches!(
            trouble,
            Trouble::Net(Fault::Harm { .. })
                | Trouble::Twist { .. }
                | Trouble::Lanes { .. }
                | Trouble::Checksum { .. }
        ) && !self.is_bearable(trouble)
    }

    /// Returns the case of `rank` in this call, and whether it differs from the other ranks' case.
    pub(super) fn case_of(&self, call: usize, rank: usize) -> (Case, bool) {
        let mut calls = self.calls.clone();
        // If several twists hit one call, the first counts.
        for trouble in self.troubles.iter().rev() {
            if let Trouble::Twist { rank: who, call, choice } = *trouble
                && who == rank
            {
                calls[call] = choice;
            }
        }
        let (usual, case) = (self.case(call), self.case_among(&calls, call));
        (case, !usual.is_same_call(&case))
    }
}

/// Draws a network, from slow with few credits to fast.
fn net(random: &mut Random) -> NetSettings {
    let mut seconds = |low: f64, high: f64| {
        Duration::from_secs_f64(10f64.powf(low + (high - low) * random.unit()))
    };
    let (latency, jitter, poll) = (seconds(-7.0, -4.0), seconds(-9.0, -3.5), seconds(-8.5, -6.0));
    let frame_bytes = MIN_FRAME_BYTES + random.below(MAX_FRAME_BYTES - MIN_FRAME_BYTES + 1);
    NetSettings {
        latency,
        jitter,
        bandwidth: 10f64.powf(7.0 + 4.0 * random.unit()),
        depth: *random.pick(&[1, 1, 2, 4]),
        frame_bytes: if random.one_in(4) { MIN_FRAME_BYTES } else { frame_bytes },
        attended: random.one_in(3),
        refusal: *random.pick(&[0, 0, 10, 3]),
        neglect: *random.pick(&[0, 0, 5, 2]),
        poll,
        jump: TIMEOUT / 8,
        patience: TIMEOUT * 20,
        ..NetSettings::default()
    }
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            seed, size, net, lanes, at_once, origin, halo, messages, leaves, shrinks, ..
        } = self;
        write!(f, "seed {seed}: {size} ranks, {lanes} lanes, calls at once: {at_once}, ")?;
        if self.grouped {
            write!(f, "as arrays of one call, {} at a time, ", self.n_at_once)?;
        }
        write!(f, "communicator from: {origin:?}, channels used before: {}, ", self.reuses)?;
        write!(f, "halos: {halo:?}, messages: {messages:?}, ")?;
        writeln!(f, "leaving early: {leaves}, shrinking in the end: {shrinks}, {net:?}")?;
        for call in 0..self.calls.len() {
            writeln!(f, "call {call}: {:?}", self.case(call))?;
        }
        for trouble in &self.troubles {
            writeln!(f, "trouble: {trouble}")?;
            if let Trouble::Twist { call, choice, .. } = trouble {
                writeln!(f, "  {:?}", self.twisted(*call, *choice)[*call])?;
            }
        }
        Ok(())
    }
}
