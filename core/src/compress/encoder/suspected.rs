//! Search for a fill value that sets the range of the bound, while an array is encoded or before.

use super::Encoder;
#[cfg(doc)]
use crate::bound::ValueRange;
use crate::compress::CompressError;

impl Encoder {
    /// Returns a value that sets the range of a relative bound and seems to be a fill value, if
    /// there is one among the values so far and the layout names none
    /// ([`ValueRange::suspected_fill`]).
    #[must_use]
    pub fn suspected_fill(&self) -> Option<f64> {
        self.search.as_ref()?.found()
    }

    /// Searches the next values for a suspected fill value, if the plan refuses one. A program that
    /// reads its array twice passes all of it, in any pieces, and then calls
    /// [`check_fill`](Self::check_fill) before it writes anything. Otherwise
    /// [`finish`](Self::finish) reports a fill value.
    ///
    /// # Panics
    /// As [`encode_bytes`](Self::encode_bytes).
    pub fn search_fill(&mut self, values: &[u8]) {
        if self.refuses_fill {
            self.is_searched = true;
            self.add_to_search(values);
        }
    }

    /// Fails if the plan refuses a fill value that was found.
    ///
    /// # Errors
    /// [`CompressError::SuspectedFill`].
    pub fn check_fill(&self) -> Result<(), CompressError> {
        match self.suspected_fill() {
            Some(value) if self.refuses_fill => Err(CompressError::SuspectedFill { value }),
            _ => Ok(()),
        }
    }

    pub(super) fn add_to_search(&mut self, values: &[u8]) {
        if let Some(search) = &mut self.search {
            search.add_bytes(self.settings.dtype, values);
        }
    }
}
