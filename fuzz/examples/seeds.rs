//! Writes the first corpus: small valid encodings and messages, which a fuzzer would be long to guess.
//!
//! `cargo xtask fuzz` runs it before the first run; the files are not worth keeping in the repository.

use foldwire::codec::{CodecId, FzLight, Homomorphic};
use foldwire::frame::{CallHeader, HEADER_BYTES, Header, Kind};
use foldwire::layout::Division;
use foldwire::op::OpCode;
use foldwire::pipeline;
use foldwire::{Collective, Element, Op, Quantum};
use foldwire_fuzz::{Value, buffer, encode};
use std::fs;
use std::io;
use std::path::Path;

const COUNTS: [usize; 7] = [0, 1, 33, 300, 4095, 4096, 4500];

fn main() -> io::Result<()> {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    let decode = corpus.join("decode");
    fs::create_dir_all(&decode)?;
    encodings::<f32>(&decode)?;
    encodings::<f64>(&decode)?;

    let frame = corpus.join("frame");
    fs::create_dir_all(&frame)?;
    for (i, &collective) in Collective::ALL.iter().enumerate() {
        for checksum in [false, true] {
            fs::write(frame.join(format!("seed-{i}-{checksum}")), message(collective, checksum))?;
        }
    }
    Ok(())
}

/// Fields that take every path of the codec: smooth, rough, constant, with values beyond the lattice,
/// and sums.
fn encodings<T: Value>(folder: &Path) -> io::Result<()> {
    let fields: [(&str, fn(usize) -> f64); 4] = [
        ("smooth", |i| (i as f64 * 0.01).sin()),
        ("rough", |i| ((i * i * 31) % 1009) as f64),
        ("constant", |i| if i % 500 < 400 { 1e30 } else { 2.0 }),
        ("special", |i| if i % 100 == 50 { f64::NAN } else { -(i as f64) }),
    ];
    let codec = FzLight::<T>::new(Quantum::new::<T>(1.0 / 64.0), 4);
    for (name, field) in fields {
        for n_values in COUNTS {
            let values: Vec<T> = (0..n_values).map(|i| T::from_f64(field(i))).collect();
            let frame = encode(&codec, &values);
            let mut sum = buffer(&codec, n_values);
            let written =
                codec.combine(&Op::Sum, &frame, &frame, &mut sum).expect("it matches itself");
            sum.truncate(written.n_bytes);
            let file = |kind| folder.join(format!("seed-{}-{name}-{n_values}-{kind}", T::DTYPE));
            fs::write(file("one"), frame)?;
            fs::write(file("sum"), sum)?;
        }
    }
    Ok(())
}

fn message(collective: Collective, checksum: bool) -> Vec<u8> {
    let mut bytes = vec![7; HEADER_BYTES + 8];
    let call = CallHeader {
        sequence: 1,
        collective,
        dtype: f32::DTYPE,
        op: OpCode::Sum,
        codec: CodecId::Raw,
        division: Division::Blocks,
        pipeline: pipeline::RAW.code(),
        root: 0,
        count: 2,
        step: 0.5,
    };
    Header { kind: Kind::Data, call, part: 0, round: 0, n_values: 2, n_bytes: 8, operands: 1 }
        .emit(&mut bytes, checksum);
    bytes
}
