//! The plot of speed-up over raw by ranks, one line for each preset.

use foldwire::Preset;
use foldwire_workbench::plot::{Axis, Curves, Legend, colour};
use foldwire_workbench::table;

use super::sweep::{Sweep, SweepRow, SweepSetting};

/// Returns the plot of a sweep. It shows times instead of speed-ups if raw did not take part.
pub(super) fn speedups(setting: &SweepSetting, sweep: &Sweep) -> Curves<'static> {
    let has_raw = sweep.rows.iter().all(|row| row.speedup_raw.is_some());
    let value = |row: &SweepRow| match row.speedup_raw {
        Some(speedup) if has_raw => speedup,
        _ => row.time_s * 1e3,
    };
    // The main presets have the same colours in every plot.
    let is_other = |preset: &&Preset| !Preset::MAIN.contains(preset);
    let others: Vec<Preset> = setting.presets.iter().filter(is_other).copied().collect();
    let lines = setting.presets.iter().map(|&preset| {
        let mut in_order = Preset::MAIN.iter().chain(&others);
        let at = in_order.position(|&known| known == preset).unwrap_or(0);
        let of_preset = sweep.rows.iter().filter(|row| row.preset == preset);
        let points = of_preset.map(|row| (row.ranks as f64, value(row))).collect();
        (preset.title().to_owned(), colour(at), points)
    });
    let first = setting.ranks.iter().copied().min().unwrap_or(1) as f64;
    // An axis needs a range, even for one number of ranks.
    let last = (setting.ranks.iter().copied().max().unwrap_or(1) as f64).max(first * 1.01);
    let top = sweep.rows.iter().map(value).fold(0.0, f64::max) * 1.08;
    let y = if has_raw { "times as fast as raw" } else { "ms" };
    Curves {
        caption: format!(
            "{} of {} over {} links, simulated",
            setting.collective.name(),
            table::bytes(setting.n_bytes as u64),
            setting.link
        ),
        axes: [
            Axis::logarithmic("ranks", first..last, 2.0, |ranks| format!("{ranks:.0}")),
            Axis::linear(y, 0.0..top.max(1e-9)),
        ],
        lines: lines.collect(),
        legend: Legend::UpperLeft,
    }
}
