//! Files of speeds for the cost model, and the published ones among them.
//!
//! A file is TOML or JSON. It must hold the memory's speeds of copy and add, and speeds of encode
//! and decode: of all codecs that keep a bound (`codec`), or of codecs by name (`codecs`). Other
//! speeds are derived from these ([`cost::PrimitiveSpeeds::of_parts`]) if absent. If the file has
//! no ratio, the ratio is measured on the field. If the file has no speeds for raw, raw uses the
//! memory's.

use std::collections::BTreeMap;

use anyhow::Context;
use foldwire::codec::{CodecId, Loss};
use foldwire_published::SPEEDS;
use foldwire_sim::cost::{self, Costs, WireSizes};
use serde::Deserialize;

/// Speeds in 1e9 bytes of values per second, as written in a file.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SpeedsFile {
    /// Description of the machine and the source.
    pub(super) about: String,
    memory: MemorySpeeds,
    /// Speeds of raw, if they differ from `memory`: an MPI library uses one thread, and the codec
    /// may use several.
    raw: Option<MemorySpeeds>,
    /// Speeds of all codecs that keep a bound and have no entry in `codecs`.
    codec: Option<CodecSpeeds>,
    /// Speeds of codecs by name.
    #[serde(default)]
    codecs: BTreeMap<String, CodecSpeeds>,
    /// Ratio of codecs that have none of their own.
    #[serde(default)]
    ratio: Ratios,
}

/// Pairs of (number of operands, raw bytes / compressed bytes); measured on the field if empty.
pub(super) type Ratios = Vec<(u32, f64)>;

#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct MemorySpeeds {
    copy: f64,
    /// Addition of one array to another.
    add: f64,
    /// Scan of values for their value range; takes no time if absent.
    look: Option<f64>,
    checksum: Option<f64>,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CodecSpeeds {
    encode: f64,
    decode: f64,
    /// Decodes two frames, adds and encodes if absent.
    combine: Option<f64>,
    fold: Option<f64>,
    fold_store: Option<f64>,
    reduce: Option<f64>,
    refold: Option<f64>,
    recode: Option<f64>,
    #[serde(default)]
    ratio: Ratios,
}

impl SpeedsFile {
    pub(super) fn parse(text: &str, is_json: bool) -> anyhow::Result<Self> {
        let file: Self = if is_json { serde_json::from_str(text)? } else { toml::from_str(text)? };
        let Self { memory, raw, codec, codecs, ratio, .. } = &file;
        let of_memory = |speeds: &MemorySpeeds| {
            let MemorySpeeds { copy, add, look, checksum } = *speeds;
            [Some(copy), Some(add), look, checksum]
        };
        let of_codec = |speeds: &CodecSpeeds| {
            let &CodecSpeeds { encode, decode, combine, fold, fold_store, reduce, .. } = speeds;
            let must = [Some(encode), Some(decode)];
            let may = [combine, fold, fold_store, reduce, speeds.refold, speeds.recode];
            must.into_iter().chain(may)
        };
        let each = || codec.iter().chain(codecs.values());
        let memories = [Some(memory), raw.as_ref()].into_iter().flatten().flat_map(of_memory);
        let speeds = memories.chain(each().flat_map(of_codec)).flatten();
        let ratios = || [ratio].into_iter().chain(each().map(|codec| &codec.ratio));
        let numbers = speeds.chain(ratios().flatten().map(|&(_, ratio)| ratio));
        anyhow::ensure!(numbers.into_iter().all(|x| x > 0.0), "speeds and ratios must be above 0");
        let ascends = |ratio: &Ratios| {
            ratio.is_sorted_by(|a, b| a.0 < b.0) && ratio.iter().all(|&(k, _)| k > 0)
        };
        anyhow::ensure!(ratios().all(ascends), "the operands of ratios must ascend from 1");
        let is_known = |name: &String| {
            let (name, setting) = name.split_once(':').unwrap_or((name, "0"));
            let is_codec = CodecId::ALL.iter().any(|codec| codec.name() == name);
            is_codec && setting.parse::<u16>().is_ok()
        };
        if let Some(name) = codecs.keys().find(|name| !is_known(name)) {
            anyhow::bail!("there is no codec {name}");
        }
        anyhow::ensure!(each().next().is_some(), "there are no speeds of a codec");
        Ok(file)
    }

    /// Returns the costs of raw, for values of `value_bytes` bytes.
    pub(super) fn raw(&self, value_bytes: usize) -> Costs {
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

    /// Returns the speeds of this codec at this setting, if the file has any.
    pub(super) fn of(&self, codec: CodecId, setting: u16) -> Option<&CodecSpeeds> {
        let keeps_bound = codec.loss() == Loss::Bound;
        let named = self.codecs.get(&format!("{}:{setting}", codec.name()));
        let named = named.or_else(|| self.codecs.get(codec.name()));
        named.or_else(|| self.codec.as_ref().filter(|_| keeps_bound))
    }

    /// Returns the ratios of these speeds; empty if the file has none.
    pub(super) fn ratio<'a>(&'a self, speeds: &'a CodecSpeeds) -> &'a Ratios {
        if speeds.ratio.is_empty() { &self.ratio } else { &speeds.ratio }
    }

    /// Returns the costs of a codec with these speeds.
    pub(super) fn costs(&self, speeds: &CodecSpeeds, wire: WireSizes) -> Costs {
        let MemorySpeeds { copy, add, look, checksum } = self.memory;
        let &CodecSpeeds { encode, decode, combine, fold, fold_store, .. } = speeds;
        let &CodecSpeeds { reduce, refold, recode, .. } = speeds;
        let in_turn = 2.0 / decode + add.recip() + encode.recip();
        let combine = combine.unwrap_or(in_turn.recip());
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
        let look = 1e9 * look.unwrap_or(f64::INFINITY);
        // As for raw.
        Costs { speeds: speeds.times(1e9), wire, look, sample: look * 10.0 }
    }
}

/// Returns the published speeds with this name.
pub(super) fn published(name: &str) -> anyhow::Result<SpeedsFile> {
    let known = SPEEDS.iter().find(|(known, _)| *known == name);
    let (_, text) = known.with_context(|| format!("no publication {name}"))?;
    SpeedsFile::parse(text, false).context(name.to_owned())
}

/// Returns sizes of segments from ratios.
pub(super) fn given_sizes(ratio: &Ratios, value_bytes: usize) -> WireSizes {
    let width = |&(k, ratio): &(u32, f64)| (k, value_bytes as f64 / ratio);
    WireSizes::measured(0, ratio.iter().map(width).collect())
}

#[cfg(test)]
mod tests {
    use foldwire_arguments::speeds::SpeedsArg;

    use super::*;

    #[test]
    fn the_published_speeds_are_files_of_the_right_form() {
        for (name, text) in SPEEDS {
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
        let speeds = file.of(CodecId::CuSzp, 0).unwrap();
        let wire = given_sizes(file.ratio(speeds), 4);
        let (raw, lossy) = (file.raw(4), file.costs(speeds, wire));
        assert!(file.of(CodecId::Mpc, 0).is_none(), "it keeps no bound");
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
        let speeds = file.of(CodecId::FzLight, 0).unwrap();
        let lossy = file.costs(speeds, WireSizes::exact(4)).speeds;
        let raw = file.raw(4).speeds;
        assert_eq!((raw.encode, raw.fold, raw.fold_store), (f64::INFINITY, 4e9, 4e9));
        assert_eq!(lossy.copy, 80e9);
        assert!(SpeedsFile::parse(&text.replace("inf, add = 4", "0, add = 4"), false).is_err());
    }

    #[test]
    fn codecs_may_have_speeds_and_ratios_of_their_own() {
        let text = "about = 'me'\nratio = [[1, 8]]\nmemory = { copy = 8, add = 4 }\n\
            codec = { encode = 2, decode = 4 }\n\
            codecs.mpc = { encode = 1, decode = 1, ratio = [[1, 1.5]] }\n\
            codecs.'zfp-rate:4' = { encode = 9, decode = 9 }";
        let file = SpeedsFile::parse(text, false).unwrap();
        let of = |codec, setting| {
            let speeds = file.of(codec, setting).expect("it has speeds");
            (speeds.encode, file.ratio(speeds)[0].1)
        };
        assert_eq!((of(CodecId::Mpc, 0), of(CodecId::Szx, 0)), ((1.0, 1.5), (2.0, 8.0)));
        assert_eq!((of(CodecId::ZfpRate, 4), file.of(CodecId::ZfpRate, 8)), ((9.0, 8.0), None));
        // Two readings, an addition and a writing.
        let costs = file.costs(file.of(CodecId::Szx, 0).unwrap(), WireSizes::exact(4));
        assert!((costs.speeds.combine - 0.8e9).abs() < 1.0);
        assert!(SpeedsFile::parse(&text.replace(".mpc", ".zip"), false).is_err());
        assert!(SpeedsFile::parse("about = 'me'\nmemory = { copy = 8, add = 4 }", false).is_err());
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
