//! A plan: one combination of schedule, pipeline and codec.

mod debug;
mod overlap;
mod rounding;
mod sampling;
#[cfg(feature = "alloc")]
mod spec;

pub use overlap::Overlap;
pub use rounding::Rounding;
pub use sampling::Sampling;
#[cfg(feature = "alloc")]
pub use spec::{Mode, ParsePlanError, PlanConflict, PlanSpec, codec_named, schedule_named};

use crate::bound::{Bound, Quantum, Scope, Spacing};
use crate::codec::{self, CodecId, CodecParams, Loss, Prediction, Sizes};
use crate::element::DType;
use crate::fill::{Fill, Marks};
use crate::pipeline::{self, Forwarding, Pipeline};
#[cfg(doc)]
use crate::preset::Preset;
use crate::schedule::{Division, Schedule};
#[cfg(doc)]
use crate::select;
use core::ptr;

/// How a collective is carried out. All ranks of a call must use the same plan.
///
/// More fields may follow. Start from [`Plan::raw`], [`Plan::foldwire`] or [`Preset::plan`], and
/// change the plan with methods or fields.
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
/// // With another pipeline and division than the preset's.
/// let other = plan
///     .with_pipeline(foldwire::pipeline::COMPRESS_ONCE)
///     .with_division(foldwire::layout::Division::Blocks);
/// # let _ = other;
/// ```
#[derive(Clone, Copy)]
#[non_exhaustive]
pub struct Plan {
    /// The schedule; `None`: the one that [`select::schedule`] expects to be fastest.
    pub schedule: Option<&'static dyn Schedule>,
    /// The pipeline: the points at which data is compressed and reduced.
    pub pipeline: Pipeline,
    /// Codec that encodes the values.
    pub codec: CodecId,
    /// Setting of the codec, such as its rate or the number of bits that it drops; 0 for the
    /// codec's default ([`CodecId::setting`]).
    pub setting: u16,
    /// Distance between the array's rows, and between its planes, in values; 0 if unknown
    /// ([`with_shape`](Plan::with_shape)).
    pub strides: [u32; 2],
    /// Neighbours that values are predicted from ([`with_prediction`](Plan::with_prediction)).
    pub prediction: Prediction,
    /// The allowed error; `None`: no error (lossy codecs then store values unchanged).
    pub bound: Option<Bound>,
    /// Values that the bound applies to.
    pub scope: Scope,
    /// Rule by which a lossy codec chooses the spacing of its lattice within the bound.
    pub spacing: Spacing,
    /// Rule by which a lossy codec rounds each rank's input to lattice points.
    pub rounding: Rounding,
    /// Division of the array in an all-reduce.
    pub division: Division,
    /// Permission to take the value range of a relative bound from a sample.
    pub sampling: Sampling,
    /// Minimum number of bytes of the whole array for lossy codecs and scans. Shorter arrays travel
    /// unchanged.
    pub exact_below: usize,
    /// True if all ranks get the same bits ([`as_published`](Plan::as_published)).
    pub same_bits: bool,
    /// Work that a rank does while its messages move ([`with_overlap`](Plan::with_overlap)).
    pub overlap: Overlap,
    /// Most lanes of a collective ([`with_lanes`](Plan::with_lanes)); 0: as many as the
    /// communicator has.
    pub lanes: usize,
    /// Most bytes of values, before compression, that a message of a collective carries of one
    /// part ([`with_pieces`](Plan::with_pieces)); 0: as many as fit a frame.
    pub piece_bytes: usize,
    /// Value that stands for missing data ([`with_fill`](Plan::with_fill)).
    pub fill: Option<Fill>,
    /// True if calls fail where a fill value is suspected ([`refusing_fill`](Plan::refusing_fill)).
    pub refuses_fill: bool,
    /// True if codec and pipeline are chosen for each call ([`auto`](Plan::auto)).
    pub is_auto: bool,
}

/// Plans are equal if calls with them are equal for all data.
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
            overlap,
            lanes,
            piece_bytes,
            fill,
            refuses_fill,
            is_auto,
        } = self;
        let theirs = &other.pipeline;
        // Zero-sized schedules may all have the same address, so compare names too.
        let same_schedule = match (schedule, other.schedule) {
            (None, None) => true,
            (Some(a), Some(b)) => ptr::addr_eq(*a, b) && a.name() == b.name(),
            _ => false,
        };
        // Every call compares its plan with earlier ones, so nothing is copied here.
        same_schedule
            && (pipeline.passing, pipeline.partial) == (theirs.passing, theirs.partial)
            && (pipeline.own, *codec) == (theirs.own, other.codec)
            && (*setting, *prediction) == (other.setting, other.prediction)
            && strides == &other.strides
            && bound == &other.bound
            && (*scope, *spacing) == (other.scope, other.spacing)
            && rounding == &other.rounding
            && (*division, *sampling) == (other.division, other.sampling)
            && (*exact_below, *same_bits) == (other.exact_below, other.same_bits)
            && (*overlap, *is_auto) == (other.overlap, other.is_auto)
            && (piece_bytes, fill) == (&other.piece_bytes, &other.fill)
            && (*lanes, *refuses_fill) == (other.lanes, other.refuses_fill)
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
            overlap: Overlap::Segments,
            lanes: 0,
            piece_bytes: 0,
            fill: None,
            refuses_fill: false,
            is_auto: false,
        }
    }

    /// The same plan without compression.
    pub(crate) const fn exactly(self) -> Self {
        let (pipeline, codec) = (pipeline::RAW, CodecId::Raw);
        Self { pipeline, codec, setting: 0, bound: None, is_auto: false, ..self }
    }

    /// The plan as it applies to values of this type: exact if its codec [does not
    /// support](CodecId::is_for) the type, as for integers. Integers have no fill value.
    #[must_use]
    pub const fn for_values(self, dtype: DType) -> Self {
        let plan = if self.codec.is_for(dtype) { self } else { self.exactly() };
        if dtype.is_float() { plan } else { Self { fill: None, ..plan } }
    }

    /// Foldwire's own plan: fZ-light, reduced in one pass, with parts of equal weight.
    #[must_use]
    pub const fn foldwire(bound: Bound) -> Self {
        let mut plan = Self::raw().compressed(pipeline::FUSED, bound);
        plan.division = Division::Interleaved;
        plan
    }

    /// Exact compression: each chunk uses the exact codec that is shortest for a sample
    /// ([`CodecId::Lossless`]). Reductions are floating-point sums, as with [`raw`](Plan::raw).
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

    /// Foldwire's plan, chosen anew for each call: exact or within the bound, with one of several
    /// codecs and schedules. [`select::plan`] has the rules.
    ///
    /// *Inputs.* The choice depends on the length of the array, the number of ranks, the [rate of
    /// links](crate::Config::link_rate) and the machine's [speeds](crate::Config::speeds). If the
    /// call is long enough, it also depends on the compression ratio of a sample of all ranks'
    /// data.
    ///
    /// *Rates of links.* If the rate is not known, the first calls measure it, which takes at most
    /// a 16th of their bytes (with the feature `alloc`). Until then links count as 10 Gbit/s, and
    /// memory that ranks of a node share as 3 GB/s.
    ///
    /// *Trials.* If exact and compressed calls are expected to take about as long, some calls are
    /// timed (with the feature `alloc`). These are the third to tenth call of the same collective,
    /// operation, type, bound and length (by powers of two). They are made exactly and compressed
    /// in turn. Later calls keep to the faster way.
    ///
    /// *Ranks of one process* hand frames over and measure no links. Their calls are exact. Only
    /// arrays of a MiB or more in collectives that do not reduce are tried as above.
    ///
    /// Products and user-defined operations are exact, because no bound can be kept for them.
    /// Messages between two ranks travel as with [`foldwire`](Plan::foldwire). The report has [the
    /// choice](crate::Report::codec) and [its reason](crate::Report::plan).
    ///
    /// Methods that are called afterwards pin their part of the plan: a schedule, codec or pipeline
    /// ([`with_codec`](Plan::with_codec), [`with_pipeline`](Plan::with_pipeline)). If only one of
    /// codec and pipeline is pinned, the other is the one of [`foldwire`](Plan::foldwire).
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

    /// The same plan with fZ-light in this pipeline.
    #[must_use]
    pub const fn compressed(mut self, pipeline: Pipeline, bound: Bound) -> Self {
        self.pipeline = pipeline;
        self.codec = CodecId::FzLight;
        self.bound = Some(bound);
        self.is_auto = false;
        self
    }

    /// The same plan with another schedule.
    #[must_use]
    pub const fn with_schedule(mut self, schedule: &'static dyn Schedule) -> Self {
        self.schedule = Some(schedule);
        self
    }

    /// The same plan with another pipeline.
    #[must_use]
    pub const fn with_pipeline(mut self, pipeline: Pipeline) -> Self {
        self.pipeline = pipeline;
        self.is_auto = false;
        self
    }

    /// The same plan with another codec, at its default setting. The bound is dropped if the codec
    /// keeps none.
    ///
    /// # Examples
    /// ```
    /// use foldwire::{Bound, Plan, codec::CodecId};
    ///
    /// let plan = Plan::foldwire(Bound::Relative(1e-3));
    /// assert!(plan.with_codec(CodecId::FzLight).bound.is_some());
    /// // This codec's loss depends on its setting: here it drops the 40 low bits of each `f64`.
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

    /// The same plan with another setting of its codec.
    #[must_use]
    pub const fn with_setting(mut self, setting: u16) -> Self {
        self.setting = setting;
        self
    }

    /// The same plan for an array of this shape, slowest dimension first, as `[8, 110, 64, 128]`.
    ///
    /// Codecs that predict values from more than the value before ([`CodecId::takes_shape`]) use
    /// the last three dimensions of the shape. The shape changes no value. It is a hint: a rank
    /// that has 2¹⁸ values or more searches its data for rows and planes, which takes 0.1 or 0.2
    /// ms. It takes the shape, what it finds, or neither, as is shortest for a sample. A prepared
    /// call keeps its shape, and later calls of the same kind may keep what the first one took.
    /// Ranks may pass different shapes. With an automatic plan ([`auto`](Plan::auto)), however,
    /// either all ranks must pass a shape or none may, because the choice of the codec may depend
    /// on that.
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

    /// The same plan with a fixed prediction for codecs that [take a shape](CodecId::takes_shape),
    /// instead of the best one for each chunk. It changes no value.
    #[must_use]
    pub const fn with_prediction(mut self, prediction: Prediction) -> Self {
        self.prediction = prediction;
        self
    }

    /// The same plan within another bound.
    #[must_use]
    pub const fn with_bound(mut self, bound: Bound) -> Self {
        self.bound = Some(bound);
        self
    }

    /// The same plan with another division of the array.
    #[must_use]
    pub const fn with_division(mut self, division: Division) -> Self {
        self.division = division;
        self
    }

    /// The same plan with another way to find the value range of the data.
    #[must_use]
    pub const fn with_sampling(mut self, sampling: Sampling) -> Self {
        self.sampling = sampling;
        self
    }

    /// The same plan for arrays of `n_bytes` or more in all. Shorter arrays travel unchanged. That
    /// is exact, and takes fewer messages and less time where messages cost more than bytes. Sums
    /// of shorter arrays are floating-point sums, whose rounding depends on the schedule. The limit
    /// has no effect in `all_to_all_v`, where no rank knows the total length.
    #[must_use]
    pub const fn with_exact_below(mut self, n_bytes: usize) -> Self {
        self.exact_below = n_bytes;
        self
    }

    /// The same plan without the guarantee that all ranks get the same bits. Published systems do
    /// not give it.
    ///
    /// A rank then keeps its own result unchanged instead of the value that other ranks decode,
    /// which saves a decompression. A pipeline that encodes data again to forward it then does so
    /// with every codec, even with one that changes a decoded value when it encodes the value
    /// again. There all ranks must choose alike; else calls end in [`Error::Mismatch`]. Elsewhere
    /// each rank may choose for itself.
    ///
    /// [`Error::Mismatch`]: crate::Error::Mismatch
    #[must_use]
    pub const fn as_published(mut self) -> Self {
        self.same_bits = false;
        self
    }

    /// The same plan with other work while messages move. All ranks must choose the same.
    #[must_use]
    pub const fn with_overlap(mut self, overlap: Overlap) -> Self {
        self.overlap = overlap;
        self
    }

    /// The same plan with at most this many lanes of the communicator's
    /// ([`Config::lanes`](crate::Config::lanes)) in a collective. 0: all of them. All ranks must
    /// choose the same.
    ///
    /// Exact calls have no codec that works while messages move. Between ranks of one node they can
    /// be faster with one lane, where compressed calls on the same communicator need more.
    ///
    /// # Examples
    /// ```
    /// use foldwire::{Communicator, Error, Op, Plan, Transport};
    ///
    /// fn sum<X: Transport>(comm: &mut Communicator<X>, x: &mut [f32]) -> Result<(), Error> {
    ///     let report = comm.all_reduce(x, Op::Sum, &Plan::raw().with_lanes(1))?;
    ///     assert_eq!(report.lanes, 1);
    ///     Ok(())
    /// }
    /// ```
    #[must_use]
    pub const fn with_lanes(mut self, lanes: usize) -> Self {
        self.lanes = lanes;
        self
    }

    /// The same plan for collectives in pieces: a message carries at most this many bytes of
    /// values of one part, before compression, and at least one value. 0: as many as fit a frame.
    /// More than a chunk of 4096 values are whole chunks. Arrays of a group that share frames stay
    /// whole. All ranks must choose the same.
    ///
    /// MPICH's ring all-gather moves pieces of 32 KiB, and so does compression in its messages.
    #[must_use]
    pub const fn with_pieces(mut self, n_bytes: usize) -> Self {
        self.piece_bytes = n_bytes;
        self
    }

    /// The same plan for arrays of floats in which this value stands for missing data, such as
    /// 1e20 or −9999.
    ///
    /// It does not count in the value range of the bound, and moves with all its bits: as an
    /// exception, at the price of a mask. A reduction with a missing value is missing: the result
    /// is the fill value where an operand is the fill value or NaN, or where infinities cancel. So
    /// it is with exact plans. On the way a NaN stands for the fill value: the quiet NaN with 0x3a
    /// in its low bits. If data has that NaN, it arrives as the canonical one.
    ///
    /// All ranks pass a fill value. Each may have its own. On a rank without one, missing values
    /// come out as NaN. Choose one that is farther from all valid values and results than their
    /// errors: one beside it may get its bits.
    ///
    /// Calls that cannot have one fail with [`Error::Fill`](crate::Error::Fill): with integers,
    /// user operations, codecs [by a setting](Loss::Setting), rounding without bias, error
    /// feedback, on devices, and messages between two ranks.
    ///
    /// # Examples
    /// ```
    /// use foldwire::{Bound, Plan};
    ///
    /// let plan = Plan::foldwire(Bound::Relative(1e-3)).with_fill(-9999.0);
    /// assert_eq!(plan.fill.map(|fill| fill.value), Some(-9999.0));
    /// ```
    #[must_use]
    pub const fn with_fill(mut self, value: f64) -> Self {
        self.fill = Some(Fill { value, is_number: false });
        self
    }

    /// The same plan with a fill value that reductions take as a number. As in
    /// [`with_fill`](Plan::with_fill), it does not count in the value range. The bound holds where
    /// no operand is the fill value. Collectives that do not reduce keep its bits.
    #[must_use]
    pub const fn with_fill_as_number(mut self, value: f64) -> Self {
        self.fill = Some(Fill { value, is_number: true });
        self
    }

    /// The same plan that refuses data in which a value seems to be a fill value that sets the
    /// range of a relative bound: on all ranks alike, before any data are sent
    /// ([`FillError::Suspected`](crate::error::FillError::Suspected)). Otherwise the report names
    /// it ([`Report::suspected_fill`](crate::Report::suspected_fill)).
    ///
    /// It takes one more exchange of a value. All ranks must choose the same.
    #[must_use]
    pub const fn refusing_fill(mut self) -> Self {
        self.refuses_fill = true;
        self
    }

    /// Returns whether a value that sets the range may cost the others their digits.
    pub(crate) fn may_suspect_fill(&self) -> bool {
        self.bound.is_some_and(Bound::needs_value_range)
    }

    /// Returns how a call treats fill values that it replaces by marks.
    pub(crate) fn marks(&self, reduces: bool) -> Option<Marks> {
        self.fill.and_then(|fill| fill.marks(reduces))
    }

    /// Returns the most values of a part in a message, if frames hold `max_segment` values.
    #[must_use]
    pub const fn max_piece(&self, dtype: DType, max_segment: usize) -> usize {
        let limit = self.piece_bytes / dtype.n_bytes();
        match (self.piece_bytes, limit) {
            (0, _) => max_segment,
            (_, 0) => 1,
            _ if limit < max_segment => limit,
            _ => max_segment,
        }
    }

    /// The same plan, carried out message by message, as published systems do
    /// ([`Overlap::Nothing`]).
    #[must_use]
    pub const fn without_overlap(self) -> Self {
        self.with_overlap(Overlap::Nothing)
    }

    /// Returns the pipeline as calls carry it out. If all ranks must get the same bits, they do not
    /// encode again with a codec that would change values.
    #[must_use]
    pub fn pipeline_in_use(&self) -> Pipeline {
        match self.same_bits && !self.codec.is_stable() {
            true => Pipeline { passing: Forwarding::Forward, ..self.pipeline },
            false => self.pipeline,
        }
    }

    /// Returns whether segments overlap. Otherwise the plan works message by message.
    #[must_use]
    pub const fn overlaps(&self) -> bool {
        matches!(self.overlap, Overlap::Segments)
    }

    /// Returns the most bytes that a message of `n_values` values takes, besides its header. `None`
    /// if no frame can hold it. A plan [without overlap](Self::without_overlap) needs frames for
    /// whole parts of an array.
    #[must_use]
    pub fn max_payload_bytes(&self, dtype: DType, n_values: usize) -> Option<usize> {
        let codec = Sizes::new(self.codec, dtype, CodecParams::new(Quantum::LOSSLESS));
        // Partial sums may travel as floats.
        let floats = n_values.checked_mul(dtype.n_bytes())?;
        Some(codec.max_encoded_len(n_values)?.max(floats))
    }

    /// The same plan with another scope of the bound.
    #[must_use]
    pub const fn with_scope(mut self, scope: Scope) -> Self {
        self.scope = scope;
        self
    }

    /// The same plan with another spacing of the lattice. With [`Spacing::PowerOfTwo`] counts,
    /// masks and indices are transferred exactly, and so are their sums.
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

    /// The same plan with another rounding of each rank's input, such as rounding without bias
    /// ([`Rounding::unbiased`]). Supported by all-reduces, all-gathers, and those reduce-scatters
    /// whose result lies in the input's buffer (`reduce_scatter_in_place`,
    /// `reduce_scatter_to_front`). All ranks must choose the same rounding; seeds may differ.
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
}
