//! The trace: all events of a run.
//!
//! Every run has a digest of its events, so that two runs can be compared. The events themselves
//! are kept only on request.

use std::fmt;
use std::time::Duration;

use foldwire::frame::Header;
use foldwire::{Rank, Tag};

use crate::Fault;
use crate::random::mix;

/// The events of a run, in order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trace {
    /// The events, if they were kept.
    pub events: Vec<TraceEvent>,
    /// Number of events, notes not counted.
    pub n_events: usize,
    /// Digest of all events except notes.
    pub digest: u64,
    pub(crate) keeps: bool,
}

/// One event of a rank.
#[derive(Clone, Debug, PartialEq)]
pub struct TraceEvent {
    /// Virtual time since the start of the run.
    pub at: Duration,
    /// The rank.
    pub rank: Rank,
    /// Kind of event.
    pub kind: EventKind,
}

/// Kind of event. A `header` is `None` if the frame's bytes do not begin with a valid header.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)]
pub enum EventKind {
    /// The rank sent a frame.
    Sent { to: Rank, tag: Tag, n_bytes: usize, header: Option<Header> },
    /// The rank received a frame.
    Received { from: Rank, tag: Tag, n_bytes: usize, header: Option<Header> },
    /// A fault occurred.
    Fault(Fault),
    /// The rank dropped its endpoint.
    Ended,
    /// A fault killed the rank.
    Died,
    /// A note that the rank's program added.
    Note(String),
}

impl Trace {
    pub(crate) const fn keeps(&self) -> bool {
        self.keeps
    }

    pub(crate) fn add(&mut self, at: u64, rank: Rank, kind: EventKind) {
        let (code, peer, tag, n_bytes) = match &kind {
            EventKind::Sent { to, tag, n_bytes, .. } => (0, to.0, tag.0, *n_bytes),
            EventKind::Received { from, tag, n_bytes, .. } => (1, from.0, tag.0, *n_bytes),
            EventKind::Fault(_) => (2, 0, 0, 0),
            EventKind::Ended => (3, 0, 0, 0),
            EventKind::Died => (4, 0, 0, 0),
            EventKind::Note(_) => (5, 0, 0, 0),
        };
        if code != 5 {
            let place =
                u64::from(rank.0) << 40 | u64::from(peer) << 16 | u64::from(tag) << 8 | code;
            self.digest = mix(self.digest ^ at);
            self.digest = mix(self.digest ^ place);
            self.digest = mix(self.digest ^ n_bytes as u64);
            self.n_events += 1;
        }
        if self.keeps {
            self.events.push(TraceEvent { at: Duration::from_nanos(at), rank, kind });
        }
    }
}

impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.events.iter().try_for_each(|event| writeln!(f, "{event}"))
    }
}

impl fmt::Display for TraceEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (micros, rank) = (self.at.as_secs_f64() * 1e6, self.rank);
        write!(f, "{micros:14.3} µs  rank {rank:>2} ")?;
        match &self.kind {
            EventKind::Sent { to, tag, n_bytes, header } => {
                write!(f, "→ {to:>2} tag {} {n_bytes:>6} B  {}", tag.0, HeaderLabel(header))
            }
            EventKind::Received { from, tag, n_bytes, header } => {
                write!(f, "← {from:>2} tag {} {n_bytes:>6} B  {}", tag.0, HeaderLabel(header))
            }
            EventKind::Fault(fault) => write!(f, "! {fault}"),
            EventKind::Ended => write!(f, "ended"),
            EventKind::Died => write!(f, "died"),
            EventKind::Note(note) => write!(f, "· {note}"),
        }
    }
}

/// The header fields that tell frames apart, for display.
struct HeaderLabel<'a>(&'a Option<Header>);

impl fmt::Display for HeaderLabel<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            None => write!(f, "no message"),
            Some(Header { kind, call, part, round, .. }) => {
                let (sequence, name) = (call.sequence, call.collective.name());
                write!(f, "{kind:?} {name} #{sequence} part {part} round {round}")
            }
        }
    }
}
