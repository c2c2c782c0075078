//! Messages that run at the same time as calls. Each rank exchanges messages with both neighbors on
//! a ring, with two tags. It starts its sends and receives in a random order, which differs between
//! ranks.

use super::Comm;
use crate::data;
use crate::soak::draw::Scenario;
use foldwire::{Bound, Error, Plan, Rank};
use foldwire_sim::Random;
use std::task::Poll;

/// Number of messages from each rank to each neighbor with each tag.
const PER_TAG: usize = 2;
const TAGS: [u32; 2] = [3, 4];
const BOUND: f64 = 1e-3;

/// Polls a running message. A receive also checks the values.
pub(super) type MessagePoll<'a> = Box<dyn FnMut() -> Poll<Result<(), Error>> + 'a>;

/// Starts all messages of a rank, up to the first that is refused.
pub(super) fn start<'a>(
    scenario: &Scenario,
    comm: &Comm<'a>,
    n_values: usize,
) -> Result<Vec<MessagePoll<'a>>, Error> {
    let (rank, size) = (comm.rank().index(), comm.size());
    let mut order = Vec::new();
    for (by, tag) in [1, size - 1].into_iter().flat_map(|by| TAGS.map(|tag| (by, tag))) {
        // With two ranks, both neighbors are the same rank, and order alone distinguishes the
        // messages.
        let peer = (rank + by) % size;
        order.extend([(false, peer, tag); PER_TAG]);
        order.extend([(true, peer, tag); PER_TAG]);
    }
    Random(scenario.seed.wrapping_add(rank as u64)).shuffle(&mut order);
    // Without checksums, any values may arrive.
    let is_checked = !scenario.lacks_checksums();
    let mut messages = Vec::new();
    for (at, &(is_sent, peer, tag)) in order.iter().enumerate() {
        let nth = order[..at].iter().filter(|&&other| other == order[at]).count();
        let peer = Rank::new(peer);
        messages.push(if is_sent {
            let plan = [Plan::foldwire(Bound::Absolute(BOUND)), Plan::raw()][nth % 2];
            let mut sent = comm.start_send(values(rank, tag, nth, n_values), peer, tag, &plan)?;
            Box::new(move || sent.poll().map(|result| result.map(drop))) as MessagePoll<'a>
        } else {
            let want = values(peer.index(), tag, nth, n_values);
            let mut came = Some(comm.start_recv(vec![-77.0_f32; n_values], peer, tag)?);
            Box::new(move || {
                let Some(under_way) = &mut came else { return Poll::Pending };
                let Poll::Ready(result) = under_way.poll() else { return Poll::Pending };
                let got = came.take().map(|came| came.wait().data).unwrap_or_default();
                let most = if nth % 2 == 0 { BOUND } else { 0.0 };
                if result.is_ok() && is_checked {
                    let is_within = |(x, y): (&f32, &f32)| f64::from((x - y).abs()) <= most;
                    let is_right = got.iter().zip(&want).all(is_within);
                    assert!(is_right, "message {nth} of tag {tag} from {peer}");
                }
                Poll::Ready(result.map(drop))
            })
        });
    }
    Ok(messages)
}

/// Values of the `nth` message with this tag from a rank. Both neighbors get the same values.
fn values(from: usize, tag: u32, nth: usize, n_values: usize) -> Vec<f32> {
    data::smooth(from + 100 * (nth + 1) + 1000 * tag as usize, n_values)
}
