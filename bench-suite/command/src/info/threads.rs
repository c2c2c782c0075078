//! The backend between threads.

use super::section::Section;

pub(super) fn section() -> Section {
    Section::backend("threads").property("seen in", "foldwire stack")
}
