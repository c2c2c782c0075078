//! Which calls Foldwire takes. Pure: no MPI, and nothing but what MPI makes equal on all ranks of a
//! call, so that all of them go the same way.
//!
//! That is the collective, the type signature of the whole array (not the handle of the type, nor
//! its layout, in which ranks may differ), the operation, the communicator and the root; and the
//! settings, on which the ranks have agreed (`shadow`). Where MPI makes less equal, the ranks tell
//! each other first ([`agree`](crate::agree)).

use foldwire::op::OpCode;
use foldwire::schedule::Collective;

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
}

/// Where the ranks of a communicator are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ranks {
    /// All share memory.
    Near,
    /// They are two, with a network between them.
    Pair,
    /// More than two, some of which have a network between them.
    Far,
}

impl Ranks {
    /// All places in which they can be.
    pub const ALL: [Self; 3] = [Self::Near, Self::Pair, Self::Far];

    /// So many ranks, of which all share memory or not.
    #[must_use]
    pub const fn of(size: usize, is_near: bool) -> Self {
        match (is_near, size) {
            (true, _) => Self::Near,
            (false, ..=2) => Self::Pair,
            (false, _) => Self::Far,
        }
    }
}

/// Who carries a call out.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Route {
    /// Foldwire, this way.
    Take(Way),
    /// The MPI library.
    Pass(Why),
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

/// Why no call of this collective is taken, if it only moves values, whatever those are.
#[must_use]
pub fn never(collective: Collective, settings: &Settings) -> Option<Why> {
    let base = Some(Base::F64);
    let ask = Ask { collective, base, n_bytes: usize::MAX, op: None, ranks: Ranks::Far };
    match decide(&ask, settings) {
        Route::Take(_) => None,
        Route::Pass(why) => Some(why),
    }
}

/// Who carries a call out.
#[must_use]
pub fn decide(ask: &Ask, settings: &Settings) -> Route {
    let reduces = COLLECTIVES.iter().any(|row| row.collective == ask.collective && row.reduces);
    let way = settings.way(ask.collective);
    if way == Way::Off {
        return Route::Pass(Why::Off);
    }
    // Codecs are for floats, and keep no bound on products.
    let way = match way {
        Way::Lossy(_) if ask.op == Some(OpCode::Prod) => Way::Raw,
        _ if ask.base.is_some_and(Base::is_float) => way,
        _ => Way::Raw,
    };
    let Some(min_bytes) = settings.min_bytes(way, reduces, ask.ranks) else {
        return Route::Pass(Why::NoGain);
    };
    if ask.n_bytes == 0 || ask.n_bytes < min_bytes {
        return Route::Pass(Why::Short);
    }
    if matches!(ask.base, None | Some(Base::Other)) {
        return Route::Pass(Why::Type);
    }
    match (reduces, ask.op, way) {
        (true, Some(OpCode::Sum | OpCode::Min | OpCode::Max | OpCode::Prod), _) => Route::Take(way),
        (true, ..) => Route::Pass(Why::Operation),
        (false, _, Way::Raw) => Route::Pass(Why::NoGain),
        (false, ..) => Route::Take(way),
    }
}
