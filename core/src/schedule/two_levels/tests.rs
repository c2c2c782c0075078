//! Two levels are correct for all node layouts, and send as little between nodes as documented.

use super::*;
use crate::schedule::check::{Message, check, messages};
use alloc::vec::Vec;

const SUPPORTED: [Collective; 8] = [
    Collective::AllReduce,
    Collective::ReduceScatter,
    Collective::AllGather,
    Collective::Broadcast,
    Collective::Scatter,
    Collective::Gather,
    Collective::Reduce,
    Collective::AllToAll,
];

fn call(collective: Collective, n_nodes: usize, per_node: usize, root: usize) -> ProgramSpec {
    ProgramSpec::new(collective, n_nodes * per_node, Rank::new(root)).with_nodes(per_node)
}

/// All calls with this node layout, with a few of the roots if there are many ranks.
fn calls(n_nodes: usize, per_node: usize) -> impl Iterator<Item = ProgramSpec> {
    let n = n_nodes * per_node;
    let roots = move |collective: Collective| {
        let n_roots = if collective.has_root() { n } else { 1 };
        (0..n_roots).step_by(if n > 24 { n / 5 } else { 1 })
    };
    SUPPORTED.into_iter().flat_map(move |collective| {
        roots(collective).map(move |root| call(collective, n_nodes, per_node, root))
    })
}

/// The messages between nodes.
fn far(call: ProgramSpec) -> Vec<Message> {
    let (_, messages) = messages(&TwoLevels, call).expect("a correct schedule");
    messages.into_iter().filter(|message| !call.is_near(message.from, message.to)).collect()
}

#[test]
fn it_is_right_for_any_nodes() {
    let nodes = (1..=12).flat_map(|n| (1..=12).map(move |k| (n, k)));
    for (n_nodes, per_node) in nodes.chain([(64, 2), (2, 64), (16, 8)]) {
        for call in calls(n_nodes, per_node) {
            let summary = check(&TwoLevels, call);
            assert!(summary.is_ok(), "{call:?}: {summary:?}");
        }
    }
}

/// Counts messages. Each carries one part, or in an all-to-all one row of parts.
#[test]
fn what_a_rank_sends_to_other_nodes_is_what_the_documentation_says() {
    for (n_nodes, k) in [(2, 2), (3, 4), (5, 2), (8, 8), (2, 5)] {
        for call in calls(n_nodes, k) {
            let far = far(call);
            let home = call.root.index() / k;
            for rank in (0..call.size).map(Rank::new) {
                let sent = far.iter().filter(|message| message.from == rank).count();
                let distance = (rank.index() / k + n_nodes - home) % n_nodes;
                let (is_home, is_last) = (distance == 0, distance + 1 == n_nodes);
                let expected = match call.collective {
                    Collective::AllReduce => 2 * (n_nodes - 1),
                    Collective::ReduceScatter | Collective::AllGather | Collective::AllToAll => {
                        n_nodes - 1
                    }
                    Collective::Broadcast => usize::from(!is_last),
                    Collective::Reduce => usize::from(!is_home),
                    Collective::Scatter if is_home => n_nodes - 1,
                    Collective::Scatter => 0,
                    _ => usize::from(!is_home),
                };
                assert_eq!(sent, expected, "{call:?}: {rank}");
            }
        }
    }
}

#[test]
fn messages_of_an_all_to_all_are_of_all_ranks_of_a_node_or_for_them() {
    for (n_nodes, k) in [(2, 2), (3, 4), (5, 2), (8, 8), (2, 5)] {
        let call = call(Collective::AllToAll, n_nodes, k, 0);
        let (summary, messages) = messages(&TwoLevels, call).expect("a correct schedule");
        assert_eq!(summary.n_messages, call.size * (n_nodes + k - 2), "{call:?}");
        for message in messages {
            let is_near = call.is_near(message.from, message.to);
            let expected = if is_near { n_nodes } else { k };
            assert_eq!(message.n_parts, expected, "{call:?}: {message:?}");
        }
    }
}

/// The sender and the receiver of a message between nodes are at the same place of their nodes.
#[test]
fn all_places_of_a_node_send_side_by_side() {
    for (n_nodes, k) in [(2, 2), (3, 4), (4, 3)] {
        for call in calls(n_nodes, k) {
            for message in far(call) {
                let [from, to] = [message.from, message.to].map(|rank| rank.index() % k);
                assert_eq!(from, to, "{call:?}: {message:?}");
            }
        }
    }
}

/// The value that is encoded for another node is the sum of the node's operands.
#[test]
fn a_nodes_values_are_added_before_they_leave_it() {
    for call in [(2, 3), (4, 2)].into_iter().flat_map(|(n, k)| calls(n, k)) {
        let n_combined = if call.collective.reduces() { call.ranks_per_node } else { 1 };
        assert_eq!(TwoLevels.n_combined(call), n_combined, "{call:?}");
        assert_eq!(call.by(&TwoLevels), call, "the node layout is not hidden");
    }
}

#[test]
fn where_there_are_no_two_levels_it_is_the_default() {
    // One node, nodes of one rank, and nodes of unequal size.
    for (size, per_node) in [(4, 4), (4, 8), (4, 1), (5, 2), (1, 1)] {
        for collective in SUPPORTED {
            let call = ProgramSpec::new(collective, size, Rank(0)).with_nodes(per_node);
            let default = default_for(collective);
            assert_eq!(TwoLevels.n_combined(call), 1);
            assert_eq!(TwoLevels.n_parts(call), default.n_parts(call));
            assert_eq!(TwoLevels.n_encodings(call), default.n_encodings(call));
            for rank in (0..size).map(Rank::new) {
                assert_eq!(TwoLevels.n_steps(call, rank), default.n_steps(call, rank));
                for index in 0..default.n_steps(call, rank) {
                    assert_eq!(TwoLevels.step(call, rank, index), default.step(call, rank, index));
                }
            }
        }
    }
}

#[test]
fn two_levels_cost_what_their_documentation_says() {
    for (n_nodes, k) in (2..=8).flat_map(|n| (2..=8).map(move |k| (n, k))) {
        for call in calls(n_nodes, k) {
            let path = match call.collective {
                Collective::AllReduce => 2 * (call.size + n_nodes - 2),
                Collective::ReduceScatter | Collective::AllGather => call.size + n_nodes - 2,
                Collective::Broadcast => 2 * k + n_nodes - 1,
                Collective::Reduce => 2 * k + n_nodes - 3,
                Collective::AllToAll => n_nodes + k - 2,
                _ => call.size - 1,
            };
            assert_eq!(check(&TwoLevels, call).unwrap().critical_path, path, "{call:?}");
        }
    }
}
