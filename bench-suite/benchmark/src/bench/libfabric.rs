//! Joins ranks by libfabric.

use foldwire_arguments::values::LinkRate;
use foldwire_bootstrap::Session;
use foldwire_libfabric::{Endpoint, Settings};

/// Returns a function that joins the ranks of a bootstrapped group, with settings from the
/// environment and the command line. It returns the endpoint and its name for the results.
///
/// # Errors
/// Fails if the environment holds wrong settings.
pub(crate) fn joins(
    provider: Option<&str>,
    link: Option<&LinkRate>,
    frame: Option<usize>,
) -> anyhow::Result<impl FnOnce(Session) -> anyhow::Result<(Endpoint, String)> + use<>> {
    let mut settings = Settings::from_env()?;
    if let Some(name) = provider {
        settings = settings.provider(name);
    }
    settings.options.frame_bytes = frame.unwrap_or(settings.options.frame_bytes);
    settings.options.link_rate = link.and_then(LinkRate::bytes_per_s);
    Ok(move |session: Session| {
        let endpoint = foldwire_libfabric::join(&settings, session)?;
        let name = format!("libfabric ({})", endpoint.net().provider());
        Ok((endpoint, name))
    })
}
