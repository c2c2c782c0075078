//! Chooses the inputs to commit: few small ones that reach most of the code that earlier runs have
//! reached.

use super::BuiltTargets;
use anyhow::{Context, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

/// Most inputs of a target, not counting regressions.
const MAX_FILES: usize = 30;
/// Most bytes of an input.
const MAX_BYTES: u64 = 4000;
/// Prefix of inputs that once failed. They are always kept.
const REGRESSION: &str = "regress-";

pub(super) fn keep(built: &BuiltTargets, targets: &[String]) -> anyhow::Result<()> {
    for target in targets {
        let merged = built.folder("work/merged", target)?;
        fs::remove_dir_all(&merged)?;
        fs::create_dir(&merged)?;
        let status = built
            .program(target)?
            .args(["-set_cover_merge=1".to_owned(), format!("-max_len={MAX_BYTES}")])
            .arg(&merged)
            .args(built.inputs(target)?)
            .stderr(Stdio::null())
            .status()?;
        ensure!(status.success(), "libFuzzer cannot merge the inputs of {target}");
        let corpus = built.folder("corpus", target)?;
        for old in files(&corpus)?.iter().filter(|path| !is_regression(path)) {
            fs::remove_file(old)?;
        }
        let all = files(&merged)?;
        let kept = evenly(&all, MAX_FILES);
        for path in &kept {
            let name = path.file_name().context("a file has a name")?;
            fs::copy(path, corpus.join(name))?;
        }
        println!("{target}: {} of {} inputs kept", kept.len(), all.len());
    }
    Ok(())
}

fn is_regression(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(REGRESSION))
}

/// Returns the files of a folder, the smallest first.
fn files(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        files.push((entry.metadata()?.len(), entry.path()));
    }
    files.sort();
    Ok(files.into_iter().map(|(_, path)| path).collect())
}

/// Returns at most `n` elements, spread evenly.
fn evenly<T>(all: &[T], n: usize) -> Vec<&T> {
    let n = n.min(all.len());
    (0..n).map(|i| &all[i * all.len() / n]).collect()
}

#[cfg(test)]
mod tests {
    use super::evenly;

    #[test]
    fn few_are_all_and_many_are_thinned_out() {
        assert_eq!(evenly(&[1, 2, 3], 5), [&1, &2, &3]);
        assert_eq!(evenly(&[0, 1, 2, 3, 4, 5, 6], 3), [&0, &2, &4]);
        assert!(evenly::<u8>(&[], 3).is_empty());
    }
}
