//! `foldwire codec`: the codec alone, on one thread, on fields in files.

use serde_json::json;

use crate::cli::CodecArgs;
use crate::field::{Field, Values};
use crate::peers::Peers;
use crate::quality;
use crate::table::{self, Align, Table};

/// Runs the subcommand: results on stdout, everything else on stderr.
///
/// # Errors
///
/// Errors of use.
pub fn run(args: &CodecArgs) -> anyhow::Result<()> {
    let peers = Peers::load(args.peers.as_deref())?;
    let fields =
        args.field.iter().map(|path| Field::read(path, None)).collect::<Result<Vec<_>, _>>()?;
    if peers.is_empty() {
        eprintln!("note: no table of other compressors was found; name one with --peers");
    }
    let mut table = Table::new(&[
        ("field", "", Align::Left),
        ("type", "", Align::Left),
        ("dimensions", "", Align::Left),
        ("size", "MB", Align::Right),
        ("range", "", Align::Right),
    ]);
    for field in &fields {
        let range = match &field.values {
            Values::F32(values) => quality::range(values),
            Values::F64(values) => quality::range(values),
        };
        table.row(&[
            field.name.clone(),
            field.values.dtype().to_owned(),
            field.dims.to_string(),
            format!("{:.2}", field.values.n_bytes() as f64 / 1e6),
            table::scientific(range),
        ]);
    }
    if args.json {
        println!("{}", json!({ "rows": [] }));
    } else {
        print!("{}", table.render());
    }
    Ok(())
}
