"""The command ``foldwire``, also ``python -m foldwire``: launch, info, compress, decompress."""

from __future__ import annotations

import argparse
import importlib.metadata
import io
import os
import platform
import secrets
import sys

import numpy as np

from . import _codec, _native
from ._arrays import TYPES
from ._errors import Error
from ._launch import add_launch, launch

_ABOUT = """\
The command of Foldwire for Python. The benchmark commands are in the program of the same name that
`cargo build --release` builds in a clone of the repository.
"""
_EXAMPLES = """\
examples:
  foldwire launch -n 4 program.py
  foldwire info
  foldwire compress field.npy --bound rel:1e-4       writes field.npy.fwz
  foldwire info field.npy.fwz
  foldwire decompress field.npy.fwz -o copy.npy
"""
_SUFFIXES = {".f32": "<f4", ".f64": "<f8", ".f16": "<f2"}
_PACKAGES = ("numpy", "ml_dtypes", "mpi4py", "torch", "ray", "numcodecs", "zarr", "cupy")
_LAUNCHERS = ("FOLDWIRE_", "OMPI_COMM_WORLD_", "PMI", "SLURM_PROCID", "SLURM_STEP", "SLURM_NTASKS",
              "FLUX_TASK", "FLUX_JOB", "RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_",
              "TORCHELASTIC_")
_SECRETS = ("FOLDWIRE_TOKEN",)


class _Refused(Exception):
    """A message for the user."""


def _parser():
    parser = argparse.ArgumentParser(
        "foldwire", description=_ABOUT, epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--version", action="version", version=f"foldwire {_native.VERSION}")
    commands = parser.add_subparsers(dest="command", required=True,
                                     metavar="{launch,info,compress,decompress}")
    add_launch(commands)

    info = commands.add_parser(
        "info", help="tell what is installed, or what a compressed file holds",
        epilog="examples:\n  foldwire info\n  foldwire info field.npy.fwz",
        formatter_class=argparse.RawDescriptionHelpFormatter)
    info.add_argument("file", nargs="?", help="a file that `foldwire compress` wrote")
    info.set_defaults(run=_info)

    compress = commands.add_parser(
        "compress", help="compress a file of one array",
        description="Compresses a .npy file, or raw little-endian values (.f32, .f64, .f16). The "
                    "file is read into memory; the Rust command of this name takes longer files.",
        epilog="examples:\n  foldwire compress field.npy --bound rel:1e-4\n"
               "  foldwire compress t_64x128x128.f32 --dims 64x128x128 --bound abs:0.01 -o t.fwz\n"
               "  foldwire compress field.npy --lossless --force",
        formatter_class=argparse.RawDescriptionHelpFormatter)
    compress.add_argument("file", help="file to read; - is standard input, in NumPy's format")
    error = compress.add_mutually_exclusive_group()
    error.add_argument("--bound", metavar="BOUND",
                       help="largest error of a value: rel:X times the value range, abs:X, or "
                            "psnr:X in dB; integers are always exact")
    error.add_argument("--lossless", action="store_true", help="keep every bit")
    compress.add_argument("--codec", metavar="NAME[:N]",
                          help="codec, with a setting as truncate:16 (then without --bound), or "
                               "lossless (the one that makes the array shortest)")
    compress.add_argument("--fill", type=_fill, metavar="VALUE",
                          help="value that stands for missing data, such as 1e20; with refuse, a "
                               "value that seems to be one is an error")
    compress.add_argument("--dims", metavar="DIMS",
                          help="dimensions of raw values, slowest first, as 64x128x128")
    compress.set_defaults(run=_compress)

    decompress = commands.add_parser(
        "decompress", help="decompress a file",
        epilog="examples:\n  foldwire decompress field.npy.fwz\n"
               "  foldwire decompress t.fwz -o t.npy",
        formatter_class=argparse.RawDescriptionHelpFormatter)
    decompress.add_argument("file", help="file that `foldwire compress` wrote; - is standard input")
    decompress.add_argument("--npy", action="store_true",
                            help="write NumPy's format whatever the name")
    decompress.set_defaults(run=_decompress)
    for command in (compress, decompress):
        command.add_argument("-o", "--output", metavar="FILE", help=(
            "file to write; - is standard output (FILE.fwz, or - for a pipe)"
            if command is compress else
            "file to write: NumPy's format if it ends in .npy, otherwise raw little-endian values; "
            "- is standard output (FILE without .fwz, or - for a pipe)"))
        command.add_argument("-f", "--force", action="store_true",
                             help="replace the output if it exists, once the new one is "
                                  "complete")
    return parser


def _info(arguments):
    if arguments.file is not None:
        bytes_ = _read(arguments.file)
        head = _codec.info(bytes_)
        raw = head.n_values * head.dtype.itemsize
        bound = "every bit is kept" if head.bound == 0 else f"{head.bound:g}"
        rows = [("type", str(head.dtype)), ("shape", "x".join(map(str, head.shape)) or "a scalar"),
                ("order", head.order), ("bound", bound), ("fill value", str(head.fill_value)),
                ("bytes", str(len(bytes_))), ("ratio", f"{raw / max(len(bytes_), 1):.2f}")]
    else:
        rows = [("foldwire", _native.VERSION), ("python", platform.python_version()),
                ("devices", "built in" if _native.HAS_DEVICES else "not in this build"),
                ("types", ", ".join(sorted(TYPES)))]
        for package in _PACKAGES:
            try:
                rows.append((package, importlib.metadata.version(package)))
            except importlib.metadata.PackageNotFoundError:
                rows.append((package, "not installed"))
        names = sorted(name for name in os.environ if name.startswith(_LAUNCHERS))
        for name in names:
            rows.append((name, "set" if name in _SECRETS else os.environ[name]))
        if not names:
            rows.append(("launcher", "none: foldwire.init() is a single rank"))
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        print(f"{name:{width}}  {value}")


def _fill(text):
    return text if text == "refuse" else float(text)


def _compress(arguments):
    source = arguments.file
    suffix = os.path.splitext(source)[1]
    if suffix in _SUFFIXES:
        values = np.frombuffer(_read(source), np.uint8)
        if values.size % np.dtype(_SUFFIXES[suffix]).itemsize:
            raise _Refused(f"{source} has {values.size} bytes, which are not whole values")
        values = values.view(_SUFFIXES[suffix])
        if arguments.dims is not None:
            try:
                values = values.reshape([int(size) for size in arguments.dims.split("x")])
            except ValueError:
                raise _Refused(f"--dims {arguments.dims} is not the shape of the {values.size} "
                               f"values of {source}") from None
    elif suffix == ".npy" or source == "-":
        if arguments.dims is not None:
            raise _Refused("--dims is for raw values; NumPy's format holds the shape")
        try:
            # From memory, because numpy cannot read arrays from a pipe.
            values = np.lib.format.read_array(io.BytesIO(_read(source)), allow_pickle=False)
        except ValueError as failure:
            raise _Refused(f"{source} is not an array in NumPy's format: {failure}") from None
    else:
        raise _Refused(f"{source} is neither .npy nor one of {', '.join(_SUFFIXES)}")
    bound = "lossless" if arguments.lossless else arguments.bound
    made = _codec.compress(values, bound, arguments.codec or "auto", fill_value=arguments.fill)
    output = arguments.output or ("-" if source == "-" else f"{source}.fwz")
    _write(output, made, arguments.force, source)
    if output != "-":
        print(f"{source}: {values.nbytes} bytes as {len(made)}, ratio "
              f"{values.nbytes / len(made):.2f}, in {output}", file=sys.stderr)


def _decompress(arguments):
    source, output = arguments.file, arguments.output
    values = _codec.decompress(_read(source))
    if output is None:
        output = "-" if source == "-" else source[:-4] if source.endswith(".fwz") else None
        if output is None:
            raise _Refused(f"{source} does not end in .fwz; name the output by -o")
    if arguments.npy or output.endswith(".npy"):
        file = io.BytesIO()
        np.lib.format.write_array(file, values, allow_pickle=False)
        made = file.getvalue()
    else:
        made = values.astype(values.dtype.newbyteorder("<"), copy=False).tobytes()
    _write(output, made, arguments.force, source)


def _read(path):
    if path == "-":
        return sys.stdin.buffer.read()
    with open(path, "rb") as file:
        return file.read()


def _write(path, bytes_, may_replace, source):
    if path == "-":
        sys.stdout.buffer.write(bytes_)
        sys.stdout.buffer.flush()
        return
    part = path
    if may_replace:
        path = os.path.realpath(path)
        if os.path.exists(path) and not os.path.isfile(path):
            # A device or a named pipe.
            with open(path, "wb") as file:
                file.write(bytes_)
            return
        # A new file replaces the old one only when it is complete.
        name = f"foldwire-{secrets.token_hex(8)}.part"
        part = os.path.join(os.path.dirname(path), name)
    mode = os.stat(source).st_mode & 0o666 if os.path.isfile(source) else 0o666
    try:
        file = open(part, "xb", opener=lambda name, flags: os.open(name, flags, mode))
    except FileExistsError:
        raise _Refused(f"{path} exists; pass --force to replace it") from None
    try:
        with file:
            file.write(bytes_)
        if may_replace:
            os.replace(part, path)
    except BaseException:
        # Leave no part of a file.
        os.unlink(part)
        raise


def main(words=None) -> int:
    """Runs the command. Returns its exit code."""
    parser = _parser()
    arguments = parser.parse_args(words)
    if arguments.command == "launch":
        return launch(arguments)
    if arguments.command == "compress" and not (
            arguments.bound or arguments.lossless or arguments.codec not in (None, "auto")):
        parser.error("compress needs --bound BOUND, --lossless or --codec NAME")
    try:
        arguments.run(arguments)
    except (_Refused, Error) as failure:
        print(f"error: {failure}", file=sys.stderr)
        return 1
    except OSError as failure:
        print(f"error: {failure}", file=sys.stderr)
        return 1
    return 0
