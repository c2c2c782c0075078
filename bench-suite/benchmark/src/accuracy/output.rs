//! Rows for people (a header and a table) and for programs (one JSON object).

use foldwire_workbench::table::{Align, Table};
use serde_json::json;

use super::{AccuracyRow, AccuracySetting};

/// Returns header and table.
pub(super) fn text(setting: &AccuracySetting, rows: &[AccuracyRow]) -> String {
    let AccuracySetting { op, codec, dtype, count, bound, seed, data } = setting;
    let mut text = format!(
        "# all-reduce ({op}) of {count} values of {dtype} a rank by {codec} within {bound}, seed \
         {seed}\n# {data}\n# errors in units of the bound on each operand; *: the schedule that \
         the \
         library chooses\n\n"
    );
    let mut table = Table::new(&[
        ("ranks", "", Align::Right),
        ("pipeline", "", Align::Left),
        ("schedule", "", Align::Left),
        ("", "", Align::Left),
        ("worst", "", Align::Right),
        ("stated", "", Align::Right),
        ("rounding", "", Align::Right),
        ("95.44 %", "", Align::Right),
        ("ZCCL's", "95.44 %", Align::Right),
        ("uniform", "95.44 %", Align::Right),
        ("within", "ZCCL's, %", Align::Right),
        ("within", "uniform, %", Align::Right),
        ("bias", "", Align::Right),
        ("deviation", "", Align::Right),
        ("ZCCL's", "deviation", Align::Right),
        ("uniform", "deviation", Align::Right),
    ]);
    for row in rows {
        let mut cells =
            vec![row.ranks.to_string(), row.pipeline.to_owned(), row.schedule.to_owned()];
        cells.push(if row.is_chosen { "*" } else { "" }.to_owned());
        let summary = row.summary;
        let errors = [summary.worst, row.stated, row.rounding, summary.line];
        cells.extend(errors.map(short));
        cells.extend([row.zccl.line, row.uniform.line].map(short));
        let shares = [row.within_zccl, row.within_uniform];
        cells.extend(shares.map(|share| format!("{:.1}", 100.0 * share)));
        cells.push(format!("{:+.4}", summary.bias));
        let deviations = [summary.deviation, row.zccl.deviation, row.uniform.deviation];
        cells.extend(deviations.map(|deviation| format!("{deviation:.4}")));
        table.row(&cells);
    }
    text += &table.render();
    text
}

/// Formats three decimals, or one for large values.
fn short(value: f64) -> String {
    match value {
        value if value >= 100.0 => format!("{value:.1}"),
        value => format!("{value:.3}"),
    }
}

/// Returns one JSON object.
pub(super) fn json(setting: &AccuracySetting, rows: &[AccuracyRow]) -> serde_json::Value {
    json!({ "setting": setting, "rows": rows })
}
