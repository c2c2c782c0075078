//! Messages between a store's host and the other processes.
//!
//! *Proofs.* The host sends a nonce. The other side answers with a nonce of its own and an
//! HMAC-SHA-256, keyed by the token, over its role and both nonces. The host answers with its own
//! HMAC. Without a token (on loopback only), the proofs show that both sides speak this protocol.
//!
//! *Messages* then have a length of four bytes before them. A request is its number, a kind, the
//! key with its length, and the value or the limit in milliseconds. An answer is the request's
//! number, a status, and the value. Integers are little-endian.

use foldwire::store::{MAX_KEY_BYTES, MAX_VALUE_BYTES, StoreError};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::message::{NONCE_BYTES, Nonce, PROOF_BYTES, Proof};
use crate::token::Token;

/// Bytes that the other side sends to prove itself.
pub(crate) const ANSWER_BYTES: usize = NONCE_BYTES + PROOF_BYTES;
/// Most bytes of a message, without its length.
pub(crate) const MAX_BYTES: usize = 8 + MAX_KEY_BYTES + MAX_VALUE_BYTES;

/// Side of a proof.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Role {
    Host,
    Other,
}

fn mac(token: Option<&Token>, role: Role, nonces: [&Nonce; 2]) -> Hmac<Sha256> {
    let key = token.map_or("", Token::reveal);
    let mut mac = Hmac::new_from_slice(key.as_bytes()).expect("HMAC takes keys of any length");
    mac.update(match role {
        Role::Host => b"foldwire store host ",
        Role::Other => b"foldwire store other",
    });
    nonces.iter().for_each(|nonce| mac.update(*nonce));
    mac
}

/// Makes the proof of one side. `nonces` are the host's and the other side's.
pub(crate) fn proof(token: Option<&Token>, role: Role, nonces: [&Nonce; 2]) -> Proof {
    mac(token, role, nonces).finalize().into_bytes().into()
}

/// Returns whether a proof is valid. Compares in constant time.
pub(crate) fn accepts(
    token: Option<&Token>,
    role: Role,
    nonces: [&Nonce; 2],
    proof: &[u8],
) -> bool {
    mac(token, role, nonces).verify_slice(proof).is_ok()
}

/// A request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Request<'a> {
    Set { key: &'a str, value: &'a [u8] },
    Wait { key: &'a str, milliseconds: u32 },
}

impl<'a> Request<'a> {
    /// Encodes the request with its number and its length.
    pub(crate) fn encode(&self, number: u32) -> Vec<u8> {
        let (kind, key, rest) = match *self {
            Self::Set { key, value } => (0, key, value.to_vec()),
            Self::Wait { key, milliseconds } => (1, key, milliseconds.to_le_bytes().to_vec()),
        };
        let head = [kind, key.len() as u8];
        framed(&[&number.to_le_bytes(), &head, key.as_bytes(), &rest])
    }

    pub(crate) fn decode(message: &'a [u8]) -> Option<(u32, Self)> {
        let (number, rest) = message.split_first_chunk()?;
        let ([kind, n_key_bytes], rest) = rest.split_first_chunk()?;
        let (key, rest) = rest.split_at_checked(usize::from(*n_key_bytes))?;
        let key = std::str::from_utf8(key).ok()?;
        let request = match kind {
            0 => Self::Set { key, value: rest },
            1 => Self::Wait { key, milliseconds: u32::from_le_bytes(rest.try_into().ok()?) },
            _ => return None,
        };
        Some((u32::from_le_bytes(*number), request))
    }
}

/// An answer of the host.
pub(crate) type Answer = Result<Option<Vec<u8>>, StoreError>;

/// Encodes the answer to a request with its length.
pub(crate) fn encode_answer(number: u32, answer: &Answer) -> Vec<u8> {
    let (status, value) = match answer {
        Ok(None) => (0, &[][..]),
        Ok(Some(value)) => (1, &value[..]),
        Err(StoreError::Full) => (2, &[][..]),
        Err(_) => (3, &[][..]),
    };
    framed(&[&number.to_le_bytes(), &[status], value])
}

/// Decodes an answer, and the number of its request.
pub(crate) fn decode_answer(message: &[u8]) -> Option<(u32, Answer)> {
    let (number, rest) = message.split_first_chunk()?;
    let (status, value) = rest.split_first()?;
    let answer = match status {
        0 if value.is_empty() => Ok(None),
        1 if value.len() <= MAX_VALUE_BYTES => Ok(Some(value.to_vec())),
        2 if value.is_empty() => Err(StoreError::Full),
        3 if value.is_empty() => Err(StoreError::Failed),
        _ => return None,
    };
    Some((u32::from_le_bytes(*number), answer))
}

fn framed(parts: &[&[u8]]) -> Vec<u8> {
    let n_bytes: usize = parts.iter().map(|part| part.len()).sum();
    let mut message = (n_bytes as u32).to_le_bytes().to_vec();
    parts.iter().for_each(|part| message.extend_from_slice(part));
    message
}

/// Takes the first whole message from received bytes. `Err` if its length is impossible.
pub(crate) fn take_message(received: &mut Vec<u8>) -> Result<Option<Vec<u8>>, TooLong> {
    let Some((length, rest)) = received.split_first_chunk() else { return Ok(None) };
    let n_bytes = u32::from_le_bytes(*length) as usize;
    if n_bytes > MAX_BYTES {
        return Err(TooLong);
    }
    let Some(message) = rest.get(..n_bytes).map(<[u8]>::to_vec) else { return Ok(None) };
    received.drain(..4 + n_bytes);
    Ok(Some(message))
}

/// A message that is longer than any that this protocol has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TooLong;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_read_as_written_and_cut_ones_are_not() {
        let requests = [
            Request::Set { key: "job/0/key", value: b"value" },
            Request::Set { key: "k", value: b"" },
            Request::Wait { key: "job/1", milliseconds: 77 },
        ];
        for request in requests {
            let mut bytes = request.encode(9);
            for end in 0..bytes.len() {
                assert!(matches!(take_message(&mut bytes[..end].to_vec()), Ok(None)));
            }
            let message = take_message(&mut bytes).unwrap().unwrap();
            assert_eq!(Request::decode(&message), Some((9, request)));
            assert!(bytes.is_empty());
            for end in 0..message.len() {
                let cut = Request::decode(&message[..end]);
                assert!(cut.is_none() || matches!(cut, Some((9, Request::Set { .. }))), "{end}");
            }
        }
        for answer in [Ok(None), Ok(Some(b"value".to_vec())), Err(StoreError::Full)] {
            let message = take_message(&mut encode_answer(7, &answer)).unwrap().unwrap();
            assert_eq!(decode_answer(&message), Some((7, answer)));
        }
        assert!(take_message(&mut vec![0xff; 8]).is_err());
        assert_eq!(decode_answer(&[0, 0, 0, 0, 9]), None);
        assert_eq!(Request::decode(&[0, 0, 0, 0, 2, 0]), None);
    }
}
