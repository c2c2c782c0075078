//! Any input to ranks of the TCP backend while they connect to each other: no panic, and no
//! stranger is trusted. A valid offer or hello has only one encoding. All ranks agree on the same
//! offers, or none does. No rank accepts a connection that it does not expect.
//!
//! ```text
//!   input:   end (1 byte)  then
//!     0      bytes: an offer, and a hello
//!     1      number of ranks (1 byte)  an offer for each rank
//!            offer:  kind (1 byte; high bits: node, loopback, streams, encrypts), and
//!                    0                the honest offer
//!                    1 n bytes[n]     these bytes
//!                    2 place[2] byte  the honest offer with one byte replaced
//!     2      rank  number of ranks  streams  nodes (1 byte each)  hellos
//!            hello:  from to stream (1 byte each; 0xff: the largest) encrypts (lowest bit)
//!     3, 4   an encrypted handshake, as in `foldwire_fuzz::tcp`; 3: the connector, 4: the other
//!            side receives changed messages
//! ```

use crate::tcp;
use foldwire::Rank;
use foldwire_tcp::JoinError;
use foldwire_tcp::fuzzing::{ExpectedConnections, OpaqueOffer, hello, reencode_hello};
use std::collections::BTreeSet;

const MAX_RANKS: usize = 6;

/// Runs the target on an input.
pub fn check(input: &[u8]) {
    let [end, script @ ..] = input else { return };
    match end % 5 {
        0 => bytes(script),
        1 => offers(script),
        2 => hellos(script),
        end => tcp::handshake(script, end == 3, true),
    }
}

fn bytes(bytes: &[u8]) {
    if let Some(offer) = OpaqueOffer::decode(bytes) {
        assert_eq!(offer.encode(), bytes, "an offer has two encodings");
    }
    if let Some(again) = reencode_hello(bytes) {
        assert!(bytes.starts_with(&again), "a hello has two encodings");
    }
}

/// Makes an honest offer. The bits select one of two nodes, two addresses and four settings.
fn honest(bits: u8, rank: usize) -> OpaqueOffer {
    let node = if bits & 1 == 0 { "" } else { "another node" };
    let address = if bits & 2 == 0 { ([127, 0, 0, 1], 7) } else { ([10, 0, 0, 1], 7) };
    let n_streams = 1 + usize::from(bits >> 2 & 1);
    OpaqueOffer::new(node, address.into(), [4096, 4, n_streams], bits & 8 != 0, [rank as u8; 32])
}

fn offers(script: &[u8]) {
    let Some((n_ranks, mut script)) = script.split_first() else { return };
    let n_ranks = 1 + usize::from(*n_ranks) % MAX_RANKS;
    let mut ours = Vec::new();
    let all: Vec<Vec<u8>> = (0..n_ranks).map(|rank| offer(&mut script, rank, &mut ours)).collect();
    let empty = all.iter().position(Vec::is_empty);
    let strange = all.iter().position(|bytes| OpaqueOffer::decode(bytes).is_none());
    let answers: Vec<_> = ours.iter().map(|mine| mine.agree(&all)).collect();
    for (mine, answer) in ours.iter().zip(&answers) {
        let agrees = answer.is_ok();
        assert!(
            answers.iter().all(|answer| answer.is_ok() == agrees),
            "some ranks agree, others do not"
        );
        match answer {
            Ok(offers) => {
                let again: Vec<_> = offers.iter().map(OpaqueOffer::encode).collect();
                assert_eq!(again, all, "ranks agreed on other offers");
                assert!(offers.iter().all(|offer| offer.has_same_settings(mine)));
                let is_one_node = offers.iter().all(|offer| offer.node() == mine.node());
                assert!(is_one_node || !offers.iter().any(OpaqueOffer::is_on_loopback));
            }
            Err(JoinError::PeerFailed { rank }) => assert_eq!(Some(rank.index()), empty),
            Err(JoinError::Unintelligible { rank }) => assert_eq!(Some(rank.index()), strange),
            Err(error) => assert!(strange.is_none() && error.to_string().len() < 400),
        }
    }
}

/// Makes a rank's offer, and adds honest ones to `ours`.
fn offer(script: &mut &[u8], rank: usize, ours: &mut Vec<OpaqueOffer>) -> Vec<u8> {
    let mut take = |n_bytes: usize| {
        let (taken, rest) = script.split_at(n_bytes.min(script.len()));
        *script = rest;
        taken
    };
    let kind = take(1).first().copied().unwrap_or_default();
    let honest = honest(kind >> 4, rank);
    let mut bytes = honest.encode();
    match kind % 4 {
        1 => {
            let n_bytes = take(1).first().copied().unwrap_or_default();
            bytes = take(n_bytes.into()).to_vec();
        }
        2 => {
            if let [low, high, byte] = *take(3) {
                let place = usize::from(u16::from_le_bytes([low, high])) % bytes.len();
                bytes[place] = byte;
            }
        }
        _ => ours.push(honest),
    }
    bytes
}

fn hellos(script: &[u8]) {
    let [rank, n_ranks, n_streams, nodes, script @ ..] = script else { return };
    let n_ranks = 1 + usize::from(*n_ranks) % MAX_RANKS;
    let rank = Rank::new(usize::from(*rank) % n_ranks);
    let n_streams = 1 + usize::from(*n_streams) % 16;
    let node = |rank: usize| if nodes >> rank & 1 == 0 { "here" } else { "there" };
    let offers: Vec<_> = (0..n_ranks)
        .map(|rank| {
            let address = ([10, 0, 0, 1], 7).into();
            OpaqueOffer::new(node(rank), address, [4096, 4, n_streams], false, [0; 32])
        })
        .collect();
    let mut waiting = ExpectedConnections::new(rank, &offers);
    let mut expected: BTreeSet<(Rank, u16)> = BTreeSet::new();
    for from in rank.index() + 1..n_ranks {
        // Ranks of different nodes have one more connection, which carries no messages.
        let n_all = n_streams + usize::from(node(from) != node(rank.index()));
        expected.extend((0..n_all as u16).map(|stream| (Rank::new(from), stream)));
    }
    for said in script.chunks_exact(4) {
        let number = |byte: u8| if byte == 0xff { u32::MAX } else { byte.into() };
        let (from, to) = (Rank(number(said[0])), Rank(number(said[1])));
        let stream = number(said[2]) as u16;
        let bytes = hello(from, to, stream, said[3] & 1 != 0);
        let is_due = to == rank && expected.remove(&(from, stream));
        assert_eq!(waiting.take(&bytes), is_due.then_some((from, stream)));
    }
}
