//! The width of lines: at most [`LIMIT`] characters in every tracked text, outside tables. rustfmt
//! leaves texts, macros and other languages as they are.

use std::path::Path;
use std::process::Command;

/// Characters of a line, by the Rust style guide.
const LIMIT: usize = 100;

const EXTENSIONS: [&str; 9] = ["c", "f90", "h", "md", "py", "pyi", "rs", "sh", "toml"];

/// Fails if a tracked file has wider lines, and lists them.
pub(crate) fn check(root: &Path) -> anyhow::Result<()> {
    let patterns = EXTENSIONS.map(|extension| format!("*.{extension}"));
    let listed = Command::new("git").arg("ls-files").args(patterns).current_dir(root).output()?;
    anyhow::ensure!(listed.status.success(), "git ls-files: {}", listed.status);
    let mut wide = Vec::new();
    for path in String::from_utf8(listed.stdout)?.lines() {
        // A deleted file is listed until the deletion is staged.
        let Ok(text) = std::fs::read_to_string(root.join(path)) else { continue };
        wide.extend(wide_lines(&text).map(|line| format!("{path}:{line}")));
    }
    let list = wide.join("\n");
    anyhow::ensure!(wide.is_empty(), "lines wider than {LIMIT} characters; wrap them:\n{list}");
    Ok(())
}

/// Returns the numbers of wide lines, from 1. A row of a table starts with `|`, also in a comment.
fn wide_lines(text: &str) -> impl Iterator<Item = usize> {
    let is_row = |line: &str| line.trim_start_matches(['/', '!', '#', ' ']).starts_with('|');
    let lines = text.lines().zip(1..);
    lines.filter(move |(line, _)| line.chars().count() > LIMIT && !is_row(line)).map(|(_, n)| n)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_count_and_rows_of_tables_may_be_wide() {
        let x = |count| "é".repeat(count);
        let text = format!("{}\n{}\n| {}\n//! | {}\n\n{}", x(100), x(101), x(101), x(101), x(102));
        assert_eq!(wide_lines(&text).collect::<Vec<_>>(), [2, 6]);
    }
}
