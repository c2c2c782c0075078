//! Puts every bit pattern of `f32` through quantizing, encoding and decoding.
//!
//! There are only 2³² patterns, so the tests need no random values. A [`PatternCase`] is a codec
//! with a bound. A [`Trial`] puts batches of patterns through it at several kernel levels. It
//! checks what docs/guarantees.md guarantees for one operand:
//!
//! - A finite value stays finite, and its error is at most the bound, in exact arithmetic.
//! - NaN and infinities keep their bits. Without a bound, every value does.
//! - With the lattice codecs, each value becomes exactly what the documented quantizer gives.
//! - A stable codec does not change values that it has decoded.
//! - All levels give the same bytes and values.
//!
//! The result for a value must not depend on its neighbors. So the patterns come in three
//! [`PatternOrder`]s, from neighbors that differ little to blocks that mix small values with NaN.
//!
//! Cost: fz-light at three levels takes 20 to 80 ns for each value, mostly at the scalar level.
//! That is minutes for the whole range in one order. The tests take some of the patterns; `cargo
//! xtask patterns` takes all.

mod judge;
mod trial;

use foldwire::codec::{CodecId, Loss};
use foldwire::{Bound, Spacing};
use std::fmt;
use std::ops::AddAssign;

pub use trial::{PatternFailure, Trial};

/// Number of patterns that are encoded together: one chunk.
pub const BATCH: usize = foldwire::kernel::CHUNK;

/// Number of bit patterns.
pub const N_PATTERNS: u64 = 1 << 32;

/// Order of the patterns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatternOrder {
    /// Ascending as integers: neighbors differ in the last bits.
    Consecutive,
    /// Alternates both signs and eight binades: neighbors have nearly every magnitude that one
    /// block can hold without exceptions.
    Mixed,
    /// Spread over the whole range: blocks mix small values, values beyond the lattice, NaN and
    /// infinities.
    Scattered,
}

impl PatternOrder {
    /// All orders.
    pub const ALL: [Self; 3] = [Self::Consecutive, Self::Mixed, Self::Scattered];

    /// The name in lower case.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Consecutive => "consecutive",
            Self::Mixed => "mixed",
            Self::Scattered => "scattered",
        }
    }

    /// Returns the pattern at a position. Each order is a permutation.
    #[must_use]
    pub const fn pattern(self, place: u32) -> u32 {
        match self {
            Self::Consecutive => place,
            Self::Mixed => {
                let (sign, binade, mantissa, high) =
                    (place & 1, place >> 1 & 7, place >> 4 & 0x7f_ffff, place >> 27);
                sign << 31 | high << 26 | binade << 23 | mantissa
            }
            // 2³² divided by the golden ratio, rounded to an odd number.
            Self::Scattered => place.wrapping_mul(0x9e37_79b9),
        }
    }
}

/// Bound that a case requests of its codec.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Requirement {
    /// Every value keeps its bits.
    Exact,
    /// A bound that does not depend on the data, and the spacing of the lattice.
    Within(f64, Spacing),
    /// A bound that depends on each batch's value range.
    OfData(Bound),
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Exact => f.write_str("exact"),
            Self::Within(bound, Spacing::PowerOfTwo) => write!(f, "pow2:{bound:e}"),
            Self::Within(bound, _) => write!(f, "abs:{bound:e}"),
            Self::OfData(bound) => write!(f, "{bound}"),
        }
    }
}

/// A codec and the bound that it must keep.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PatternCase {
    /// The codec.
    pub codec: CodecId,
    /// The bound.
    pub requirement: Requirement,
    /// Number of operands in the sums that the codec leaves headroom for.
    pub n_operands: u32,
    /// The codec's setting; 0 is the default.
    pub setting: u16,
}

/// Bounds for every codec that keeps a bound: one in the middle of the range, one beyond its upper
/// end (clipped to the largest), and one at its lower end, where the step is the smallest normal
/// number.
const FOR_ALL: [Requirement; 4] = [
    Requirement::Exact,
    Requirement::Within(1e-3, Spacing::Widest),
    Requirement::Within(1e30, Spacing::Widest),
    Requirement::Within(6e-39, Spacing::PowerOfTwo),
];

/// More bounds, for fz-light.
const FOR_FZ_LIGHT: [Requirement; 11] = [
    Requirement::Within(1.0, Spacing::Widest),
    Requirement::Within(1e-30, Spacing::Widest),
    // Nearly the smallest bound that has a lattice, and one that has none.
    Requirement::Within(5.971e-39, Spacing::Widest),
    Requirement::Within(1e-40, Spacing::Widest),
    // A lattice of whole numbers; a bound that is not a power of two; the largest bound.
    Requirement::Within(0.5, Spacing::PowerOfTwo),
    Requirement::Within(1e-3, Spacing::PowerOfTwo),
    Requirement::Within(1e30, Spacing::PowerOfTwo),
    // The value range of consecutive patterns covers only their last bits.
    Requirement::OfData(Bound::Relative(1e-3)),
    Requirement::OfData(Bound::Relative(1e-6)),
    Requirement::OfData(Bound::Psnr(60.0)),
    Requirement::OfData(Bound::Psnr(120.0)),
];

impl PatternCase {
    const fn new(codec: CodecId, requirement: Requirement) -> Self {
        Self { codec, requirement, n_operands: 1, setting: 0 }
    }

    /// Returns every codec that keeps a bound or every bit, each with its bounds. fz-light comes
    /// first and has the most.
    #[must_use]
    pub fn all() -> Vec<Self> {
        let fz_light = FOR_ALL.iter().chain(&FOR_FZ_LIGHT);
        let mut cases: Vec<_> =
            fz_light.map(|&requirement| Self::new(CodecId::FzLight, requirement)).collect();
        // With 1000 operands, headroom limits the codes more than the limit for one operand does.
        cases.push(Self { n_operands: 1000, ..cases[1] });
        for &codec in CodecId::ALL.iter().filter(|&&codec| codec != CodecId::FzLight) {
            match codec.loss() {
                Loss::Bound => {
                    cases.extend(FOR_ALL.map(|requirement| Self::new(codec, requirement)));
                }
                Loss::None => {
                    cases.push(Self::new(codec, Requirement::Exact));
                    let setting = 64;
                    let has_settings =
                        codec.setting(foldwire::DType::F32, setting) == Some(setting);
                    cases.extend(
                        has_settings
                            .then_some(Self { setting, ..Self::new(codec, Requirement::Exact) }),
                    );
                }
                // The codec's setting decides the loss: there is no guarantee to check.
                _ => {}
            }
        }
        cases
    }
}

impl fmt::Display for PatternCase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.codec.name())?;
        if self.setting != 0 {
            write!(f, ":{}", self.setting)?;
        }
        write!(f, " {}", self.requirement)?;
        if self.n_operands > 1 {
            write!(f, " x{}", self.n_operands)?;
        }
        Ok(())
    }
}

/// Counts over values that kept all guarantees.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PatternTally {
    /// Number of values.
    pub n_values: u64,
    /// Number of values that are NaN or infinite.
    pub n_not_finite: u64,
    /// Number of finite values that came back with other bits.
    pub n_changed: u64,
    /// Bytes of the encodings.
    pub n_bytes: u64,
    /// Number of blocks with exceptions, if the codec counts them.
    pub n_blocks: u64,
    /// Number of exceptions in these blocks.
    pub n_exceptions: u64,
    /// Largest error, divided by the bound.
    pub worst: f64,
}

impl AddAssign for PatternTally {
    fn add_assign(&mut self, other: Self) {
        self.n_values += other.n_values;
        self.n_not_finite += other.n_not_finite;
        self.n_changed += other.n_changed;
        self.n_bytes += other.n_bytes;
        self.n_blocks += other.n_blocks;
        self.n_exceptions += other.n_exceptions;
        self.worst = self.worst.max(other.worst);
    }
}
