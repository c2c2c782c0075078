//! Files of `foldwire compress` and `foldwire decompress`: arrays that are read in pieces, and
//! output that appears only when it is complete.

use std::fs::{self, File};
use std::io::{self, BufWriter, IsTerminal, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use foldwire::DType;
use foldwire::compress::{Layout, Order, SEGMENT};
use foldwire_fields::dims::Dims;
use foldwire_fields::field::{FileFormat, dims_in_name, open, raw_values, split_type, swap_bytes};
use foldwire_fields::npy::{MAGIC, NpyText};
use foldwire_fields::usage::{UsageError, usage};
use foldwire_workbench::progress;
use foldwire_workbench::streams::OutputError;
use foldwire_workbench::threads::Pool;
use tempfile::NamedTempFile;

/// Extension of compressed files.
pub(crate) const EXTENSION: &str = "fwz";

/// Letters of numpy's types, with their sizes.
const NPY_TYPES: [(&str, DType, bool); 12] = [
    ("f4", DType::F32, false),
    ("f8", DType::F64, false),
    ("f2", DType::F16, false),
    ("i1", DType::I8, false),
    ("u1", DType::U8, false),
    ("b1", DType::U8, true),
    ("i2", DType::I16, false),
    ("u2", DType::U16, false),
    ("i4", DType::I32, false),
    ("u4", DType::U32, false),
    ("i8", DType::I64, false),
    ("u8", DType::U64, false),
];

/// Segments in memory for each thread, so that none waits long for the slowest.
const SEGMENTS_A_THREAD: usize = 2;

/// Number of segments in memory at a time for these threads.
pub(crate) fn segments_at_once(pool: Pool) -> usize {
    match pool.n_threads() {
        1 => 1,
        n_threads => SEGMENTS_A_THREAD * n_threads,
    }
}

/// Memory for the values of this many segments, aligned for every type.
pub(crate) struct Piece(Vec<u64>);

impl Piece {
    pub(crate) fn new(dtype: DType, n_segments: usize) -> Self {
        Self(vec![0; (n_segments * SEGMENT * dtype.n_bytes()).div_ceil(8)])
    }

    pub(crate) fn bytes(&mut self) -> &mut [u8] {
        bytemuck::cast_slice_mut(&mut self.0)
    }
}

/// Returns whether a path means standard input or output.
pub(crate) fn is_pipe(path: &Path) -> bool {
    split_type(path).1 == Path::new("-")
}

/// An array that is read in pieces.
pub(crate) struct ArrayFile {
    path: PathBuf,
    reader: Box<dyn Read>,
    pub(crate) dtype: DType,
    pub(crate) layout: Layout,
    /// Bytes of all values, if known.
    pub(crate) n_bytes: Option<u64>,
    /// True if the file can be read twice.
    pub(crate) is_regular: bool,
    n_read: u64,
}

impl ArrayFile {
    /// Opens an array and reads its header. `dims` are those of raw values.
    ///
    /// # Errors
    /// A [`UsageError`] if the file is missing or of an unknown type, or if it does not hold as
    /// many values as `dims` or its header say.
    pub(crate) fn open(path: &Path, dims: Option<&Dims>) -> anyhow::Result<Self> {
        let fault = |message: String| usage!("{}: {message}", path.display());
        let (mut reader, length) = open(path)?;
        let mut start = Vec::new();
        let format = match FileFormat::of(path) {
            Err(unknown) => {
                // A pipe may hold a .npy array, whose first bytes say so.
                (&mut reader).take(MAGIC.len() as u64).read_to_end(&mut start)?;
                if start != MAGIC {
                    return Err(fault(unknown.to_string()).into());
                }
                FileFormat::Npy
            }
            Ok(format) => format,
        };
        let mut reader: Box<dyn Read> = Box::new(io::Cursor::new(start).chain(reader));
        let (dtype, layout, n_head) = match format {
            FileFormat::Raw(dtype) => {
                let layout = raw_layout(path, dtype, length, dims);
                (dtype, layout.map_err(|error| fault(error.to_string()))?, 0)
            }
            FileFormat::Npy => {
                let mut counted = Counted { reader: &mut reader, n_bytes: 0 };
                let text = NpyText::read(&mut counted).map_err(|error| fault(error.to_string()))?;
                let n_head = counted.n_bytes;
                if dims.is_some() {
                    return Err(fault("has its own shape; leave out --dims".into()).into());
                }
                let (dtype, layout) = of_npy(&text).map_err(fault)?;
                (dtype, layout, n_head)
            }
        };
        let n_bytes = layout.n_values().map(|n| n.saturating_mul(dtype.n_bytes() as u64));
        // Some files, as those in /proc, are longer than their length says.
        match (length.map(|length| length.saturating_sub(n_head)), n_bytes) {
            (Some(have), Some(n_bytes)) if have != n_bytes => {
                let message =
                    format!("holds {have} bytes of values, but its shape needs {n_bytes}");
                return Err(fault(format!("{message}; copy or save it again")).into());
            }
            _ => {}
        }
        let is_regular = length.is_some();
        Ok(Self { path: path.into(), reader, dtype, layout, n_bytes, is_regular, n_read: 0 })
    }

    /// Reads the next values into a piece, in native byte order. Returns their bytes; none at the
    /// end of the array.
    ///
    /// # Errors
    /// If the file cannot be read, ends early, or is too long.
    fn next<'a>(&mut self, piece: &'a mut Piece) -> anyhow::Result<&'a [u8]> {
        let fault = |message: &str| usage!("{}: {message}", self.path.display());
        let left = self.n_bytes.map_or(u64::MAX, |n_bytes| n_bytes - self.n_read);
        let most = usize::try_from(left).unwrap_or(usize::MAX);
        let room = piece.bytes();
        let most = room.len().min(most);
        let room = &mut room[..most];
        let n_bytes = fill(&mut self.reader, room)
            .with_context(|| format!("{} cannot be read", self.path.display()))?;
        self.n_read += n_bytes as u64;
        if n_bytes < room.len() && self.n_bytes.is_some() {
            return Err(fault("is shorter than its shape says; copy or save it again").into());
        }
        if most == 0 && fill(&mut self.reader, &mut [0])? > 0 {
            let message = "holds more values than its shape says; save each array in a file of its \
                           own";
            return Err(fault(message).into());
        }
        if !n_bytes.is_multiple_of(self.dtype.n_bytes()) {
            let message = format!(
                "has {} bytes, which is no multiple of {}; it is cut short, has a header, or is of \
                 another type",
                self.n_read,
                self.dtype.n_bytes()
            );
            return Err(fault(&message).into());
        }
        if self.layout.is_big_endian {
            swap_bytes(&mut room[..n_bytes], self.dtype);
        }
        Ok(&room[..n_bytes])
    }
}

impl ArrayFile {
    /// Reads all values, `n_segments` segments at a time, while a bar with this label shows how far
    /// it is.
    ///
    /// # Errors
    /// As [`next`](Self::next), and the errors of `each`.
    pub(crate) fn read_all(
        &mut self,
        label: &str,
        n_segments: usize,
        mut each: impl FnMut(&[u8]) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let bar = progress::bytes(label, self.n_bytes);
        let mut piece = Piece::new(self.dtype, n_segments);
        loop {
            let values = self.next(&mut piece)?;
            if values.is_empty() {
                bar.finish_and_clear();
                return Ok(());
            }
            each(values)?;
            bar.inc(values.len() as u64);
        }
    }
}

/// Reads until the buffer is full or the file ends. Returns the number of bytes.
pub(crate) fn fill(reader: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut n_bytes = 0;
    while n_bytes < buffer.len() {
        match reader.read(&mut buffer[n_bytes..]) {
            Ok(0) => break,
            Ok(more) => n_bytes += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(n_bytes)
}

/// Counts the bytes that are read.
struct Counted<'a, R> {
    reader: &'a mut R,
    n_bytes: u64,
}

impl<R: Read> Read for Counted<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n_bytes = self.reader.read(buffer)?;
        self.n_bytes += n_bytes as u64;
        Ok(n_bytes)
    }
}

/// Returns the layout of raw values.
fn raw_layout(
    path: &Path,
    dtype: DType,
    length: Option<u64>,
    dims: Option<&Dims>,
) -> Result<Layout, UsageError> {
    let size = dtype.n_bytes() as u64;
    let Some(length) = length else {
        return Ok(dims.map_or_else(Layout::stream, |dims| Layout::new(dims.sizes())));
    };
    let n_values = raw_values(length, size)?;
    let dims = dims.map(|dims| dims.checked(n_values)).transpose()?;
    Ok(match dims.or_else(|| dims_in_name(path, n_values)) {
        Some(dims) => Layout::new(dims.sizes()),
        None => Layout::line(n_values),
    })
}

/// Returns type and layout of a .npy array.
fn of_npy(text: &NpyText) -> Result<(DType, Layout), String> {
    let (order, letters) = text.descr.split_at_checked(1).unwrap_or_default();
    let found = NPY_TYPES.iter().find(|(name, ..)| *name == letters && "<>|=".contains(order));
    let &(_, dtype, is_bool) = found.ok_or_else(|| {
        format!(
            "values of type `{}` are not supported; floats of 16 to 64 bits, integers and bool are",
            text.descr
        )
    })?;
    let layout = Layout {
        order: if text.fortran_order { Order::Fortran } else { Order::C },
        is_big_endian: order == ">",
        is_bool,
        ..Layout::new(&text.shape)
    };
    match layout.n_values() {
        Some(_) => Ok((dtype, layout)),
        None => Err("has a shape that overflows: no machine has room for so many values".into()),
    }
}

/// Returns the .npy header of an array.
///
/// # Errors
/// If numpy has no such type, or the shape is not one of this machine.
pub(crate) fn npy_text(dtype: DType, layout: &Layout) -> Result<NpyText, UsageError> {
    let is_bool = layout.is_bool;
    let found = NPY_TYPES.iter().find(|(_, of, bool)| (*of, *bool) == (dtype, is_bool));
    let (letters, ..) = found
        .ok_or_else(|| usage!("numpy has no {dtype}; write raw values: --output NAME.{dtype}"))?;
    let order = match dtype.n_bytes() {
        1 => '|',
        _ if layout.is_big_endian => '>',
        _ => '<',
    };
    let size = |&size: &u64| {
        usize::try_from(size).map_err(|_| usage!("the array is too large for this machine"))
    };
    Ok(NpyText {
        descr: format!("{order}{letters}"),
        fortran_order: layout.order == Order::Fortran,
        shape: layout.shape.iter().map(size).collect::<Result<_, _>>()?,
    })
}

/// A file that appears under its name only when it is complete, or standard output.
pub(crate) enum Output {
    Stdout(io::StdoutLock<'static>),
    /// A device or a named pipe.
    Special(File),
    /// A new file in the output's folder. Its name is unique, so it is neither the input nor the
    /// output of another run. It is removed if it does not become the output.
    File {
        writer: BufWriter<NamedTempFile>,
        path: PathBuf,
        force: bool,
    },
}

impl Output {
    /// Creates the output. A file gets the permissions of `input` to read and write, within the
    /// umask. If `path` is a link and `force` is true, the output replaces the link's target.
    ///
    /// # Errors
    /// A [`UsageError`] if the file exists and `force` is false, if it is a link to nothing, or if
    /// it cannot be created.
    pub(crate) fn create(path: &Path, input: &Path, force: bool) -> anyhow::Result<Self> {
        let fault = |message: String| usage!("{}: {message}", path.display());
        if path == Path::new("-") {
            if io::stdout().is_terminal() {
                let message = "standard output is a terminal; name a file with --output";
                bail!(UsageError::new(message));
            }
            return Ok(Self::Stdout(io::stdout().lock()));
        }
        let no_file = |error: io::Error| fault(format!("cannot be written: {error}"));
        let path = match fs::metadata(path) {
            Ok(about) if about.is_dir() => return Err(fault("is a folder".into()).into()),
            Ok(about) if !about.is_file() => {
                return Ok(Self::Special(File::options().write(true).open(path).map_err(no_file)?));
            }
            Ok(_) if !force => return Err(exists(path).into()),
            Ok(_) => fs::canonicalize(path).map_err(no_file)?,
            Err(_) if path.is_symlink() => {
                let message = "is a link to a file that does not exist; name another file";
                return Err(fault(message.into()).into());
            }
            Err(_) => path.into(),
        };
        // A pipe's permissions are not for a file.
        let of_input = fs::metadata(split_type(input).1).ok().filter(fs::Metadata::is_file);
        let part = foldwire_workbench::files::part(&path, of_input.as_ref()).map_err(no_file)?;
        Ok(Self::File { writer: BufWriter::new(part), path, force })
    }

    /// # Errors
    /// If the bytes cannot be written.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<(), OutputError> {
        match self {
            Self::Stdout(stdout) => stdout.write_all(bytes)?,
            Self::Special(file) => file.write_all(bytes)?,
            Self::File { writer, .. } => writer.write_all(bytes)?,
        }
        Ok(())
    }

    /// Replaces the first bytes.
    ///
    /// # Errors
    /// If the output is not a file, or cannot be written.
    pub(crate) fn rewrite_start(&mut self, bytes: &[u8]) -> anyhow::Result<()> {
        let Self::File { writer, .. } = self else {
            let message = "the array came from a pipe, so its shape is known only at its end; \
                           write it to a file, or as raw values";
            bail!(UsageError::new(message));
        };
        writer.seek(SeekFrom::Start(0)).map_err(OutputError::from)?;
        Ok(writer.write_all(bytes).map_err(OutputError::from)?)
    }

    /// Writes what is left, and gives the file its name.
    ///
    /// # Errors
    /// If it cannot be written; a [`UsageError`] if a file of this name has appeared meanwhile and
    /// the output may not replace it.
    pub(crate) fn complete(self) -> anyhow::Result<()> {
        match self {
            Self::Stdout(mut stdout) => stdout.flush().map_err(OutputError::from)?,
            Self::Special(mut file) => file.flush().map_err(OutputError::from)?,
            Self::File { writer, path, force } => {
                let part = writer.into_inner().map_err(io::IntoInnerError::into_error);
                let part = part.map_err(OutputError::from)?;
                // A network's file system may notice only now that the disk is full.
                part.as_file().sync_all().map_err(OutputError::from)?;
                let published =
                    if force { part.persist(&path) } else { part.persist_noclobber(&path) };
                match published.map_err(|failure| failure.error) {
                    Err(error) if !force && error.kind() == io::ErrorKind::AlreadyExists => {
                        return Err(exists(&path).into());
                    }
                    published => published.map_err(OutputError::from)?,
                };
            }
        }
        Ok(())
    }
}

fn exists(path: &Path) -> UsageError {
    usage!("{}: exists; name another file, or replace it with --force", path.display())
}
