//! Settings of a simulated network.

use std::time::Duration;

use foldwire::transport::{FRAMES_PER_LANE, MAX_LANES};

/// How fast, how deep and how fair a network is. All ranks and links are alike.
///
/// A frame of m bytes leaves when its sender's NIC is free, occupies it for m / `bandwidth`, takes
/// `latency` and up to `jitter` more, and occupies the receiver's NIC for as long as the sender's;
/// NICs are served in the order in which frames were sent. Frames between ranks of a node pass by
/// the NICs: they take the latency alone. Frames of one (sender, receiver, tag) never overtake each
/// other.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Net {
    /// From one rank to another, for the first byte.
    pub latency: Duration,
    /// Added to a frame's latency: uniform in 0…`jitter`.
    pub jitter: Duration,
    /// Of each rank's NIC, each way, in bytes per second.
    pub bandwidth: f64,
    /// So many ranks in a row share a node, at least 1.
    pub ranks_per_node: usize,
    /// Frames that each (sender, receiver, tag) may have under way, at least 1.
    pub depth: usize,
    /// [Channels](foldwire::Transport::n_channels): most calls under way at the same time, at least
    /// 1.
    pub channels: usize,
    /// Bytes in every frame.
    pub frame_bytes: usize,
    /// Frames that a rank may hold at a time. Ranks need
    /// [`FRAMES_PER_LANE`] for each lane of each call under way.
    pub frames_per_rank: usize,
    /// Frames leave only while their sender polls, as on networks without threads of their own, and
    /// [`undelivered`](foldwire::Transport::undelivered) says so.
    pub attended: bool,
    /// One in so many questions (is there a frame, is there credit, is there a free frame) is
    /// answered with "not yet" for no reason; 0: none.
    pub refusal: usize,
    /// One in so many times a rank is passed over when it would be polled; 0: never.
    pub neglect: usize,
    /// Time that a poll of a rank takes: uniform in 0…`poll`.
    pub poll: Duration,
    /// The longest jump of time at once. An eighth of the communicators' time limit lets a stall be
    /// noticed soon after the limit, in few polls.
    pub jump: Duration,
    /// When nothing has moved for so long, ranks that have not returned have hung.
    pub patience: Duration,
}

impl Default for Net {
    /// A network of 10 Gbit/s, whose ranks have a time limit of some seconds.
    fn default() -> Self {
        Self {
            latency: Duration::from_micros(2),
            jitter: Duration::from_micros(1),
            bandwidth: 1.25e9,
            ranks_per_node: 1,
            depth: 4,
            channels: 1,
            frame_bytes: 64 * 1024,
            frames_per_rank: MAX_LANES * FRAMES_PER_LANE,
            attended: false,
            refusal: 0,
            neglect: 0,
            poll: Duration::from_nanos(300),
            jump: Duration::from_millis(100),
            patience: Duration::from_secs(3600),
        }
    }
}
