//! Summary in words: the last lines of `foldwire stack`, for readers who skip the table.

use std::fmt::Write;

use foldwire::Preset;

use super::StackRow;

/// Returns a sentence for each bound. It is about the row of the preset Foldwire, or of the preset
/// Auto if Foldwire did not run.
///
/// It assumes that all rows are within their bounds, because the caller reports an error otherwise.
pub(super) fn sentences(rows: &[StackRow], link: &str, has_several_bounds: bool) -> String {
    let mut text = String::new();
    for rows in rows.chunk_by(|a, b| a.bound == b.bound) {
        let of = |preset: Preset| rows.iter().find(|row| row.preset == preset.name());
        let Some(row) = of(Preset::Foldwire).or_else(|| of(Preset::Auto)) else { continue };
        text += if text.is_empty() { "\n" } else { "" };
        text += row.title;
        if has_several_bounds {
            let _ = write!(text, " at {}", row.bound);
        }
        text += ": ";
        if let Some(speedup) = row.speedup_raw {
            // A factor below 1 needs another digit: 0.04 would print as 0.0.
            let digits = if speedup < 0.95 { 2 } else { 1 };
            let _ = write!(text, "{speedup:.digits$} × as fast as raw {link}; ");
        }
        match row.quality.overflowed {
            0 => text += "every value within its bound.\n",
            n => {
                let _ = writeln!(
                    text,
                    "{n} sums can overflow {} and have no bound, every other value is within its \
                    own.",
                    row.dtype
                );
            }
        }
    }
    text
}
