//! Published systems, and our own way, as rows of the product schedule × pipeline × codec.

use crate::bound::Bound;
use crate::codec::CodecId;
use crate::pipeline::{self, Pipeline};
use crate::plan::Plan;
use crate::schedule::{self, Collective, RecursiveDoubling, Schedule};

/// From shares of so many bytes on, gZCCL's all-reduce is a ring (gZCCL, ICS'24: "about 5 MB").
const GZCCL_RING_BYTES: usize = 5_000_000;

/// What a preset is made of, and where it comes from.
#[derive(Clone, Copy)]
struct PresetRow {
    name: &'static str,
    title: &'static str,
    source: &'static str,
    differs: &'static str,
    schedules: Schedules,
    pipeline: Pipeline,
    codec: CodecId,
    setting: u16,
    is_threaded: bool,
}

/// Who chooses the schedule.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Schedules {
    /// The paper: rings and binomial trees.
    Fixed,
    /// gZCCL: as `Fixed`, but short all-reduces by recursive doubling.
    Switched,
    /// We, as an MPI library does.
    Chosen,
}

/// ZCCL's frameworks with its codec on one thread; other rows say what is different.
const ZCCL: PresetRow = PresetRow {
    name: "zccl",
    title: "ZCCL",
    source: "Huang et al., ZCCL (2025)",
    differs: "no exchange of sizes first: frames tell their own, and nobody waits for others'",
    schedules: Schedules::Fixed,
    pipeline: pipeline::COMPRESS_ONCE,
    codec: CodecId::FzLight,
    setting: 0,
    is_threaded: false,
};

/// A codec inside an MPI library's messages.
const IN_MESSAGES: PresetRow =
    PresetRow { schedules: Schedules::Chosen, pipeline: pipeline::PER_HOP, ..ZCCL };

macro_rules! presets {
    ($($(#[$doc:meta])* $variant:ident: $row:expr;)*) => {
        /// A published system, or our own, as a [`Plan`]. docs/algorithms.md says what each does
        /// unlike its authors' system.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Preset {
            $($(#[$doc])* $variant,)*
        }

        impl Preset {
            /// Every preset.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            const fn row(self) -> PresetRow {
                match self {
                    $(Self::$variant => $row,)*
                }
            }
        }
    };
}

presets! {
    /// Plain collectives without compression, by the schedule that suits the length, as MPI
    /// libraries have them.
    Raw: PresetRow {
        name: "raw",
        title: "MPI-like raw",
        source: "any MPI library",
        differs: "values travel in frames",
        schedules: Schedules::Chosen,
        pipeline: pipeline::RAW,
        codec: CodecId::Raw,
        ..ZCCL
    };
    /// Compression in every point-to-point message.
    Cprp2p: PresetRow {
        name: "cprp2p",
        title: "CPRP2P",
        source: "baseline of Huang et al., ZCCL (2025); Zhou et al., IPDPS'21",
        differs: "parameters travel in the frame's header",
        pipeline: pipeline::PER_HOP,
        ..ZCCL
    };
    /// ZCCL: compress once, move, decompress once; decompress, reduce and compress in between.
    Zccl: ZCCL;
    /// hZCCL: compressed blocks are added.
    Hzccl: PresetRow {
        name: "hzccl",
        title: "hZCCL",
        source: "Huang et al., hZCCL (SC'24)",
        differs: "all collectives, not all-reduce and reduce-scatter alone",
        pipeline: pipeline::HOMOMORPHIC,
        ..ZCCL
    };
    /// gZCCL, as a summary of its paper describes it: short all-reduces by recursive doubling,
    /// fewer compressions in exchange for more bytes.
    Gzccl: PresetRow {
        name: "gzccl",
        title: "gZCCL-style",
        source: "Huang et al., gZCCL (ICS'24), by a summary",
        differs: "on CPUs, fz-light in place of cuSZp",
        schedules: Schedules::Switched,
        ..ZCCL
    };
    /// Foldwire's own.
    Foldwire: PresetRow {
        name: "foldwire",
        title: "Foldwire",
        source: "this library",
        differs: "–",
        schedules: Schedules::Chosen,
        pipeline: pipeline::FUSED,
        ..ZCCL
    };
    /// Foldwire's own, exact or by one of two codecs, whatever suits the call.
    Auto: PresetRow { name: "auto", title: "Foldwire, chosen", ..Self::Foldwire.row() };
    /// ZCCL on several threads a rank.
    ZcclMt: PresetRow { name: "zccl-mt", title: "ZCCL, threads", is_threaded: true, ..ZCCL };
    /// hZCCL on several threads a rank.
    HzcclMt: PresetRow {
        name: "hzccl-mt",
        title: "hZCCL, threads",
        is_threaded: true,
        ..Self::Hzccl.row()
    };
    /// hZCCL with the static pipeline that it is compared with: all blocks unpacked and packed.
    HzcclStatic: PresetRow {
        name: "hzccl-static",
        title: "hZCCL, static",
        codec: CodecId::FzStatic,
        ..Self::Hzccl.row()
    };
    /// C-Coll: ZCCL's frameworks with SZx.
    CColl: PresetRow {
        name: "c-coll",
        title: "C-Coll",
        source: "Huang et al., C-Coll; in Huang et al., ZCCL (2025)",
        codec: CodecId::Szx,
        ..ZCCL
    };
    /// MPC-OPT: messages compressed without loss inside an MPI library.
    MpcOpt: PresetRow {
        name: "mpc-opt",
        title: "MPC-OPT",
        source: "Zhou et al., IPDPS'21",
        differs: "on CPUs; no size threshold unless the plan has one",
        codec: CodecId::Mpc,
        ..IN_MESSAGES
    };
    /// ZFP-OPT: messages of 4 bits a value.
    ZfpOpt4: PresetRow {
        name: "zfp-opt-4",
        title: "ZFP-OPT, 4 bits",
        differs: "on CPUs; frames are passed on as they are, unless run as published",
        codec: CodecId::ZfpRate,
        setting: 4,
        ..Self::MpcOpt.row()
    };
    /// ZFP-OPT with 8 bits a value.
    ZfpOpt8: PresetRow {
        name: "zfp-opt-8",
        title: "ZFP-OPT, 8 bits",
        setting: 8,
        ..Self::ZfpOpt4.row()
    };
    /// ZFP-OPT with 16 bits a value.
    ZfpOpt16: PresetRow {
        name: "zfp-opt-16",
        title: "ZFP-OPT, 16 bits",
        setting: 16,
        ..Self::ZfpOpt4.row()
    };
    /// CAM's exact messages: XOR with the value before.
    CamIntra: PresetRow {
        name: "cam-intra",
        title: "CAM, intra-step",
        source: "Kumar et al., Parallel Computing (2008)",
        differs: "all collectives; no size threshold unless the plan has one",
        codec: CodecId::XorLz,
        ..IN_MESSAGES
    };
    /// CAM's exact messages: XOR with the step before, which the caller takes
    /// ([`InterStep`](crate::InterStep)).
    CamInter: PresetRow {
        name: "cam-inter",
        title: "CAM, inter-step",
        differs: "the caller takes the difference (InterStep); all collectives that only move",
        codec: CodecId::Lz,
        ..Self::CamIntra.row()
    };
    /// CAM's lossy messages: the low 32 bits of each `f64` dropped, the low 16 of each `f32`.
    CamLossy32: PresetRow {
        name: "cam-lossy32",
        title: "CAM, lossy 32",
        codec: CodecId::Truncate,
        ..Self::CamIntra.row()
    };
    /// CAM's messages in single precision; of `f64` only.
    CamSp: PresetRow {
        name: "cam-sp",
        title: "CAM, single",
        codec: CodecId::Demote,
        ..Self::CamIntra.row()
    };
    /// CAM's lossy and exact methods together.
    CamBoth: PresetRow {
        name: "cam-both",
        title: "CAM, both",
        differs: "XOR with the value before; with the step before: InterStep that drops, and lz",
        codec: CodecId::TruncateXor,
        ..Self::CamIntra.row()
    };
}

impl Preset {
    /// Those that tables show unless others are asked for: one for each way to compress and reduce.
    pub const MAIN: [Self; 6] =
        [Self::Raw, Self::Cprp2p, Self::Zccl, Self::Hzccl, Self::Gzccl, Self::Foldwire];

    /// The name in lower case.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.row().name
    }

    /// The name as its authors write it, for tables and captions.
    #[must_use]
    pub const fn title(self) -> &'static str {
        self.row().title
    }

    /// Where it is published.
    #[must_use]
    pub const fn source(self) -> &'static str {
        self.row().source
    }

    /// What is different here, beside what docs/algorithms.md says of all presets.
    #[must_use]
    pub const fn differs(self) -> &'static str {
        self.row().differs
    }

    /// Whether a rank has several [`threads`](crate::Config::threads) to compute with.
    #[must_use]
    pub const fn is_threaded(self) -> bool {
        self.row().is_threaded
    }

    /// The preset as a plan for `collective`. A codec that keeps no bound is asked for none.
    #[must_use]
    pub fn plan(self, collective: Collective, bound: Bound) -> Plan {
        self.plan_for(collective, bound, 0)
    }

    /// The same for arrays of which each rank's share has `n_bytes`: gZCCL's all-reduce of longer
    /// ones goes by a ring.
    #[must_use]
    pub fn plan_for(self, collective: Collective, bound: Bound, n_bytes: usize) -> Plan {
        let PresetRow { schedules, pipeline, codec, setting, .. } = self.row();
        let is_short = collective == Collective::AllReduce && n_bytes < GZCCL_RING_BYTES;
        let schedule: Option<&dyn Schedule> = match schedules {
            Schedules::Chosen => None,
            Schedules::Switched if is_short => Some(&RecursiveDoubling),
            Schedules::Fixed | Schedules::Switched => Some(schedule::default_for(collective)),
        };
        let plan = match self {
            Self::Raw => Plan::raw(),
            Self::Foldwire => Plan::foldwire(bound),
            Self::Auto => Plan::auto(bound),
            _ => Plan::raw().compressed(pipeline, bound).with_codec(codec).with_setting(setting),
        };
        Plan { schedule, ..plan }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::Loss;

    #[test]
    fn a_preset_has_a_bound_if_its_codec_keeps_one() {
        let bound = Bound::Relative(1e-3);
        for &preset in Preset::ALL {
            let plan = preset.plan(Collective::AllReduce, bound);
            let keeps = plan.codec.loss() != Loss::Setting && preset != Preset::Raw;
            assert_eq!(plan.bound.is_some(), keeps, "{}", preset.name());
            let is_known = Preset::ALL.iter().filter(|known| known.name() == preset.name()).count();
            assert_eq!(is_known, 1);
        }
        assert!(Preset::MAIN.iter().all(|main| Preset::ALL.contains(main)));
    }

    #[test]
    fn gzccl_switches_by_the_bytes_of_a_share() {
        let by = |n_bytes| {
            let plan = Preset::Gzccl.plan_for(Collective::AllReduce, Bound::Absolute(1.0), n_bytes);
            plan.schedule.map(Schedule::name)
        };
        assert_eq!(by(1_000_000), Some("recursive-doubling"));
        assert_eq!(by(10_000_000), Some("ring"));
    }
}
