//! The libfabric backend: its providers, and the missing features of unusable ones.

#[cfg(not(feature = "libfabric"))]
use super::section::ReportSection;

#[cfg(feature = "libfabric")]
pub(super) use built_in::section;

#[cfg(not(feature = "libfabric"))]
pub(super) fn section() -> ReportSection {
    let needs = "libfabric 1.11 or newer with its headers, such as libfabric-dev, and libclang-dev";
    ReportSection::absent_backend("libfabric", needs)
}

#[cfg(feature = "libfabric")]
mod built_in {
    use foldwire_libfabric::{Provider, Settings, Version, providers};

    use crate::info::section::{ReportCell, ReportSection};
    use foldwire_workbench::table::Align;

    const COLUMNS: &[(&str, Align)] = &[
        ("provider", Align::Left),
        ("version", Align::Left),
        ("usable", Align::Left),
        ("network and domain, or why not", Align::Left),
    ];

    pub(in crate::info) fn section() -> ReportSection {
        let library = Version::of_library().to_string();
        let section = ReportSection::backend("libfabric").property("library", library);
        match Settings::from_env() {
            Err(error) => section.property("error", error.to_string()),
            Ok(settings) => section.rows(COLUMNS, providers(&settings).iter().map(row)),
        }
    }

    fn row(provider: &Provider) -> Vec<ReportCell> {
        // `offer.provider` also names the layers over the provider, as in `tcp;ofi_rxm`.
        let detail = match &provider.offer {
            Ok(offer) => format!("{}, {} ({})", offer.fabric, offer.domain, offer.provider),
            Err(missing) => missing.to_string(),
        };
        let version =
            provider.version.map_or_else(ReportCell::unknown, |version| version.to_string().into());
        vec![provider.name.as_str().into(), version, provider.offer.is_ok().into(), detail.into()]
    }
}
