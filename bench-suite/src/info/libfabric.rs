//! The backend over libfabric: its providers, and what those that cannot be used miss.

use super::section::Section;

pub(super) fn section() -> Section {
    Section::absent_backend(
        "libfabric",
        "libfabric 1.11 or newer with its headers, such as libfabric-dev, and libclang-dev",
    )
}
