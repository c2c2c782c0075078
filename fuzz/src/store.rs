//! Any bytes at both ends of a store over TCP, and as what ranks read there: no panic, no request
//! served without a proof, memory within the limit, and one encoding of each message.
//!
//! ```text
//!   input:   end (1 byte)  then
//!     0      acts: another process, at the store's host
//!            act:  0 n bytes[n]          sends these bytes
//!                  1                     sends an honest proof; 5: the proof for another token
//!                  2 key n bytes[n]      asks to set a value
//!                  3 key                 waits for a key
//!                  4 n                   n ms pass
//!     1      bytes: what the host sends to another process
//!     2      bytes: a request
//!     3      number of ranks (1 byte)  bytes: what rank 0 of a job publishes
//! ```

use foldwire_bootstrap::Token;
use foldwire_bootstrap::fuzzing::{
    StoreHost, next_message, reencode_answer, reencode_gathered, reencode_request, store_request,
};
use std::collections::BTreeMap;
use std::time::Duration;

/// Runs the target on an input.
pub fn check(input: &[u8]) {
    let [end, script @ ..] = input else { return };
    match end % 4 {
        0 => host(StoreScript(script)),
        1 => answers(script),
        2 => {
            if let Some(again) = reencode_request(script) {
                assert_eq!(&again[4..], script, "a request has two encodings");
            }
        }
        _ => {
            let [size, value @ ..] = script else { return };
            let size = 1 + usize::from(*size);
            if let Some(again) = reencode_gathered(value, size) {
                assert_eq!(&again[4..], value, "published inputs have two encodings");
            }
        }
    }
}

struct StoreScript<'a>(&'a [u8]);

impl<'a> StoreScript<'a> {
    fn byte(&mut self) -> Option<u8> {
        let (&byte, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(byte)
    }

    fn bytes(&mut self) -> Option<&'a [u8]> {
        let n_bytes = usize::from(self.byte()?) * 3;
        let (bytes, rest) = self.0.split_at(n_bytes.min(self.0.len()));
        self.0 = rest;
        Some(bytes)
    }

    /// A key out of a few.
    fn key(&mut self) -> Option<String> {
        Some(format!("job/{}", self.byte()? % 4))
    }
}

/// Another process at the host.
fn host(mut script: StoreScript<'_>) {
    let token = |text: &str| Token::new(text).expect("it is long enough");
    let ours = token("a token of this fuzzer's");
    let mut host = StoreHost::new(ours.clone());
    // The values that were asked for, and the requests that expect an answer.
    let mut expected: BTreeMap<String, Vec<u8>> = BTreeMap::new();
    let (mut asked, mut answered) = (BTreeMap::new(), Vec::new());
    let (mut is_honest, mut has_proven) = (true, false);
    let mut number = 0;
    let mut n_head_bytes = 0;
    while let Some(kind) = script.byte() {
        let mut bytes = Vec::new();
        match kind % 6 {
            0 => {
                let Some(given) = script.bytes() else { break };
                is_honest &= given.is_empty();
                bytes.extend(given);
            }
            1 => {
                // A second proof is no request.
                is_honest &= !has_proven;
                has_proven = true;
                bytes = StoreHost::honest_proof(&ours);
            }
            5 => {
                is_honest = false;
                bytes = StoreHost::honest_proof(&token("a token of someone else"));
            }
            4 => {
                // Who is slow to prove itself is sent away.
                is_honest &= has_proven;
                host.pass(Duration::from_millis(script.byte().unwrap_or_default().into()));
            }
            kind => {
                let Some(key) = script.key() else { break };
                let value = if kind == 2 { script.bytes() } else { None };
                is_honest &= has_proven;
                number += 1;
                asked.insert(number, value.is_none());
                bytes = store_request(number, &key, value);
                if let Some(value) = value {
                    expected.insert(key, value.to_vec());
                }
            }
        }
        let goes_on = host.receive(&bytes);
        assert!(host.is_within_limits(), "the host holds too much");
        assert!(!is_honest || goes_on || asked.len() > 64, "an honest process was sent away");
        assert!(has_proven || !host.is_proven(), "a stranger is trusted");
        answered.extend(host.take_unsent());
        // The host's nonce comes first, and its proof after ours.
        let head = if host.is_proven() { 64 } else { 32 };
        answered.drain(..head - n_head_bytes);
        n_head_bytes = head;
        while let Ok(Some(message)) = next_message(&mut answered) {
            let (number, again) = reencode_answer(&message).expect("the host answers");
            assert_eq!(&again[4..], message, "an answer has two encodings");
            assert!(!is_honest || asked.remove(&number).is_some(), "an answer to no request");
        }
        assert!(answered.is_empty(), "the host sends a part of an answer");
        if is_honest {
            for (key, value) in &expected {
                assert_eq!(host.value(key), Some(&value[..]));
            }
        }
        if !goes_on {
            break;
        }
    }
    if !has_proven {
        assert!((0..4).all(|key| host.value(&format!("job/{key}")).is_none()));
    }
}

/// The host, at another process.
fn answers(bytes: &[u8]) {
    let mut received = bytes.to_vec();
    while let Ok(Some(message)) = next_message(&mut received) {
        if let Some((_, again)) = reencode_answer(&message) {
            assert_eq!(&again[4..], message, "an answer has two encodings");
        }
    }
    assert!(received.len() <= bytes.len());
}
