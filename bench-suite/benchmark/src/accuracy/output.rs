//! Rows for people (a header and a table) and for programs (one JSON object).

use foldwire_workbench::table::Columns;
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
    let percent = |share: f64| format!("{:.1}", 100.0 * share);
    let four_digits = |deviation: f64| format!("{deviation:.4}");
    let table = Columns::of(rows)
        .number("ranks", "", |row| row.ranks)
        .text("pipeline", "", |row| row.pipeline)
        .text("schedule", "", |row| row.schedule)
        .text("", "", |row| if row.is_chosen { "*" } else { "" })
        .number("worst", "", |row| short(row.summary.worst))
        .number("stated", "", |row| short(row.stated))
        .number("rounding", "", |row| short(row.rounding))
        .number("95.44 %", "", |row| short(row.summary.line))
        .number("ZCCL's", "95.44 %", |row| short(row.zccl.line))
        .number("uniform", "95.44 %", |row| short(row.uniform.line))
        .number("within", "ZCCL's, %", |row| percent(row.within_zccl))
        .number("within", "uniform, %", |row| percent(row.within_uniform))
        .number("bias", "", |row| format!("{:+.4}", row.summary.bias))
        .number("deviation", "", |row| four_digits(row.summary.deviation))
        .number("ZCCL's", "deviation", |row| four_digits(row.zccl.deviation))
        .number("uniform", "deviation", |row| four_digits(row.uniform.deviation));
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
