//! Compares the model with closed forms, and runs every schedule to its end.

use foldwire::schedule::{
    self, Binomial, Chain, Linear, Pairwise, RecursiveDoubling, Ring, Schedule, TwoLevels,
};
use foldwire::{Bound, pipeline};

use super::*;
use foldwire::primitive::SlotContent;

/// 1 byte per nanosecond, and a latency of 10 µs.
const NETWORK: NetworkModel = NetworkModel {
    latency: 10e-6,
    rate: Some(1e9),
    send_overhead: 0.0,
    recv_overhead: 0.0,
    send_per_byte: 0.0,
    recv_per_byte: 0.0,
    eager: None,
    link_depth: 4,
    checksums: false,
};

/// A call with one round: a frame holds the whole array, and there is one lane.
fn one_round(collective: Collective, schedule: &'static dyn Schedule, size: usize) -> ModelCall {
    let plan = Plan::raw().with_schedule(schedule);
    ModelCall { lanes: 1, frame_bytes: 1 << 30, ..ModelCall::new(collective, plan, size, 840_000) }
}

fn seconds(case: &ModelCall, cluster: &ClusterModel, costs: &Costs) -> f64 {
    predict::<f32>(case, cluster, costs).expect("a prediction").seconds
}

/// α + n·β for a frame of `count` values.
fn hop(count: usize) -> f64 {
    NETWORK.latency + (4 * count + foldwire::frame::HEADER_BYTES) as f64 / 1e9
}

/// The tolerance covers some thousand roundings to picoseconds.
fn assert_close(found: f64, expected: f64, what: &str) {
    assert!((found - expected).abs() < 1e-8 + 1e-6 * expected, "{what}: {found} for {expected}");
}

#[test]
fn a_pure_network_gives_the_closed_forms() {
    let (cluster, costs) = (ClusterModel::of(NETWORK), Costs::raw::<f32>());
    let time = |collective, schedule: &'static dyn Schedule, size| {
        seconds(&one_round(collective, schedule, size), &cluster, &costs)
    };
    let n = 840_000;
    for size in [2, 3, 4, 5, 8, 16, 21, 60] {
        let p = size as f64;
        let share = n / size;
        let ring = |hops: f64| hops * hop(share);
        assert_close(time(Collective::AllReduce, &Ring, size), ring(2.0 * (p - 1.0)), "all-reduce");
        assert_close(time(Collective::ReduceScatter, &Ring, size), ring(p - 1.0), "reduce-scatter");
        assert_close(time(Collective::AllGather, &Ring, size), ring(p - 1.0), "all-gather");
        let levels = p.log2().ceil();
        for collective in [Collective::Reduce, Collective::Broadcast] {
            let tree = time(collective, &Binomial, size);
            if size.is_power_of_two() {
                assert_close(tree, levels * hop(n), "tree");
            }
            // If the size is no power of two, some latencies pass while the root's link is busy.
            let crossings = levels * (hop(n) - NETWORK.latency);
            assert!((crossings..=levels * hop(n) + 1e-8).contains(&tree), "tree of {size}");
        }
        if size.is_power_of_two() {
            let doubling = time(Collective::AllReduce, &RecursiveDoubling, size);
            assert_close(doubling, levels * hop(n), "recursive doubling");
        }
        // All frames leave one after the other, and arrive one after the other.
        let exchange = (p - 1.0) * (hop(share) - NETWORK.latency) + NETWORK.latency;
        assert_close(time(Collective::AllGather, &Pairwise, size), exchange, "pairwise");
    }
}

#[test]
fn a_chain_is_a_pipeline() {
    let (cluster, costs) = (ClusterModel::of(NETWORK), Costs::raw::<f32>());
    for (size, frame_values) in [(2, 4096), (5, 4096), (9, 8192)] {
        let plan = Plan::raw().with_schedule(&Chain);
        let case = ModelCall {
            lanes: 1,
            frame_bytes: 4 * frame_values + 64,
            ..ModelCall::new(Collective::Broadcast, plan, size, frame_values * 50)
        };
        let crossing = hop(frame_values) - NETWORK.latency;
        // With enough credit to cover the latency, rounds follow each other without a gap.
        let deep = ClusterModel::of(NetworkModel { link_depth: 100, ..NETWORK });
        let expected = (50 + size - 2) as f64 * crossing + (size - 1) as f64 * NETWORK.latency;
        assert_close(seconds(&case, &deep, &costs), expected, "chain");
        assert!(seconds(&case, &cluster, &costs) >= expected - 1e-9);
    }
}

#[test]
fn compute_is_added_up_by_pipeline() {
    // The network takes no time and there is one round, so the total is one rank's work.
    let speeds = PrimitiveSpeeds {
        encode: 1e9,
        decode: 2e9,
        fold: 3e9,
        fold_store: 4e9,
        combine: 5e9,
        reduce: 6e9,
        refold: 7e9,
        recode: 8e9,
        copy: 9e9,
        checksum: f64::INFINITY,
    };
    let costs = Costs::of(speeds, WireSizes::with_ratio(4, 8.0));
    // In a ring of two ranks, a rank encodes a half of its input and sends it. It adds its other
    // half to the received one, stores the sum and sends it (the middle term). Last, it decodes the
    // half that the peer added up. Below, a term is the time for one byte of values in nanoseconds.
    let (e, d, fs, c, rf) = (1.0, 1.0 / 2.0, 1.0 / 4.0, 1.0 / 5.0, 1.0 / 7.0);
    for (pipeline, work) in [
        (pipeline::FUSED, e + fs + d),
        (pipeline::HOMOMORPHIC, e + (e + c + d) + d),
        (pipeline::COMPRESS_ONCE, e + (rf + d) + d),
        (pipeline::PER_HOP, e + (rf + d) + d),
    ] {
        let plan = Plan::raw().compressed(pipeline, Bound::Absolute(1e-3)).with_schedule(&Ring);
        let case = ModelCall {
            lanes: 1,
            frame_bytes: 1 << 30,
            ..ModelCall::new(Collective::AllReduce, plan, 2, 1 << 20)
        };
        // The bytes of half the array, at 1e9 bytes per second.
        let part = 2e-9 * f64::from(1 << 20);
        assert_close(seconds(&case, &ClusterModel::default(), &costs), work * part, pipeline.name);
    }
}

#[test]
fn frames_are_passed_on_as_they_are_or_encoded_again() {
    // In a ring of four ranks, each rank encodes its own part, forwards two parts, and stores all
    // four. `passing` is the time of the two forwards, in units of one encoding of a part.
    let speeds = PrimitiveSpeeds { encode: 1e9, decode: 2e9, ..PrimitiveSpeeds::FREE };
    let costs = Costs::of(speeds, WireSizes::with_ratio(4, 8.0));
    let part = 4e-9 * f64::from(1 << 18);
    for (pipeline, passing) in [(pipeline::COMPRESS_ONCE, 0.0), (pipeline::PER_HOP, 2.0)] {
        let plan = Plan::raw().compressed(pipeline, Bound::Absolute(1e-3)).with_schedule(&Ring);
        let case = ModelCall {
            lanes: 1,
            frame_bytes: 1 << 30,
            ..ModelCall::new(Collective::AllGather, plan, 4, 1 << 20)
        };
        let expected = (1.0 + 4.0 / 2.0 + passing) * part;
        assert_close(seconds(&case, &ClusterModel::default(), &costs), expected, pipeline.name);
    }
}

#[test]
fn sums_grow_on_their_way_and_single_operands_do_not() {
    // A sum of 1, 2 or 4 operands takes 0.5, 1 or 1.5 bytes per value. In between, the size is
    // linear in the logarithm of the number of operands; `third` is the size for three.
    let costs = Costs::of(
        PrimitiveSpeeds::FREE,
        WireSizes::measured(0, vec![(1, 0.5), (2, 1.0), (4, 1.5)]),
    );
    let sent = |schedule: &'static dyn Schedule, collective| {
        let plan = Plan::foldwire(Bound::Absolute(1e-3)).with_schedule(schedule);
        let case = ModelCall {
            lanes: 1,
            frame_bytes: 1 << 30,
            ..ModelCall::new(collective, plan, 4, 4000)
        };
        predict::<f32>(&case, &ClusterModel::default(), &costs).unwrap().ranks[0].wire_bytes
    };
    let third = 0.5 + 0.5 * 3_f64.log2();
    let sums = (1000.0 * (0.5 + 1.0 + third)).round() as u64;
    assert_eq!(sent(&Ring, Collective::ReduceScatter), 3 * 64 + sums);
    assert_eq!(sent(&Pairwise, Collective::ReduceScatter), 3 * 64 + 3 * 500);
    assert_eq!(sent(&Ring, Collective::AllReduce), 6 * 64 + sums + 3 * 1500);
    // One frame carries all four parts of one operand; the next carries sums of two operands.
    assert_eq!(sent(&RecursiveDoubling, Collective::AllReduce), 2 * 64 + 4 * 500 + 4 * 1000);
}

#[test]
fn ranks_of_a_machine_share_its_cores() {
    let speeds = PrimitiveSpeeds { encode: 1e9, ..PrimitiveSpeeds::FREE };
    let costs = Costs::of(speeds, WireSizes::with_ratio(4, 8.0));
    let plan = Plan::foldwire(Bound::Absolute(1e-3)).with_schedule(&Ring);
    let case = ModelCall::new(Collective::AllGather, plan, 12, 12 << 16);
    let time = |cores, ranks_per_node| {
        let host = HostModel { cores, ranks_per_node, ..HostModel::default() };
        seconds(&case, &ClusterModel { host, ..ClusterModel::default() }, &costs)
    };
    let part = 4e-9 * f64::from(1 << 16);
    for (cores, ranks_per_node, turns) in
        [(1, 1, 1.0), (12, 12, 1.0), (1, 12, 12.0), (2, 12, 6.0), (4, 6, 2.0), (5, 12, 3.0)]
    {
        assert_close(time(cores, ranks_per_node), turns * part, "turns");
    }
}

#[test]
fn overheads_wakings_and_checksums_take_the_ranks_time() {
    // Rank 0 sends one frame; rank 1 stores it.
    let case = one_round(Collective::Broadcast, &Binomial, 2);
    let wire = 4.0 * 840_000.0 + 64.0;
    let network = NetworkModel { send_overhead: 3e-6, recv_overhead: 5e-6, ..NETWORK };
    let host = HostModel { wake: 7e-6, ..HostModel::default() };
    let speeds = PrimitiveSpeeds { checksum: 2e9, ..PrimitiveSpeeds::FREE };
    let costs = Costs::of(speeds, WireSizes::exact(4));
    let time = |checksums| {
        let network = NetworkModel { checksums, ..network };
        seconds(&case, &ClusterModel { network, host }, &costs)
    };
    assert_close(time(false), 15e-6 + hop(840_000), "overheads");
    assert_close(time(true), 15e-6 + hop(840_000) + wire / 1e9, "both compute the checksum");
    let copied = NetworkModel { send_per_byte: 0.25e-9, recv_per_byte: 0.5e-9, ..NETWORK };
    let time = seconds(
        &case,
        &ClusterModel::of(copied),
        &Costs::of(PrimitiveSpeeds::FREE, WireSizes::exact(4)),
    );
    assert_close(time, hop(840_000) + 0.75e-9 * wire, "both copy the message");
}

#[test]
fn a_message_that_is_too_long_asks_first() {
    let case = one_round(Collective::Broadcast, &Binomial, 2);
    let n_bytes = 4 * 840_000 + 64;
    let time = |eager| {
        let network = NetworkModel { eager: Some(eager), ..NETWORK };
        seconds(&case, &ClusterModel::of(network), &Costs::raw::<f32>())
    };
    assert_close(time(n_bytes), hop(840_000), "leaves at once");
    assert_close(time(n_bytes - 1), 2.0 * NETWORK.latency + hop(840_000), "there, back, and there");
}

#[test]
fn ranks_that_compute_see_handshakes_after_their_step() {
    // Two rounds: rank 0 encodes and sends; rank 1 stores.
    let plan = Plan::raw().with_schedule(&Binomial);
    let frame_bytes = 4 * 4096 + 64;
    let case =
        ModelCall { lanes: 1, frame_bytes, ..ModelCall::new(Collective::Broadcast, plan, 2, 8192) };
    let (encode, decode, wire) = (0.5e-3, 1e-3, frame_bytes as f64 / 1e9);
    let speed = |seconds| 4.0 * 4096.0 / seconds;
    let time = |encode, link_depth, eager| {
        let speeds = PrimitiveSpeeds {
            encode: speed(encode),
            decode: speed(decode),
            ..PrimitiveSpeeds::FREE
        };
        let network = NetworkModel { latency: 0.0, link_depth, eager, ..NETWORK };
        seconds(&case, &ClusterModel::of(network), &Costs::of(speeds, WireSizes::exact(4)))
    };
    assert_close(time(encode, 4, None), encode + wire + 2.0 * decode, "leaves at once");
    // The grant for the first frame arrives while rank 0 encodes the second frame. So the first
    // frame leaves only after that encoding.
    assert_close(time(encode, 4, Some(0)), 2.0 * encode + wire + 2.0 * decode, "sender");
    // Rank 0 has credit for the second frame once rank 1 takes the first. The second frame's
    // request arrives while rank 1 stores the first frame, so rank 1 grants it only after that.
    assert_close(time(0.0, 1, None), wire + 2.0 * decode, "is there in time");
    assert_close(time(0.0, 1, Some(0)), 2.0 * (wire + decode), "receiver");
}

#[test]
fn a_relative_bound_waits_for_the_slowest_look() {
    let plan = Plan::foldwire(Bound::Relative(1e-3)).with_schedule(&Ring);
    let case = |count| ModelCall::new(Collective::AllReduce, plan, 8, count);
    // The ranks first need the value range. They scan all values of a short array (at the rate
    // `look`), and a sample of a long one (at the rate `sample`, which counts the bytes of all
    // values).
    let costs = Costs {
        look: 1e9,
        sample: 8e9,
        ..Costs::of(PrimitiveSpeeds::FREE, WireSizes::with_ratio(4, 8.0))
    };
    let (short, long) = (1000, 1 << 21);
    for (count, look) in [(short, 4e-9 * 1000.0), (long, 4e-9 * f64::from(1 << 21) / 8.0)] {
        let prediction = predict::<f32>(&case(count), &ClusterModel::default(), &costs).unwrap();
        assert_close(prediction.seconds, look, "the look");
        let absolute = plan.with_bound(Bound::Absolute(1.0));
        let without = ModelCall { plan: absolute, ..case(count) };
        let without = predict::<f32>(&without, &ClusterModel::default(), &costs).unwrap();
        // Recursive doubling takes three rounds.
        assert_eq!(prediction.ranks[3].n_messages, without.ranks[3].n_messages + 3);
    }
}

#[test]
fn every_schedule_ends_with_every_pipeline_and_credit() {
    let network = NetworkModel { send_overhead: 1e-6, recv_overhead: 1e-6, ..NETWORK };
    let speeds = PrimitiveSpeeds::of_parts(1e9, 2e9, 3e9, 4e9, 5e9);
    let lossy = Costs::of(speeds, WireSizes::with_ratio(4, 4.0));
    let raw = Costs::of(PrimitiveSpeeds::uniform(5e9), WireSizes::exact(4));
    for size in (1..=17).chain([64, 100, 257]) {
        for (&schedule, collective) in schedule::ALL
            .iter()
            .flat_map(|schedule| Collective::ALL.map(move |collective| (schedule, collective)))
            .filter(|(schedule, collective)| schedule.supports(*collective))
        {
            let depths = [1, 4, 2, 1, 3].into_iter().cycle();
            for (pipeline, link_depth) in pipeline::ALL.into_iter().zip(depths) {
                let plan = match pipeline {
                    pipeline::RAW => Plan::raw(),
                    other => Plan::raw().compressed(other, Bound::Absolute(1e-3)),
                };
                let root = Rank::new(size / 2);
                let plan = plan.with_schedule(schedule);
                // Messages of many parts need large frames.
                let frame_bytes = match schedule.min_run(ProgramSpec::new(collective, size, root)) {
                    ..=50 => 20_000,
                    51..=150 => 60_000,
                    _ => 120_000,
                };
                let case = ModelCall {
                    root,
                    frame_bytes,
                    ..ModelCall::new(collective, plan, size, 30_011)
                };
                let host = HostModel { ranks_per_node: 4, cores: 3, wake: 2e-6, time_slice: 1e-5 };
                let eager = (link_depth > 2).then_some(2_000);
                let network = NetworkModel { link_depth, eager, ..network };
                let costs = if plan.codec.is_exact() { &raw } else { &lossy };
                let prediction = predict::<f32>(&case, &ClusterModel { network, host }, costs);
                let prediction = prediction.unwrap_or_else(|error| {
                    panic!("{} {} {size}: {error}", schedule.name(), collective.name())
                });
                // No rank sends more than its link can carry in that time.
                for rank in &prediction.ranks {
                    assert!(rank.wire_bytes as f64 / 1e9 <= prediction.seconds + 1e-9);
                    assert!(rank.computing <= prediction.seconds + 1e-9);
                }
                assert!(size == 1 || prediction.seconds > NETWORK.latency);
            }
        }
    }
}

#[test]
fn faster_links_do_not_make_it_slower() {
    // The slack allows for scheduling anomalies: with more bandwidth, lanes may be served in
    // another order.
    let speeds = PrimitiveSpeeds::of_parts(1e9, 2e9, 3e9, 4e9, 5e9);
    let costs = Costs::of(speeds, WireSizes::with_ratio(4, 4.0));
    for schedule in schedule::ALL {
        for collective in Collective::ALL.into_iter().filter(|&c| schedule.supports(c)) {
            let plan = Plan::foldwire(Bound::Absolute(1e-3)).with_schedule(*schedule);
            let case = ModelCall::new(collective, plan, 12, 3_000_000);
            let time = |rate| {
                let network = NetworkModel { rate: Some(rate), ..NETWORK };
                seconds(&case, &ClusterModel::of(network), &costs)
            };
            let times: Vec<f64> = [3e7, 1e8, 3e8, 1e9, 3e9, 1e10].map(time).to_vec();
            // In recursive halving, some ranks also serve a guest (a rank outside the core), so
            // another order makes their lanes wait longer. In Bruck's exchange, each rank waits for
            // another rank in each round.
            let slack = match schedule.name() {
                "recursive-halving" => 1.25,
                "bruck" => 1.05,
                _ => 1.02,
            };
            assert!(
                times.windows(2).all(|pair| pair[1] <= slack * pair[0]),
                "{} {}: {times:?}",
                schedule.name(),
                collective.name()
            );
            assert!(
                times[5] < 0.7 * times[0],
                "{} {}: {times:?}",
                schedule.name(),
                collective.name()
            );
        }
    }
}

#[test]
fn the_same_question_has_the_same_answer() {
    let plan = Plan::foldwire(Bound::Relative(1e-3));
    let case = ModelCall::new(Collective::AllReduce, plan, 33, 1_000_000);
    let costs = Costs::of(
        PrimitiveSpeeds::of_parts(1e9, 2e9, 3e9, 4e9, 5e9),
        WireSizes::with_ratio(4, 4.0),
    );
    let host = HostModel { ranks_per_node: 33, cores: 2, ..HostModel::default() };
    let cluster = ClusterModel { network: NETWORK, host };
    let [a, b] = [(); 2].map(|()| predict::<f32>(&case, &cluster, &costs).unwrap());
    assert_eq!(a, b);
}

#[test]
fn what_cannot_run_is_refused() {
    let costs = Costs::raw::<f32>();
    let case = ModelCall::new(Collective::AllReduce, Plan::raw(), 4, 100);
    let refused = |case: ModelCall, host: HostModel| {
        let cluster = ClusterModel { host, ..ClusterModel::default() };
        predict::<f32>(&case, &cluster, &costs).unwrap_err()
    };
    let host = HostModel::default();
    for (case, host) in [
        (ModelCall { size: 0, ..case }, host),
        (ModelCall { root: Rank(4), ..case }, host),
        (ModelCall { lanes: 0, ..case }, host),
        (case, HostModel { cores: 0, ..host }),
        (case, HostModel { ranks_per_node: 0, ..host }),
    ] {
        assert!(matches!(refused(case, host), CostError::Empty { .. }));
    }
    let network = NetworkModel { link_depth: 0, ..NETWORK };
    let cluster = ClusterModel { network, ..ClusterModel::default() };
    let refused_links = predict::<f32>(&case, &cluster, &costs).unwrap_err();
    assert!(matches!(refused_links, CostError::Empty { link_depth: 0, .. }));
    let plan = Plan::raw().with_schedule(&Chain);
    let unsupported = refused(ModelCall { plan, ..case }, host);
    assert!(matches!(unsupported, CostError::Refused(Error::Unsupported { .. })));
    let small = refused(ModelCall { frame_bytes: 64, ..case }, host);
    assert!(matches!(small, CostError::Refused(Error::FrameTooSmall { .. })));
}

/// Two levels send less between nodes, and messages within a node take no bandwidth.
#[test]
fn two_levels_pay_between_slow_nodes() {
    let cluster = ClusterModel {
        network: NetworkModel { rate: Some(25e6), ..NetworkModel::default() },
        host: HostModel { ranks_per_node: 4, cores: 4, ..HostModel::default() },
    };
    for (plan, costs) in [
        (Plan::raw(), Costs::raw::<f32>()),
        (
            Plan::foldwire(Bound::Absolute(1e-3)),
            Costs::of(PrimitiveSpeeds::FREE, WireSizes::with_ratio(4, 8.0)),
        ),
    ] {
        // An all-to-all sends the same amount either way.
        let saves = |&c: &Collective| TwoLevels.supports(c) && c != Collective::AllToAll;
        for collective in Collective::ALL.into_iter().filter(saves) {
            let op = if collective.reduces() { OpCode::Sum } else { OpCode::None };
            let flat = ModelCall { op, ..ModelCall::new(collective, plan, 16, 4 << 20) };
            let levels = ModelCall { by_node: true, ..flat };
            let [flat, levels] =
                [flat, levels].map(|case| predict::<f32>(&case, &cluster, &costs).unwrap());
            assert_eq!(levels.schedule, "two-levels");
            // Two levels use the links of four ranks in a node in parallel. In a flat all-reduce
            // 2·15/16 of the array crosses each rank's link; with two levels, 2·3/4 of a quarter of
            // it does.
            let most = if collective.has_root() { 0.4 } else { 0.3 };
            let part = levels.seconds / flat.seconds;
            assert!(part < most, "{}: {part}", collective.name());
        }
    }
}

/// A rank sends fewer messages when one message carries all its data for a node.
#[test]
fn short_all_to_alls_pay_by_rounds_and_by_two_levels() {
    let (latency, overhead) = (2e-6, 1e-6);
    let network =
        NetworkModel { latency, send_overhead: overhead, recv_overhead: overhead, ..NETWORK };
    let network = NetworkModel { rate: Some(12.5e9), ..network };
    let host = HostModel { ranks_per_node: 8, cores: 8, ..HostModel::default() };
    let cluster = ClusterModel { network, host };
    let seconds = |plan: Plan, by_node| {
        let case = ModelCall { by_node, ..ModelCall::new(Collective::AllToAll, plan, 64, 4096) };
        let prediction = predict::<f32>(&case, &cluster, &Costs::raw::<f32>()).unwrap();
        (prediction.schedule, prediction.seconds, prediction.ranks[5].n_messages)
    };
    let (_, linear, n_linear) = seconds(Plan::raw().with_schedule(&Linear), false);
    let (rounds, in_rounds, n_rounds) = seconds(Plan::raw(), false);
    let (levels, by_levels, n_levels) = seconds(Plan::raw(), true);
    assert_eq!([rounds, levels], ["bruck", "two-levels"]);
    assert_eq!([n_linear, n_rounds, n_levels], [63, 6, 14]);
    assert!(
        3.0 * in_rounds < linear && 3.0 * by_levels < linear,
        "{linear} {in_rounds} {by_levels}"
    );
}

/// Counts the primitives in rank 0's program for one round: encodings, decodings, additions of
/// floats, combinations of frames, folds, copies of values, copies of frames.
fn tally(collective: Collective, plan: &Plan, schedule: &dyn Schedule, size: usize) -> [usize; 7] {
    let (rank, call) = (Rank(0), ProgramSpec::new(collective, size, Rank(0)));
    let op = if collective.reduces() { OpCode::Sum } else { OpCode::None };
    let rules = Rules::of_plan(collective, plan, op);
    let mut held = None;
    let mut sums = [0; 7];
    for index in 0..schedule.n_steps(call, rank) {
        let step = schedule.step(call, rank, index);
        let (codec, n_parts) = (plan.codec, step.n_parts);
        let received = step.from.map(|_| SlotContent::new(codec, 1, n_parts).received());
        let (w, _) = work::count_step(rules, true, (call, rank), &step, &mut held, received);
        let step_sums = [
            w.encode + w.refold + w.recode,
            w.decode + w.reduce + w.refold + w.recode,
            w.reduce + w.refold + w.add,
            w.combine,
            w.fold + w.fold_store,
            w.copy,
            w.copy_frame,
        ];
        sums.iter_mut().zip(step_sums).for_each(|(sum, n)| *sum += usize::from(n));
    }
    sums
}

#[test]
fn presets_work_as_the_page_on_algorithms_says() {
    use Collective::{AllGather, AllReduce, Broadcast, ReduceScatter};
    use foldwire::Preset::{Cprp2p, Foldwire, Gzccl, Hzccl, Zccl};
    for n in [2_usize, 4, 8, 64] {
        let k = n.ilog2() as usize;
        let ring: &dyn Schedule = &Ring;
        for (collective, preset, schedule, expected) in [
            (AllReduce, Cprp2p, ring, [2 * (n - 1), 2 * n - 1, n - 1, 0, 0, 0, 0]),
            (AllReduce, Zccl, ring, [n, 2 * n - 1, n - 1, 0, 0, 0, 0]),
            (AllReduce, Hzccl, ring, [n, n, 0, n - 1, 0, 0, 0]),
            (AllReduce, Gzccl, &RecursiveDoubling, [k, 2 * k, k, 0, 0, 1, 0]),
            (AllReduce, Foldwire, ring, [1, n - 1, 0, 0, n - 1, 0, 0]),
            (AllReduce, Foldwire, &Pairwise, [n - 1, n, 0, n - 2, 1, 0, n - 1]),
            (ReduceScatter, Cprp2p, ring, [n - 1, n - 1, n - 1, 0, 0, 0, 0]),
            (ReduceScatter, Zccl, ring, [n - 1, n - 1, n - 1, 0, 0, 0, 0]),
            (ReduceScatter, Hzccl, ring, [n, 1, 0, n - 1, 0, 0, 0]),
            (ReduceScatter, Foldwire, ring, [1, 0, 0, 0, n - 1, 0, 0]),
            (AllGather, Cprp2p, ring, [n - 1, n, 0, 0, 0, 0, 0]),
            (AllGather, Zccl, ring, [1, n, 0, 0, 0, 0, 0]),
            (Broadcast, Cprp2p, &Binomial, [k + 1, 1, 0, 0, 0, 0, 0]),
            (Broadcast, Zccl, &Binomial, [1, 1, 0, 0, 0, 0, k]),
        ] {
            let plan = preset.plan(collective, Bound::Absolute(1.0));
            let found = tally(collective, &plan, schedule, n);
            assert_eq!(found, expected, "{} by {} of {n}", collective.name(), preset.name());
        }
    }
}
