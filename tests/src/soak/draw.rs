//! From a seed to what happens: group, network, calls, and what goes wrong.

use crate::Case;
use crate::case::{Choice, Deal};
use foldwire::kernel::Level;
use foldwire::schedule::{Schedule, TwoLevels};
use foldwire::transport::{FRAMES_PER_LANE, MAX_LANES, MIN_FRAME_BYTES};
use foldwire::{Config, Rank};
use foldwire_sim::{Fault, Harm, Net, Random};
use std::fmt;
use std::time::Duration;

/// The time limit of every call.
pub(super) const TIMEOUT: Duration = Duration::from_secs(1);
/// How long survivors wait for each other.
pub(super) const PATIENCE: Duration = TIMEOUT;
/// What a delay adds at most when it must not show. Three of them stay below the limit.
const SHORT: Duration = TIMEOUT.checked_div(8).expect("not by zero");
/// Most bytes of a frame: several rounds for a short array.
const MAX_FRAME_BYTES: usize = 8192;

/// One run of the soak.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// What it was drawn from.
    pub seed: u64,
    /// Ranks.
    pub size: usize,
    /// The network.
    pub net: Net,
    /// Lanes of every communicator.
    pub lanes: usize,
    /// The kernels of each rank.
    pub levels: Vec<Level>,
    /// The calls on one communicator.
    pub calls: Vec<Choice>,
    /// They are under way at the same time, not one after the other.
    pub at_once: bool,
    /// They are arrays of one call, if they are.
    pub grouped: bool,
    /// How many calls their communicator can hold, if they are.
    pub n_at_once: usize,
    /// Where their communicator comes from, if they are.
    pub origin: CommunicatorOrigin,
    /// Its channels are those of one on which a call has failed.
    pub reuses: bool,
    /// Before each call neighbours on a ring send each other so many values.
    pub halo: Option<usize>,
    /// Beside calls at once neighbours on a ring send each other messages of so many values.
    pub messages: Option<usize>,
    /// Ranks leave when they are done, not when all are.
    pub leaves: bool,
    /// What goes wrong.
    pub troubles: Vec<Trouble>,
    /// Ranks whose communicator is of no use in the end form a group of the survivors.
    pub shrinks: bool,
}

/// Where a communicator comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommunicatorOrigin {
    /// It is the first.
    Transport,
    /// It was split off one of the same ranks.
    Split,
    /// As that, and it knows which ranks share a node.
    Nodes,
}

/// One thing that goes wrong.
#[derive(Clone, Copy, Debug)]
pub enum Trouble {
    /// In the network, or with a rank as a whole.
    Net(Fault),
    /// A rank makes a call late.
    Late {
        /// The rank.
        rank: usize,
        /// The call.
        call: usize,
        /// By how much.
        by: Duration,
    },
    /// A rank makes another call than the others.
    Twist {
        /// The rank.
        rank: usize,
        /// The call.
        call: usize,
        /// What it does instead.
        choice: Choice,
    },
    /// A rank has another number of lanes.
    Lanes {
        /// The rank.
        rank: usize,
        /// Its lanes.
        lanes: usize,
    },
    /// A rank's frames have no checksum, and it wants none.
    Checksum {
        /// The rank.
        rank: usize,
    },
    /// A rank drops a call under way, and lives on.
    Drop {
        /// The rank.
        rank: usize,
        /// The call.
        call: usize,
        /// After how many polls.
        after: usize,
    },
}

impl Trouble {
    /// What kind of trouble it is, in a few words.
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
        // Small numbers as often as large ones.
        let count = |random: &mut Random| (2f64.powf(6.0 * random.unit()) - 1.0) as usize;
        let long = |random: &mut Random| {
            if random.one_in(2) {
                SHORT.mul_f64(random.unit())
            } else {
                TIMEOUT.mul_f64(1.0 + random.unit() * 3.0)
            }
        };
        let whom = Rank::new(rank);
        match random.below(12) {
            0 => Self::Late { rank, call, by: long(random) },
            1 => {
                let twisted = calls[call].twisted(random);
                // Where ranks give counts, every other time in these.
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
            3 => Self::Net(Fault::Delay { rank: whom, nth: count(random), by: long(random) }),
            4 => {
                let lasting = if random.one_in(3) { None } else { Some(long(random)) };
                Self::Net(Fault::Stall { rank: whom, after: count(random), lasting })
            }
            5 => Self::Net(Fault::Death { rank: whom, after: count(random) }),
            6 => {
                let silent = random.one_in(2);
                Self::Net(Fault::Cut { rank: whom, nth: count(random), silent })
            }
            _ => {
                // A copy comes only if its link has so many more frames: few have many.
                let harm = match *random.pick(&Harm::ALL) {
                    Harm::Repeat { .. } => {
                        Harm::Repeat { behind: random.below(4) * random.below(3) }
                    }
                    harm => harm,
                };
                Self::Net(Fault::Harm { rank: whom, nth: count(random), harm })
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
    /// What `seed` draws.
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

    /// What `bytes` describe, for a fuzzer, which cuts, joins and changes them: words of two bytes,
    /// each of which draws one thing. How many calls and how many troubles; the delays; group and
    /// network; the calls; the troubles. Missing words are 0.
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
        // The larger sizes of the tables, which take long, now and then.
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
        // Inside one node nothing would be encoded.
        net.ranks_per_node = Some(1 + more.below(3)).filter(|&n| n < size).unwrap_or(1);
        // Drawn last, so that whatever else a seed draws is as it was without.
        let calls: Vec<Choice> = calls
            .into_iter()
            .map(|call| {
                let deal = Deal::Uneven(more.bits());
                if more.one_in(3) { call.dealt(deal) } else { call }
            })
            .collect();
        let grouped = at_once && more.one_in(3);
        // A call that is made again goes another way the third time.
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
        // The first communicator, of one call.
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

    /// No more frames than so many lanes of each call at a time need, and one to ask others with.
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

    /// The configuration of `rank`.
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

    /// Whether no rank's frames have checksums.
    pub(super) fn lacks_checksums(&self) -> bool {
        let lacks = |rank: usize| {
            let mut troubles = self.troubles.iter();
            troubles.any(|trouble| matches!(trouble, Trouble::Checksum { rank: r } if *r == rank))
        };
        (0..self.size).all(lacks)
    }

    /// The case of all ranks that do nothing else in this call.
    #[must_use]
    pub fn case(&self, call: usize) -> Case {
        self.case_among(&self.calls, call)
    }

    /// The case of a call of ranks that make these. Where ranks know of nodes, what can go by two
    /// levels does.
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

    /// All cases of a rank that makes another choice in one call.
    fn twisted(&self, call: usize, choice: Choice) -> Vec<Case> {
        let mut calls = self.calls.clone();
        calls[call] = choice;
        (0..calls.len()).map(|call| self.case_among(&calls, call)).collect()
    }

    /// Whether every call must succeed all the same: it is short, or nobody can tell.
    pub(super) fn is_bearable(&self, trouble: &Trouble) -> bool {
        match *trouble {
            Trouble::Net(Fault::Delay { by, .. }) | Trouble::Late { by, .. } => by <= SHORT,
            Trouble::Net(Fault::Stall { lasting: Some(time), .. }) => time <= SHORT,
            // There is nobody who could disagree.
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

    /// Whether ranks may find frames damaged, or out of place, or not of their call.
    pub(super) fn shows_in_frames(&self, trouble: &Trouble) -> bool {
        matches!(
            trouble,
            Trouble::Net(Fault::Harm { .. })
                | Trouble::Twist { .. }
                | Trouble::Lanes { .. }
                | Trouble::Checksum { .. }
        ) && !self.is_bearable(trouble)
    }

    /// The case of `rank` in this call, and whether it is another.
    pub(super) fn case_of(&self, call: usize, rank: usize) -> (Case, bool) {
        let mut calls = self.calls.clone();
        // Of several in one call the first.
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

/// Any network, from a slow one of few credits to a fast one.
fn net(random: &mut Random) -> Net {
    let mut seconds = |low: f64, high: f64| {
        Duration::from_secs_f64(10f64.powf(low + (high - low) * random.unit()))
    };
    let (latency, jitter, poll) = (seconds(-7.0, -4.0), seconds(-9.0, -3.5), seconds(-8.5, -6.0));
    let frame_bytes = MIN_FRAME_BYTES + random.below(MAX_FRAME_BYTES - MIN_FRAME_BYTES + 1);
    Net {
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
        ..Net::default()
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
