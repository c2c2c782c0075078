//! Predictions for people (a header and a table) and for programs (one JSON object).

use std::time::Duration;

use foldwire_arguments::sizes::Size;
use foldwire_workbench::table::{self, Columns};
use serde_json::json;

use super::speeds::{ModelSpeeds, SpeedsInGbps};
use super::sweep::{Sweep, SweepSetting};

/// Returns header and table.
pub(super) fn text(
    setting: &SweepSetting,
    speeds: &ModelSpeeds,
    sweep: &Sweep,
    data: &str,
) -> String {
    let network = &setting.cluster.network;
    let host = &setting.cluster.host;
    let each = |speeds: &SpeedsInGbps| format!("#   {}\n", speeds.text());
    let codecs: String = speeds.in_gbps().iter().map(each).collect();
    let time = |seconds: f64| table::seconds(Duration::from_secs_f64(seconds));
    let ratio = if speeds.has_ratio() {
        "ratio given with the speeds".to_owned()
    } else {
        format!("ratio of {data}")
    };
    let mut text = format!(
        "# foldwire {}, simulated: {} of {}; nothing was sent\n\
         # links of {} each way, latency {}, {} a message at each end{}; checksums: {}; \
         {} a machine on {}\n\
         # speeds of {}, GB/s of values\n{codecs}\
         # bound on each operand: {}; {ratio}\n\
         # {} lanes, frames of {} bytes; {:.1} million events/s\n\n",
        setting.collective.name(),
        table::bytes(setting.n_bytes as u64),
        setting.dtype,
        setting.link,
        time(network.latency),
        time(network.send_overhead),
        network.eager.map_or_else(String::new, |eager| {
            format!(", which above {} waits for an answer", Size(eager as usize))
        }),
        if network.checksums { "yes" } else { "no" },
        count(host.ranks_per_node, "rank"),
        count(host.cores, "core"),
        speeds.about,
        setting.bound,
        setting.lanes,
        setting.frame_bytes,
        sweep.events_per_s / 1e6,
    );
    let table = Columns::of(&sweep.rows)
        .number("ranks", "", |row| row.ranks)
        .text("preset", "", |row| row.preset.name())
        .text("schedule", "", |row| row.schedule)
        .number("time", "ms", |row| format!("{:.3}", row.time_s * 1e3))
        .maybe("speed-up", "x raw", |row| row.speedup_raw.map(|times| format!("{times:.2}")))
        .number("sent", "MB a rank", |row| {
            format!("{:.2}", row.wire_bytes as f64 / row.ranks as f64 / 1e6)
        })
        .number("computing", "%", |row| format!("{:.0}", 100.0 * row.computing))
        .maybe("sending", "%", |row| row.sending.map(|share| format!("{:.0}", 100.0 * share)));
    text += &table.render();
    text
}

fn count(n: usize, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

/// Returns one JSON object.
pub(super) fn json(
    setting: &SweepSetting,
    speeds: &ModelSpeeds,
    sweep: &Sweep,
    data: &str,
) -> serde_json::Value {
    let (network, host) = (&setting.cluster.network, &setting.cluster.host);
    json!({
        "setting": {
            "collective": setting.collective.name(),
            "n_bytes": setting.n_bytes,
            "dtype": setting.dtype.to_string(),
            "link": setting.link,
            "latency_s": network.latency,
            "overhead_s": network.send_overhead,
            // `null` if all messages leave at once.
            "eager_bytes": network.eager,
            "checksums": network.checksums,
            "ranks_per_node": host.ranks_per_node,
            "by_node": setting.by_node,
            "cores": host.cores,
            "lanes": setting.lanes,
            "frame_bytes": setting.frame_bytes,
            "bound": setting.bound.to_string(),
            "data": data,
            "speeds": speeds.about,
        },
        "speeds_gbps": speeds.in_gbps(),
        "events_per_s": sweep.events_per_s,
        "rows": sweep.rows,
    })
}
