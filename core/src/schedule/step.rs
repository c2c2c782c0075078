//! One step of one rank, as flags.
//!
//! A step is a set of flags, and not one of a list of actions. Thirteen combinations of flags have
//! names, but [`Rules::primitives`](crate::primitive::Rules::primitives) translates every
//! well-formed combination. So a schedule that needs a combination without a name needs no new code
//! in the engine.

use super::{Part, ProgramSpec};
use crate::bundle::Placement;
use crate::transport::Rank;

/// One step of one rank.
///
/// A step makes one value of one part. The value is what the rank receives (`from`), the rank's own
/// operand (`own`), or the two combined. The flags say whether the value is then stored, kept or
/// sent.
///
/// A step has at most one peer to receive from and one to send to. A rank that sends to several
/// peers has a step for each peer. So a step receives at most one frame and sends at most one.
///
/// *The rank's own operand* is the lane's *holding*, if an earlier step of the lane kept one.
/// Otherwise it is the rank's local part: its input. A lane has at most one holding. While a lane
/// has a holding, a step that uses the own operand must concern the held part. There are two
/// exceptions: a step marked `local` uses the local part whatever is held, and so does a `take`. A
/// step uses up the holding unless it keeps the value again.
///
/// *Runs.* A step may concern a run of parts with consecutive numbers. Numbers wrap around: part 0
/// follows the array's last part. The step's message then carries a segment of each part, and the
/// holding is a run too. Runs save time because a short message costs about the same whatever is in
/// it.
///
/// - A step that uses the holding concerns its last parts. They are used up, or replaced by the
///   value if the step keeps it. The other held parts stay.
/// - A step that keeps a value without using the holding appends it. The new parts must follow the
///   last held part.
/// - A step *at the front* concerns the first held parts instead, and puts the value that it keeps
///   before the holding. Every held part must then combine the same number of ranks' values.
/// - Parts in [`SourceRows`] follow each other in the order of the rows. If the holding lies in
///   rows too, a step concerns the last parts of each row, or appends its parts to each row.
///
/// Steps concern the last held parts by default because most schedules use these. A scatter sends
/// the parts of the largest subtree first, which are the last parts, and a gather receives them
/// last. A circulant graph sends the last parts, and adds to the last parts. Recursive halving also
/// uses the front.
///
/// A step that receives and sends takes its incoming frame first, and only then waits for credit to
/// send.
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
    /// The part that the step concerns, or the first part of a run.
    pub part: Part,
    /// Number of parts in the run, at most [`ProgramSpec::max_run`].
    pub n_parts: u16,
    /// Arrangement of the parts if they form several rows of the matrix of an all-to-all.
    pub rows: Option<SourceRows>,
    /// Rank to receive from.
    pub from: Option<Rank>,
    /// Use the rank's own operand. Set in every step that receives nothing.
    pub own: bool,
    /// Use the local part as own operand even if there is a holding. If the step receives, the
    /// combined value may be kept.
    pub local: bool,
    /// Concern the front of the holding: send or store its first parts and nothing else, or keep
    /// the received parts before it.
    pub front: bool,
    /// Make the value the holding. If the value is the local part itself and is also sent or
    /// stored, nothing is held: the flag then says that a later step uses the local part again.
    pub keep: bool,
    /// Put the value into the output. If the value is also sent, the output is what the receiver
    /// decodes.
    pub store: bool,
    /// Store the received value before the rank's own operand is combined with it. The step then
    /// stores the received value and sends the combined one.
    pub before: bool,
    /// Another rank received this same value over the wire. Store what that rank decodes, although
    /// nothing is sent here, so that all ranks store the same bits. With `keep`: the value is
    /// complete and only moves from now on, so keep it as it is sent.
    pub as_sent: bool,
    /// Rank to send to.
    pub to: Option<Rank>,
}

/// Arrangement of the parts of an all-to-all's run that come from several sources: one row per
/// source.
///
/// A row holds a source's parts for `len` consecutive ranks in a ring. The first of these ranks is
/// the destination of the run's first part. The next row holds another source's parts for the same
/// ranks. The last row may be shorter.
///
/// A holding may lie in such rows too. Its first row then lacks its first part, because a rank need
/// not hold its part for itself. A step on such a holding concerns the last parts of each row, or
/// extends each row by its parts.
///
/// An all-to-all that passes through other ranks needs rows ([`Bruck`](super::Bruck),
/// [`TwoLevels`](super::TwoLevels)). These ranks hold parts of several sources, and send some parts
/// of every source. Such parts neither follow each other nor are at an end of the holding. Only
/// [`Step::part_at`] and [`Step::places`] interpret rows. Layouts, lanes and the checker use
/// these two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceRows {
    /// Number of parts in a row, at least 1.
    pub len: u16,
    /// Distance in ranks from a row's source back to the source of the next row, less than the
    /// size.
    pub back: u32,
    /// Number of ranks in the ring of destinations. Rings start at the multiples of this number.
    pub ring: u32,
    /// Length of the rows of the holding, this step's parts included. 0 if the run is at one end of
    /// the holding, like a run without rows.
    pub held: u16,
}

impl SourceRows {
    /// The part at index `place` of the run.
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
    /// A step on the rank's own operand.
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

    /// The same step for a run of `n_parts` parts.
    ///
    /// # Panics
    /// If `n_parts` does not fit 16 bits.
    #[must_use]
    pub const fn run(self, n_parts: usize) -> Self {
        assert!(n_parts <= u16::MAX as usize);
        Self { n_parts: n_parts as u16, ..self }
    }

    /// The same step for parts that lie in rows.
    #[must_use]
    pub const fn in_rows(self, rows: SourceRows) -> Self {
        Self { rows: Some(rows), ..self }
    }

    /// A step on the value that the rank receives from `from`.
    #[must_use]
    pub const fn receive(part: Part, from: Rank) -> Self {
        Self { from: Some(from), own: false, ..Self::own(part) }
    }

    /// The same step, with the rank's own operand combined with the received value.
    #[must_use]
    pub const fn reduce(self) -> Self {
        Self { own: true, ..self }
    }

    /// The same step, with the local part combined with the received value, whatever other parts
    /// are held.
    #[must_use]
    pub const fn reduce_local(self) -> Self {
        Self { own: true, local: true, ..self }
    }

    /// The same step at the front: it uses the first held parts instead of the last, or keeps the
    /// received parts before the holding.
    #[must_use]
    pub const fn at_front(self) -> Self {
        Self { front: true, ..self }
    }

    /// The same step, which keeps the value.
    #[must_use]
    pub const fn keep(self) -> Self {
        Self { keep: true, ..self }
    }

    /// The same step, which stores the value.
    #[must_use]
    pub const fn store(self) -> Self {
        Self { store: true, ..self }
    }

    /// The same step, which stores the value as decoded by a rank that received it.
    #[must_use]
    pub const fn store_as_sent(self) -> Self {
        Self { store: true, as_sent: true, ..self }
    }

    /// The same step, which keeps the complete value as it is sent.
    #[must_use]
    pub const fn keep_as_sent(self) -> Self {
        Self { keep: true, as_sent: true, ..self }
    }

    /// The same step, which stores the received value and not the combined one.
    #[must_use]
    pub const fn store_before(self) -> Self {
        Self { store: true, before: true, ..self }
    }

    /// The same step, which sends the value to `to`.
    #[must_use]
    pub const fn to(self, to: Rank) -> Self {
        Self { to: Some(to), ..self }
    }

    /// Returns whether the flags fit together. Among other things the step must receive or use the
    /// own operand, and must send, keep or store the value. `as_sent` needs a value that is stored,
    /// or kept and also sent or reduced.
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

    /// Returns whether the step concerns an end of each row of the holding.
    #[must_use]
    pub const fn is_of_rows(&self) -> bool {
        matches!(self.rows, Some(SourceRows { held: 1.., .. }))
    }

    /// The part at index `place` of the run, in a call whose array has `n_parts` parts.
    #[must_use]
    pub fn part_at(&self, call: ProgramSpec, n_parts: usize, place: usize) -> Part {
        match self.rows {
            Some(rows) => rows.part_at(call, self.part, place),
            None => Part::new((self.part.index() + place) % n_parts),
        }
    }

    /// Places of the step's parts in a holding of `n_held` parts: the holding before the step if
    /// the step uses it, or after the step if it keeps its parts. `None` if the holding has no such
    /// places.
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

    /// Returns whether the local part becomes the holding and is not used otherwise.
    #[must_use]
    pub const fn takes(&self) -> bool {
        self.from.is_none() && self.keep && !self.store && self.to.is_none()
    }

    /// Returns whether the step uses the holding, if there is one.
    #[must_use]
    pub const fn uses_held(&self) -> bool {
        self.own && !self.local && !self.takes()
    }

    /// Returns whether the step combines the received value with the rank's own operand.
    #[must_use]
    pub const fn reduces(&self) -> bool {
        self.from.is_some() && self.own
    }

    /// Returns whether the stored value is the one that a receiver decodes.
    #[must_use]
    pub const fn stores_as_sent(&self) -> bool {
        self.store && !self.before && (self.as_sent || self.to.is_some())
    }
}
