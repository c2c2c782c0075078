//! Network links of this machine, as reported by Linux.

use std::fs;
use std::path::Path;

use foldwire_workbench::table::{self, Align};

use super::section::{ReportCell, ReportSection};

const COLUMNS: &[(&str, Align)] = &[
    ("interface", Align::Left),
    ("state", Align::Left),
    ("rate", Align::Right),
    ("MTU", Align::Right),
];

pub(super) fn section() -> ReportSection {
    of(Path::new("/sys/class"))
}

fn of(class: &Path) -> ReportSection {
    let section = ReportSection::new("links", "Links");
    let mut rows: Vec<_> =
        names(&class.join("net")).iter().map(|name| ethernet(class, name)).collect();
    for device in names(&class.join("infiniband")) {
        let ports = class.join("infiniband").join(&device).join("ports");
        rows.extend(names(&ports).iter().map(|port| infiniband(&ports, &device, port)));
    }
    if rows.is_empty() {
        return section.property("none", format!("{} does not tell of any", class.display()));
    }
    section.rows(COLUMNS, rows)
}

/// A row for a network interface. Linux reports the rate in Mbit/s, and −1 or an error if there is
/// none.
fn ethernet(class: &Path, name: &str) -> Vec<ReportCell> {
    let folder = class.join("net").join(name);
    let rate = value(&folder, "speed").and_then(|text| text.parse::<f64>().ok());
    let mtu = value(&folder, "mtu").and_then(|text| text.parse::<usize>().ok());
    vec![
        name.into(),
        // Linux's word, unchanged. It is `unknown` for loopback, which is always up.
        value(&folder, "operstate").map_or_else(ReportCell::unknown, ReportCell::from),
        rate.filter(|rate| *rate > 0.0)
            .map_or_else(ReportCell::unknown, |rate| bit_rate(rate * 1e6)),
        mtu.map_or_else(ReportCell::unknown, ReportCell::from),
    ]
}

/// A row for a port of an InfiniBand or Omni-Path adapter. Linux reports the state as `4: ACTIVE`,
/// and the rate as `100 Gb/sec (4X EDR)`.
fn infiniband(ports: &Path, device: &str, port: &str) -> Vec<ReportCell> {
    let folder = ports.join(port);
    let state = value(&folder, "state");
    let state = state.as_deref().map(|text| text.split_once(": ").map_or(text, |(_, state)| state));
    let rate = value(&folder, "rate");
    let rate = rate.as_deref().and_then(|text| text.split_once(" Gb/sec")?.0.parse::<f64>().ok());
    vec![
        format!("{device} port {port}").into(),
        state.map_or_else(ReportCell::unknown, |state| state.to_lowercase().into()),
        rate.map_or_else(ReportCell::unknown, |rate| bit_rate(rate * 1e9)),
        ReportCell::unknown(),
    ]
}

/// Formats bits per second with a decimal prefix; the JSON has the number.
fn bit_rate(bits_per_s: f64) -> ReportCell {
    ReportCell::new(table::rate(bits_per_s).replace("B/s", "bit/s"), bits_per_s)
}

/// Sorted names of a folder's entries. Empty if the folder does not exist.
fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<_> =
        entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    names
}

fn value(folder: &Path, name: &str) -> Option<String> {
    Some(fs::read_to_string(folder.join(name)).ok()?.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn interfaces_and_adapters_are_listed_with_their_rates() {
        let class = tempfile::tempdir().unwrap();
        let put = |path: &str, text: &str| {
            let path = class.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        put("net/eth0/speed", "25000\n");
        put("net/eth0/operstate", "up\n");
        put("net/eth0/mtu", "9000\n");
        put("net/veth1/speed", "-1\n");
        put("infiniband/hfi1_0/ports/1/rate", "100 Gb/sec (4X EDR)\n");
        put("infiniband/hfi1_0/ports/1/state", "4: ACTIVE\n");
        let section = of(class.path());
        assert_eq!(
            section.json()["rows"],
            json!([
                {"interface": "eth0", "state": "up", "rate": 25e9, "MTU": 9000},
                {"interface": "veth1", "state": null, "rate": null, "MTU": null},
                {"interface": "hfi1_0 port 1", "state": "active", "rate": 100e9, "MTU": null},
            ])
        );
        assert!(section.text().contains("25.0 Gbit/s"), "{}", section.text());
    }

    #[test]
    fn a_system_without_such_folders_has_none() {
        assert!(of(Path::new("/no/such/folder")).text().contains("does not tell"));
    }
}
