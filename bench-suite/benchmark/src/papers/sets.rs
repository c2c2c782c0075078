//! The papers' data sets in SDRBench's layout: which files of a folder belong to which set.
//!
//! Names decide, of files and folders. Words are compared as a whole, without case:
//!
//! ```text
//! SDRBENCH-CESM-ATM-26x1800x3600/CLOUD_1_26_1800_3600.f32
//! SDRBENCH-EXASKY-NYX-512x512x512/temperature.f32
//! SDRBENCH-Hurricane-ISABEL-100x500x500/Uf48.bin.f32
//! RTM-449x449x235/snapshot_1000.f32
//! ```

use std::fs;
use std::path::{Path, PathBuf};

/// Folders below the user's that are searched.
const MAX_DEPTH: usize = 4;

/// A data set of the papers.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct DataSet {
    /// Name in the published figures.
    pub(super) name: &'static str,
    /// One of these words is in a file's path.
    words: &'static [&'static str],
    /// So is this length of a side, if there is one.
    side: Option<&'static str>,
    /// Sizes of the papers' fields, in any order.
    dims: &'static [&'static [usize]],
}

/// All sets, in the order of the papers' tables.
static SETS: [DataSet; 5] = [
    set("RTM 1", &["RTM"], Some("449"), &[&[449, 449, 235]]),
    set("RTM 2", &["RTM"], Some("849"), &[&[849, 849, 235]]),
    set("NYX", &["NYX"], None, &[&[512, 512, 512]]),
    set("CESM-ATM", &["CESM"], None, &[&[26, 1800, 3600], &[1800, 3600]]),
    set("Hurricane", &["HURRICANE", "ISABEL"], None, &[&[100, 500, 500]]),
];

const fn set(
    name: &'static str,
    words: &'static [&'static str],
    side: Option<&'static str>,
    dims: &'static [&'static [usize]],
) -> DataSet {
    DataSet { name, words, side, dims }
}

impl DataSet {
    /// Returns whether the papers' fields have these dimensions.
    pub(super) fn has(&self, dims: &[usize]) -> bool {
        let sorted = |sizes: &[usize]| {
            let mut sizes: Vec<_> = sizes.iter().copied().filter(|&size| size > 1).collect();
            sizes.sort_unstable();
            sizes
        };
        self.dims.iter().any(|known| sorted(known) == sorted(dims))
    }

    /// Returns the set that a file belongs to by its path.
    fn of(path: &Path) -> Option<&'static Self> {
        let text = path.to_string_lossy().to_uppercase();
        let has = |word: &str| {
            let mut words = text.split(|c: char| !c.is_alphanumeric());
            words.any(|part| part == word || part.split('X').any(|side| side == word))
        };
        let is_of =
            |set: &&Self| set.words.iter().any(|word| has(word)) && set.side.is_none_or(has);
        SETS.iter().find(is_of)
    }
}

/// Files of the sets in a folder: the set and its files, sorted by path.
pub(super) fn find(folder: &Path) -> Vec<(&'static DataSet, Vec<PathBuf>)> {
    // The folder's own name may name the set.
    let folder = std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned());
    let mut files = Vec::new();
    collect(&folder, MAX_DEPTH, &mut files);
    files.sort();
    let of = |set: &'static DataSet| {
        let files = files.iter().filter(|file| DataSet::of(file) == Some(set)).cloned();
        (set, files.collect::<Vec<_>>())
    };
    SETS.iter().map(of).filter(|(_, files)| !files.is_empty()).collect()
}

fn collect(folder: &Path, depth: usize, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            if depth > 0 {
                collect(&path, depth - 1, files);
            }
        } else if path.extension().is_some_and(|extension| extension == "f32") {
            files.push(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_the_set() {
        for (path, name) in [
            ("/d/SDRBENCH-CESM-ATM-26x1800x3600/CLOUD_1_26_1800_3600.f32", Some("CESM-ATM")),
            ("/d/SDRBENCH-CESM-ATM-cleared-1800x3600/CLDHGH_1_1800_3600.f32", Some("CESM-ATM")),
            ("/d/SDRBENCH-EXASKY-NYX-512x512x512/temperature.f32", Some("NYX")),
            (
                "/d/SDRBENCH-Hurricane-ISABEL-100x500x500/100x500x500/Uf48.bin.f32",
                Some("Hurricane"),
            ),
            ("/d/RTM-449x449x235/snapshot_1000.f32", Some("RTM 1")),
            ("/d/rtm/pressure_849_849_235.f32", Some("RTM 2")),
            ("/d/rtm/pressure.f32", None),
            ("/partman/449x449x235/a.f32", None),
            ("/d/echam_t_17x96x192.f32", None),
        ] {
            assert_eq!(DataSet::of(Path::new(path)).map(|set| set.name), name, "{path}");
        }
    }

    #[test]
    fn dimensions_may_come_in_any_order() {
        let cesm = &SETS[3];
        assert!(cesm.has(&[1, 1800, 3600]) && cesm.has(&[3600, 1800, 26]) && !cesm.has(&[1800]));
    }
}
