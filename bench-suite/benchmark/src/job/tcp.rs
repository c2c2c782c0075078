//! Joins ranks by TCP sockets.

use foldwire_bootstrap::Session;
use foldwire_tcp::{Endpoint, Settings};

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
    settings.streams = job.network.streams.unwrap_or(settings.streams);
    settings.encrypt |= job.network.encrypt;
    settings.options.frame_bytes = job.frame_bytes.unwrap_or(settings.options.frame_bytes);
    settings.options.link_rate = job.link_rate;
    Ok(move |mut session: Session| {
        let endpoint = foldwire_tcp::join(&settings, &mut session)?;
        let name = name(&endpoint);
        Ok((endpoint, name))
    })
}

fn name(endpoint: &Endpoint) -> String {
    let n_streams = endpoint.net().n_streams();
    let streams = if n_streams == 1 { "1 stream".into() } else { format!("{n_streams} streams") };
    let how = if endpoint.net().encrypts() { ", encrypted" } else { "" };
    format!("tcp ({streams}{how})")
}
