"""Tests of the command ``foldwire``: info, compress, decompress; and of logs and reprs."""

import io
import logging
import os
import resource
import subprocess
import sys
import tempfile
import types
import unittest
from unittest import mock

import numpy as np

import foldwire
from foldwire import _command
from test_processes import environment

PACKAGES = os.path.dirname(os.path.dirname(foldwire.__file__))


class Command(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.field = np.sin(np.arange(30_000.0)).astype(np.float32).reshape(30, 1000)
        np.save(os.path.join(self.folder, "field.npy"), self.field)

    def foldwire(self, *words, code=0, input=b"", **variables):
        """Runs the command in this process."""
        streams = [io.TextIOWrapper(io.BytesIO(given), encoding="utf-8")
                   for given in (input, b"", b"")]
        before = os.getcwd()
        os.chdir(self.folder)
        try:
            with mock.patch.multiple(sys, stdin=streams[0], stdout=streams[1], stderr=streams[2]), \
                    mock.patch.dict(os.environ, variables):
                try:
                    got = _command.main(words)
                except SystemExit as exit:
                    got = exit.code
        finally:
            os.chdir(before)
        made = []
        for stream in streams[1:]:
            stream.flush()
            made.append(stream.buffer.getvalue())
        self.assertEqual(got, code, made[1].decode())
        return types.SimpleNamespace(stdout=made[0], stderr=made[1])

    def test_the_module_is_the_command(self):
        made = subprocess.run([sys.executable, "-m", "foldwire", "--version"], timeout=60,
                              env=environment(PYTHONPATH=PACKAGES), capture_output=True)
        self.assertEqual(made.stdout.decode().split(), ["foldwire", foldwire.__version__])

    def load(self, name):
        return np.load(os.path.join(self.folder, name))

    def test_every_command_has_help_with_examples(self):
        for command in ([], ["launch"], ["info"], ["compress"], ["decompress"]):
            said = self.foldwire(*command, "--help").stdout.decode()
            self.assertIn("examples:\n  foldwire", said)
        self.assertEqual(self.foldwire("--version").stdout.decode().split()[1],
                         foldwire.__version__)

    def test_a_file_is_compressed_described_and_decompressed(self):
        said = self.foldwire("compress", "field.npy", "--bound", "abs:1e-3").stderr.decode()
        self.assertIn("ratio", said)
        said = self.foldwire("info", "field.npy.fwz").stdout.decode()
        for part in ("float32", "30x1000", "0.001"):
            self.assertIn(part, said)
        self.foldwire("decompress", "field.npy.fwz", "-o", "copy.npy")
        copy = self.load("copy.npy")
        self.assertEqual((copy.shape, copy.dtype), (self.field.shape, self.field.dtype))
        self.assertLess(abs(copy - self.field).max(), 1.001e-3)

    def test_only_a_complete_output_replaces_a_file(self):
        self.foldwire("compress", "field.npy", "--lossless")
        with open(os.path.join(self.folder, "field.npy.fwz"), "rb") as file:
            before = file.read()
        os.symlink("/dev/full", os.path.join(self.folder, "full"))
        self.foldwire("compress", "field.npy", "--lossless", "-f", "-o", "full", code=1)
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
        try:
            self.foldwire("compress", "field.npy", "--bound", "rel:1e-3", "-f", code=1)
            self.foldwire("compress", "field.npy", "--lossless", "-o", "new.fwz", code=1)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        with open(os.path.join(self.folder, "field.npy.fwz"), "rb") as file:
            self.assertEqual(file.read(), before)
        self.assertEqual(sorted(os.listdir(self.folder)), ["field.npy", "field.npy.fwz", "full"])

    def test_outputs_have_the_permissions_of_their_inputs_and_links_stay(self):
        def at(name):
            return os.path.join(self.folder, name)

        os.chmod(at("field.npy"), 0o600)
        self.foldwire("compress", "field.npy", "--lossless")
        os.symlink("field.npy.fwz", at("link"))
        self.foldwire("compress", "field.npy", "--lossless", "-f", "-o", "link")
        self.assertTrue(os.path.islink(at("link")))
        self.foldwire("decompress", "link", "-o", "copy.npy")
        for name in ("field.npy.fwz", "copy.npy"):
            self.assertEqual(os.stat(at(name)).st_mode & 0o777, 0o600)
        np.testing.assert_array_equal(self.load("copy.npy"), self.field)

    def test_raw_values_and_pipes(self):
        with open(os.path.join(self.folder, "field.f32"), "wb") as file:
            file.write(self.field.tobytes())
        self.foldwire("compress", "field.f32", "--dims", "30x1000", "--lossless")
        raw = self.foldwire("decompress", "field.f32.fwz", "-o", "-").stdout
        self.assertEqual(raw, self.field.tobytes())
        with open(os.path.join(self.folder, "field.npy"), "rb") as file:
            packed = self.foldwire("compress", "-", "--lossless", input=file.read()).stdout
        self.assertEqual(self.foldwire("decompress", "-", input=packed).stdout,
                         self.field.tobytes())

    def test_a_suspected_fill_value_is_refused(self):
        holes = self.field.copy()
        holes.flat[5:90] = 1e20
        np.save(os.path.join(self.folder, "holes.npy"), holes)
        command = ("compress", "holes.npy", "--bound", "rel:1e-3", "--fill")
        said = self.foldwire(*command, "refuse", code=1).stderr.decode()
        self.assertIn("sets the value range", said)
        self.assertFalse(os.path.exists(os.path.join(self.folder, "holes.npy.fwz")))
        self.foldwire(*command, "1e20")
        self.foldwire(*command, "none", "-f", code=2)

    def test_what_cannot_be_done_is_said_and_leaves_files_alone(self):
        self.foldwire("compress", "field.npy", "--lossless")
        for words, part in (
            (["compress", "field.npy", "--lossless"], "--force"),
            (["compress", "missing.npy", "--lossless"], "missing.npy"),
            (["compress", "field.npy", "--bound", "rel:2", "-f"], "range"),
            (["compress", "field.npy", "--lossless", "--codec", "truncate:16", "-f"], "lossy"),
            (["compress", "field.npy", "--codec", "dense", "-f"], "bound"),
            (["compress", "field.npy.fwz", "--lossless"], "neither .npy"),
            (["compress", "field.npy", "--lossless", "--dims", "3"], "--dims"),
            (["decompress", "field.npy", "-o", "x"], "error: "),
            (["info", "field.npy"], "error: "),
            (["decompress", "field.npy.fwz"], "--force"),
        ):
            said = self.foldwire(*words, code=1).stderr.decode()
            self.assertIn(part, said)
        np.testing.assert_array_equal(self.load("field.npy"), self.field)
        self.foldwire("compress", "field.npy", code=2)
        self.foldwire("compress", "field.npy", "--codec", "auto", code=2)
        self.foldwire(code=2)

    def test_the_setting_of_a_codec_takes_the_place_of_a_bound(self):
        self.foldwire("compress", "field.npy", "--codec", "truncate:16")
        self.assertIn("inf", self.foldwire("info", "field.npy.fwz").stdout.decode())
        self.foldwire("decompress", "field.npy.fwz", "-o", "copy.npy")
        self.assertLess(abs(self.load("copy.npy") - self.field).max(), 0.01)

    def test_info_tells_what_is_there_but_no_secret(self):
        secret = "0123456789abcdef"
        said = self.foldwire("info", FOLDWIRE_TOKEN=secret, FOLDWIRE_RANK="3").stdout.decode()
        self.assertIn(foldwire.__version__, said)
        self.assertRegex(said, r"FOLDWIRE_RANK +3")
        self.assertRegex(said, r"FOLDWIRE_TOKEN +set")
        self.assertNotIn(secret, said)


class Words(unittest.TestCase):
    def test_joins_and_shrinks_are_logged(self):
        with self.assertLogs("foldwire", logging.INFO) as logged:
            with foldwire.join(foldwire.unique_id(), 0, 1) as comm:
                comm.shrink(0.1).close()
        text = "\n".join(logged.output)
        self.assertIn("joined as rank 0 of 1", text)
        self.assertIn("goes on as rank 0 of 1", text)
        with self.assertLogs("foldwire", logging.ERROR):
            self.assertRaises(foldwire.Error, foldwire.join, bytes(128), 0, 1)

    def test_everything_public_has_a_repr_of_its_own(self):
        (comm,) = foldwire.threads(1)
        request = comm.start_barrier()
        self.assertIn("in progress", repr(request))
        request.wait()
        info = foldwire.info(foldwire.compress(np.zeros(3)))
        for made in (comm, comm.objects, request, info, foldwire.Error("no", rank=3)):
            self.assertNotRegex(repr(made), r" object at 0x")
        self.assertIn("finished", repr(request))
        self.assertEqual(repr(foldwire.Error("no", rank=3)),
                         "Error('no', kind='argument', rank=3)")


if __name__ == "__main__":
    unittest.main()
