//! Settings of a simulated network.

use std::time::Duration;

use foldwire::transport::{FRAMES_PER_LANE, MAX_LANES};

/// Speed, capacity and random behavior of a network. All ranks and links are alike.
///
/// A frame of m bytes leaves when the sender's NIC is free, and occupies that NIC for m /
/// `bandwidth`. It travels for `latency` plus up to `jitter`. Then it occupies the receiver's NIC
/// for m / `bandwidth`. A NIC serves frames in the order in which they were sent. Frames between
/// ranks of the same node bypass the NICs and take only the latency. Frames with the same sender,
/// receiver and tag never overtake each other.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NetSettings {
    /// Time that a frame's first byte travels from one rank to another.
    pub latency: Duration,
    /// Upper limit of the random addition to a frame's latency, which is uniform in 0…`jitter`.
    pub jitter: Duration,
    /// Rate of each rank's NIC in each direction, in bytes per second.
    pub bandwidth: f64,
    /// Number of consecutive ranks that share a node, at least 1.
    pub ranks_per_node: usize,
    /// Frames that may be in flight for each (sender, receiver, tag), at least 1.
    pub depth: usize,
    /// [Channels](foldwire::Transport::n_channels), at least 1. This is the number of calls that
    /// can run at the same time.
    pub channels: usize,
    /// Bytes in every frame.
    pub frame_bytes: usize,
    /// Frames that a rank may hold at a time. A rank needs [`FRAMES_PER_LANE`] for each lane of
    /// each running call.
    pub frames_per_rank: usize,
    /// True if frames leave only while their sender polls, as on networks without progress threads.
    /// Until then, [`undelivered`](foldwire::Transport::undelivered) reports the frame's receiver.
    pub attended: bool,
    /// The transport answers one in this many queries (for a received frame, for credit, for a free
    /// frame) with "not yet", at random. 0 turns this off.
    pub refusal: usize,
    /// The executor skips one in this many polls of a rank, at random. 0 turns this off.
    pub neglect: usize,
    /// Upper limit of the time that one poll of a rank takes, which is uniform in 0…`poll`.
    pub poll: Duration,
    /// Longest jump of virtual time. If it is an eighth of the communicators' timeout, ranks notice
    /// a stall soon after the timeout, and need few polls until then.
    pub jump: Duration,
    /// The run ends when no frame has moved for this virtual time. Ranks that have not returned by
    /// then count as hung.
    pub patience: Duration,
}

impl Default for NetSettings {
    /// A network of 10 Gbit/s, for communicators with a timeout of some seconds.
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
