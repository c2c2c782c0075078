//! A [`Net`] over a library that is told by requests what to send and to receive, as MPI is.

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use foldwire::HeapFrame;
use foldwire::transport::{Distance, Rank, Tag};

use crate::ffi::requests::{Requests, UnderWay};
use crate::{Event, Net, Patience, Refused, Source, on_wire};

/// Messages by a library's [`Requests`].
pub struct Messages<R: Requests> {
    library: R,
    under_way: UnderWay<R, Note>,
    events: VecDeque<Event<HeapFrame>>,
    /// What the last test found has been handed out: whoever asks on hears that there is no more,
    /// and the library is not asked twice in a pass.
    has_handed_out: bool,
    patience: Patience,
}

/// What a request is about.
#[derive(Clone, Copy)]
enum Note {
    Send { to: Rank, tag: Tag, matched: bool },
    Receive { from: Option<Rank>, tag: Tag },
}

impl<R: Requests> Messages<R> {
    /// Over these.
    pub fn new(library: R) -> Self {
        Self {
            library,
            under_way: UnderWay::new(),
            events: VecDeque::new(),
            has_handed_out: false,
            patience: Patience::default(),
        }
    }

    /// Collects what is complete; the first error, after all.
    fn test(&mut self) -> Result<(), R::Error> {
        let Self { library, under_way, events, .. } = self;
        let mut failed = None;
        let tested = under_way.test(library, |note, buffer, completion| {
            let (event, peer) = match note {
                Note::Send { to, tag, matched } => {
                    (Event::Released { to, tag, buffer, matched }, Some(to))
                }
                Note::Receive { from, tag } => match completion {
                    Ok(Some((from, n_bytes))) => {
                        (Event::Received { from, tag, buffer, n_bytes }, Some(from))
                    }
                    _ => (Event::Returned { buffer }, from),
                },
            };
            events.push_back(event);
            failed = failed.or(completion.err().map(|code| (code, peer)));
        });
        let failed = tested.err().map(|code| (code, None)).or(failed);
        failed.map_or(Ok(()), |(code, peer)| Err(library.error(code, peer)))
    }
}

impl<R: Requests> Net for Messages<R> {
    type Buffer = HeapFrame;
    type Error = R::Error;

    fn rank(&self) -> Rank {
        self.library.rank()
    }

    fn size(&self) -> usize {
        self.library.size()
    }

    fn allocate(&mut self, n_bytes: usize) -> Result<HeapFrame, R::Error> {
        let library = &self.library;
        HeapFrame::try_new(n_bytes).ok_or_else(|| library.error(library.no_memory(), None))
    }

    fn send(
        &mut self,
        to: Rank,
        tag: Tag,
        buffer: HeapFrame,
        n_bytes: usize,
        matched: bool,
    ) -> Result<(), Refused<HeapFrame, R::Error>> {
        self.patience.renew();
        let (note, how) = (Note::Send { to, tag, matched }, ((to, on_wire(tag)), matched));
        let sent = self.under_way.send(&mut self.library, note, how, buffer, n_bytes);
        sent.map_err(|(buffer, code)| Refused::Failed(buffer, self.library.error(code, Some(to))))
    }

    fn recv(
        &mut self,
        from: Source,
        tag: Tag,
        buffer: HeapFrame,
    ) -> Result<(), Refused<HeapFrame, R::Error>> {
        let from = match from {
            Source::Rank(rank) => Some(rank),
            Source::Any => None,
        };
        let note = Note::Receive { from, tag };
        let posted = self.under_way.recv(&mut self.library, note, (from, tag), buffer);
        posted.map_err(|(buffer, code)| Refused::Failed(buffer, self.library.error(code, from)))
    }

    fn poll(&mut self) -> Result<Option<Event<HeapFrame>>, R::Error> {
        if std::mem::take(&mut self.has_handed_out) {
            return Ok(None);
        }
        if self.events.is_empty() {
            self.test()?;
        }
        let event = self.events.pop_front();
        self.has_handed_out = event.is_some() && self.events.is_empty();
        if event.is_some() {
            self.patience.renew();
        }
        Ok(event)
    }

    fn cancel_receives(&mut self) {
        self.has_handed_out = false;
        let receives = |note| matches!(note, Note::Receive { .. });
        self.under_way.cancel(&mut self.library, receives);
    }

    fn abandon(&mut self) {
        self.library.abandon();
    }

    fn distance(&self, peer: Rank) -> Distance {
        let (nodes, own) = (self.library.nodes(), self.library.rank());
        let is_near = nodes.get(peer.index()) == nodes.get(own.index());
        if is_near { Distance::Node } else { Distance::Network }
    }

    fn needs_checksum(&self) -> bool {
        self.library.nodes().iter().any(|&node| node != 0)
    }

    fn idle(&mut self, budget: Duration) {
        self.patience.rest(budget);
    }
}

impl<R: Requests> fmt::Debug for Messages<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (rank, size) = (self.library.rank(), self.library.size());
        f.debug_struct("Messages").field("rank", &rank).field("size", &size).finish_non_exhaustive()
    }
}
