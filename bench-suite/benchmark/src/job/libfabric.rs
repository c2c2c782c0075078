//! Joins ranks by libfabric.

use foldwire_bootstrap::Session;
use foldwire_libfabric::{Endpoint, Settings};

use super::NetworkOptions;

/// Returns a function that joins the ranks of a bootstrapped group, with settings from the
/// environment and the command line. It returns the endpoint and its name for the results.
///
/// # Errors
/// Fails if the environment holds wrong settings.
pub(super) fn joins(
    options: NetworkOptions<'_>,
) -> anyhow::Result<impl FnOnce(Session) -> anyhow::Result<(Endpoint, String)> + use<>> {
    let mut settings = Settings::from_env()?;
    if let Some(name) = options.provider {
        settings = settings.provider(name);
    }
    settings.options.frame_bytes = options.frame_bytes.unwrap_or(settings.options.frame_bytes);
    settings.options.link_rate = options.link_rate;
    Ok(move |session: Session| {
        let endpoint = foldwire_libfabric::join(&settings, session)?;
        let name = format!("libfabric ({})", endpoint.net().provider());
        Ok((endpoint, name))
    })
}
