//! The program and the machine.

use std::fs;
use std::thread;

use foldwire_workbench::table;

use super::section::{ReportCell, ReportSection};

pub(super) fn section() -> ReportSection {
    let built = |is_in, name| match is_in {
        true => ReportCell::from(true),
        false => ReportCell::new(
            format!("no; build with `cargo build --release --features {name}`"),
            false,
        ),
    };
    let cores = thread::available_parallelism().ok();
    ReportSection::new("machine", "This program and machine")
        .property("version", env!("CARGO_PKG_VERSION"))
        .property("applications", built(cfg!(feature = "applications"), "applications"))
        .property("plots", built(cfg!(feature = "plots"), "plots"))
        .property("system", format!("{} on {}", std::env::consts::OS, std::env::consts::ARCH))
        .property(
            "processor",
            field("/proc/cpuinfo", "model name").map_or_else(ReportCell::unknown, ReportCell::from),
        )
        .property("cores", cores.map_or_else(ReportCell::unknown, |cores| cores.get().into()))
        .property(
            "memory",
            memory().map_or_else(ReportCell::unknown, |n| ReportCell::new(table::bytes(n), n)),
        )
}

/// Total memory in bytes.
fn memory() -> Option<u64> {
    let text = field("/proc/meminfo", "MemTotal")?;
    let n_kib: u64 = text.strip_suffix("kB")?.trim().parse().ok()?;
    n_kib.checked_mul(1024)
}

/// First value of a field in a file of `name : value` lines. `None` if the file or the field does
/// not exist.
fn field(path: &str, name: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let mut fields = text.lines().filter_map(|line| line.split_once(':'));
    let (_, value) = fields.find(|(found, _)| found.trim() == name)?;
    Some(value.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(target_os = "linux")]
    #[test]
    fn linux_tells_memory_and_what_is_not_there_is_unknown() {
        assert!(memory().unwrap() > 1 << 20);
        assert_eq!(field("/proc/meminfo", "no such field"), None);
        assert_eq!(field("/no/such/file", "MemTotal"), None);
    }
}
