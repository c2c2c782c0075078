//! Section "tcp" of `foldwire info`: the address where the backend listens, and the settings of its
//! connections.

use super::section::ReportSection;

#[cfg(not(feature = "tcp"))]
pub(super) fn section() -> ReportSection {
    // A build with this feature needs no library or tool.
    ReportSection::absent_backend("tcp", "nothing else")
}

#[cfg(feature = "tcp")]
pub(super) fn section() -> ReportSection {
    use super::section::ReportCell;
    use foldwire_tcp::Settings;
    use serde_json::Value;

    let section = ReportSection::backend("tcp");
    match Settings::from_env() {
        Err(error) => section.property("error", error.to_string()),
        Ok(settings) => {
            let address = settings.listening();
            let nowhere = || ReportCell::new("nowhere: the interface has no address", Value::Null);
            section
                .property("listens at", address.map_or_else(nowhere, |ip| ip.to_string().into()))
                .property("streams", settings.streams)
                .property("encrypts", settings.encrypt)
                .property("shares memory", settings.shares_memory())
                .property("token", settings.token.is_some())
        }
    }
}
