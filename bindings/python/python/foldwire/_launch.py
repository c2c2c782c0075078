"""The command ``foldwire launch`` starts the ranks of a program on this machine, and ends them
together, as the command of the same name in Foldwire's benchmark suite does.

Each rank gets FOLDWIRE_RANK, FOLDWIRE_SIZE, FOLDWIRE_ROOT (a free port of this machine) and
FOLDWIRE_TOKEN (a new secret) in its environment, and FOLDWIRE_JOB, a name that nobody can guess.
Each rank leads its own process group, so that its child processes end with it. Ranks end with their
launcher, even if it is killed.
"""

from __future__ import annotations

import argparse
import os
import sys

from . import _native

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


def launch(arguments) -> int:
    """Runs the command. Returns its exit code."""
    _complete(arguments)
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    code, failure = _native.launch(arguments.program, arguments.ranks, not arguments.no_prefix,
                                   arguments.timeout, arguments.grace)
    if failure is not None:
        print(f"error: {failure}", file=sys.stderr)
    return code
