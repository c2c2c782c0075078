//! Figures that papers report. This is the only place that holds them as data.
//!
//! [`COLLECTIVES`] is for `foldwire sim --published`. The rest is tables of codecs.
//!
//! `figures.csv` has a row for each system, data set and metric of a table, and a column for each
//! bound relative to the value range. Speeds are in GB/s of uncompressed values, shares in per
//! cent, PSNR in dB. `RTM 1` and `RTM 2` are hZCCL's Sim. Set. 1 (449x449x235) and 2 (849x849x235).
//! ZCCL has only the latter. Figures of image stacking are in the column 1e-4, and were measured at
//! an absolute bound of 1e-4.
//!
//! | paper | tables |
//! |---|---|
//! | ZCCL, IEEE 2025 | I, II: speed on one thread, on many; III: ratio; IV: NRMSE; VII: stacking |
//! | hZCCL, SC'24 | III: ratio, NRMSE; IV: share of STREAM; V: paths of the add; VI: sums; VII |
//! | gZCCL, ICS'24 | section 5.5: stacking |
//!
//! [`SPEEDS`] are inputs of the model (`foldwire sim --speeds`), which follow from the tables and
//! from assumptions that their files name.

use std::sync::LazyLock;

/// Bounds of the columns.
pub const BOUNDS: [f64; 4] = [1e-1, 1e-2, 1e-3, 1e-4];

/// Codec speeds for the model: the name that the user writes, and a TOML file.
pub const SPEEDS: [(&str, &str); 7] = [
    ("zccl-1-thread", include_str!("speeds/zccl-1-thread.toml")),
    ("zccl-multi-thread", include_str!("speeds/zccl-multi-thread.toml")),
    ("hzccl-18-threads", include_str!("speeds/hzccl-18-threads.toml")),
    ("hzccl-18-threads-half", include_str!("speeds/hzccl-18-threads-half.toml")),
    ("gzccl-a100", include_str!("speeds/gzccl-a100.toml")),
    ("mpc-opt-v100", include_str!("speeds/mpc-opt-v100.toml")),
    ("mpc-opt-v100-sppm", include_str!("speeds/mpc-opt-v100-sppm.toml")),
];

/// Figures of collectives, messages and programs, and how the model predicts each: a TOML file.
pub const COLLECTIVES: &str = include_str!("collectives.toml");

/// A row of a published table.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Figure {
    /// `ZCCL`, `hZCCL` or `gZCCL`.
    pub paper: &'static str,
    /// Number of the table.
    pub table: &'static str,
    /// System or compressor, as the paper writes it.
    pub system: &'static str,
    /// Data set.
    pub set: &'static str,
    /// Name of the measured quantity.
    pub metric: &'static str,
    /// Value at each of [`BOUNDS`].
    pub values: [Option<f64>; 4],
}

static FIGURES: LazyLock<Vec<Figure>> = LazyLock::new(|| {
    let rows = include_str!("figures.csv").lines().skip(1);
    rows.map(|row| figure(row).unwrap_or_else(|| panic!("figures.csv: {row}"))).collect()
});

fn figure(row: &'static str) -> Option<Figure> {
    let cells: Vec<&str> = row.split(',').collect();
    let [paper, table, system, set, metric, ref numbers @ ..] = cells[..] else { return None };
    let mut values = [None; 4];
    if numbers.len() != values.len() {
        return None;
    }
    for (value, cell) in values.iter_mut().zip(numbers).filter(|(_, cell)| !cell.is_empty()) {
        *value = Some(cell.parse().ok()?);
    }
    Some(Figure { paper, table, system, set, metric, values })
}

/// All rows, in the order of the papers' tables.
pub fn figures() -> &'static [Figure] {
    &FIGURES
}

impl Figure {
    /// Returns whether this is a row of this paper's table.
    pub fn is_of(&self, paper: &str, table: &str) -> bool {
        self.paper == paper && self.table == table
    }

    /// The value at a relative bound.
    pub fn at(&self, bound: f64) -> Option<f64> {
        let nth = BOUNDS.iter().position(|&known| (known - bound).abs() <= 1e-9 * known)?;
        self.values[nth]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(paper: &str, table: &str, system: &str, set: &str, metric: &str) -> [f64; 4] {
        let is_it = |row: &&Figure| {
            row.is_of(paper, table) && (row.system, row.set, row.metric) == (system, set, metric)
        };
        let found: Vec<_> = figures().iter().filter(is_it).collect();
        assert_eq!(found.len(), 1, "{paper} {table} {system} {set} {metric}");
        found[0].values.map(|value| value.unwrap_or(f64::NAN))
    }

    #[test]
    fn a_row_has_a_value_for_each_bound() {
        let ratio = find("ZCCL", "III", "fZ-light", "RTM 2", "ratio");
        assert_eq!(ratio, [129.64, 107.06, 81.04, 61.51]);
        let row = figures().iter().find(|row| row.values == ratio.map(Some)).unwrap();
        assert_eq!((row.at(1e-4), row.at(1e-5)), (Some(61.51), None));
        assert!(figure("a,b,c").is_none() && figure("a,b,c,d,e,1,2,3,x").is_none());
        assert!(figure("a,b,c,d,e,1,2,3").is_none());
    }

    /// Papers repeat some figures, so this finds some that were copied wrongly.
    #[test]
    fn figures_agree_with_each_other() {
        for set in ["RTM 2", "NYX", "CESM-ATM", "Hurricane"] {
            let of = |paper, table, metric| find(paper, table, "fZ-light", set, metric);
            assert_eq!(of("hZCCL", "III", "ratio"), of("ZCCL", "III", "ratio"));
            for metric in ["NRMSE", "NRMSE STD"] {
                assert_eq!(of("hZCCL", "III", metric), of("ZCCL", "IV", metric));
            }
        }
        // PSNR is NRMSE in decibels.
        for (paper, table) in [("ZCCL", "VII"), ("hZCCL", "VII")] {
            let of = |metric| find(paper, table, paper, "image stacking", metric)[3];
            assert!((of("PSNR") + 20.0 * of("NRMSE").log10()).abs() < 0.1, "{paper}");
        }
        // Shares of one run are the whole of it.
        let stacking = || figures().iter().filter(|row| row.table == "VII");
        for system in stacking().map(|row| (row.paper, row.system)) {
            let is_share = |row: &&Figure| {
                (row.paper, row.system) == system
                    && !["speed-up", "PSNR", "NRMSE"].contains(&row.metric)
            };
            let shares: Vec<_> =
                stacking().filter(is_share).filter_map(|row| row.at(1e-4)).collect();
            let sum: f64 = shares.iter().sum();
            assert!(shares.is_empty() || (sum - 100.0).abs() < 0.1, "{system:?}: {sum}");
        }
    }

    #[test]
    fn the_models_speeds_are_those_of_the_tables() {
        let encode_decode = |name: &str| {
            let (_, text) = SPEEDS.iter().find(|(known, _)| *known == name).unwrap();
            let value = |key: &str| -> f64 {
                let line = text.lines().find_map(|line| line.strip_prefix(key)).unwrap();
                line.trim_start_matches([' ', '=']).parse().unwrap()
            };
            ["encode", "decode"].map(value)
        };
        let published = |table| {
            ["encode", "decode"].map(|metric| find("ZCCL", table, "fZ-light", "RTM 2", metric)[3])
        };
        assert_eq!(encode_decode("zccl-1-thread"), published("I"));
        assert_eq!(encode_decode("zccl-multi-thread"), published("II"));
        assert_eq!(encode_decode("hzccl-18-threads"), published("II"));
    }
}
