//! Where data is compressed, decompressed and reduced along a schedule.
//!
//! A pipeline is a row of three choices, which is all the engine asks of it:
//!
//! | pipeline | a frame that is only passed on | partial reductions are kept as | a rank's own values enter as |
//! |---|---|---|---|
//! | [`RAW`] | forwarded | frames | floats |
//! | [`PER_HOP`] | decoded and encoded again | floats | floats |
//! | [`COMPRESS_ONCE`] | forwarded | floats | floats |
//! | [`HOMOMORPHIC`] | forwarded | frames | a frame, encoded first |
//! | [`FUSED`] | forwarded | frames | floats |
//!
//! Adding one: a constant here and its line in [`ALL`].

use crate::codec::CodecId;
use crate::op::OpCode;

/// What happens to a frame that a rank passes on unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forwarding {
    /// The same bytes go on.
    Forward,
    /// Decoded, and encoded again.
    Recode,
}

/// In which form a rank keeps a partial reduction between two steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Partial {
    /// Floats: each received frame is decoded and added, and the sum encoded when it is sent.
    Floats,
    /// A frame: received frames are folded or combined into it.
    Frame,
}

/// How a rank's own values enter a reduction with a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperandForm {
    /// As they are, in the same pass.
    Floats,
    /// Encoded first; then frame ⊕ frame.
    Encoded,
}

/// Where data is compressed, decompressed and reduced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pipeline {
    /// The name in lower case.
    pub name: &'static str,
    /// What happens to frames that are passed on.
    pub passing: Forwarding,
    /// The form of partial reductions.
    pub partial: Partial,
    /// How own values enter.
    pub own: OperandForm,
}

impl Pipeline {
    /// The three choices as a number, for a frame's header.
    #[must_use]
    pub const fn code(&self) -> u8 {
        matches!(self.passing, Forwarding::Recode) as u8
            | (matches!(self.partial, Partial::Frame) as u8) << 1
            | (matches!(self.own, OperandForm::Encoded) as u8) << 2
    }

    /// Whether partial reductions are frames with this codec and operation. Products and user
    /// operations are not defined on codes, and some codecs cannot combine frames; then every
    /// pipeline keeps floats.
    #[must_use]
    pub fn keeps_frames(&self, codec: CodecId, op: OpCode) -> bool {
        let on_codes = !matches!(op, OpCode::Prod | OpCode::User);
        self.partial == Partial::Frame && codec.is_homomorphic() && (on_codes || codec.is_exact())
    }

    /// Whether frames that are passed on are encoded anew, with this codec and operation
    /// ([`OpCode::None`] if nothing is reduced). A sum that was kept as a frame goes on as it is:
    /// encoded anew as one operand it might leave the lattice, and its owner would hold other bits.
    #[must_use]
    pub fn recodes(&self, codec: CodecId, op: OpCode) -> bool {
        let is_sum = op != OpCode::None && self.keeps_frames(codec, op);
        self.passing == Forwarding::Recode && !codec.is_free() && !is_sum
    }

    /// Whether own values are encoded before they are combined, with this codec and operation.
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

/// C-Coll and ZCCL: what only moves is compressed once and forwarded; what is reduced is
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

/// Foldwire's own: a received frame and the rank's own floats go through one pass into the next
/// frame. The integers, and so the bytes, are those of [`HOMOMORPHIC`].
pub const FUSED: Pipeline = Pipeline {
    name: "fused",
    passing: Forwarding::Forward,
    partial: Partial::Frame,
    own: OperandForm::Floats,
};

/// Every pipeline.
pub const ALL: [Pipeline; 5] = [RAW, PER_HOP, COMPRESS_ONCE, HOMOMORPHIC, FUSED];
