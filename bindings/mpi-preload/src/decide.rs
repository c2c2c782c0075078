//! Which calls Foldwire takes. Pure: no MPI, and nothing but what MPI makes equal on all ranks of a
//! call, so that all of them go the same way.
//!
//! That is the collective, the type signature of the whole array (not the handle of the type, nor
//! its layout, in which ranks may differ), the operation, the communicator and the root; and the
//! settings, on which the ranks have agreed (`shadow`). Where MPI makes less equal, the ranks tell
//! each other first ([`agree`](crate::agree)).

use foldwire::op::OpCode;
use foldwire::schedule::Collective;

use crate::rules::Names;
use crate::settings::{Settings, Way};
use crate::signature::Base;

/// A collective that is wrapped.
#[derive(Debug)]
pub struct Row {
    /// Which.
    pub collective: Collective,
    /// How the variable of its bound ends.
    pub variable: &'static str,
    /// MPI's name.
    pub name: &'static str,
    /// Whether it combines values.
    pub reduces: bool,
}

const fn row(
    collective: Collective,
    variable: &'static str,
    name: &'static str,
    reduces: bool,
) -> Row {
    Row { collective, variable, name, reduces }
}

/// The collectives that are wrapped.
pub const COLLECTIVES: [Row; 8] = [
    row(Collective::AllReduce, "ALLREDUCE", "Allreduce", true),
    row(Collective::Broadcast, "BCAST", "Bcast", false),
    row(Collective::AllGather, "ALLGATHER", "Allgather", false),
    row(Collective::ReduceScatter, "REDUCE_SCATTER", "Reduce_scatter", true),
    row(Collective::Reduce, "REDUCE", "Reduce", true),
    row(Collective::Gather, "GATHER", "Gather", false),
    row(Collective::Scatter, "SCATTER", "Scatter", false),
    row(Collective::AllToAll, "ALLTOALL", "Alltoall", false),
];

/// What is known of a call.
#[derive(Clone, Copy, Debug)]
pub struct Ask {
    /// The collective.
    pub collective: Collective,
    /// What the values are; `None`: of several kinds.
    pub base: Option<Base>,
    /// Bytes of the values of the logical array: what one rank has before or after the call,
    /// whichever is more.
    pub n_bytes: usize,
    /// The operation of one that reduces; `None`: not one of MPI's, or not one that Foldwire has.
    pub op: Option<OpCode>,
    /// Where the ranks are.
    pub ranks: Ranks,
    /// Which rows of the rules the communicator's name fits.
    pub names: Names,
}

/// More ranks of one node than these have not been measured.
const MOST_SHARED: usize = 8;

/// Where the ranks of a communicator are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ranks {
    /// All share memory, and hand frames over in it.
    Shared,
    /// All share memory, and the library copies messages through it.
    Near,
    /// They are two, with a network between them.
    Pair,
    /// More than two, some of which have a network between them.
    Far,
}

impl Ranks {
    /// All places in which they can be.
    pub const ALL: [Self; 4] = [Self::Shared, Self::Near, Self::Pair, Self::Far];

    /// So many ranks, of which all are on one node or not, and all hand frames over there or not.
    #[must_use]
    pub const fn of(size: usize, is_near: bool, hand_over: bool) -> Self {
        match (is_near, size) {
            (true, ..=MOST_SHARED) if hand_over => Self::Shared,
            (true, _) => Self::Near,
            (false, ..=2) => Self::Pair,
            (false, _) => Self::Far,
        }
    }
}

/// Why a call is passed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Why {
    /// The settings say so.
    Off,
    /// It is too short to pay.
    Short,
    /// Values of this type, or of several.
    Type,
    /// The operation is the program's own, or one that Foldwire does not have.
    Operation,
    /// Values would travel as they are, and nothing is reduced or there are but two nodes.
    NoGain,
    /// An intercommunicator, or one of a single rank.
    Communicator,
    /// The ranks' settings disagree, or there was no room for messages of ours.
    Disagreement,
    /// An argument that MPI is to judge.
    Argument,
    /// It is not waited for, and the communicator has none of ours yet, which only a call that is
    /// waited for can make.
    NotReady,
    /// It is not waited for, and the library has no way to move it along.
    NoProgress,
}

impl Why {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 10] = [
        Self::Off,
        Self::Short,
        Self::Type,
        Self::Operation,
        Self::NoGain,
        Self::Communicator,
        Self::Disagreement,
        Self::Argument,
        Self::NotReady,
        Self::NoProgress,
    ];

    /// In a word.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Short => "short",
            Self::Type => "type",
            Self::Operation => "operation",
            Self::NoGain => "no_gain",
            Self::Communicator => "communicator",
            Self::Disagreement => "disagreement",
            Self::Argument => "argument",
            Self::NotReady => "not_ready",
            Self::NoProgress => "no_progress",
        }
    }
}

/// The fewest bytes of a call of this collective that may be taken, whatever else the call is.
///
/// # Errors
/// Why none is taken.
pub fn fewest(collective: Collective, settings: &Settings) -> Result<usize, Why> {
    let reduces = reduces(collective);
    let rules = settings.rules.any_of(collective);
    let rules = rules.map(|rule| (rule.way, rule.first(), rule.last()));
    let ways = rules.chain([(settings.way(collective), None, usize::MAX)]);
    let (mut fewest, mut why) = (None, Why::Off);
    for (way, first, last) in ways.filter(|&(way, ..)| way != Way::Off) {
        why = Why::NoGain;
        // Integers go as they are, whatever the way.
        for way in [way, Way::Raw].into_iter().filter(|&way| reduces || way != Way::Raw) {
            let least = Ranks::ALL
                .into_iter()
                .filter_map(|ranks| first.or_else(|| settings.min_bytes(way, reduces, ranks)));
            let least = least.min().filter(|&least| least <= last);
            fewest = [fewest, least].into_iter().flatten().min();
        }
    }
    fewest.ok_or(why)
}

/// Where a collective is in [`COLLECTIVES`].
pub(crate) const fn place(collective: Collective) -> usize {
    let mut at = 0;
    while at < COLLECTIVES.len() - 1 && COLLECTIVES[at].collective as u8 != collective as u8 {
        at += 1;
    }
    at
}

/// True if the collective combines values.
pub(crate) const fn reduces(collective: Collective) -> bool {
    COLLECTIVES[place(collective)].reduces
}

/// Decides about a call, on a communicator whose name is known: Foldwire takes it, this way.
///
/// # Errors
/// Why it is the MPI library's.
pub fn decide(ask: &Ask, settings: &Settings) -> Result<Way, Why> {
    // Nothing is unknown, so there is one.
    routes(ask, settings).pop().unwrap_or(Err(Why::Off))
}

/// Why a call is passed on wherever the ranks are and whatever the communicator's name is, neither
/// of which is known before ours is made.
pub(crate) fn passed_anyway(ask: &Ask, settings: &Settings) -> Option<Why> {
    let mut why = None;
    // The last reason is that of ranks that share memory.
    for ranks in Ranks::ALL.into_iter().rev() {
        for route in routes(&Ask { ranks, names: Names::Unknown, ..*ask }, settings) {
            why = Some(route.err()?);
        }
    }
    why
}

/// What all rows that may fit say. The last row fits for certain.
fn routes(ask: &Ask, settings: &Settings) -> Vec<Result<Way, Why>> {
    let (rules, is_certain) = settings.rules.of((ask.collective, ask.base, ask.n_bytes), ask.names);
    let ways = rules.into_iter().map(|rule| (rule.way, rule.first()));
    let ways = ways.chain((!is_certain).then(|| (settings.way(ask.collective), None)));
    ways.map(|(way, first)| route(ask, settings, way, first)).collect()
}

/// By a way, of calls from so many bytes on if that is said.
fn route(ask: &Ask, settings: &Settings, way: Way, first: Option<usize>) -> Result<Way, Why> {
    let reduces = reduces(ask.collective);
    if way == Way::Off {
        return Err(Why::Off);
    }
    let is_float = ask.base.is_some_and(Base::is_float);
    // Codecs are for floats, and keep no bound on products.
    let way = match way {
        Way::Lossy(_) if ask.op == Some(OpCode::Prod) => Way::Raw,
        _ if is_float => way,
        _ => Way::Raw,
    };
    let way = if first.is_none() { settings.sooner(way, ask) } else { way };
    let min_bytes = first.or_else(|| settings.min_bytes(way, reduces, ask.ranks));
    let min_bytes = min_bytes.ok_or(Why::NoGain)?;
    if ask.n_bytes == 0 || ask.n_bytes < min_bytes {
        return Err(Why::Short);
    }
    if matches!(ask.base, None | Some(Base::Other)) {
        return Err(Why::Type);
    }
    match (reduces, ask.op, way) {
        // Which of two numbers is less, one of them NaN or both zero, is the library's to say, and
        // hangs on their order there. A call that promises exact values is to give the library's.
        (true, Some(OpCode::Min | OpCode::Max), Way::Raw | Way::Lossless) if is_float => {
            Err(Why::Operation)
        }
        (true, Some(OpCode::Sum | OpCode::Min | OpCode::Max | OpCode::Prod), _) => Ok(way),
        (true, ..) => Err(Why::Operation),
        (false, _, Way::Raw) => Err(Why::NoGain),
        (false, ..) => Ok(way),
    }
}
