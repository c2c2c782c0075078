//! Joins ranks by TCP sockets.

use foldwire_arguments::values::LinkRate;
use foldwire_bootstrap::Session;
use foldwire_tcp::{Endpoint, Settings};

/// Returns a function that joins the ranks of a bootstrapped group, with settings from the
/// environment and the command line. It returns the endpoint and its name for the results.
///
/// # Errors
/// Fails if the environment holds wrong settings.
pub(crate) fn joins(
    streams: Option<usize>,
    encrypt: bool,
    link: Option<&LinkRate>,
    frame: Option<usize>,
) -> anyhow::Result<impl FnOnce(Session) -> anyhow::Result<(Endpoint, String)> + use<>> {
    let mut settings = Settings::from_env()?;
    settings.streams = streams.unwrap_or(settings.streams);
    settings.encrypt |= encrypt;
    settings.options.frame_bytes = frame.unwrap_or(settings.options.frame_bytes);
    settings.options.link_rate = link.and_then(LinkRate::bytes_per_s);
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
