//! Published results of image stacking, for comparison with measurements.
//!
//! The papers used other machines, networks, images and baselines, so their figures cannot be
//! reproduced here. docs/codecs.md compares them.

use foldwire_published::{Figure, figures};
use foldwire_workbench::table::{self, Columns};
use serde::Serialize;

/// Bound of the figures.
const BOUND: f64 = 1e-4;

/// One system's figures. Shares of its time are in per cent.
#[derive(Debug, Serialize)]
pub(super) struct Paper {
    paper: &'static str,
    system: &'static str,
    /// Table or section.
    source: &'static str,
    /// Over MPI, or NCCL for gZCCL.
    speedup: Option<f64>,
    /// Share of the time. hZCCL reports it together with `compute`.
    compress: Option<f64>,
    communicate: Option<f64>,
    compute: Option<f64>,
    other: Option<f64>,
    psnr_db: Option<f64>,
    nrmse: Option<f64>,
}

/// Returns the systems that the papers report image stacking of.
pub(super) fn all() -> Vec<Paper> {
    let rows: Vec<_> = figures().iter().filter(|row| row.set == "image stacking").collect();
    let of_system = |rows: &[&Figure]| {
        let of = |metric: &str| rows.iter().find(|row| row.metric == metric)?.at(BOUND);
        Paper {
            paper: rows[0].paper,
            system: rows[0].system,
            source: rows[0].table,
            speedup: of("speed-up"),
            compress: of("compress").or_else(|| of("compress and compute")),
            communicate: of("communicate"),
            compute: of("compute"),
            other: of("other"),
            psnr_db: of("PSNR"),
            nrmse: of("NRMSE"),
        }
    };
    let is_same = |a: &&Figure, b: &&Figure| (a.paper, a.system) == (b.paper, b.system);
    rows.chunk_by(is_same).map(of_system).collect()
}

/// Renders the papers as a table.
pub(super) fn render() -> String {
    let text = |value: Option<f64>, digits: usize| value.map(|x| format!("{x:.digits$}"));
    let table = Columns::of(all())
        .text("paper", "", |paper| paper.paper)
        .text("system", "", |paper| paper.system)
        .maybe("speed-up", "", |paper| text(paper.speedup, 2))
        .maybe("compress", "%", |paper| text(paper.compress, 1))
        .maybe("communicate", "%", |paper| text(paper.communicate, 1))
        .maybe("compute", "%", |paper| match (paper.compress, paper.compute) {
            (Some(_), None) => Some("with it".to_owned()),
            _ => text(paper.compute, 1),
        })
        .maybe("other", "%", |paper| text(paper.other, 1))
        .maybe("PSNR", "dB", |paper| text(paper.psnr_db, 1))
        .maybe("NRMSE", "", |paper| paper.nrmse.map(table::scientific))
        .text("table", "", |paper| paper.source);
    format!(
        "{}Speed-ups over MPI (gZCCL: NCCL), shares of the time. Their own images, machines and \
         networks, at abs:1e-4.\n",
        table.render()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_system_has_one_row() {
        let text = render();
        let row = |system: &str| text.lines().find(|line| line.contains(system)).unwrap();
        let words = |system| row(system).split_whitespace().collect::<Vec<_>>();
        let expected = ["hZCCL", "hZCCL", "multi-thread", "5.02", "38.6", "60.4", "with", "it"];
        assert_eq!(words("hZCCL multi-thread")[..8], expected);
        let expected = ["0.95", "63.1", "28.4", "8.4", "0.1", "-", "-", "VII"];
        assert_eq!(words("CPRP2P")[2..], expected);
        assert!(row("gZCCL").contains("57.8") && text.contains("8.00e-4"));
        assert_eq!(all().len(), 11);
    }
}
