//! Search for a fill value that sets the range of the bound, while an array is encoded or before.

use super::{Encoder, Settings};
#[cfg(doc)]
use crate::bound::ValueRange;
use crate::compress::CompressError;

impl Encoder {
    /// Returns a value that sets the range of a relative bound and seems to be a fill value, if
    /// there is one among the values so far and the layout names none
    /// ([`ValueRange::suspected_fill`]).
    #[must_use]
    pub const fn suspected_fill(&self) -> Option<f64> {
        self.suspected_fill
    }

    /// Searches values that have not been encoded yet for a suspected fill value, if the plan
    /// refuses one. A program that reads its array twice can so learn of one before it writes
    /// anything; otherwise [`finish`](Self::finish) reports it.
    ///
    /// # Errors
    /// [`CompressError::SuspectedFill`] if the plan refuses the values.
    ///
    /// # Panics
    /// As [`encode_bytes`](Self::encode_bytes).
    pub fn search_fill(&mut self, values: &[u8]) -> Result<(), CompressError> {
        if self.refuses_fill {
            self.note_fill(values);
        }
        self.check_fill()
    }

    /// Searches the next values.
    pub(super) fn note_fill(&mut self, values: &[u8]) {
        if let Some(range) = self.searched {
            let Settings { dtype, params, .. } = self.settings;
            let bound = params.quantum.bound();
            self.suspected_fill = range.suspected_fill_of_bytes(dtype, values, bound);
            self.searched = self.searched.filter(|_| self.suspected_fill.is_none());
        }
    }

    /// Fails if the plan refuses what was found.
    pub(super) fn check_fill(&self) -> Result<(), CompressError> {
        match self.suspected_fill {
            Some(value) if self.refuses_fill => Err(CompressError::SuspectedFill { value }),
            _ => Ok(()),
        }
    }
}
