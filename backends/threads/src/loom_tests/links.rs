//! Endpoints that send to each other over links made at first use.

use foldwire::transport::{Rank, Tag, Transport};
use loom::thread;

use super::{TAG, endpoints, explore, frame, receive, send, wait_as_task};

/// Two ranks make a link to a third at the same time. The third may check for new links at any
/// moment, and finds both.
#[test]
fn links_of_two_senders_are_found() {
    explore("two senders make links", Some(2), || {
        let [first, second, mut third] = endpoints();
        let senders = [first, second].map(|mut sender| {
            thread::spawn(move || {
                let content = sender.rank().0 as u8 + 10;
                send(&mut sender, Rank(2), TAG, content);
            })
        });
        assert_eq!(receive(&mut third, Rank(1), TAG), 11);
        assert_eq!(receive(&mut third, Rank(0), TAG), 10);
        for sender in senders {
            sender.join().unwrap();
        }
    });
}

/// Both ranks of a pair send more than a link holds, and then receive. Each sleeps for credit or
/// for frames, and neither sleeps forever. The link of each direction is made while the other is in
/// use.
#[test]
fn both_directions_at_once() {
    explore("both directions at once", Some(2), || {
        let [mut first, mut second] = endpoints();
        let other = thread::spawn(move || {
            send(&mut second, Rank(0), TAG, 1);
            assert_eq!(receive(&mut second, Rank(0), TAG), 2);
            send(&mut second, Rank(0), TAG, 3);
        });
        send(&mut first, Rank(1), TAG, 2);
        assert_eq!(receive(&mut first, Rank(1), TAG), 1);
        assert_eq!(receive(&mut first, Rank(1), TAG), 3);
        other.join().unwrap();
    });
}

/// A full link of one tag does not delay another tag: the control message arrives although the
/// receiver takes no data.
#[test]
fn a_full_link_does_not_hold_up_notices() {
    explore("notices pass a full link", Some(3), || {
        let [mut first, mut second] = endpoints();
        let sender = thread::spawn(move || {
            send(&mut first, Rank(1), TAG, 1);
            send(&mut first, Rank(1), Tag::CONTROL, 9);
        });
        assert_eq!(receive(&mut second, Rank(0), Tag::CONTROL), 9);
        assert_eq!(receive(&mut second, Rank(0), TAG), 1);
        sender.join().unwrap();
    });
}

/// Two tasks wake each other: a sender that waits on a full link, and a receiver that waits on an
/// empty one.
#[test]
fn tasks_on_a_full_link_wake_each_other() {
    explore("tasks on a full link", Some(2), || {
        let [mut first, mut second] = endpoints();
        let sender = thread::spawn(move || {
            for content in 0..2 {
                wait_as_task(&mut first, |rank| rank.poll_ready(Rank(1), TAG))
                    .expect("it is there");
                let frame = frame(&mut first, content);
                first.send(Rank(1), TAG, frame, 1).expect("there is space");
            }
        });
        for content in 0..2 {
            let received = wait_as_task(&mut second, |rank| rank.poll_recv(Rank(0), TAG));
            let (frame, _) = received.expect("it was sent");
            assert_eq!(frame.as_ref()[0], content);
            second.recycle(frame);
        }
        sender.join().unwrap();
    });
}

/// The sender has more frames than a link holds. It sleeps on the full link each time, and is
/// woken.
#[test]
fn a_full_link_goes_on() {
    explore("a full link goes on", Some(2), || {
        let [mut first, mut second] = endpoints();
        let sender = thread::spawn(move || {
            for content in 0..3 {
                send(&mut first, Rank(1), TAG, content);
            }
        });
        for content in 0..3 {
            assert_eq!(receive(&mut second, Rank(0), TAG), content);
        }
        sender.join().unwrap();
    });
}
