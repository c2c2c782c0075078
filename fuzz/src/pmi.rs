//! Any bytes from a launcher's PMI server: no panic, an end in time, a rank that can be, and no
//! message with what may be a secret.
//!
//! The first byte says what the environment knows. Bits 0–1: a rank; bit 2: it knows that rank, of
//! four; bit 3: the server is at `PMI_PORT`. The rest is what the server sends, whatever it is
//! asked.

use foldwire_bootstrap::MAX_RANKS;
use foldwire_bootstrap::fuzzing::meet_by_pmi;
use std::io::Write;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// Most bytes that fit into a socket that nobody reads.
const MAX_BYTES: usize = 32 << 10;
/// Text before values, which are not shown.
const VALUE: &str = "value=";

/// Runs the target on an input.
pub fn check(input: &[u8]) {
    let Some((&first, said)) = input.split_first() else { return };
    let said = &said[..said.len().min(MAX_BYTES)];
    let place = (first & 4 > 0).then_some((u64::from(first % 4), 4));
    let id = (first & 8 > 0).then_some(7);
    let (ours, mut theirs) = UnixStream::pair().expect("two sockets");
    theirs.write_all(said).expect("it fits");
    theirs.shutdown(Shutdown::Write).expect("the socket is open");
    match meet_by_pmi(ours, place, id, Duration::from_secs(20)) {
        Ok((rank, size, root, name)) => {
            assert!(rank < size && size <= MAX_RANKS as u64, "rank {rank} of {size}");
            assert!(place.is_none_or(|place| place == (rank, size)), "the environment lies");
            assert!(place.is_some() || id.is_some(), "nobody told the rank");
            let text = root.to_string();
            assert_eq!(text.parse().as_ref(), Ok(&root), "{text}");
            assert!(name.len() == 32 && name.bytes().all(|byte| byte.is_ascii_hexdigit()));
        }
        Err(error) => {
            assert!(error.len() < 600 && !error.contains(char::is_control), "{error}");
            let said = String::from_utf8_lossy(said);
            let values = said.lines().filter_map(|line| line.split_once(VALUE));
            let values = values.map(|(_, value)| value).filter(|value| value.len() >= 16);
            // What the server says elsewhere, too, is no secret.
            for value in values.filter(|value| said.matches(value).count() == 1) {
                assert!(!error.contains(value), "the message shows a value: {error}");
            }
        }
    }
}
