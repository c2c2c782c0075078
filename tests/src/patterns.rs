//! Every bit pattern of `f32` through quantising, encoding and decoding.
//!
//! There are only 2³² of them, so that nothing need be drawn at random. A [`PatternCase`] is a codec with
//! a bound; a [`Trial`] puts batches of patterns through it at several kernel levels, and holds
//! what comes back to what docs/guarantees.md promises of one operand:
//!
//! - no finite value is off by more than the bound, in exact arithmetic, and stays finite;
//! - NaN and infinities keep their bits, and without a bound every value does;
//! - with fz-light, of which it is written down, each value becomes what its quantiser says;
//! - a stable codec changes nothing of what it has decoded;
//! - all levels give the same bytes and values.
//!
//! What a value becomes may not depend on its neighbours, so they come in three [`PatternOrder`]s, from
//! such that differ little to such that share blocks with NaN.
//!
//! Cost: by fz-light at three levels 20 to 80 ns a value, most of it at the scalar one: minutes for
//! the whole range in one order. The tests take a slice, `cargo xtask patterns` all.

mod judge;
mod trial;

use foldwire::codec::{CodecId, Loss};
use foldwire::{Bound, Spacing};
use std::fmt;
use std::ops::AddAssign;

pub use trial::{PatternFailure, Trial};

/// Patterns that are encoded together: a chunk.
pub const BATCH: usize = foldwire::kernel::CHUNK;

/// All patterns there are.
pub const N_PATTERNS: u64 = 1 << 32;

/// Which pattern follows which.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatternOrder {
    /// By the pattern as a number: neighbours differ in the last bits.
    Consecutive,
    /// Both signs of eight binades take turns: neighbours of nearly every magnitude that one block
    /// can have without exceptions.
    Mixed,
    /// All over the range: small values, values beyond the lattice, NaN and infinities in one
    /// block.
    Scattered,
}

impl PatternOrder {
    /// All of them.
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

    /// The pattern at a place. Each order is a permutation.
    #[must_use]
    pub const fn pattern(self, place: u32) -> u32 {
        match self {
            Self::Consecutive => place,
            Self::Mixed => {
                let (sign, binade, mantissa, high) =
                    (place & 1, place >> 1 & 7, place >> 4 & 0x7f_ffff, place >> 27);
                sign << 31 | high << 26 | binade << 23 | mantissa
            }
            // The golden ratio's share of 2³², an odd number.
            Self::Scattered => place.wrapping_mul(0x9e37_79b9),
        }
    }
}

/// What a case asks of its codec.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Requirement {
    /// Every bit.
    Exact,
    /// A bound that does not depend on the data, and how far apart points may be.
    Within(f64, Spacing),
    /// A bound that each batch's extent decides.
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

/// A codec and what is asked of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PatternCase {
    /// The codec.
    pub codec: CodecId,
    /// What is asked of it.
    pub requirement: Requirement,
    /// Operands of the sums that it is made for: head-room.
    pub n_operands: u32,
    /// Its setting; 0 for the default.
    pub setting: u16,
}

/// Bounds for every codec that keeps one: in the middle of the range, beyond its upper end, where
/// each is clipped to the same, and at its lower end, where the step is the smallest normal number.
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
    // The smallest, but for some last bits, that has a lattice, and one that has none.
    Requirement::Within(5.971e-39, Spacing::Widest),
    Requirement::Within(1e-40, Spacing::Widest),
    // Whole numbers; a bound that is no power of two itself; the largest.
    Requirement::Within(0.5, Spacing::PowerOfTwo),
    Requirement::Within(1e-3, Spacing::PowerOfTwo),
    Requirement::Within(1e30, Spacing::PowerOfTwo),
    // A range of neighbours is some last bits of them.
    Requirement::OfData(Bound::Relative(1e-3)),
    Requirement::OfData(Bound::Relative(1e-6)),
    Requirement::OfData(Bound::Psnr(60.0)),
    Requirement::OfData(Bound::Psnr(120.0)),
];

impl PatternCase {
    const fn new(codec: CodecId, requirement: Requirement) -> Self {
        Self { codec, requirement, n_operands: 1, setting: 0 }
    }

    /// Every codec that keeps a bound or every bit, each with its bounds; fz-light first, with
    /// most.
    #[must_use]
    pub fn all() -> Vec<Self> {
        let fz_light = FOR_ALL.iter().chain(&FOR_FZ_LIGHT);
        let mut cases: Vec<_> =
            fz_light.map(|&requirement| Self::new(CodecId::FzLight, requirement)).collect();
        // Codes of so many operands have less room than the limit for one.
        cases.push(Self { n_operands: 1000, ..cases[1] });
        for &codec in CodecId::ALL.iter().filter(|&&codec| codec != CodecId::FzLight) {
            match codec.loss() {
                Loss::Bound => {
                    cases.extend(FOR_ALL.map(|requirement| Self::new(codec, requirement)))
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
                // As its setting says: there is no promise to hold it to.
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

/// What was seen of values that kept all promises.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PatternTally {
    /// Values.
    pub n_values: u64,
    /// Those that are NaN or infinite.
    pub n_not_finite: u64,
    /// Finite values that came back with other bits.
    pub n_changed: u64,
    /// Bytes of the encodings.
    pub n_bytes: u64,
    /// Blocks with exceptions, where the codec says so, and exceptions in them.
    pub n_blocks: u64,
    /// See `n_blocks`.
    pub n_exceptions: u64,
    /// The largest error in units of the bound.
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
