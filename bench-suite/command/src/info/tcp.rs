//! The backend over TCP: where this process would listen, and how it would connect.

use super::section::Section;

#[cfg(not(feature = "tcp"))]
pub(super) fn section() -> Section {
    Section::absent_backend("tcp", "nothing else")
}

#[cfg(feature = "tcp")]
pub(super) fn section() -> Section {
    use super::section::Cell;
    use foldwire_tcp::Settings;

    let section = Section::backend("tcp");
    match Settings::from_env() {
        Err(error) => section.property("error", error.to_string()),
        Ok(settings) => {
            let address = settings.listening();
            let nowhere = || Cell::new("nowhere: the interface has no address", None::<String>);
            section
                .property("listens at", address.map_or_else(nowhere, |ip| ip.to_string().into()))
                .property("streams", settings.streams)
                .property("encrypts", settings.encrypt)
                .property("token", settings.token.is_some())
        }
    }
}
