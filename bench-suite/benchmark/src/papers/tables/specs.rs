//! The published tables: which systems and columns they have, and what is measured for each.

/// Measurements of a field. Published figures have the same names, except for threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Metric {
    EncodeAlone,
    DecodeAlone,
    Encode,
    Decode,
    Ratio,
    Constant,
    Nrmse,
    EncodeShare,
    DecodeShare,
    Add,
    AddRatio,
    AddNrmse,
    PairAdd,
    PairSpeedup,
    BothConstant,
    Left,
    Right,
    NeitherConstant,
}

/// A column: what is measured, its name in the published figures, its unit.
pub(super) type Column = (Metric, &'static str, &'static str);

/// A published table.
pub(super) struct TableSpec {
    pub(super) paper: &'static str,
    pub(super) table: &'static str,
    pub(super) title: &'static str,
    /// Compressors or ways to add, as the paper names them.
    pub(super) systems: &'static [&'static str],
    pub(super) columns: &'static [Column],
}

pub(super) const FZ_LIGHT: &str = "fZ-light";
pub(super) const SZX: &str = "SZx";
pub(super) const OMPSZP: &str = "ompSZp";
pub(super) const HOMOMORPHIC: &str = "hZ-dynamic";
pub(super) const BY_FLOATS: &str = "by floats";

/// Compressors: the papers' name and the codec here.
pub(super) const CODECS: [(&str, &str); 3] =
    [(FZ_LIGHT, "fz-light"), (SZX, "szx"), (OMPSZP, "ompszp")];

pub(super) static SPECS: [TableSpec; 8] = [
    TableSpec {
        paper: "ZCCL",
        table: "I",
        title: "one thread",
        systems: &[FZ_LIGHT, SZX],
        columns: &[
            (Metric::EncodeAlone, "encode", "GB/s"),
            (Metric::DecodeAlone, "decode", "GB/s"),
        ],
    },
    TableSpec {
        paper: "ZCCL",
        table: "II",
        title: "several threads",
        systems: &[FZ_LIGHT, SZX],
        columns: &[(Metric::Encode, "encode", "GB/s"), (Metric::Decode, "decode", "GB/s")],
    },
    TableSpec {
        paper: "ZCCL",
        table: "III",
        title: "ratio and constant blocks",
        systems: &[FZ_LIGHT, SZX],
        columns: &[(Metric::Ratio, "ratio", ""), (Metric::Constant, "constant", "%")],
    },
    TableSpec {
        paper: "ZCCL",
        table: "IV",
        title: "error",
        systems: &[FZ_LIGHT, SZX],
        columns: &[(Metric::Nrmse, "NRMSE", "")],
    },
    TableSpec {
        paper: "hZCCL",
        table: "III",
        title: "ratio and error",
        systems: &[FZ_LIGHT, OMPSZP],
        columns: &[(Metric::Ratio, "ratio", ""), (Metric::Nrmse, "NRMSE", "")],
    },
    TableSpec {
        paper: "hZCCL",
        table: "IV",
        title: "memory traffic as a share of STREAM, several threads",
        systems: &[OMPSZP, FZ_LIGHT],
        columns: &[
            (Metric::EncodeShare, "encode / STREAM", "%"),
            (Metric::DecodeShare, "decode / STREAM", "%"),
        ],
    },
    TableSpec {
        paper: "hZCCL",
        table: "V",
        title: "paths of the homomorphic add of two fields, several threads",
        systems: &[HOMOMORPHIC],
        columns: &[
            (Metric::PairAdd, "add", "GB/s"),
            (Metric::PairSpeedup, "add / by floats", ""),
            (Metric::BothConstant, "both constant", "%"),
            (Metric::Left, "path 2", "%"),
            (Metric::Right, "path 3", "%"),
            (Metric::NeitherConstant, "neither constant", "%"),
        ],
    },
    TableSpec {
        paper: "hZCCL",
        table: "VI",
        title: "sums of a field and itself, several threads",
        systems: &[HOMOMORPHIC, BY_FLOATS],
        columns: &[
            (Metric::Add, "add", "GB/s"),
            (Metric::AddRatio, "ratio", ""),
            (Metric::AddNrmse, "NRMSE", ""),
        ],
    },
];

#[cfg(test)]
mod tests {
    use super::*;
    use foldwire_arguments::papers::TABLES;
    use foldwire_published::figures;

    /// A wrong name would leave a published column empty.
    #[test]
    fn every_table_and_column_has_published_figures_and_none_is_left_out() {
        assert_eq!(SPECS.each_ref().map(|spec| format!("{}-{}", spec.paper, spec.table)), TABLES);
        for TableSpec { paper, table, systems, columns, .. } in &SPECS {
            let rows = || figures().iter().filter(|row| row.is_of(paper, table));
            for system in *systems {
                for (_, name, _) in *columns {
                    let n_rows = rows().filter(|row| (row.system, row.metric) == (*system, *name));
                    assert!(n_rows.count() >= 2, "{paper} {table} {system} {name}");
                }
            }
            let is_shown = |metric: &str| columns.iter().any(|(_, name, _)| *name == metric);
            let is_std = |metric: &str| metric.strip_suffix(" STD").is_some_and(is_shown);
            for row in rows() {
                assert!(systems.contains(&row.system), "{row:?}");
                assert!(is_shown(row.metric) || is_std(row.metric), "{row:?}");
            }
        }
    }
}
