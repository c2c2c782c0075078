//! One step of one rank, as flags.

use super::{Part, ProgramSpec};
use crate::bundle::Placement;
use crate::transport::Rank;

/// One step of one rank. It makes one value of one part: what it receives (`from`), what the rank
/// has (`own`), or the two combined. The value is then stored, kept, and sent, as the flags say.
///
/// *What the rank has* is its *holding*, if an earlier step of the same lane kept one, and its
/// local part otherwise: its own contribution. A lane has at most one holding, and while it has
/// one, every step concerns that part, or says that it means the *local* one of another. What a
/// step holds is used up unless it keeps it again.
///
/// *Runs.* A step may concern a run of parts alike, which follow each other, the first after the
/// last; its messages then carry a segment of each. So a holding is a run. A step that uses it
/// concerns the last of its parts: those are used up unless the step keeps what it makes of them,
/// which is then in their place, and the others stay. What is kept that was not held is put behind
/// what is, whose parts it must follow. A step *at the front* concerns the first of them instead,
/// and puts what it keeps before what is held; then all parts are of as many ranks' values. Parts
/// that lie in [`SourceRows`] follow each other as those say, and may be the last of each row of what is
/// held, or become that.
///
/// A step that receives and sends takes its frame first, and only then waits for credit to send.
///
/// | name in print | `from` | `own` | `keep` | `store` | `to` |
/// |---|---|---|---|---|---|
/// | send | | yes | if needed again | | yes |
/// | send-store | | yes | | yes | yes |
/// | finish | | yes | | yes | |
/// | take | | yes | yes | | |
/// | hold | yes | | yes | | |
/// | store | yes | | | yes | |
/// | forward | yes | | | | yes |
/// | store-forward | yes | | | yes | yes |
/// | reduce | yes | yes | yes | | |
/// | reduce-send | yes | yes | | | yes |
/// | reduce-store | yes | yes | | yes | |
/// | reduce-store-send | yes | yes | | yes | yes |
/// | store-reduce-send | yes | yes | | before | yes |
///
/// # Examples
/// ```
/// use foldwire::schedule::{Part, Step};
/// use foldwire::transport::Rank;
///
/// let step = Step::receive(Part(2), Rank(0)).reduce().to(Rank(1));
/// assert_eq!(step.to_string(), "reduce-send part 2 from 0 to 1");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Step {
    /// The part concerned, or the first of a run.
    pub part: Part,
    /// How many parts the step concerns, at most [`ProgramSpec::max_run`].
    pub n_parts: u16,
    /// If they are several rows of the matrix of an all-to-all, how those lie.
    pub rows: Option<SourceRows>,
    /// Whom to receive from.
    pub from: Option<Rank>,
    /// What the rank has enters. Set wherever nothing is received.
    pub own: bool,
    /// That is the local part, even if something is held. What is received and combined with it may
    /// be kept.
    pub local: bool,
    /// At the front of what is held: it sends or stores the first parts of it, and nothing else, or
    /// keeps what it receives before it.
    pub front: bool,
    /// The value becomes the holding. If it is the local part itself, sent or stored as well,
    /// nothing is held: a later step uses the local part again.
    pub keep: bool,
    /// The value goes into the output: if it is sent, what the receiver decodes.
    pub store: bool,
    /// What is stored is what was received, before what the rank has is combined with it. Then it
    /// stores, and sends the combination.
    pub before: bool,
    /// Some other rank received this very value through the wire: store what that rank decodes,
    /// though nothing is sent here, so that all ranks hold the same bits. Of a value that is
    /// kept: it is complete and from now on only moves, so keep what is sent.
    pub as_sent: bool,
    /// Whom to send to.
    pub to: Option<Rank>,
}

/// The parts of a run of an all-to-all that are of several sources: a *row* of each.
///
/// A row is what a source has for the destination of the first part and the ranks after it, `len`
/// in all, in a ring of ranks. The next row is what another source has for the same ranks; the last
/// one may be shorter.
///
/// What is held may lie in such rows as well, of which the first lacks its first part, as a rank
/// need not hold what it has for itself. A step then concerns the last parts of each row, or makes
/// each so much longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceRows {
    /// Parts of a row, at least one.
    pub len: u16,
    /// How many ranks before the source of a row that of the next one is, less than all.
    pub back: u32,
    /// How many ranks are in the ring: those from a multiple of it on.
    pub ring: u32,
    /// How long the rows are that are held, those parts included; 0 if the run is at an end of what
    /// is held, as other runs are.
    pub held: u16,
}

impl SourceRows {
    /// The part at this place of a run.
    fn part_at(self, call: ProgramSpec, first: Part, place: usize) -> Part {
        let (source, destination) = call.ends_of(first);
        let (row, column) = (place / usize::from(self.len), place % usize::from(self.len));
        let before = row * self.back as usize % call.size;
        let source = (source.index() + call.size - before) % call.size;
        let (ring, destination) = (self.ring as usize, destination.index());
        let start = destination / ring * ring;
        let destination = start + (destination - start + column) % ring;
        call.part_between(Rank::new(source), Rank::new(destination))
    }
}

impl Step {
    /// A step on what the rank has.
    #[must_use]
    pub const fn own(part: Part) -> Self {
        Self {
            part,
            n_parts: 1,
            rows: None,
            from: None,
            own: true,
            local: false,
            front: false,
            keep: false,
            store: false,
            before: false,
            as_sent: false,
            to: None,
        }
    }

    /// The same for a run of so many parts.
    ///
    /// # Panics
    /// If `n_parts` does not fit 16 bits.
    #[must_use]
    pub const fn run(self, n_parts: usize) -> Self {
        assert!(n_parts <= u16::MAX as usize);
        Self { n_parts: n_parts as u16, ..self }
    }

    /// The same for parts that lie in rows.
    #[must_use]
    pub const fn in_rows(self, rows: SourceRows) -> Self {
        Self { rows: Some(rows), ..self }
    }

    /// A step on what it receives from this rank.
    #[must_use]
    pub const fn receive(part: Part, from: Rank) -> Self {
        Self { from: Some(from), own: false, ..Self::own(part) }
    }

    /// Combine it with what the rank has.
    #[must_use]
    pub const fn reduce(self) -> Self {
        Self { own: true, ..self }
    }

    /// Combine it with its own contribution, whatever is held of other parts.
    #[must_use]
    pub const fn reduce_local(self) -> Self {
        Self { own: true, local: true, ..self }
    }

    /// Of what is held use the first parts, not the last; or keep what is received before it.
    #[must_use]
    pub const fn at_front(self) -> Self {
        Self { front: true, ..self }
    }

    /// Keep the value.
    #[must_use]
    pub const fn keep(self) -> Self {
        Self { keep: true, ..self }
    }

    /// Store the value.
    #[must_use]
    pub const fn store(self) -> Self {
        Self { store: true, ..self }
    }

    /// Store the value as a rank decodes it that received it.
    #[must_use]
    pub const fn store_as_sent(self) -> Self {
        Self { store: true, as_sent: true, ..self }
    }

    /// Keep the value, which is complete, as it is sent.
    #[must_use]
    pub const fn keep_as_sent(self) -> Self {
        Self { keep: true, as_sent: true, ..self }
    }

    /// Store what was received, and not what it is combined with.
    #[must_use]
    pub const fn store_before(self) -> Self {
        Self { store: true, before: true, ..self }
    }

    /// Send the value to this rank.
    #[must_use]
    pub const fn to(self, to: Rank) -> Self {
        Self { to: Some(to), ..self }
    }

    /// Whether the step makes something of something: that is, whether it receives or uses what the
    /// rank has, and sends, keeps or stores it; and stores it as sent only if it stores.
    #[must_use]
    pub const fn is_well_formed(&self) -> bool {
        self.n_parts > 0
            && (self.from.is_some() || self.own)
            && (self.to.is_some() || self.store || self.keep)
            && (!self.as_sent || self.store || self.keep && (self.to.is_some() || self.reduces()))
            && (!self.local || self.reduces() || self.own && !self.keep)
            && (!self.before || self.store && self.reduces() && self.to.is_some() && !self.keep)
            && !(self.before && self.as_sent)
            && (!(self.front || self.is_of_rows())
                || !self.local && self.own != self.keep && !self.reduces())
            && !(self.front && self.is_of_rows())
    }

    /// Whether it concerns an end of each row of what is held.
    #[must_use]
    pub const fn is_of_rows(&self) -> bool {
        matches!(self.rows, Some(SourceRows { held: 1.., .. }))
    }

    /// The part at this place of its run, of a call whose array is so many parts.
    #[must_use]
    pub fn part_at(&self, call: ProgramSpec, n_parts: usize, place: usize) -> Part {
        match self.rows {
            Some(rows) => rows.part_at(call, self.part, place),
            None => Part::new((self.part.index() + place) % n_parts),
        }
    }

    /// Where its parts are among `n_held`: all that are held, if it uses them, or once it has kept
    /// them. `None` if they are not there.
    #[must_use]
    pub fn places(&self, n_held: usize) -> Option<Placement> {
        let n_parts = usize::from(self.n_parts);
        let places = match self.rows {
            Some(SourceRows { len, held: row @ 1.., .. }) => {
                Placement::of_rows(n_parts, len.into(), row.into())?
            }
            _ if self.front => Placement::first(n_parts),
            _ => Placement::last(n_parts, n_held)?,
        };
        (places.end() <= n_held).then_some(places)
    }

    /// Whether the rank's own values become the holding, and nothing else is made of them.
    #[must_use]
    pub const fn takes(&self) -> bool {
        self.from.is_none() && self.keep && !self.store && self.to.is_none()
    }

    /// Whether it uses what is held, if something is.
    #[must_use]
    pub const fn uses_held(&self) -> bool {
        self.own && !self.local && !self.takes()
    }

    /// Whether it combines what it receives with what the rank has.
    #[must_use]
    pub const fn reduces(&self) -> bool {
        self.from.is_some() && self.own
    }

    /// Whether the value that is stored is what a receiver decodes.
    #[must_use]
    pub const fn stores_as_sent(&self) -> bool {
        self.store && !self.before && (self.as_sent || self.to.is_some())
    }
}
