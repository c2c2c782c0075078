//! `foldwire sim --validate`: predicted against measured time, between threads of this process.
//!
//! Speeds are measured with as many threads busy as ranks can compute at the same time. Two numbers of the threads backend are
//! found from calls of one value, which are no part of the comparison: what a message costs, from all
//! ranks of a world driven by one thread; and what waking up costs, from a call of one value in the very world whose calls are
//! then predicted. No number is fitted to the times that are compared.

use std::thread::available_parallelism;
use std::time::{Duration, Instant};

use anyhow::anyhow;
use foldwire::codec::CodecId;
use foldwire::schedule::RecursiveDoubling;
use foldwire::{Collective, Element, Op, Plan, Preset};
use foldwire_sim::cost::{Case, Cluster, Costs, Host, Network, predict};
use foldwire_threads::{World, drive};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use serde_json::json;

use super::measure::Task;
use crate::bench::alone::Alone;
use crate::bench::data::{Data, Source};
use crate::cli::SimArgs;
use crate::memory::median;
use crate::table::{self, Align, Table};
use crate::values::{BoundArg, LinkRate};

/// Timed runs of each configuration.
const RUNS: usize = 9;
/// Calls of one value in a row.
const SMALL_CALLS: usize = 200;

/// One world and what is run in it.
struct Shape {
    ranks: usize,
    /// As on the command line.
    link: &'static str,
    latency: Duration,
    n_bytes: usize,
    collective: Collective,
    presets: &'static [Preset],
}

const fn us(n: u64) -> Duration {
    Duration::from_micros(n)
}

/// What is compared: ranks from as many as cores to several a core, links from slower than the codec to as fast as
/// memory, with latency and without, and the other collectives.
const SHAPES: [Shape; 12] = {
    use Collective::{AllGather, AllReduce, Broadcast, ReduceScatter};
    use Preset::{Cprp2p, Foldwire, Gzccl, Hzccl, Raw, Zccl};
    const MOST: &[Preset] = &[Raw, Zccl, Hzccl, Foldwire];
    const ENDS: &[Preset] = &[Raw, Foldwire];
    const fn shape(
        (ranks, link, latency): (usize, &'static str, Duration),
        (collective, n_bytes): (Collective, usize),
        presets: &'static [Preset],
    ) -> Shape {
        Shape { ranks, link, latency, n_bytes, collective, presets }
    }
    [
        shape((2, "1gbit", us(0)), (AllReduce, 8 << 20), MOST),
        shape((4, "1gbit", us(50)), (AllReduce, 8 << 20), MOST),
        shape((8, "1gbit", us(0)), (AllReduce, 8 << 20), MOST),
        shape((2, "10gbit", us(20)), (AllReduce, 32 << 20), MOST),
        shape((4, "10gbit", us(0)), (AllReduce, 32 << 20), MOST),
        shape((8, "10gbit", us(20)), (AllReduce, 16 << 20), MOST),
        shape((8, "10gbit", us(0)), (AllReduce, 16 << 20), &[Cprp2p, Gzccl]),
        shape((2, "none", us(0)), (AllReduce, 32 << 20), ENDS),
        shape((8, "none", us(0)), (AllReduce, 16 << 20), ENDS),
        shape((4, "10gbit", us(0)), (ReduceScatter, 32 << 20), ENDS),
        shape((4, "1gbit", us(50)), (AllGather, 16 << 20), ENDS),
        shape((8, "10gbit", us(0)), (Broadcast, 16 << 20), ENDS),
    ]
};

/// A configuration, measured and predicted.
#[derive(Debug, Clone, Serialize)]
struct Row {
    ranks: usize,
    collective: &'static str,
    preset: &'static str,
    n_bytes: usize,
    link: &'static str,
    latency_s: f64,
    /// What waking up costs.
    wake_s: f64,
    /// Median of the runs.
    measured_s: f64,
    /// Fastest and slowest run.
    measured_range_s: [f64; 2],
    predicted_s: f64,
    /// Predicted over measured, less 1.
    error: f64,
}

/// Runs everything and shows it: results on stdout, everything else on stderr.
///
/// # Errors
/// Calls that fail.
pub(super) fn run<T: Element>(args: &SimArgs, source: &Source) -> anyhow::Result<()> {
    let cores = available_parallelism()?.get();
    let message = message_cost()?;
    let n_rows: usize = SHAPES.iter().map(|shape| shape.presets.len()).sum();
    let progress = progress(n_rows);
    let mut rows = Vec::new();
    for shape in &SHAPES {
        let data = source.data::<T>(shape.ranks);
        rows.extend(shape.rows(args.bound, cores, message, &data, &progress)?);
    }
    progress.finish_and_clear();
    let mut errors: Vec<f64> = rows.iter().map(|row| row.error.abs()).collect();
    errors.sort_unstable_by(f64::total_cmp);
    let (middle, largest) = (errors[errors.len() / 2], errors[errors.len() - 1]);
    if args.json {
        let object = json!({
            "cores": cores,
            "bound": args.bound.to_string(),
            "data": source.data::<T>(1).about(),
            "message_s": message,
            "median_error": middle,
            "largest_error": largest,
            "rows": rows,
        });
        println!("{object}");
        return Ok(());
    }
    println!(
        "# predicted and measured: {cores} cores, {}, bound {}, {}",
        T::DTYPE,
        args.bound,
        source.data::<T>(1).about()
    );
    println!(
        "# median of {RUNS} runs of the slowest rank's time; a message costs {:.2} µs\n",
        message * 1e6
    );
    print!("{}", table(&rows));
    println!(
        "\nmedian error {:.1} %, largest {:.1} %, {} configurations",
        100.0 * middle,
        100.0 * largest,
        rows.len()
    );
    Ok(())
}

/// What sending and receiving a small message cost together, in seconds: one thread drives all ranks.
fn message_cost() -> anyhow::Result<f64> {
    const RANKS: usize = 8;
    let mut comms = World::new(RANKS).communicators();
    let mut data = [[0.0_f32; RANKS]; RANKS];
    let plan = Plan::raw().with_schedule(&foldwire::schedule::Ring);
    let mut times = Vec::new();
    for _ in 0..SMALL_CALLS {
        let start = Instant::now();
        let operations = comms
            .iter_mut()
            .zip(&mut data)
            .map(|(comm, data)| comm.start_all_reduce(data, Op::Sum, &plan))
            .collect::<Result<Vec<_>, _>>()?;
        let mut n_messages = 0;
        for report in drive(operations) {
            n_messages += report?.n_messages;
        }
        times.push(start.elapsed() / n_messages as u32);
    }
    Ok(median(&times).as_secs_f64())
}

impl Shape {
    fn world(&self) -> anyhow::Result<World> {
        let mut world = World::new(self.ranks).link_latency(self.latency);
        if let Some(rate) = self.rate()? {
            world = world.link_rate(rate);
        }
        Ok(world)
    }

    fn rate(&self) -> anyhow::Result<Option<f64>> {
        Ok(self.link.parse::<LinkRate>()?.bytes_per_s())
    }

    /// Measures and predicts each preset.
    fn rows<T: Element>(
        &self,
        bound: BoundArg,
        cores: usize,
        message: f64,
        data: &Data<T>,
        progress: &ProgressBar,
    ) -> anyhow::Result<Vec<Row>> {
        let costs = |codec| {
            let task = Task {
                codec,
                bound: bound.into(),
                size: self.ranks,
                reduces: self.collective.reduces(),
                frame_bytes: Case::new(self.collective, Plan::raw(), 1, 0).frame_bytes,
                busy: self.ranks.min(cores),
                array_bytes: self.n_bytes * self.ranks / self.ranks.min(cores),
            };
            task.costs(data)
        };
        let (raw, lossy) = (costs(CodecId::Raw)?, costs(CodecId::FzLight)?);
        let network = Network {
            latency: self.latency.as_secs_f64(),
            rate: self.rate()?,
            send_overhead: message / 2.0,
            recv_overhead: message / 2.0,
            ..Network::default()
        };
        let host = Host { ranks_per_node: self.ranks, cores, ..Host::default() };
        let cluster = self.with_wake(Cluster { network, host })?;
        let row = |&preset: &Preset| {
            let plan = preset.plan(self.collective, bound.into());
            let costs = if plan.codec.is_exact() { &raw } else { &lossy };
            let row = self.row(preset, &plan, bound, &cluster, costs, data);
            progress.inc(1);
            row
        };
        self.presets.iter().map(row).collect()
    }

    fn row<T: Element>(
        &self,
        preset: Preset,
        plan: &Plan,
        bound: BoundArg,
        cluster: &Cluster,
        costs: &Costs,
        data: &Data<T>,
    ) -> anyhow::Result<Row> {
        let count = self.n_bytes / T::BYTES;
        let (collective, size) = (self.collective, self.ranks);
        let alone = Alone { world: self.world()?, collective, preset, bound, count, size };
        let mut times = alone.times(RUNS, data)?;
        times.sort_unstable_by(f64::total_cmp);
        let measured_s = times[RUNS / 2];
        let case = Case::new(collective, *plan, size, count);
        let case = Case { in_place: collective == Collective::Broadcast, ..case };
        let predicted_s = predict::<T>(&case, cluster, costs)?.seconds;
        Ok(Row {
            ranks: size,
            collective: collective.name(),
            preset: preset.name(),
            n_bytes: self.n_bytes,
            link: self.link,
            latency_s: self.latency.as_secs_f64(),
            wake_s: cluster.host.wake,
            measured_s,
            measured_range_s: [times[0], times[RUNS - 1]],
            predicted_s,
            error: predicted_s / measured_s - 1.0,
        })
    }

    /// The cluster with what waking up costs in this world: so much that a call of one value is predicted as it is measured.
    fn with_wake(&self, cluster: Cluster) -> anyhow::Result<Cluster> {
        let plan = Plan::raw().with_schedule(&RecursiveDoubling);
        let times = self.world()?.run(|mut comm| -> Result<Vec<Duration>, foldwire::Error> {
            let mut value = [0.0_f32];
            let mut call = || {
                let start = Instant::now();
                comm.all_reduce(&mut value, Op::Sum, &plan)?;
                Ok(start.elapsed())
            };
            (0..SMALL_CALLS).map(|_| call()).collect()
        });
        let times = times.into_iter().next().ok_or_else(|| anyhow!("a world has a rank"))??;
        let measured = median(&times).as_secs_f64();
        let case = Case::new(Collective::AllReduce, plan, self.ranks, 1);
        let with = |wake| Cluster { host: Host { wake, ..cluster.host }, ..cluster };
        let (mut low, mut high) = (0.0, measured);
        for _ in 0..30 {
            let middle = f64::midpoint(low, high);
            let predicted = predict::<f32>(&case, &with(middle), &Costs::raw::<f32>())?.seconds;
            if predicted < measured { low = middle } else { high = middle }
        }
        Ok(with(low))
    }
}

fn table(rows: &[Row]) -> String {
    let mut table = Table::new(&[
        ("ranks", "", Align::Right),
        ("collective", "", Align::Left),
        ("preset", "", Align::Left),
        ("size", "", Align::Right),
        ("link", "", Align::Right),
        ("latency", "µs", Align::Right),
        ("wake", "µs", Align::Right),
        ("measured", "ms", Align::Right),
        ("(fastest–slowest)", "ms", Align::Right),
        ("predicted", "ms", Align::Right),
        ("error", "%", Align::Right),
    ]);
    for row in rows {
        let ms = |seconds: f64| format!("{:.2}", seconds * 1e3);
        let [fastest, slowest] = row.measured_range_s.map(ms);
        table.row(&[
            row.ranks.to_string(),
            row.collective.to_owned(),
            row.preset.to_owned(),
            table::bytes(row.n_bytes as u64),
            row.link.to_owned(),
            format!("{:.0}", row.latency_s * 1e6),
            format!("{:.0}", row.wake_s * 1e6),
            ms(row.measured_s),
            format!("{fastest}–{slowest}"),
            ms(row.predicted_s),
            format!("{:+.1}", 100.0 * row.error),
        ]);
    }
    table.render()
}

fn progress(n: usize) -> ProgressBar {
    let style = ProgressStyle::with_template("validating [{bar:40}] {pos}/{len}")
        .expect("the template is constant")
        .progress_chars("=> ");
    ProgressBar::new(n as u64).with_style(style)
}
