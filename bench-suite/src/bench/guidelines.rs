//! `foldwire guidelines`: what one may expect of collectives beside each other, and where it is not
//! so.
//!
//! An all-reduce should take no longer than a reduce and a broadcast, a gather no longer than an
//! all-gather, a shorter array no longer than a longer one: else a user had better call the others,
//! and the choice of schedules is wrong. Source: J. L. Träff, W. D. Gropp, R. Thakur,
//! "Self-consistent MPI performance guidelines", IEEE Trans. Parallel Distrib. Syst. 21 (2010).

use foldwire::{Collective, Preset, Rank};
use indicatif::ProgressBar;
use serde::Serialize;

use super::contest::{counts, slowest};
use super::contestant::OfPlan;
use super::data::{Data, Source};
use super::problem::Problem;
use super::row::median;
use super::stage::{Barrier, Stage, barrier};
use crate::cli::{GuidelinesArgs, OpArg, title};
use crate::progress;
use crate::sizes::Size;
use crate::streams;
use crate::table::{Align, Table};
use crate::values;

/// A collective should take no longer than others, one after the other.
type Guideline = (Collective, &'static [Collective]);

/// What is expected at each size.
const GUIDELINES: [Guideline; 9] = {
    use Collective::{
        AllGather, AllReduce, Broadcast, ExclusiveScan, Gather, Reduce, ReduceScatter, Scan,
        Scatter,
    };
    [
        (AllReduce, &[Reduce, Broadcast]),
        (AllReduce, &[ReduceScatter, AllGather]),
        (Reduce, &[AllReduce]),
        (ReduceScatter, &[AllReduce]),
        (AllGather, &[Gather, Broadcast]),
        (Gather, &[AllGather]),
        (Scatter, &[Broadcast]),
        (Broadcast, &[Scatter, AllGather]),
        // Who has an exclusive scan adds its own value, in no time to speak of.
        (Scan, &[ExclusiveScan]),
    ]
};

/// The collectives that are timed.
const COLLECTIVES: [Collective; 9] = [
    Collective::AllReduce,
    Collective::Reduce,
    Collective::Broadcast,
    Collective::ReduceScatter,
    Collective::AllGather,
    Collective::Gather,
    Collective::Scatter,
    Collective::Scan,
    Collective::ExclusiveScan,
];

/// A guideline at a size.
#[derive(Debug, Serialize)]
struct Row {
    preset: &'static str,
    n_bytes: usize,
    /// What should take no longer …
    what: String,
    /// … than this.
    than: String,
    what_s: f64,
    than_s: f64,
    ratio: f64,
    is_violated: bool,
}

impl Row {
    fn new(
        (preset, n_bytes): (Preset, usize),
        (what, what_s): (String, f64),
        (than, than_s): (String, f64),
        tolerance: f64,
    ) -> Self {
        let ratio = what_s / than_s.max(1e-9);
        let preset = preset.name();
        Self { preset, n_bytes, what, than, what_s, than_s, ratio, is_violated: ratio > tolerance }
    }
}

/// Runs the subcommand: results on stdout, everything else on stderr.
///
/// # Errors
/// Errors of use, calls that fail, and output that cannot be written.
pub fn run(args: &GuidelinesArgs) -> anyhow::Result<()> {
    let counts = counts::<f32>(&args.sizes)?;
    let data = Source::open(None)?.data::<f32>(args.ranks);
    let presets = args.presets();
    let progress = progress::bar("measuring", counts.len() * presets.len());
    let mut rows = Vec::new();
    for &preset in &presets {
        // By size, and by place among the collectives.
        let mut medians: Vec<Vec<f64>> = Vec::new();
        for &count in &counts {
            medians.push(measure(args, preset, count, &data, &progress)?);
        }
        rows.extend(judge(preset, &counts, &medians, 1.0 + args.tolerance));
    }
    progress.finish_and_clear();
    if args.json {
        return Ok(streams::write(&format!("{}\n", serde_json::json!({ "rows": rows })))?);
    }
    Ok(streams::write(&text(args, &rows))?)
}

/// Median seconds of each collective, which take turns.
fn measure(
    args: &GuidelinesArgs,
    preset: Preset,
    count: usize,
    data: &Data<f32>,
    progress: &ProgressBar,
) -> anyhow::Result<Vec<f64>> {
    progress.set_message(format!("{} bytes, {}", count * size_of::<f32>(), title(preset)));
    let world = values::world(args.ranks, args.link.bytes_per_s());
    let ranks = world.run(|mut comm| -> anyhow::Result<Vec<Vec<f64>>> {
        let (size, rank) = (comm.size(), comm.rank().index());
        let mut times = vec![Vec::new(); COLLECTIVES.len()];
        let mut wait: Box<Barrier<'_, _>> = Box::new(barrier);
        // One round warms up.
        for round in 0..=args.repeat {
            for (&collective, times) in COLLECTIVES.iter().zip(&mut times) {
                let (op, root) = (OpArg::Sum, Rank(0));
                let (in_place, is_uneven) = (false, false);
                let problem =
                    Problem { collective, op, root, in_place, is_uneven, count, size, rank };
                let mut stage = Stage::new(&mut comm, wait.as_mut(), problem, data)?;
                let mut contestant = OfPlan::preset(preset, collective, args.bound);
                let (time, _) = stage.run(&mut contestant)?;
                if round > 0 {
                    times.push(time);
                }
            }
        }
        Ok(times)
    });
    let ranks = ranks.into_iter().collect::<anyhow::Result<Vec<_>>>()?;
    progress.inc(1);
    let of = |nth: usize| {
        let times: Vec<Vec<f64>> = ranks.iter().map(|times| times[nth].clone()).collect();
        median(&slowest(&times))
    };
    Ok((0..COLLECTIVES.len()).map(of).collect())
}

/// What came of each guideline, and of the one that a shorter array takes no longer than a longer.
fn judge(preset: Preset, counts: &[usize], medians: &[Vec<f64>], tolerance: f64) -> Vec<Row> {
    let n_bytes = |at: usize| counts[at] * size_of::<f32>();
    let time = |at: usize, of: Collective| {
        let nth = COLLECTIVES.iter().position(|&collective| collective == of);
        nth.map_or(0.0, |nth| medians[at][nth])
    };
    let mut rows = Vec::new();
    for at in 0..counts.len() {
        for (what, than) in GUIDELINES {
            let names: Vec<&str> = than.iter().map(|collective| collective.name()).collect();
            let sum = than.iter().map(|&collective| time(at, collective)).sum();
            let place = (preset, n_bytes(at));
            let what = (what.name().to_owned(), time(at, what));
            rows.push(Row::new(place, what, (names.join(" + "), sum), tolerance));
        }
        for collective in COLLECTIVES.into_iter().filter(|_| at + 1 < counts.len()) {
            let longer = format!("the same of {}", Size(n_bytes(at + 1)));
            let what = (collective.name().to_owned(), time(at, collective));
            let than = (longer, time(at + 1, collective));
            rows.push(Row::new((preset, n_bytes(at)), what, than, tolerance));
        }
    }
    rows
}

fn text(args: &GuidelinesArgs, rows: &[Row]) -> String {
    let mut table = Table::new(&[
        ("preset", "", Align::Left),
        ("size", "bytes", Align::Right),
        ("what", "", Align::Left),
        ("time", "µs", Align::Right),
        ("should take no longer than", "", Align::Left),
        ("time", "µs", Align::Right),
        ("ratio", "", Align::Right),
    ]);
    let violated: Vec<&Row> = rows.iter().filter(|row| row.is_violated).collect();
    for row in &violated {
        table.row(&[
            row.preset.to_owned(),
            Size(row.n_bytes).to_string(),
            row.what.clone(),
            format!("{:.1}", row.what_s * 1e6),
            row.than.clone(),
            format!("{:.1}", row.than_s * 1e6),
            format!("{:.2}", row.ratio),
        ]);
    }
    let percent = args.tolerance * 100.0;
    let summary = format!(
        "{} of {} comparisons are off by more than {percent:.0} %: \
         {} ranks over threads, medians of {} rounds\n",
        violated.len(),
        rows.len(),
        args.ranks,
        args.repeat
    );
    if violated.is_empty() { summary } else { format!("{summary}\n{}", table.render()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_takes_longer_than_its_parts_is_a_violation() {
        // All take 10 µs of the shorter array and 20 of the longer, but for the gather.
        let mut medians = vec![vec![10e-6; 9], vec![20e-6; 9]];
        let gather = COLLECTIVES.iter().position(|&c| c == Collective::Gather).unwrap();
        medians[0][gather] = 25e-6;
        let rows = judge(Preset::Raw, &[1, 2], &medians, 1.1);
        assert_eq!(rows.len(), 2 * GUIDELINES.len() + COLLECTIVES.len());
        let violated: Vec<_> = rows.iter().filter(|row| row.is_violated).collect();
        let said = violated.iter().map(|row| (&*row.what, &*row.than, row.n_bytes));
        let said: Vec<_> = said.collect();
        assert_eq!(said, [("gather", "all-gather", 4), ("gather", "the same of 8", 4)]);
        assert_eq!(violated[0].ratio, 2.5);
    }
}
