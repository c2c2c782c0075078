//! Which calls Foldwire takes. Pure: no MPI, and nothing but what MPI makes equal on all ranks of a
//! call, so that all of them go the same way.
//!
//! That is the collective, the type signature of the whole array (not the handle of the type, nor
//! its layout, in which ranks may differ), the operation, the communicator and the root; and the
//! settings, on which the ranks have agreed (`shadow`). Where MPI makes less equal, the ranks tell
//! each other first ([`agree`](crate::agree)).

use foldwire::op::OpCode;
use foldwire::schedule::Collective;

use crate::rules::MatchedNames;
use crate::settings::{Settings, TransferMode};
use crate::signature::BaseType;

/// A collective that is wrapped.
#[derive(Debug)]
pub struct CollectiveRow {
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
) -> CollectiveRow {
    CollectiveRow { collective, variable, name, reduces }
}

/// The collectives that are wrapped.
pub const COLLECTIVES: [CollectiveRow; 8] = [
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
pub struct DecisionInput {
    /// The collective.
    pub collective: Collective,
    /// What the values are; `None`: of several kinds.
    pub base: Option<BaseType>,
    /// Bytes of the values of the logical array: what one rank has before or after the call,
    /// whichever is more.
    pub n_bytes: usize,
    /// The operation of one that reduces; `None`: not one of MPI's, or not one that Foldwire has.
    pub op: Option<OpCode>,
    /// Where the ranks are.
    pub placement: RankPlacement,
    /// Which rows of the rules the communicator's name fits.
    pub names: MatchedNames,
}

/// More ranks of one node than these have not been measured.
const MOST_SHARED: usize = 8;

/// Where the ranks of a communicator are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RankPlacement {
    /// All share memory, and hand frames over in it.
    Shared,
    /// All share memory, and the library copies messages through it.
    Near,
    /// They are two, with a network between them.
    Pair,
    /// More than two, some of which have a network between them.
    Far,
}

impl RankPlacement {
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
pub enum PassReason {
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

impl PassReason {
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
pub fn smallest_taken(collective: Collective, settings: &Settings) -> Result<usize, PassReason> {
    let reduces = reduces(collective);
    let rules = settings.rules.any_of(collective);
    let rules = rules.map(|rule| (rule.mode, rule.first(), rule.last()));
    let modes = rules.chain([(settings.mode(collective), None, usize::MAX)]);
    let (mut smallest_taken, mut reason) = (None, PassReason::Off);
    for (mode, first, last) in modes.filter(|&(mode, ..)| mode != TransferMode::Off) {
        reason = PassReason::NoGain;
        // Integers go as they are, whatever the way.
        for mode in [mode, TransferMode::Raw]
            .into_iter()
            .filter(|&mode| reduces || mode != TransferMode::Raw)
        {
            let least = RankPlacement::ALL.into_iter().filter_map(|placement| {
                first.or_else(|| settings.min_bytes(mode, reduces, placement))
            });
            let least = least.min().filter(|&least| least <= last);
            smallest_taken = [smallest_taken, least].into_iter().flatten().min();
        }
    }
    smallest_taken.ok_or(reason)
}

/// Where a collective is in [`COLLECTIVES`].
pub(crate) const fn index_of(collective: Collective) -> usize {
    let mut at = 0;
    while at < COLLECTIVES.len() - 1 && COLLECTIVES[at].collective as u8 != collective as u8 {
        at += 1;
    }
    at
}

/// True if the collective combines values.
pub(crate) const fn reduces(collective: Collective) -> bool {
    COLLECTIVES[index_of(collective)].reduces
}

/// Decides about a call, on a communicator whose name is known: Foldwire takes it, this way.
///
/// # Errors
/// Why it is the MPI library's.
pub fn decide(input: &DecisionInput, settings: &Settings) -> Result<TransferMode, PassReason> {
    // Nothing is unknown, so there is one.
    routes(input, settings).pop().unwrap_or(Err(PassReason::Off))
}

/// Why a call is passed on wherever the ranks are and whatever the communicator's name is, neither
/// of which is known before ours is made.
pub(crate) fn certain_pass_reason(
    input: &DecisionInput,
    settings: &Settings,
) -> Option<PassReason> {
    let mut reason = None;
    // The last reason is that of ranks that share memory.
    for placement in RankPlacement::ALL.into_iter().rev() {
        for route in
            routes(&DecisionInput { placement, names: MatchedNames::Unknown, ..*input }, settings)
        {
            reason = Some(route.err()?);
        }
    }
    reason
}

/// What all rows that may fit say. The last row fits for certain.
fn routes(input: &DecisionInput, settings: &Settings) -> Vec<Result<TransferMode, PassReason>> {
    let (rules, is_certain) =
        settings.rules.of((input.collective, input.base, input.n_bytes), input.names);
    let modes = rules.into_iter().map(|rule| (rule.mode, rule.first()));
    let modes = modes.chain((!is_certain).then(|| (settings.mode(input.collective), None)));
    modes.map(|(mode, first)| route(input, settings, mode, first)).collect()
}

/// By a way, of calls from so many bytes on if that is said.
fn route(
    input: &DecisionInput,
    settings: &Settings,
    mode: TransferMode,
    first: Option<usize>,
) -> Result<TransferMode, PassReason> {
    let reduces = reduces(input.collective);
    if mode == TransferMode::Off {
        return Err(PassReason::Off);
    }
    let is_float = input.base.is_some_and(BaseType::is_float);
    // Codecs are for floats, and keep no bound on products.
    let mode = match mode {
        TransferMode::Lossy(_) if input.op == Some(OpCode::Prod) => TransferMode::Raw,
        _ if is_float => mode,
        _ => TransferMode::Raw,
    };
    let mode = if first.is_none() { settings.faster_mode(mode, input) } else { mode };
    let min_bytes = first.or_else(|| settings.min_bytes(mode, reduces, input.placement));
    let min_bytes = min_bytes.ok_or(PassReason::NoGain)?;
    if input.n_bytes == 0 || input.n_bytes < min_bytes {
        return Err(PassReason::Short);
    }
    if matches!(input.base, None | Some(BaseType::Other)) {
        return Err(PassReason::Type);
    }
    match (reduces, input.op, mode) {
        // Which of two numbers is less, one of them NaN or both zero, is the library's to say, and
        // hangs on their order there. A call that promises exact values is to give the library's.
        (true, Some(OpCode::Min | OpCode::Max), TransferMode::Raw | TransferMode::Lossless)
            if is_float =>
        {
            Err(PassReason::Operation)
        }
        (true, Some(OpCode::Sum | OpCode::Min | OpCode::Max | OpCode::Prod), _) => Ok(mode),
        (true, ..) => Err(PassReason::Operation),
        (false, _, TransferMode::Raw) => Err(PassReason::NoGain),
        (false, ..) => Ok(mode),
    }
}
