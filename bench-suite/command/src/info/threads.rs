//! The threads backend.

use super::section::ReportSection;

pub(super) fn section() -> ReportSection {
    ReportSection::backend("threads").property("seen in", "foldwire stack")
}
