"""The command ``foldwire launch`` starts the ranks of a program on this machine, and ends them
together.

Each rank gets FOLDWIRE_RANK, FOLDWIRE_SIZE, FOLDWIRE_ROOT (a free port of this machine) and
FOLDWIRE_TOKEN (a new secret) in its environment, and FOLDWIRE_JOB, a name that nobody can guess, as
with the command of the same name in Foldwire's benchmark suite. Each rank leads its own process
group, so that its child processes end with it. On Linux, ranks end with their launcher, even if it
is killed.
"""

from __future__ import annotations

import argparse
import ctypes
import io
import os
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time

_ABOUT = """\
examples:
  foldwire launch -n 4 program.py
  foldwire launch -n 2 --timeout 60 -- ./program --its options

Each line of output begins with its rank. Rank 0 gets the standard input, unless that is a terminal.
When a rank fails, the other ranks have --grace seconds to end by themselves. Then they get SIGTERM,
and after the same time SIGKILL, and so does what they have started. All output of ended ranks is
forwarded, however slowly it is read; that of processes left behind for a second, or 1 MiB. The exit
code is that of the rank that failed first, or 128 + N if signal N ended it; 124 after --timeout;
130 after Ctrl-C.
"""
_INTERRUPTED, _TIMED_OUT = 130, 124
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# Seconds between polls of the ranks, and longest wait for their last output. A process that a rank
# has started and left behind may keep the output open.
_STEP, _LAST_OUTPUT = 0.02, 1.0
# Bytes to forward after the last rank's end: all that a pipe of Linux and a file's buffer hold,
# unless root has enlarged the pipe. Later ones are from processes left behind.
_LAST_BYTES = (1 << 20) + io.DEFAULT_BUFFER_SIZE
_PR_SET_PDEATHSIG = 1


def _positive(text):
    number = int(text)
    if number < 1:
        raise ValueError
    return number


def _seconds(text):
    number = float(text)
    if not 0 <= number < 1e9:
        raise ValueError
    return number


_positive.__name__, _seconds.__name__ = "number of ranks", "number of seconds"


def add_launch(commands):
    """Adds the command to the parsers of commands."""
    parser = commands.add_parser(
        "launch", help="start the ranks of a program on this machine", epilog=_ABOUT,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        usage="foldwire launch -n N [options] [--] program.py [arguments]")
    parser.add_argument("-n", "--ranks", type=_positive, required=True, help="number of ranks")
    parser.add_argument("--no-prefix", action="store_true",
                        help="do not add ranks to lines of output")
    parser.add_argument("--timeout", type=_seconds, metavar="SECONDS",
                        help="end all ranks after this time")
    parser.add_argument("--grace", type=_seconds, default=2.0, metavar="SECONDS",
                        help="how long other ranks may continue after one has failed (2)")
    parser.add_argument("program", nargs=argparse.REMAINDER,
                        help="a command, or a Python program that ends in .py")
    parser.set_defaults(refuse=parser.error)


def _complete(arguments):
    """Completes the program's command."""
    program = arguments.program
    arguments.program = program = program[1:] if program[:1] == ["--"] else program
    if not program:
        arguments.refuse("name the program, as in: foldwire launch -n 4 program.py")
    if program[0].endswith(".py"):
        program.insert(0, sys.executable)


class _Ranks:
    """The processes of the ranks, and the threads that forward their output."""

    def __init__(self, arguments, root):
        self._lock = threading.Lock()
        self.is_unwritable = False
        self.have_ended = False
        self.forwarders = []
        # Lines that each forwarder has read and written. It is odd while a line is written.
        self.progress = [0] * (2 * arguments.ranks)
        self.processes = []
        token, job = secrets.token_hex(16), secrets.token_hex(16)
        try:
            for rank in range(arguments.ranks):
                self.processes.append(_start(arguments, rank, root, token, job))
        except BaseException:
            self.signal(signal.SIGKILL)
            raise
        for rank, process in enumerate(self.processes):
            width = len(str(arguments.ranks - 1))
            is_alone = arguments.no_prefix or arguments.ranks == 1
            prefix = b"" if is_alone else f"[{rank:{width}}] ".encode()
            for pipe, to in ((process.stdout, sys.stdout), (process.stderr, sys.stderr)):
                at = len(self.forwarders)
                forwarder = threading.Thread(target=self._forward, daemon=True,
                                             args=(pipe, to.buffer, prefix, at))
                forwarder.start()
                self.forwarders.append(forwarder)

    def _forward(self, pipe, to, prefix, at):
        n_last_bytes = 0
        for line in pipe:
            self.progress[at] += 1
            if self.have_ended:
                n_last_bytes += len(line)
            # Write whole lines, so that output of different ranks does not mix.
            line = prefix + line + (b"\n" if prefix and not line.endswith(b"\n") else b"")
            try:
                with self._lock:
                    to.write(line)
                    to.flush()
            except (OSError, ValueError):
                self.is_unwritable = True
                return
            finally:
                self.progress[at] += 1
            if n_last_bytes >= _LAST_BYTES:
                return

    def wait_for_output(self, is_asked):
        """Waits until the output of ended ranks is forwarded, or ``is_asked()``."""
        self.have_ended = True
        end = time.monotonic() + _LAST_OUTPUT
        before = None
        while any(forwarder.is_alive() for forwarder in self.forwarders) and not is_asked():
            time.sleep(_STEP)
            now = list(self.progress)
            is_idle = now == before and not any(n % 2 for n in now)
            if is_idle and time.monotonic() >= end:
                return
            before = now

    def signal(self, number):
        """Sends a signal to all ranks that have not been reaped and their child processes."""
        for process in self.processes:
            # Only `poll` reaps processes, so the process id still belongs to the rank.
            if process.returncode is None:
                try:
                    os.killpg(process.pid, number)
                except ProcessLookupError:
                    pass

    def have_ended_unreaped(self):
        """Tells whether all ranks have ended, but reaps none, so that signals still reach their
        child processes."""
        if not hasattr(os, "waitid"):
            return None not in [process.poll() for process in self.processes]
        flags = os.WEXITED | os.WNOWAIT | os.WNOHANG
        return all(process.returncode is not None
                   or os.waitid(os.P_PID, process.pid, flags) is not None
                   for process in self.processes)

    def have_child_processes(self):
        """Tells whether a process of a rank's group runs, or that is unknown."""
        groups = {process.pid for process in self.processes if process.returncode is None}
        if sys.platform != "linux":
            return bool(groups)
        for entry in os.listdir("/proc"):
            try:
                with open(f"/proc/{entry}/stat", "rb") as file:
                    state, _, group = file.read().rpartition(b")")[2].split()[:3]
            except (OSError, ValueError):
                # It has ended by now, or is no process.
                continue
            if state not in (b"Z", b"X") and int(group) in groups:
                return True
        return False


def _start(arguments, rank, root, token, job):
    environment = {
        "PYTHONUNBUFFERED": "1",
        **os.environ,
        "FOLDWIRE_RANK": str(rank),
        "FOLDWIRE_SIZE": str(arguments.ranks),
        "FOLDWIRE_ROOT": root,
        "FOLDWIRE_TOKEN": token,
        "FOLDWIRE_JOB": job,
    }
    has_input = rank == 0 and sys.stdin is not None and not sys.stdin.isatty()
    return subprocess.Popen(
        arguments.program, env=environment, start_new_session=True,
        stdin=None if has_input else subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        # Safe, because no thread has been started yet.
        preexec_fn=_end_with_parent(os.getpid()) if sys.platform == "linux" else None)


def _end_with_parent(parent):
    prctl = ctypes.CDLL(None).prctl

    def ask():
        prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
        if os.getppid() != parent:
            os.kill(os.getpid(), signal.SIGKILL)

    return ask


def _how(code):
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was ended by signal {-code} ({signal.Signals(-code).name})"
    except ValueError:
        return f"was ended by signal {-code}"


def _supervise(arguments, ranks, interrupts):
    """Waits until all ranks have ended. Returns the message of an error, and the exit code."""
    why, code, heard = None, 0, 0
    end = None if arguments.timeout is None else time.monotonic() + arguments.timeout
    stages = [signal.SIGTERM, signal.SIGKILL]
    while True:
        if len(stages) < 2:
            # After SIGTERM, no rank is reaped before all that it has started is killed.
            if ranks.have_ended_unreaped() and not (stages and ranks.have_child_processes()):
                ranks.signal(signal.SIGKILL)
                for process in ranks.processes:
                    process.wait()
                return why, code
            codes = [None]
        else:
            codes = [process.poll() for process in ranks.processes]
        for rank, ended in enumerate(codes):
            if ended and why is None:
                others = "; the others were ended" if len(codes) > 1 else ""
                why = f"rank {rank} {_how(ended)}{others}"
                code = ended if ended > 0 else 128 - ended
                grace = time.monotonic() + arguments.grace
                end = grace if end is None else min(end, grace)
        if None not in codes:
            return why, code
        is_asked = len(interrupts) > heard or ranks.is_unwritable and len(stages) == 2
        is_late = end is not None and time.monotonic() >= end
        if (is_asked or is_late) and stages:
            if why is None and is_asked:
                why, code = "interrupted; all ranks were ended", _INTERRUPTED
                if ranks.is_unwritable:
                    why, code = "the output cannot be written; all ranks were ended", 1
            elif why is None:
                why = f"the ranks did not end within {arguments.timeout:g} s"
                code = _TIMED_OUT
            heard = len(interrupts)
            ranks.signal(stages.pop(0))
            end = time.monotonic() + arguments.grace
        time.sleep(_STEP)


def launch(arguments) -> int:
    """Runs the command. Returns its exit code."""
    _complete(arguments)
    interrupts = []
    before = {number: signal.signal(number, lambda *_: interrupts.append(1))
              for number in _SIGNALS}
    # Keep the socket open, so that Linux gives the port to no other program. With SO_REUSEADDR,
    # rank 0 can still listen on it.
    with socket.socket() as reserved:
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        reserved.bind(("127.0.0.1", 0))
        root = "127.0.0.1:%d" % reserved.getsockname()[1]
        if sys.platform != "linux":
            reserved.close()
        try:
            ranks = _Ranks(arguments, root)
        except OSError as failure:
            print(f"error: cannot start `{arguments.program[0]}` ({failure.strerror}); pass a "
                  "path, or a program in PATH", file=sys.stderr)
            return 2
        why, code = _supervise(arguments, ranks, interrupts)
        n_interrupts, last = len(interrupts), time.monotonic() + _LAST_OUTPUT
        ranks.wait_for_output(lambda: len(interrupts) > n_interrupts
                              or code == _INTERRUPTED and time.monotonic() >= last)
        if why is None and len(interrupts) > n_interrupts:
            why, code = "interrupted; all ranks were ended", _INTERRUPTED
    for number, handler in before.items():
        signal.signal(number, handler)
    if why is not None:
        print(f"error: {why}", file=sys.stderr, flush=True)
    if any(n_steps % 2 for n_steps in ranks.progress):
        # This thread would wait for the lock of a stream to which a forwarder cannot write.
        os._exit(code)
    return code
