//! Tests of `foldwire compress` and `foldwire decompress`: files of every kind come back within the
//! bound, and mistakes and damaged files are errors that leave no output.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use crate::common::{assert_refused, foldwire};

/// Values of a segment of the format.
const SEGMENT: usize = 1 << 20;

fn succeeds(folder: &Path, args: &str) {
    let output = foldwire(folder, args);
    assert!(output.status.success(), "{args}: {}", String::from_utf8_lossy(&output.stderr));
}

fn start(folder: &Path, args: &str) -> Child {
    Command::new(env!("CARGO_BIN_EXE_foldwire"))
        .args(args.split_whitespace())
        .current_dir(folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Runs the command with these bytes as standard input.
fn piped(folder: &Path, args: &str, input: &[u8]) -> Output {
    let mut child = start(folder, args);
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_vec();
    // A thread, because the command writes while it reads.
    let writer = std::thread::spawn(move || {
        let _ = stdin.write_all(&input);
    });
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    output
}

fn wave(n_values: usize) -> Vec<f32> {
    (0..n_values).map(|i| (i as f32 * 1e-3).sin() + (i / 700) as f32 * 1e-2).collect()
}

fn bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|x| x.to_le_bytes()).collect()
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks_exact(4).map(|x| f32::from_le_bytes(x.try_into().unwrap())).collect()
}

fn npy(dict: &str, values: &[u8]) -> Vec<u8> {
    [b"\x93NUMPY\x01\0", &(dict.len() as u16 + 1).to_le_bytes()[..], dict.as_bytes(), b"\n", values]
        .concat()
}

fn is_within(bound: f32, a: &[f32], b: &[f32]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| (a - b).abs() <= bound)
}

#[test]
fn raw_files_longer_than_a_segment_come_back_within_the_bound() {
    let folder = tempfile::tempdir().unwrap();
    let (folder, values) = (folder.path(), wave(2 * SEGMENT + 77));
    fs::write(folder.join("a.f32"), bytes(&values)).unwrap();
    let low = values.iter().copied().fold(f32::INFINITY, f32::min);
    let high = values.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    for (options, bound) in [
        ("--bound abs:1e-3", 1e-3),
        ("--bound rel:1e-4", 1e-4 * (high - low)),
        ("--bound abs:1e-3 --codec szx", 1e-3),
        ("--lossless", 0.0),
        ("--codec mpc", 0.0),
        ("--codec truncate:13", 0.1),
    ] {
        succeeds(folder, &format!("compress a.f32 {options} --force"));
        let compressed = fs::read(folder.join("a.f32.fwz")).unwrap();
        assert!(compressed.len() < 4 * values.len() * 4 / 5, "{options}: {}", compressed.len());
        succeeds(folder, "decompress a.f32.fwz --force");
        let restored = floats(&fs::read(folder.join("a.f32")).unwrap());
        assert!(is_within(bound, &values, &restored), "{options}");
        fs::write(folder.join("a.f32"), bytes(&values)).unwrap();
    }
    // Nothing else is left.
    assert_eq!(fs::read_dir(folder).unwrap().count(), 2);
}

#[test]
fn a_fill_value_is_warned_of_or_kept() {
    let folder = tempfile::tempdir().unwrap();
    let mut values = wave(SEGMENT + 5000);
    let [least, most] = [f32::min, f32::max].map(|of| values.iter().copied().reduce(of).unwrap());
    values[1000..90_000].fill(-9999.0);
    fs::write(folder.path().join("x.f32"), bytes(&values)).unwrap();
    let args = "compress x.f32 --bound rel:1e-3 --output x.fwz --force";
    for (fill, is_warned_of, least) in [("", true, -9999.0), ("--fill=-9999", false, least)] {
        let bound = 1e-3 * (most - least);
        let output = foldwire(folder.path(), &format!("{args} {fill}"));
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}");
        assert_eq!(said.contains("warning: the value -9999.0 sets"), is_warned_of, "{said}");
        succeeds(folder.path(), "decompress x.fwz --output y.f32 --force");
        let back = floats(&fs::read(folder.path().join("y.f32")).unwrap());
        assert!(is_within(bound, &values, &back), "{fill}");
        let n_fills = back.iter().filter(|&&x| x == -9999.0).count();
        assert!(is_warned_of || n_fills == 89_000, "{n_fills}");
    }
    // Nothing is written, not even to a pipe, though the value stands only at the end, or once in
    // each segment.
    let (mut at_end, mut scattered) = (wave(2 * SEGMENT), wave(3 * SEGMENT));
    at_end[2 * SEGMENT - 10..].fill(1e20);
    (0..3).for_each(|i| scattered[i * SEGMENT + 5] = 1e20);
    for values in [scattered, at_end] {
        fs::write(folder.path().join("x.f32"), bytes(&values)).unwrap();
        for output in ["z.fwz", "-"] {
            for threads in [1, 3] {
                let args = format!(
                    "compress x.f32 --bound rel:1e-22 --output {output} --fill refuse \
                     --threads {threads}"
                );
                let done = foldwire(folder.path(), &args);
                let said = String::from_utf8_lossy(&done.stderr);
                assert_eq!((done.status.code(), done.stdout.len()), (Some(2), 0), "{said}");
                assert!(said.contains("sets the value range"), "{said}");
            }
        }
    }
    assert!(!folder.path().join("z.fwz").exists());
    succeeds(folder.path(), "compress x.f32 --bound abs:1e-3 --output z.fwz --fill refuse");
}

/// Segments are whole rows, so that pieces of the file end within them.
#[test]
fn several_threads_write_the_bytes_that_one_writes() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let values = wave(5 * SEGMENT + 4);
    fs::write(folder.join("x.f32"), bytes(&values)).unwrap();
    // The range is 76.
    for (of, options, bound) in [
        ("x.f32", "--bound rel:1e-3 --codec dense", 0.077),
        ("x.f32", "--bound abs:1e-3 --codec fz-light --dims 1310721x4", 1e-3),
        ("x.f32", "--lossless --dims 1747628x3", 0.0),
        ("f32:-", "--bound abs:1e-3 --codec fz-nd", 1e-3),
    ] {
        let compressed = [1, 2].map(|n_threads| {
            let args = format!("compress {of} {options} --output - --threads {n_threads}");
            let output = piped(folder, &args, &bytes(&values));
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            output.stdout
        });
        assert!(compressed[0] == compressed[1], "{options}");
        fs::write(folder.join("x.fwz"), &compressed[0]).unwrap();
        let restored = [1, 2].map(|n_threads| {
            let args = format!("decompress x.fwz --output y.f32 --force --threads {n_threads}");
            succeeds(folder, &args);
            fs::read(folder.join("y.f32")).unwrap()
        });
        assert!(restored[0] == restored[1], "{options}");
        assert!(is_within(bound, &values, &floats(&restored[0])), "{options}");
        // Damage after the first segments is found, and there is no output.
        fs::write(folder.join("x.fwz"), &compressed[0][..compressed[0].len() - 3]).unwrap();
        let output = foldwire(folder, "decompress x.fwz --output z.f32 --threads 2");
        assert_eq!(output.status.code(), Some(1));
        assert!(!folder.join("z.f32").exists());
    }
}

#[test]
fn npy_files_come_back_with_type_shape_and_orders() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let values: Vec<u8> = (0..240).collect();
    for (descr, shape, order) in [
        ("<f4", "(3, 20)", "False"),
        (">f4", "(3, 20)", "True"),
        (">f8", "(30,)", "False"),
        ("<f2", "(2, 60)", "True"),
        ("<i4", "(60,)", "False"),
        (">u2", "(4, 3, 10)", "False"),
        ("|u1", "(240,)", "False"),
        ("|b1", "(2, 120)", "True"),
        ("<i8", "(0, 7)", "False"),
        ("<f4", "()", "False"),
    ] {
        let size: usize = descr[2..].parse().unwrap();
        let sizes = shape.trim_matches(['(', ')']).split(',').map(str::trim);
        let n_values: usize = sizes.filter_map(|n| n.parse::<usize>().ok()).product();
        let values = &values[..n_values * size];
        let dict = format!("{{'descr': '{descr}', 'fortran_order': {order}, 'shape': {shape}, }}");
        let file = npy(&dict, values);
        fs::write(folder.join("a.npy"), &file).unwrap();
        succeeds(folder, "compress a.npy --lossless --force");
        succeeds(folder, "decompress a.npy.fwz --output b.npy --force");
        let back = fs::read(folder.join("b.npy")).unwrap();
        let text = String::from_utf8_lossy(&back[..back.len() - values.len()]).into_owned();
        assert!(text.contains(&dict) && back.ends_with(values), "{dict}: {text}");
        // Pipes on both sides.
        let made = piped(folder, "compress - --lossless", &file).stdout;
        assert_eq!(piped(folder, "decompress - --npy", &made).stdout, back, "{dict}");
    }
}

#[test]
fn arrays_of_unknown_length_come_from_pipes() {
    let folder = tempfile::tempdir().unwrap();
    let (folder, values) = (folder.path(), wave(SEGMENT + 1));
    let output = piped(folder, "compress f32:- --bound abs:0.01", &bytes(&values));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    fs::write(folder.join("a.fwz"), &output.stdout).unwrap();
    let raw = piped(folder, "decompress -", &output.stdout).stdout;
    assert!(is_within(0.01, &values, &floats(&raw)));
    // A file's header gets the shape at the end. A pipe cannot.
    succeeds(folder, "decompress a.fwz --output a.npy");
    let npy = fs::read(folder.join("a.npy")).unwrap();
    assert!(npy.ends_with(&raw));
    let head = String::from_utf8_lossy(&npy[..128]).into_owned();
    assert!(head.contains(&format!("'shape': ({},)", values.len())), "{head}");
    let refused = piped(folder, "decompress - --npy", &output.stdout);
    assert_eq!(refused.status.code(), Some(2));
    // With its dimensions, an array from a pipe has a shape.
    let dims = format!("compress f32:- --bound abs:0.01 --dims {}x1", SEGMENT + 1);
    let output = piped(folder, &dims, &bytes(&values));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let refused = piped(folder, &dims, &bytes(&values[1..]));
    assert_eq!(refused.status.code(), Some(2));
}

#[cfg(unix)]
#[test]
fn named_pipes_are_read_and_written() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    for name in ["in.f32", "out.fwz"] {
        assert!(Command::new("mkfifo").arg(folder.join(name)).status().unwrap().success());
    }
    let values = wave(5000);
    let (input, raw) = (folder.join("in.f32"), bytes(&values));
    let writer = std::thread::spawn(move || fs::write(input, raw).unwrap());
    let output = folder.join("out.fwz");
    let reader = std::thread::spawn(move || fs::read(output).unwrap());
    succeeds(folder, "compress in.f32 --bound abs:1e-3 --output out.fwz");
    writer.join().unwrap();
    let restored = piped(folder, "decompress -", &reader.join().unwrap()).stdout;
    assert!(is_within(1e-3, &values, &floats(&restored)));
}

#[test]
fn no_other_file_is_touched_whatever_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let (folder, values) = (folder.path(), bytes(&wave(5000)));
    fs::write(folder.join("a.f32"), &values).unwrap();
    fs::write(folder.join("b.fwz.part"), b"mine").unwrap();
    succeeds(folder, "compress a.f32 --lossless --output b.fwz");
    assert_eq!(fs::read(folder.join("b.fwz.part")).unwrap(), b"mine");
    // The name that decompression once wrote to is the input.
    fs::rename(folder.join("b.fwz"), folder.join("c.f32.part")).unwrap();
    let compressed = fs::read(folder.join("c.f32.part")).unwrap();
    succeeds(folder, "decompress c.f32.part --output c.f32");
    assert_eq!(fs::read(folder.join("c.f32")).unwrap(), values);
    assert_eq!(fs::read(folder.join("c.f32.part")).unwrap(), compressed);
    // The input may also be the output.
    succeeds(folder, "decompress c.f32.part --output c.f32.part --force");
    assert_eq!(fs::read(folder.join("c.f32.part")).unwrap(), values);
    assert_eq!(fs::read_dir(folder).unwrap().count(), 4);
}

#[test]
fn of_two_runs_with_one_output_the_first_has_it_and_the_second_fails() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let args = "compress f32:- --lossless --output a.fwz";
    let arrays = [wave(SEGMENT + 5000), vec![1.0; SEGMENT + 5000]].map(|values| bytes(&values));
    // Each run has created its file once it has read more than a pipe holds.
    let started = arrays.each_ref().map(|values| {
        let mut child = start(folder, args);
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(values).unwrap();
        (child, stdin)
    });
    let [first, second] = started.map(|(child, stdin)| {
        drop(stdin);
        child.wait_with_output().unwrap()
    });
    assert!(first.status.success(), "{}", String::from_utf8_lossy(&first.stderr));
    let errors = String::from_utf8_lossy(&second.stderr);
    assert!(second.status.code() == Some(2) && errors.contains("--force"), "{errors}");
    succeeds(folder, "decompress a.fwz --output a.f32");
    assert!(fs::read(folder.join("a.f32")).unwrap() == arrays[0]);
    assert_eq!(fs::read_dir(folder).unwrap().count(), 2);
}

#[cfg(unix)]
#[test]
fn outputs_have_the_permissions_of_their_inputs() {
    use std::os::unix::fs::PermissionsExt;

    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let mode = |name: &str| fs::metadata(folder.join(name)).unwrap().permissions().mode() & 0o777;
    fs::write(folder.join("a.f32"), bytes(&wave(100))).unwrap();
    let usual = mode("a.f32");
    for (set, expected) in [(0o600, 0o600), (0o400, 0o400), (0o755, usual & 0o644)] {
        fs::set_permissions(folder.join("a.f32"), fs::Permissions::from_mode(set)).unwrap();
        succeeds(folder, "compress a.f32 --lossless --force");
        assert_eq!(mode("a.f32.fwz"), expected, "{set:o}");
        succeeds(folder, "decompress a.f32.fwz --output b.f32 --force");
        assert_eq!(mode("b.f32"), expected, "{set:o}");
    }
    let output = piped(folder, "compress f32:- --lossless --output c.fwz", &bytes(&wave(9)));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(mode("c.fwz"), usual);
}

#[cfg(unix)]
#[test]
fn links_stay_and_only_force_writes_to_their_targets() {
    use std::os::unix::fs::symlink;

    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::write(folder.join("a.f32"), bytes(&wave(100))).unwrap();
    fs::create_dir(folder.join("far")).unwrap();
    fs::write(folder.join("far/target"), b"old").unwrap();
    symlink("far/target", folder.join("link")).unwrap();
    symlink("none", folder.join("broken")).unwrap();
    let args = "compress a.f32 --lossless --output";
    for (name, hint) in [("link", "--force"), ("broken", "link"), ("broken --force", "link")] {
        let args = format!("{args} {name}");
        assert_refused(|args| foldwire(folder, args), &[(&*args, hint)]);
    }
    assert_eq!(fs::read(folder.join("far/target")).unwrap(), b"old");
    succeeds(folder, &format!("{args} link --force"));
    assert_eq!(fs::read_link(folder.join("link")).unwrap(), Path::new("far/target"));
    succeeds(folder, "decompress far/target --output back.f32");
    assert_eq!(fs::read(folder.join("back.f32")).unwrap(), bytes(&wave(100)));
}

#[test]
fn damaged_files_are_errors_without_output() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::write(folder.join("a.f32"), bytes(&wave(SEGMENT + 5000))).unwrap();
    succeeds(folder, "compress a.f32 --bound abs:1e-3 --output good.fwz");
    let good = fs::read(folder.join("good.fwz")).unwrap();
    let changed = |at: usize| {
        let mut bytes = good.clone();
        bytes[at] ^= 4;
        bytes
    };
    for (bytes, hint) in [
        (changed(0), "not made by"),
        (changed(4), "version"),
        (changed(17), "checksum"),
        (changed(100), "checksum"),
        (changed(good.len() - 1), "checksum"),
        (good[..good.len() - 1].to_vec(), "needs at least"),
        (good[..good.len() - 24].to_vec(), "needs at least"),
        (good[..good.len() / 2].to_vec(), "needs at least"),
        (vec![], "needs at least"),
        ([&good[..], b"x"].concat(), "follow the end"),
    ] {
        fs::write(folder.join("bad.fwz"), bytes).unwrap();
        let output = foldwire(folder, "decompress bad.fwz --output back.f32");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{errors}");
        assert!(errors.contains("bad.fwz") && errors.contains(hint), "{hint}: {errors}");
        assert_eq!(fs::read_dir(folder).unwrap().count(), 3, "{hint}");
    }
}

#[test]
fn mistakes_say_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let put = |name: &str, bytes: &[u8]| fs::write(folder.join(name), bytes).unwrap();
    put("a.f32", &bytes(&wave(60)));
    put("odd.f32", &[0; 5]);
    put("half.f16", &[0; 8]);
    put("here.f32", &[0; 8]);
    put("here.f32.fwz", &[]);
    put("c.npy", &npy("{'descr': '<c8', 'fortran_order': False, 'shape': (1,), }", &[0; 8]));
    let dict = "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }";
    put("long.npy", &npy(dict, &[0; 9]));
    put("short.npy", &npy(dict, &[0; 7]));
    put("whole.npy", &npy(&dict.replace("f4", "i4"), &[0; 8]));
    let cases = [
        ("compress a.f32", "--bound"),
        ("compress a.f32 --bound rel:2", "range"),
        ("compress a.f32 --bound abs:0", "above 0"),
        ("compress a.f32 --bound abs:1 --lossless", "cannot be used"),
        ("compress a.f32 --bound abs:1 --dims 7x9", "60 values, but --dims 7x9"),
        ("compress whole.npy --lossless --dims 2", "leave out --dims"),
        ("compress none.f32 --lossless", "no such file"),
        ("compress . --lossless", "folder"),
        ("compress here.f32.fwz --lossless", "f32:PATH"),
        ("compress here.f32 --lossless", "--force"),
        ("compress odd.f32 --lossless", "no multiple of 4"),
        ("compress half.f16 --codec dense --bound abs:1", "not for f16"),
        ("compress a.f32 --codec truncate:23", "from 1 to 22, not 23"),
        ("compress a.f32 --codec zfp-rate:33", "from 1 to 32, not 33"),
        ("compress a.f32 --codec demote", "not for f32"),
        ("compress a.f32 --codec dense", "needs a bound"),
        ("compress a.f32 --codec mpc --bound abs:1", "keeps no bound"),
        ("compress whole.npy --codec dense --bound abs:1", "not for i32"),
        ("compress c.npy --lossless", "`<c8` are not supported"),
        ("compress long.npy --lossless", "9 bytes of values, but its shape needs 8"),
        ("compress short.npy --lossless", "7 bytes of values, but its shape needs 8"),
        ("decompress a.f32", ".fwz"),
        ("decompress none.fwz", "no such file"),
    ];
    assert_refused(|args| foldwire(folder, args), &cases);
    let refused = piped(folder, "compress f32:- --bound rel:1e-3", &[0; 8]);
    let errors = String::from_utf8_lossy(&refused.stderr);
    assert!(refused.status.code() == Some(2) && errors.contains("abs:X"), "{errors}");
    assert!(!folder.join("a.f32.fwz").exists());
    // Integers are exact with any bound.
    succeeds(folder, "compress whole.npy --bound rel:0.5");
    succeeds(folder, "compress whole.npy --codec mpc --force");
}
