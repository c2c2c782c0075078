//! Tests of the network itself: the time that frames take, the limits of credit and pool, the
//! effects of faults, and the outcomes of a run.

use foldwire::transport::{Rank, Tag, Transport};
use foldwire_sim::{Clock, End, Endpoint, Error, Fault, Harm, NetSettings, World};
use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

const TAG: Tag = Tag(0);

/// A network with a latency of 10 µs, 1000 bytes per µs, and no randomness. So the seed, which is
/// the second argument of `World::new`, does not affect times.
fn net() -> NetSettings {
    NetSettings {
        latency: Duration::from_micros(10),
        jitter: Duration::ZERO,
        bandwidth: 1e9,
        depth: 2,
        frame_bytes: 4096,
        frames_per_rank: 3,
        poll: Duration::ZERO,
        patience: Duration::from_secs(10),
        ..NetSettings::default()
    }
}

async fn send(endpoint: &mut Endpoint, to: usize, word: u8, n_bytes: usize) -> Result<(), Error> {
    let to = Rank::new(to);
    poll_fn(|_| endpoint.poll_ready(to, TAG)).await?;
    let mut frame = poll_fn(|_| endpoint.poll_frame()).await?;
    frame.as_mut()[0] = word;
    endpoint.send(to, TAG, frame, n_bytes)
}

/// Receives a frame; returns its first byte, its length, and the time.
async fn receive(
    endpoint: &mut Endpoint,
    clock: &Clock,
    from: usize,
) -> Result<(u8, usize, Duration), Error> {
    let (frame, n_bytes) = poll_fn(|_| endpoint.poll_recv(Rank::new(from), TAG)).await?;
    let word = frame.as_ref()[0];
    endpoint.recycle(frame);
    Ok((word, n_bytes, clock.now()))
}

/// Sends frames of these lengths from rank 0 to rank 1. Returns the frames that rank 1 received,
/// and the error that ended it.
fn stream(
    net: NetSettings,
    lengths: &[usize],
    faults: &[Fault],
) -> (Vec<(u8, usize, Duration)>, Option<Error>) {
    let run = World::new(2, 3).net(net).faults(faults.iter().copied()).run(async |mut endpoint| {
        let clock = endpoint.clock();
        let mut received = Vec::new();
        if endpoint.rank() == Rank(0) {
            for (i, &n_bytes) in lengths.iter().enumerate() {
                if let Err(error) = send(&mut endpoint, 1, i as u8, n_bytes).await {
                    return (received, Some(error));
                }
            }
            return (received, None);
        }
        loop {
            match receive(&mut endpoint, &clock, 0).await {
                Ok(frame) => received.push(frame),
                Err(error) => return (received, Some(error)),
            }
        }
    });
    assert_eq!(run.n_leaked(), 0);
    match run.ends.into_iter().nth(1) {
        Some(End::Returned(outcome)) => outcome,
        other => panic!("{other:?}"),
    }
}

const LOST: Option<Error> = Some(Error::PeerLost { peer: Rank(0) });

#[test]
fn a_frame_takes_latency_and_its_bytes_and_the_next_one_its_bytes_more() {
    let (received, error) = stream(net(), &[1000, 2000], &[]);
    let micros = Duration::from_micros;
    assert_eq!(received, [(0, 1000, micros(11)), (1, 2000, micros(13))]);
    assert_eq!(error, LOST);
}

#[test]
fn a_sender_waits_for_credit() {
    // Two frames are in flight. The first is received at 11 µs, and its credit returns 10 µs later.
    let (received, _) = stream(net(), &[1000, 1000, 1000], &[]);
    assert_eq!(received[2].2, Duration::from_micros(11 + 10 + 11));
}

#[test]
fn senders_to_one_rank_share_its_nic() {
    let run = World::new(4, 1).net(net()).run(async |mut endpoint| {
        let clock = endpoint.clock();
        if endpoint.rank() != Rank(0) {
            return send(&mut endpoint, 0, 1, 4000).await.map(|()| Duration::ZERO);
        }
        let mut last = Duration::ZERO;
        for from in 1..4 {
            last = last.max(receive(&mut endpoint, &clock, from).await?.2);
        }
        Ok(last)
    });
    assert_eq!(run.ends[0], End::Returned(Ok(Duration::from_micros(10 + 3 * 4))));
}

#[test]
fn frames_that_need_attention_leave_while_their_sender_polls_or_when_it_ends() {
    let attended = NetSettings { attended: true, ..net() };
    let run = World::new(2, 1).net(attended).run(async |mut endpoint| {
        let clock = endpoint.clock();
        if endpoint.rank() == Rank(1) {
            return receive(&mut endpoint, &clock, 0).await.map(|(.., at)| at);
        }
        send(&mut endpoint, 1, 0, 1000).await?;
        assert_eq!(endpoint.undelivered(), Some(Rank(1)));
        clock.sleep(Duration::from_micros(100)).await;
        endpoint.progress()?;
        assert_eq!(endpoint.undelivered(), None);
        Ok(clock.now())
    });
    assert_eq!(run.ends[1], End::Returned(Ok(Duration::from_micros(111))));
    assert_eq!(stream(attended, &[10, 10], &[]).0.len(), 2);
}

#[test]
fn a_rank_gets_no_more_frames_than_it_may_hold() {
    let run = World::new(1, 1).net(net()).run(async |mut endpoint| {
        let mut held: Vec<_> = (0..3).map(|_| endpoint.poll_frame()).collect();
        assert!(endpoint.poll_frame().is_pending());
        if let Some(Poll::Ready(Ok(frame))) = held.pop() {
            endpoint.recycle(frame);
        }
        assert!(endpoint.poll_frame().is_ready());
    });
    // The program dropped all three frames.
    assert_eq!(run.n_leaked(), 3);
}

#[test]
fn what_breaks_the_contract_is_refused() {
    let run = World::new(2, 1).net(net()).run(async |mut endpoint| {
        let to = Rank::new(1 - endpoint.rank().index());
        for n_bytes in [1, 1, 1] {
            let frame = poll_fn(|_| endpoint.poll_frame()).await?;
            endpoint.send(to, TAG, frame, n_bytes)?;
        }
        Ok(())
    });
    let refused = |to| End::Returned(Err(Error::NotReady { to: Rank(to), tag: TAG }));
    assert_eq!(run.ends, [refused(1), refused(0)]);
    assert_eq!(run.n_leaked(), 0);
    let run = World::new(1, 1).net(net()).run(async |mut endpoint| {
        let too_far = endpoint.poll_ready(Rank(1), TAG);
        let frame = poll_fn(|_| endpoint.poll_frame()).await?;
        let too_long = endpoint.send(Rank(0), TAG, frame, 5000);
        assert_eq!(too_far, Poll::Ready(Err(Error::NoSuchRank { rank: Rank(1), size: 1 })));
        too_long
    });
    assert_eq!(run.ends, [End::Returned(Err(Error::TooLong { need: 5000, have: 4096 }))]);
}

#[test]
fn faults_do_what_they_say() {
    let words = |harm| {
        let fault = Fault::Harm { rank: Rank(0), nth: 1, harm };
        let (received, _) = stream(net(), &[100; 5], &[fault]);
        received.into_iter().map(|(word, ..)| word).collect::<Vec<_>>()
    };
    assert_eq!(words(Harm::Lose), [0, 2, 3, 4]);
    assert_eq!(words(Harm::Swap), [0, 2, 1, 3, 4]);
    assert_eq!(words(Harm::Repeat { behind: 0 }), [0, 1, 1, 2, 3, 4]);
    assert_eq!(words(Harm::Repeat { behind: 2 }), [0, 1, 2, 3, 1, 4]);
    assert_eq!(words(Harm::Truncate), [0, 1, 2, 3, 4]);
    let truncate = Fault::Harm { rank: Rank(0), nth: 1, harm: Harm::Truncate };
    assert!(stream(net(), &[100; 5], &[truncate]).0[1].1 < 100);
    for harm in Harm::ALL {
        let fault = Fault::Harm { rank: Rank(0), nth: 1, harm };
        let (received, error) = stream(net(), &[100; 5], &[fault]);
        assert!(received.len() >= 4 && error == LOST, "{fault}: {received:?}");
    }
}

#[test]
fn what_a_rank_sent_before_it_died_arrives_before_its_loss_is_known() {
    let death = Fault::Death { rank: Rank(0), after: 2 };
    let (received, error) = stream(net(), &[100; 5], &[death]);
    assert_eq!((received.len(), error), (2, LOST));
    let cut = Fault::Cut { rank: Rank(0), nth: 3, silent: false };
    let (received, error) = stream(net(), &[100; 5], &[cut]);
    assert_eq!((received.len(), error), (3, LOST));
}

#[test]
fn a_rank_that_waits_for_ever_is_told_from_one_that_a_fault_silenced() {
    let run = |faults: Vec<Fault>| {
        let world = World::new(2, 1).net(net()).faults(faults);
        world.run(async |mut endpoint| receive_once(&mut endpoint).await).ends
    };
    assert!(matches!(run(vec![])[..], [End::Hung, End::Hung]));
    let stall = Fault::Stall { rank: Rank(1), after: 0, lasting: None };
    assert!(matches!(run(vec![stall])[..], [End::Hung, End::Silent]));
    let panicking = World::new(1, 1).run(async |_| assert!(Vec::<u8>::new().len() > 1, "no"));
    assert_eq!(panicking.ends, [End::Panicked("no".into())]);
}

/// Waits for a frame from the other rank, which sends none because it waits too.
async fn receive_once(endpoint: &mut Endpoint) -> Result<(), Error> {
    let from = Rank::new(1 - endpoint.rank().index());
    poll_fn(|_| endpoint.poll_recv(from, TAG)).await.map(|_| ())
}
