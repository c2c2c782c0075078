//! For fuzzing: offers, and connections that a rank expects.

use std::net::SocketAddr;

use foldwire::transport::Rank;
use foldwire_bootstrap::Token;

use crate::JoinError;
use crate::handshake::Hello;
use crate::join::{ConnectionSetup, SharedSettings, TcpOffer, agree};
use crate::net::n_slots;
use crate::secret::{NONCE_BYTES, SessionSecret};

/// A rank's offer, without access to its fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpaqueOffer(TcpOffer);

impl OpaqueOffer {
    /// Creates the offer of a rank without a token. `numbers` are the frame size in bytes, the
    /// credit of a link in frames, and the number of streams.
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
        let (node, memory, proof) = (node.to_owned(), Vec::new(), [0; NONCE_BYTES]);
        Self(TcpOffer { node, address, shared, memory, nonce, proof }.proven(None))
    }

    /// Encodes the offer.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        self.0.encode()
    }

    /// Decodes an offer, or returns `None` if the bytes are not one.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        TcpOffer::decode(bytes).map(Self)
    }

    /// The same offer of a rank on another node or at another address, which knows the token.
    #[must_use]
    pub fn moved(self, node: &str, address: SocketAddr, token: Option<&Token>) -> Self {
        Self(TcpOffer { node: node.to_owned(), address, ..self.0 }.proven(token))
    }

    /// The rank's address.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.0.address
    }

    /// Identity of the rank's node.
    #[must_use]
    pub fn node(&self) -> &str {
        &self.0.node
    }

    /// Returns whether only ranks on the same node can connect.
    #[must_use]
    pub fn is_on_loopback(&self) -> bool {
        self.0.address.ip().to_canonical().is_loopback()
    }

    /// Returns whether another offer has the same settings.
    #[must_use]
    pub fn has_same_settings(&self, other: &Self) -> bool {
        self.0.shared == other.0.shared
    }

    /// Decodes the offers of all ranks and checks that they fit this one.
    ///
    /// # Errors
    /// If an offer cannot be decoded, or does not fit.
    pub fn agree(&self, all: &[Vec<u8>]) -> Result<Vec<Self>, JoinError> {
        Ok(agree(&self.0, None, all)?.into_iter().map(Self).collect())
    }
}

/// The connections that a rank expects, and those that it has.
#[allow(missing_debug_implementations, reason = "for fuzzing alone")]
pub struct ExpectedConnections {
    rank: Rank,
    offers: Vec<TcpOffer>,
    is_near: Vec<bool>,
    shared: SharedSettings,
    /// By slot, whether the connection was made.
    slots: Vec<Option<()>>,
}

impl ExpectedConnections {
    /// Creates the state of a rank from the offers of all ranks.
    #[must_use]
    pub fn new(rank: Rank, offers: &[OpaqueOffer]) -> Self {
        let offers: Vec<TcpOffer> = offers.iter().map(|OpaqueOffer(offer)| offer.clone()).collect();
        let TcpOffer { node, shared, .. } = offers[rank.index()].clone();
        let is_near = offers.iter().map(|offer| offer.node == node).collect();
        let slots = vec![None; n_slots(offers.len(), shared.n_streams)];
        Self { rank, offers, is_near, shared, slots }
    }

    /// Takes a connection with this hello, if it is expected. Returns the peer's rank and the
    /// stream.
    pub fn take(&mut self, hello: &[u8]) -> Option<(Rank, u16)> {
        let hello = Hello::decode(hello)?;
        let Self { rank, offers, is_near, shared, slots } = self;
        let secret = SessionSecret::new(None, &[]);
        let (rank, shared, memory) = (*rank, *shared, None);
        let (offers, is_near) = (offers.to_vec(), is_near.to_vec());
        let setup = ConnectionSetup { rank, offers, is_near, secret, shared, memory };
        if !setup.is_expected(hello, slots) {
            return None;
        }
        slots[setup.slot(hello.from, hello.stream)] = Some(());
        Some((hello.from, hello.stream))
    }
}

/// Encodes the hello of a connection.
#[must_use]
pub fn hello(from: Rank, to: Rank, stream: u16, encrypts: bool) -> Vec<u8> {
    Hello { from, to, stream, encrypts }.encode().to_vec()
}

/// Decodes and encodes a hello, or returns `None` if the bytes are not one.
#[must_use]
pub fn reencode_hello(bytes: &[u8]) -> Option<Vec<u8>> {
    Hello::decode(bytes).map(|hello| hello.encode().to_vec())
}
