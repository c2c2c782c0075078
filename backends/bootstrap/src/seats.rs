//! Rank 0's table: for each rank its connection, or how it went.

use std::collections::VecDeque;
use std::process;
use std::thread;
use std::time::{Duration, Instant};

use foldwire::Rank;

use crate::error::Error;
use crate::link::{Fill, Link};
use crate::message::Message;
use crate::protocol::{Departure, Guest};

/// The longest time that leaving takes, when somebody does not read what is sent.
pub(crate) const GOODBYE_LIMIT: Duration = Duration::from_millis(250);

/// One seat for each rank. Dropping it says goodbye to all, unless the thread panics: then they are
/// to hear that rank 0 is lost. A process that was forked off has nothing to say to them.
#[derive(Debug)]
pub(crate) struct Seats {
    home: u32,
    /// By rank; the first is rank 0's own.
    seats: Vec<Seat>,
    /// Lost ranks that nobody has asked for yet.
    news: VecDeque<Rank>,
}

/// What is known of a rank.
#[derive(Debug)]
enum Seat {
    /// This process's own.
    Own,
    /// It has not come yet.
    Empty,
    /// It is there.
    Taken { link: Link, guest: Guest },
    /// It has said goodbye.
    Left,
    /// It has ended without, or broken the protocol.
    Lost,
}

impl Seats {
    pub(crate) fn new(size: usize) -> Self {
        let mut seats = vec![Seat::Own];
        seats.resize_with(size, || Seat::Empty);
        Self { home: process::id(), seats, news: VecDeque::new() }
    }

    pub(crate) fn size(&self) -> usize {
        self.seats.len()
    }

    /// Ranks that have not come.
    pub(crate) fn absent(&self) -> impl Iterator<Item = Rank> {
        self.ranks_where(|seat| matches!(seat, Seat::Empty))
    }

    /// Ranks that have given nothing to the next all-gather.
    pub(crate) fn silent(&self) -> impl Iterator<Item = Rank> {
        self.ranks_where(|seat| match seat {
            Seat::Own => false,
            Seat::Taken { guest, .. } => !guest.has_given(),
            _ => true,
        })
    }

    /// Ranks that have not taken all that was sent to them.
    pub(crate) fn clogged(&self) -> impl Iterator<Item = Rank> {
        self.ranks_where(|seat| matches!(seat, Seat::Taken { link, .. } if link.is_clogged()))
    }

    fn ranks_where(&self, is_meant: impl Fn(&Seat) -> bool) -> impl Iterator<Item = Rank> {
        let ranks = self.seats.iter().enumerate();
        ranks.filter(move |(_, seat)| is_meant(seat)).map(|(rank, _)| Rank::new(rank))
    }

    /// Gives an empty seat to its rank.
    pub(crate) fn take(&mut self, rank: Rank, link: Link) {
        debug_assert!(matches!(self.seats[rank.index()], Seat::Empty));
        self.seats[rank.index()] = Seat::Taken { link, guest: Guest::default() };
    }

    pub(crate) fn is_taken(&self, rank: Rank) -> bool {
        !matches!(self.seats.get(rank.index()), Some(Seat::Empty))
    }

    /// Reads what a rank has to say, and sends what waits for it.
    pub(crate) fn hear(&mut self, index: usize) {
        let Some(seat @ Seat::Taken { .. }) = self.seats.get_mut(index) else { return };
        match seat.hear() {
            None => {}
            Some(Departure::Goodbye) => *seat = Seat::Left,
            Some(Departure::Breach) => {
                *seat = Seat::Lost;
                let rank = Rank::new(index);
                self.news.push_back(rank);
                self.tell_all(&Message::Lost(rank));
            }
        }
    }

    /// Every rank's part, of which `mine` is rank 0's.
    pub(crate) fn take_given(&mut self, mine: &[u8]) -> Vec<Vec<u8>> {
        let parts = self.seats.iter_mut().map(|seat| match seat {
            Seat::Taken { guest, .. } => guest.take_given().unwrap_or_default(),
            _ => mine.to_vec(),
        });
        parts.collect()
    }

    pub(crate) fn take_news(&mut self) -> Option<Rank> {
        self.news.pop_front()
    }

    pub(crate) fn tell_all(&mut self, message: &Message<'_>) {
        for seat in &mut self.seats {
            if let Seat::Taken { link, .. } = seat {
                link.send(message);
            }
        }
    }

    /// Tells all ranks every rank's part, in one piece for each: a write of its own for each part
    /// would be size² of them.
    pub(crate) fn share_out(&mut self, parts: &[Vec<u8>]) {
        let mut shares = Vec::new();
        for (from, bytes) in parts.iter().enumerate() {
            Message::Share { from: Rank::new(from), bytes }.emit(&mut shares);
        }
        for seat in &mut self.seats {
            if let Seat::Taken { link, .. } = seat {
                link.send_written(&shares);
            }
        }
    }

    /// An error if the group is no longer whole; others hear of it.
    pub(crate) fn check(&mut self) -> Result<(), Error> {
        if let Some(rank) = self.ranks_where(|seat| matches!(seat, Seat::Lost)).next() {
            return Err(Error::Lost { rank });
        }
        let left = self.ranks_where(|seat| matches!(seat, Seat::Left)).next();
        if let Some(rank) = left {
            self.tell_all(&Message::Left(rank));
            return Err(Error::Left { rank });
        }
        Ok(())
    }
}

impl Seat {
    fn hear(&mut self) -> Option<Departure> {
        let Self::Taken { link, guest } = self else { return None };
        link.flush();
        loop {
            let fill = link.fill();
            while let Some(heard) = link.next().transpose() {
                if let Some(departure) = guest.hear(heard) {
                    return Some(departure);
                }
            }
            match fill {
                Fill::Some => {}
                Fill::Blocked => return None,
                // As good as a breach: it said no goodbye.
                Fill::Ended => return Some(Departure::Breach),
            }
        }
    }
}

impl Drop for Seats {
    fn drop(&mut self) {
        if thread::panicking() || process::id() != self.home {
            return;
        }
        // Others are to know of a rank that was lost before this one left.
        for index in 0..self.seats.len() {
            self.hear(index);
        }
        self.tell_all(&Message::Goodbye);
        let deadline = Instant::now() + GOODBYE_LIMIT;
        for seat in &mut self.seats {
            if let Seat::Taken { link, .. } = seat {
                link.close(deadline);
            }
        }
    }
}
