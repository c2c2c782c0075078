//! One rank's shrink, poll by poll, over a transport in memory.

use super::ballot::View;
use super::*;
use crate::engine::{MemoryTransport, NoticeBody};
use crate::error::AbortReason;
use crate::frame::CallHeader;
use crate::group::RankSet;
use crate::transport::MIN_FRAME_BYTES;
use std::vec;

fn communicator(size: usize) -> Communicator<MemoryTransport> {
    Communicator::new(MemoryTransport::new(size, 9)).expect("a transport that keeps its contract")
}

fn transport(shrink: &mut Shrink<MemoryTransport>) -> &mut MemoryTransport {
    shrink.0.comm.as_mut().expect("it has not ended").transport.inner_mut()
}

/// Delivers a view in which a rank agrees that all three ranks are left.
fn agrees(shrink: &mut Shrink<MemoryTransport>, from: usize) {
    let view = View { members: RankSet::first(3), n_tags: 0 };
    let ballot = Ballot { context: 0, epoch: 1, view, heard: true };
    let mut frame = vec![0; MIN_FRAME_BYTES];
    let n_bytes = ballot.emit(MessageKind::View, Rank::new(from), 3, &mut frame, false);
    transport(shrink).puts(from, &frame[..n_bytes]);
}

#[test]
fn as_many_ranks_can_shrink_as_a_set_can_tell_apart() {
    assert!(communicator(MAX_RANKS).start_shrink(Duration::ZERO).is_ok());
    let one_more = communicator(MAX_RANKS + 1).start_shrink(Duration::ZERO);
    let size = MAX_RANKS + 1;
    assert_eq!(one_more.err(), Some(Error::TooManyRanks { size, max: MAX_RANKS }));
}

#[test]
fn who_is_silent_is_left_out_after_the_patience_and_not_at_its_end() {
    const PATIENCE: Duration = Duration::from_millis(100);
    let mut shrink = communicator(3).start_shrink(PATIENCE).expect("few ranks");
    agrees(&mut shrink, 1);
    // A gap counts as at most a quarter of the patience.
    for n in 0..=4 {
        transport(&mut shrink).now = n * PATIENCE / 4;
        assert!(shrink.poll().is_pending());
        assert_eq!(shrink.0.agreement.view().members, RankSet::first(3), "{n} quarters");
    }
    transport(&mut shrink).now += Duration::from_nanos(1);
    assert!(shrink.poll().is_pending());
    assert_eq!(shrink.0.agreement.view().members, RankSet::first(2));
}

#[test]
fn notices_of_the_group_that_forms_are_kept_and_no_others() {
    for (context, epoch, is_kept) in
        [(0, 1, true), (1, 1, false), (0, 0, false), (0, 2, false), (1, 0, false)]
    {
        let mut shrink = communicator(3).start_shrink(Duration::MAX).expect("few ranks");
        agrees(&mut shrink, 1);
        agrees(&mut shrink, 2);
        assert!(shrink.poll().is_pending());
        assert!(shrink.0.agreement.is_decided());
        // Rank 1 has all it needs to go on, and aborts its first call.
        let call = CallHeader { sequence: 1, ..CallHeader::of_no_call(context, epoch) };
        let (reason, culprit) = (AbortReason::Dropped, Rank(1));
        transport(&mut shrink).says(
            1,
            call,
            NoticeBody::GaveUp { reason, culprit, culprit_value: 0 },
        );
        assert!(shrink.poll().is_pending());
        let mut notices = shrink.0.comm.as_ref().expect("it has not ended").notices;
        let ours = CallHeader { sequence: 1, ..CallHeader::of_no_call(0, 1) };
        let told = Err(Error::Aborted { rank: Rank(1), culprit, reason });
        let expected = if is_kept { told } else { Ok(false) };
        assert_eq!(notices.begin(&mut MemoryTransport::new(3, 0), &ours, false, true), expected);
    }
}
