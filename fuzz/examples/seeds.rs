//! Writes seed inputs: small valid encodings and messages that a fuzzer would take long to find.
//!
//! `cargo xtask fuzz` runs this first, with a folder that is not committed. `cargo xtask fuzz
//! --keep` copies the useful inputs to `corpus/`.

use foldwire::bundle;
use foldwire::codec::{CodecExt, CodecId};
use foldwire::compress::{Layout, compress_with};
use foldwire::frame::{CallHeader, HEADER_BYTES, Header, MessageKind, StepQuantity};
use foldwire::kernel::Level;
use foldwire::layout::Division;
use foldwire::op::OpCode;
use foldwire::pipeline;
use foldwire::{Bound, Collective, Element, Op, Plan, Rank, bf16, f16};
use foldwire_fuzz::setting::{FuzzSetting, N_OPS};
use foldwire_fuzz::values::{FuzzValue, encode};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Numbers of values in the encodings.
const COUNTS: [usize; 7] = [0, 1, 33, 300, 4095, 4096, 4500];
/// Largest length of an input, in bytes. Longer inputs are not written.
const MAX_BYTES: usize = 4096;

/// Lengths in bytes of the segments of each bundle.
const BUNDLES: [&[usize]; 4] = [&[70], &[0, 0], &[100, 3, 64], &[3, 200, 0, 64, 7, 500, 1, 90]];

/// Scripts for each side of the bootstrap handshake. `foldwire_fuzz::handshake` documents the
/// bytes.
const HANDSHAKES: [(&str, &[u8]); 6] = [
    ("admitted", &[0, 1, 1, 1, 4, 2]),
    ("duplicate", &[0, 0, 1, 2, 4, 2]),
    ("another-size", &[0, 9, 1, 1, 5]),
    ("rank-0", &[1, 1, 2]),
    ("gives", &[2, 200, 2, 2, 3, 7, 1, 1, 2, 3, 4, 5, 6, 7, 8, 9, 3, 11, 0]),
    ("shares", &[3, 255, 3, 5, 0, 2, 2, 2, 2, 3, 9, 4, 1, 0, 0, 0, 3, 11, 0]),
];

/// Scripts of a rank that lies while the other ranks form a group of survivors.
/// `foldwire_fuzz::survivors` documents the bytes. All scripts but the last are for three ranks,
/// where the last rank lies.
const LIES: [(&str, &[u8]); 10] = [
    ("nothing", &[0x21, 0, 0, 0]),
    ("silent", &[0x21, 2, 0, 0]),
    ("honest", &[0x21, 3, 1, 0, 2, 9, 8, 2, 1, 0, 7, 0x10, 0, 1, 2, 9, 0, 3, 1, 0, 7, 0x10]),
    (
        "two-groups",
        &[
            0x21, 3, 2, 0, 2, 0, 8, 2, 1, 0, 5, 0x10, 2, 1, 8, 2, 1, 0, 6, 0x10, 0, 80, 2, 0, 0, 3,
            1, 0, 5, 0x10, 2, 1, 0, 3, 1, 0, 6, 0x10,
        ],
    ),
    (
        "another-fence",
        &[
            0x21, 3, 3, 0, 2, 9, 8, 2, 1, 0, 7, 0x10, 0, 1, 2, 0, 0, 3, 1, 0, 7, 0x10, 2, 1, 0, 3,
            1, 0, 5, 0x10,
        ],
    ),
    (
        "later-epochs",
        &[
            0x21, 7, 4, 0, 2, 9, 8, 2, 1, 0, 7, 0x12, 0, 1, 2, 9, 8, 2, 9, 0, 7, 0x12, 0, 1, 2, 9,
            8, 2, 0xff, 0x7f, 7, 0x28,
        ],
    ),
    // Each rank receives its own view back from the liar, then its own fence, and later a fence
    // with other members.
    (
        "echo",
        &[
            0x21, 3, 8, 0, 2, 9, 8, 2, 1, 0, 7, 0x10, 0, 1, 4, 9, 8, 2, 0, 0, 0, 0, 1, 4, 9, 0, 1,
            0, 0, 0, 0, 1, 4, 9, 0, 1, 0, 0, 1,
        ],
    ),
    ("abort", &[0x21, 0x13, 5, 0, 2, 9, 8, 1, 0, 0, 1, 0, 0, 3, 2, 9, 8, 1, 1, 0, 1, 0]),
    ("damaged", &[0x21, 0x2b, 6, 0, 3, 9, 8, 2, 1, 0, 7, 0x30, 1, 12, 1, 1, 9, 8, 4, 1, 2, 3, 4]),
    (
        "five",
        &[
            0x13, 0x5b, 7, 0, 2, 0, 8, 2, 1, 0, 7, 0x10, 2, 3, 8, 2, 1, 0, 26, 0x11, 0, 70, 2, 9,
            0, 3, 1, 0, 31, 0x10, 2, 9, 0, 0, 1, 0, 1, 0,
        ],
    ),
];

/// Scripts for TCP connections. `foldwire_fuzz::tcp` documents the bytes.
const TCP: [(&str, &[u8]); 8] = [
    ("honest-connector", &[0, 0]),
    ("honest-other", &[1, 0, 0]),
    ("flipped-reply", &[0, 2, 200, 1]),
    ("flipped-hello", &[1, 2, 100, 0]),
    ("flipped-proof", &[1, 0, 2, 9, 0]),
    ("in-order", &[2, 0, 4, 1, 1, 1, 2, 0, 4, 1, 9, 1, 3, 0, 0, 4, 1, 3, 11]),
    (
        "other-order",
        &[2, 3, 9, 2, 3, 1, 18, 7, 7, 7, 17, 2, 2, 0, 0, 4, 2, 4, 2, 1, 7, 2, 1, 20, 4, 7],
    ),
    ("answers", &[2, 1, 5, 0, 2, 0, 5, 4, 10, 4, 2, 4, 0, 16]),
];

/// Scripts for an encrypted connection. `foldwire_fuzz::seal` documents the bytes.
const RECORDS: [(&str, &[u8]); 8] = [
    ("honest", &[0, 1, 0, 5, 0, 0, 0, 200, 0, 1]),
    ("long", &[20, 200, 1, 255, 0, 3]),
    ("late", &[1, 2, 2, 9, 2, 60, 3, 0, 0, 7, 3, 1]),
    ("again", &[1, 2, 0, 30, 0, 20, 3, 1]),
    ("flipped", &[3, 9, 0, 30, 2, 20, 4, 1, 40, 0]),
    ("cut", &[0, 0, 0, 40, 2, 40, 5, 1, 1]),
    ("another-length", &[1, 1, 0, 40, 2, 40, 6, 1, 0, 15, 8, 4, 1, 2, 3, 4]),
    ("its-own", &[1, 1, 7, 9, 0, 9]),
];

/// Scripts for ranks that connect to each other. `foldwire_fuzz::join` documents the bytes.
const JOINS: [(&str, &[u8]); 9] = [
    (
        "offer",
        b"\0here\n[::1]:77\n4096\n4\n2\ntrue\n\
          000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f\n\
          000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f",
    ),
    ("hello", b"\0fwtcp\0\0\x05\x03\0\0\0\x01\0\0\0\x02\0\0\0"),
    ("agree", &[1, 2, 0x20, 0x20, 0x20]),
    ("loopback", &[1, 1, 0x20, 0x10]),
    ("other-settings", &[1, 2, 0x20, 0x60, 0xa0]),
    ("failed", &[1, 2, 0x20, 1, 0, 0x22, 5, 0, 7]),
    ("hellos", &[2, 1, 3, 1, 4, 2, 1, 0, 0, 2, 1, 2, 1, 2, 1, 0, 0, 3, 1, 1, 0, 0, 1, 0, 0]),
    ("flipped-key", &[3, 2, 200, 1]),
    ("honest", &[4, 0, 0]),
];

/// Scripts for the store through which a group grows. `foldwire_fuzz::grow` documents the bytes.
const GROWS: [(&str, &[u8]); 7] = [
    ("alone", &[0]),
    ("newcomers", &[6, 0, 0, 1, 3, 1, 0, 1, 1, 5, 1, 9, 0, 1, 3, 2, 9, 1, 1, 5, 2]),
    ("strangers", &[4, 0, 0, 2, 3, 99, 0, 1, 0, 4, 255, 255, 255, 255, 0, 2, 2, 4, 250]),
    ("fails", &[4, 4, 0, 5]),
    ("admitted", &[1, 0, 200, 3, 0, 5, 16, 4]),
    ("another-plan", &[1, 0, 200, 3, 2, 30, 0, 9, 60, 0, 1, 5, 16, 4]),
    ("no-plan", &[1, 0, 0, 1, 1, 1, 0, 200, 0, 8, 102, 119, 112, 108, 97, 110, 0, 1, 0, 16, 4]),
];

/// Scripts for a store over TCP. `foldwire_fuzz::store` documents the bytes.
const STORES: [(&str, &[u8]); 7] = [
    ("sets", &[0, 1, 2, 1, 1, 7, 7, 7, 3, 1, 3, 2, 4, 20]),
    ("stranger", &[0, 5, 2, 1, 1, 7, 7, 7]),
    ("bytes", &[0, 1, 0, 3, 5, 0, 0, 0, 1, 0, 0, 0, 9]),
    ("answer", &[1, 6, 0, 0, 0, 1, 0, 0, 0, 1, 7, 5, 0, 0, 0, 2, 0, 0, 0, 0]),
    ("request", &[2, 1, 0, 0, 0, 0, 1, 107, 7]),
    ("gathered", &[3, 1, 1, 1, 0, 0, 0, 7, 2, 0, 0, 0, 8, 8]),
    ("missing", &[3, 2, 0, 1, 0, 0, 0, 2, 0, 0, 0]),
];

/// Answers of PMI servers. `foldwire_fuzz::pmi` documents the first byte.
const SERVERS: [(&str, &[u8]); 4] = [
    (
        "port",
        b"\x08cmd=initack rc=0\ncmd=set size=4\ncmd=set rank=1\ncmd=set debug=0\n\
          cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=1\n\
          cmd=maxes rc=0 kvsname_max=256 keylen_max=64 vallen_max=1024\n\
          cmd=my_kvsname rc=0 kvsname=kvs_7_0\ncmd=barrier_out rc=0\n\
          cmd=get_result rc=0 value=foldwire1,127.0.0.1:777,000102030405060708090a0b0c0d0e0f,\
          101112131415161718191a1b1c1d1e1f\ncmd=finalize_ack\n",
    ),
    (
        "root",
        b"\x04cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=1\n\
          cmd=maxes keylen_max=64 vallen_max=1024\ncmd=my_kvsname kvsname=k\n\
          cmd=put_result rc=0\ncmd=barrier_out\n\
          cmd=get_result rc=0 value=foldwire1,[::1]:777,000102030405060708090a0b0c0d0e0f,\
          101112131415161718191a1b1c1d1e1f\ncmd=finalize_ack\n",
    ),
    (
        "failed",
        b"\x05cmd=response_to_init rc=0 pmi_version=1\n\
          cmd=maxes keylen_max=64 vallen_max=1024\n\
          cmd=my_kvsname kvsname=k\ncmd=barrier_out\n\
          cmd=get_result rc=-1 value=unknown_to_me_now\n",
    ),
    ("version-2", b"\x05cmd=response_to_init rc=0 pmi_version=2\n"),
];

/// Plans, bounds, speeds and rules. `foldwire_fuzz::plan` documents the first byte.
const TEXTS: [(&str, &str); 8] = [
    ("plan", "\0rel:1e-3,codec:dense,shape:10x10x3,scope:result,below:16,unbiased:17,lanes:2"),
    ("auto", "\0auto, psnr:60, schedule:ring"),
    ("truncate", "\0codec:truncate:20,compress"),
    ("lossless", "\0lossless,codec:shuffle"),
    ("bound", "\x01abs:0.5"),
    ("speeds", "\x02fz-light = 3e9 4e-6 # a comment\nraw = 1e10"),
    ("rules", "\x03all-reduce::1M-:link=-10gbit:pairwise,all-reduce:::node=2-:two-levels"),
    ("rule", "\x03all-reduce:2-16:-64K:recursive-doubling"),
];

/// Environments that launchers set.
const ENVIRONMENTS: [&str; 4] = [
    "FOLDWIRE_RANK=3 FOLDWIRE_SIZE=4 FOLDWIRE_ROOT=[::1]:77 FOLDWIRE_TOKEN=0123456789abcdef",
    "OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_SIZE=2 PMIX_RANK=1 \
    PMIX_NAMESPACE=14",
    "PMI_RANK=1 PMI_SIZE=3 MPI_LOCALNRANKS=3 MPI_LOCALRANKID=1 FOLDWIRE_JOB=12",
    "SLURM_PROCID=5 SLURM_STEP_NUM_TASKS=8 SLURM_STEP_NUM_NODES=2 SLURM_JOB_ID=12 SLURM_STEP_ID=0 \
     SLURM_STEP_NODELIST=node[07-08,11],gpu3",
];

/// Headers of NumPy files.
const HEADERS: [&str; 4] = [
    "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 2), }",
    "{'descr': '>f8', 'fortran_order': False, 'shape': (2,), }",
    "{'descr': '<f8', 'fortran_order': True, 'shape': (1, 2), }",
    "{'descr': '<i4', 'fortran_order': False, 'shape': (99999999999, 99999999999), }",
];

fn main() -> io::Result<()> {
    let Some(folder) = std::env::args_os().nth(1).map(PathBuf::from) else {
        eprintln!("usage: seeds FOLDER (a folder for each target is made in it)");
        std::process::exit(2);
    };
    for &codec in CodecId::ALL {
        encodings::<f32>(&folder, codec)?;
        encodings::<f64>(&folder, codec)?;
        encodings::<f16>(&folder, codec)?;
        encodings::<bf16>(&folder, codec)?;
    }
    arrays(&folder)?;
    for (i, &collective) in Collective::ALL.iter().enumerate() {
        for checksum in [false, true] {
            put(&folder, "frame", &format!("{i}-{checksum}"), &message(collective, checksum))?;
        }
    }
    for (i, lens) in BUNDLES.iter().enumerate() {
        put(&folder, "bundle", &i.to_string(), &bundle_of(lens))?;
    }
    for (name, script) in HANDSHAKES {
        put(&folder, "handshake", name, script)?;
    }
    for (name, script) in LIES {
        put(&folder, "survivors", name, script)?;
    }
    for (name, script) in TCP {
        put(&folder, "tcp", name, script)?;
    }
    for (name, script) in JOINS {
        put(&folder, "join", name, script)?;
    }
    for (name, script) in GROWS {
        put(&folder, "grow", name, script)?;
    }
    for (name, script) in STORES {
        put(&folder, "store", name, script)?;
    }
    for (name, said) in SERVERS {
        put(&folder, "pmi", name, said)?;
    }
    for (name, text) in TEXTS {
        put(&folder, "plan", name, text.as_bytes())?;
    }
    for (name, script) in RECORDS {
        put(&folder, "seal", name, script)?;
    }
    for (i, environment) in ENVIRONMENTS.iter().enumerate() {
        put(&folder, "place", &i.to_string(), environment.replace(' ', "\n").as_bytes())?;
    }
    for (i, header) in HEADERS.iter().enumerate() {
        put(&folder, "field", &i.to_string(), &npy(header))?;
    }
    // Any bytes give valid values, so a few bytes are enough.
    put(&folder, "roundtrip", "count", &(0..=255).collect::<Vec<u8>>())
}

/// Writes a seed for a target, unless it is longer than [`MAX_BYTES`].
fn put(folder: &Path, target: &str, name: &str, bytes: &[u8]) -> io::Result<()> {
    if bytes.len() > MAX_BYTES {
        return Ok(());
    }
    fs::create_dir_all(folder.join(target))?;
    fs::write(folder.join(target).join(format!("seed-{name}")), bytes)
}

/// Makes a bundle of segments with these lengths. `foldwire_fuzz::bundle` documents the first two
/// bytes.
fn bundle_of(lens: &[usize]) -> Vec<u8> {
    let mut buffer = vec![0; bundle::n_bytes(lens.iter().copied())];
    let mut n_bytes = 0;
    for (index, &len) in lens.iter().enumerate() {
        let free = bundle::free(&buffer, lens.len(), n_bytes).expect("space");
        let written = free.start..free.start + len;
        buffer[written.clone()].fill(index as u8);
        n_bytes = bundle::end_segment(&mut buffer, lens.len(), index, written).expect("space");
    }
    let split = lens.len() / 2;
    [vec![lens.len() as u8 - 1, split as u8], buffer].concat()
}

/// Test data: a name, and the value at an index.
type SeedField = (&'static str, fn(usize) -> f64);

/// Writes encodings that take every path of a codec. The data are smooth, rough, or constant, or
/// have few or many exceptions (values that the lattice cannot represent). Each encoding is of one
/// operand, and of the sum of two.
fn encodings<T: FuzzValue>(folder: &Path, id: CodecId) -> io::Result<()> {
    let fields: [SeedField; 5] = [
        ("smooth", |i| (i as f64 * 0.01).sin()),
        ("rough", |i| ((i * i * 31) % 1009) as f64),
        ("constant", |i| if i % 500 < 400 { 1e30 } else { 2.0 }),
        ("special", |i| if i % 100 == 50 { f64::NAN } else { -(i as f64) }),
        ("exceptions", |i| match i * i % 37 {
            0..4 => f64::NAN,
            4 => 1e30 * (i % 3) as f64,
            _ => (i as f64 * 0.1).sin(),
        }),
    ];
    for (nth, (name, field)) in fields.into_iter().enumerate() {
        for n_values in COUNTS {
            let setting = FuzzSetting {
                codec: id,
                dtype: T::DTYPE,
                op: (nth + n_values) as u8 % N_OPS,
                exponent: -6,
                max_operands: 8,
                divisor: 3,
                misaligned: nth,
                shape: 3 * nth,
                number: 0,
                bytes: &[],
            };
            let codec = setting.codec_at::<T>(Level::Scalar);
            let codec = codec.as_dyn();
            let values: Vec<T> = (0..n_values).map(|i| T::from_f64(field(i))).collect();
            let one = encode(codec, &values);
            let mut two = vec![0; codec.max_encoded_len(n_values).unwrap_or(0)];
            let written = codec.fold(&Op::Sum, &one, &values, &mut two).expect("operands match");
            two.truncate(written.n_bytes);
            for (kind, bytes) in [("one", &one), ("two", &two)] {
                let name = format!("{}-{}-{name}-{n_values}-{kind}", id.name(), T::DTYPE);
                let input = FuzzSetting { bytes, ..setting }.to_bytes();
                for target in ["decode", "reduce", "fold"] {
                    put(folder, target, &name, &input)?;
                }
            }
            let interp = (id == CodecId::Dense).then_some(CodecId::Interp);
            // Arrays refuse codecs that are not for the type.
            for id in [Some(id), interp].into_iter().flatten().filter(|id| id.is_for(T::DTYPE)) {
                let quantum = setting.quantum::<T>();
                let plan = match quantum.is_lossless() {
                    true => Plan::raw(),
                    false => Plan::raw().with_bound(Bound::Absolute(quantum.bound())),
                };
                let (plan, layout) = (plan.with_codec(id), Layout::line(n_values));
                let array = compress_with(&values, &layout, &plan).expect("a good plan");
                let name = format!("{}-{}-{name}-{n_values}", id.name(), T::DTYPE);
                put_array(folder, &name, &array)?;
            }
            let pair = [&one[..], &two].concat();
            let input = FuzzSetting { bytes: &pair, number: one.len(), ..setting }.to_bytes();
            put(
                folder,
                "combine",
                &format!("{}-{}-{name}-{n_values}", id.name(), T::DTYPE),
                &input,
            )?;
        }
    }
    Ok(())
}

/// Writes arrays of three dimensions, with fill values, of integers, and without loss.
fn arrays(folder: &Path) -> io::Result<()> {
    const SHAPE: [usize; 3] = [6, 20, 30];
    const FILL: f64 = -9999.0;
    let height = |i: usize| ((i % 30) as f64 * 0.2).sin() + ((i / 600) as f64).sqrt();
    let is_land = |i: usize| i % 30 < 8 && i / 30 % 20 > 4;
    let bounded = Plan::auto(Bound::Relative(1e-3));
    let plans = [
        ("auto", bounded),
        ("interp", bounded.with_codec(CodecId::Interp)),
        ("fz-nd", bounded.with_codec(CodecId::FzNd)),
        ("lossless", Plan::lossless()),
    ];
    let values = |fill: Option<f64>| {
        (0..SHAPE.iter().product()).map(move |i| match fill {
            Some(fill) if is_land(i) => fill,
            _ => height(i),
        })
    };
    for (name, plan) in plans {
        for fill_value in [None, Some(FILL)] {
            let layout = Layout { fill_value, ..Layout::new(&SHAPE) };
            let single: Vec<f32> = values(fill_value).map(|x| x as f32).collect();
            let double: Vec<f64> = values(fill_value).collect();
            let kind = if fill_value.is_some() { "filled" } else { "full" };
            let arrays = [
                ("f32", compress_with(&single, &layout, &plan)),
                ("f64", compress_with(&double, &layout, &plan)),
            ];
            for (dtype, array) in arrays {
                let array = array.expect("a good plan");
                put_array(folder, &format!("{name}-{kind}-{dtype}"), &array)?;
            }
        }
    }
    let (layout, plan) = (Layout::new(&SHAPE), Plan::lossless());
    let numbers = || values(None).map(|x| (100.0 * x) as i64);
    let arrays = [
        ("i64", compress_with(&numbers().collect::<Vec<i64>>(), &layout, &plan)),
        ("i32", compress_with(&numbers().map(|x| x as i32).collect::<Vec<_>>(), &layout, &plan)),
        ("u16", compress_with(&numbers().map(|x| x as u16).collect::<Vec<_>>(), &layout, &plan)),
        ("u8", compress_with(&numbers().map(|x| x as u8).collect::<Vec<_>>(), &layout, &plan)),
    ];
    for (dtype, array) in arrays {
        put_array(folder, &format!("integers-{dtype}"), &array.expect("a good plan"))?;
    }
    Ok(())
}

/// Writes an input of `foldwire_fuzz::decompress`, which corrects its checksums.
fn put_array(folder: &Path, name: &str, array: &[u8]) -> io::Result<()> {
    put(folder, "decompress", name, &[&[2], array].concat())
}

/// Makes a message of two values with a valid header.
fn message(collective: Collective, checksum: bool) -> Vec<u8> {
    let mut bytes = vec![7; HEADER_BYTES + 8];
    let call = CallHeader {
        context: 0,
        epoch: 0,
        sequence: 1,
        collective,
        dtype: f32::DTYPE,
        op: OpCode::Sum,
        codec: CodecId::Raw,
        division: Division::Blocks,
        pipeline: pipeline::RAW.code(),
        schedule: 0,
        lanes: 4,
        root: 0,
        count: 2,
        measure: StepQuantity::Lattice,
        step: 0.5,
    };
    let segment = Header {
        as_floats: false,
        kind: MessageKind::Data,
        call,
        from: Rank(1),
        part: 0,
        round: 0,
        n_values: 2,
        n_bytes: 8,
        operands: 1,
    };
    segment.emit(&mut bytes, checksum);
    bytes
}

/// Makes an input of `foldwire_fuzz::field` with this header and space for six values.
fn npy(header: &str) -> Vec<u8> {
    let mut bytes = vec![0];
    bytes.extend(b"\x93NUMPY\x01\x00");
    bytes.extend((header.len() as u16).to_le_bytes());
    bytes.extend(header.as_bytes());
    bytes.extend([0x40; 24]);
    bytes
}
