//! Agreement of all ranks about a gather, scatter or all-to-all whose shares differ in length.
//! Pure.
//!
//! Each rank knows only a part of such a call, but either all ranks must take it or none may. Each
//! rank encodes its part as numbers. The maxima of these numbers over all ranks describe the whole
//! call. That costs an all-reduce of a few numbers, and only if the settings allow that the call is
//! taken.
//!
//! It would be worse if each pair of ranks decided for itself. Then messages of Foldwire and of the
//! MPI library would have to make progress in the same call, and an error of one pair would leave
//! the other ranks waiting. The all-reduce cannot hang unless the call would also hang without
//! Foldwire.

use crate::decide::PassReason;
use crate::signature::BaseType;

/// Part of a call that one rank knows.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LocalView {
    /// Element types of the arrays that hold values on this rank.
    pub bases: Vec<Option<BaseType>>,
    /// Bytes of this rank's values before or after the call, whichever is more.
    pub n_bytes: usize,
    /// Bytes of each rank's share (`None`: unknown to this rank); only for a gather or scatter.
    pub shares: Vec<Option<usize>>,
}

/// Description of a call on which all ranks agree.
#[derive(Clone, Debug, PartialEq)]
pub struct AgreedCall {
    /// Element type of all values; `None` if they have several types.
    pub base: Option<BaseType>,
    /// Largest number of bytes that one rank has before or after the call.
    pub n_bytes: usize,
    /// Bytes of each rank's share; only for a gather or scatter.
    pub shares: Vec<usize>,
}

/// Sent in place of an unknown number; never a maximum if another rank knows the number.
const UNKNOWN: i64 = i64::MIN;

impl LocalView {
    /// Encodes a view as the numbers to send: 1 if MPI must judge an argument on this rank (`Err`),
    /// the bytes, the largest code of an element type and the complement of the smallest, and then
    /// a pair for each of `n_shares` share lengths.
    #[must_use]
    pub fn numbers(view: Result<Self, PassReason>, n_shares: usize) -> Vec<i64> {
        let is_good = view.is_ok();
        let Self { bases, n_bytes, shares } = view.unwrap_or_default();
        let codes = || bases.iter().map(|base| base.unwrap_or(BaseType::Other) as i64);
        let largest = codes().max().unwrap_or(UNKNOWN);
        // The maximum of the complements is the complement of the minimum.
        let not_smallest = codes().map(|code| !code).max().unwrap_or(UNKNOWN);
        let share = |rank: usize| shares.get(rank).copied().flatten().map(|n| n as i64);
        let pairs = (0..n_shares)
            .flat_map(|rank| share(rank).map_or([UNKNOWN; 2], |n_bytes| [n_bytes, !n_bytes]));
        [i64::from(!is_good), n_bytes as i64, largest, not_smallest]
            .into_iter()
            .chain(pairs)
            .collect()
    }
}

impl AgreedCall {
    /// Decodes the maxima of all ranks' numbers.
    ///
    /// # Errors
    /// MPI must judge the call: a rank requests it, or two ranks disagree about a share.
    pub fn of(largest: &[i64]) -> Result<Self, PassReason> {
        let [0, n_bytes, most, not_least, pairs @ ..] = largest else {
            return Err(PassReason::Argument);
        };
        let share = |pair: &[i64]| match pair {
            &[most, not_least] if most == !not_least => {
                usize::try_from(most).map_err(|_| PassReason::Argument)
            }
            _ => Err(PassReason::Argument),
        };
        let shares = pairs.chunks(2).map(share).collect::<Result<Vec<_>, _>>()?;
        let base =
            BaseType::ALL.into_iter().find(|&base| base as i64 == *most && *most == !*not_least);
        let n_bytes = (*n_bytes as usize).max(total(&shares)?);
        Ok(Self { base, n_bytes, shares })
    }
}

/// Returns the sum of these numbers.
///
/// # Errors
/// The sum overflows, so MPI must judge the call.
pub(crate) fn total(numbers: &[usize]) -> Result<usize, PassReason> {
    numbers.iter().try_fold(0usize, |sum, &n| sum.checked_add(n)).ok_or(PassReason::Argument)
}
