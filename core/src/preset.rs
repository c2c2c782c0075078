//! Published systems, and Foldwire's own, as combinations of schedule, pipeline and codec.

use crate::bound::Bound;
use crate::codec::CodecId;
use crate::element::DType;
use crate::pipeline::{self, Pipeline};
use crate::plan::{Overlap, Plan};
use crate::schedule::{self, Collective, RecursiveDoubling, Schedule};

/// Most bytes of values that a message of MPICH's ring all-gather carries
/// (`MPIR_CVAR_ALLGATHERV_PIPELINE_MSG_SIZE`). The papers' baselines are built on it: the public
/// repository of SZx has their code (`example/ring.h`, 2023).
const MPICH_PIECE_BYTES: usize = 32 << 10;

/// Parts of a preset, and its origin.
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
    /// Published systems work message by message.
    overlap: Overlap,
    /// Pieces of an all-gather, in bytes; 0: parts travel whole.
    piece_bytes: usize,
}

/// Source of the schedule.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Schedules {
    /// As in the paper: rings and binomial trees.
    Fixed,
    /// As gZCCL: like `Fixed`, but short all-reduces use recursive doubling.
    Switched,
    /// Selected by Foldwire, as an MPI library does.
    Chosen,
}

/// ZCCL's algorithms with its codec on one thread. All other presets are given as changes to
/// another preset.
const ZCCL: PresetRow = PresetRow {
    name: "zccl",
    title: "ZCCL",
    source: "Huang et al., ZCCL (2025)",
    differs: "sizes travel with messages, which are whole parts; polls every 4096 values, not 5120",
    schedules: Schedules::Fixed,
    pipeline: pipeline::COMPRESS_ONCE,
    codec: CodecId::FzLight,
    setting: 0,
    is_threaded: false,
    overlap: Overlap::Polling,
    piece_bytes: 0,
};

/// Words for the difference of a published system in Foldwire's engine from its paper, behind those
/// for other differences.
macro_rules! in_engine {
    ($($others:literal)?) => {
        concat!($($others, "; ",)? "segments overlap; decompress, reduce and compress are one pass")
    };
}

/// Systems in which an MPI library encodes each message.
const IN_MESSAGES: PresetRow = PresetRow {
    schedules: Schedules::Chosen,
    pipeline: pipeline::PER_HOP,
    overlap: Overlap::Nothing,
    ..ZCCL
};

macro_rules! presets {
    ($($(#[$doc:meta])* $variant:ident: $row:expr;)*) => {
        /// A published system, or Foldwire's own, as a [`Plan`]. docs/algorithms.md lists the
        /// differences from the authors' systems.
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
    /// Plain collectives without compression, with a schedule that suits the length, as in MPI
    /// libraries.
    Raw: PresetRow {
        name: "raw",
        title: "MPI-like raw",
        source: "any MPI library",
        differs: "values travel in frames",
        schedules: Schedules::Chosen,
        pipeline: pipeline::RAW,
        codec: CodecId::Raw,
        overlap: Overlap::Segments,
        ..ZCCL
    };
    /// Plain collectives with the schedules of the papers, message by message: the MPI library that
    /// the papers compare with.
    RawRing: PresetRow {
        name: "raw-ring",
        title: "MPI-like raw ring",
        source: "baseline of Huang et al., ZCCL (2025)",
        differs: "values are copied to and from messages; an all-reduce gathers whole parts",
        schedules: Schedules::Fixed,
        overlap: Overlap::Nothing,
        piece_bytes: MPICH_PIECE_BYTES,
        ..Self::Raw.row()
    };
    /// Compression in every point-to-point message.
    Cprp2p: PresetRow {
        name: "cprp2p",
        title: "CPRP2P",
        source: "baseline of Huang et al., ZCCL (2025); Zhou et al., IPDPS'21",
        differs: "messages come from a pool; an all-reduce gathers whole parts",
        pipeline: pipeline::PER_HOP,
        overlap: Overlap::Nothing,
        piece_bytes: MPICH_PIECE_BYTES,
        ..ZCCL
    };
    /// CPRP2P in Foldwire's engine.
    Cprp2pPlus: PresetRow {
        name: "cprp2p+",
        title: "CPRP2P, our engine",
        differs: in_engine!(),
        overlap: Overlap::Segments,
        piece_bytes: 0,
        ..Self::Cprp2p.row()
    };
    /// CPRP2P with zfp at a fixed accuracy, `ZFP(ABS)`.
    Cprp2pZfp: PresetRow {
        name: "cprp2p-zfp",
        title: "CPRP2P, ZFP(ABS)",
        differs: "messages come from a pool; an all-reduce gathers whole parts; frames are passed \
                  on as they are, unless run as published; blocks that zfp would put beyond the \
                  bound are stored unchanged",
        codec: CodecId::ZfpAbs,
        ..Self::Cprp2p.row()
    };
    /// ZCCL: compress once, move, decompress once. Reductions decompress, reduce and compress in
    /// between.
    Zccl: ZCCL;
    /// ZCCL in Foldwire's engine.
    ZcclPlus: PresetRow {
        name: "zccl+",
        title: "ZCCL, our engine",
        differs: in_engine!(),
        overlap: Overlap::Segments,
        ..ZCCL
    };
    /// hZCCL: compressed blocks are added without decompression.
    Hzccl: PresetRow {
        name: "hzccl",
        title: "hZCCL",
        source: "Huang et al., hZCCL (SC'24)",
        differs: "all collectives, not all-reduce and reduce-scatter alone",
        pipeline: pipeline::HOMOMORPHIC,
        overlap: Overlap::Nothing,
        ..ZCCL
    };
    /// hZCCL in Foldwire's engine.
    HzcclPlus: PresetRow {
        name: "hzccl+",
        title: "hZCCL, our engine",
        differs: in_engine!("all collectives"),
        overlap: Overlap::Segments,
        ..Self::Hzccl.row()
    };
    /// gZCCL, according to a summary of its paper: short all-reduces use recursive doubling, which
    /// takes fewer compressions but more bytes. A scatter encodes all parts before it sends, on a
    /// device at the same time.
    Gzccl: PresetRow {
        name: "gzccl",
        title: "gZCCL-style",
        source: "Huang et al., gZCCL (ICS'24), by a summary",
        differs: "frames lie in host memory; partners continue with the same decoded sum",
        schedules: Schedules::Switched,
        codec: CodecId::CuSzp,
        overlap: Overlap::Nothing,
        ..ZCCL
    };
    /// gZCCL in Foldwire's engine.
    GzcclPlus: PresetRow {
        name: "gzccl+",
        title: "gZCCL, our engine",
        differs: in_engine!(
            "frames lie in host memory; partners continue with the same decoded sum"
        ),
        overlap: Overlap::Segments,
        ..Self::Gzccl.row()
    };
    /// Foldwire's own plan.
    Foldwire: PresetRow {
        name: "foldwire",
        title: "Foldwire",
        source: "this library",
        differs: "",
        schedules: Schedules::Chosen,
        pipeline: pipeline::FUSED,
        overlap: Overlap::Segments,
        ..ZCCL
    };
    /// Foldwire's own plan, exact or with one of several codecs, chosen for each call.
    Auto: PresetRow { name: "auto", title: "Foldwire, chosen", ..Self::Foldwire.row() };
    /// ZCCL with several threads per rank.
    ZcclMt: PresetRow { name: "zccl-mt", title: "ZCCL, threads", is_threaded: true, ..ZCCL };
    /// hZCCL with several threads per rank.
    HzcclMt: PresetRow {
        name: "hzccl-mt",
        title: "hZCCL, threads",
        is_threaded: true,
        ..Self::Hzccl.row()
    };
    /// hZCCL with the static pipeline, its baseline: all blocks are unpacked and packed again.
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
    /// C-Coll in Foldwire's engine.
    CCollPlus: PresetRow {
        name: "c-coll+",
        title: "C-Coll, our engine",
        differs: in_engine!(),
        overlap: Overlap::Segments,
        ..Self::CColl.row()
    };
    /// MPC-OPT: messages compressed without loss inside an MPI library. A device encodes the
    /// partitions of a long one at the same time.
    MpcOpt: PresetRow {
        name: "mpc-opt",
        title: "MPC-OPT",
        source: "Zhou et al., IPDPS'21",
        differs: "no size threshold unless the plan has one; one kernel decodes all partitions",
        codec: CodecId::Mpc,
        ..IN_MESSAGES
    };
    /// ZFP-OPT with 4 bits per value.
    ZfpOpt4: PresetRow {
        name: "zfp-opt-4",
        title: "ZFP-OPT, 4 bits",
        differs: "no size threshold unless the plan has one; one kernel decodes all partitions; \
                  frames are passed on as they are, unless run as published",
        codec: CodecId::ZfpRate,
        setting: 4,
        ..Self::MpcOpt.row()
    };
    /// ZFP-OPT with 8 bits per value.
    ZfpOpt8: PresetRow {
        name: "zfp-opt-8",
        title: "ZFP-OPT, 8 bits",
        setting: 8,
        ..Self::ZfpOpt4.row()
    };
    /// ZFP-OPT with 16 bits per value.
    ZfpOpt16: PresetRow {
        name: "zfp-opt-16",
        title: "ZFP-OPT, 16 bits",
        setting: 16,
        ..Self::ZfpOpt4.row()
    };
    /// Exact messages of CAM, the Community Atmosphere Model: XOR with the previous value.
    CamIntra: PresetRow {
        name: "cam-intra",
        title: "CAM, intra-step",
        source: "Santhosh Kumar et al., Parallel Computing (2008)",
        differs: "all collectives; no size threshold unless the plan has one",
        codec: CodecId::XorLz,
        ..IN_MESSAGES
    };
    /// CAM's exact messages: XOR with the previous time step, computed by the caller
    /// ([`InterStep`](crate::InterStep)).
    CamInter: PresetRow {
        name: "cam-inter",
        title: "CAM, inter-step",
        differs: "the caller takes the difference (InterStep); all collectives that only move; no \
                  size threshold unless the plan has one",
        codec: CodecId::Lz,
        ..Self::CamIntra.row()
    };
    /// CAM's lossy messages: the low 32 bits of each `f64` dropped, or the low 16 bits of each
    /// `f32`.
    CamLossy32: PresetRow {
        name: "cam-lossy32",
        title: "CAM, lossy 32",
        codec: CodecId::Truncate,
        ..Self::CamIntra.row()
    };
    /// CAM's messages in single precision, for `f64` only.
    CamSp: PresetRow {
        name: "cam-sp",
        title: "CAM, single",
        codec: CodecId::Demote,
        ..Self::CamIntra.row()
    };
    /// CAM's lossy and exact methods together: low bits dropped, then XOR with the previous time
    /// step, both by the caller ([`inter_step`](Self::inter_step)).
    CamBoth: PresetRow {
        name: "cam-both",
        title: "CAM, both",
        differs: "the caller drops bits and takes the difference (InterStep); all collectives that \
                  only move; no size threshold unless the plan has one",
        ..Self::CamInter.row()
    };
}

impl Preset {
    /// Presets that tables show by default: one for each way to compress and reduce.
    pub const MAIN: [Self; 6] =
        [Self::Raw, Self::Cprp2p, Self::Zccl, Self::Hzccl, Self::Gzccl, Self::Foldwire];

    /// Minimum bytes of a rank's share for gZCCL's all-reduce to use a ring (gZCCL, ICS'24: "about
    /// 5 MB").
    pub const RING_FROM: usize = 5_000_000;

    /// Name in lower case.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.row().name
    }

    /// Name as its authors write it, for tables and captions.
    #[must_use]
    pub const fn title(self) -> &'static str {
        self.row().title
    }

    /// Publication of the system.
    #[must_use]
    pub const fn source(self) -> &'static str {
        self.row().source
    }

    /// Differences from the published system, beyond those that docs/algorithms.md lists for all
    /// presets.
    #[must_use]
    pub const fn differs(self) -> &'static str {
        self.row().differs
    }

    /// Returns whether its plan works message by message ([`Overlap`]), as all published
    /// systems do. It then represents the system only if frames hold a whole part of the
    /// array. The same system in Foldwire's engine is another preset, whose name ends in `+`.
    #[must_use]
    pub const fn is_message_by_message(self) -> bool {
        !matches!(self.row().overlap, Overlap::Segments)
    }

    /// Number of low bits that the caller drops from values of this type when it takes the
    /// difference from the previous step ([`InterStep::dropping`](crate::InterStep::dropping)).
    /// `None` if messages hold the values themselves.
    #[must_use]
    pub const fn inter_step(self, dtype: DType) -> Option<u32> {
        match self {
            Self::CamInter => Some(0),
            // As cam-lossy32.
            Self::CamBoth => match CodecId::Truncate.setting(dtype, 0) {
                Some(n_bits) => Some(n_bits as u32),
                None => None,
            },
            _ => None,
        }
    }

    /// Returns whether a rank uses several [`threads`](crate::Config::threads) to compute.
    #[must_use]
    pub const fn is_threaded(self) -> bool {
        self.row().is_threaded
    }

    /// The preset as a plan for `collective`. A codec that keeps no bound gets none.
    #[must_use]
    pub fn plan(self, collective: Collective, bound: Bound) -> Plan {
        self.plan_for(collective, bound, 0)
    }

    /// Like [`plan`](Self::plan), for arrays in which each rank's share has `n_bytes`. Only gZCCL's
    /// all-reduce depends on that: it uses a ring from [`RING_FROM`](Self::RING_FROM) on.
    #[must_use]
    pub fn plan_for(self, collective: Collective, bound: Bound, n_bytes: usize) -> Plan {
        self.plan_switched(collective, bound, n_bytes, Self::RING_FROM)
    }

    /// Like [`plan_for`](Self::plan_for), with another number of bytes from which gZCCL uses a
    /// ring.
    #[must_use]
    pub fn plan_switched(
        self,
        collective: Collective,
        bound: Bound,
        n_bytes: usize,
        ring_from: usize,
    ) -> Plan {
        let PresetRow { schedules, pipeline, codec, setting, overlap, piece_bytes, .. } =
            self.row();
        let is_short = collective == Collective::AllReduce && n_bytes < ring_from;
        let schedule: Option<&dyn Schedule> = match schedules {
            Schedules::Chosen => None,
            Schedules::Switched if is_short => Some(&RecursiveDoubling),
            Schedules::Fixed | Schedules::Switched => Some(schedule::default_for(collective)),
        };
        let plan = match self {
            Self::Raw | Self::RawRing => Plan::raw(),
            Self::Foldwire => Plan::foldwire(bound),
            Self::Auto => Plan::auto(bound),
            _ => Plan::raw().compressed(pipeline, bound).with_codec(codec).with_setting(setting),
        };
        let piece_bytes = if collective == Collective::AllGather { piece_bytes } else { 0 };
        Plan { schedule, overlap, piece_bytes, ..plan }
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
            let keeps = plan.codec.loss() != Loss::Setting && plan.codec != CodecId::Raw;
            assert_eq!(plan.bound.is_some(), keeps, "{}", preset.name());
            let is_known = Preset::ALL.iter().filter(|known| known.name() == preset.name()).count();
            assert_eq!(is_known, 1);
        }
        assert!(Preset::MAIN.iter().all(|main| Preset::ALL.contains(main)));
    }

    #[test]
    fn cam_takes_differences_of_whole_values_or_of_halves() {
        let bits = |preset: Preset| [DType::F32, DType::F64].map(|dtype| preset.inter_step(dtype));
        assert_eq!(bits(Preset::CamInter), [Some(0); 2]);
        assert_eq!(bits(Preset::CamBoth), [Some(16), Some(32)]);
        assert_eq!(bits(Preset::CamIntra), [None; 2]);
        let plan = |preset: Preset| preset.plan(Collective::Gather, Bound::Absolute(1.0));
        assert_eq!(plan(Preset::CamBoth), plan(Preset::CamInter));
    }

    #[test]
    fn gzccl_switches_by_the_bytes_of_a_share() {
        let by = |n_bytes| {
            let plan = Preset::Gzccl.plan_for(Collective::AllReduce, Bound::Absolute(1.0), n_bytes);
            plan.schedule.map(Schedule::name)
        };
        assert_eq!(by(1_000_000), Some("recursive-doubling"));
        assert_eq!(by(10_000_000), Some("ring"));
        let (collective, bound) = (Collective::AllReduce, Bound::Absolute(1.0));
        let plan = Preset::Gzccl.plan_switched(collective, bound, 10_000_000, 20_000_000);
        assert_eq!(plan.schedule.map(Schedule::name), Some("recursive-doubling"));
        assert_eq!(plan.codec, CodecId::CuSzp);
    }

    /// Facts from the systems' public code: C-Coll's and ZCCL's codecs poll, in an all-reduce.
    #[test]
    fn only_codecs_of_zccl_and_c_coll_poll_and_only_baselines_gather_in_pieces() {
        let polls = [Preset::Zccl, Preset::ZcclMt, Preset::CColl];
        let in_pieces = [Preset::RawRing, Preset::Cprp2p, Preset::Cprp2pZfp];
        for &preset in Preset::ALL {
            let name = preset.name();
            let plan = |collective| preset.plan(collective, Bound::Absolute(1.0));
            let reduce = plan(Collective::AllReduce);
            assert_eq!(reduce.overlap == Overlap::Polling, polls.contains(&preset), "{name}");
            assert_eq!(reduce.piece_bytes, 0, "{name}");
            let piece = if in_pieces.contains(&preset) { 32_768 } else { 0 };
            assert_eq!(plan(Collective::AllGather).piece_bytes, piece, "{name}");
        }
    }
}
