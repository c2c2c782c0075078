"""Tests of ``python -m foldwire launch``."""

import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
import unittest

import foldwire
from test_processes import environment

PACKAGES = os.path.dirname(os.path.dirname(foldwire.__file__))


class Launch(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def program(self, text):
        path = os.path.join(self.folder, "program.py")
        with open(path, "w") as file:
            file.write(textwrap.dedent(text))
        return path

    def start(self, *words, **more):
        return subprocess.Popen(
            [sys.executable, "-m", "foldwire", "launch", *words], text=True, cwd=self.folder,
            env=environment(PYTHONPATH=PACKAGES), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            **more)

    def launch(self, *words, **more):
        process = self.start(*words, **more)
        said, errors = process.communicate(timeout=60)
        return process.returncode, said, errors

    def test_ranks_of_a_program_find_each_other(self):
        program = self.program("""
            import sys, numpy as np, foldwire
            with foldwire.init() as comm:
                print(comm.size, comm.all_reduce(np.ones(1)), *sys.argv[1:])
        """)
        code, said, errors = self.launch("-n", "4", program, "--its", "-n", "option")
        self.assertEqual((code, errors), (0, ""))
        expected = [f"[{rank}] 4 [4.] --its -n option" for rank in range(4)]
        self.assertEqual(sorted(said.splitlines()), expected)
        # Also as a command. Two launches at once do not interfere.
        both = [self.start("--no-prefix", "--ranks", str(n), "--", sys.executable, program)
                for n in (2, 3)]
        for process, n in zip(both, (2, 3)):
            self.assertEqual(process.communicate(timeout=60), (f"{n} [{n}.]\n" * n, ""))

    def test_a_rank_that_fails_ends_the_others(self):
        program = self.program("""
            import os, signal, sys, time
            if os.environ["FOLDWIRE_RANK"] == "1":
                sys.stderr.write("no")
                sys.exit(5) if len(sys.argv) == 1 else os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(60)
        """)
        began = time.monotonic()
        code, _, errors = self.launch("-n", "3", "--grace", "0.2", program)
        self.assertEqual(code, 5)
        self.assertEqual(errors, "[1] no\nerror: rank 1 ended with exit code 5; the others were "
                                 "ended\n")
        code, _, errors = self.launch("-n", "2", "--grace", "0.2", program, "kill")
        self.assertEqual(code, 128 + 9)
        self.assertIn("signal 9 (SIGKILL)", errors)
        self.assertLess(time.monotonic() - began, 30)

    def test_who_does_not_end_when_asked_is_killed(self):
        program = self.program("""
            import signal, time
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            time.sleep(60)
        """)
        code, _, errors = self.launch("-n", "2", "--timeout", "1", "--grace", "0.2", program)
        self.assertEqual((code, errors), (124, "error: the ranks did not end within 1 s\n"))

    def test_what_a_rank_started_is_killed_although_the_rank_has_ended(self):
        script = """(trap "" TERM; exec sh -c 'echo $$; exec sleep 60') & wait"""
        code, said, _ = self.launch("-n", "1", "--timeout", "1", "--grace", "0.2", "--", "sh",
                                    "-c", script)
        self.assertEqual(code, 124)
        until = time.monotonic() + 20
        while is_running(int(said)):
            self.assertLess(time.monotonic(), until)
            time.sleep(0.02)

    def test_what_a_rank_started_has_time_to_end(self):
        script = '(trap "sleep 1.5; echo saved; exit" TERM; while :; do sleep 0.05; done) & wait'
        began = time.monotonic()
        code, said, _ = self.launch("-n", "1", "--timeout", "1", "--grace", "30", "--", "sh", "-c",
                                    script)
        self.assertEqual((code, said), (124, "saved\n"))
        self.assertLess(time.monotonic() - began, 20)

    def test_a_slow_reader_gets_all_output_and_a_signal_ends_the_wait(self):
        words = ["-n", "1", "--", "seq", "1", "22000"]
        process = self.start(*words)
        time.sleep(3)
        said, _ = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 0)
        self.assertEqual(said.splitlines(), [str(n) for n in range(1, 22001)])
        process = self.start(*words)
        time.sleep(3)
        self.assertIsNone(process.poll())
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(timeout=30), 130)
        process.communicate()

    def test_a_process_left_behind_that_writes_does_not_hold_up_the_end(self):
        process = self.start("-n", "1", "--", "sh", "-c", "echo first; yes & exit 0")
        said, until = "", time.monotonic() + 40
        while True:
            piece = process.stdout.read(32 * 1024)
            said += piece
            if not piece:
                break
            self.assertLess(time.monotonic(), until)
            time.sleep(0.005)
        self.assertTrue(said.startswith("first\ny\n"))
        process.communicate()
        self.assertEqual(process.returncode, 0)

    def test_ctrl_c_ends_all(self):
        program = self.program("import time; print('here'); time.sleep(60)")
        process = self.start("-n", "2", program)
        for _ in range(2):
            process.stdout.readline()
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=30)
        self.assertEqual((process.returncode, errors),
                         (130, "error: interrupted; all ranks were ended\n"))

    @unittest.skipUnless(sys.platform == "linux", "ranks of a killed launcher: on Linux only")
    def test_ranks_end_when_their_launcher_is_killed(self):
        program = self.program("import os, time; print(os.getpid()); time.sleep(60)")
        process = self.start("--no-prefix", "-n", "2", program)
        pids = [int(process.stdout.readline()) for _ in range(2)]
        process.kill()
        process.communicate(timeout=30)
        until = time.monotonic() + 20
        while any(is_running(pid) for pid in pids):
            self.assertLess(time.monotonic(), until)
            time.sleep(0.02)

    def test_rank_0_reads_what_is_given(self):
        program = self.program("import sys; print(repr(sys.stdin.read()))")
        process = self.start("-n", "2", program, stdin=subprocess.PIPE)
        said, _ = process.communicate("text", timeout=60)
        self.assertEqual(sorted(said.splitlines()), ["[0] 'text'", "[1] ''"])

    def test_wrong_words_are_told(self):
        for words in ([], ["-n", "0", "x.py"], ["-n", "two", "x.py"], ["-n", "2"],
                      ["-n", "2", "--timeout", "-1", "x.py"], ["x.py"]):
            code, said, errors = self.launch(*words)
            self.assertEqual((code, said), (2, ""), words)
            self.assertIn("error: ", errors)
            self.assertNotIn("Traceback", errors)
        code, _, errors = self.launch("-n", "2", "no-such-program")
        self.assertEqual(code, 2)
        self.assertIn("cannot start `no-such-program`", errors)


def is_running(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


if __name__ == "__main__":
    unittest.main()
