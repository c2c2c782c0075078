//! Speeds for the cost model, measured on this machine, or read from a file or a publication.
//!
//! A file is TOML or JSON. It must hold the codec's speeds of encode, decode and combine, and the
//! memory's speeds of copy and add. Other speeds are derived from these
//! ([`cost::PrimitiveSpeeds::of_parts`]) if absent. If the file has no ratio, the ratio is measured
//! on the field. If the file has no speeds for raw, raw uses the memory's.

use std::num::NonZero;
use std::thread::available_parallelism;

use anyhow::Context;
use foldwire::codec::CodecId;
use foldwire::{Float, Plan};
use foldwire_arguments::SimArgs;
use foldwire_arguments::sizes::Size;
use foldwire_arguments::speeds::{PUBLISHED, SpeedsArg};
use foldwire_fields::usage::UsageError;
use foldwire_sim::cost::{self, Costs, WireSizes};
use foldwire_workbench::data::Data;
use serde::{Deserialize, Serialize};

use super::measure::MeasurementTask;
use super::sweep::SweepSetting;

/// Size of the largest frame that can be measured. A measurement allocates some hundred frames.
const MAX_FRAME: usize = 16 << 20;
/// Largest number of ranks in measurements of speeds.
const MOST_OPERANDS: usize = 64;

/// Speeds in 1e9 bytes of values per second, as written in a file.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct SpeedsFile {
    /// Description of the machine and the source.
    about: String,
    memory: MemorySpeeds,
    /// Speeds of raw, if they differ from `memory`: an MPI library uses one thread, and the codec
    /// may use several.
    raw: Option<MemorySpeeds>,
    codec: CodecSpeeds,
    /// Pairs of (number of operands, raw bytes / compressed bytes); measured on the field if empty.
    #[serde(default)]
    ratio: Vec<(u32, f64)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct MemorySpeeds {
    copy: f64,
    /// Addition of one array to another.
    add: f64,
    /// Scan of values for their value range; takes no time if absent.
    look: Option<f64>,
    checksum: Option<f64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct CodecSpeeds {
    encode: f64,
    decode: f64,
    combine: f64,
    fold: Option<f64>,
    fold_store: Option<f64>,
    reduce: Option<f64>,
    refold: Option<f64>,
    recode: Option<f64>,
}

impl SpeedsFile {
    fn parse(text: &str, is_json: bool) -> anyhow::Result<Self> {
        let file: Self = if is_json { serde_json::from_str(text)? } else { toml::from_str(text)? };
        let Self { memory, raw, codec, ratio, .. } = &file;
        let must = [memory.copy, memory.add, codec.encode, codec.decode, codec.combine];
        let may = [
            raw.map(|raw| raw.copy),
            raw.map(|raw| raw.add),
            raw.and_then(|raw| raw.look),
            raw.and_then(|raw| raw.checksum),
            memory.look,
            memory.checksum,
            codec.fold,
            codec.fold_store,
            codec.reduce,
            codec.refold,
            codec.recode,
        ];
        let speeds = must.into_iter().chain(may.into_iter().flatten());
        let numbers = speeds.chain(ratio.iter().map(|&(_, ratio)| ratio));
        anyhow::ensure!(numbers.into_iter().all(|x| x > 0.0), "speeds and ratios must be above 0");
        let ascends = ratio.is_sorted_by(|a, b| a.0 < b.0) && ratio.iter().all(|&(k, _)| k > 0);
        anyhow::ensure!(ascends, "the operands of ratios must ascend from 1");
        Ok(file)
    }

    /// Returns the costs of raw, for values of `value_bytes` bytes.
    fn raw(&self, value_bytes: usize) -> Costs {
        let MemorySpeeds { copy, add, look, checksum } = self.raw.unwrap_or(self.memory);
        // Raw adds the input into the received frame. Storing the result also copies it.
        let speeds = cost::PrimitiveSpeeds {
            fold: add,
            fold_store: (add.recip() + copy.recip()).recip(),
            reduce: add,
            checksum: checksum.unwrap_or(f64::INFINITY),
            ..cost::PrimitiveSpeeds::of_parts(copy, copy, add, add, copy)
        };
        let look = 1e9 * look.unwrap_or(f64::INFINITY);
        Costs {
            speeds: speeds.times(1e9),
            wire: WireSizes::exact(value_bytes),
            look,
            // A sample costs a tenth of a scan of all values.
            sample: look * 10.0,
        }
    }

    /// Returns the costs of the codec. `measured` are the sizes to use if the file has no ratio.
    fn lossy(&self, value_bytes: usize, measured: WireSizes) -> Costs {
        let MemorySpeeds { copy, add, look, checksum } = self.memory;
        let CodecSpeeds { encode, decode, combine, fold, fold_store, reduce, refold, recode } =
            self.codec;
        let parts = cost::PrimitiveSpeeds::of_parts(encode, decode, combine, add, copy);
        let speeds = cost::PrimitiveSpeeds {
            fold: fold.unwrap_or(parts.fold),
            fold_store: fold_store.unwrap_or(parts.fold_store),
            reduce: reduce.unwrap_or(parts.reduce),
            refold: refold.unwrap_or(parts.refold),
            recode: recode.unwrap_or(parts.recode),
            checksum: checksum.unwrap_or(f64::INFINITY),
            ..parts
        };
        let widths = self.ratio.iter().map(|&(k, ratio)| (k, value_bytes as f64 / ratio)).collect();
        let wire = if self.ratio.is_empty() { measured } else { WireSizes::measured(0, widths) };
        let look = 1e9 * look.unwrap_or(f64::INFINITY);
        // As for raw.
        Costs { speeds: speeds.times(1e9), wire, look, sample: look * 10.0 }
    }
}

/// Costs of raw and of the lossy codec, for any number of ranks.
#[derive(Debug)]
pub(super) struct ModelSpeeds {
    /// Description of the machine and the source.
    pub(super) about: String,
    raw: Costs,
    lossy: Costs,
    /// Compressed sizes of sums for each number of ranks; empty unless measured.
    wires: Vec<(usize, WireSizes)>,
}

/// A codec's speeds in 1e9 bytes of values per second, for tables and JSON.
#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct SpeedsInGbps {
    codec: &'static str,
    encode: f64,
    decode: f64,
    fold: f64,
    fold_store: f64,
    combine: f64,
    reduce: f64,
    refold: f64,
    recode: f64,
    copy: f64,
}

/// A field of any element type, on which codecs are measured.
pub(super) trait MeasuredValues {
    /// Calls [`MeasurementTask::wire`].
    fn wire(&self, task: &MeasurementTask) -> anyhow::Result<WireSizes>;

    /// Calls [`MeasurementTask::costs`].
    fn costs(&self, task: &MeasurementTask) -> anyhow::Result<Costs>;
}

impl<T: Float> MeasuredValues for Data<T> {
    fn wire(&self, task: &MeasurementTask) -> anyhow::Result<WireSizes> {
        task.wire(self)
    }

    fn costs(&self, task: &MeasurementTask) -> anyhow::Result<Costs> {
        task.costs(self)
    }
}

impl ModelSpeeds {
    /// Returns the speeds that the user chose. Measuring takes seconds.
    ///
    /// # Errors
    /// Fails if the file is missing or invalid, or if this machine cannot measure the setting.
    pub(super) fn new(
        args: &SimArgs,
        setting: &SweepSetting,
        data: &dyn MeasuredValues,
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
        let task = |codec: CodecId, size: usize| MeasurementTask {
            codec,
            bound: args.bound,
            size,
            reduces: setting.collective.reduces(),
            frame_bytes: args.frame,
            busy,
            array_bytes: args.size * n_ranks / n_computing,
        };
        let file = match &args.speeds {
            SpeedsArg::Measure => None,
            SpeedsArg::Published(name) => {
                let (_, text) = PUBLISHED.iter().find(|(known, _)| known == name).expect("parsed");
                Some(SpeedsFile::parse(text, false).context(*name)?)
            }
            SpeedsArg::File(path) => {
                let fault = |error: &dyn std::fmt::Display| {
                    UsageError::new(format!("{}: {error}; see docs/scale.md", path.display()))
                };
                let text = std::fs::read_to_string(path).map_err(|error| fault(&error))?;
                let is_json = path.extension().is_some_and(|extension| extension == "json");
                Some(SpeedsFile::parse(&text, is_json).map_err(|error| fault(&error))?)
            }
        };
        let measures_ratio = file.as_ref().is_none_or(|file| file.ratio.is_empty());
        if measures_ratio && args.frame > MAX_FRAME {
            return Err(UsageError::new(format!(
                "--frame {} is too large to measure; use 16M at most, or --speeds with a file that \
                holds the ratio",
                Size(args.frame)
            ))
            .into());
        }
        if file.is_none() && args.threads > here {
            return Err(UsageError::new(format!(
                "this machine has {here} cores, so it cannot measure --threads {}; take --speeds \
                of a file",
                args.threads
            ))
            .into());
        }
        let wires = if measures_ratio {
            let wire = |&size: &usize| Ok((size, data.wire(&task(CodecId::FzLight, size))?));
            counts.iter().map(wire).collect::<anyhow::Result<Vec<_>>>()?
        } else {
            Vec::new()
        };
        let some_wire =
            || wires.first().map_or(WireSizes::exact(value_bytes), |(_, wire)| wire.clone());
        let (about, raw, lossy) = match &file {
            Some(file) => {
                let lossy = file.lossy(value_bytes, some_wire());
                (file.about.clone(), file.raw(value_bytes), lossy)
            }
            None => {
                let size = most.min(MOST_OPERANDS);
                let n = args.threads;
                // A measurement gives the speed of one thread while all `busy` threads compute. So
                // a rank of n threads has n times that speed.
                let measured = |codec| -> anyhow::Result<Costs> {
                    let costs = data.costs(&task(codec, size))?;
                    let (speeds, factor) = (costs.speeds.times(n as f64), n as f64);
                    let (look, sample) = (costs.look * factor, costs.sample * factor);
                    Ok(Costs { speeds, look, sample, ..costs })
                };
                let threads = if n == 1 { "one thread".into() } else { format!("{n} threads") };
                let side_by_side =
                    if busy > n { format!(", {busy} busy side by side") } else { String::new() };
                let best = foldwire::kernel::Level::best();
                let about = format!("this machine, {threads} of {best}{side_by_side}");
                (about, measured(CodecId::Raw)?, measured(CodecId::FzLight)?)
            }
        };
        Ok(Self { about, raw, lossy, wires })
    }

    /// Returns the costs of the plan's codec between `size` ranks.
    pub(super) fn costs(&self, plan: &Plan, size: usize) -> Costs {
        let mut costs = if plan.codec.is_exact() { &self.raw } else { &self.lossy }.clone();
        let wire = self.wires.iter().find(|&&(known, _)| known == size);
        if let (Some((_, wire)), false) = (wire, plan.codec.is_exact()) {
            costs.wire = wire.clone();
        }
        costs
    }

    /// Returns whether the file holds the ratio. If not, it was measured on the field.
    pub(super) fn has_ratio(&self) -> bool {
        self.wires.is_empty()
    }

    /// Returns both codecs' speeds.
    pub(super) fn in_gbps(&self) -> [SpeedsInGbps; 2] {
        let of = |codec: CodecId, costs: &Costs| {
            let speeds = costs.speeds.times(1e-9);
            SpeedsInGbps {
                codec: codec.name(),
                encode: speeds.encode,
                decode: speeds.decode,
                fold: speeds.fold,
                fold_store: speeds.fold_store,
                combine: speeds.combine,
                reduce: speeds.reduce,
                refold: speeds.refold,
                recode: speeds.recode,
                copy: speeds.copy,
            }
        };
        [of(CodecId::Raw, &self.raw), of(CodecId::FzLight, &self.lossy)]
    }
}

impl SpeedsInGbps {
    /// Returns the speeds as one line.
    pub(super) fn text(&self) -> String {
        let Self { codec, encode, decode, fold, fold_store, .. } = self;
        let Self { combine, reduce, refold, recode, copy, .. } = self;
        format!(
            "{codec}: encode {encode:.1}, decode {decode:.1}, fold {fold:.1}, fold-store \
             {fold_store:.1}, combine {combine:.1}, reduce {reduce:.1}, refold {refold:.1}, \
             recode {recode:.1}, copy {copy:.1}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_speeds_are_files_of_the_right_form() {
        for (name, text) in PUBLISHED {
            let file = SpeedsFile::parse(text, false).unwrap_or_else(|e| panic!("{name}: {e:#}"));
            assert!(!file.about.is_empty());
            assert_eq!(name.parse(), Ok(SpeedsArg::Published(name)));
        }
    }

    #[test]
    fn what_a_file_leaves_out_follows_from_the_rest() {
        let text = r#"{"about": "me", "memory": {"copy": 8, "add": 4},
            "codec": {"encode": 2, "decode": 4, "combine": 4, "fold": 5},
            "ratio": [[1, 8], [4, 4]]}"#;
        let file = SpeedsFile::parse(text, true).unwrap();
        let (raw, lossy) = (file.raw(4), file.lossy(4, WireSizes::exact(4)));
        assert_eq!((lossy.speeds.fold, lossy.speeds.encode), (5e9, 2e9));
        assert!((lossy.speeds.recode - 4e9 / 3.0).abs() < 1.0);
        assert_eq!(
            (lossy.wire.width(1), lossy.wire.width(2), lossy.wire.width(9)),
            (0.5, 0.75, 1.0)
        );
        assert_eq!((raw.speeds.encode, raw.speeds.fold, raw.speeds.combine), (8e9, 4e9, 4e9));
        assert!((raw.speeds.fold_store - 8e9 / 3.0).abs() < 1.0);
        assert!(raw.look.is_infinite());
    }

    #[test]
    fn raw_can_have_another_memory_than_the_codec() {
        let text = "about = 'me'\nratio = [[1, 8]]\nmemory = { copy = 80, add = 40 }\n\
            raw = { copy = inf, add = 4 }\ncodec = { encode = 2, decode = 4, combine = 4 }";
        let file = SpeedsFile::parse(text, false).unwrap();
        let (raw, lossy) = (file.raw(4).speeds, file.lossy(4, WireSizes::exact(4)).speeds);
        assert_eq!((raw.encode, raw.fold, raw.fold_store), (f64::INFINITY, 4e9, 4e9));
        assert_eq!(lossy.copy, 80e9);
        assert!(SpeedsFile::parse(&text.replace("inf, add = 4", "0, add = 4"), false).is_err());
    }

    #[test]
    fn files_with_faults_are_refused() {
        for (from, to) in [
            ("\"add\": 4", "\"add\": 0"),
            ("[4, 4]", "[1, 4]"),
            ("\"me\"", "\"me\", \"x\": 1"),
            ("\"copy\": 8,", ""),
        ] {
            let text = r#"{"about": "me", "memory": {"copy": 8, "add": 4},
                "codec": {"encode": 2, "decode": 4, "combine": 4}, "ratio": [[1, 8], [4, 4]]}"#;
            assert!(SpeedsFile::parse(text, true).is_ok() && text.contains(from));
            assert!(SpeedsFile::parse(&text.replace(from, to), true).is_err(), "{to}");
        }
    }
}
