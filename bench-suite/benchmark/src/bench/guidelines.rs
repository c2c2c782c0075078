//! `foldwire guidelines`: checks the performance of collectives against each other. Over MPI it
//! checks the library's own collectives too.
//!
//! An all-reduce should take no longer than a reduce and a broadcast. A gather should take no
//! longer than an all-gather, and a shorter array no longer than a longer one. If a collective
//! takes longer, the choice of schedules is wrong, and users had better call the other collectives.
//!
//! Source: J. L. Träff, W. D. Gropp, R. Thakur, "Self-consistent MPI performance guidelines", IEEE
//! Trans. Parallel Distrib. Syst. 21 (2010).

use anyhow::bail;
use foldwire::{Collective, Communicator, DType, Preset, Transport};
use foldwire_arguments::sizes::Size;
use foldwire_arguments::{BackendArg, GuidelinesArgs, NetworkArgs};
use foldwire_fields::usage::{UsageError, usage};
use foldwire_threads::World;
use foldwire_workbench::data::{Data, FieldSource};
use foldwire_workbench::table::Columns;
use foldwire_workbench::threads::Pools;
use foldwire_workbench::{ranks, room, streams};
use serde::Serialize;

use super::benchmark::{SHORT_S, counts, medians};
use super::implementation::{Implementation, PlanImplementation};
#[cfg(feature = "mpi")]
use super::mpi::LibraryDefault;
use super::problem::Problem;
#[cfg(feature = "mpi")]
use super::row::MPI_DEFAULT;
use super::runner::{Barrier, Runner};
use super::{config_from_env, progress};
use crate::job::{self, Job, Library, Measurement};

/// A collective that should take no longer than other collectives, called one after the other.
type Guideline = (Collective, &'static [Collective]);

/// Guidelines that are checked at each size.
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
        // A scan is an exclusive scan and one addition, whose time is negligible.
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

/// Default number of ranks.
const DEFAULT_RANKS: usize = 4;

/// A guideline at one size.
#[derive(Debug, Serialize)]
pub(super) struct GuidelineRow {
    /// Name of the preset or other implementation.
    preset: &'static str,
    n_bytes: usize,
    /// The collective that should take no longer …
    what: String,
    /// … than these.
    than: String,
    what_s: f64,
    than_s: f64,
    ratio: f64,
    is_violated: bool,
}

impl GuidelineRow {
    fn new(
        (preset, n_bytes): (&'static str, usize),
        (what, what_s): (String, f64),
        (than, than_s): (String, f64),
        tolerance: f64,
    ) -> Self {
        let ratio = what_s / than_s.max(1e-9);
        Self { preset, n_bytes, what, than, what_s, than_s, ratio, is_violated: ratio > tolerance }
    }
}

/// Runs the subcommand, or this process's rank of it. Results go to rank 0's stdout, everything
/// else to stderr.
///
/// # Errors
/// Usage errors, calls that fail, and output that cannot be written.
pub fn run(args: &GuidelinesArgs) -> anyhow::Result<()> {
    let &GuidelinesArgs { backend, ranks, .. } = args;
    if matches!(backend, BackendArg::Libfabric | BackendArg::Tcp) {
        bail!(usage!("guidelines are judged over threads and MPI; write --backend threads or mpi"));
    }
    args.presets().check(DType::F32)?;
    let job = Job {
        network: &NetworkArgs { backend, ranks, ..NetworkArgs::default() },
        default_ranks: DEFAULT_RANKS,
        link_rate: args.link.bytes_per_s(),
        frame_bytes: None,
    };
    job::run(job, |size, n_here| {
        let counts = counts::<f32>(&args.sizes)?;
        check_room(&counts, size, n_here)?;
        if backend == BackendArg::Threads {
            remark_short_frames(args, &counts);
        }
        Ok(Guidelines { args, counts })
    })
}

/// Rejects arrays that do not fit in this machine's memory. `n_here` of `size` ranks run on it.
fn check_room(counts: &[usize], size: usize, n_here: usize) -> Result<(), UsageError> {
    let count = counts.iter().copied().max().unwrap_or(0);
    let longest = |collective| {
        // The root has the longest buffers.
        let [sent, received] = Problem::sum(collective, count, size, 0).buffer_lens();
        sent + received
    };
    let n_values = COLLECTIVES.into_iter().map(longest).max().unwrap_or(0);
    room::check(n_here as u128 * n_values as u128 * size_of::<f32>() as u128).map_err(|error| {
        let longest = Size(count * size_of::<f32>());
        usage!("arrays of {longest}: {error}; ask for smaller --sizes or fewer ranks")
    })
}

/// Says which presets work message by message, if messages do not fit frames.
fn remark_short_frames(args: &GuidelinesArgs, counts: &[usize]) {
    let longest = counts.iter().copied().max().unwrap_or(0);
    let is_cut = |preset: &Preset| {
        let plan = preset.plan(Collective::Broadcast, args.bound);
        let need = ranks::message_bytes(&plan, DType::F32, longest);
        !plan.overlaps() && need.is_none_or(|need| need > World::FRAME_BYTES)
    };
    let presets = args.presets().of(DType::F32);
    let cut: Vec<_> = presets.iter().filter(|p| is_cut(p)).map(|p| p.name()).collect();
    if !cut.is_empty() {
        streams::remark(format_args!(
            "note: {} work message by message, and messages are longer than frames here; their \
             times are not as published",
            cut.join(", ")
        ));
    }
}

/// The user's request.
struct Guidelines<'a> {
    args: &'a GuidelinesArgs,
    counts: Vec<usize>,
}

/// Comparisons, and the number of ranks.
type Comparisons = (usize, Vec<GuidelineRow>);

impl Measurement for Guidelines<'_> {
    type Results = Comparisons;

    fn run_rank<X: Transport + 'static>(
        &self,
        endpoint: X,
        _: &str,
        library: Option<&Library>,
    ) -> anyhow::Result<Comparisons> {
        let data = FieldSource::open(None)?.data::<f32>(endpoint.size());
        let mut comm = Communicator::with_config(endpoint, config_from_env()?)?;
        #[cfg_attr(not(feature = "mpi"), expect(unused_mut, reason = "there is no library"))]
        let mut implementations = presets(self.args)?;
        #[cfg(feature = "mpi")]
        if let Some(library) = library {
            implementations.push(JudgedImplementation {
                name: MPI_DEFAULT,
                make: Box::new(|_| Ok(Box::new(LibraryDefault::new(library)?))),
            });
        }
        let mut wait = job::barrier_of(library);
        let measurement =
            GuidelineMeasurement { counts: &self.counts, data: &data, implementations };
        Ok((comm.size(), measurement.measure(self.args, &mut comm, wait.as_mut())?))
    }

    fn show(&self, backend: &str, (size, rows): &Comparisons) -> anyhow::Result<()> {
        let about = format!("{size} ranks over {backend}");
        let json = || serde_json::json!({ "rows": rows });
        streams::results(self.args.json, json, || text(self.args, &about, rows))?;
        if let Some(note) = self.args.presets().note(DType::F32) {
            streams::remark(format_args!("note: {note}"));
        }
        Ok(())
    }
}

/// Makes the implementation for a collective.
type MakeImplementation<'a, X> =
    dyn FnMut(Collective) -> anyhow::Result<Box<dyn Implementation<Communicator<X>, f32>>> + 'a;

/// A named implementation to check.
struct JudgedImplementation<'a, X: Transport> {
    name: &'static str,
    make: Box<MakeImplementation<'a, X>>,
}

/// Returns the presets that the user requests. Multi-threaded ones compute on two threads.
///
/// # Errors
///
/// The system's error if it cannot start threads.
fn presets<'a, X: Transport>(
    args: &GuidelinesArgs,
) -> anyhow::Result<Vec<JudgedImplementation<'a, X>>> {
    let requested = args.presets().of(DType::F32);
    let (bound, pools) = (args.bound, Pools::new(None, &requested)?);
    let implementation = |preset: Preset| {
        let threads = pools.of(Some(preset));
        let make = move |collective| -> anyhow::Result<Box<dyn Implementation<_, _>>> {
            let row = PlanImplementation::preset(preset, collective, bound);
            Ok(Box::new(row.with(threads, false)))
        };
        JudgedImplementation { name: preset.name(), make: Box::new(make) }
    };
    Ok(requested.into_iter().map(implementation).collect())
}

/// The measurement on one rank.
struct GuidelineMeasurement<'a, X: Transport> {
    counts: &'a [usize],
    data: &'a Data<f32>,
    implementations: Vec<JudgedImplementation<'a, X>>,
}

impl<X: Transport> GuidelineMeasurement<'_, X> {
    /// Times all collectives of all implementations alternately, and checks the medians. Every rank
    /// returns the same rows.
    fn measure(
        mut self,
        args: &GuidelinesArgs,
        comm: &mut Communicator<X>,
        wait: &mut Barrier<'_, Communicator<X>>,
    ) -> anyhow::Result<Vec<GuidelineRow>> {
        let progress = progress(comm.rank().index());
        progress.set_length(self.counts.len() as u64);
        // Indexed by implementation, size and collective.
        let mut medians = vec![Vec::new(); self.implementations.len()];
        for &count in self.counts {
            progress.set_message(format!("{} bytes", count * size_of::<f32>()));
            let of_size = self.measure_size(args.repeat, count, comm, wait)?;
            medians.iter_mut().zip(of_size).for_each(|(medians, new)| medians.push(new));
            progress.inc(1);
        }
        progress.finish_and_clear();
        let judged = self.implementations.iter().zip(&medians);
        let tolerance = 1.0 + args.tolerance;
        let rows = judged.map(|(implementation, medians)| {
            judge(implementation.name, self.counts, medians, tolerance)
        });
        Ok(rows.flatten().collect())
    }

    /// Returns median seconds, by implementation and collective.
    fn measure_size(
        &mut self,
        repeat: usize,
        count: usize,
        comm: &mut Communicator<X>,
        wait: &mut Barrier<'_, Communicator<X>>,
    ) -> anyhow::Result<Vec<Vec<f64>>> {
        let (size, rank) = (comm.size(), comm.rank().index());
        let mut times = vec![vec![Vec::new(); COLLECTIVES.len()]; self.implementations.len()];
        let mut is_short = vec![[false; COLLECTIVES.len()]; self.implementations.len()];
        // The first round warms up.
        for round in 0..=repeat {
            for (nth, collective) in COLLECTIVES.into_iter().enumerate() {
                let problem = Problem::sum(collective, count, size, rank);
                let mut runner = Runner::new(comm, wait, problem, self.data)?;
                for (at, implementation) in self.implementations.iter_mut().enumerate() {
                    let mut call = (implementation.make)(collective)?;
                    if is_short[at][nth] {
                        runner.run(call.as_mut())?;
                    }
                    let (time, _) = runner.run(call.as_mut())?;
                    if round == 0 {
                        is_short[at][nth] = runner.largest(time)? < SHORT_S;
                    } else {
                        times[at][nth].push(time);
                    }
                }
            }
        }
        times.iter().map(|times| medians(comm, times)).collect()
    }
}

/// Checks every guideline, and that no collective takes longer for a shorter array than for a
/// longer one.
fn judge(
    preset: &'static str,
    counts: &[usize],
    medians: &[Vec<f64>],
    tolerance: f64,
) -> Vec<GuidelineRow> {
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
            rows.push(GuidelineRow::new(place, what, (names.join(" + "), sum), tolerance));
        }
        for collective in COLLECTIVES.into_iter().filter(|_| at + 1 < counts.len()) {
            let longer = format!("the same of {}", Size(n_bytes(at + 1)));
            let what = (collective.name().to_owned(), time(at, collective));
            let than = (longer, time(at + 1, collective));
            rows.push(GuidelineRow::new((preset, n_bytes(at)), what, than, tolerance));
        }
    }
    rows
}

fn text(args: &GuidelinesArgs, about: &str, rows: &[GuidelineRow]) -> String {
    let violated: Vec<&GuidelineRow> = rows.iter().filter(|row| row.is_violated).collect();
    let percent = args.tolerance * 100.0;
    let summary = format!(
        "{} of {} comparisons are off by more than {percent:.0} %: \
         {about}, medians of {} rounds\n",
        violated.len(),
        rows.len(),
        args.repeat
    );
    if violated.is_empty() {
        return summary;
    }
    let table = Columns::of(violated)
        .text("of", "", |row| row.preset)
        .number("size", "bytes", |row| Size(row.n_bytes))
        .text("what", "", |row| &row.what)
        .number("time", "µs", |row| format!("{:.1}", row.what_s * 1e6))
        .text("should take no longer than", "", |row| &row.than)
        .number("time", "µs", |row| format!("{:.1}", row.than_s * 1e6))
        .number("ratio", "", |row| format!("{:.2}", row.ratio));
    format!("{summary}\n{}", table.render())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_without_room_are_refused_before_they_are_allocated() {
        assert_eq!(check_room(&[1 << 10, 1 << 20], 4, 4), Ok(()));
        let error = check_room(&[1 << 10, 1 << 45], 4, 4).unwrap_err().to_string();
        assert!(error.starts_with("arrays of 131072G") && error.contains("--sizes"), "{error}");
    }

    #[test]
    fn what_takes_longer_than_its_parts_is_a_violation() {
        // All take 10 µs for the shorter array and 20 for the longer, except the gather.
        let mut medians = vec![vec![10e-6; 9], vec![20e-6; 9]];
        let gather = COLLECTIVES.iter().position(|&c| c == Collective::Gather).unwrap();
        medians[0][gather] = 25e-6;
        let rows = judge("raw", &[1, 2], &medians, 1.1);
        assert_eq!(rows.len(), 2 * GUIDELINES.len() + COLLECTIVES.len());
        let violated: Vec<_> = rows.iter().filter(|row| row.is_violated).collect();
        let found = violated.iter().map(|row| (&*row.what, &*row.than, row.n_bytes));
        let found: Vec<_> = found.collect();
        assert_eq!(found, [("gather", "all-gather", 4), ("gather", "the same of 8", 4)]);
        assert_eq!(violated[0].ratio, 2.5);
    }
}
