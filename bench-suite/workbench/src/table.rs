//! Tables for people: aligned columns that look the same in a terminal and in a CI log, and short
//! numbers.
//!
//! Text is left-aligned, numbers are right-aligned. There is one rule under the header, and there
//! are no borders, colours or wrapping. A header has a name and a unit, on two lines.

use std::fmt::Display;
use std::time::Duration;

pub use comfy_table::CellAlignment as Align;
use comfy_table::{Cell, ContentArrangement, LineStyle, Table, TableStyle};

/// A table with a row for each `R`, built column by column.
#[derive(Debug)]
pub struct Columns<R> {
    rows: Vec<R>,
    header: Vec<Header>,
    /// Cells of each row.
    cells: Vec<Vec<Cell>>,
}

/// Name, unit (may be empty) and alignment of a column.
type Header = (String, String, Align);

impl<R> Columns<R> {
    /// A table of these rows, without columns.
    pub fn of(rows: impl IntoIterator<Item = R>) -> Self {
        let rows: Vec<R> = rows.into_iter().collect();
        let cells = rows.iter().map(|_| Vec::new()).collect();
        Self { rows, header: Vec::new(), cells }
    }

    /// Adds a column of text: its name, its unit (may be empty), and its cell in a row.
    #[must_use]
    pub fn text<S: Display>(self, name: &str, unit: &str, cell: impl Fn(&R) -> S) -> Self {
        self.column((name, unit, Align::Left), cell)
    }

    /// Adds a column of numbers.
    #[must_use]
    pub fn number<S: Display>(self, name: &str, unit: &str, cell: impl Fn(&R) -> S) -> Self {
        self.column((name, unit, Align::Right), cell)
    }

    /// Adds a column of numbers that some rows lack.
    #[must_use]
    pub fn maybe<S: Display>(self, name: &str, unit: &str, cell: impl Fn(&R) -> Option<S>) -> Self {
        self.number(name, unit, |row| cell(row).map_or_else(|| "-".to_owned(), |x| x.to_string()))
    }

    /// Same as [`maybe`](Self::maybe), but adds no column if all rows lack the number.
    #[must_use]
    pub fn if_any<S: Display>(
        self,
        name: &str,
        unit: &str,
        cell: impl Fn(&R) -> Option<S>,
    ) -> Self {
        let is_missing = self.rows.iter().all(|row| cell(row).is_none());
        if is_missing { self } else { self.maybe(name, unit, cell) }
    }

    /// Adds a column with this alignment.
    #[must_use]
    pub fn column<S: Display>(
        mut self,
        (name, unit, align): (&str, &str, Align),
        cell: impl Fn(&R) -> S,
    ) -> Self {
        self.header.push((name.to_owned(), unit.to_owned(), align));
        for (row, cells) in self.rows.iter().zip(&mut self.cells) {
            cells.push(Cell::new(cell(row)).set_alignment(align));
        }
        self
    }

    /// The table as text, without trailing blanks, ending in a newline.
    pub fn render(self) -> String {
        let mut grid = Table::new();
        grid.load_style(
            TableStyle::new().header_separator(LineStyle::none().fill('─').junction('─')),
        );
        grid.set_content_arrangement(ContentArrangement::Disabled);
        let has_units = self.header.iter().any(|(_, unit, _)| !unit.is_empty());
        grid.set_header(self.header.into_iter().map(|(name, unit, align)| {
            let text = if has_units { format!("{name}\n{unit}") } else { name };
            Cell::new(text).set_alignment(align)
        }));
        grid.add_rows(self.cells);
        grid.lines().flat_map(|line| [line.trim_end().to_owned(), "\n".to_owned()]).collect()
    }
}

/// Formats bytes with a decimal prefix, as `15.9 MB`.
pub fn bytes(n_bytes: u64) -> String {
    if n_bytes < 1000 {
        format!("{n_bytes} B")
    } else {
        scaled(n_bytes as f64, &["B", "kB", "MB", "GB", "TB"])
    }
}

/// Formats a duration in a suitable unit, as `1.23 ms`.
pub fn seconds(time: Duration) -> String {
    match time.as_nanos() {
        ns @ ..1000 => format!("{ns} ns"),
        _ => scaled(time.as_secs_f64() * 1e6, &["µs", "ms", "s"]),
    }
}

/// Formats bytes per second with a decimal prefix, as `1.25 GB/s`.
pub fn rate(bytes_per_s: f64) -> String {
    scaled(bytes_per_s, &["B/s", "kB/s", "MB/s", "GB/s", "TB/s"])
}

/// Formats a small or large number with three significant digits, as `1.23e-5`.
pub fn scientific(value: f64) -> String {
    if value == 0.0 { "0".to_owned() } else { format!("{value:.2e}") }
}

fn scaled(mut value: f64, units: &[&str]) -> String {
    let mut at = 0;
    // 999.5 would print as 1000.
    while value >= 999.5 && at + 1 < units.len() {
        value /= 1000.0;
        at += 1;
    }
    format!("{} {}", digits(value), units[at])
}

/// Formats a number from 1 to 1000 with three significant digits.
fn digits(value: f64) -> String {
    match value {
        v if v >= 99.95 => format!("{v:.0}"),
        v if v >= 9.995 => format!("{v:.1}"),
        v => format!("{v:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let rows = [("raw", "12.5", "1234.0"), ("foldwire", "3.1", "88.0")];
        let table = Columns::of(rows).text("preset", "", |row| row.0);
        let table = table.number("time", "ms", |row| row.1).number("wire", "MB", |row| row.2);
        let text = table.render();
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines.len(), 5, "{text}");
        assert!(lines[0].contains("preset") && lines[1].contains("ms"), "{text}");
        let end = |line: &str, of: &str| line.find(of).unwrap() + of.len();
        assert_eq!(end(lines[3], "1234.0"), end(lines[4], "88.0"), "{text}");
        assert_eq!(end(lines[3], "12.5"), end(lines[4], "3.1"), "{text}");
        assert_eq!(lines[3].find("raw"), lines[4].find("foldwire"), "{text}");
    }

    #[test]
    fn a_number_may_be_missing_in_a_row_or_in_all() {
        let some = Columns::of([Some(1), None]).if_any("n", "", |n| *n).render();
        assert!(some.lines().last().unwrap().ends_with('-'), "{some}");
        let none: Columns<Option<i32>> = Columns::of([None, None]).text("of", "", |_| "x");
        assert!(!none.if_any("n", "", |n| *n).render().contains('-'));
    }

    #[test]
    fn numbers_have_three_digits_and_a_unit() {
        assert_eq!(bytes(999), "999 B");
        assert_eq!(bytes(15_859_712), "15.9 MB");
        assert_eq!(bytes(999_999), "1.00 MB");
        assert_eq!(bytes(5_000_000_000_000_000), "5000 TB");
        assert_eq!(rate(1.25e9), "1.25 GB/s");
        assert_eq!(seconds(Duration::from_micros(12_345)), "12.3 ms");
        assert_eq!(seconds(Duration::from_millis(1500)), "1.50 s");
        assert_eq!(seconds(Duration::from_nanos(12)), "12 ns");
        assert_eq!(seconds(Duration::from_nanos(9_999)), "10.0 µs");
        assert_eq!(seconds(Duration::from_micros(999_900)), "1.00 s");
        assert_eq!(seconds(Duration::from_secs(1234)), "1234 s");
        assert_eq!((scientific(0.0), scientific(1.234e-5)), ("0".into(), "1.23e-5".into()));
    }
}
