//! Agreement of ranks about a call.

use foldwire_preload::agree::{AgreedCall, LocalView};
use foldwire_preload::decide::PassReason;
use foldwire_preload::signature::BaseType;
use proptest::prelude::*;

/// Agreement of ranks with these views.
fn agree(
    ranks: &[Result<LocalView, PassReason>],
    n_shares: usize,
) -> Result<AgreedCall, PassReason> {
    let numbers = ranks.iter().map(|view| LocalView::numbers(view.clone(), n_shares));
    let largest = numbers.reduce(|a, b| a.iter().zip(&b).map(|(a, b)| *a.max(b)).collect());
    AgreedCall::of(&largest.unwrap())
}

/// Views of all ranks of a gather of these shares to this root.
fn gather(shares: &[usize], root: usize) -> Vec<Result<LocalView, PassReason>> {
    let view = |rank: usize| {
        let known = |(of, &n): (usize, &usize)| (rank == root || rank == of).then_some(n);
        let n_bytes = if rank == root { shares.iter().sum() } else { shares[rank] };
        let bases = if n_bytes > 0 { vec![Some(BaseType::F32)] } else { vec![] };
        Ok(LocalView { bases, n_bytes, shares: shares.iter().enumerate().map(known).collect() })
    };
    (0..shares.len()).map(view).collect()
}

proptest! {
    #[test]
    fn a_gathers_shares_are_those_of_its_ranks(
        shares in proptest::collection::vec(0..1usize << 40, 1..9), root in 0..9usize,
    ) {
        let agreed = agree(&gather(&shares, root % shares.len()), shares.len()).unwrap();
        let whole: usize = shares.iter().sum();
        prop_assert_eq!(agreed.n_bytes, whole);
        prop_assert_eq!(agreed.base, (whole > 0).then_some(BaseType::F32));
        prop_assert_eq!(agreed.shares, shares);
    }

    #[test]
    fn what_two_ranks_say_unlike_is_mpis_to_judge(
        shares in proptest::collection::vec(0..1usize << 40, 2..9), by in 1..100usize,
    ) {
        let mut ranks = gather(&shares, 0);
        if let Ok(view) = &mut ranks[1] {
            view.shares[1] = Some(shares[1] + by);
        }
        prop_assert_eq!(agree(&ranks, shares.len()), Err(PassReason::Argument));
    }

    #[test]
    fn one_rank_with_a_wrong_argument_is_enough(rank in 0..4usize) {
        let mut ranks = gather(&[8; 4], 0);
        ranks[rank] = Err(PassReason::Argument);
        prop_assert_eq!(agree(&ranks, 4), Err(PassReason::Argument));
    }

    #[test]
    fn all_to_alls_are_of_one_base_if_all_sides_with_values_are(
        bases in proptest::collection::vec(
            proptest::collection::vec(proptest::sample::select(BaseType::ALL.to_vec()), 0..3),
            1..5,
        ),
    ) {
        let view = |bases: &Vec<BaseType>| {
            let bases: Vec<_> = bases.iter().map(|&base| Some(base)).collect();
            Ok(LocalView { n_bytes: bases.len() * 64, bases, shares: vec![] })
        };
        let agreed = agree(&bases.iter().map(view).collect::<Vec<_>>(), 0).unwrap();
        let all: Vec<BaseType> = bases.concat();
        let is_one = all.first().is_some_and(|first| all.iter().all(|base| base == first));
        prop_assert_eq!(agreed.base, if is_one { Some(all[0]) } else { None });
        prop_assert_eq!(agreed.n_bytes, bases.iter().map(|bases| bases.len() * 64).max().unwrap());
    }
}
