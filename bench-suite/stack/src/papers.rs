//! Published results of image stacking, for comparison with measurements.
//!
//! The papers used other machines, networks, images and baselines, so their figures cannot be
//! reproduced here. docs/codecs.md compares them.

use foldwire_workbench::table::{self, Align, Table};
use serde::Serialize;

/// One paper's figures.
#[derive(Debug, Serialize)]
pub(super) struct Paper {
    system: &'static str,
    source: &'static str,
    /// Baseline of the speed-up.
    over: &'static str,
    /// Speed-ups with one thread and with several threads, if both are given.
    speedup: f64,
    speedup_mt: Option<f64>,
    psnr_db: f64,
    nrmse: Option<f64>,
}

/// The papers that report image stacking.
pub(super) const ALL: [Paper; 3] = [
    Paper {
        system: "ZCCL",
        source: "IEEE 2025, table VII",
        over: "MPI",
        speedup: 1.61,
        speedup_mt: Some(2.96),
        psnr_db: 49.1,
        nrmse: Some(3.5e-3),
    },
    Paper {
        system: "hZCCL",
        source: "SC'24, table VII",
        over: "MPI",
        speedup: 1.81,
        speedup_mt: Some(5.02),
        psnr_db: 62.0,
        nrmse: Some(8.0e-4),
    },
    Paper {
        system: "gZCCL",
        source: "ICS'24, section 5.5",
        over: "NCCL",
        speedup: 1.69,
        speedup_mt: None,
        psnr_db: 57.80,
        nrmse: None,
    },
];

/// Renders the papers as a table.
pub(super) fn render() -> String {
    let mut table = Table::new(&[
        ("paper", "", Align::Left),
        ("speed-up", "one thread", Align::Right),
        ("speed-up", "several", Align::Right),
        ("over", "", Align::Left),
        ("PSNR", "dB", Align::Right),
        ("NRMSE", "", Align::Right),
        ("source", "", Align::Left),
    ]);
    let absent = || "-".to_owned();
    for paper in &ALL {
        table.row(&[
            paper.system.to_owned(),
            format!("{:.2}", paper.speedup),
            paper.speedup_mt.map_or_else(absent, |x| format!("{x:.2}")),
            paper.over.to_owned(),
            format!("{:.1}", paper.psnr_db),
            paper.nrmse.map_or_else(absent, table::scientific),
            paper.source.to_owned(),
        ]);
    }
    format!("{}Their own images, machines and networks.\n", table.render())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// PSNR is NRMSE in decibels, so this finds figures that were copied wrongly.
    #[test]
    fn figures_agree_with_each_other() {
        for paper in &ALL {
            let psnr = paper.nrmse.map_or(paper.psnr_db, |nrmse| -20.0 * nrmse.log10());
            assert!((psnr - paper.psnr_db).abs() < 0.1, "{paper:?}");
        }
        let text = render();
        assert!(text.contains("hZCCL") && text.contains("5.02") && text.contains("8.00e-4"));
    }
}
