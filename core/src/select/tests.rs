//! Choices of the model and of automatic plans.

use super::*;
use crate::bound::Bound;
use crate::element::DType;
use crate::pipeline;
use crate::schedule::{Circulant, Pairwise};
use crate::transport::{Distance, Rank};

const LONG: usize = 16 << 20;
const GIGABIT: Option<f64> = Some(0.125e9);

fn network(link_rate: Option<f64>) -> Network {
    Network { link_rate, frame_bytes: 256 << 10 }
}

fn name(plan: &Plan, size: usize, n_bytes: usize, rate: Option<f64>) -> &'static str {
    let call = ProgramSpec::new(Collective::AllReduce, size, Rank(0));
    schedule(call, OpCode::Sum, plan, n_bytes, network(rate)).name()
}

#[test]
fn slow_links_exchange_single_operands_and_fast_ones_form_a_ring() {
    let plan = Plan::foldwire(Bound::Relative(1e-4));
    assert_eq!(name(&plan, 8, LONG, Some(0.0125e9)), Pairwise.name());
    assert_eq!(name(&plan, 8, LONG, GIGABIT), Ring.name());
    assert_eq!(name(&plan, 8, LONG, Some(12.5e9)), Ring.name());
    assert_eq!(name(&plan, 8, LONG, None), Ring.name());
    assert_eq!(name(&Plan::raw(), 8, LONG, Some(0.0125e9)), Ring.name());
}

#[test]
fn over_slow_links_few_ranks_exchange_arrays_of_middle_length() {
    let plan = Plan::foldwire(Bound::Relative(1e-4));
    assert_eq!(name(&plan, 8, 2048, GIGABIT), RecursiveDoubling.name());
    assert_eq!(name(&plan, 8, 200_000, GIGABIT), Pairwise.name());
    assert_eq!(name(&plan, 64, 200_000, GIGABIT), Circulant.name());
    assert_eq!(name(&Plan::raw(), 8, 64_000, Some(1.25e9)), Pairwise.name());
    assert_eq!(name(&plan, 8, 64_000, Some(1.25e9)), Circulant.name());
    assert_eq!(name(&plan, 8, LONG, GIGABIT), Ring.name());
}

#[test]
fn short_arrays_double_and_what_is_short_grows_with_the_ranks() {
    let plan = Plan::foldwire(Bound::Relative(1e-4));
    for size in [2, 4, 8, 64, 300] {
        assert_eq!(name(&plan, size, 2048, None), RecursiveDoubling.name());
        assert_eq!(name(&plan, size, LONG, None), Ring.name());
    }
    assert_eq!(name(&plan, 8, 40_000, None), Circulant.name());
    assert_eq!(name(&plan, 8, 200_000, None), Ring.name());
    assert_eq!(name(&plan, 300, 200_000, None), Circulant.name());
    // A circulant graph would send 2048 parts in a message, and a frame cannot hold a segment of a
    // useful length of each.
    assert_eq!(name(&plan, 4096, 1 << 20, None), DoubleTree.name());
}

#[test]
fn circulant_graphs_need_frames_for_many_parts() {
    let plan = Plan::foldwire(Bound::Relative(1e-4));
    for collective in [Collective::ReduceScatter, Collective::AllGather] {
        let name = |size, n_bytes, frame_bytes| {
            let call = ProgramSpec::new(collective, size, Rank(0));
            let network = Network { link_rate: None, frame_bytes };
            schedule(call, OpCode::Sum, &plan, n_bytes, network).name()
        };
        assert_eq!(name(64, 4096, 256 << 10), Circulant.name());
        assert_eq!(name(64, 4096, 8_000), Pairwise.name());
        assert_eq!(name(64, 200_000, 12_000), Pairwise.name());
        assert_eq!(name(64, LONG, 256 << 10), Ring.name());
        assert_eq!(name(1, 0, 256 << 10), Ring.name());
    }
}

#[test]
fn long_arrays_go_along_a_chain_unless_there_are_many_ranks_or_they_are_compressed() {
    let by = |plan: Plan, size, n_bytes| {
        let call = ProgramSpec::new(Collective::Broadcast, size, Rank(0));
        schedule(call, OpCode::None, &plan, n_bytes, network(None)).name()
    };
    assert_eq!(by(Plan::raw(), 4, LONG), "chain");
    assert_eq!(by(Plan::raw(), 64, 1 << 30), "chain");
    assert_eq!(by(Plan::raw(), 4096, LONG), "double-tree");
    assert_eq!(by(Plan::raw(), 4, 100_000), "binomial");
    assert_eq!(by(Plan::raw(), 64, 100_000), "scatter-all-gather");
    let plan = Plan::foldwire(Bound::Relative(1e-4));
    let broadcast = |size, n_bytes| by(plan, size, n_bytes);
    assert_eq!(broadcast(4, LONG), "double-tree");
    assert_eq!(broadcast(4, 100_000), "binomial");
    assert_eq!(broadcast(2, LONG), "binomial");
    assert_eq!(broadcast(8, 200_000), "binomial");
    assert_eq!(broadcast(64, 100_000), "binomial");
    // The two halves would need messages of 2048 parts, and a frame cannot hold a segment of a
    // useful length of each.
    assert_eq!(broadcast(4096, LONG), "double-tree");
    assert_eq!(broadcast(4096, 1 << 30), "double-tree");
    assert_eq!(broadcast(64, 1 << 30), "double-tree");
}

#[test]
fn long_arrays_take_two_levels_where_nodes_are_known() {
    let plan = Plan::foldwire(Bound::Relative(1e-4));
    let name = |collective, n_bytes, per_node| {
        let call = ProgramSpec::new(collective, 64, Rank(0)).with_nodes(per_node);
        schedule(call, OpCode::Sum, &plan, n_bytes, network(GIGABIT)).name()
    };
    for collective in Collective::ALL.into_iter().filter(|&c| c != Collective::AllToAll) {
        let has_levels = TwoLevels.supports(collective);
        assert_eq!(name(collective, LONG, 8) == TwoLevels.name(), has_levels);
        // Short arrays, and nodes of different sizes.
        assert_ne!(name(collective, 1024, 8), TwoLevels.name());
        assert_ne!(name(collective, LONG, 7), TwoLevels.name());
    }
    // Links that take no time, and a chain of many nodes.
    let name = |size, rate| {
        let call = ProgramSpec::new(Collective::Broadcast, size, Rank(0)).with_nodes(8);
        schedule(call, OpCode::None, &plan, LONG, network(rate)).name()
    };
    assert_eq!(name(64, GIGABIT), TwoLevels.name());
    assert_eq!([name(64, Some(12.5e9)), name(4096, GIGABIT)], ["double-tree"; 2]);
}

/// Every schedule of an all-to-all sends the same bytes to other nodes, but not the same number of
/// messages.
#[test]
fn short_arrays_go_to_all_by_two_levels_where_nodes_are_known() {
    for plan in [Plan::raw(), Plan::foldwire(Bound::Relative(1e-4))] {
        let name = |size, n_bytes, per_node| {
            let call = ProgramSpec::new(Collective::AllToAll, size, Rank(0)).with_nodes(per_node);
            schedule(call, OpCode::None, &plan, n_bytes, network(None)).name()
        };
        assert_eq!(name(64, 1024, 8), TwoLevels.name());
        assert_eq!(name(64, 64 << 10, 8), TwoLevels.name());
        // Nodes of different sizes, nodes of few ranks, or few ranks in all.
        assert_eq!(
            [name(64, 1024, 7), name(64, 1024, 2), name(8, 1024, 8)],
            ["bruck", "bruck", "linear"]
        );
        assert_eq!([name(4, 1024, 2), name(64, LONG, 8)], ["linear"; 2]);
    }
}

#[test]
fn short_arrays_are_scanned_by_doubling() {
    let plan = Plan::foldwire(Bound::Relative(1e-4));
    let scan = |collective, size, n_bytes| {
        let call = ProgramSpec::new(collective, size, Rank(0));
        schedule(call, OpCode::Sum, &plan, n_bytes, network(None)).name()
    };
    for (collective, least) in [(Collective::Scan, 4), (Collective::ExclusiveScan, 5)] {
        assert_eq!(scan(collective, least, 1000), "prefix-doubling");
        assert_eq!(scan(collective, 2, 1000), "chain");
        assert_eq!(scan(collective, 64, LONG), "chain");
        assert_eq!(scan(collective, 1, 0), "chain");
    }
}

#[test]
fn short_arrays_go_through_others_to_all() {
    let by = |plan: Plan, size, n_bytes, rate| {
        let call = ProgramSpec::new(Collective::AllToAll, size, Rank(0));
        schedule(call, OpCode::None, &plan, n_bytes, network(rate)).name()
    };
    let (raw, lossy) = (Plan::raw(), Plan::foldwire(Bound::Relative(1e-4)));
    for plan in [raw, lossy] {
        assert_eq!(by(plan, 16, 1000, None), "bruck");
        assert_eq!(by(plan, 64, 16 << 10, None), "bruck");
        for (size, n_bytes) in [(1, 0), (2, 100), (8, 100), (16, 64 << 10), (64, LONG)] {
            assert_eq!(by(plan, size, n_bytes, None), "linear", "{n_bytes} bytes, {size}");
        }
        // At a gigabit, the padding of bundles takes longer than a few messages.
        assert_eq!(by(plan, 16, 1000, GIGABIT), "linear");
    }
    assert_eq!(by(raw, 64, 1000, GIGABIT), "linear");
    assert_eq!(by(raw, 64, 1000, Some(1.25e9)), "bruck");
    assert_eq!(by(raw, 512, 8 << 10, Some(12.5e9)), "bruck");
    // All parts of a rank must fit a frame.
    assert_eq!(by(raw, 4096, 4096, None), "linear");
    let zccl = Plan::raw().compressed(pipeline::COMPRESS_ONCE, Bound::Relative(1e-4));
    assert_eq!(by(zccl, 64, 1000, None), "linear");
}

#[test]
fn short_parts_are_packed_where_that_saves_messages() {
    for size in 1..=3 {
        assert!(!runs_pay(CodecId::Raw, size, 0), "{size} ranks");
    }
    assert!(runs_pay(CodecId::Raw, 16, 50_000) && !runs_pay(CodecId::Raw, 16, 60_000));
    assert!(runs_pay(CodecId::FzLight, 16, 200_000));
    assert!(runs_pay(CodecId::Raw, 64, 200_000) && !runs_pay(CodecId::FzLight, 64, LONG));
}

#[test]
fn a_named_schedule_is_taken_and_floats_keep_the_ring() {
    let plan = Plan::foldwire(Bound::Relative(1e-4)).with_schedule(&Pairwise);
    assert_eq!(name(&plan, 8, 4096, None), Pairwise.name());
    let floats = Plan::raw().compressed(pipeline::COMPRESS_ONCE, Bound::Relative(1e-4));
    assert_eq!(name(&floats, 8, 4096, GIGABIT), Ring.name());
    // Products of codes are not defined, so the fused pipeline keeps floats for them.
    let fused = Plan::foldwire(Bound::Relative(1e-4));
    let call = ProgramSpec::new(Collective::AllReduce, 8, Rank(0));
    let network = network(GIGABIT);
    assert_eq!(schedule(call, OpCode::Prod, &fused, 4096, network).name(), Ring.name());
}

/// Codec that an automatic plan resolves to.
fn automatic(plan: &Plan, size: usize, n_bytes: usize, rate: Option<f64>) -> CodecId {
    let call = ProgramSpec::new(Collective::AllReduce, size, Rank(0));
    let chosen = super::plan(call, OpCode::Sum, DType::F32, plan, n_bytes, network(rate)).0;
    assert!(!chosen.is_auto);
    assert_eq!(chosen.bound.is_none(), chosen.codec == CodecId::Raw);
    chosen.codec
}

#[test]
fn an_automatic_plan_weighs_bytes_against_work() {
    let plan = Plan::auto(Bound::Relative(1e-4));
    let near = Some(f64::INFINITY);
    for n_bytes in [0, 4, 1000, LONG] {
        assert_eq!(automatic(&plan, 4, n_bytes, near), CodecId::Raw);
        assert_eq!(automatic(&plan, 1, n_bytes, GIGABIT), CodecId::Raw);
    }
    for rate in [Some(1.25e9), GIGABIT, Some(0.0125e9), None] {
        assert_eq!(automatic(&plan, 4, 16, rate), CodecId::Raw);
    }
    assert_eq!(automatic(&plan, 4, LONG, Some(100e9)), CodecId::Raw);
    assert_eq!(automatic(&plan, 4, LONG, Some(1.25e9)), CodecId::FzLight);
    assert_eq!(automatic(&plan, 4, LONG, GIGABIT), CodecId::FzLight);
    assert_eq!(automatic(&plan, 4, LONG, Some(0.0125e9)), CodecId::Dense);
    // With a known shape, the arrays become much shorter.
    let shaped = plan.with_shape(&[100, 64, 128]);
    assert_eq!(automatic(&shaped, 4, LONG, Some(0.0125e9)), CodecId::Dense);
    assert_eq!(automatic(&shaped, 4, LONG, Some(0.2e9)), CodecId::FzNd);
    assert_eq!(automatic(&plan, 4, LONG, Some(0.2e9)), CodecId::FzLight);
    assert_eq!(automatic(&plan, 4, LONG, None), automatic(&plan, 4, LONG, Some(1.25e9)));
}

#[test]
fn an_automatic_plan_is_exact_where_no_bound_can_be_kept() {
    let plan = Plan::auto(Bound::Relative(1e-4));
    let call = ProgramSpec::new(Collective::AllReduce, 4, Rank(0));
    let chosen = |op, dtype| super::plan(call, op, dtype, &plan, LONG, network(GIGABIT)).0.codec;
    assert_eq!(chosen(OpCode::Prod, DType::F32), CodecId::Raw);
    assert_eq!(chosen(OpCode::User, DType::F32), CodecId::Raw);
    assert_eq!(chosen(OpCode::Sum, DType::I32), CodecId::Raw);
    assert_eq!(chosen(OpCode::Sum, DType::F16), CodecId::FzLight);
}

#[test]
fn what_is_pinned_stays() {
    let plan = Plan::auto(Bound::Relative(1e-4));
    assert_eq!(name(&plan.with_schedule(&Pairwise), 4, LONG, GIGABIT), Pairwise.name());
    assert!(!plan.with_codec(CodecId::Dense).is_auto);
    assert!(!plan.with_pipeline(pipeline::HOMOMORPHIC).is_auto);
    assert!(!plan.compressed(pipeline::HOMOMORPHIC, Bound::Relative(1e-4)).is_auto);
    assert!(!plan.for_values(DType::I32).is_auto);
}

/// Facts of ranks whose network reports the rate of its links.
fn known(network: Network) -> automatic::CallFacts<'static> {
    automatic::CallFacts {
        rules: &[],
        network,
        farthest: Distance::Network,
        has_configured_rate: true,
        speeds: Speeds::default(),
        bits: None,
        mode: None,
    }
}

/// Codec of a call if a sample says that codecs need this many bits per value.
fn sampled(bits: [f64; automatic::N_LOSSY], n_bytes: usize, rate: Option<f64>) -> CodecId {
    let call = ProgramSpec::new(Collective::Broadcast, 4, Rank(0));
    let speeds = Speeds::default();
    let bits = Some(automatic::Bits(bits));
    let known = automatic::CallFacts { speeds, bits, ..known(network(rate)) };
    let plan = Plan::auto(Bound::Absolute(1e-4));
    let chosen = automatic::choose(call, OpCode::None, DType::F32, &plan, n_bytes, &known);
    assert!(!chosen.needs_samples, "a sample is taken once");
    let choice = chosen.choice.expect("an automatic plan");
    assert_eq!(choice.reason, ChoiceReason::Sampled);
    chosen.plan.codec
}

#[test]
fn the_ratio_of_a_sample_decides() {
    let slow = Some(0.0125e9);
    assert_eq!(sampled([32.0, 32.0, 31.0], LONG, slow), CodecId::Raw);
    assert_eq!(sampled([33.0; 3], LONG, slow), CodecId::Raw);
    assert_eq!(sampled([10.0; 3], LONG, slow), CodecId::FzLight);
    assert_eq!(sampled([10.0, 9.0, 5.0], LONG, slow), CodecId::Dense);
    assert_eq!(sampled([10.0, 5.3, 5.0], LONG, slow), CodecId::FzNd);
    assert_eq!(sampled([10.0, 9.8, 9.8], LONG, slow), CodecId::FzLight, "hardly shorter");
    assert_eq!(sampled([10.0, 5.0, 4.0], LONG, GIGABIT), CodecId::FzNd);
    assert_eq!(sampled([2.0, 2.0, 1.0], LONG, Some(1.25e9)), CodecId::FzLight);
}

/// Codec of an all-reduce between two ranks at this distance that measured this rate, and the
/// reason.
fn within(farthest: Distance, n_bytes: usize, measured: Option<f64>) -> (CodecId, ChoiceReason) {
    let call = ProgramSpec::new(Collective::AllReduce, 2, Rank(0));
    let known =
        automatic::CallFacts { farthest, has_configured_rate: false, ..known(network(measured)) };
    let plan = Plan::auto(Bound::Relative(1e-3));
    let chosen = automatic::choose(call, OpCode::Sum, DType::F32, &plan, n_bytes, &known);
    (chosen.plan.codec, chosen.choice.expect("an automatic plan").reason)
}

#[test]
fn memory_that_ranks_share_is_no_faster_than_it_was_measured() {
    for farthest in [Distance::Node, Distance::Loopback, Distance::Network] {
        for n_bytes in [1 << 20, 8 << 20, 64 << 20] {
            for measured in [None, Some(1.25e9), Some(3e9)] {
                let (codec, _) = within(farthest, n_bytes, measured);
                assert_eq!(codec, CodecId::FzLight, "{farthest:?}, {n_bytes}: {measured:?}");
            }
            assert_eq!(within(farthest, n_bytes, Some(100e9)).0, CodecId::Raw);
        }
        assert_eq!(within(farthest, 1000, None), (CodecId::Raw, ChoiceReason::Short));
    }
    // Ranks of one process hand frames over in memory, so nothing is moved.
    assert_eq!(within(Distance::Memory, 64 << 20, None), (CodecId::Raw, ChoiceReason::Near));
    assert_ne!(within(Distance::Memory, 64 << 20, GIGABIT).0, CodecId::Raw);
}

#[test]
fn dense_is_taken_for_less_where_speeds_are_told() {
    // Nearly the default speeds. They differ a little, so that they count as configured.
    let told = Speeds::default().with(CodecId::Raw, 6.01e9);
    let chosen = |speeds| {
        let call = ProgramSpec::new(Collective::AllReduce, 4, Rank(0));
        let known = automatic::CallFacts { speeds, ..known(network(GIGABIT)) };
        let plan = Plan::auto(Bound::Absolute(1e-4)).with_shape(&[100, 64, 128]);
        automatic::choose(call, OpCode::Sum, DType::F32, &plan, LONG, &known).plan.codec
    };
    assert_eq!([chosen(told), chosen(Speeds::default())], [CodecId::Dense, CodecId::FzNd]);
}

#[test]
fn samples_are_taken_where_they_cost_little() {
    let needs_samples = |bound, n_bytes, rate| {
        let call = ProgramSpec::new(Collective::AllReduce, 4, Rank(0));
        let known = known(network(rate));
        let plan = Plan::auto(bound);
        automatic::choose(call, OpCode::Sum, DType::F32, &plan, n_bytes, &known).needs_samples
    };
    for bound in [Bound::Absolute(1e-4), Bound::Relative(1e-4)] {
        assert!(needs_samples(bound, LONG, GIGABIT) && needs_samples(bound, LONG, Some(1.25e9)));
        assert!(
            !needs_samples(bound, 4096, GIGABIT)
                && !needs_samples(bound, LONG, Some(f64::INFINITY))
        );
    }
    // The ranks scan their data anyway.
    assert!(needs_samples(Bound::Relative(1e-4), 256 << 10, GIGABIT));
}
