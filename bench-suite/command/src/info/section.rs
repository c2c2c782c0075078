//! A section of the report: properties and rows, as text and as JSON.

use foldwire_workbench::table::{Align, Columns};
use serde_json::{Map, Value, json};

/// A section of the report.
pub(super) struct ReportSection {
    /// Name of the section in JSON.
    pub(super) key: &'static str,
    title: String,
    properties: Vec<(&'static str, ReportCell)>,
    columns: &'static [(&'static str, Align)],
    rows: Vec<Vec<ReportCell>>,
}

/// A value as text and as JSON. [`Value::Null`] stands for no value.
pub(super) struct ReportCell {
    text: String,
    json: Value,
}

impl ReportSection {
    pub(super) fn new(key: &'static str, title: impl Into<String>) -> Self {
        let (properties, rows) = (Vec::new(), Vec::new());
        Self { key, title: title.into(), properties, columns: &[], rows }
    }

    /// The section of a backend that this program was built with.
    pub(super) fn backend(key: &'static str) -> Self {
        Self::new(key, format!("Backend {key}")).property("built in", true)
    }

    /// The section of a backend that this program was built without. `needs` lists the requirements
    /// to build with the feature `key`.
    #[cfg(not(all(feature = "cuda", feature = "libfabric", feature = "mpi", feature = "tcp")))]
    pub(super) fn absent_backend(key: &'static str, needs: &str) -> Self {
        let how = format!("no; build with `cargo build --release --features {key}`");
        Self::new(key, format!("Backend {key}"))
            .property("built in", ReportCell::new(how, false))
            .property("needs", needs)
    }

    /// Adds a property.
    pub(super) fn property(mut self, name: &'static str, value: impl Into<ReportCell>) -> Self {
        self.properties.push((name, value.into()));
        self
    }

    /// Adds a table with these columns.
    pub(super) fn rows(
        mut self,
        columns: &'static [(&'static str, Align)],
        rows: impl IntoIterator<Item = Vec<ReportCell>>,
    ) -> Self {
        self.columns = columns;
        self.rows = rows.into_iter().collect();
        self
    }

    /// Returns an object with the properties and, if there is a table, its `rows`.
    pub(super) fn json(&self) -> Value {
        let name = |name: &str| name.replace(' ', "_");
        let properties = self.properties.iter();
        let mut object: Map<_, _> =
            properties.map(|(key, cell)| (name(key), cell.json.clone())).collect();
        if !self.columns.is_empty() {
            let row = |row: &Vec<ReportCell>| -> Value {
                let cells = self.columns.iter().zip(row);
                cells
                    .map(|((column, _), cell)| (name(column), cell.json.clone()))
                    .collect::<Map<_, _>>()
                    .into()
            };
            object.insert("rows".to_owned(), self.rows.iter().map(row).collect());
        }
        Value::Object(object)
    }

    /// Returns the title, then the properties, then the table, indented.
    pub(super) fn text(&self) -> String {
        let width = self.properties.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
        let mut text = format!("{}\n", self.title);
        for (name, cell) in &self.properties {
            text.push_str(&format!("  {name:width$}  {}\n", cell.text));
        }
        if !self.rows.is_empty() {
            let mut table = Columns::of(&self.rows);
            for (at, &(name, align)) in self.columns.iter().enumerate() {
                table = table.column((name, "", align), |row| row[at].text.clone());
            }
            // Each line of the table already begins with a blank.
            text.extend(table.render().lines().map(|line| format!(" {line}\n")));
        }
        text
    }
}

impl ReportCell {
    pub(super) fn new(text: impl Into<String>, json: impl Into<Value>) -> Self {
        Self { text: text.into(), json: json.into() }
    }

    /// An unknown value.
    pub(super) fn unknown() -> Self {
        Self::new("unknown", Value::Null)
    }
}

impl From<&str> for ReportCell {
    fn from(text: &str) -> Self {
        Self::new(text, text)
    }
}

impl From<String> for ReportCell {
    fn from(text: String) -> Self {
        Self { json: json!(text), text }
    }
}

impl From<bool> for ReportCell {
    fn from(is_so: bool) -> Self {
        Self::new(if is_so { "yes" } else { "no" }, is_so)
    }
}

impl From<usize> for ReportCell {
    fn from(n: usize) -> Self {
        Self::new(n.to_string(), n)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_section_is_the_same_as_text_and_as_json() {
        let columns = &[("name", Align::Left), ("how many", Align::Right)];
        let section = ReportSection::new("fruit", "Fruit")
            .property("in stock", true)
            .property("of", "the garden")
            .rows(
                columns,
                [vec!["apple".into(), 12.into()], vec!["fig".into(), ReportCell::unknown()]],
            );
        assert_eq!(
            section.json(),
            json!({
                "in_stock": true,
                "of": "the garden",
                "rows": [{"name": "apple", "how_many": 12}, {"name": "fig", "how_many": null}],
            })
        );
        assert_eq!(
            section.text(),
            "Fruit\n  in stock  yes\n  of        the garden\n  name    how many\n \
            ──────────────────\n  apple         12\n  fig      unknown\n"
        );
    }
}
