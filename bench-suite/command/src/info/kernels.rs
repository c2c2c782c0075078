//! Section "kernels" of `foldwire info`: the kernel level in use, and the instruction sets that
//! this machine lacks for the other levels.

use foldwire::kernel::Level;
use foldwire_workbench::table::Align;
use serde_json::Value;

use super::section::{ReportCell, ReportSection};

const COLUMNS: &[(&str, Align)] =
    &[("level", Align::Left), ("available", Align::Left), ("why not", Align::Left)];

pub(super) fn section() -> ReportSection {
    let best = Level::best();
    ReportSection::new("kernels", "Kernels of the codec").property("used", best.name()).rows(
        COLUMNS,
        Level::ALL.map(|level| {
            let why_not =
                why_not(level).map_or_else(|| ReportCell::new("", Value::Null), ReportCell::from);
            vec![level.name().into(), level.is_available().into(), why_not]
        }),
    )
}

/// The reason why this machine cannot use the level. `None` if it can.
fn why_not(level: Level) -> Option<String> {
    if level.is_available() {
        return None;
    }
    let missing: Vec<_> =
        needs(level).into_iter().filter(|(_, has)| !has).map(|(name, _)| name).collect();
    Some(if missing.is_empty() {
        format!("it is for x86-64, this is {}", std::env::consts::ARCH)
    } else {
        format!("the processor or the system lacks {}", missing.join(", "))
    })
}

/// Instruction sets of a level, and whether the machine has them.
#[cfg(target_arch = "x86_64")]
fn needs(level: Level) -> Vec<(&'static str, bool)> {
    macro_rules! detect {
        ($($name:tt)*) => {
            vec![$(($name, std::arch::is_x86_feature_detected!($name))),*]
        };
    }
    let mut needs = Vec::new();
    if level >= Level::Avx2 {
        needs.extend(detect!("avx2" "bmi1" "bmi2" "lzcnt" "popcnt"));
    }
    if level >= Level::Avx512 {
        needs.extend(detect!("avx512f" "avx512bw" "avx512dq" "avx512vl" "avx512vbmi"));
    }
    needs
}

#[cfg(not(target_arch = "x86_64"))]
fn needs(_: Level) -> Vec<(&'static str, bool)> {
    Vec::new()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn a_level_is_available_where_nothing_is_missing() {
        for level in Level::ALL {
            assert_eq!(level.is_available(), needs(level).iter().all(|(_, has)| *has), "{level}");
        }
    }
}
