//! Pipelines: where data is compressed, decompressed and reduced along a schedule.
//!
//! A pipeline is data, not code. It makes three choices, which are all that the engine needs:
//!
//! | pipeline | a frame that is only passed on | partial reductions are kept as | local input is combined as |
//! |---|---|---|---|
//! | [`RAW`] | forwarded | frames | floats |
//! | [`PER_HOP`] | decoded and encoded again | floats | floats |
//! | [`COMPRESS_ONCE`] | forwarded | floats | floats |
//! | [`HOMOMORPHIC`] | forwarded | frames | a frame, encoded first |
//! | [`FUSED`] | forwarded | frames | floats |
//!
//! To add a pipeline, define a constant here and add it to [`ALL`]. ARCHITECTURE.md lists what else
//! belongs to it.

use crate::codec::CodecId;
use crate::op::OpCode;

/// Treatment of a frame that a rank passes on unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forwarding {
    /// The same bytes are forwarded.
    Forward,
    /// The frame is decoded and encoded again.
    Recode,
}

/// Form in which a rank keeps a partial reduction between two steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Partial {
    /// Floats: each received frame is decoded and added. The sum is encoded when it is sent.
    Floats,
    /// A frame: received frames are folded or combined into it.
    Frame,
}

/// Form in which a rank combines its own input with a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperandForm {
    /// Floats as they are, in the same pass.
    Floats,
    /// A frame: the input is encoded first, then frame ⊕ frame.
    Encoded,
}

/// Choice of where data is compressed, decompressed and reduced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pipeline {
    /// The name in lower case.
    pub name: &'static str,
    /// Treatment of frames that are passed on.
    pub passing: Forwarding,
    /// Form of partial reductions.
    pub partial: Partial,
    /// Form in which local input is combined.
    pub own: OperandForm,
}

impl Pipeline {
    /// Returns the three choices as a number, for a frame's header.
    #[must_use]
    pub const fn code(&self) -> u8 {
        matches!(self.passing, Forwarding::Recode) as u8
            | (matches!(self.partial, Partial::Frame) as u8) << 1
            | (matches!(self.own, OperandForm::Encoded) as u8) << 2
    }

    /// Returns whether partial reductions are frames with this codec and operation. Products and
    /// user operations are not defined on the codes of lossy codecs, and some codecs cannot combine
    /// frames. In these cases every pipeline keeps floats.
    #[must_use]
    pub fn keeps_frames(&self, codec: CodecId, op: OpCode) -> bool {
        let on_codes = !op.needs_values() || codec.is_exact();
        self.partial == Partial::Frame && codec.is_homomorphic() && on_codes
    }

    /// Returns whether frames that are passed on are encoded again, with this codec and operation
    /// ([`OpCode::None`] if nothing is reduced). A sum that was kept as a frame is forwarded
    /// unchanged. If it were encoded again as one operand, it might leave the lattice. The rank
    /// that made the sum would then have different bits.
    #[must_use]
    pub fn recodes(&self, codec: CodecId, op: OpCode) -> bool {
        let is_sum = op != OpCode::None && self.keeps_frames(codec, op);
        self.passing == Forwarding::Recode && !codec.is_free() && !is_sum
    }

    /// Returns whether local input is encoded before it is combined, with this codec and operation.
    #[must_use]
    pub fn encodes_own(&self, codec: CodecId, op: OpCode) -> bool {
        self.own == OperandForm::Encoded && self.keeps_frames(codec, op) && !codec.is_free()
    }
}

/// Plain collectives, for the raw codec: values are added in place in the received frame.
pub const RAW: Pipeline = Pipeline {
    name: "raw",
    passing: Forwarding::Forward,
    partial: Partial::Frame,
    own: OperandForm::Floats,
};

/// CPRP2P: every message is compressed by its sender and decompressed by its receiver (Zhou et al.,
/// IPDPS'21).
pub const PER_HOP: Pipeline = Pipeline {
    name: "per-hop",
    passing: Forwarding::Recode,
    partial: Partial::Floats,
    own: OperandForm::Floats,
};

/// C-Coll and ZCCL: data that only moves is compressed once and forwarded. Data that is reduced is
/// decompressed, reduced and compressed (Huang et al., ZCCL).
pub const COMPRESS_ONCE: Pipeline = Pipeline {
    name: "compress-once",
    passing: Forwarding::Forward,
    partial: Partial::Floats,
    own: OperandForm::Floats,
};

/// hZCCL: every rank compresses its own block, and compressed blocks are added (Huang et al.,
/// SC'24).
pub const HOMOMORPHIC: Pipeline = Pipeline {
    name: "homomorphic",
    passing: Forwarding::Forward,
    partial: Partial::Frame,
    own: OperandForm::Encoded,
};

/// Foldwire's own pipeline: one pass turns a received frame and the local floats into the next
/// frame. The integers, and so the bytes, equal those of [`HOMOMORPHIC`].
pub const FUSED: Pipeline = Pipeline {
    name: "fused",
    passing: Forwarding::Forward,
    partial: Partial::Frame,
    own: OperandForm::Floats,
};

/// Every pipeline.
pub const ALL: [Pipeline; 5] = [RAW, PER_HOP, COMPRESS_ONCE, HOMOMORPHIC, FUSED];
