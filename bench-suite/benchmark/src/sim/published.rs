//! `foldwire sim --published`: figures that papers report of collectives, messages and programs,
//! beside predictions and measurements.
//!
//! The figures are data (`collectives.toml` of `foldwire-published`), which also say how each
//! figure is predicted: by a command of `foldwire sim`, or by a formula. A figure that cannot be
//! predicted says why.

use std::collections::BTreeMap;

use anyhow::Context;
use foldwire::Preset;
use foldwire_arguments::SimArgs;
use foldwire_arguments::speeds::SpeedsArg;
use foldwire_published::{COLLECTIVES, figures};
use foldwire_workbench::streams;
use foldwire_workbench::table::Columns;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::speeds::ModelSpeeds;
use super::sweep::{Budget, SweepRow, SweepSetting, predict_row};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FiguresFile {
    figure: Vec<Figure>,
    /// Commands by name.
    #[serde(default)]
    measurement: BTreeMap<String, Measurement>,
}

/// A figure of a paper. Exactly one of `model`, `program` and `why` is there.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Figure {
    paper: String,
    /// Figure, table or section.
    at: String,
    experiment: String,
    published: Option<String>,
    /// System whose image stacking is the figure, in place of `published`.
    stacking: Option<String>,
    model: Option<FigureModel>,
    program: Option<ProgramModel>,
    /// Reason why there is no prediction.
    why: Option<String>,
    /// Assumptions of the prediction.
    note: Option<String>,
    measured: Option<MeasuredFigure>,
}

/// A collective that is simulated. The figure compares preset `preset` with preset `over`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FigureModel {
    #[serde(default)]
    shows: Shows,
    collective: String,
    /// The best of these numbers of ranks counts.
    ranks: Vec<usize>,
    /// The best of these sizes of the array counts.
    bytes: Vec<usize>,
    link: Option<String>,
    /// Names of published speeds. Several of them give a range.
    speeds: Vec<String>,
    preset: String,
    over: String,
    /// Schedule of all presets, instead of their own.
    schedule: Option<String>,
    /// Preset for Foldwire, or `engine` for `preset` in its engine; preset foldwire if absent.
    foldwire: Option<String>,
    /// Foldwire's frames.
    frame: Option<String>,
}

/// Statement of a figure about two times.
#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Shows {
    /// Time of the baseline / time of the preset.
    #[default]
    Speedup,
    /// Per cent that the preset takes more than the baseline.
    Change,
    /// Per cent of the preset's time: compress (and decompress), communicate, compute, other.
    Shares,
}

/// A program whose ranks share its computation evenly and spend the rest of the time on messages,
/// whose time is proportional to their length.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ProgramModel {
    ranks: u32,
    /// Published speed-up over one rank without compression.
    plain: f64,
    /// Compressed bytes / raw bytes. Several of them give a range.
    size: Vec<f64>,
    foldwire: Option<f64>,
}

/// A measured value of the figure.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct MeasuredFigure {
    value: String,
    /// Name of the measurement.
    by: String,
}

/// A command that measured some values.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Measurement {
    command: String,
    machine: String,
}

/// A figure with its predictions.
#[derive(Debug, Serialize)]
struct FigureRow {
    paper: String,
    at: String,
    experiment: String,
    published: String,
    #[serde(flatten)]
    predicted: PredictedFigure,
    measured: Option<String>,
    measurement: Option<Measurement>,
    /// Reason why nothing is predicted, or what is assumed.
    note: Option<String>,
}

/// Predictions of a figure.
#[derive(Debug, Default, Serialize)]
struct PredictedFigure {
    as_published: Option<String>,
    foldwire: Option<String>,
    /// Commands that print the times of the prediction as published.
    commands: Vec<String>,
    #[serde(skip)]
    budgets: Vec<BudgetRow>,
}

/// Where the time of one preset goes.
#[derive(Debug, Clone, Serialize)]
struct BudgetRow {
    collective: String,
    ranks: usize,
    bytes: usize,
    link: String,
    speeds: String,
    preset: String,
    time_s: f64,
    ns_a_value: Budget,
}

/// Predicts every figure. Results go to stdout.
pub(super) fn run(is_json: bool) -> anyhow::Result<()> {
    let file: FiguresFile = toml::from_str(COLLECTIVES).context("collectives.toml")?;
    let row = |figure: Figure| figure.row(&file.measurement);
    let rows = file.figure.into_par_iter().with_max_len(1).map(row);
    let rows = rows.collect::<anyhow::Result<Vec<_>>>()?;
    // Several figures may be about the same calls.
    let mut budgets = BTreeMap::new();
    for budget in rows.iter().flat_map(|row| &row.predicted.budgets) {
        let BudgetRow { collective, ranks, bytes, link, speeds, preset, .. } = budget;
        budgets.insert((link, speeds, collective, ranks, bytes, preset), budget);
    }
    let budgets: Vec<&BudgetRow> = budgets.into_values().collect();
    let text = match is_json {
        true => format!("{}\n", json!({ "rows": rows, "budgets": budgets })),
        false => format!("{}\n{}", figures_table(&rows), budget_table(&budgets)),
    };
    Ok(streams::write(&text)?)
}

impl Figure {
    /// The number that the paper reports.
    fn published(&self) -> Option<String> {
        let Some(system) = &self.stacking else { return self.published.clone() };
        let is_share = self.model.as_ref().is_some_and(|model| model.shows == Shows::Shares);
        let is_shown = |row: &&foldwire_published::Figure| {
            (row.paper, row.system, row.set) == (&self.paper, system, "image stacking")
                && !["PSNR", "NRMSE"].contains(&row.metric)
                && is_share == (row.metric != "speed-up")
        };
        let values: Vec<_> =
            figures().iter().filter(is_shown).filter_map(|row| row.at(1e-4)).collect();
        let values: Vec<_> = values.iter().map(f64::to_string).collect();
        (!values.is_empty()).then(|| values.join(" / "))
    }

    fn row(self, all: &BTreeMap<String, Measurement>) -> anyhow::Result<FigureRow> {
        let name = format!("{} {}: {}", self.paper, self.at, self.experiment);
        let predicted = match (&self.model, &self.program, &self.why) {
            (Some(model), None, None) => model.predict().with_context(|| name.clone())?,
            (None, Some(program), None) => program.predict(),
            (None, None, Some(_)) => PredictedFigure::default(),
            _ => anyhow::bail!("{name}: one of model, program and why is needed"),
        };
        let published = self.published().with_context(|| format!("{name}: nothing published"))?;
        let Self { paper, at, experiment, why, note, measured, .. } = self;
        let measurement = match &measured {
            Some(MeasuredFigure { by, .. }) => {
                Some(all.get(by).with_context(|| format!("no measurement {by}"))?.clone())
            }
            None => None,
        };
        let measured = measured.map(|measured| measured.value);
        let note = why.map(|why| format!("not predicted: {why}")).or(note);
        Ok(FigureRow { paper, at, experiment, published, predicted, measured, measurement, note })
    }
}

impl FigureModel {
    fn predict(&self) -> anyhow::Result<PredictedFigure> {
        let mut predicted = PredictedFigure::default();
        let (mut published, mut foldwire) = (Vec::new(), Vec::new());
        for speeds in &self.speeds {
            let (mut of_published, mut of_foldwire): (Vec<Vec<f64>>, Vec<Vec<f64>>) =
                Default::default();
            for bytes in &self.bytes {
                let presets = format!("{},{}", self.over, self.preset);
                let command = self.command(speeds, *bytes, &presets) + " --as-published";
                let rows = predict(&command, false)?;
                let ours = self.command(speeds, *bytes, self.foldwire_preset());
                let frame = self.frame.as_ref().map(|frame| format!(" --frame {frame}"));
                let ours = ours + &frame.unwrap_or_default();
                let ours = predict(&ours, self.foldwire.as_deref() == Some("engine"))?;
                let pairs = || rows.chunks_exact(2).zip(&ours);
                of_published.extend(pairs().map(|(pair, _)| self.shown(&pair[0], &pair[1])));
                of_foldwire.extend(pairs().map(|(pair, our)| self.shown(&pair[0], our)));
                if let Some((pair, our)) = pairs().next_back()
                    && self.bytes.last() == Some(bytes)
                {
                    let foldwire = self.foldwire.as_deref().unwrap_or("foldwire");
                    for (row, preset) in
                        [(&pair[0], &*self.over), (&pair[1], &self.preset), (our, foldwire)]
                    {
                        predicted.budgets.push(self.budget(speeds, *bytes, row, preset));
                    }
                }
                predicted.commands.push(format!("foldwire sim {command}"));
            }
            published.push(self.best(of_published));
            foldwire.push(self.best(of_foldwire));
        }
        predicted.as_published = Some(self.text(&published));
        predicted.foldwire = Some(self.text(&foldwire));
        Ok(predicted)
    }

    fn foldwire_preset(&self) -> &str {
        match self.foldwire.as_deref() {
            Some("engine") => &self.preset,
            preset => preset.unwrap_or("foldwire"),
        }
    }

    /// Arguments of `foldwire sim`.
    fn command(&self, speeds: &str, bytes: usize, presets: &str) -> String {
        let ranks: Vec<String> = self.ranks.iter().map(ToString::to_string).collect();
        let schedule = self.schedule.as_ref().map(|name| format!(" --schedule {name}"));
        format!(
            "{} --ranks {} --size {bytes} --bound abs:1e-4 --link {} --speeds {speeds} \
             --preset {presets}{}",
            self.collective,
            ranks.join(","),
            self.link(),
            schedule.unwrap_or_default(),
        )
    }

    fn link(&self) -> &str {
        self.link.as_deref().unwrap_or("100gbit")
    }

    /// The figure's numbers for a call of the baseline and one of the preset.
    fn shown(&self, over: &SweepRow, row: &SweepRow) -> Vec<f64> {
        let Budget { encode, decode, fold, copy, message, wait, .. } = row.budget_ns;
        match self.shows {
            Shows::Speedup => vec![over.time_s / row.time_s],
            Shows::Change => vec![100.0 * (row.time_s / over.time_s - 1.0)],
            Shows::Shares => {
                let all = encode + decode + fold + copy + message + wait;
                [encode + decode, message + wait, fold, copy].map(|x| 100.0 * x / all).to_vec()
            }
        }
    }

    /// The best of several calls.
    fn best(&self, calls: Vec<Vec<f64>>) -> Vec<f64> {
        let better = |a: &Vec<f64>, b: &Vec<f64>| match self.shows {
            Shows::Speedup => a[0].total_cmp(&b[0]),
            Shows::Change | Shows::Shares => b[0].total_cmp(&a[0]),
        };
        calls.into_iter().max_by(better).unwrap_or_default()
    }

    /// One number, a range of several, or several shares.
    fn text(&self, values: &[Vec<f64>]) -> String {
        let first = || values.iter().map(|value| value[0]);
        match self.shows {
            Shows::Speedup => range(first(), 2),
            Shows::Change => first().map(|x| format!("{x:+.0}")).collect::<Vec<_>>().join(" … "),
            Shows::Shares => {
                let shares = values.first().into_iter().flatten();
                shares.map(|x| format!("{x:.0}")).collect::<Vec<_>>().join(" / ")
            }
        }
    }

    fn budget(&self, speeds: &str, bytes: usize, row: &SweepRow, preset: &str) -> BudgetRow {
        let engine = || format!("{}, our engine", self.preset);
        BudgetRow {
            collective: self.collective.clone(),
            ranks: row.ranks,
            bytes,
            link: self.link().to_owned(),
            speeds: speeds.to_owned(),
            preset: if preset == "engine" { engine() } else { preset.to_owned() },
            time_s: row.time_s,
            ns_a_value: row.budget_ns,
        }
    }
}

impl ProgramModel {
    fn predict(&self) -> PredictedFigure {
        let computing = f64::from(self.ranks).recip();
        let speedup = |size: f64| 1.0 / (computing + (self.plain.recip() - computing) * size);
        let as_published = Some(range(self.size.iter().map(|&size| speedup(size)), 2));
        let foldwire = self.foldwire.map(|size| format!("{:.2}", speedup(size)));
        PredictedFigure { as_published, foldwire, ..PredictedFigure::default() }
    }
}

/// The smallest and the largest of these numbers.
fn range(values: impl Iterator<Item = f64> + Clone, digits: usize) -> String {
    let least = values.clone().fold(f64::INFINITY, f64::min);
    let most = values.fold(f64::NEG_INFINITY, f64::max);
    let [least, most] = [least, most].map(|x| format!("{x:.digits$}"));
    if least == most { least } else { format!("{least} … {most}") }
}

/// Predicts the calls of a command, in the order of ranks and presets. With `overlaps`, presets run
/// in Foldwire's engine.
fn predict(command: &str, overlaps: bool) -> anyhow::Result<Vec<SweepRow>> {
    let args = SimArgs::parse(command).with_context(|| command.to_owned())?;
    let collective = args.collective.with_context(|| command.to_owned())?;
    let SpeedsArg::Published(speeds) = args.speeds else {
        anyhow::bail!("{command}: the speeds must be published ones");
    };
    let mut setting = SweepSetting::new::<f32>(&args, collective);
    setting.overlaps = overlaps;
    let speeds = ModelSpeeds::published(speeds, &setting.codecs(), setting.dtype.n_bytes())?;
    let each = |&ranks: &usize| setting.presets.iter().map(move |&preset| (ranks, preset));
    let cases = setting.ranks.iter().flat_map(each);
    let row = |(ranks, preset): (usize, Preset)| predict_row(&setting, &speeds, ranks, preset);
    Ok(cases.map(row).collect::<Result<Vec<_>, _>>()?)
}

fn figures_table(rows: &[FigureRow]) -> String {
    let optional = |text: &Option<String>| text.clone().unwrap_or_default();
    Columns::of(rows)
        .text("paper", "", |row| &row.paper)
        .text("at", "", |row| &row.at)
        .text("experiment", "", |row| &row.experiment)
        .number("published", "", |row| &row.published)
        .number("predicted", "as published", |row| optional(&row.predicted.as_published))
        .number("predicted", "Foldwire", |row| optional(&row.predicted.foldwire))
        .number("measured", "", |row| optional(&row.measured))
        .text("note", "", |row| optional(&row.note))
        .render()
}

fn budget_table(rows: &[&BudgetRow]) -> String {
    let ns = |time: f64| format!("{time:.3}");
    Columns::of(rows)
        .text("link", "", |row| &row.link)
        .text("speeds", "", |row| &row.speeds)
        .text("collective", "", |row| &row.collective)
        .number("ranks", "", |row| row.ranks)
        .number("size", "MB", |row| format!("{:.0}", row.bytes as f64 / 1e6))
        .text("preset", "", |row| &row.preset)
        .number("time", "ms", |row| format!("{:.1}", row.time_s * 1e3))
        .number("encode", "ns a value", |row| ns(row.ns_a_value.encode))
        .number("decode", "ns a value", |row| ns(row.ns_a_value.decode))
        .number("fold", "ns a value", |row| ns(row.ns_a_value.fold))
        .number("copy", "ns a value", |row| ns(row.ns_a_value.copy))
        .number("messages", "ns a value", |row| ns(row.ns_a_value.message))
        .number("wait", "ns a value", |row| ns(row.ns_a_value.wait))
        .number("wire", "ns a value", |row| ns(row.ns_a_value.wire))
        .render()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_gains_what_its_messages_lose() {
        let program =
            ProgramModel { ranks: 4, plain: 2.0, size: vec![1.0, 0.5], foldwire: Some(0.0) };
        let predicted = program.predict();
        // A quarter of the time computes, a quarter is messages.
        assert_eq!(predicted.as_published.as_deref(), Some("2.00 … 2.67"));
        assert_eq!(predicted.foldwire.as_deref(), Some("4.00"));
    }

    #[test]
    fn every_figure_is_predicted_or_says_why() {
        let file: FiguresFile = toml::from_str(COLLECTIVES).expect("the figures");
        assert!(file.figure.len() > 40);
        for figure in &file.figure {
            let ways = [figure.model.is_some(), figure.program.is_some(), figure.why.is_some()];
            assert_eq!(ways.iter().filter(|&&is| is).count(), 1, "{figure:?}");
            assert!(figure.published().is_some_and(|text| !text.is_empty()), "{figure:?}");
            assert!(figure.published.is_none() || figure.stacking.is_none(), "{figure:?}");
            if let Some(model) = &figure.model {
                let command = model.command(&model.speeds[0], model.bytes[0], &model.preset);
                assert!(SimArgs::parse(&command).is_ok(), "{command}");
            }
        }
    }

    #[test]
    fn figures_of_stacking_are_those_of_the_table() {
        let file: FiguresFile = toml::from_str(COLLECTIVES).expect("the figures");
        let published = |at: &str, experiment: &str| {
            let is_it = |figure: &&Figure| figure.at == at && figure.experiment == experiment;
            file.figure.iter().find(is_it).and_then(Figure::published)
        };
        let shares = "stacking, 18 threads: shares";
        assert_eq!(published("Table VII", shares).as_deref(), Some("38.61 / 60.42 / 0.96"));
        assert_eq!(published("Table VII", "stacking, CPRP2P").as_deref(), Some("0.95"));
    }

    /// Two ranks that exchange halves: the sums of a budget are the time.
    #[test]
    fn a_budget_adds_up_to_the_time() {
        let command = "allreduce --ranks 2 --size 8MB --bound abs:1 --speeds zccl-1-thread \
            --preset raw-ring,zccl,hzccl,foldwire --as-published";
        for row in predict(command, false).expect("a prediction") {
            let Budget { encode, decode, fold, copy, message, wait, wire } = row.budget_ns;
            let sum = encode + decode + fold + copy + message + wait;
            assert!((sum * 2e-3 / row.time_s - 1.0).abs() < 1e-6, "{row:?}");
            assert!(wire > 0.0 && (row.preset == Preset::RawRing || encode > 0.0), "{row:?}");
        }
    }
}
