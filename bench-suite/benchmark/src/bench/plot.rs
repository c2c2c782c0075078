//! The plot of times over sizes: one line for each implementation, both axes logarithmic.

use foldwire_arguments::sizes::Size;
use foldwire_arguments::values::each_once;
use foldwire_workbench::plot::{Axis, Curves, Legend, around, colour};

use super::output::BenchResults;
use super::row::CollectiveRow;

/// Returns the plot of a benchmark's results. It omits arrays of 0 bytes, which a logarithmic axis
/// cannot show.
pub(super) fn times(results: &BenchResults) -> Curves<'static> {
    let head = &results.head;
    let rows = || results.outcome.rows.iter().filter(|row| row.n_bytes > 0);
    let point = |row: &CollectiveRow| (row.n_bytes as f64, row.time_s.max(1e-9) * 1e6);
    // In the order of their runs.
    let contestants = each_once(rows().map(|row| (&row.contestant, &row.title)));
    let lines = contestants.into_iter().enumerate().map(|(at, (contestant, title))| {
        let points = rows().filter(|row| row.contestant == *contestant).map(point);
        (title.clone(), colour(at), points.collect())
    });
    let link = head.link.as_ref().map(|link| format!(", links of {link}")).unwrap_or_default();
    let size = |bytes: f64| Size(bytes.round() as usize).to_string();
    let (sizes, times) = (rows().map(|row| point(row).0), rows().map(|row| point(row).1));
    Curves {
        caption: format!(
            "{} of {}, {} ranks over {}{link}",
            head.collective, head.dtype, head.ranks, head.backend
        ),
        axes: [
            Axis::logarithmic("bytes of the whole array", around(sizes), 4.0, size),
            Axis::logarithmic("µs", around(times), 10.0, |time| time.to_string()),
        ],
        lines: lines.collect(),
        legend: Legend::UpperLeft,
    }
}

#[cfg(test)]
mod tests {
    use super::super::output::tests::results;
    use super::*;
    use foldwire_workbench::plot::PlotFile;

    #[test]
    fn every_contestant_has_a_line_without_its_arrays_of_no_bytes() {
        let mut results = results();
        let plot = times(&results);
        let names: Vec<&str> = plot.lines.iter().map(|(name, ..)| &**name).collect();
        assert_eq!(names, ["raw", "mpi-best"]);
        let folder = tempfile::tempdir().unwrap();
        let draw = |results: &super::super::output::BenchResults, name: &str| {
            let path = folder.path().join(name);
            let file: PlotFile = path.to_str().unwrap().parse().unwrap();
            file.draw(&times(results)).unwrap();
            std::fs::read(path).unwrap()
        };
        let svg = String::from_utf8(draw(&results, "a.svg")).unwrap();
        assert!(svg.contains("mpi-best") && svg.contains("reduce of f32, 2 ranks"), "{svg}");
        results.outcome.rows.iter_mut().for_each(|row| row.n_bytes = 0);
        assert!(!draw(&results, "b.png").is_empty());
    }
}
