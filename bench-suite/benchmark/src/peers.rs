//! Sizes and speeds of other compressors on the same fields, from a table measured elsewhere.
//!
//! The table is a CSV file with one row per field, relative bound and compressor. It is not part of
//! the project. Without it, reports omit the comparison.

use std::path::Path;

use foldwire_fields::usage::{UsageError, usage};
use serde::Deserialize;

/// Path of the table if the user names none.
pub const DEFAULT_PATH: &str = "../shared/reference/peers.csv";

/// A row of the table: one compressor on one field at one bound. Other columns are not read.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct PeerResult {
    /// File name of the field.
    pub field: String,
    /// Bound as a fraction of the field's range.
    pub rel_bound: f64,
    /// Name of the compressor.
    pub peer: String,
    /// Size in memory / compressed size.
    pub ratio: f64,
    /// Compression speed of one thread, in 1e9 bytes of the field per second.
    #[serde(rename = "compress_GBps")]
    pub compress_gbps: f64,
}

/// The table of other compressors.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PeerTable(Vec<PeerResult>);

impl PeerTable {
    /// Reads the table at `path`, or at [`DEFAULT_PATH`]. Without a file at the default path the
    /// table is empty.
    ///
    /// # Errors
    ///
    /// Returns a [`UsageError`] if the named file is missing, or a file is not such a table.
    pub fn load(path: Option<&Path>) -> Result<Self, UsageError> {
        match path {
            Some(path) => Self::read(path),
            None if Path::new(DEFAULT_PATH).is_file() => Self::read(Path::new(DEFAULT_PATH)),
            None => Ok(Self::default()),
        }
    }

    fn read(path: &Path) -> Result<Self, UsageError> {
        let fault = |error: csv::Error| {
            usage!("{}: {error}; --peers takes a table in the form of peers.csv", path.display())
        };
        let rows = csv::Reader::from_path(path)
            .map_err(fault)?
            .into_deserialize()
            .collect::<Result<_, _>>();
        rows.map(Self).map_err(fault)
    }

    /// Returns whether the table has no rows.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the compressors that were measured on the field with this file name, at this
    /// relative bound.
    pub fn of<'a>(
        &'a self,
        field: &'a str,
        rel_bound: f64,
    ) -> impl Iterator<Item = &'a PeerResult> {
        let is_same = move |other: f64| (other - rel_bound).abs() <= 1e-9 * rel_bound;
        self.0.iter().filter(move |peer| peer.field == field && is_same(peer.rel_bound))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write;

    use super::*;

    const HEAD: &str = "field,rel_bound,abs_bound,peer,compressed_bytes,ratio,compress_GBps,\
        decompress_GBps,points_over_bound,max_error_over_bound,psnr_dB\n";

    fn read(text: &str) -> Result<PeerTable, UsageError> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("peers.csv");
        fs::write(&path, text).unwrap();
        PeerTable::load(Some(&path))
    }

    #[test]
    fn rows_are_found_by_field_and_bound() {
        let rows = "a.f32,0.01,0.9,SZp-b32,2806760,10.2737,0.6433,2.6140,9,1.000012,44.7645\n\
                    a.f32,0.001,0.09,SZp-b32,5000000,5.1,0.6,2.6,0,0.9,64.7\n\
                    a.f32,1e-3,0.09,SZx,6000000,4.1,0.8,1.1,0,0.9,\n\
                    b.f32,0.001,0.09,SZx,6000000,4.1,0.8,1.1,0,0.9,70\n";
        let peers = read(&format!("{HEAD}{rows}")).unwrap();
        let found: Vec<_> = peers.of("a.f32", 1e-3).collect();
        assert_eq!(
            found.iter().map(|peer| peer.peer.as_str()).collect::<Vec<_>>(),
            ["SZp-b32", "SZx"]
        );
        let speeds = found.iter().map(|peer| (peer.ratio, peer.compress_gbps));
        assert_eq!(speeds.collect::<Vec<_>>(), [(5.1, 0.6), (4.1, 0.8)]);
        assert_eq!(peers.of("a.f32", 1e-4).count() + peers.of("c.f32", 1e-3).count(), 0);
    }

    #[test]
    fn what_is_no_table_is_an_error_of_use() {
        for wrong in ["field,ratio\na,1\n".to_owned(), format!("{HEAD}a,b,c,d,e,f,g,h,i,j,k\n")] {
            assert!(read(&wrong).unwrap_err().to_string().contains("--peers"));
        }
        let missing = PeerTable::load(Some(Path::new("/nowhere/peers.csv"))).unwrap_err();
        assert!(missing.to_string().contains("/nowhere/peers.csv"));
    }

    /// The table of reference results; skipped if it is absent.
    #[test]
    fn the_shared_table_is_read() {
        let path =
            Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/reference/peers.csv"));
        if !path.is_file() {
            let _ = writeln!(std::io::stdout(), "skipped: {} is absent", path.display());
            return;
        }
        let peers = PeerTable::load(Some(path)).unwrap();
        assert!(peers.of("ccsm_trefht_8x110x64x128.f32", 1e-3).any(|peer| peer.peer == "SZp-b32"));
    }
}
