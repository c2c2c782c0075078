//! `foldwire choose`: compares the choice of an automatic plan with every plan that it could have
//! chosen.
//!
//! For each link, collective and size, the automatic plan and all fixed plans alternate. Their
//! order matters: the first plan of a round finds all ranks awake, and a plan after a compute-heavy
//! codec finds cold caches. So the order changes. With n plans, round r begins with plan r mod n,
//! and continues with every s-th plan. The step s is 1 in the first n rounds, then 2, and so on to
//! n − 1. There are n = 5 plans. As 5 is prime, each round runs every plan once, and each plan
//! comes after each other plan equally often.
//!
//! If a result exceeds half the tolerance, up to three more sets of rounds follow, and all rounds
//! count. On a shared machine, disturbances are more frequent than wrong choices.

use std::time::{Duration, Instant};

use anyhow::bail;
use foldwire::codec::CodecId;
use foldwire::select::{ChoiceReason, Speeds};
use foldwire::{Collective, Communicator, Config, Plan, Transport};
use foldwire_arguments::sizes::Size;
use foldwire_arguments::values::LinkRate;
use foldwire_arguments::{BackendArg, ChooseArgs};
use foldwire_fields::usage::usage;
use foldwire_workbench::data::{Data, FieldSource};
use foldwire_workbench::table::Columns;
use foldwire_workbench::{ranks, room, streams};
use serde::Serialize;

use super::benchmark::{counts, medians, rounds};
use super::config_from_env;
use super::implementation::PlanImplementation;
use super::problem::Problem;
use super::runner::{Runner, barrier};
use crate::job::{self, Job, Library, Measurement};
use crate::tune;

/// Number of calls after which an automatic plan has finished its trial calls.
const FIRST_CALLS: usize = 12;
/// Largest number of sets of rounds. Sets are repeated while the result is unclear.
const MOST_SETS: usize = 4;
/// Fraction of raw's time by which a choice may be slower than raw.
const TOLERANCE_OF_RAW: f64 = 0.05;

/// Time for which ranks keep their cores busy before each call.
const SPIN_TIME: Duration = Duration::from_micros(300);

/// Results of a collective at one size over one link.
#[derive(Debug, Clone, Serialize)]
pub(super) struct ChoiceRow {
    collective: &'static str,
    /// Bytes per second. The threads backend limits its links to this rate. Other backends only
    /// tell it to the automatic plan. `None` for the backend's own or measured rate.
    link_rate: Option<f64>,
    /// The link rate that the automatic plan assumed.
    taken_rate: Option<f64>,
    n_bytes: usize,
    /// Codec and schedule that the automatic plan chose.
    codec: &'static str,
    schedule: &'static str,
    /// True if the automatic plan sampled the data to estimate the ratio.
    is_sampled: bool,
    rounds: usize,
    /// Seconds that the model expected for each codec that it considered.
    expected_s: Vec<(&'static str, f64)>,
    #[serde(flatten)]
    measured: ChoiceTimes,
}

impl ChoiceRow {
    /// Returns the link as the user named it, or else the rate that the automatic plan assumed.
    fn link(&self, named: Option<&LinkRate>) -> String {
        match (named, self.taken_rate) {
            (Some(link), _) if self.link_rate.is_some() => link.to_string(),
            (_, Some(rate)) if rate.is_finite() => format!("{:.2} GB/s", rate / 1e9),
            _ => "none".to_owned(),
        }
    }
}

/// Times of the automatic plan and of the fixed plans.
#[derive(Debug, Clone, Default, Serialize)]
struct ChoiceTimes {
    /// Median seconds of the automatic plan.
    time_s: f64,
    /// Median seconds of each fixed plan, with its codec.
    fixed_s: Vec<(&'static str, f64)>,
    /// Codec of the fastest fixed plan.
    best: &'static str,
    /// The automatic plan's time / time of the fastest fixed plan.
    times_best: f64,
    /// The automatic plan's time / time of the raw plan.
    times_raw: f64,
}

impl ChoiceTimes {
    /// Returns whether the automatic plan is within half of each tolerance, so that no more rounds
    /// are needed.
    fn is_clear(&self, tolerance: f64) -> bool {
        self.times_best <= 1.0 + tolerance / 2.0 && self.times_raw <= 1.0 + TOLERANCE_OF_RAW / 2.0
    }
}

/// The fixed plans, then the automatic plan, and the times of each in every round.
struct PlanComparison {
    implementations: Vec<PlanImplementation>,
    times: Vec<Vec<f64>>,
    /// Last report of the automatic plan.
    report: foldwire::Report,
}

impl PlanComparison {
    /// Runs `n_rounds` more rounds.
    fn run_rounds<X: Transport>(
        &mut self,
        runner: &mut Runner<'_, Communicator<X>, f32>,
        n_rounds: usize,
    ) -> anyhow::Result<()> {
        let n = self.implementations.len();
        for round in (self.times[0].len()..).take(n_rounds) {
            let step = 1 + round / n % (n - 1);
            for at in (0..n).map(|turn| (round + turn * step) % n) {
                spin();
                let (time, completed) = runner.run(&mut self.implementations[at])?;
                self.times[at].push(time);
                if at + 1 == n {
                    self.report = completed.report.unwrap_or(self.report);
                }
            }
        }
        Ok(())
    }

    /// Returns the medians over rounds of the slowest rank's time; the same on every rank.
    fn compare<X: Transport>(&self, comm: &mut Communicator<X>) -> anyhow::Result<ChoiceTimes> {
        let mut medians = medians(comm, &self.times)?;
        let time_s = medians.pop().unwrap_or_default();
        let names =
            self.implementations.iter().map(|implementation| implementation.plan.codec.name());
        let fixed_s: Vec<_> = names.zip(medians).collect();
        let fastest = fixed_s.iter().copied().min_by(|a, b| a.1.total_cmp(&b.1));
        let (best, best_s) = fastest.unwrap_or_default();
        // The first codec is raw.
        let raw_s = fixed_s.first().map_or(time_s, |&(_, time)| time);
        let [times_best, times_raw] = [best_s, raw_s].map(|other| time_s / other.max(1e-9));
        Ok(ChoiceTimes { time_s, fixed_s, best, times_best, times_raw })
    }
}

/// Default number of ranks of the threads backend.
const DEFAULT_RANKS: usize = 4;

/// Runs the subcommand, or this process's rank of it. Results go to rank 0's stdout, everything
/// else to stderr.
///
/// # Errors
/// Usage errors, calls that fail, and output that cannot be written.
pub fn run(args: &ChooseArgs) -> anyhow::Result<()> {
    if args.network.backend != BackendArg::Threads {
        let network = &args.network;
        let job = Job { network, default_ranks: 0, link_rate: None, frame_bytes: None };
        return job::run(job, |size, n_here| {
            ChooseTask::new(args, size, n_here, Speeds::default())
        });
    }
    let size = args.network.ranks.unwrap_or(DEFAULT_RANKS);
    let usual = ranks::world(size, None).speeds();
    let task = ChooseTask::new(args, size, size, usual)?;
    let mut rows = Vec::new();
    for link in &task.links {
        let of_link = ChooseTask { links: vec![link.clone()], ..task.clone() };
        rows.extend(job::on_threads(ranks::world(size, link.bytes_per_s()), &of_link)?);
    }
    task.show("threads", &rows)
}

/// The user's request, the same on every rank.
#[derive(Clone)]
pub(super) struct ChooseTask<'a> {
    args: &'a ChooseArgs,
    links: Vec<LinkRate>,
    counts: Vec<usize>,
    size: usize,
    config: Config,
    data: Data<f32>,
}

impl<'a> ChooseTask<'a> {
    /// Takes the request from the arguments. This process runs `n_own` of the `size` ranks. Speeds
    /// are the `usual` ones unless the user names a file.
    ///
    /// # Errors
    /// Usage errors.
    pub(super) fn new(
        args: &'a ChooseArgs,
        size: usize,
        n_own: usize,
        usual: Speeds,
    ) -> anyhow::Result<Self> {
        let counts = counts::<f32>(&args.sizes)?;
        let most = counts.iter().copied().max().unwrap_or(0) * size_of::<f32>();
        room::check(2 * (n_own * most) as u128).map_err(|error| {
            usage!("arrays of {}: {error}; ask for smaller --sizes", Size(most))
        })?;
        let speeds = tune::speeds(args.speeds.as_deref())?.unwrap_or(usual);
        let config = config_from_env()?.with_speeds(speeds);
        let data = FieldSource::open(args.field.as_deref())?.data::<f32>(size);
        let task = Self { args, links: args.links()?, counts, size, config, data };
        if task.n_rows() == 0 {
            let longest = args.longest;
            let fault = format!("every size takes longer than {longest} s on every link");
            bail!(usage!("{fault}: give a larger --longest"));
        }
        Ok(task)
    }

    /// Returns the requested counts whose arrays a link of this rate transfers within `--longest`.
    fn counts_over(&self, link: &LinkRate) -> impl Iterator<Item = usize> {
        let rate = link.bytes_per_s().unwrap_or(f64::INFINITY);
        let is_bearable =
            move |count: &usize| (count * size_of::<f32>()) as f64 / rate <= self.args.longest;
        self.counts.iter().copied().filter(is_bearable)
    }

    fn n_rows(&self) -> usize {
        let n: usize = self.links.iter().map(|link| self.counts_over(link).count()).sum();
        n * self.args.collective.len()
    }
}

impl Measurement for ChooseTask<'_> {
    type Results = Vec<ChoiceRow>;

    fn run_rank<X: Transport + 'static>(
        &self,
        endpoint: X,
        _: &str,
        _: Option<&Library>,
    ) -> anyhow::Result<Vec<ChoiceRow>> {
        let mut comm = Communicator::with_config(endpoint, self.config)?;
        let progress = super::progress(comm.rank().index());
        progress.set_length(self.n_rows() as u64);
        let mut rows = Vec::new();
        for link in &self.links {
            // The automatic plan assumes this rate. Only links between threads are limited to it.
            comm.config_mut().link_rate = link.bytes_per_s();
            for &collective in &self.args.collective {
                for count in self.counts_over(link) {
                    progress.set_message(format!("{} bytes", count * size_of::<f32>()));
                    rows.push(self.measure(&mut comm, link, collective, count)?);
                    progress.inc(1);
                }
            }
        }
        progress.finish_and_clear();
        Ok(rows)
    }

    fn show(&self, backend: &str, rows: &Vec<ChoiceRow>) -> anyhow::Result<()> {
        let Self { args, size, data, .. } = self;
        let about = format!("{size} ranks over {backend}, {}, {}", args.bound, data.about());
        let json = || serde_json::json!({ "about": about, "rows": rows });
        Ok(streams::results(args.json, json, || self.text(&about, rows))?)
    }
}

impl ChooseTask<'_> {
    /// Measures a collective at one size over a link. Every rank returns the same row.
    fn measure<X: Transport>(
        &self,
        comm: &mut Communicator<X>,
        link: &LinkRate,
        collective: Collective,
        count: usize,
    ) -> anyhow::Result<ChoiceRow> {
        let (size, rank) = (comm.size(), comm.rank().index());
        let problem = Problem::sum(collective, count, size, rank);
        let Self { args, data, .. } = self;
        let mut wait = barrier;
        let mut runner = Runner::new(comm, &mut wait, problem, data)?;
        let shape = data.shape();
        let mut implementations: Vec<PlanImplementation> =
            self.plans().map(|plan| PlanImplementation::row(plan).of_shape(shape)).collect();
        // The second pass runs warm. Its duration determines the number of rounds.
        let mut time = 0.0;
        for _ in 0..2 {
            time = 0.0;
            for implementation in &mut implementations {
                time += runner.run(implementation)?.0;
            }
        }
        // Without a known link rate, an automatic plan's first calls are trials.
        if runner.comm.config_mut().link_rate.or(runner.comm.transport().link_rate()).is_none()
            && let Some(auto) = implementations.last_mut()
        {
            for _ in 2..FIRST_CALLS {
                runner.run(auto)?;
            }
        }
        let round_time = runner.largest(time)?;
        let n = rounds(args.repeat, args.min_time, round_time);
        let times = vec![Vec::new(); implementations.len()];
        let mut comparison =
            PlanComparison { implementations, times, report: foldwire::Report::default() };
        let mut measured = ChoiceTimes::default();
        for _ in 0..MOST_SETS {
            comparison.run_rounds(&mut runner, n)?;
            measured = comparison.compare(runner.comm)?;
            if measured.is_clear(args.tolerance) {
                break;
            }
        }
        let PlanComparison { times, report, .. } = comparison;
        let choice = report.plan;
        let weighed = choice.map_or(Vec::new(), |choice| choice.weighed.to_vec());
        let expected = weighed.iter().map(|one| (one.codec.name(), f64::from(one.seconds)));
        Ok(ChoiceRow {
            collective: collective.name(),
            link_rate: link.bytes_per_s(),
            taken_rate: choice.map(|choice| choice.link_rate.into()),
            n_bytes: count * size_of::<f32>(),
            codec: report.codec.name(),
            schedule: report.schedule,
            is_sampled: choice.is_some_and(|choice| choice.reason == ChoiceReason::Sampled),
            rounds: times[0].len(),
            expected_s: expected.filter(|(_, seconds)| seconds.is_finite()).collect(),
            measured,
        })
    }

    /// Returns the fixed plans, then the automatic plan.
    fn plans(&self) -> impl Iterator<Item = Plan> {
        let bound = self.args.bound;
        let fixed = Speeds::codecs().map(move |codec| match codec {
            CodecId::Raw => Plan::raw(),
            codec => Plan::foldwire(bound).with_codec(codec),
        });
        fixed.chain([Plan::auto(bound)])
    }

    fn text(&self, about: &str, rows: &[ChoiceRow]) -> String {
        let Self { args, links, .. } = self;
        let micros = |seconds: f64| format!("{:.1}", seconds * 1e6);
        let is_behind_best = |row: &&ChoiceRow| row.measured.times_best > 1.0 + args.tolerance;
        let is_behind_raw = |row: &&ChoiceRow| row.measured.times_raw > 1.0 + TOLERANCE_OF_RAW;
        let is_off = |row: &&ChoiceRow| is_behind_best(row) || is_behind_raw(row);
        let mut table = Columns::of(rows)
            .text("collective", "", |row| row.collective)
            .text("link", "", |row| {
                row.link(links.iter().find(|link| link.bytes_per_s() == row.link_rate))
            })
            .number("size", "bytes", |row| Size(row.n_bytes))
            .text("chosen", "", |row| {
                format!("{}{}", row.codec, if row.is_sampled { ", sampled" } else { "" })
            })
            .text("by", "", |row| row.schedule)
            .number("expected", "µs", |row| {
                let expected = row.expected_s.iter().find(|(codec, _)| *codec == row.codec);
                expected.map(|&(_, seconds)| micros(seconds)).unwrap_or_default()
            })
            .number("time", "µs", |row| micros(row.measured.time_s));
        for (at, codec) in Speeds::codecs().enumerate() {
            table = table.number(codec.name(), "µs", |row| micros(row.measured.fixed_s[at].1));
        }
        let table = table
            .number("x best", "", |row| format!("{:.2}", row.measured.times_best))
            .number("x raw", "", |row| format!("{:.2}", row.measured.times_raw))
            .text("", "", |row| if is_off(row) { "*" } else { "" });
        let n_behind_best = rows.iter().filter(is_behind_best).count();
        let n_behind_raw = rows.iter().filter(is_behind_raw).count();
        let [percent, percent_of_raw] = [args.tolerance, TOLERANCE_OF_RAW].map(|part| part * 100.0);
        format!(
            "{about}\n{}\nof {} {n_behind_best} take more than {percent:.0} % longer than the \
             best, and {n_behind_raw} more than {percent_of_raw:.0} % longer than raw\n",
            table.render(),
            rows.len(),
        )
    }
}

/// Keeps this rank's core busy, as an application would.
///
/// After a call that mostly waits for its links, the core sleeps, and the next call would start on
/// a sleeping core. For 1 MiB at 1 Gbit/s, a call with the codec `dense` took 1.19 ms after a raw
/// call, and 0.85 ms after other calls.
fn spin() {
    let began = Instant::now();
    while began.elapsed() < SPIN_TIME {
        std::hint::spin_loop();
    }
}
