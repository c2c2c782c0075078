//! Decides which calls Foldwire takes. Pure: uses no MPI, and only facts that are equal on all
//! ranks of a call. So all ranks make the same decision.
//!
//! These facts are the collective, the type signature of the whole array, the operation, the
//! communicator, the root, and the settings, which the ranks have compared (`init_barrier`).
//! Handles and layouts of datatypes may differ between ranks, so they have no influence. For calls
//! whose counts no rank knows completely, the ranks first exchange what they know
//! ([`agree`](crate::agree)).

use foldwire::op::OpCode;
use foldwire::schedule::Collective;

use crate::rules::MatchedNames;
use crate::settings::{Settings, TransferMode};
use crate::signature::BaseType;

/// A collective that Foldwire can take.
#[derive(Debug)]
pub struct CollectiveRow {
    /// Collective operation.
    pub collective: Collective,
    /// Suffix of the environment variable for its bound.
    pub variable: &'static str,
    /// Name in MPI, without `MPI_`.
    pub name: &'static str,
}

const fn row(collective: Collective, variable: &'static str, name: &'static str) -> CollectiveRow {
    CollectiveRow { collective, variable, name }
}

/// Collectives that Foldwire can take.
pub const COLLECTIVES: [CollectiveRow; 8] = [
    row(Collective::AllReduce, "ALLREDUCE", "Allreduce"),
    row(Collective::Broadcast, "BCAST", "Bcast"),
    row(Collective::AllGather, "ALLGATHER", "Allgather"),
    row(Collective::ReduceScatter, "REDUCE_SCATTER", "Reduce_scatter"),
    row(Collective::Reduce, "REDUCE", "Reduce"),
    row(Collective::Gather, "GATHER", "Gather"),
    row(Collective::Scatter, "SCATTER", "Scatter"),
    row(Collective::AllToAll, "ALLTOALL", "Alltoall"),
];

/// Facts about a call on which the decision depends.
#[derive(Clone, Copy, Debug)]
pub struct DecisionInput {
    /// Collective operation.
    pub collective: Collective,
    /// Element type; `None` if there are several.
    pub base: Option<BaseType>,
    /// Bytes of the whole logical array: a rank's data before or after the call, whichever is more.
    pub n_bytes: usize,
    /// Operation of a reduction; `None` if the program defined it or Foldwire lacks it.
    pub op: Option<OpCode>,
    /// Location of the ranks.
    pub placement: RankPlacement,
    /// Rows of the rules that the communicator's name matches.
    pub names: MatchedNames,
}

/// Largest number of ranks with which handing frames over in shared memory was measured.
const MOST_SHARED: usize = 8;

/// Location of a communicator's ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RankPlacement {
    /// All ranks share memory and hand frames over in it.
    Shared,
    /// All ranks share memory, and the MPI library copies messages through it.
    Near,
    /// Two ranks with a network between them.
    Pair,
    /// More than two ranks, some with a network between them.
    Far,
}

impl RankPlacement {
    /// All placements.
    pub const ALL: [Self; 4] = [Self::Shared, Self::Near, Self::Pair, Self::Far];

    /// Returns the placement of `size` ranks: `is_near` if all are on one node, `hand_over` if all
    /// of them hand frames over in shared memory.
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

/// Reason why a call is passed on to the MPI library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum PassReason {
    /// The settings turn Foldwire off for this call.
    Off,
    /// The call is too short to become faster.
    Short,
    /// Foldwire does not support the element type, or there are several.
    Type,
    /// The program defined the operation, or Foldwire lacks it.
    Operation,
    /// Values would travel uncompressed, and the call reduces nothing or has only two ranks, with a
    /// network between them.
    NoGain,
    /// The communicator is an intercommunicator, or has a single rank, or ranks of another
    /// `MPI_COMM_WORLD`.
    Communicator,
    /// The ranks' settings differ, or MPI could not create another communicator.
    Disagreement,
    /// MPI must judge an argument.
    Argument,
    /// The call is non-blocking, and only a blocking call can create the missing Foldwire
    /// communicator.
    NotReady,
    /// The call is non-blocking, and the library offers no way to advance it.
    NoProgress,
}

impl PassReason {
    /// All reasons in the order of their numbers.
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

    /// Name in reports.
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

/// Returns the smallest number of bytes with which a call of this collective may be taken, over all
/// types, operations, placements and communicator names.
///
/// # Errors
/// The reason why no call of this collective is taken.
pub fn smallest_taken(collective: Collective, settings: &Settings) -> Result<usize, PassReason> {
    let reduces = collective.reduces();
    let rules = settings.rules.any_of(collective);
    let rules = rules.map(|rule| (rule.mode, rule.first(), rule.last()));
    let modes = rules.chain([(settings.mode(collective), None, usize::MAX)]);
    let (mut smallest_taken, mut reason) = (None, PassReason::Off);
    for (mode, first, last) in modes.filter(|&(mode, ..)| mode != TransferMode::Off) {
        reason = PassReason::NoGain;
        // Integers travel uncompressed in every mode.
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

/// Index of a collective in [`COLLECTIVES`].
pub(crate) const fn index_of(collective: Collective) -> usize {
    let mut at = 0;
    while at < COLLECTIVES.len() - 1 && COLLECTIVES[at].collective as u8 != collective as u8 {
        at += 1;
    }
    at
}

/// Decides about a call on a communicator whose name is known. Returns the mode in which Foldwire
/// takes the call.
///
/// # Errors
/// The reason why the call goes to the MPI library.
pub fn decide(input: &DecisionInput, settings: &Settings) -> Result<TransferMode, PassReason> {
    // If the name is known, there is exactly one route.
    routes(input, settings).pop().unwrap_or(Err(PassReason::Off))
}

/// Returns the reason why a call is passed on for every placement and every communicator name, if
/// there is one. Both are unknown until the Foldwire communicator exists.
pub(crate) fn certain_pass_reason(
    input: &DecisionInput,
    settings: &Settings,
) -> Option<PassReason> {
    let mut reason = None;
    // In this order the reason for ranks that share memory comes last and is reported.
    for placement in RankPlacement::ALL.into_iter().rev() {
        for route in
            routes(&DecisionInput { placement, names: MatchedNames::Unknown, ..*input }, settings)
        {
            reason = Some(route.err()?);
        }
    }
    reason
}

/// Returns a decision (route) for each rule that may apply. Adds the decision by the general
/// settings, unless a rule applies for certain.
fn routes(input: &DecisionInput, settings: &Settings) -> Vec<Result<TransferMode, PassReason>> {
    let (rules, is_certain) =
        settings.rules.of((input.collective, input.base, input.n_bytes), input.names);
    let modes = rules.into_iter().map(|rule| (rule.mode, rule.first()));
    let modes = modes.chain((!is_certain).then(|| (settings.mode(input.collective), None)));
    modes.map(|(mode, first)| route(input, settings, mode, first)).collect()
}

/// Returns the decision in one mode. `first` is the minimum length of the rule, if it has one.
fn route(
    input: &DecisionInput,
    settings: &Settings,
    mode: TransferMode,
    first: Option<usize>,
) -> Result<TransferMode, PassReason> {
    let reduces = input.collective.reduces();
    if mode == TransferMode::Off {
        return Err(PassReason::Off);
    }
    let is_float = input.base.is_some_and(BaseType::is_float);
    // Codecs support floats only, and cannot bound the error of products.
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
        // If an operand is NaN, or both are zeros of different signs, the library's result depends
        // on the order of the operands. An exact call must give the library's result.
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
