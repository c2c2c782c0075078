//! One step of one rank, as flags.

use super::Part;
use crate::transport::Rank;

/// One step of one rank. It makes one value of one part: what it receives (`from`), what the rank
/// has (`own`), or the two combined. The value is then stored, kept, and sent, as the flags say.
///
/// *What the rank has* is its *holding*, if an earlier step of the same lane kept one, and its
/// local part otherwise: its own contribution. A lane has at most one holding, and while it has
/// one, every step concerns that part. What a step holds is used up unless it keeps it again.
///
/// A step that receives and sends takes its frame first, and only then waits for credit to send.
///
/// | name in print | `from` | `own` | `keep` | `store` | `to` |
/// |---|---|---|---|---|---|
/// | send | | yes | if needed again | | yes |
/// | send-store | | yes | | yes | yes |
/// | finish | | yes | | yes | |
/// | hold | yes | | yes | | |
/// | store | yes | | | yes | |
/// | forward | yes | | | | yes |
/// | store-forward | yes | | | yes | yes |
/// | reduce | yes | yes | yes | | |
/// | reduce-send | yes | yes | | | yes |
/// | reduce-store | yes | yes | | yes | |
/// | reduce-store-send | yes | yes | | yes | yes |
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
    /// The part concerned.
    pub part: Part,
    /// Whom to receive from.
    pub from: Option<Rank>,
    /// What the rank has enters. Set wherever nothing is received.
    pub own: bool,
    /// The value becomes the holding. If it is the local part itself, nothing is held: a later step
    /// uses the local part again.
    pub keep: bool,
    /// The value goes into the output: if it is sent, what the receiver decodes.
    pub store: bool,
    /// Some other rank received this very value through the wire: store what that rank decodes,
    /// though nothing is sent here, so that all ranks hold the same bits.
    pub as_sent: bool,
    /// Whom to send to.
    pub to: Option<Rank>,
}

impl Step {
    /// A step on what the rank has.
    #[must_use]
    pub const fn own(part: Part) -> Self {
        let (from, to) = (None, None);
        Self { part, from, own: true, keep: false, store: false, as_sent: false, to }
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

    /// Send the value to this rank.
    #[must_use]
    pub const fn to(self, to: Rank) -> Self {
        Self { to: Some(to), ..self }
    }

    /// Whether the step makes something of something: that is, whether it receives or uses what the
    /// rank has, and sends, keeps or stores it; and stores it as sent only if it stores.
    #[must_use]
    pub const fn is_well_formed(&self) -> bool {
        (self.from.is_some() || self.own)
            && (self.to.is_some() || self.store || self.keep && self.from.is_some())
            && (self.store || !self.as_sent)
    }

    /// Whether it combines what it receives with what the rank has.
    #[must_use]
    pub const fn reduces(&self) -> bool {
        self.from.is_some() && self.own
    }

    /// Whether the value that is stored is what a receiver decodes.
    #[must_use]
    pub const fn stores_as_sent(&self) -> bool {
        self.store && (self.as_sent || self.to.is_some())
    }
}
