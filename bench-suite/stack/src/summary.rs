//! What was seen, in words: the last lines of `foldwire stack`, for who does not read tables.

use std::fmt::Write;

use foldwire::Preset;

use super::StackRow;

/// A sentence for each bound, of Foldwire's row, or of the chosen one's where Foldwire's is not
/// there. All rows have kept their promises, or an error would stand in its place.
pub(super) fn sentences(rows: &[StackRow], link: &str, are_several: bool) -> String {
    let mut text = String::new();
    for rows in rows.chunk_by(|a, b| a.bound == b.bound) {
        let of = |preset: Preset| rows.iter().find(|row| row.preset == preset.name());
        let Some(row) = of(Preset::Foldwire).or_else(|| of(Preset::Auto)) else { continue };
        text += if text.is_empty() { "\n" } else { "" };
        text += row.title;
        if are_several {
            let _ = write!(text, " at {}", row.bound);
        }
        text += ": ";
        if let Some(speedup) = row.speedup_raw {
            // What is slower needs another digit, or it could be 0.0.
            let digits = if speedup < 0.95 { 2 } else { 1 };
            let _ = write!(text, "{speedup:.digits$} × as fast as raw {link}; ");
        }
        match row.quality.overflowed {
            0 => text += "every value within its bound.\n",
            n => {
                let _ = writeln!(
                    text,
                    "{n} sums can overflow {} and have no bound, every other value is within its own.",
                    row.dtype
                );
            }
        }
    }
    text
}
