//! A rank whose peer is a plain socket that sends valid and invalid bytes.

#[cfg(feature = "noise")]
use std::io::{IoSlice, IoSliceMut};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;

use foldwire::transport::TransportError;
use foldwire::{Communicator, Plan};
#[cfg(target_os = "linux")]
use foldwire_messaging::MemoryOffer;
use foldwire_messaging::{Endpoint, SlotId};
use socket2::{Domain, SockRef, Socket, Type};

use super::*;
use crate::header::{HEADER_BYTES, ProtocolViolation};
use crate::settings::Settings;

const FRAME: usize = 4096;
const PEER: Rank = Rank(1);

/// Rank 0 of two on one node, and the peer's ends of its connections.
fn rank(n_streams: usize) -> (Tcp, Vec<TcpStream>) {
    connected(n_streams, n_streams)
}

/// Like [`rank`], with `n_connections` instead of `n_streams` connections. The one beyond
/// `n_streams` is the idle connection.
fn connected(n_streams: usize, n_connections: usize) -> (Tcp, Vec<TcpStream>) {
    let (ours, theirs) = (0..n_connections).map(|_| connection(None)).unzip();
    (rank_over(ours, n_streams, FRAME), theirs)
}

/// Both ends of a connection, which holds about `n_held` bytes on each side if that is given.
fn connection(n_held: Option<usize>) -> (ByteStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let theirs = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    if let Some(n_bytes) = n_held {
        theirs.set_recv_buffer_size(n_bytes).unwrap();
    }
    theirs.connect(&listener.local_addr().unwrap().into()).unwrap();
    let (ours, _) = listener.accept().unwrap();
    if let Some(n_bytes) = n_held {
        SockRef::from(&ours).set_send_buffer_size(n_bytes).unwrap();
    }
    ours.set_nonblocking(true).unwrap();
    (ByteStream::new(mio::net::TcpStream::from_std(ours)).unwrap(), theirs.into())
}

/// Rank 0 of two, over these connections to the other one.
fn rank_over(ours: Vec<ByteStream>, n_streams: usize, frame_bytes: usize) -> Tcp {
    let mut options = Options::default();
    (options.frame_bytes, options.link_depth) = (frame_bytes, 2);
    let (rank, size) = (Rank(0), 2);
    let encrypts = ours.iter().any(|stream| !stream.is_plain());
    let (is_near, memory) = (vec![], None);
    let setup = TcpSetup { rank, size, options, n_streams, encrypts, is_near, memory };
    let mut connections: Vec<Option<ByteStream>> =
        (0..n_slots(1, n_streams)).map(|_| None).collect();
    connections.extend(ours.into_iter().map(Some));
    connections.resize_with(n_slots(2, n_streams), || None);
    Tcp::new(setup, connections).unwrap()
}

fn message(tag: Tag, number: u32, n_bytes: usize, matched: bool) -> Vec<u8> {
    let header = MessageHeader::Message { tag, n_bytes, number, matched, slot: None }.encode();
    [&header[..], &vec![number as u8; n_bytes]].concat()
}

/// Returns the next event, if there is one within a second.
fn next(tcp: &mut Tcp) -> Option<Event<MessageFrame>> {
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(1) {
        if let Some(event) = tcp.poll().unwrap() {
            return Some(event);
        }
        tcp.idle(Duration::from_millis(1));
    }
    None
}

fn post(tcp: &mut Tcp, tag: Tag) {
    let buffer = tcp.allocate(FRAME).unwrap();
    tcp.recv(Source::Rank(PEER), tag, buffer).unwrap();
}

#[test]
fn whatever_makes_no_sense_cuts_its_sender_off_and_takes_no_memory() {
    let tag = Tag(2);
    let header = |n_bytes| {
        MessageHeader::Message { tag, n_bytes, number: 0, matched: false, slot: None }.encode()
    };
    let too_long = |n_bytes, most| ProtocolViolation::TooLong { n_bytes, most };
    let out_of_turn = |number, next| ProtocolViolation::OutOfOrder { number, next };
    let control = message(Tag::CONTROL, 0, 1025, false);
    // The depth is 2, so a peer has credit for 4 messages.
    let ahead: Vec<u8> = (0..5).flat_map(|number| message(tag, number, 3, false)).collect();
    let twice = [message(tag, 1, 3, false), message(tag, 1, 3, false)].concat();
    let slot = SlotId { owner: 1, index: 0 };
    let (number, matched) = (0, false);
    let returned = MessageHeader::Returned { slot, number };
    let in_slot = MessageHeader::Message { tag, n_bytes: 9, number, matched, slot: Some(slot) };
    for (said, garbage) in [
        (b"GET / HTTP/1.1\r\nHost: a\r\n\r\n".to_vec(), ProtocolViolation::InvalidHeader),
        (vec![0; 100], ProtocolViolation::InvalidHeader),
        (header(FRAME + 1).to_vec(), too_long(FRAME + 1, FRAME)),
        (header(u32::MAX as usize).to_vec(), too_long(u32::MAX as usize, FRAME)),
        (control, too_long(1025, MIN_FRAME_BYTES)),
        (message(tag, 4, 3, false), out_of_turn(4, 0)),
        (ahead, out_of_turn(4, 0)),
        (twice, out_of_turn(1, 0)),
        (MessageHeader::Answer { tag }.encode().to_vec(), ProtocolViolation::UnexpectedAnswer),
        (message(Tag(u16::MAX), 0, 3, false), ProtocolViolation::Unknown),
        (in_slot.encode().to_vec(), ProtocolViolation::UnexpectedSlot),
        (returned.encode().to_vec(), ProtocolViolation::UnexpectedSlot),
    ] {
        let (mut tcp, mut theirs) = rank(2);
        theirs[1].write_all(&said).unwrap();
        let event = next(&mut tcp);
        assert!(matches!(event, Some(Event::Lost { peer: PEER })), "{garbage}: {event:?}");
        assert_eq!(tcp.loss(PEER), Some(PeerLoss::ProtocolViolation(garbage)));
        // Both connections are closed at once.
        for theirs in &mut theirs {
            theirs.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
            assert!(!matches!(theirs.read(&mut [0; 10]), Ok(1..)));
        }
        let buffer = tcp.allocate(FRAME).unwrap();
        let refused = tcp.send(PEER, tag, buffer, 1, false);
        let Err(Refused::Failed(_, error)) = refused else { panic!("{refused:?}") };
        assert_eq!((error.peer(), error), (Some(PEER), Error::PeerLost { peer: PEER }));
    }
}

/// Messages arrive in pieces of several lengths, over two connections, and out of order.
#[test]
fn messages_come_in_order_however_their_bytes_do() {
    let tag = Tag(1);
    let said: Vec<Vec<u8>> =
        [0, 1, FRAME, 17].iter().zip(0..).map(|(&n, i)| message(tag, i, n, false)).collect();
    for n_at_once in [1, 7, 16, 5000] {
        let (mut tcp, mut theirs) = rank(2);
        for (at, number) in [(1, 3), (0, 0), (1, 2), (0, 1)] {
            for piece in said[number].chunks(n_at_once) {
                theirs[at].write_all(piece).unwrap();
                if n_at_once < 16 {
                    assert!(tcp.poll().unwrap().is_none());
                }
            }
        }
        for (number, n_expected) in [0, 1, FRAME, 17].into_iter().enumerate() {
            post(&mut tcp, tag);
            let event = next(&mut tcp);
            let Some(Event::Received { from: PEER, tag: Tag(1), buffer, n_bytes }) = event else {
                panic!("{number}: {event:?}");
            };
            assert_eq!(n_bytes, n_expected);
            assert!(buffer.as_ref()[..n_bytes].iter().all(|&byte| byte == number as u8));
        }
    }
}

#[test]
fn a_matched_message_is_answered_when_it_meets_its_receive() {
    let (mut tcp, mut theirs) = rank(1);
    theirs[0].write_all(&message(Tag(3), 0, 5, true)).unwrap();
    assert!(next(&mut tcp).is_none());
    theirs[0].set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    let mut received = [0; HEADER_BYTES];
    assert!(theirs[0].read(&mut received).is_err(), "no receive has taken it");
    post(&mut tcp, Tag(3));
    assert!(matches!(next(&mut tcp), Some(Event::Received { n_bytes: 5, .. })));
    assert!(tcp.poll().unwrap().is_none());
    theirs[0].set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    theirs[0].read_exact(&mut received).unwrap();
    assert_eq!(MessageHeader::decode(received, FRAME), Ok(MessageHeader::Answer { tag: Tag(3) }));
}

#[test]
fn what_waits_for_an_answer_comes_back_with_it_or_with_the_loss() {
    for is_answered in [true, false] {
        let (mut tcp, mut theirs) = rank(1);
        let buffer = tcp.allocate(FRAME).unwrap();
        assert!(tcp.send(PEER, Tag(0), buffer, 100, true).is_ok());
        assert!(tcp.poll().unwrap().is_none());
        if is_answered {
            theirs[0].write_all(&MessageHeader::Answer { tag: Tag(0) }.encode()).unwrap();
        } else {
            theirs.clear();
        }
        let mut events = vec![next(&mut tcp).unwrap()];
        if !is_answered {
            assert!(matches!(events.remove(0), Event::Lost { peer: PEER }));
            assert!(matches!(tcp.loss(PEER), Some(PeerLoss::Ended | PeerLoss::Broken(_))));
            events.push(next(&mut tcp).unwrap());
        }
        assert!(matches!(events[0], Event::Released { to: PEER, matched: true, .. }));
    }
}

/// A socket that would block after a few bytes.
#[cfg(feature = "noise")]
struct FewBytes<'a> {
    from: &'a TcpStream,
    n_left: usize,
}

#[cfg(feature = "noise")]
impl Read for FewBytes<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let n_bytes = into.len().min(self.n_left);
        if n_bytes == 0 {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let n_read = self.from.read(&mut into[..n_bytes])?;
        self.n_left -= n_read;
        Ok(n_read)
    }
}

/// The answer comes while later messages block the sender.
#[cfg(feature = "noise")]
#[test]
fn an_encrypted_message_is_answered_as_soon_as_the_peer_can_read_it() {
    use crate::noise::pair;

    const LONG: usize = 60_000;
    let [ours, mut channel] = pair();
    let (stream, mut theirs) = connection(Some(16 << 10));
    theirs.set_nonblocking(true).unwrap();
    let mut tcp = rank_over(vec![stream.encrypted(ours)], 1, LONG);
    let sent = |tag, n_bytes| (Tag(tag), n_bytes);
    let before = [sent(1, LONG); 3];
    for (tag, n_bytes) in before.into_iter().chain([sent(0, 100)]).chain([sent(1, LONG); 8]) {
        let buffer = tcp.allocate(LONG).unwrap();
        assert!(tcp.send(PEER, tag, buffer, n_bytes, tag == Tag(0)).is_ok());
    }
    let n_before = 3 * (HEADER_BYTES + LONG) + HEADER_BYTES + 100;
    let (mut n_read, mut is_answered) = (0, false);
    let start = Instant::now();
    loop {
        match tcp.poll().unwrap() {
            Some(Event::Released { matched: true, tag, .. }) => {
                assert_eq!(tag, Tag(0));
                break;
            }
            Some(Event::Released { .. }) | None => {}
            other => panic!("{other:?}, {:?}", tcp.loss(PEER)),
        }
        let mut bytes = [0; 10_000];
        let mut few = FewBytes { from: &theirs, n_left: bytes.len() };
        n_read += channel.read(&mut few, &mut [IoSliceMut::new(&mut bytes)]).unwrap_or(0);
        if n_read >= n_before && !is_answered {
            let answer = MessageHeader::Answer { tag: Tag(0) }.encode();
            channel.write(&mut theirs, &[IoSlice::new(&answer)]).unwrap();
            is_answered = true;
        }
        assert!(start.elapsed() < Duration::from_secs(20), "{n_read} bytes came");
    }
    // The layer does not wait for a peer that has ended.
    drop(theirs);
}

/// Messages sent before the end of a connection are delivered. A goodbye on all connections is no
/// loss.
#[test]
fn who_says_goodbye_has_left_in_good_order() {
    let (mut tcp, mut theirs) = rank(2);
    theirs[0].write_all(&message(Tag(0), 0, 9, false)).unwrap();
    theirs[0].write_all(&MessageHeader::Goodbye.encode()).unwrap();
    assert!(next(&mut tcp).is_none(), "one connection is left");
    theirs[1].write_all(&MessageHeader::Goodbye.encode()).unwrap();
    assert!(matches!(next(&mut tcp), Some(Event::Left { peer: PEER })));
    assert_eq!(tcp.loss(PEER), Some(PeerLoss::Left));
    post(&mut tcp, Tag(0));
    assert!(matches!(next(&mut tcp), Some(Event::Received { n_bytes: 9, .. })));
}

#[test]
fn a_rank_that_ends_says_goodbye_after_what_it_sent() {
    let (mut tcp, mut theirs) = rank(1);
    let buffer = tcp.allocate(FRAME).unwrap();
    assert!(tcp.send(PEER, Tag(0), buffer, 0, false).is_ok());
    let start = Instant::now();
    drop(tcp);
    assert!(start.elapsed() < 5 * CLOSE_LIMIT, "it waits for no peer for long");
    let mut received = Vec::new();
    theirs[0].read_to_end(&mut received).unwrap();
    assert_eq!(
        received,
        [message(Tag(0), 0, 0, false), MessageHeader::Goodbye.encode().to_vec()].concat()
    );
}

/// A rank that waits asks what the others do. If the question came to a socket that is closed
/// already, the system would discard what the socket holds.
#[cfg(target_os = "linux")]
#[test]
fn the_last_data_of_a_rank_that_ends_reaches_a_peer_that_is_late() {
    const N_MESSAGES: u32 = 256;
    let (stream, mut theirs) = connection(Some(16 << 10));
    let mut tcp = rank_over(vec![stream], 1, FRAME);
    for _ in 0..N_MESSAGES {
        let buffer = tcp.allocate(FRAME).unwrap();
        assert!(tcp.send(PEER, Tag(0), buffer, FRAME, false).is_ok());
    }
    let ends = thread::spawn(move || drop(tcp));
    thread::sleep(2 * CLOSE_LIMIT);
    theirs.write_all(&message(Tag::CONTROL, 0, 100, false)).unwrap();
    thread::sleep(Duration::from_millis(3));
    let mut received = Vec::new();
    theirs.read_to_end(&mut received).unwrap();
    let n_messages = N_MESSAGES as usize;
    assert_eq!(received.len(), n_messages * (HEADER_BYTES + FRAME) + HEADER_BYTES);
    assert!(received.ends_with(&MessageHeader::Goodbye.encode()));
    ends.join().unwrap();
}

/// The idle connection dies while a frame is partly sent. Only the rest of it could follow.
#[test]
fn after_a_loss_nothing_follows_the_beginning_of_a_frame() {
    const LONG: usize = 1 << 20;
    let ((first, mut theirs), (idle, their_idle)) = (connection(Some(16 << 10)), connection(None));
    let mut tcp = rank_over(vec![first, idle], 1, LONG);
    let mut buffer = tcp.allocate(LONG).unwrap();
    buffer.as_mut().fill(0);
    assert!(tcp.send(PEER, Tag(0), buffer, LONG, false).is_ok());
    drop(their_idle);
    while !matches!(next(&mut tcp), Some(Event::Lost { peer: PEER })) {}
    let ends = thread::spawn(move || drop(tcp));
    thread::sleep(Duration::from_millis(20));
    let mut received = Vec::new();
    // Its end may be a reset.
    let _ = theirs.read_to_end(&mut received);
    ends.join().unwrap();
    assert!((HEADER_BYTES..LONG).contains(&received.len()), "{} bytes", received.len());
    assert!(received.starts_with(&message(Tag(0), 0, LONG, false)[..received.len()]));
}

/// The system detects soon that an idle connection has died. With data on its way, it would take
/// many minutes, so nothing may be sent on the idle connection.
#[test]
fn on_the_quiet_connection_nothing_travels_and_its_end_is_a_loss() {
    let (mut tcp, mut theirs) = connected(2, 3);
    for i in 0..40 {
        let tag = if i % 4 == 0 { Tag::CONTROL } else { Tag(i % 4) };
        let buffer = tcp.allocate(FRAME).unwrap();
        assert!(tcp.send(PEER, tag, buffer, 40, i % 8 == 7).is_ok());
    }
    theirs[0].write_all(&message(Tag(3), 0, 5, true)).unwrap();
    post(&mut tcp, Tag(3));
    while !matches!(next(&mut tcp).unwrap(), Event::Received { .. }) {}
    assert!(tcp.poll().unwrap().is_none());
    let has_come = theirs.iter_mut().map(|theirs| {
        theirs.set_nonblocking(true).unwrap();
        theirs.read(&mut [0; 10]).is_ok()
    });
    assert_eq!(has_come.collect::<Vec<_>>(), [true, true, false]);
    drop(theirs.pop());
    while !matches!(next(&mut tcp).unwrap(), Event::Lost { peer: PEER }) {}
    assert_eq!(tcp.loss(PEER), Some(PeerLoss::Ended));
}

#[cfg(target_os = "linux")]
#[test]
fn every_connection_that_is_idle_asks_after_the_other_side_within_25_seconds() {
    let (tcp, _theirs) = connected(2, 3);
    let sockets =
        tcp.streams.iter().flatten().map(|stream| SockRef::from(&stream.connection.socket));
    let waits = sockets.map(|socket| {
        assert!(socket.keepalive().unwrap());
        let interval = socket.tcp_keepalive_interval().unwrap();
        socket.tcp_keepalive_time().unwrap() + interval * socket.tcp_keepalive_retries().unwrap()
    });
    assert_eq!(waits.collect::<Vec<_>>(), [Duration::from_secs(25); 3]);
}

/// Frames take the connections in turn, and the credit is enough for a frame on each.
#[test]
fn one_message_fills_all_connections_before_anything_is_answered() {
    for n_streams in [1, 3, 16] {
        let (tcp, mut theirs) = rank(n_streams);
        let mut settings = Settings::default().streams(n_streams);
        (settings.options.frame_bytes, settings.options.grace) = (FRAME, Duration::ZERO);
        let endpoint = Endpoint::new(tcp, settings.effective_options()).unwrap();
        let mut comm = Communicator::new(endpoint).unwrap();
        comm.config_mut().timeout = Duration::from_millis(50);
        let long = vec![1.0f32; 3 * n_streams * FRAME / 4];
        let error = comm.send(&long, PEER, 0, &Plan::raw()).unwrap_err();
        assert!(matches!(error, foldwire::Error::Stalled { .. }), "{error}");
        for theirs in &mut theirs {
            let mut header = [0; HEADER_BYTES];
            theirs.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
            theirs.read_exact(&mut header).unwrap();
            let header = MessageHeader::decode(header, FRAME);
            assert!(
                matches!(header, Ok(MessageHeader::Message { n_bytes: 3000.., .. })),
                "{header:?}"
            );
        }
    }
}

/// A header with any bit changed is rejected, and its sender is lost. A changed payload is
/// accepted, since frames have their own checksums.
#[test]
fn one_wrong_byte_is_found_out_or_is_the_payloads() {
    let tag = Tag(1);
    let said = [message(tag, 0, 40, false), message(tag, 1, 5, false)].concat();
    let n_header = crate::header::HEADER_BYTES;
    for at in 0..said.len() {
        let mut wrong = said.clone();
        wrong[at] ^= 1 << (at % 8);
        let (mut tcp, mut theirs) = rank(1);
        theirs[0].write_all(&wrong).unwrap();
        post(&mut tcp, tag);
        let is_first = at < n_header;
        let is_second = (n_header + 40..2 * n_header + 40).contains(&at);
        let mut received = Vec::new();
        loop {
            match next(&mut tcp) {
                Some(Event::Received { n_bytes, .. }) => received.push(n_bytes),
                Some(Event::Lost { .. }) => break,
                other => panic!("byte {at}: {other:?}"),
            }
            post(&mut tcp, tag);
            if received.len() == 2 {
                break;
            }
        }
        let expected = match (is_first, is_second) {
            (true, _) => &[][..],
            (_, true) => &[40],
            _ => &[40, 5],
        };
        let is_lost = matches!(tcp.loss(PEER), Some(PeerLoss::ProtocolViolation(_)));
        assert_eq!((&received[..], is_lost), (expected, is_first || is_second), "byte {at}");
    }
}

/// Two ranks that share memory.
#[cfg(target_os = "linux")]
fn sharing_pair(frame_bytes: usize) -> [Tcp; 2] {
    let ranks = [Rank(0), Rank(1)];
    let offers = ranks.map(|rank| MemoryOffer::new(rank, frame_bytes).unwrap());
    let places = offers.each_ref().map(MemoryOffer::to_bytes);
    let of_node = || ranks.into_iter().zip(places.iter().map(Vec::as_slice));
    let memories = offers.map(|offer| offer.open(of_node()));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let there = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let mut sockets = [listener.accept().unwrap().0, there].into_iter();
    let mut options = Options::default();
    options.frame_bytes = frame_bytes;
    let mut ranks = ranks.into_iter().zip(memories).map(|(rank, memory)| {
        let socket = sockets.next().unwrap();
        socket.set_nonblocking(true).unwrap();
        let stream = ByteStream::new(mio::net::TcpStream::from_std(socket)).unwrap();
        let mut connections = [(); 4].map(|()| None);
        connections[n_slots(1 - rank.index(), 1)] = Some(stream);
        let is_near = vec![true; 2];
        let setup =
            TcpSetup { rank, size: 2, options, n_streams: 1, encrypts: false, is_near, memory };
        let mut tcp = Tcp::new(setup, connections.into()).unwrap();
        tcp.share_memory(|_| true);
        tcp
    });
    [ranks.next().unwrap(), ranks.next().unwrap()]
}

/// Far more messages than there are slots.
#[cfg(target_os = "linux")]
#[test]
fn long_messages_stay_in_shared_memory_and_others_take_their_place() {
    const LONG: usize = 4 << 20;
    let [mut zero, mut one] = sharing_pair(LONG);
    let (tag, mut n_short) = (Tag(1), 0);
    let mut buffer = zero.allocate(LONG).unwrap();
    let mut room = one.allocate(LONG).unwrap();
    for turn in 0..200_u32 {
        let n_bytes = [LONG, LEAST_LENT - 1, LEAST_LENT][turn as usize % 3];
        n_short += usize::from(n_bytes < LEAST_LENT);
        let matched = turn % 2 == 0;
        let slot = buffer.slot().expect("a frame in shared memory");
        buffer.as_mut()[..n_bytes].fill(turn as u8);
        assert!(zero.send(Rank(1), tag, buffer, n_bytes, matched).is_ok());
        assert!(one.recv(Source::Rank(Rank(0)), tag, room).is_ok());
        let event = next(&mut one);
        let Some(Event::Received { buffer: got, n_bytes: n_got, .. }) = event else {
            panic!("{event:?}")
        };
        assert_eq!(n_got, n_bytes);
        assert!(got.as_ref()[..n_bytes].iter().all(|&byte| byte == turn as u8));
        assert_eq!(got.slot() == Some(slot), n_bytes >= LEAST_LENT, "turn {turn}");
        room = got;
        let event = next(&mut zero);
        let Some(Event::Released { buffer: back, .. }) = event else { panic!("{event:?}") };
        buffer = back;
    }
    assert!(n_short > 50 && zero.incoming.exchanged[1].n_lent < 10);
    // A slot that comes twice would have two owners.
    let slot = one.allocate(LONG).unwrap().slot().unwrap();
    zero.incoming.exchanged[1].n_lent += 1;
    one.push(Rank(0), Some(MessageHeader::Returned { slot, number: 0 }), None);
    assert!(matches!(next(&mut zero), Some(Event::Lost { peer: Rank(1) })));
    let unexpected = ProtocolViolation::UnexpectedSlot;
    assert_eq!(zero.loss(Rank(1)), Some(PeerLoss::ProtocolViolation(unexpected)));
}

/// A receive with a short buffer, and a send of more bytes than its buffer holds.
#[test]
fn buffers_that_are_too_short_are_an_error_not_a_panic() {
    let (mut tcp, mut theirs) = rank(1);
    theirs[0].write_all(&message(Tag(0), 0, 100, false)).unwrap();
    let short = tcp.allocate(10).unwrap();
    tcp.recv(Source::Rank(PEER), Tag(0), short).unwrap();
    let start = Instant::now();
    let error = loop {
        match tcp.poll() {
            Ok(_) => assert!(start.elapsed() < Duration::from_secs(5)),
            Err(error) => break error,
        }
    };
    assert_eq!(error, Error::Truncated { from: PEER, n_bytes: 100, have: 10 });
    let buffer = tcp.allocate(10).unwrap();
    let refused = tcp.send(PEER, Tag(0), buffer, 11, false);
    assert!(matches!(refused, Err(Refused::Failed(_, Error::Misuse))));
}

/// A waker that drops the layer which wakes it, like a task whose end drops its endpoint.
#[cfg(unix)]
#[test]
fn a_wake_may_drop_the_layer() {
    use std::sync::mpsc::{SyncSender, sync_channel};
    use std::sync::{Arc, Mutex};
    use std::task::Wake;

    struct Drops(Mutex<Option<Tcp>>, SyncSender<()>);

    impl Wake for Drops {
        fn wake(self: Arc<Self>) {
            drop(self.0.lock().unwrap().take());
            let _ = self.1.send(());
        }
    }

    let (mut tcp, _theirs) = rank(1);
    assert!(tcp.poll().unwrap().is_none(), "nothing wakes at once");
    let (sender, receiver) = sync_channel(1);
    let drops = Arc::new(Drops(Mutex::new(None), sender));
    let mut slot = drops.0.lock().unwrap();
    assert!(tcp.register(&Waker::from(Arc::clone(&drops))));
    *slot = Some(tcp);
    drop(slot);
    receiver.recv_timeout(Duration::from_secs(5)).expect("a wake without a panic");
}

/// A waker that panics ends the thread, and callers must poll.
#[cfg(unix)]
#[test]
fn after_a_panic_in_a_wake_nobody_waits_for_one() {
    use std::sync::Arc;
    use std::task::Wake;

    struct Panics;

    impl Wake for Panics {
        fn wake(self: Arc<Self>) {
            // Like a panic, without its message.
            std::panic::resume_unwind(Box::new("wake"));
        }
    }

    let (mut tcp, _theirs) = rank(1);
    assert!(tcp.poll().unwrap().is_none(), "nothing wakes at once");
    assert!(tcp.register(&Waker::from(Arc::new(Panics))));
    // The next waker replaces one that the thread has not woken yet.
    thread::sleep(Duration::from_millis(200));
    let start = Instant::now();
    while tcp.register(Waker::noop()) {
        assert!(start.elapsed() < Duration::from_secs(5));
        thread::sleep(Duration::from_millis(1));
    }
}
