//! Endpoints over a message layer in memory that is as awkward as the contract allows.

mod fake_net;

use std::cell::RefCell;
use std::rc::Rc;
use std::task::Poll;
use std::time::{Duration, Instant};

use fake_net::{FOREIGN, FakeNet, FakeNetwork};
use foldwire::HeapFrame;
use foldwire::error::AbortReason;
use foldwire::transport::{MAX_CHANNELS, MIN_FRAME_BYTES, TransportError, TransportErrorKind};
use foldwire::{Bound, Call, Communicator, Error, Op, Plan, Rank, Report, Tag, Transport};
use foldwire_messaging::{Endpoint, Event, Options};

type Comm = Communicator<Endpoint<FakeNet>>;

fn endpoint(
    network: &Rc<RefCell<FakeNetwork>>,
    rank: usize,
    options: Options,
) -> Endpoint<FakeNet> {
    let (network, rank) = (Rc::clone(network), Rank::new(rank));
    Endpoint::new(FakeNet { network, rank, moves_by_itself: false }, options).unwrap()
}

fn options(frame_bytes: usize) -> Options {
    let mut options = Options::default();
    options.frame_bytes = frame_bytes;
    options.grace = Duration::from_millis(20);
    options
}

/// Runs one all-reduce of all ranks, polled in turn.
fn all_reduce(
    comms: &mut [Comm],
    values: &mut [Vec<f32>],
    plan: &Plan,
) -> Vec<Result<Report, Error>> {
    let mut operations: Vec<_> = comms
        .iter_mut()
        .zip(values)
        .map(|(comm, values)| Some(comm.start(Call::all_reduce(values, Op::Sum), plan).unwrap()))
        .collect();
    let mut results: Vec<_> = operations.iter().map(|_| None).collect();
    while results.iter().any(Option::is_none) {
        for (operation, result) in operations.iter_mut().zip(&mut results) {
            let Some(running) = operation else { continue };
            if let Poll::Ready(outcome) = running.poll() {
                *result = Some(outcome);
                *operation = None;
            }
        }
    }
    results.into_iter().flatten().collect()
}

#[test]
fn a_nudge_moves_a_layer_along_that_does_not_move_by_itself() {
    for moves_by_itself in [false, true] {
        let network = FakeNetwork::shared(2, 0);
        let (from, to, tag) = (Rank(0), Rank(1), Tag(0));
        let mut sender = endpoint(&network, 0, options(2_000));
        let net = FakeNet { network: Rc::clone(&network), rank: to, moves_by_itself };
        let mut receiver = Endpoint::new(net, options(2_000)).unwrap();
        receiver.expect(from, tag);
        let Poll::Ready(Ok(frame)) = sender.poll_frame() else { panic!("memory is the limit") };
        assert!(sender.poll_ready(to, tag).is_ready());
        sender.send(to, tag, frame, 7).unwrap();
        assert!(receiver.poll_recv(from, tag).is_pending(), "no poll has received it");
        receiver.nudge();
        assert_eq!(receiver.poll_recv(from, tag).is_pending(), moves_by_itself);
        receiver.progress().unwrap();
    }
}

#[test]
fn sums_are_right_however_the_layer_refuses_and_reorders() {
    for size in [1, 2, 3, 5] {
        for busy in [0, 100, 230] {
            let network = FakeNetwork::shared(size, busy);
            let mut comms: Vec<Comm> = (0..size)
                .map(|rank| Communicator::new(endpoint(&network, rank, options(5_000))).unwrap())
                .collect();
            for plan in [Plan::raw(), Plan::foldwire(Bound::Relative(1e-3))] {
                for count in [0, 1, 10_000] {
                    let mut values = vec![vec![1.5f32; count]; size];
                    let results = all_reduce(&mut comms, &mut values, &plan);
                    assert!(results.iter().all(Result::is_ok), "{size} {busy}: {results:?}");
                    let exact = 1.5 * size as f32;
                    assert!(values.iter().flatten().all(|&x| x == exact), "{size} {busy}");
                }
            }
            drop(comms);
            let network = network.borrow();
            assert!(network.ranks.iter().all(|state| state.posted.is_empty()));
            // A rank that waited long enough to query its peers has sent control messages. One that
            // has no receiver at the end may still arrive, so the rank must abandon the layer.
            for (state, rank) in network.ranks.iter().zip(0..) {
                assert!(state.abandoned || !network.has_unread(Rank(rank)));
            }
        }
    }
}

/// A rank that asked another one about its call ends in good order once the question was received.
#[test]
fn a_question_that_was_received_is_no_reason_to_abandon_the_layer() {
    for is_received in [true, false] {
        let network = FakeNetwork::shared(2, 0);
        let ends = [0, 1].map(|rank| endpoint(&network, rank, options(5_000)));
        let [mut asking, mut asked] = ends.map(|endpoint| Communicator::new(endpoint).unwrap());
        let (mut a, mut b) = ([1.0f32; 100], [1.0f32; 100]);
        let plan = Plan::raw();
        let mut waiting = asking.start(Call::all_reduce(&mut a, Op::Sum), &plan).unwrap();
        while network.borrow().ranks[0].n_control_sent == 0 {
            assert!(waiting.poll().is_pending());
        }
        if is_received {
            let late = asked.start(Call::all_reduce(&mut b, Op::Sum), &plan).unwrap();
            assert!(drive_all(vec![waiting, late]).iter().all(Result::is_ok));
            drop((asked, asking));
            assert!(network.borrow().ranks.iter().all(|state| !state.abandoned));
        } else {
            drop(waiting);
            drop((asking, asked));
            assert!(network.borrow().ranks[0].abandoned);
        }
    }
}

/// A fast sender can have at most 2·depth frames waiting at a receiver that takes none. The default
/// depth is 4.
#[test]
fn a_sender_gets_no_further_ahead_than_its_credit() {
    let network = FakeNetwork::shared(2, 0);
    let mut sender = endpoint(&network, 0, options(2048));
    let mut receiver = endpoint(&network, 1, options(2048));
    let (to, tag) = (Rank(1), Tag(3));
    let mut n_sent = 0;
    for _ in 0..1000 {
        sender.progress().unwrap();
        if let Poll::Ready(ready) = sender.poll_ready(to, tag) {
            ready.unwrap();
            let Poll::Ready(Ok(frame)) = sender.poll_frame() else { panic!("no frame") };
            sender.send(to, tag, frame, 2048).unwrap();
            n_sent += 1;
        }
    }
    assert!((4..=8).contains(&n_sent), "{n_sent}");
    let mut n_received = 0;
    while n_received < n_sent {
        receiver.progress().unwrap();
        if let Poll::Ready(Ok((frame, n_bytes))) = receiver.poll_recv(Rank(0), tag) {
            assert_eq!(n_bytes, 2048);
            receiver.recycle(frame);
            n_received += 1;
        }
    }
    assert!(sender.poll_ready(to, tag).is_pending() || n_sent < 8);
    sender.progress().unwrap();
    assert!(sender.poll_ready(to, tag).is_ready());
}

#[test]
fn a_lost_rank_is_an_error_after_what_it_sent() {
    let network = FakeNetwork::shared(2, 0);
    let mut survivor = endpoint(&network, 0, options(2048));
    let mut lost = endpoint(&network, 1, options(2048));
    let Poll::Ready(Ok(frame)) = lost.poll_frame() else { panic!("no frame") };
    lost.send(Rank(0), Tag(0), frame, 100).unwrap();
    network.borrow_mut().ranks[0].events.push(Event::Lost { peer: Rank(1) });
    survivor.progress().unwrap();
    let refused = survivor.poll_ready(Rank(1), Tag(0));
    assert!(matches!(&refused, Poll::Ready(Err(e)) if e.kind() == TransportErrorKind::PeerLost));
    let start = Instant::now();
    let mut got = false;
    loop {
        survivor.progress().unwrap();
        match survivor.poll_recv(Rank(1), Tag(0)) {
            Poll::Pending => {}
            Poll::Ready(Ok((frame, 100))) => {
                got = true;
                survivor.recycle(frame);
            }
            Poll::Ready(Ok(_)) => panic!("a message of another length"),
            Poll::Ready(Err(error)) => {
                assert_eq!(error.kind(), TransportErrorKind::PeerLost);
                break;
            }
        }
        assert!(start.elapsed() < Duration::from_secs(5));
    }
    assert!(got, "the error came before the message");
    drop(survivor);
    assert!(network.borrow().ranks[0].abandoned && !network.borrow().ranks[1].abandoned);
}

/// Sends to a rank that left or was lost fail. If the rank left, a dropped endpoint still waits up
/// to `linger` until the other ranks have received their messages. If it was lost, the endpoint
/// waits for `grace` only.
#[test]
fn a_rank_that_left_in_good_order_hurries_nobody() {
    for in_order in [true, false] {
        let network = FakeNetwork::shared(3, 0);
        let linger = Duration::from_millis(500);
        let mut lingering = options(2048);
        lingering.linger = linger;
        let mut first = endpoint(&network, 0, lingering);
        let _slow = endpoint(&network, 1, options(2048));
        let peer = Rank(2);
        let event = if in_order { Event::Left { peer } } else { Event::Lost { peer } };
        network.borrow_mut().ranks[0].events.push(event);
        first.progress().unwrap();
        let refused = first.poll_ready(peer, Tag(0));
        assert!(
            matches!(&refused, Poll::Ready(Err(e)) if e.kind() == TransportErrorKind::PeerLost)
        );
        while let Poll::Ready(ready) = first.poll_ready(Rank(1), Tag(0)) {
            ready.unwrap();
            let Poll::Ready(Ok(frame)) = first.poll_frame() else { panic!("no frame") };
            first.send(Rank(1), Tag(0), frame, 2048).unwrap();
            first.progress().unwrap();
        }
        assert_eq!(first.undelivered(), Some(Rank(1)));
        let start = Instant::now();
        drop(first);
        let has_waited = start.elapsed() >= linger;
        assert_eq!(has_waited, in_order, "{:?}", start.elapsed());
        assert_eq!(network.borrow().ranks[0].abandoned, !in_order);
    }
}

#[test]
fn misuse_is_refused_and_gives_the_frame_back() {
    let network = FakeNetwork::shared(2, 0);
    let mut endpoint = endpoint(&network, 0, options(2048));
    let mut refused = |to, tag, n_bytes| {
        let Poll::Ready(Ok(frame)) = endpoint.poll_frame() else { panic!("no frame") };
        endpoint.send(to, tag, frame, n_bytes).map_err(|error| error.kind())
    };
    let misuse = Err(TransportErrorKind::Misuse);
    assert_eq!(refused(Rank(2), Tag(0), 1), misuse);
    assert_eq!(refused(Rank(1), Tag((MAX_CHANNELS * Tag::COUNT) as u16), 1), misuse);
    assert_eq!(refused(Rank(1), Tag(0), 2049), misuse);
    assert_eq!(refused(Rank(1), Tag::CONTROL, MIN_FRAME_BYTES + 1), misuse);
    assert_eq!(refused(Rank(1), Tag(0), 2048), Ok(()));
    let net = FakeNet { network: Rc::clone(&network), rank: Rank(0), moves_by_itself: false };
    let small = Endpoint::new(net, options(1000));
    assert!(small.is_err());
}

#[test]
fn frames_of_another_endpoint_are_refused_and_not_kept() {
    let network = FakeNetwork::shared(2, 0);
    let mut endpoint = endpoint(&network, 0, options(2048));
    let foreign = || {
        let mut frame = HeapFrame::new(2048);
        frame.as_mut().fill(FOREIGN);
        frame
    };
    endpoint.recycle(foreign());
    let refused = endpoint.send(Rank(1), Tag(0), foreign(), 100);
    assert!(matches!(refused, Err(foldwire_messaging::Error::ForeignFrame)), "{refused:?}");
    for _ in 0..3 {
        let Poll::Ready(Ok(frame)) = endpoint.poll_frame() else { panic!("no frame") };
        assert_ne!(frame.as_ref()[2047], FOREIGN);
    }
    assert_eq!(endpoint.undelivered(), None);
}

#[test]
fn a_notice_finds_a_rank_that_waits_for_data() {
    let network = FakeNetwork::shared(2, 0);
    let mut comms: Vec<Comm> = (0..2)
        .map(|rank| Communicator::new(endpoint(&network, rank, options(5_000))).unwrap())
        .collect();
    let [first, second] = &mut comms[..] else { panic!("two") };
    let plan = Plan::foldwire(Bound::Absolute(1e-3));
    let (mut a, mut b) = (vec![1.0f32; 1000], vec![1.0f32; 1000]);
    let mut waiting = first.start(Call::all_reduce(&mut a, Op::Sum), &plan).unwrap();
    drop(second.start(Call::all_reduce(&mut b, Op::Sum), &plan).unwrap());
    let outcome = loop {
        if let Poll::Ready(outcome) = waiting.poll() {
            break outcome;
        }
    };
    let (rank, reason) = (Rank(1), AbortReason::Dropped);
    assert_eq!(outcome, Err(Error::Aborted { rank, culprit: rank, reason }));
    drop(waiting);
    drop(comms);
    assert!(network.borrow().ranks.iter().all(|state| state.abandoned));
}

/// Polls all shrinks until each has its result.
fn shrink_all(comms: Vec<Comm>, patience: Duration) -> Vec<Comm> {
    let start = |comm: Comm| (comm.start_shrink(patience).expect("a small group"), None);
    let mut shrinks: Vec<_> = comms.into_iter().map(start).collect();
    while shrinks.iter().any(|(_, done)| done.is_none()) {
        for (shrink, done) in shrinks.iter_mut().filter(|(_, done)| done.is_none()) {
            if let Poll::Ready(result) = shrink.poll() {
                *done = Some(result.expect("the others are there"));
            }
        }
    }
    shrinks.into_iter().filter_map(|(_, done)| done).collect()
}

fn sums(comms: &mut [Comm]) -> Vec<f32> {
    let plan = Plan::raw();
    let mut data: Vec<Vec<f32>> = (1..=comms.len()).map(|n| vec![n as f32; 7000]).collect();
    let operations = comms.iter_mut().zip(&mut data);
    let start =
        operations.map(|(comm, x)| comm.start(Call::all_reduce(x, Op::Sum), &plan).unwrap());
    for result in drive_all(start.collect()) {
        result.expect("all are there");
    }
    assert!(data.iter().all(|x| x.iter().all(|value| *value == x[0])));
    data.iter().map(|x| x[0]).collect()
}

fn drive_all(
    mut operations: Vec<foldwire::Operation<'_, Endpoint<FakeNet>, f32>>,
) -> Vec<Result<Report, Error>> {
    let mut results = vec![None; operations.len()];
    while results.iter().any(Option::is_none) {
        for (operation, result) in operations.iter_mut().zip(&mut results) {
            if result.is_none()
                && let Poll::Ready(ready) = operation.poll()
            {
                *result = Some(ready);
            }
        }
    }
    results.into_iter().flatten().collect()
}

/// The survivors reuse links that hold frames of an aborted call. In half of the cases the layer
/// also refuses calls at random.
#[test]
fn survivors_go_on_whether_a_rank_is_lost_or_silent() {
    for is_reported in [true, false] {
        for busy in [0, 100] {
            let network = FakeNetwork::shared(4, busy);
            let comm = |rank| Communicator::new(endpoint(&network, rank, options(5_000))).unwrap();
            let mut comms: Vec<Comm> = (0..4).map(comm).collect();
            let plan = Plan::raw();
            let mut data = vec![vec![1.0f32; 20_000]; 4];
            let mut operations: Vec<_> = comms
                .iter_mut()
                .zip(&mut data)
                .map(|(comm, x)| comm.start(Call::all_reduce(x, Op::Sum), &plan).unwrap())
                .collect();
            for _ in 0..5 {
                for operation in &mut operations {
                    let _ = operation.poll();
                }
            }
            // Rank 1 stops here.
            drop(operations);
            let silent = comms.remove(1);
            if is_reported {
                for rank in [0, 2, 3] {
                    network.borrow_mut().ranks[rank].events.push(Event::Lost { peer: Rank(1) });
                }
            }
            let mut survivors = shrink_all(comms, Duration::from_millis(800));
            assert!(survivors.iter().all(|comm| comm.size() == 3));
            for _ in 0..3 {
                assert_eq!(sums(&mut survivors), [6.0; 3], "told: {is_reported}, busy: {busy}");
            }
            drop(silent);
        }
    }
}

#[test]
fn of_many_notices_the_newest_are_kept() {
    let network = FakeNetwork::shared(2, 0);
    let (mut first, mut second) =
        (endpoint(&network, 0, options(2048)), endpoint(&network, 1, options(2048)));
    for n in 0..20u8 {
        loop {
            second.progress().unwrap();
            first.progress().unwrap();
            if second.poll_ready(Rank(0), Tag::CONTROL).is_ready() {
                break;
            }
        }
        let Poll::Ready(Ok(mut frame)) = second.poll_frame() else { panic!("no frame") };
        frame.as_mut()[0] = n;
        second.send(Rank(0), Tag::CONTROL, frame, 1).unwrap();
    }
    for _ in 0..100 {
        second.progress().unwrap();
        first.progress().unwrap();
    }
    let mut kept = Vec::new();
    while let Poll::Ready(Ok((frame, 1))) = first.poll_recv(Rank(1), Tag::CONTROL) {
        kept.push(frame.as_ref()[0]);
        first.recycle(frame);
    }
    // An endpoint keeps four notices of each rank.
    assert_eq!(kept, [16, 17, 18, 19]);
}

/// A rank that misses an abort notice waits until its time limit, so the sender waits longer to
/// deliver notices.
#[test]
fn a_dropped_endpoint_waits_longer_for_its_notices_than_for_frames() {
    let grace = options(MIN_FRAME_BYTES).grace;
    for (opens_after, arrives) in [(3 * grace, true), (1000 * grace, false)] {
        let network = FakeNetwork::shared(2, 0);
        let ends = [0, 1].map(|rank| endpoint(&network, rank, options(4096)));
        let [mut comm, other] = ends.map(|endpoint| Communicator::new(endpoint).unwrap());
        let start = Instant::now();
        network.borrow_mut().opens = Some(start + opens_after);
        let mut values = [1.0f32; 100];
        let mut call = comm.start(Call::all_reduce(&mut values, Op::Sum), &Plan::raw()).unwrap();
        assert!(call.poll().is_pending());
        call.cancel();
        drop(comm);
        let has_arrived =
            network.borrow().ranks[1].unexpected.iter().any(|&(_, tag, _)| tag == Tag::CONTROL)
                || network.borrow().ranks[1].events.iter().any(is_notice);
        assert_eq!(has_arrived, arrives);
        let took = start.elapsed();
        assert!(took >= if arrives { opens_after } else { 10 * grace }, "{took:?}");
        assert!(took < 500 * grace, "{took:?}");
        drop(other);
    }
}

/// A rank may abort a call while the network takes no messages. Its notices to all other ranks then
/// wait in small buffers.
#[test]
fn notices_take_no_frames() {
    let network = FakeNetwork::shared(20, 0);
    let mut comm = Communicator::new(endpoint(&network, 0, options(100_000))).unwrap();
    network.borrow_mut().opens = Some(Instant::now() + Duration::from_millis(60));
    let mut values = [1.0f32; 100];
    let mut call = comm.start(Call::all_reduce(&mut values, Op::Sum), &Plan::raw()).unwrap();
    assert!(call.poll().is_pending());
    let before = network.borrow().ranks[0].n_frames;
    call.cancel();
    assert!(network.borrow().ranks[0].n_frames <= before + 1);
    drop(comm);
    assert_eq!(network.borrow().ranks[0].n_control_sent, 19);
}

const fn is_notice(event: &Event<HeapFrame>) -> bool {
    matches!(event, Event::Received { tag: Tag::CONTROL, .. })
}

#[test]
fn what_is_under_way_to_a_forgotten_rank_no_longer_counts() {
    let network = FakeNetwork::shared(3, 0);
    let mut first = endpoint(&network, 0, options(2048));
    let _others = [endpoint(&network, 1, options(2048)), endpoint(&network, 2, options(2048))];
    for to in [Rank(1), Rank(2)] {
        while let Poll::Ready(ready) = first.poll_ready(to, Tag(0)) {
            ready.unwrap();
            let Poll::Ready(Ok(frame)) = first.poll_frame() else { panic!("no frame") };
            first.send(to, Tag(0), frame, 2048).unwrap();
            first.progress().unwrap();
        }
    }
    assert_eq!(first.undelivered(), Some(Rank(1)));
    first.forget(Rank(1));
    assert_eq!(first.undelivered(), Some(Rank(2)));
    first.forget(Rank(2));
    assert_eq!(first.undelivered(), None);
    assert_eq!(network.borrow().ranks[0].forgotten, [Rank(1), Rank(2)], "the layer is informed");
}
