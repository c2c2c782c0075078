//! What ranks tell each other to come together, and whose connections are waited for.

use std::net::SocketAddr;

use foldwire::transport::Rank;

use crate::JoinError;
use crate::handshake::Hello;
use crate::join::{ConnectionSetup, RankOffer, SharedSettings, agree};
use crate::net::n_slots;
use crate::secret::{NONCE_BYTES, SessionSecret, offer_proof};

/// What a rank tells the others about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpaqueOffer(RankOffer);

impl OpaqueOffer {
    /// The offer of a rank without a token; `numbers`: bytes of a frame, frames of a link, streams.
    #[must_use]
    pub fn new(
        node: &str,
        address: SocketAddr,
        numbers: [usize; 3],
        encrypts: bool,
        nonce: [u8; NONCE_BYTES],
    ) -> Self {
        let [frame_bytes, link_depth, n_streams] = numbers;
        let shared = SharedSettings { frame_bytes, link_depth, n_streams, encrypts };
        let proof = offer_proof(None, &nonce);
        Self(RankOffer { node: node.to_owned(), address, shared, nonce, proof })
    }

    /// The offer in bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        self.0.encode()
    }

    /// Reads an offer; `None` if it is none.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        RankOffer::decode(bytes).map(Self)
    }

    /// The name of its node.
    #[must_use]
    pub fn node(&self) -> &str {
        &self.0.node
    }

    /// Whether only its own node reaches it.
    #[must_use]
    pub fn is_on_loopback(&self) -> bool {
        self.0.address.ip().to_canonical().is_loopback()
    }

    /// Whether another offers the same settings.
    #[must_use]
    pub fn has_same_settings(&self, other: &Self) -> bool {
        self.0.shared == other.0.shared
    }

    /// What all ranks have offered, if this one can go on with it.
    ///
    /// # Errors
    /// Why it cannot.
    pub fn agree(&self, all: &[Vec<u8>]) -> Result<Vec<Self>, JoinError> {
        Ok(agree(&self.0, None, all)?.into_iter().map(Self).collect())
    }
}

/// A rank that waits for others to connect.
#[allow(missing_debug_implementations, reason = "for fuzzing alone")]
pub struct ExpectedConnections {
    rank: Rank,
    offers: Vec<RankOffer>,
    is_near: Vec<bool>,
    shared: SharedSettings,
    /// By place, whether the connection is there.
    slots: Vec<Option<()>>,
}

impl ExpectedConnections {
    /// Among ranks that have agreed.
    #[must_use]
    pub fn new(rank: Rank, offers: &[OpaqueOffer]) -> Self {
        let offers: Vec<RankOffer> =
            offers.iter().map(|OpaqueOffer(offer)| offer.clone()).collect();
        let RankOffer { node, shared, .. } = offers[rank.index()].clone();
        let is_near = offers.iter().map(|offer| offer.node == node).collect();
        let slots = vec![None; n_slots(offers.len(), shared.n_streams)];
        Self { rank, offers, is_near, shared, slots }
    }

    /// Takes a connection of which this is the hello and all else is right, if it is waited for:
    /// from which rank, and which of its streams.
    pub fn take(&mut self, hello: &[u8]) -> Option<(Rank, u16)> {
        let hello = Hello::decode(hello)?;
        let Self { rank, offers, is_near, shared, slots } = self;
        let secret = SessionSecret::new(None, &[]);
        let setup = ConnectionSetup { rank: *rank, offers, is_near, secret, shared: *shared };
        if !setup.is_expected(hello, slots) {
            return None;
        }
        slots[setup.slot(hello.from, hello.stream)] = Some(());
        Some((hello.from, hello.stream))
    }
}

/// The hello of a connection.
#[must_use]
pub fn hello(from: Rank, to: Rank, stream: u16, encrypts: bool) -> Vec<u8> {
    Hello { from, to, stream, encrypts }.encode().to_vec()
}

/// Reads a hello and writes it again; `None` if it is none.
#[must_use]
pub fn reencode_hello(bytes: &[u8]) -> Option<Vec<u8>> {
    Hello::decode(bytes).map(|hello| hello.encode().to_vec())
}
