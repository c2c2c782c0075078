//! Joins ranks by libfabric.

use foldwire_bootstrap::Session;
use foldwire_libfabric::{Endpoint, Settings};

use super::Job;

/// Returns a function that joins the ranks of a bootstrapped group, with settings from the
/// environment and the command line. It returns the endpoint and its name for the results.
///
/// # Errors
/// Fails if the environment holds wrong settings.
pub(super) fn joins(
    job: Job<'_>,
) -> anyhow::Result<impl FnOnce(Session) -> anyhow::Result<(Endpoint, String)> + use<>> {
    let mut settings = Settings::from_env()?;
    if let Some(name) = &job.network.provider {
        settings = settings.provider(name);
    }
    settings.options.frame_bytes = job.frame_bytes.unwrap_or(settings.options.frame_bytes);
    settings.options.link_rate = job.link_rate;
    Ok(move |session: Session| {
        let endpoint = foldwire_libfabric::join(&settings, session)?;
        let name = format!("libfabric ({})", endpoint.net().provider());
        Ok((endpoint, name))
    })
}
