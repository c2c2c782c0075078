//! Files that appear under their names only when they are complete.

use std::fs::{self, Metadata};
use std::io::{self, Write};
use std::path::Path;

use tempfile::NamedTempFile;

/// Creates a file in the folder of `path`, to become the file `path`. Its name is unique, and it is
/// removed unless it is renamed. Its permissions to read and write are those of the file `like`, or
/// of any new file, within the umask.
///
/// # Errors
/// If the folder is missing or cannot be written.
pub fn part(path: &Path, like: Option<&Metadata>) -> io::Result<NamedTempFile> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let mut unique = tempfile::Builder::new();
    unique.prefix("foldwire-").suffix(".part");
    set_permissions(&mut unique, like);
    unique.tempfile_in(folder.unwrap_or(Path::new(".")))
}

/// Writes a whole file. A reader sees the old or the new contents, and an error leaves the old
/// ones. An existing file keeps its permissions. Links, devices and pipes are written as they are.
///
/// # Errors
/// If the file cannot be written.
pub fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let old = match fs::symlink_metadata(path) {
        Ok(about) if about.is_file() => Some(about),
        // Standard output, `/dev/stdout`, is a link to a file that is open.
        Ok(_) => return fs::write(path, bytes),
        Err(_) => None,
    };
    let mut part = part(path, None)?;
    part.write_all(bytes)?;
    // A network's file system may notice only now that the disk is full.
    part.as_file().sync_all()?;
    if let Some(old) = old {
        fs::set_permissions(part.path(), old.permissions())?;
    }
    part.persist(path)?;
    Ok(())
}

#[cfg(unix)]
fn set_permissions(unique: &mut tempfile::Builder<'_, '_>, like: Option<&Metadata>) {
    use std::os::unix::fs::PermissionsExt;

    let mode = like.map_or(0o666, |about| about.permissions().mode() & 0o666);
    unique.permissions(fs::Permissions::from_mode(mode));
}

#[cfg(not(unix))]
fn set_permissions(_: &mut tempfile::Builder<'_, '_>, _: Option<&Metadata>) {}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file that stays open is another one than the new file.
    #[test]
    fn a_file_is_replaced_whole_or_not_at_all() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        replace(&path, b"old").unwrap();
        let mut open = fs::File::open(&path).unwrap();
        replace(&path, b"new").unwrap();
        assert_eq!(io::read_to_string(&mut open).unwrap(), "old");
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert!(replace(&folder.path().join("no/a"), b"").is_err());
        assert!(replace(folder.path(), b"").is_err());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "no part is left");
    }

    #[cfg(unix)]
    #[test]
    fn permissions_are_those_of_any_file_and_links_stay_links() {
        use std::os::unix::fs::{PermissionsExt, symlink};

        let folder = tempfile::tempdir().unwrap();
        let [any, path, link] = ["any", "path", "link"].map(|name| folder.path().join(name));
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode();
        fs::write(&any, b"").unwrap();
        replace(&path, b"one").unwrap();
        assert_eq!(mode(&path), mode(&any));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        replace(&path, b"two").unwrap();
        assert_eq!(mode(&path) & 0o777, 0o640);
        symlink(&path, &link).unwrap();
        replace(&link, b"three").unwrap();
        assert!(link.is_symlink() && fs::read(&path).unwrap() == b"three");
        replace(Path::new("/dev/null"), b"four").unwrap();
        assert!(!fs::metadata("/dev/null").unwrap().is_file());
    }
}
