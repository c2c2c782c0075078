//! Round trips of offers, agreement of ranks, and expected connections.

use std::sync::mpsc;

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::secret::NONCE_BYTES;

fn offer(node: &str, address: &str) -> TcpOffer {
    let shared = SharedSettings { frame_bytes: 4096, link_depth: 4, n_streams: 2, encrypts: false };
    let (address, nonce) = (address.parse().unwrap(), [7; 32]);
    let (node, memory, proof) = (node.to_owned(), vec![0, 250], Nonce::default());
    TcpOffer { node, address, shared, memory, nonce, proof }.proven(None)
}

fn encoded(offers: &[TcpOffer]) -> Vec<Vec<u8>> {
    offers.iter().map(TcpOffer::encode).collect()
}

#[test]
fn an_offer_survives_the_exchange_and_nonsense_does_not() {
    for address in ["127.0.0.1:80", "[::1]:65535"] {
        let offer = offer("here", address);
        assert_eq!(TcpOffer::decode(&offer.encode()), Some(offer.clone()));
        let bytes = offer.encode();
        for n_bytes in 0..bytes.len() {
            assert_eq!(TcpOffer::decode(&bytes[..n_bytes]), None);
        }
        assert_eq!(TcpOffer::decode(&[&bytes[..], b"\nmore"].concat()), None);
    }
    assert_eq!(TcpOffer::decode(b"\xff\n127.0.0.1:1\n1\n1\n1\ntrue\n00"), None);
}

#[test]
fn loopback_does_not_reach_other_hosts() {
    let offers = [offer("a", "10.0.0.1:9"), offer("b", "127.0.0.1:9")];
    for mine in &offers {
        let error = agree(mine, None, &encoded(&offers)).unwrap_err();
        assert!(matches!(error, JoinError::OnlyLoopback { rank: Rank(1) }), "{error}");
    }
    let offers = [offer("a", "127.0.0.1:8"), offer("a", "127.0.0.1:9")];
    assert_eq!(agree(&offers[0], None, &encoded(&offers)).unwrap(), offers);
}

#[test]
fn other_settings_are_named() {
    let mut other = offer("a", "127.0.0.1:9");
    other.shared.n_streams = 3;
    let offers = [offer("a", "127.0.0.1:8"), other];
    match agree(&offers[0], None, &encoded(&offers)) {
        Err(JoinError::SettingsDiffer { rank: Rank(1), there, here }) => {
            assert!(there.contains("3 streams") && here.contains("2 streams"));
        }
        other => panic!("{other:?}"),
    }
}

fn any_offer() -> impl Strategy<Value = TcpOffer> {
    let shared = (any::<usize>(), any::<usize>(), any::<usize>(), any::<bool>()).prop_map(
        |(frame_bytes, link_depth, n_streams, encrypts)| SharedSettings {
            frame_bytes,
            link_depth,
            n_streams,
            encrypts,
        },
    );
    let memory = vec(any::<u8>(), 0..60);
    ("[^\n]{0,20}", any::<SocketAddr>(), shared, memory, any::<Nonce>()).prop_map(
        |(node, mut address, shared, memory, nonce)| {
            // An address's text has no flow label.
            if let SocketAddr::V6(address) = &mut address {
                address.set_flowinfo(0);
            }
            let proof = Nonce::default();
            TcpOffer { node, address, shared, memory, nonce, proof }.proven(None)
        },
    )
}

proptest! {
    #[test]
    fn any_offer_is_read_as_written(offer in any_offer()) {
        prop_assert_eq!(TcpOffer::decode(&offer.encode()), Some(offer));
    }

    #[test]
    fn what_is_read_as_an_offer_is_written_as_the_same_bytes(
        offer in any_offer(),
        at in any::<prop::sample::Index>(),
        n_removed in 0..4usize,
        put in prop_oneof![vec(any::<u8>(), 0..4), "[0+:\n a-f]{0,3}".prop_map(Vec::from)],
    ) {
        let mut bytes = offer.encode();
        let at = at.index(bytes.len() + 1);
        let end = (at + n_removed).min(bytes.len());
        _ = bytes.splice(at..end, put);
        if let Some(read) = TcpOffer::decode(&bytes) {
            prop_assert_eq!(read.encode(), bytes);
        }
    }

    #[test]
    fn ranks_agree_whatever_others_offer(
        strange in vec(
            prop_oneof![vec(any::<u8>(), 0..50), any_offer().prop_map(|offer| offer.encode())],
            0..3,
        ),
        ours in vec(
            ("[ab]", prop_oneof![Just("10.0.0.1:9"), Just("127.0.0.1:9")], 1..3usize),
            1..4,
        ),
    ) {
        let honest: Vec<TcpOffer> = ours.iter().map(|(node, address, n_streams)| {
            let mut offer = offer(node, address);
            offer.shared.n_streams = *n_streams;
            offer.proven(None)
        }).collect();
        let all = [encoded(&honest), strange].concat();
        let answers: Vec<_> = honest.iter().map(|mine| agree(mine, None, &all)).collect();
        for (answer, mine) in answers.iter().zip(&honest) {
            prop_assert_eq!(answer.as_ref().ok(), answers[0].as_ref().ok());
            for other in answer.iter().flatten() {
                prop_assert_eq!(other.shared, mine.shared);
            }
        }
    }
}

proptest! {
    #[test]
    fn each_connection_of_a_higher_rank_is_due_once_and_nothing_else_is(
        rank in 0..3u32,
        n_streams in 1..4usize,
        is_near in vec(any::<bool>(), 3),
        hellos in vec((0..4u32, 0..4u32, 0..6u16), 0..80),
    ) {
        let mut offers = vec![offer("a", "10.0.0.1:9"); 3];
        offers.iter_mut().for_each(|offer| offer.shared.n_streams = n_streams);
        let shared = offers[0].shared;
        let (rank, secret) = (Rank(rank), SessionSecret::new(None, &[]));
        let (near, memory) = (is_near.clone(), None);
        let setup = ConnectionSetup { rank, offers, is_near: near, secret, shared, memory };
        let mut connections = vec![None; n_slots(3, n_streams)];
        let mut taken = Vec::new();
        for (from, to, stream) in hellos {
            let hello = Hello { from: Rank(from), to: Rank(to), stream, encrypts: false };
            // Ranks on different nodes have one more connection.
            let is_expected = Rank(to) == rank
                && (rank.0 + 1..3).contains(&from)
                && usize::from(stream) < n_streams + usize::from(!is_near[from as usize])
                && !taken.contains(&(from, stream));
            prop_assert_eq!(setup.is_expected(hello, &connections), is_expected, "{:?}", hello);
            if is_expected {
                taken.push((from, stream));
                connections[setup.slot(hello.from, stream)] = Some(());
            }
        }
    }
}

#[test]
fn a_number_has_one_spelling() {
    let text = String::from_utf8(offer("here", "127.0.0.1:80").encode()).unwrap();
    for (plain, other) in [("4096", "+4096"), ("4096", "04096"), (":80", ":080"), ("07", "+7")] {
        let other = text.replacen(plain, other, 1);
        assert_eq!(TcpOffer::decode(other.as_bytes()), None, "{other}");
    }
}

#[test]
fn another_token_is_found_by_all_before_anybody_connects() {
    let tokens = ["0123456789abcdef", "0123456789abcdef", "0123456789abcdeF"].map(Token::new);
    let offers: Vec<_> =
        tokens.iter().map(|token| offer("a", "127.0.0.1:9").proven(token.as_ref().ok())).collect();
    let named = tokens.iter().zip(&offers).map(|(token, mine)| {
        match agree(mine, token.as_ref().ok(), &encoded(&offers)) {
            Err(JoinError::TokenDiffers { rank }) => rank,
            other => panic!("{other:?}"),
        }
    });
    assert_eq!(named.collect::<Vec<_>>(), [2, 2, 0].map(Rank));
}

#[test]
fn an_offer_that_was_changed_is_not_of_a_rank_that_knows_the_token() {
    let token = Token::new("0123456789abcdef").ok();
    let honest = offer("a", "127.0.0.1:9").proven(token.as_ref());
    assert!(honest.is_proven(token.as_ref()) && !honest.is_proven(None));
    let shared = SharedSettings { n_streams: 3, ..honest.shared };
    for changed in [
        TcpOffer { node: "b".to_owned(), ..honest.clone() },
        TcpOffer { address: "127.0.0.1:8".parse().unwrap(), ..honest.clone() },
        TcpOffer { shared, ..honest.clone() },
        TcpOffer { memory: Vec::new(), ..honest.clone() },
        TcpOffer { nonce: [8; NONCE_BYTES], ..honest.clone() },
    ] {
        assert!(!changed.is_proven(token.as_ref()), "{changed:?}");
        let all = encoded(&[honest.clone(), changed]);
        let error = agree(&honest, token.as_ref(), &all).unwrap_err();
        let is_found = matches!(
            error,
            JoinError::TokenDiffers { rank: Rank(1) } | JoinError::SettingsDiffer { .. }
        );
        assert!(is_found, "{error}");
    }
}

/// Connections with a well-formed hello but without the secret do not crowd out a rank.
#[test]
fn a_crowd_that_says_hello_without_the_secret_does_not_push_out_a_rank() {
    use std::io::{Read, Write};

    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap();
    let secret = SessionSecret::new(None, b"a group");
    let hello = Hello { from: Rank(1), to: Rank(0), stream: 0, encrypts: false };
    let connect = |secret: &SessionSecret| {
        let mut socket = std::net::TcpStream::connect(address).unwrap();
        let own = [5; NONCE_BYTES];
        let hello_proof = secret.hello_proof(&hello.encode(), &own);
        socket.write_all(&[&hello.encode()[..], &own, &hello_proof].concat()).unwrap();
        socket
    };
    let mut incoming = VecDeque::new();
    let mut pass = || {
        accept(&listener, &mut incoming, 3);
        incoming.retain_mut(|(_, handshake): &mut (Instant, PendingHandshake)| {
            handshake.advance(&secret, false).is_ok()
        });
    };
    let mut rank = connect(&secret);
    let wait = Duration::from_millis(20);
    (0..5).for_each(|_| {
        pass();
        thread::sleep(wait);
    });
    let other = SessionSecret::new(None, b"another");
    let crowd: Vec<_> = (0..20).map(|_| connect(&other)).collect();
    (0..20).for_each(|_| {
        pass();
        thread::sleep(wait);
    });
    // The rank has received the reply, and its connection is still open.
    rank.set_nonblocking(true).unwrap();
    let mut reply = [0; 2 * NONCE_BYTES];
    rank.read_exact(&mut reply).unwrap();
    let ended = rank.read(&mut [0]);
    assert_eq!(ended.map_err(|error| error.kind()), Err(io::ErrorKind::WouldBlock));
    assert_eq!(incoming.len(), 1);
    drop(crowd);
}

/// The test runs itself in a process that may open few files.
#[cfg(unix)]
#[test]
fn without_a_free_file_a_rank_fails_for_that_reason() {
    const LIMITED: &str = "FOLDWIRE_TEST_FEW_FILES";
    const NAME: &str = "without_a_free_file_a_rank_fails_for_that_reason";
    if std::env::var_os(LIMITED).is_none() {
        let mut limited = std::process::Command::new("sh");
        limited.args(["-c", "ulimit -n 40 && exec \"$0\" \"$@\""]);
        limited.arg(std::env::current_exe().unwrap()).arg(NAME).env(LIMITED, "1");
        let output = limited.output().unwrap();
        let told = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && told.contains("1 passed"), "{output:?}");
        return;
    }
    let (listener, mine) = listen(&Settings::default(), 2, Vec::new()).unwrap();
    let _waits = std::net::TcpStream::connect(mine.address).unwrap();
    let (shared, offers) = (mine.shared, vec![mine; 2]);
    let secret = SessionSecret::new(None, &[]);
    let (rank, is_near, memory) = (Rank(0), vec![true; 2], None);
    let setup = ConnectionSetup { rank, offers, is_near, secret, shared, memory };
    let mut connecting = Connecting::new(setup, listener, Duration::from_millis(50));
    let files: Vec<_> = std::iter::from_fn(|| std::fs::File::open("/dev/null").ok()).collect();
    let error = loop {
        match connecting.advance() {
            Ok(is_complete) => assert!(!is_complete),
            Err(error) => break error,
        }
    };
    drop(files);
    assert!(matches!(error, JoinError::Socket { .. }), "{error}");
}

#[test]
fn an_address_that_names_no_host_is_refused() {
    let token = Token::new("0123456789abcdef").unwrap();
    for address in ["0.0.0.0", "::", "::ffff:0.0.0.0"] {
        let address: IpAddr = address.parse().unwrap();
        let settings = Settings::default().address(address).token(token.clone());
        let error = listen(&settings, 2, Vec::new()).err();
        assert!(
            matches!(error, Some(JoinError::Unspecified { address: it }) if it == address),
            "{error:?}"
        );
    }
}

/// An exchange between two ranks whose round of this number fails.
struct FailsIn(usize);

impl Exchange for FailsIn {
    type Error = std::fmt::Error;

    fn rank(&self) -> Rank {
        Rank(0)
    }

    fn size(&self) -> usize {
        2
    }

    fn all_gather(&mut self, mine: &[u8]) -> Result<Vec<Vec<u8>>, Self::Error> {
        self.0 = self.0.checked_sub(1).ok_or(std::fmt::Error)?;
        Ok(vec![mine.to_vec(); 2])
    }
}

/// Makes the word that rank 0 reads of that of rank 1.
type Forge = fn(&[u8]) -> Vec<u8>;

/// An exchange between two ranks. In the second round rank 0 reads a word that was changed.
struct Forged {
    rank: u32,
    n_rounds: usize,
    forge: Forge,
    sender: mpsc::Sender<Vec<u8>>,
    receiver: mpsc::Receiver<Vec<u8>>,
}

impl Exchange for Forged {
    type Error = std::fmt::Error;

    fn rank(&self) -> Rank {
        Rank(self.rank)
    }

    fn size(&self) -> usize {
        2
    }

    fn all_gather(&mut self, mine: &[u8]) -> Result<Vec<Vec<u8>>, Self::Error> {
        self.sender.send(mine.to_vec()).map_err(|_| std::fmt::Error)?;
        let theirs = self.receiver.recv().map_err(|_| std::fmt::Error)?;
        self.n_rounds += 1;
        let is_forged = (self.rank, self.n_rounds) == (0, 2);
        let theirs = if is_forged { (self.forge)(&theirs) } else { theirs };
        Ok(if self.rank == 0 { vec![mine.to_vec(), theirs] } else { vec![theirs, mine.to_vec()] })
    }
}

#[test]
fn the_word_of_a_rank_that_was_changed_on_its_way_is_not_believed() {
    let forgeries: [Forge; 4] = [
        <[u8]>::to_vec,
        |_| READY.to_vec(),
        |said| [READY_TO_SHARE, &said[said.len() - NONCE_BYTES..]].concat(),
        |said| [&said[..said.len() - 1], &[!said[said.len() - 1]]].concat(),
    ];
    for (nth, forge) in forgeries.into_iter().enumerate() {
        let (to_0, of_1) = mpsc::channel();
        let (to_1, of_0) = mpsc::channel();
        let ends = [(0, to_1, of_1), (1, to_0, of_0)];
        let joined = ends.map(|(rank, sender, receiver)| {
            thread::spawn(move || {
                let token = Token::new("0123456789abcdef").unwrap();
                let settings = Settings::default().token(token).share_memory(false);
                let mut exchange = Forged { rank, n_rounds: 0, forge, sender, receiver };
                join(&settings, &mut exchange).map(|_| ())
            })
        });
        let [joined, other] = joined.map(|rank| rank.join().unwrap());
        assert!(other.is_ok(), "{other:?}");
        let is_refused = matches!(joined, Err(JoinError::Unintelligible { rank: Rank(1) }));
        assert!(if nth == 0 { joined.is_ok() } else { is_refused }, "{nth}: {joined:?}");
    }
}

#[test]
fn a_rank_tells_its_own_reason_even_if_the_exchange_fails() {
    let settings = Settings::default().interface("nowhere0");
    for round in 0..3 {
        let error = join(&settings, &mut FailsIn(round)).unwrap_err();
        assert!(matches!(error, JoinError::NoInterface { .. }), "round {round}: {error}");
    }
}
