//! A row of the product schedule × pipeline × codec.

mod rounding;

pub use rounding::Rounding;

use crate::bound::{Bound, Scope, Spacing};
use crate::codec::{self, CodecId, Loss, Prediction};
use crate::element::DType;
use crate::pipeline::{self, Pipeline};
#[cfg(doc)]
use crate::preset::Preset;
use crate::schedule::{Division, Schedule};
#[cfg(doc)]
use crate::select;
use core::{fmt, ptr};

/// From so many values on, [`Sampling::Auto`] samples.
const LONG: usize = 1 << 20;

/// How a collective is to be carried out. All ranks of a call must use the same.
///
/// More fields may come. Start from [`Plan::raw`], [`Plan::foldwire`] or [`Preset::plan`], and
/// change it by methods or by fields.
///
/// # Examples
/// ```
/// use foldwire::{Bound, Plan, Scope, schedule};
///
/// let plan = Plan::foldwire(Bound::Relative(1e-4))
///     .with_scope(Scope::Result)
///     .with_schedule(&schedule::RecursiveDoubling);
/// # let _ = plan;
///
/// // With other parts than the preset's.
/// let other = plan
///     .with_pipeline(foldwire::pipeline::COMPRESS_ONCE)
///     .with_division(foldwire::layout::Division::Blocks);
/// # let _ = other;
/// ```
#[derive(Clone, Copy)]
#[non_exhaustive]
pub struct Plan {
    /// Who talks to whom; `None`: what [`select::schedule`] thinks fastest.
    pub schedule: Option<&'static dyn Schedule>,
    /// Where data is compressed and reduced.
    pub pipeline: Pipeline,
    /// How values become bytes.
    pub codec: CodecId,
    /// The codec's own number, as the rate of one or how many bits another drops; 0 for its default
    /// ([`CodecId::setting`]).
    pub setting: u16,
    /// How far apart the array's rows are, and its planes, in values; 0 if that is not known
    /// ([`with_shape`](Plan::with_shape)).
    pub strides: [u32; 2],
    /// What values are predicted from ([`with_prediction`](Plan::with_prediction)).
    pub prediction: Prediction,
    /// The error allowed; `None`: no error (lossy codecs then store values as they are).
    pub bound: Option<Bound>,
    /// What the bound bounds.
    pub scope: Scope,
    /// How far apart the values are that the bound lets a lossy codec choose from.
    pub spacing: Spacing,
    /// To which points a lossy codec's values are rounded.
    pub rounding: Rounding,
    /// How an all-reduce divides the array.
    pub division: Division,
    /// Whether a relative bound may be taken of a sample.
    pub sampling: Sampling,
    /// Arrays of fewer bytes in all travel as they are, without a look at them.
    pub exact_below: usize,
    /// Whether all ranks get the same bits ([`as_published`](Plan::as_published)).
    pub same_bits: bool,
    /// Whether codec and pipeline are chosen for each call ([`auto`](Plan::auto)).
    pub is_auto: bool,
}

/// Whether the range that [`Bound::Relative`] and [`Bound::Psnr`] refer to may be that of a sample:
/// one block of 32 values in 64 of each rank's data.
///
/// A sample's range is at most the whole range, so the bound is at most the one asked for, and
/// never broken; it is in [`Report::bound`](crate::Report::bound). Where the halves of the sample
/// disagree, all data are looked at after all. With a bound on the result ([`Scope::Result`]) they
/// always are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Sampling {
    /// Sample arrays of 2²⁰ values or more, where another pass over the data would show.
    #[default]
    Auto,
    /// Sample arrays of any length.
    Always,
    /// Look at all data.
    Never,
}

/// Plans are equal if calls by them are, whatever the data.
impl PartialEq for Plan {
    fn eq(&self, other: &Self) -> bool {
        let Self {
            schedule,
            pipeline,
            codec,
            setting,
            strides,
            prediction,
            bound,
            scope,
            spacing,
            rounding,
            division,
            sampling,
            exact_below,
            same_bits,
            is_auto,
        } = *self;
        // Schedules without data may all have the same address.
        let same_schedule = match (schedule, other.schedule) {
            (None, None) => true,
            (Some(a), Some(b)) => ptr::addr_eq(a, b) && a.name() == b.name(),
            _ => false,
        };
        same_schedule
            && pipeline.code() == other.pipeline.code()
            && (codec, setting) == (other.codec, other.setting)
            && (strides, prediction) == (other.strides, other.prediction)
            && (bound, scope, spacing) == (other.bound, other.scope, other.spacing)
            && (rounding, division, sampling) == (other.rounding, other.division, other.sampling)
            && (exact_below, same_bits) == (other.exact_below, other.same_bits)
            && is_auto == other.is_auto
    }
}

impl Plan {
    /// No compression.
    #[must_use]
    pub const fn raw() -> Self {
        Self {
            schedule: None,
            pipeline: pipeline::RAW,
            codec: CodecId::Raw,
            setting: 0,
            strides: [0; 2],
            prediction: Prediction::Auto,
            bound: None,
            scope: Scope::PerOperand,
            spacing: Spacing::Widest,
            rounding: Rounding::Nearest,
            division: Division::Blocks,
            sampling: Sampling::Auto,
            exact_below: 0,
            same_bits: true,
            is_auto: false,
        }
    }

    /// The same, with nothing lost.
    pub(crate) const fn exactly(self) -> Self {
        let (pipeline, codec) = (pipeline::RAW, CodecId::Raw);
        Self { pipeline, codec, setting: 0, bound: None, is_auto: false, ..self }
    }

    /// The plan as it applies to values of this type: exact if its codec is
    /// [not for them](CodecId::is_for), as for integers.
    #[must_use]
    pub const fn for_values(self, dtype: DType) -> Self {
        if self.codec.is_for(dtype) { self } else { self.exactly() }
    }

    /// Foldwire's own way: fZ-light, folded in one pass, parts of equal weight.
    #[must_use]
    pub const fn foldwire(bound: Bound) -> Self {
        let mut plan = Self::raw().compressed(pipeline::FUSED, bound);
        plan.division = Division::Interleaved;
        plan
    }

    /// Exact compression: of each chunk the exact codec that a sample says is shortest
    /// ([`CodecId::Lossless`]). Reductions are floating-point sums, as those of [`raw`](Plan::raw).
    ///
    /// # Examples
    /// ```
    /// use foldwire::Plan;
    ///
    /// let plan = Plan::lossless();
    /// assert!(plan.codec.is_exact() && plan.bound.is_none());
    /// ```
    #[must_use]
    pub const fn lossless() -> Self {
        let mut plan = Self::raw();
        plan.pipeline = pipeline::COMPRESS_ONCE;
        plan.codec = CodecId::Lossless;
        plan
    }

    /// What a call should do, chosen for each: exactly or within the bound, by which codec, by
    /// which schedule. [`select::plan`] says how, from the length of the array, the number of
    /// ranks, the [rate of links](crate::Config::link_rate), the machine's
    /// [speeds](crate::Config::speeds), and where the call is long enough for that from what a
    /// sample of all ranks' data says of its ratio. Where nobody tells the rate of links, first
    /// calls measure it, which takes a 16th of their bytes at most (with the feature `alloc`; until
    /// then links count as 10 Gbit/s, memory that ranks of a node share as 3 GB/s). There, too,
    /// where exact and compressed calls are expected to take about as long, the third to tenth call
    /// of the same collective, operation, type, bound and length (by powers of two) are made
    /// exactly and compressed in turn and timed; later ones keep to what was sooner. Ranks of one
    /// process, which hand frames over, measure no links: their calls are exact, but for arrays of
    /// a MiB or more that nobody reduces, which are tried so. What was chosen is in the
    /// [report](crate::Report::codec), and [why](crate::Report::plan). Products and operations of
    /// the user's, of which no bound can be kept, are exact. Messages between two ranks go as by
    /// [`foldwire`](Plan::foldwire).
    ///
    /// What is pinned by methods afterwards stays: a schedule; codec or pipeline
    /// ([`with_codec`](Plan::with_codec), [`with_pipeline`](Plan::with_pipeline)), of which the
    /// other then is that of [`foldwire`](Plan::foldwire).
    ///
    /// # Examples
    /// ```
    /// use foldwire::{Bound, Plan};
    ///
    /// let plan = Plan::auto(Bound::Relative(1e-4)).with_shape(&[110, 64, 128]);
    /// # let _ = plan;
    /// ```
    #[must_use]
    pub const fn auto(bound: Bound) -> Self {
        let mut plan = Self::foldwire(bound);
        plan.is_auto = true;
        plan
    }

    /// The same with fZ-light in this pipeline.
    #[must_use]
    pub const fn compressed(mut self, pipeline: Pipeline, bound: Bound) -> Self {
        self.pipeline = pipeline;
        self.codec = CodecId::FzLight;
        self.bound = Some(bound);
        self.is_auto = false;
        self
    }

    /// The same with another schedule.
    #[must_use]
    pub const fn with_schedule(mut self, schedule: &'static dyn Schedule) -> Self {
        self.schedule = Some(schedule);
        self
    }

    /// The same in another pipeline.
    #[must_use]
    pub const fn with_pipeline(mut self, pipeline: Pipeline) -> Self {
        self.pipeline = pipeline;
        self.is_auto = false;
        self
    }

    /// The same with another codec, at its default setting; without the bound if it keeps none.
    ///
    /// # Examples
    /// ```
    /// use foldwire::{Bound, Plan, codec::CodecId};
    ///
    /// let plan = Plan::foldwire(Bound::Relative(1e-3));
    /// assert!(plan.with_codec(CodecId::FzLight).bound.is_some());
    /// // What this one loses its setting says: here the 40 low bits of each `f64`.
    /// assert!(plan.with_codec(CodecId::Truncate).with_setting(40).bound.is_none());
    /// ```
    #[must_use]
    pub const fn with_codec(mut self, codec: CodecId) -> Self {
        self.codec = codec;
        self.setting = 0;
        self.is_auto = false;
        if matches!(codec.loss(), Loss::Setting) {
            self.bound = None;
        }
        self
    }

    /// The same with another setting of its codec.
    #[must_use]
    pub const fn with_setting(mut self, setting: u16) -> Self {
        self.setting = setting;
        self
    }

    /// The same for an array of this shape, slowest dimension first, as `[8, 110, 64, 128]`. Codecs
    /// that predict values from more than the one before ([`CodecId::takes_shape`]) look along its
    /// last three dimensions. It changes no value. Without it, a rank that has 2¹⁸ values or more
    /// looks for rows and planes in them, which takes 0.1 ms or 0.2. Ranks may differ in it, but of
    /// an automatic plan ([`auto`](Plan::auto)) either all or none must know a shape, as the codec
    /// may hang on that.
    ///
    /// # Examples
    /// ```
    /// use foldwire::{Bound, Plan, codec::CodecId};
    ///
    /// let plan = Plan::foldwire(Bound::Relative(1e-3)).with_codec(CodecId::Dense);
    /// assert_eq!(plan.with_shape(&[110, 64, 128]).strides, [128, 64 * 128]);
    /// ```
    #[must_use]
    pub fn with_shape(mut self, shape: &[usize]) -> Self {
        self.strides = codec::strides(shape);
        self
    }

    /// The same with values predicted so, by codecs that [take a shape](CodecId::takes_shape),
    /// instead of as is best for each chunk. It changes no value.
    #[must_use]
    pub const fn with_prediction(mut self, prediction: Prediction) -> Self {
        self.prediction = prediction;
        self
    }

    /// The same within another bound.
    #[must_use]
    pub const fn with_bound(mut self, bound: Bound) -> Self {
        self.bound = Some(bound);
        self
    }

    /// The same with another division of the array.
    #[must_use]
    pub const fn with_division(mut self, division: Division) -> Self {
        self.division = division;
        self
    }

    /// The same with another way to find the range of the data.
    #[must_use]
    pub const fn with_sampling(mut self, sampling: Sampling) -> Self {
        self.sampling = sampling;
        self
    }

    /// The same for arrays of `n_bytes` in all or more; shorter ones travel as they are, which is
    /// exact, and takes fewer messages and less time where messages cost more than bytes. Their
    /// sums are floating-point sums, whose rounding depends on the schedule. Where no rank knows
    /// the length of all (`all_to_all_v`), it has no effect.
    #[must_use]
    pub const fn with_exact_below(mut self, n_bytes: usize) -> Self {
        self.exact_below = n_bytes;
        self
    }

    /// The same without the promise that all ranks get the same bits, which systems as published do
    /// not make.
    ///
    /// A rank then keeps what it has made as it is, where it would otherwise take what the others
    /// decode, which saves it a decompression; and pipelines that encode anew what they pass on do
    /// so with every codec, where encoding a decoded value changes it too. Each rank may choose for
    /// itself.
    #[must_use]
    pub const fn as_published(mut self) -> Self {
        self.same_bits = false;
        self
    }

    /// The same with another scope of the bound.
    #[must_use]
    pub const fn with_scope(mut self, scope: Scope) -> Self {
        self.scope = scope;
        self
    }

    /// The same with another spacing of the lattice. With [`Spacing::PowerOfTwo`] counts, masks and
    /// indices come through exactly, and so do their sums.
    ///
    /// # Examples
    /// ```
    /// use foldwire::{Bound, Plan, Spacing};
    ///
    /// // Whole numbers.
    /// let plan = Plan::foldwire(Bound::Absolute(0.5)).with_spacing(Spacing::PowerOfTwo);
    /// # let _ = plan;
    /// ```
    #[must_use]
    pub const fn with_spacing(mut self, spacing: Spacing) -> Self {
        self.spacing = spacing;
        self
    }

    /// The same with another rounding of each rank's own values, as without bias
    /// ([`Rounding::unbiased`]), which all-reduces, all-gathers, and reduce-scatters in place and
    /// to the front can do. All ranks must choose the same; seeds may differ.
    ///
    /// # Examples
    /// ```
    /// use foldwire::{Bound, Plan, Rounding};
    ///
    /// let step = 17;
    /// let plan = Plan::foldwire(Bound::Relative(0.1)).with_rounding(Rounding::unbiased(step));
    /// # let _ = plan;
    /// ```
    #[must_use]
    pub const fn with_rounding(mut self, rounding: Rounding) -> Self {
        self.rounding = rounding;
        self
    }

    /// Whether a call must learn the extent of all ranks' data before it can begin.
    #[must_use]
    pub fn needs_extent(&self) -> bool {
        !self.codec.is_exact()
            && self.bound.is_some_and(|bound| bound.needs_extent() || self.scope == Scope::Result)
    }

    /// Whether a call on `count` values that [needs the extent](Self::needs_extent) takes it of a
    /// sample first.
    #[must_use]
    pub fn samples(&self, count: usize) -> bool {
        // A bound on the result needs the largest magnitude for its rounding.
        let may = self.scope == Scope::PerOperand;
        match self.sampling {
            Sampling::Auto => may && count >= LONG,
            Sampling::Always => may,
            Sampling::Never => false,
        }
    }
}

impl fmt::Debug for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let schedule = self.schedule.map_or("any schedule", Schedule::name);
        if self.is_auto {
            f.write_str("chosen for each call; else ")?;
        }
        write!(f, "{schedule} × {} × {}", self.pipeline.name, self.codec.name())?;
        if self.setting != 0 {
            write!(f, " at {}", self.setting)?;
        }
        if self.strides[0] != 0 {
            write!(f, ", rows {} apart, planes {}", self.strides[0], self.strides[1])?;
        }
        if self.prediction != Prediction::Auto {
            write!(f, ", predicted by {}", self.prediction.name())?;
        }
        write!(f, ", {:?} ({:?}, {:?})", self.bound, self.scope, self.spacing)?;
        if self.rounding != Rounding::Nearest {
            write!(f, ", {:?}", self.rounding)?;
        }
        write!(f, ", {:?}, sampling {:?}", self.division, self.sampling)?;
        if self.exact_below > 0 {
            write!(f, ", exact below {} bytes", self.exact_below)?;
        }
        f.write_str(if self.same_bits { "" } else { ", as published" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_long_arrays_and_bounds_on_operands_are_sampled() {
        let plan = Plan::foldwire(Bound::Relative(1e-3));
        assert!(plan.samples(LONG) && !plan.samples(LONG - 1));
        assert!(!plan.with_scope(Scope::Result).samples(LONG));
        assert!(!plan.with_sampling(Sampling::Never).samples(LONG));
        assert!(plan.with_sampling(Sampling::Always).samples(1));
    }
}
