//! Forwards output in whole lines of any bytes, each with its rank in front.

use std::io::{self, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::thread;

use super::LaunchEvent;

/// Bytes to read from a pipe at a time.
const CHUNK_BYTES: usize = 64 * 1024;
/// Longest incomplete line that is held back. Longer ones are forwarded in pieces.
const MAX_HELD_BYTES: usize = 64 * 1024;

/// Bytes to forward after the last rank's end. A pipe of Linux holds no more, unless root has
/// enlarged it, so whatever comes later is from a process that a rank has left behind.
const MAX_LAST_BYTES: usize = 1 << 20;

/// Counts of all forwarding threads, which tell whether any of them is writing.
#[derive(Default)]
pub(super) struct ForwardCounts {
    n_read: AtomicU64,
    n_written: AtomicU64,
    have_ranks_ended: AtomicBool,
}

impl ForwardCounts {
    /// From now on each thread ends after [`MAX_LAST_BYTES`] more bytes at the latest.
    pub(super) fn set_ranks_ended(&self) {
        self.have_ranks_ended.store(true, Ordering::SeqCst);
    }

    /// Returns the number of pieces that were read, if all of them have been written.
    pub(super) fn n_pieces_if_idle(&self) -> Option<u64> {
        // A piece is read before it is written, so this order finds every piece in between.
        let n_written = self.n_written.load(Ordering::SeqCst);
        Some(self.n_read.load(Ordering::SeqCst)).filter(|&n_read| n_read == n_written)
    }
}

/// Copies `from` to `to` in a separate thread, until either ends. `prefix` precedes each line.
pub(super) fn forward(
    mut from: impl Read + Send + 'static,
    mut to: impl Write + Send + 'static,
    prefix: String,
    counts: Arc<ForwardCounts>,
    events: Sender<LaunchEvent>,
) -> io::Result<()> {
    let forwards = move || {
        let mut lines = LinePrefixer::new(prefix);
        let mut chunk = vec![0; CHUNK_BYTES];
        let mut out = Vec::new();
        let mut n_last_bytes = 0;
        loop {
            let n_bytes = match from.read(&mut chunk) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                // A pipe that cannot be read counts as ended.
                result => result.unwrap_or(0),
            };
            counts.n_read.fetch_add(1, Ordering::SeqCst);
            if counts.have_ranks_ended.load(Ordering::SeqCst) {
                n_last_bytes += n_bytes;
            }
            let is_last = n_bytes == 0 || n_last_bytes >= MAX_LAST_BYTES;
            out.clear();
            lines.push(&chunk[..n_bytes], &mut out);
            if is_last {
                lines.finish(&mut out);
            }
            // Write whole lines in one call, so that lines of different ranks do not mix.
            let written = to.write_all(&out).and_then(|()| to.flush());
            counts.n_written.fetch_add(1, Ordering::SeqCst);
            let is_over = is_last || written.is_err();
            // Sending fails only without a receiver, when the program is about to end.
            if let Err(error) = written {
                let _ = events.send(LaunchEvent::Unwritable(error));
            }
            if is_over {
                let _ = events.send(LaunchEvent::OutputEnded);
                return;
            }
        }
    };
    thread::Builder::new().spawn(forwards).map(drop)
}

/// Turns pieces of any size into whole lines with a prefix.
struct LinePrefixer {
    prefix: String,
    /// The beginning of an incomplete line.
    held: Vec<u8>,
    /// True if a part of the current line has already been forwarded.
    is_continued: bool,
}

impl LinePrefixer {
    fn new(prefix: String) -> Self {
        Self { prefix, held: Vec::new(), is_continued: false }
    }

    /// Appends the next bytes. Writes to `out` what can be forwarded.
    fn push(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        for piece in bytes.split_inclusive(|&byte| byte == b'\n') {
            self.held.extend_from_slice(piece);
            if piece.ends_with(b"\n") || self.held.len() >= MAX_HELD_BYTES {
                self.release(out);
            }
        }
    }

    /// Writes the rest to `out`. A line with a prefix gets a newline, or else another rank's line
    /// would continue it.
    fn finish(&mut self, out: &mut Vec<u8>) {
        if self.held.is_empty() && !self.is_continued {
            return;
        }
        if !self.prefix.is_empty() {
            self.held.push(b'\n');
        }
        self.release(out);
    }

    fn release(&mut self, out: &mut Vec<u8>) {
        if !self.is_continued {
            out.extend_from_slice(self.prefix.as_bytes());
        }
        self.is_continued = !self.held.ends_with(b"\n");
        out.append(&mut self.held);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Output for these pieces.
    fn forwarded<'a>(prefix: &str, pieces: impl IntoIterator<Item = &'a [u8]>) -> Vec<u8> {
        let mut lines = LinePrefixer::new(prefix.into());
        let mut out = Vec::new();
        pieces.into_iter().for_each(|piece| lines.push(piece, &mut out));
        lines.finish(&mut out);
        out
    }

    #[test]
    fn each_line_has_its_prefix_however_it_comes_in_pieces() {
        let bytes = b"one\n\ntwo \xff\xfe\r\n\0three";
        for n_bytes in 1..=bytes.len() {
            let out = forwarded("[7] ", bytes.chunks(n_bytes));
            assert_eq!(out, b"[7] one\n[7] \n[7] two \xff\xfe\r\n[7] \0three\n", "by {n_bytes}");
        }
    }

    #[test]
    fn without_a_prefix_the_bytes_are_the_same() {
        let bytes = b"one\n\n\xfftwo";
        for n_bytes in 1..=bytes.len() {
            assert_eq!(forwarded("", bytes.chunks(n_bytes)), bytes);
        }
        assert_eq!(forwarded("", []), b"");
        assert_eq!(forwarded("[7] ", []), b"");
    }

    #[test]
    fn a_line_that_is_not_at_its_end_is_held_back() {
        let mut lines = LinePrefixer::new("> ".into());
        let mut out = Vec::new();
        lines.push(b"a\nb", &mut out);
        assert_eq!(out, b"> a\n");
        lines.push(b"c\n", &mut out);
        assert_eq!(out, b"> a\n> bc\n");
    }

    #[test]
    fn a_line_without_an_end_takes_no_end_of_memory_and_loses_nothing() {
        let long = vec![b'x'; 5 * MAX_HELD_BYTES + 3];
        let mut lines = LinePrefixer::new("> ".into());
        let mut out = Vec::new();
        for piece in long.chunks(1000) {
            lines.push(piece, &mut out);
            assert!(lines.held.len() < MAX_HELD_BYTES + 1000);
        }
        lines.push(b"\ny\n", &mut out);
        assert_eq!(out, [b"> ", &long[..], b"\n> y\n"].concat());
        let exact = vec![b'x'; MAX_HELD_BYTES];
        assert_eq!(forwarded("> ", [&exact[..]]), [b"> ", &exact[..], b"\n"].concat());
    }
}
