//! What ranks tell each other of a gather, scatter or all-to-all whose shares differ: each of them
//! knows a part of it only, and all must take it or none. Pure.
//!
//! Each rank makes numbers of what it knows, of which the largest over all ranks say what the call
//! is. That costs an all-reduce of a few numbers, and only under settings by which the call may be
//! taken. Were each pair of ranks to decide for itself, messages of two kinds would have to move
//! along beside each other, and an error of one pair would leave the others waiting; so this cannot
//! hang where MPI does not.

use crate::decide::PassReason;
use crate::signature::BaseType;

/// What one rank knows.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LocalView {
    /// Of what the arrays are that have values here.
    pub bases: Vec<Option<BaseType>>,
    /// Bytes of the values that it has before or after the call, whichever is more.
    pub n_bytes: usize,
    /// Of a gather or scatter the bytes of each rank's share, as far as it knows.
    pub shares: Vec<Option<usize>>,
}

/// What all ranks know then.
#[derive(Clone, Debug, PartialEq)]
pub struct AgreedCall {
    /// Of what all values are; `None`: of several kinds.
    pub base: Option<BaseType>,
    /// The most bytes that a rank has before or after the call.
    pub n_bytes: usize,
    /// Of a gather or scatter the bytes of each rank's share.
    pub shares: Vec<usize>,
}

/// What a rank gives of which it knows nothing: no number is less.
const UNKNOWN: i64 = i64::MIN;

impl LocalView {
    /// What a rank gives, of `n_shares` shares whose lengths are agreed on; of a call whose
    /// arguments MPI is to judge, that it is one.
    #[must_use]
    pub fn numbers(view: Result<Self, PassReason>, n_shares: usize) -> Vec<i64> {
        let is_good = view.is_ok();
        let Self { bases, n_bytes, shares } = view.unwrap_or_default();
        let codes = || bases.iter().map(|base| base.unwrap_or(BaseType::Other) as i64);
        let largest = codes().max().unwrap_or(UNKNOWN);
        let smallest = codes().map(|code| !code).max().unwrap_or(UNKNOWN);
        let share = |rank: usize| shares.get(rank).copied().flatten().map(|n| n as i64);
        // The largest complement is that of the smallest number.
        let pairs = (0..n_shares)
            .flat_map(|rank| share(rank).map_or([UNKNOWN; 2], |n_bytes| [n_bytes, !n_bytes]));
        [i64::from(!is_good), n_bytes as i64, largest, smallest].into_iter().chain(pairs).collect()
    }
}

impl AgreedCall {
    /// Of the largest of all ranks' numbers.
    ///
    /// # Errors
    /// MPI is to judge the call: a rank says so, or two disagree about a share.
    pub fn of(largest: &[i64]) -> Result<Self, PassReason> {
        let [0, n_bytes, most, least, pairs @ ..] = largest else {
            return Err(PassReason::Argument);
        };
        let share = |pair: &[i64]| match pair {
            &[most, least] if most == !least => {
                usize::try_from(most).map_err(|_| PassReason::Argument)
            }
            _ => Err(PassReason::Argument),
        };
        let shares = pairs.chunks(2).map(share).collect::<Result<Vec<_>, _>>()?;
        let base = BaseType::ALL.into_iter().find(|&base| base as i64 == *most && *most == !*least);
        let n_bytes = (*n_bytes as usize).max(total(&shares)?);
        Ok(Self { base, n_bytes, shares })
    }
}

/// All of these together.
///
/// # Errors
/// MPI is to judge the call: there are more than a number can say.
pub(crate) fn total(numbers: &[usize]) -> Result<usize, PassReason> {
    numbers.iter().try_fold(0usize, |sum, &n| sum.checked_add(n)).ok_or(PassReason::Argument)
}
