//! Cache of images on disk, one file per shot, so that a second run starts at once.
//!
//! A file holds the values in little-endian order, followed by their XXH3 checksum of 8 bytes. It
//! is written under a temporary name and then renamed, so readers and interrupted runs never see a
//! partial file. A file with a wrong length or checksum counts as absent.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use xxhash_rust::xxh3::xxh3_64;

/// Reads `n_values` from `path`. Returns `None` if the file is absent or damaged.
pub(super) fn read(path: &Path, n_values: usize) -> Option<Vec<f32>> {
    let bytes = fs::read(path).ok()?;
    let (values, checksum) = bytes.split_last_chunk::<8>()?;
    if values.len() != 4 * n_values || xxh3_64(values) != u64::from_le_bytes(*checksum) {
        return None;
    }
    Some(values.as_chunks::<4>().0.iter().map(|&bytes| f32::from_le_bytes(bytes)).collect())
}

/// Writes `values` to `path` atomically, and creates missing folders.
pub(super) fn write(path: &Path, values: &[f32]) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder)?;
    let mut bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    bytes.extend(xxh3_64(&bytes).to_le_bytes());
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    file.write_all(&bytes)?;
    file.persist(path)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_files_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a/b/image");
        let values = [1.0, -0.0, f32::MIN_POSITIVE, 3.5];
        assert_eq!(read(&path, 4), None);
        write(&path, &values).unwrap();
        let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(&read(&path, 4).unwrap()), bits(&values));
        assert_eq!(read(&path, 3), None);
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);

        let whole = fs::read(&path).unwrap();
        for n_bytes in 0..whole.len() {
            fs::write(&path, &whole[..n_bytes]).unwrap();
            assert_eq!(read(&path, 4), None, "{n_bytes} bytes");
        }
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 4;
            fs::write(&path, &damaged).unwrap();
            assert_eq!(read(&path, 4), None, "byte {at}");
        }
    }
}
