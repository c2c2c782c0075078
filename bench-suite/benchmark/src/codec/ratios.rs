//! Ratios of codecs on a field, the best of them, and what automatic choices make of it. Nothing is
//! timed.

use foldwire::bound::ValueRange;
use foldwire::codec::{CodecExt, CodecId, CodecParams, Loss};
use foldwire::compress::{self, Layout};
use foldwire::{Bound, Float, Plan};
use foldwire_arguments::CodecArgs;
use foldwire_fields::dims::Dims;
use foldwire_fields::field::Field;
use foldwire_threads::World;
use foldwire_workbench::table::Columns;

/// Bounds of the table, if the user gives none, relative to the value range.
const BOUNDS: [f64; 4] = [1e-2, 1e-3, 1e-4, 1e-5];
/// Bytes per second of the links for which `Plan::auto` chooses: 100 Mbit/s.
const LINK_RATE: f64 = 12.5e6;

/// Ratios of one field at one bound.
pub(super) struct RatioRow {
    field: String,
    bound: Bound,
    /// Ratio of each codec, in the order of [`codecs`]; `None` if it is not for the type.
    ratios: Vec<Option<f64>>,
    /// Ratio and codec of an all-gather with `Plan::auto` over slow links, headers included.
    auto: (f64, CodecId),
    /// Ratio of `compress` with interp; `None` if it is not for the type.
    interp: Option<f64>,
    /// Ratio of `compress` if it chooses the codec.
    compressed: f64,
}

/// The codecs of the table: those that keep a bound or everything, one of each size.
pub(super) fn codecs() -> Vec<CodecId> {
    let is_left_out = |codec| matches!(codec, CodecId::Raw | CodecId::FzStatic | CodecId::Lz);
    let kept = CodecId::ALL.iter().filter(|codec| codec.loss() != Loss::Setting);
    kept.copied().filter(|&codec| !is_left_out(codec)).collect()
}

/// Returns the rows of a field.
///
/// # Errors
/// Fails if a bound is invalid for these values, or if a call fails.
pub(super) fn of_field<T: Float>(
    field: &Field,
    values: &[T],
    args: &CodecArgs,
) -> anyhow::Result<Vec<RatioRow>> {
    let bounds = match &args.bound[..] {
        [] => BOUNDS.map(Bound::Relative).to_vec(),
        given => given.to_vec(),
    };
    let n_bytes = size_of_val(values) as f64;
    let mut rows = Vec::new();
    for bound in bounds {
        let ratio = |codec: CodecId| -> anyhow::Result<Option<f64>> {
            if !codec.is_for(T::DTYPE) {
                return Ok(None);
            }
            let quantum = super::quantum::<T>(codec.into(), bound, ValueRange::of(values))?;
            let params = args.shape.tell(CodecParams::new(quantum), &field.dims, values);
            let codec = codec.instance::<T>(&params);
            let room = codec.as_dyn().max_encoded_len(values.len()).unwrap_or_default();
            let written = codec.as_dyn().encode(values, &mut vec![0; room])?;
            Ok(Some(n_bytes / written.n_bytes as f64))
        };
        let ratios = codecs().into_iter().map(ratio).collect::<anyhow::Result<_>>()?;
        let line = [values.len()];
        let shape = args.shape.known(&field.dims).map_or(&line[..], Dims::sizes);
        let plan = Plan::auto(bound).with_shape(shape);
        let gather = |mut comm: foldwire::Communicator<_>| {
            let mut all = vec![T::from_f64(0.0); 2 * values.len()];
            comm.all_gather(values, &mut all, &plan)
        };
        let report = World::new(2).link_rate(LINK_RATE).run(gather).swap_remove(0)?;
        let compressed = |plan: &Plan| -> anyhow::Result<f64> {
            let bytes = compress::compress_with(values, &Layout::new(shape), plan)?;
            Ok(n_bytes / bytes.len() as f64)
        };
        let has_interp = CodecId::Interp.is_for(T::DTYPE);
        let by_interp = Plan::foldwire(bound).with_codec(CodecId::Interp);
        let interp = has_interp.then(|| compressed(&by_interp)).transpose()?;
        rows.push(RatioRow {
            field: field.name.clone(),
            bound,
            ratios,
            auto: (report.ratio(), report.codec),
            interp,
            compressed: compressed(&plan)?,
        });
    }
    Ok(rows)
}

impl RatioRow {
    /// Returns the largest ratio, and its codec.
    fn best(&self) -> (f64, CodecId) {
        let known = codecs().into_iter().zip(&self.ratios);
        let known = known.filter_map(|(codec, ratio)| Some(((*ratio)?, codec)));
        known.fold((1.0, CodecId::Raw), |best, next| if next.0 > best.0 { next } else { best })
    }
}

/// Returns the table.
pub(super) fn table(rows: &[RatioRow]) -> String {
    let mut columns =
        Columns::of(rows)
            .text("field", "", |row| row.field.clone())
            .text("bound", "", |row| row.bound);
    for (at, codec) in codecs().into_iter().enumerate() {
        columns = columns
            .maybe(codec.name(), "", |row| row.ratios[at].map(|ratio| format!("{ratio:.2}")));
    }
    columns
        .text("best", "", |row| row.best().1.name())
        .text("auto at", "100 Mbit/s", |row| row.auto.1.name())
        .number("ratio", "", |row| format!("{:.2}", row.auto.0))
        .number("of best", "%", |row| format!("{:.1}", 100.0 * row.auto.0 / row.best().0))
        .maybe("interp", "", |row| row.interp.map(|ratio| format!("{ratio:.2}")))
        .number("compress", "", |row| format!("{:.2}", row.compressed))
        .render()
}
