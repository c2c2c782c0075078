//! `foldwire decompress`: a compressed file becomes an array again, piece by piece.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::Context;
use foldwire::codec::DecodeError;
use foldwire::compress::{Decoder, DecompressError, Info, Payload, decode_payloads};
use foldwire_arguments::DecompressArgs;
use foldwire_fields::field::{open, swap_bytes};
use foldwire_fields::usage::{UsageError, usage};
use foldwire_workbench::{progress, streams};

use crate::compress::{pool, speed};
use crate::files::{EXTENSION, Output, Piece, fill, is_pipe, npy_text, segments_at_once};

/// Runs the command.
///
/// # Errors
/// A [`UsageError`] if a file is missing or exists; a [`DecompressError`] if the file is damaged;
/// any error of reading or writing.
pub(crate) fn run(args: &DecompressArgs) -> anyhow::Result<()> {
    let start = Instant::now();
    let path = args.output.clone().map_or_else(|| output_of(&args.file), Ok)?;
    let (reader, length) = open(&args.file)?;
    let mut reader = PartReader { reader, decoder: Decoder::new(), n_bytes: 0 };
    let named = || args.file.display().to_string();
    while reader.decoder.info().is_none() {
        reader.next(&mut Vec::new()).with_context(named)?;
    }
    let pool = pool(args.threads)?;
    let mut parts = vec![Vec::new(); segments_at_once(pool)];
    let is_npy = args.npy || path.extension().is_some_and(|extension| extension == "npy");
    let head = |info: &Info| Ok::<_, UsageError>(npy_text(info.dtype, &info.layout)?.to_bytes());
    let info = reader.info()?;
    let (dtype, is_stream) = (info.dtype, info.layout.n_values().is_none());
    let swaps = is_npy && info.layout.is_big_endian;
    let mut output = Output::create(&path, &args.file, args.force)?;
    if is_npy {
        output.write(&head(info)?)?;
        if is_stream {
            // Reports at once that this is not possible.
            output.rewrite_start(&head(info)?)?;
        }
    }
    let bar = progress::bytes("decompress", length);
    let (mut piece, mut n_written) = (Piece::new(dtype, parts.len()), 0);
    while !reader.decoder.is_finished() {
        bar.set_position(reader.n_bytes);
        let payloads = reader.payloads(&mut parts).with_context(named)?;
        let n_bytes: usize = payloads.iter().map(Payload::n_bytes).sum();
        let values = &mut piece.bytes()[..n_bytes];
        decode_payloads(pool.threads(), &payloads, values)
            .map_err(DecompressError::from)
            .with_context(named)?;
        if swaps {
            swap_bytes(values, dtype);
        }
        output.write(values)?;
        n_written += values.len() as u64;
    }
    reader.expect_end().with_context(named)?;
    if is_npy && is_stream {
        output.rewrite_start(&head(reader.info()?)?)?;
    }
    output.complete()?;
    bar.finish_and_clear();
    let (shape, rate) = (shape(reader.info()?), speed(n_written, start));
    streams::remark(format_args!(
        "{}: {dtype}, {shape}, {n_written} bytes, {rate}",
        path.display()
    ));
    Ok(())
}

/// Reads the parts of a compressed file.
struct PartReader {
    reader: Box<dyn Read>,
    decoder: Decoder,
    n_bytes: u64,
}

impl PartReader {
    fn info(&self) -> Result<&Info, DecompressError> {
        self.decoder.info().ok_or_else(|| DecodeError::Damaged.into())
    }

    /// Reads the next part into this memory, and returns its payload if it is one.
    fn next<'p>(&mut self, part: &'p mut Vec<u8>) -> anyhow::Result<Option<Payload<'p>>> {
        part.resize(self.decoder.n_bytes(), 0);
        let n_bytes = fill(&mut self.reader, part)?;
        part.truncate(n_bytes);
        self.n_bytes += n_bytes as u64;
        Ok(self.decoder.read(&mut &part[..])?)
    }

    /// Reads the next payloads, one into each memory, or as many as are left.
    fn payloads<'p>(&mut self, parts: &'p mut [Vec<u8>]) -> anyhow::Result<Vec<Payload<'p>>> {
        let mut payloads = Vec::with_capacity(parts.len());
        for part in parts {
            // Heads are short, so they take memory of their own.
            while !self.decoder.is_finished() && !self.decoder.is_at_payload() {
                self.next(&mut Vec::new())?;
            }
            if self.decoder.is_finished() {
                break;
            }
            payloads.extend(self.next(part)?);
        }
        Ok(payloads)
    }

    fn expect_end(&mut self) -> anyhow::Result<()> {
        match fill(&mut self.reader, &mut [0; 4096])? as u64 {
            0 => Ok(()),
            n_bytes => Err(DecompressError::Trailing { n_bytes }.into()),
        }
    }
}

fn shape(info: &Info) -> String {
    let sizes: Vec<String> = info.layout.shape.iter().map(u64::to_string).collect();
    if sizes.is_empty() { "one value".into() } else { sizes.join("x") }
}

fn output_of(file: &Path) -> Result<PathBuf, UsageError> {
    if is_pipe(file) {
        return Ok(PathBuf::from("-"));
    }
    match file.extension() {
        Some(extension) if extension == EXTENSION => Ok(file.with_extension("")),
        _ => Err(usage!(
            "{}: the name does not end in .{EXTENSION}, so name the output with --output",
            file.display()
        )),
    }
}
