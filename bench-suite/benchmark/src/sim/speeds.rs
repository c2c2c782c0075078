//! Speeds for the cost model, measured on this machine, or read from a file or a publication.

use std::num::NonZero;
use std::thread::available_parallelism;

use anyhow::{Context, bail};
use foldwire::Plan;
use foldwire::codec::CodecId;
use foldwire_arguments::SimArgs;
use foldwire_arguments::sizes::Size;
use foldwire_arguments::speeds::SpeedsArg;
use foldwire_fields::usage::usage;
use foldwire_sim::cost::{Costs, PrimitiveSpeeds, WireSizes};
use serde::{Serialize, Serializer};

use super::measure::MeasurementTask;
use super::speeds_file::{SpeedsFile, given_sizes, published};
use super::sweep::SweepSetting;

/// Size of the largest frame that can be measured. A measurement allocates some hundred frames.
const MAX_FRAME: usize = 16 << 20;
/// Largest number of ranks in measurements of speeds.
const MOST_OPERANDS: usize = 64;

/// Costs of raw and of other codecs, for any number of ranks.
#[derive(Debug)]
pub(super) struct ModelSpeeds {
    /// Description of the machine and the source.
    pub(super) about: String,
    raw: Costs,
    codecs: Vec<CodecCosts>,
}

/// Costs of a codec at a setting.
#[derive(Debug)]
struct CodecCosts {
    codec: CodecId,
    setting: u16,
    costs: Costs,
    /// Compressed sizes of sums for each number of ranks; empty unless measured.
    wires: Vec<(usize, WireSizes)>,
}

/// A codec's speeds in 1e9 bytes of values per second, for tables and JSON.
#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct SpeedsInGbps {
    codec: &'static str,
    #[serde(flatten, serialize_with = "as_map")]
    speeds: PrimitiveSpeeds,
}

/// A measurement on a field of any element type.
type Measure<'a, R> = &'a dyn Fn(&MeasurementTask) -> anyhow::Result<R>;

impl ModelSpeeds {
    /// Returns the speeds that the user chose. Measuring sizes and speeds of the field takes
    /// seconds.
    ///
    /// # Errors
    /// Fails if the file is missing or invalid, or if this machine cannot measure the setting.
    pub(super) fn new(
        args: &SimArgs,
        setting: &SweepSetting,
        wire: Measure<'_, WireSizes>,
        costs: Measure<'_, Costs>,
    ) -> anyhow::Result<Self> {
        let value_bytes = setting.dtype.n_bytes();
        let counts = args.ranks.n_bytes();
        let most = counts.iter().copied().max().unwrap_or(1);
        // Ranks of one node, and how many of them compute at the same time. The measurement keeps
        // as many threads busy as such a node does, if this machine has the cores. It works on the
        // arrays of all ranks that share a core, so that caches are as full as in a real run.
        let n_ranks = most.min(setting.cluster.host.ranks_per_node);
        let n_computing = n_ranks.min(setting.cluster.host.cores);
        let here = available_parallelism().map_or(1, NonZero::get);
        let busy = (n_computing * args.threads).min(here);
        let task = |codec: CodecId, codec_setting: u16, size: usize| MeasurementTask {
            codec,
            setting: codec_setting,
            bound: args.bound,
            // The times of a single rank's calls, which send nothing, do not count.
            size: size.max(2),
            reduces: setting.collective.reduces(),
            frame_bytes: args.frame,
            busy,
            array_bytes: args.size * n_ranks / n_computing,
        };
        let file = match &args.speeds {
            SpeedsArg::Measure => None,
            SpeedsArg::Published(name) => Some(published(name)?),
            SpeedsArg::File(path) => {
                let fault = |error: &dyn std::fmt::Display| {
                    usage!("{}: {error}; see docs/scale.md", path.display())
                };
                let text = std::fs::read_to_string(path).map_err(|error| fault(&error))?;
                let is_json = path.extension().is_some_and(|extension| extension == "json");
                Some(SpeedsFile::parse(&text, is_json).map_err(|error| fault(&error))?)
            }
        };
        let codecs = setting.codecs();
        let given = |&(codec, setting): &(CodecId, u16)| file.as_ref()?.of(codec, setting);
        let lacking = codecs.iter().filter(|codec| file.is_some() && given(codec).is_none());
        let lacking: Vec<&str> = lacking.map(|(codec, _)| codec.name()).collect();
        if !lacking.is_empty() {
            bail!(usage!(
                "--speeds has none of {}; add them, or leave out presets with these codecs",
                lacking.join(", ")
            ));
        }
        let ratio = |codec: &(CodecId, u16)| {
            Some(file.as_ref()?.ratio(given(codec)?)).filter(|r| !r.is_empty())
        };
        if codecs.iter().any(|codec| ratio(codec).is_none()) && args.frame > MAX_FRAME {
            bail!(usage!(
                "--frame {} is too large to measure; use 16M at most, or --speeds with a file that \
                holds the ratio",
                Size(args.frame)
            ));
        }
        if file.is_none() && args.threads > here {
            bail!(usage!(
                "this machine has {here} cores, so it cannot measure --threads {}; take --speeds \
                of a file",
                args.threads
            ));
        }
        // A measurement gives the speed of one thread while all `busy` threads compute. So a rank
        // of n threads has n times that speed.
        let n = args.threads;
        let measured = |codec, setting| -> anyhow::Result<Costs> {
            let costs = costs(&task(codec, setting, most.min(MOST_OPERANDS)))?;
            let (speeds, factor) = (costs.speeds.times(n as f64), n as f64);
            let (look, sample) = (costs.look * factor, costs.sample * factor);
            Ok(Costs { speeds, look, sample, ..costs })
        };
        let of_codec = |known: &(CodecId, u16)| -> anyhow::Result<CodecCosts> {
            let &(codec, setting) = known;
            let wire = |&size: &usize| Ok((size, wire(&task(codec, setting, size))?));
            let wires = match ratio(known) {
                None => counts.iter().map(wire).collect::<anyhow::Result<Vec<_>>>()?,
                Some(_) => Vec::new(),
            };
            let costs = match (&file, given(known)) {
                (Some(file), Some(speeds)) => {
                    let of_ratio = ratio(known).map(|ratio| given_sizes(ratio, value_bytes));
                    let first = wires.first().map(|(_, wire)| wire.clone());
                    let exact = || WireSizes::exact(value_bytes);
                    file.costs(speeds, of_ratio.or(first).unwrap_or_else(exact))
                }
                _ => measured(codec, setting)?,
            };
            Ok(CodecCosts { codec, setting, costs, wires })
        };
        let codecs = codecs.iter().map(of_codec).collect::<anyhow::Result<Vec<_>>>()?;
        let (about, raw) = match &file {
            Some(file) => (file.about.clone(), file.raw(value_bytes)),
            None => {
                let threads = if n == 1 { "one thread".into() } else { format!("{n} threads") };
                let side_by_side =
                    if busy > n { format!(", {busy} busy side by side") } else { String::new() };
                let best = foldwire::kernel::Level::best();
                let about = format!("this machine, {threads} of {best}{side_by_side}");
                (about, measured(CodecId::Raw, 0)?)
            }
        };
        Ok(Self { about, raw, codecs })
    }

    /// Returns the published speeds with this name, of these codecs at these settings.
    ///
    /// # Errors
    /// Fails if the publication lacks the speeds or the ratio of a codec.
    pub(super) fn published(
        name: &str,
        codecs: &[(CodecId, u16)],
        value_bytes: usize,
    ) -> anyhow::Result<Self> {
        let file = published(name)?;
        let of_codec = |&(codec, setting): &(CodecId, u16)| {
            let speeds = file.of(codec, setting).filter(|speeds| !file.ratio(speeds).is_empty());
            let speeds = speeds.with_context(|| format!("{name} has no {}", codec.name()))?;
            let costs = file.costs(speeds, given_sizes(file.ratio(speeds), value_bytes));
            Ok(CodecCosts { codec, setting, costs, wires: Vec::new() })
        };
        let codecs = codecs.iter().map(of_codec).collect::<anyhow::Result<Vec<_>>>()?;
        Ok(Self { about: file.about.clone(), raw: file.raw(value_bytes), codecs })
    }

    /// Returns the costs of the plan's codec between `size` ranks.
    ///
    /// # Panics
    /// If the codec is not one of the setting's ([`SweepSetting::codecs`]).
    pub(super) fn costs(&self, plan: &Plan, size: usize) -> Costs {
        if plan.codec == CodecId::Raw {
            return self.raw.clone();
        }
        let is_same =
            |known: &&CodecCosts| (known.codec, known.setting) == (plan.codec, plan.setting);
        let found = self.codecs.iter().find(is_same).expect("a codec of the setting");
        let mut costs = found.costs.clone();
        if let Some((_, wire)) = found.wires.iter().find(|&&(known, _)| known == size) {
            costs.wire = wire.clone();
        }
        costs
    }

    /// Returns whether the file holds all ratios. If not, some were measured on the field.
    pub(super) fn has_ratio(&self) -> bool {
        self.codecs.iter().all(|codec| codec.wires.is_empty())
    }

    /// Returns all codecs' speeds, raw first.
    pub(super) fn in_gbps(&self) -> Vec<SpeedsInGbps> {
        let of = |codec: CodecId, costs: &Costs| SpeedsInGbps {
            codec: codec.name(),
            speeds: costs.speeds.times(1e-9),
        };
        let codecs = self.codecs.iter().map(|known| of(known.codec, &known.costs));
        [of(CodecId::Raw, &self.raw)].into_iter().chain(codecs).collect()
    }
}

impl SpeedsInGbps {
    /// Returns the speeds as one line.
    pub(super) fn text(&self) -> String {
        let each = named(&self.speeds)
            .map(|(name, speed)| format!("{} {speed:.1}", name.replace('_', "-")));
        format!("{}: {}", self.codec, each.join(", "))
    }
}

/// Returns the speeds of the codec's primitives by name.
fn named(speeds: &PrimitiveSpeeds) -> [(&'static str, f64); 9] {
    let &PrimitiveSpeeds { encode, decode, fold, fold_store, combine, .. } = speeds;
    let &PrimitiveSpeeds { reduce, refold, recode, copy, .. } = speeds;
    [
        ("encode", encode),
        ("decode", decode),
        ("fold", fold),
        ("fold_store", fold_store),
        ("combine", combine),
        ("reduce", reduce),
        ("refold", refold),
        ("recode", recode),
        ("copy", copy),
    ]
}

fn as_map<S: Serializer>(speeds: &PrimitiveSpeeds, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(named(speeds))
}
